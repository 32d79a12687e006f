"""What a client receives, into a topic: acknowledged when the brokers have it, so at least once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from nearcast.client import Client, Delivery
from nearcast.errors import Fault, Mark
from nearcast.kafka.kafka_binding import KafkaMessage, message_of
from nearcast.kafka.kafka_brokers import MESSAGE_BYTES, message_too_large
from nearcast.kafka.kafka_counts import DeadMessages, KafkaCounts

IN_FLIGHT = 500
"""Messages that brokers have not answered yet: with so many the next one waits, and what is behind it at the server."""

_Sent = tuple[asyncio.Future[Any], Delivery]


@dataclass(slots=True)
class KafkaOutbound:
    """Sends the deliveries of one client to one topic, in the order in which they come, most important first.

    Whoever reads the topic tells a repeated one by its `ce_source` and `ce_id`.
    """

    client: Client
    topic: str
    producer: Any
    dead: DeadMessages
    counts: KafkaCounts
    structured: bool = False
    _sent: asyncio.Queue[_Sent | None] = field(default_factory=lambda: asyncio.Queue(IN_FLIGHT))

    async def run(self, stopping: asyncio.Event) -> None:
        """Goes on until it is to stop; what was sent then is waited for.

        Raises, as a group, AccessError, RightError and SessionError where the client cannot receive, and KafkaError.
        """
        async with self.client, asyncio.TaskGroup() as group:
            group.create_task(self._send(stopping))
            group.create_task(self._settle())

    async def _send(self, stopping: asyncio.Event) -> None:
        async for delivery in _until(stopping, self.client):
            message = self._message(delivery)
            if message.size > MESSAGE_BYTES:
                await self._refuse(delivery, f"{message.size:,}")
                continue
            future = await self.producer.send(self.topic, message.value, key=message.key, headers=[*message.headers])
            await self._sent.put((future, delivery))
        await self._sent.put(None)

    async def _settle(self) -> None:
        """Acknowledges each delivery when the brokers have answered its message."""
        too_large = message_too_large()
        while (one := await self._sent.get()) is not None:
            future, delivery = one
            try:
                await future
            except too_large as error:
                await self._refuse(delivery, str(error))
                continue
            self.counts.sent.labels(self.topic).inc()
            await self.client.acknowledge(delivery.position)

    async def _refuse(self, delivery: Delivery, came: str) -> None:
        """Tells of one that is too large. Where nothing keeps it, it stays at the server for its time to live."""
        event = delivery.event.document
        named = {name: event[name] for name in ("id", "source", "type", "subject", "specversion") if name in event}
        fault = Fault(f"a message of at most {MESSAGE_BYTES:,} bytes", came, Mark(f"delivery {delivery.position}"))
        if await self.dead.refuse(message_of(named, self.topic, False, ()), fault):
            await self.client.acknowledge(delivery.position)

    def _message(self, delivery: Delivery) -> KafkaMessage:
        told = {
            "nearcast_client": self.client.id,
            "nearcast_position": str(delivery.position),
            "nearcast_priority": str(delivery.priority),
            "nearcast_subscription": delivery.subscription,
        }
        return message_of(delivery.event.document, self.topic, self.structured, told.items())


async def _until(stopping: asyncio.Event, client: Client) -> AsyncIterator[Delivery]:
    """The deliveries of a client until it is to stop."""
    deliveries, stopped = client.deliveries(), asyncio.create_task(stopping.wait())
    try:
        while not stopping.is_set():
            coming = asyncio.ensure_future(anext(deliveries))
            await asyncio.wait({coming, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                coming.cancel()
                return
            yield coming.result()
    finally:
        stopped.cancel()
