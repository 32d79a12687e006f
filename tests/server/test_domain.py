"""Several access servers on one journal: who has which session, and how sessions move between them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import orjson
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from nearcast.client import Client, Publisher
from nearcast.errors import SessionError, SetupError
from nearcast.journal.locations import register_of
from nearcast.journal.memory import MemoryJournal
from nearcast.journal.seam import Journal
from nearcast.journal.server_register import MemoryRegister, ServerRecord
from nearcast.server.access import tokens_from
from nearcast.server.admin.documents import MEASURED
from nearcast.server.config import ServerLimits
from nearcast.server.domain import server_domain
from nearcast.server.domain.directory import ServerDirectory
from tests.server.conftest import Running, received, run, running, unit, until

QUICK = ServerLimits(renew_seconds=0.05, lapse_seconds=60.0, follow_seconds=0.01, balance_slack=1, drain_seconds=60.0)
"""Servers that look at each other often, and take none for dead that is only held up; two sessions more than the share
are too many.
"""


RESTRICTED = {"awareness": {"bandwidth": {"maximum": 3750}}, "matrix": "restriction"}


@contextlib.asynccontextmanager
async def two(
    limits: ServerLimits = QUICK, journal: Journal | None = None, **more: Any
) -> AsyncIterator[tuple[Running, Running]]:
    """The servers north and south on one journal, which know of each other."""
    journal = journal or MemoryJournal()
    async with (
        running(journal, node="north", limits=limits, **more) as north,
        running(journal, node="south", limits=limits, **more) as south,
    ):
        south.pipeline = north.pipeline
        await until(lambda: north.service.domain.beside and south.service.domain.beside)
        yield north, south


def counted(server: Running, name: str, **labels: str) -> float:
    """A counter of a server, of all its labels or of some."""
    found = getattr(server.service.metrics, name).collect()[0].samples
    return sum(one.value for one in found if one.name.endswith("_total") and labels.items() <= one.labels.items())


def outcomes(journal: Journal) -> list[tuple[str, int, str]]:
    """Client, event and outcome of all that ended, in order."""
    rows = journal.read("outcomes", 0, 1_000_000).to_pylist()
    return [(row["client"], row["event"], row["outcome"]) for row in rows]


async def knows(server: Running, *clients: str) -> None:
    """Returns when a server knows clients and what they subscribed to."""
    registry = server.service.session_manager.registry
    await until(lambda: all(id in registry.clients and f"all-{id}" in registry.subscriptions for id in clients))


def test_what_was_acknowledged_at_one_server_is_not_sent_by_another() -> None:
    """A session moves with its acknowledgements and its order; the definitions were known, so nothing is written."""

    async def test() -> None:
        async with two() as (north, south):
            await north.declare("a")
            await knows(south, "a")
            first = await north.publish(*[unit(f"e{number}") for number in range(20)])
            async with Client([north.url, south.url], "a") as client:
                assert first == [one.position for one in await received(client, 20)]
                later = await south.publish(*[unit(f"f{number}") for number in range(20)])
                half = [one.position for one in await received(client, 10)]
                events = north.journal.end("events")
                # What is acknowledged as a session moves may end twice in the log, though it counts once.
                await until(lambda: len(outcomes(north.journal)) >= 30)
                await client.move_to(south.url)
                assert south.url == client.server
                rest = [one.position for one in await received(client, 10)]
                assert later == half + rest
                await until(lambda: len(outcomes(north.journal)) >= 40)
                assert events == north.journal.end("events")
            assert 1 == counted(south, "handovers", covered="yes") == counted(south, "handovers")
            assert 0 == counted(south, "takeovers") == counted(north, "handovers")
            # In both the queue is empty, and everything in it has ended as the one said that had the session.
            for server in (north, south):
                await until(lambda server=server: not server.service.session_manager.outstanding())
                status = (await server.http.get("/status")).json()
                assert (0, 40) == (status["balance"], status["outcomes"]["acknowledged"])
            assert len(set(outcomes(north.journal))) == len(outcomes(north.journal)) == 40

    run(test)


@pytest.mark.parametrize("away", [False, True])
def test_what_was_measured_moves_with_the_session(away: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As old as it was, so nothing is written, and what it makes withheld stays so; until a reading says otherwise. Of
    who was away for long it lapses.
    """
    if away:
        monkeypatch.setattr(server_domain, "MOVE_SECONDS", 0.0)

    def reading(server: Running) -> tuple[float | None, float | None]:
        client = server.service.session_manager.registry.clients["a"]
        return client.readings.get("bandwidth"), client.moments.get("bandwidth")

    async def test() -> None:
        async with two() as (north, south):
            (await north.http.put("/settings", json=RESTRICTED)).raise_for_status()
            await north.declare("a", relevance=0.3)
            (await north.http.put("/clients/a", json={"readings": {"bandwidth": 3000}})).raise_for_status()
            await knows(south, "a")
            async with north.client("a") as client:
                await client.connected()
                await until(lambda: south.service.domain.places.of("a") is not None)
                session = north.service.session_manager.session("a")
                north.service.client_updates.update(session, {"readings": {"bandwidth": 9.0}}, MEASURED)
                await until(lambda: 9.0 == reading(south)[0])
            measured = reading(south)
            await until(lambda: not south.service.domain.places.of("a").connected)
            await north.publish(unit("e1"))
            events = north.journal.end("events")
            async with south.client("a") as client:
                await client.connected()
                if not away:
                    session = south.service.session_manager.session("a")
                    await until(lambda: {-1: 1} == session.waiting.by_priority())
                    assert (measured, 9.0 * 125) == (reading(south), session.pace.rate())
                    assert events == north.journal.end("events")
                    await client.say(readings={"bandwidth": 3700.0})
                assert "e1" == (await received(client, 1))[0].event["id"]
                assert (3000.0 if away else 3700.0) == reading(south)[0]

    run(test)


