"""From topics into the journal: each message is one event, however often it is read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nearcast.client import Published, Publisher
from nearcast.errors import Fault, SessionError
from nearcast.kafka.kafka_binding import KafkaMessage, PlainMessages, event_of
from nearcast.kafka.kafka_counts import DeadMessages, KafkaCounts

log = logging.getLogger("nearcast.kafka")

MESSAGES = 500
"""Messages that are read, published and committed together."""

MILLISECONDS = 500
"""After which it is looked whether to end, while nothing comes."""

Stopping = Callable[[], bool]


@dataclass(slots=True)
class KafkaInbound:
    """Reads what a consumer gets, publishes it, and commits what was taken or refused: behind a crash some is read
    once more, and the journal, which knows events by source and id, takes it once.
    """

    consumer: Any
    publisher: Publisher
    plain: PlainMessages
    dead: DeadMessages
    counts: KafkaCounts

    async def run(self, stopping: Stopping) -> None:
        """Goes on until it is to stop. Raises AccessError and RightError, when the server refuses; KafkaError."""
        while not stopping():
            found = await self.consumer.getmany(timeout_ms=MILLISECONDS, max_records=MESSAGES)
            messages = [_message(record) for records in found.values() for record in records]
            if messages and await self._pass_on(messages, stopping):
                await self.consumer.commit({partition: records[-1].offset + 1 for partition, records in found.items()})

    async def _pass_on(self, messages: Sequence[KafkaMessage], stopping: Stopping) -> bool:
        """Publishes messages in the order of each partition; what is no event is refused. False: it was to stop, and
        they were not published.
        """
        events: list[Mapping[str, Any]] = []
        those: list[KafkaMessage] = []
        for message in messages:
            try:
                events.append(event_of(message, self.plain))
            except Fault as fault:
                await self.dead.refuse(message, fault)
            else:
                those.append(message)
        published = await self._published(events, stopping)
        if published is None:
            return False
        for index, message in enumerate(those):
            if (refused := published.faults.get(index)) is not None:
                await self.dead.refuse(message, Fault(refused.expected, refused.came, message.where, refused.advice))
            elif index in published.known:
                self.counts.known.labels(message.topic).inc()
            else:
                self.counts.published.labels(message.topic).inc()
        return True

    async def _published(self, events: Sequence[Mapping[str, Any]], stopping: Stopping) -> Published | None:
        """What became of events; it is tried for as long as the server is away. None: it was to stop meanwhile."""
        while not stopping():
            try:
                return await self.publisher.publish(events)
            except SessionError as error:
                log.warning("not published yet events=%d error=%r", len(events), str(error))
        return None


def _message(record: Any) -> KafkaMessage:
    headers = tuple((name, value or b"") for name, value in record.headers)
    place = (record.partition, record.offset, record.timestamp)
    return KafkaMessage(record.topic, record.key, record.value, headers, *place)
