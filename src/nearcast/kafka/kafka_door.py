"""A door to Kafka as a whole: topics in, clients out, begun anew where the brokers fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from nearcast.client import Client, Publisher
from nearcast.errors import first_error
from nearcast.kafka.kafka_binding import PlainMessages
from nearcast.kafka.kafka_brokers import KafkaBrokers, kafka_errors
from nearcast.kafka.kafka_counts import DeadMessages, KafkaCounts
from nearcast.kafka.kafka_inbound import KafkaInbound
from nearcast.kafka.kafka_outbound import KafkaOutbound
from nearcast.runtime.backoff import backoff

log = logging.getLogger("nearcast.kafka")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0


@dataclass(frozen=True, slots=True)
class KafkaDoor:
    """Which topics are read, by which group, and which clients' deliveries go to which topics; at which server."""

    brokers: KafkaBrokers
    url: str
    token: str | None = None
    topics: Sequence[str] = ()
    plain: PlainMessages = field(default_factory=PlainMessages)
    group: str = "nearcast"
    clients: Mapping[str, str] = field(default_factory=dict)
    structured: bool = False
    dead_topic: str | None = None
    counts: KafkaCounts = field(default_factory=KafkaCounts)

    async def run(self, stopping: asyncio.Event) -> None:
        """Goes on until it is to stop. Where brokers fail it begins anew, after pauses: what was not committed is read
        once more, what was not acknowledged comes once more. Raises, as a group, what the access server refuses.
        """
        failed = kafka_errors()
        pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while not stopping.is_set():
            passed = self._passed()
            try:
                await self._run_once(stopping)
            except* failed as errors:
                if self._passed() > passed:
                    pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE)
                self._tell(errors)
                await _pause(next(pauses), stopping)

    async def _run_once(self, stopping: asyncio.Event) -> None:
        async with AsyncExitStack() as stack:
            producer = self.brokers.producer() if self.clients or self.dead_topic else None
            if producer is not None:
                # Also where it did not start: it has tasks from its beginning.
                stack.push_async_callback(producer.stop)
                await producer.start()
            dead = DeadMessages(self.counts, producer, self.dead_topic)
            runs = [
                self._outbound(client, topic, producer, dead).run(stopping) for client, topic in self.clients.items()
            ]
            if self.topics:
                consumer = self.brokers.consumer(*self.topics, group=self.group)
                stack.push_async_callback(consumer.stop)
                await consumer.start()
                publisher = await stack.enter_async_context(Publisher(self.url, self.token))
                runs.append(KafkaInbound(consumer, publisher, self.plain, dead, self.counts).run(stopping.is_set))
            async with asyncio.TaskGroup() as group:
                for run in runs:
                    group.create_task(run)

    def _outbound(self, client: str, topic: str, producer: Any, dead: DeadMessages) -> KafkaOutbound:
        receiver = Client(self.url, client, self.token, automatic=False)
        return KafkaOutbound(receiver, topic, producer, dead, self.counts, self.structured)

    def _passed(self) -> int:
        """How much has gone through, to see whether a connection was of use."""
        return sum(self.counts.total(name) for name in ("published", "known", "sent"))

    def _tell(self, errors: BaseExceptionGroup[BaseException]) -> None:
        self.counts.failures.labels("").inc()
        said = str(first_error(errors))
        log.warning("brokers failed, it is tried again brokers=%s error=%r", self.brokers.addresses, said)


async def _pause(seconds: float, stopping: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(stopping.wait(), seconds)
    except TimeoutError:
        return