def test_a_session_that_another_connection_takes_over_at_another_server_ends_here() -> None:
    """As at one server: the first hears that it was taken over, and who does not take over is refused meanwhile."""

    async def test() -> None:
        async with two() as (north, south):
            await north.declare("a")
            await knows(south, "a")
            async with north.client("a") as first:
                await first.connected()
                await until(lambda: south.service.domain.places.of("a") is not None)
                async with south.client("a", takeover="never") as refused:
                    with pytest.raises(SessionError, match="takeover=true"):
                        await refused.connected()
                async with south.client("a") as second:
                    await second.connected()
                    with pytest.raises(SessionError, match="took over this session, at server south"):
                        await received(first, 1)
                    await north.publish(unit("e1"))
                    assert ["e1"] == [one.event["id"] for one in await received(second, 1)]
            # Once nobody is connected any more, anybody may.
            await until(lambda: north.service.domain.places.free("a", None))
            async with north.client("a", takeover="never") as third:
                await third.connected()
            assert (1, 1) == (counted(north, "handovers"), counted(south, "handovers"))

    run(test)


def test_of_two_that_connect_at_the_same_moment_one_has_the_session() -> None:
    """The log says which."""

    async def test() -> None:
        async with two() as (north, south):
            await north.declare("a")
            await knows(south, "a")
            clients = [Client(server.url, "a", takeover="never") for server in 3 * (north, south)]
            ended = await asyncio.gather(*(one.connected() for one in clients), return_exceptions=True)
            assert 1 == sum(one is None for one in ended)
            assert 5 == sum(isinstance(one, SessionError) for one in ended)
            has = [server for server in (north, south) if server.service.domain.connected()]
            assert 1 == len(has)
            await asyncio.gather(*(one.close() for one in clients))

    run(test)


def test_what_waits_ends_once() -> None:
    """What nobody is connected for expires, is conflated and is unsubscribed by one of the servers, and the other
    hears of it.
    """

    async def test() -> None:
        async with two() as (north, south):
            clients = [f"c{number}" for number in range(8)]
            await north.declare(*clients, conflate=True, ttl=1.0)
            await knows(south, *clients)
            await north.publish(unit("e1"), unit("e2"), unit("e3", "u2"))
            await until(lambda: 24 == len(outcomes(north.journal)))
            for server in (north, south):
                await until(lambda server=server: not server.service.session_manager.outstanding())
            await asyncio.sleep(0.1)
            found = outcomes(north.journal)
            assert len(set(found)) == len(found) == 24
            kinds = [one[2] for one in found]
            assert {"conflated": 8, "expired": 16} == {kind: kinds.count(kind) for kind in kinds}
            kept = [sum(server.service.domain.keeps(one) for one in clients) for server in (north, south)]
            assert 8 == sum(kept) and all(kept)

    run(test)


