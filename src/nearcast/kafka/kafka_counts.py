"""What a door to Kafka counts for Prometheus, and where what cannot pass goes."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter

from nearcast.errors import Fault
from nearcast.kafka.kafka_binding import KafkaMessage

log = logging.getLogger("nearcast.kafka")


class KafkaCounts:
    """The counters of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.published = self._counter("published", "Events published that came in messages")
        self.known = self._counter("known", "Messages whose event the journal had before")
        self.sent = self._counter("sent", "Deliveries that brokers took, and that were acknowledged then")
        self.refused = self._counter("refused", "Messages and deliveries that could not pass")
        self.failures = self._counter("failures", "Failures of brokers that were survived")

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"nearcast_kafka_{name}", text, ["topic"], registry=self.registry)

    def total(self, name: str) -> int:
        """What a counter has for all topics together: published, known, sent, refused or failures."""
        counter: Counter = getattr(self, name)
        samples = (sample for metric in counter.collect() for sample in metric.samples)
        return int(sum(sample.value for sample in samples if sample.name.endswith("_total")))


@dataclass(slots=True)
class DeadMessages:
    """Tells of what could not pass, and keeps it in a topic if there is one; `told` so many were, one by one."""

    counts: KafkaCounts
    producer: Any = None
    topic: str | None = None
    told: int = field(default=0, init=False)

    async def refuse(self, message: KafkaMessage, fault: Fault) -> bool:
        """Counts a message with what is wrong with it, says so, and sends it where such messages go, if there is such a
        topic: whether there is.
        """
        self.counts.refused.labels(message.topic).inc()
        self.told += 1
        log.warning("message not passed on reason=%r", str(fault))
        if self.topic is not None:
            reason = ("nearcast_fault", str(fault)[:1_000].encode())
            headers = [*message.headers, ("nearcast_topic", message.topic.encode()), reason]
            await self.producer.send_and_wait(self.topic, message.value, key=message.key, headers=headers)
        return self.topic is not None
