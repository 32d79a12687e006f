"""Publishers that hold back by themselves, against a real server with the real stages beside it."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pyarrow as pa
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from nearcast.client import Publisher
from nearcast.errors import JournalError, Mark
from nearcast.journal.memory import MemoryJournal
from nearcast.language.cloudevents import read_event
from nearcast.server.access import tokens_from
from nearcast.server.config import ServerLimits
from nearcast.server.ingest.group_commit import QueueFull
from nearcast.server.ingest.lease_manager import MOST_UNREAD, LeaseManager
from nearcast.server.metrics import ServerMetrics
from nearcast.suppression.ingest_filter import IngestFilter
from tests.server.conftest import LOOK, Running, run, running, until
from tests.server.test_entrance import Stages, moved, related, walk

PATIENT = ServerLimits(lease_seconds=60.0)
"""Leases last though publishers are held up."""


async def heard(server: Running, stages: Stages) -> None:
    """Lets the stages decide, and the server hear of it and lend what it can."""
    stages.decide()
    end = server.journal.end("source filters")
    await until(lambda: server.service.event_entry._heard == end)
    await asyncio.sleep(5 * LOOK)


async def told(suppress: bool, steps: int) -> tuple[list[dict[str, Any]], int, int]:
    """What is told of a walk of two, each with a publisher of its own; what was posted, what stayed with them."""
    async with related(True, limits=PATIENT) as (server, stages):
        publishers = {who: server.publisher(suppress=suppress) for who in "ab"}
        held = 0
        for event in walk(steps):
            published = await publishers[event["subject"]].publish([event])
            assert not published.faults
            held += len(published.held)
            await heard(server, stages)
        for publisher in publishers.values():
            await publisher.close()
    stages.decide()
    return stages.told, sum(one.requests for one in publishers.values()), held


def test_fewer_requests_and_the_same_is_told() -> None:
    """Who, where, how far apart, since when: all is the same."""

    async def test() -> None:
        everything, all_of_them, _ = await told(False, 60)
        found, posted, held = await told(True, 60)
        assert everything == found
        assert len(found) >= 2
        assert 60 == all_of_them
        assert held >= 20
        assert posted <= 40

    run(test)


async def lent(server: Running, stages: Stages, a: Publisher, b: Publisher) -> None:
    """Two publishers with a lease each, of subjects that are far apart."""
    await a.publish([moved(0, "a", 0.0)])
    await b.publish([moved(1, "b", 100.0)])
    await until(lambda: a._suppression.publisher and b._suppression.publisher)  # type: ignore[union-attr]
    await a.publish([moved(2, "a", 0.0)])
    await b.publish([moved(3, "b", 100.0)])
    await heard(server, stages)
    await until(lambda: has_lease(a) and has_lease(b))


def has_lease(publisher: Publisher) -> bool:
    assert publisher._suppression
    return bool(publisher._suppression._holding._leases)


def ids(server: Running) -> list[str]:
    found: list[str] = server.journal.read("events", 0, server.journal.end("events")).column("id").to_pylist()
    return found


def test_what_is_kept_goes_before_what_leaves_the_other_guard() -> None:
    """And before a definition; until then nothing is sent."""

    async def test() -> None:
        async with related(True, limits=PATIENT) as (server, stages), server.publisher(suppress=True) as a:
            b = server.publisher(suppress=True)
            await lent(server, stages, a, b)
            before, posted = ids(server), a.requests
            for number, x in ((4, 1.0), (5, 2.0)):
                assert {0} == (await a.publish([moved(number, "a", x)])).held
            assert (before, posted) == (ids(server), a.requests)
            await b.publish([moved(6, "b", 11.0)])
            assert ["5", "6"] == ids(server)[len(before) :]
            await b.publish([moved(7, "b", 100.0)])
            await a.publish([moved(8, "a", 0.0)])
            await heard(server, stages)
            await until(lambda: has_lease(a) and has_lease(b))
            assert {0} == (await b.publish([moved(9, "b", 101.0)])).held
            await server.declare("ann", filter="type = 'bus'")
            assert ids(server).index("9") == ids(server).index("8") + 1
            metrics = (await server.http.get("/metrics")).text
            assert "nearcast_leases_lost_total 0.0" in metrics
            await b.close()

    run(test)


def test_a_publisher_that_dies_is_waited_for_and_no_longer() -> None:
    """What it kept is its own to lose; the other side is told, and the loss is counted."""

    async def test() -> None:
        limits = ServerLimits(lease_seconds=5.0)
        async with related(True, limits=limits) as (server, stages), server.publisher(suppress=True) as b:
            a = server.publisher(suppress=True)
            await lent(server, stages, a, b)
            assert {0} == (await a.publish([moved(4, "a", 1.0)])).held
            assert a._suppression
            assert a._suppression._running
            # It dies: nothing of it is sent any more.
            a._suppression._give_up = lambda returned: None  # type: ignore[method-assign]
            a._suppression._running.cancel()
            published = await b.publish([moved(5, "b", 11.0)])
            assert published.positions[0]
            assert "4" not in ids(server)
            assert "nearcast_leases_lost_total 1.0" in (await server.http.get("/metrics")).text
            await a._posts.close()

    run(test)


def test_what_is_kept_goes_when_the_connection_is_lost() -> None:
    """At once; nobody has to wait, and with the next connection it is held back again."""

    async def test() -> None:
        async with related(True, limits=PATIENT) as (server, stages), server.publisher(suppress=True) as a:
            b = server.publisher(suppress=True)
            await lent(server, stages, a, b)
            assert {0} == (await a.publish([moved(4, "a", 1.0)])).held
            assert a._suppression
            assert a._suppression._connection
            a._suppression._connection.transport.abort()
            await until(lambda: len(server.service.event_entry.lease_manager.leases) == 1)
            await b.publish([moved(5, "b", 11.0)])
            assert ["4", "5"] == ids(server)[-2:]
            await b.publish([moved(6, "b", 100.0)])
            await until(lambda: a._suppression and a._suppression.publisher)
            await a.publish([moved(7, "a", 0.0)])
            await heard(server, stages)
            await until(lambda: len(server.service.event_entry.lease_manager.leases) == 2)
            await b.close()

    run(test)


def test_a_subject_of_two_publishers_is_not_lent() -> None:
    """What the one keeps goes before what the other sends, and then nothing is kept."""

    async def test() -> None:
        async with related(True, limits=PATIENT) as (server, stages), server.publisher(suppress=True) as a:
            b = server.publisher(suppress=True)
            await lent(server, stages, a, b)
            assert {0} == (await a.publish([moved(4, "a", 1.0)])).held
            async with server.publisher() as other:
                assert frozenset({0}) == (await other.publish([moved(5, "a", 1.0)])).suppressed
            await heard(server, stages)
            assert set() == (await a.publish([moved(6, "a", 1.0)])).held
            await heard(server, stages)
            assert set() == (await a.publish([moved(7, "a", 1.0)])).held
            await b.close()

    run(test)


def test_what_is_wanted_is_sent() -> None:
    """However well the guards permit it."""

    async def test() -> None:
        async with related(True, limits=PATIENT) as (server, stages), server.publisher(suppress=True) as a:
            await server.declare("ann", filter="type = 'car' AND subject = 'a'")
            async with server.publisher(suppress=True) as b:
                for number in range(6):
                    await a.publish([moved(2 * number, "a", 0.0)])
                    await b.publish([moved(2 * number + 1, "b", 100.0)])
                    await heard(server, stages)
                await until(lambda: has_lease(b))
                held = (await b.publish([moved(20, "b", 100.0)])).held
                assert (6, {0}, False) == (a.requests, held, has_lease(a))

    run(test)


def test_who_may_not_publish_gets_no_guards_and_where_nothing_is_held_back_all_is_sent() -> None:
    """The connection is refused; the publisher goes on without it."""

    async def test() -> None:
        async with running(tokens=tokens_from("x:secret:receive y:other:publish")) as server:
            url = server.url.replace("http", "ws") + "/guards"
            for token, code in (("secret", 4403), ("wrong", 4401)):
                async with connect(url, additional_headers={"Authorization": f"Bearer {token}"}) as socket:
                    with pytest.raises(ConnectionClosed) as closed:
                        await socket.recv()
                assert closed.value.rcvd
                assert code == closed.value.rcvd.code
            async with Publisher(server.url, "other", suppress=True) as publisher:
                for number in range(3):
                    assert (await publisher.publish([moved(number, "a", 0.0)])).positions[0]

    run(test)


def test_what_came_back_and_had_no_room_is_tried_again() -> None:
    """Its publisher has let go of it; so it has to enter, late as it is."""

    async def test() -> None:
        async with related(True) as (server, _):
            event_entry = server.service.event_entry
            blocks, room = event_entry._blocks, event_entry._blocks.room
            full, failed = (
                read_event(moved(number, "a", 0.0), Mark("here"), payload=orjson.dumps(moved(number, "a", 0.0)))
                for number in (1, 2)
            )
            blocks.pending, blocks.room = 1, 0
            event_entry.lease_manager.late.append(full)
            with pytest.raises(QueueFull):
                await event_entry.sweep()
            blocks.pending, blocks.room = 0, room
            unwritten = asyncio.get_running_loop().create_future()
            unwritten.set_exception(JournalError("not just now"))
            event_entry._came_back(failed, unwritten)
            await until(lambda: server.journal.end("events") == 3)

    run(test)


def test_standings_that_cannot_be_read_are_read_with_the_next_look() -> None:
    """They are not passed over."""

    class Failing(MemoryJournal):
        fails = True

        def read(self, log: str, after: int, limit: int) -> pa.Table:
            if log == "source filters" and self.fails:
                raise JournalError("not just now")
            return super().read(log, after, limit)

    async def test() -> None:
        journal = Failing()
        async with related(True, limits=PATIENT) as (server, stages), server.publisher() as publisher:
            await publisher.publish([moved(1, "a", 0.0), moved(2, "b", 30.0)])
            stages.decide()
            rows = server.journal.read("source filters", 0, 10)
        async with running() as server:
            event_entry = server.service.event_entry
            event_entry._heard = 0
            journal.commit_range("source filters", rows, 3)
            with pytest.raises(JournalError):
                event_entry._read(journal)
            journal.fails = False
            assert len(rows) == len(event_entry._read(journal)) > 0

    run(test)


def test_a_publisher_that_does_not_read_is_told_no_more() -> None:
    """What waits for it, and what it asks for, stay bounded; and its time runs out."""

    async def test() -> None:
        lease_manager = LeaseManager(IngestFilter(), ServerMetrics(), 2.0)
        holder, messages = lease_manager.connect()
        assert lease_manager.note_heartbeat(holder)
        for number in range(MOST_UNREAD):
            messages.put_nowait({"beat": number})
        assert not lease_manager.note_heartbeat(holder)
        lease_manager.ask(holder, "a", ["type" * 2_000])
        lease_manager.ask(holder, "b", ["type"])
        assert ["b"] == list(lease_manager.leases._asked)

    run(test)


def test_a_message_that_is_none_ends_the_connection() -> None:
    """And nothing else."""

    async def test() -> None:
        async with related(True) as (server, _):
            url = server.url.replace("http", "ws") + "/guards"
            for message in ({"ask": 3}, [], {}, {"beat": [1]}, {"returned": {"id": "x", "kept": None}}):
                async with connect(url) as socket:
                    assert "hello" in orjson.loads(await socket.recv())
                    await socket.send(orjson.dumps(message).decode())
                    with pytest.raises(ConnectionClosed):
                        await socket.recv()

    run(test)