def test_clients_are_sent_where_there_is_room() -> None:
    """Who connects to the server that has more than its share is told of the other, and goes there."""

    async def test() -> None:
        async with two(replace(QUICK, balance_slack=2)) as (north, south):
            clients = [f"c{number}" for number in range(12)]
            await north.declare(*clients)
            await knows(south, *clients)
            receiving = [Client(north.url, one) for one in clients]
            for one in receiving:
                await one.connected()
            counts = [server.service.domain.connected() for server in (north, south)]
            assert 12 == sum(counts) and min(counts) >= 3, counts
            assert counts[1] == counted(north, "redirects", reason="balance")
            assert 0 == counted(south, "redirects")
            await north.publish(unit("e1"))
            for one in receiving:
                assert ["e1"] == [delivery.event["id"] for delivery in await received(one, 1)]
            status = (await north.http.get("/status")).json()
            assert ["north", "south"] == [one["name"] for one in status["servers"]]
            assert [True, False] == [one["here"] for one in status["servers"]]
            await asyncio.gather(*(one.close() for one in receiving))

    run(test)


def test_a_server_that_has_too_many_sends_some_to_one_that_came() -> None:
    """Their sessions move without a gap."""

    async def test() -> None:
        journal = MemoryJournal()
        async with running(journal, node="north", limits=QUICK) as north:
            clients = [f"c{number}" for number in range(10)]
            await north.declare(*clients)
            receiving = [Client(north.url, one) for one in clients]
            for one in receiving:
                await one.connected()
            await north.publish(unit("e1"))
            for one in receiving:
                await received(one, 1)
            async with running(journal, node="south", limits=QUICK) as south:
                await until(lambda: south.service.domain.connected() >= 4)
                await north.publish(unit("e2"))
                for one in receiving:
                    assert ["e2"] == [delivery.event["id"] for delivery in await received(one, 1)]
                # One that is held up may send too many: the other sends those back that are beyond the slack.
                await until(lambda: 4 <= north.service.domain.connected() <= 6)
                await asyncio.gather(*(one.close() for one in receiving))

    run(test)


async def told(url: str, query: str) -> dict[str, Any]:
    """What a socket hears first, or the code and reason with which it is closed."""
    async with connect(f"ws{url[4:]}/clients/c/stream{query}") as socket:
        try:
            found: dict[str, Any] = orjson.loads(await socket.recv())
            return found
        except ConnectionClosed as closed:
            assert closed.rcvd is not None
            return {"code": closed.rcvd.code, "reason": closed.rcvd.reason}


