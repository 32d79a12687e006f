"""The door to Kafka with a real broker and a real access server: once inwards, at least once outwards."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nearcast.kafka.kafka_binding import KafkaMessage, PlainMessages, message_of
from nearcast.kafka.kafka_brokers import KafkaBrokers
from nearcast.kafka.kafka_door import KafkaDoor
from tests.kafka.broker import Broker, broker
from tests.processes import SECONDS, killed_at_the_end
from tests.server.conftest import Running, running, unit, until


@asynccontextmanager
async def passing(door: KafkaDoor) -> AsyncIterator[KafkaDoor]:
    """The door while it works."""
    stopping = asyncio.Event()
    task = asyncio.create_task(door.run(stopping))
    try:
        yield door
    finally:
        stopping.set()
        async with asyncio.timeout(60):
            await task


def header(record: Any, name: str) -> str:
    """A header of a message, as text."""
    value: bytes = dict(record.headers)[name]
    return value.decode()


def positions(server: Running) -> list[dict[str, Any]]:
    """The events of type unit or plain in the journal, as rows."""
    rows = server.journal.read("events", 0, 10_000).to_pylist()
    return [row for row in rows if row["type"] in ("unit", "plain")]


def test_each_message_is_one_event_however_often_it_is_read() -> None:
    """Structured, binary and plain; also by a group that is new to the topic; what is none is kept with its fault."""

    async def test() -> None:
        async with running() as server, broker("in", "dead") as kafka:
            await kafka.write(
                message_of(unit("u1"), "in", True, ()),
                message_of(unit("u2"), "in", False, ()),
                KafkaMessage("in", b"van", b'{"x": 1}'),
                KafkaMessage("in", None, b"no JSON"),
                KafkaMessage("in", None, b"1", (("ce_id", b"u3"),)),
            )
            brokers = KafkaBrokers(kafka.address)
            plain = PlainMessages({"in": "plain"})
            door = KafkaDoor(brokers, server.url, None, ["in"], plain, dead_topic="dead")
            async with passing(door):
                await until(lambda: door.counts.total("published") + door.counts.total("refused") == 5)
            assert ["u1", "u2", "0/2"] == [row["id"] for row in positions(server)]
            dead = await kafka.read("dead", lambda found: len(found) == 2)
            faults = [header(one, "nearcast_fault") for one in dead]
            assert [b"no JSON", b"1"] == [one.value for one in dead]
            assert all("topic in, partition 0, offset " in fault for fault in faults)
            again = KafkaDoor(brokers, server.url, None, ["in"], plain, "another group")
            async with passing(again):
                await until(lambda: again.counts.total("known") == 3)
            assert 3 == len(positions(server))
            await kafka.write(message_of(unit("u4"), "in", True, ()))
            later = KafkaDoor(brokers, server.url, None, ["in"], plain)
            async with passing(later):
                await until(lambda: later.counts.total("published") == 1)
            assert 0 == later.counts.total("known"), "it goes on where its group was"

    asyncio.run(test())


def test_what_a_client_receives_is_in_its_topic_and_acknowledged_then() -> None:
    """With the priority and the subscription, keyed by what it is about."""

    async def test() -> None:
        async with running() as server, broker("out") as kafka:
            await server.declare("a")
            door = KafkaDoor(KafkaBrokers(kafka.address), server.url, clients={"a": "out"})
            async with passing(door):
                await server.publish(*(unit(f"u{n}", subject=f"van {n % 2}", speed=n) for n in range(5)))
                await until(lambda: door.counts.total("sent") == 5)
                found = await kafka.read("out", lambda found: len(found) == 5)
                await until(lambda: not server.service.session_manager.sessions["a"].waiting.in_flight)
            assert [f"u{n}" for n in range(5)] == [header(one, "ce_id") for one in found]
            assert [b"van 0", b"van 1"] == [one.key for one in found[:2]]
            told = dict(found[0].headers)
            assert (b"a", b"all-a", b"0") == tuple(
                told[f"nearcast_{name}"] for name in ("client", "subscription", "priority")
            )
            assert b'{"speed":0}' == found[0].value

    asyncio.run(test())


async def pass_through(server: Running, kafka: Broker, count: int) -> None:
    """Starts the command, kills it twice while messages come, and lets it end when all have passed."""
    command = [sys.executable, "-m", "nearcast", "connect", "kafka", "--brokers", kafka.address, "--from", "in"]
    command += ["--to", "a=out", "--url", server.url]
    for half in range(2):
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process, killed_at_the_end(process):
            first = half * count // 2
            await kafka.write(*(message_of(unit(f"u{first + n}"), "in", False, ()) for n in range(count // 2)))
            await until(lambda first=first: len(positions(server)) > first, SECONDS)  # type: ignore[misc]
            server.pipeline.decide()
            process.kill()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process, killed_at_the_end(process):
        await until(lambda: len(positions(server)) == count, SECONDS)
        server.pipeline.decide()
        await until(lambda: acknowledged(server) == count, SECONDS)
        process.send_signal(signal.SIGTERM)
        said = (await asyncio.to_thread(process.communicate))[1]
    assert 0 == process.returncode and "in → events, a → out" in said, said


def acknowledged(server: Running) -> int:
    """How many deliveries of the client are settled."""
    settled: int = sum(server.service.session_manager.sessions["a"].waiting.settled.values())
    return settled


@pytest.mark.faults
def test_a_door_that_is_killed_loses_nothing_and_takes_nothing_twice() -> None:
    """Each message is in the journal once, and each delivery in the topic at least once."""

    async def test() -> None:
        async with running() as server, broker("in", "out") as kafka:
            await server.declare("a")
            await pass_through(server, kafka, 200)
            assert [f"u{n}" for n in range(200)] == [row["id"] for row in positions(server)]
            wanted = {f"u{n}" for n in range(200)}
            assert await kafka.read("out", lambda found: wanted == {header(one, "ce_id") for one in found})

    asyncio.run(test())


def test_brokers_that_are_not_there_are_told_and_tried_again() -> None:
    """It ends when it is asked to; a server that refuses ends it."""

    async def test() -> None:
        door = KafkaDoor(KafkaBrokers("127.0.0.1:9"), "http://127.0.0.1:9", topics=["in"])
        async with passing(door):
            await until(lambda: door.counts.total("failures") > 0)

    asyncio.run(test())