def test_who_does_not_follow_is_taken_and_nobody_is_sent_round_and_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many redirects a client is taken where it is. By HTTP the answer is 307, with the count in it."""

    async def test() -> None:
        async with two(replace(QUICK, balance_slack=0, balance_margin=0.0)) as (north, south):
            await north.declare("a", "b", "c")
            await knows(south, "a", "b", "c")
            north.service.domain.leveled = south.service.domain.leveled = _nothing
            async with north.client("a") as a, south.client("b") as b:
                await a.connected()
                await b.connected()
                # Each has one: whoever comes to either is one more than its share.
                full, other = north, south
                await until(lambda: [1] == [one.sessions for one in full.service.domain.directory.rooms()])
                monkeypatch.setattr(full.service.domain, "connected", lambda: 3)
                followed = await told(full.url, "?takeover=true&redirects=0")
                assert {"url": other.url, "reason": "balance"} == followed["redirect"]
                for query in ("?takeover=true", "?takeover=true&redirects=3", "?takeover=true&redirects=x"):
                    assert "hello" in await told(full.url, query)
                async with httpx.AsyncClient(base_url=full.url, timeout=60.0) as http:
                    answer = await http.get("/clients/c/events", params={"holder": "h", "redirects": "1"})
                    assert 307 == answer.status_code
                    assert f"{other.url}/clients/c/events?holder=h&redirects=2" == answer.headers["location"]

    run(test)


async def _nothing() -> None:
    return None


def test_a_server_that_drains_sends_its_clients_on_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    """It lets nobody in, publishers go elsewhere, what was sent is acknowledged first, and its name is free then."""
    caplog.set_level(logging.INFO)

    async def test() -> None:
        async with two() as (north, south):
            clients = [f"c{number}" for number in range(6)]
            await north.declare(*clients, "c")
            await knows(south, *clients, "c")
            south.service.domain.leveled = north.service.domain.leveled = _nothing
            north.service.domain.limits = south.service.domain.limits = replace(QUICK, balance_slack=100)
            receiving = [Client(north.url, one) for one in clients]
            for one in receiving:
                await one.connected()
            await north.publish(*[unit(f"e{number}") for number in range(50)])
            reading = [asyncio.create_task(received(one, 60)) for one in receiving]
            async with north.publisher() as publisher:
                assert (await publisher.publish([unit("before")])).positions
                answer = await north.http.post("/drain")
                assert (202, True) == (answer.status_code, answer.json()["draining"])
                # It goes to the other one, wherever the first is in ending.
                done = await publisher.publish([unit(f"f{number}") for number in range(9)])
                assert not done.faults and 9 == len(done.positions)
            north.pipeline.decide()
            wanted = [f"e{number}" for number in range(50)] + ["before"] + [f"f{number}" for number in range(9)]
            for task in reading:
                assert wanted == [one.event["id"] for one in await task]
            await until(lambda: not south.service.domain.directory.others)
            assert 6 == south.service.domain.connected() == counted(north, "redirects", reason="drain")
            assert ["south"] == [one["name"] for one in (await south.http.get("/servers")).json()["servers"]]
            await asyncio.gather(*(one.close() for one in receiving))

    run(test)
    assert "draining node=north sessions=6" in caplog.text and "drained node=north left=0" in caplog.text


def test_a_server_that_is_full_sends_on_and_else_asks_to_come_back() -> None:
    """With room for one session the second is sent to the other server; where both are full it is asked to wait."""

    async def test() -> None:
        async with two(replace(QUICK, sessions=1, balance_slack=100)) as (north, south):
            await north.declare("a", "b", "c")
            await knows(south, "a", "b", "c")
            async with north.client("a") as a, north.client("b") as b:
                await a.connected()
                await b.connected()
                assert (north.url, south.url) == (a.server, b.server)
                await until(lambda: north.service.domain.directory.rooms()[0].sessions == 1)
                assert 1012 == (await told(north.url, "?redirects=0"))["code"]
                answer = await north.http.get("/clients/c/events")
                assert (503, "1") == (answer.status_code, answer.headers["retry-after"])

    run(test)


def test_two_servers_of_one_name_are_refused() -> None:
    """The second says which is there."""

    async def test() -> None:
        journal = MemoryJournal()
        async with running(journal, node="north", limits=QUICK) as north:
            directory = ServerDirectory(register_of(journal), "north", "another", "http://127.0.0.1:1", 0.05, 60.0)
            with pytest.raises(
                SetupError, match=f"no other access server 'north' on this journal, got one at {north.url}"
            ):
                await directory.take_name()

    run(test)


@pytest.mark.parametrize("lasting", [True, False])
def test_a_server_that_is_alone_writes_nothing(lasting: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its record stays; beside another one it says anew that it is there, until it is alone again."""
    monkeypatch.setattr(MemoryRegister, "lasting", lasting)

    async def test() -> None:
        journal = MemoryJournal()
        async with running(journal, node="north", limits=QUICK) as north:
            domain, register = north.service.domain, register_of(journal)
            before = register.records()
            for _ in range(3):
                await domain.look()
            assert lasting == (before == register.records())
            async with running(journal, node="south", limits=QUICK) as south:
                await until(lambda: south.service.domain.directory.noticed)
                numbers = [one.number for one in register.records()]
                for _ in range(3):
                    await domain.look()
                assert numbers[0] + 3 <= register.records()[0].number
            await until(lambda: not domain.directory.others)
            before = register.records()
            assert ["north"] == [one.name for one in before]
            for _ in range(3):
                await domain.look()
            assert lasting == (before == register.records())
            domain.directory.leaving()
            await domain.look()
            assert register.records()[0].draining

    run(test)


def test_who_asks_a_server_that_is_alone_for_its_name_makes_no_number() -> None:
    """Two that ask do not take each other for the server; what they ask of one that died they get."""

    async def test() -> None:
        register = MemoryRegister()
        gone = ServerRecord("north", "gone", "http://127.0.0.1:1")
        assert register.put(gone, None)
        first, second = (ServerDirectory(register, "north", one, "http://127.0.0.1:2", 0.01, 0.3) for one in "ab")
        found = await asyncio.gather(first.take_name(), second.take_name(), return_exceptions=True)
        assert [type(None), SetupError] == sorted((type(one) for one in found), key=lambda one: one.__name__)
        assert 1 == len(register.records())

    run(test)


def test_a_server_whose_name_another_took_ends() -> None:
    """It was held up until its record lapsed: it says why, and ends."""

    async def test() -> None:
        journal = MemoryJournal()
        async with running(journal, node="north", limits=QUICK) as north:
            directory = north.service.domain.directory
            register, own = directory._register, directory.own
            register.remove(own)
            assert register.put(replace(own, instance="another", number=1), None)
            await until(lambda: north.server.should_exit)
            assert "expected to be the only access server 'north'" in str(north.service.failed)

    run(test)


def test_nobody_is_let_in_before_the_others_know_of_the_server() -> None:
    """One that was alone would send again what was acknowledged elsewhere: whoever comes waits until it has looked."""

    async def test() -> None:
        journal = MemoryJournal()
        async with running(journal, node="north", limits=replace(QUICK, renew_seconds=2.5)) as north:
            await north.declare("a")
            async with north.client("a") as client:
                await client.connected()
                async with running(journal, node="south", limits=QUICK) as south:
                    assert not south.service.domain.directory.noticed
                    await client.move_to(south.url)
                    assert north.service.domain.beside and south.service.domain.directory.noticed
                    await north.publish(unit("e1"))
                    await received(client, 1)
                    await until(lambda: outcomes(journal))
                    await client.move_to(north.url)
                    await north.publish(unit("e2"))
                    assert ["e2"] == [one.event["id"] for one in await received(client, 1)]

    run(test)


def test_who_may_not_manage_ends_no_server_and_a_name_of_several_addresses_is_enough() -> None:
    """Where nobody listens at the first address of a name the next is tried."""

    async def test() -> None:
        tokens = tokens_from("w:watching:watch m:managing:manage,receive,publish")
        async with running(limits=QUICK, tokens=tokens) as server:
            for token, status in (("watching", 403), ("", 401)):
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                assert status == (await server.http.post("/drain", headers=headers)).status_code
            managing = {"Authorization": "Bearer managing"}
            (await server.http.put("/clients/a", json={}, headers=managing)).raise_for_status()
            named = server.url.replace("127.0.0.1", "localhost")
            async with Client(["http://127.0.0.1:9", named], "a", "managing") as client:
                await client.connected()
                assert named == client.server
            async with Publisher(["http://127.0.0.1:9", named], "managing") as publisher:
                assert [None] != (await publisher.publish([unit("e1")])).positions
                assert named == publisher.server

    run(test)


@pytest.mark.parametrize("removed", ["/subscriptions/all-a", "/clients/a"])
def test_what_was_removed_while_another_server_had_a_session_is_ended_by_who_has_it_next(removed: str) -> None:
    """The other one may have lost it before it heard of the removal: then nobody would have ended what waited."""

    async def test() -> None:
        async with running() as server:
            manager, own = server.service.session_manager, [False]
            manager.keeps = lambda client: own[0]
            await server.declare("a")
            positions = await server.publish(unit("e1"), unit("e2"))
            waiting = manager.session("a").waiting
            await until(lambda: 2 == len(waiting.waiting))
            (await server.http.delete(removed)).raise_for_status()
            await until(lambda: manager.events_through >= server.journal.end("events"))
            assert (True, positions) == (waiting.followed, [one >> 20 for one in waiting.waiting])
            assert [] == outcomes(server.journal)
            own[0] = True
            manager.review("a")
            await until(lambda: 2 == server.journal.end("outcomes"))
            assert [("a", one, "unsubscribed") for one in positions] == outcomes(server.journal)
            assert (0, 0) == (len(waiting.waiting), waiting.balance())

    run(test)
