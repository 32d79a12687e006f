"""What one sender may cost the others: small bounds, and others that are served meanwhile."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from unittest.mock import patch

import httpx
import orjson
import pytest
from prometheus_client import CollectorRegistry, Counter

from nearcast.delivery.queue import SettledDelivery
from nearcast.errors import Mark
from nearcast.journal.memory import MemoryJournal
from nearcast.language.cloudevents import read_event
from nearcast.language.control_events import changes
from nearcast.model.changes import ClientChange
from nearcast.model.subscription import Settings
from nearcast.server.access import AccessToken
from nearcast.server.config import ServerLimits
from nearcast.server.connection_limits import OpenConnections
from nearcast.server.ingest import definition_pacing
from nearcast.server.ingest.definition_pacing import DefinitionPacing, work_of
from nearcast.server.sessions import cancellation, client_updates
from nearcast.server.sessions.session import Session
from tests.server.conftest import Running, received, run, running, unit, until
from tests.server.test_deliver import SETTINGS, raw, socket_of, stored, waiting


async def is_served(server: Running, name: str) -> None:
    """Another client gets what is published now."""
    async with server.client("other") as client:
        await server.publish(unit(name))
        assert name == (await received(client, 1))[0].event["id"]


async def count(server: Running, metric: str) -> float:
    """A metric's value, 0 if it was never counted."""
    lines = (await server.http.get("/metrics")).text.splitlines()
    return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(metric + " ")), 0.0)


async def _put(server: Running, id: str, filter: str) -> httpx.Response:
    """Defines a subscription of a client a."""
    return await server.http.put(f"/subscriptions/{id}", json={"client": "a", "filter": filter})


def said(server: Running) -> list[dict[str, Any]]:
    """What clients said that is in the journal."""
    return [orjson.loads(one.payload)["data"] for one in stored(server) if one.source.endswith("said")]


def test_a_client_that_changes_all_the_time_is_told_once_and_its_newest_changes_count() -> None:
    """Of hundreds of roles and readings few enter the journal, the last of each among them."""

    async def test() -> None:
        limits = ServerLimits(client_changes=2.0, client_changes_burst=5)
        with patch("nearcast.server.sessions.stream.HELD_SECONDS", 0.0):
            async with running(limits=limits) as server:
                await server.declare("a", "other")
                async with socket_of(server) as socket:
                    for number in range(300):
                        await socket.send(orjson.dumps({"role": f"r{number}", "readings": {"battery": number}}))
                    await is_served(server, "e1")
                    fault = (await raw(socket, "notice"))["notice"]["fault"]
                    assert "at most 2 changes a second" == fault["expected"]
                    clients = server.service.session_manager.registry.clients
                    await until(lambda: ("r299", 299) == (clients["a"].role, clients["a"].readings["battery"]))
                    await socket.send('{"ping": 1}')
                    while "pong" not in (message := orjson.loads(await socket.recv())):
                        assert "notice" not in message
                await until(lambda: said(server)[-1].get("role") == "r299")
                assert len(said(server)) < 60
                assert 300 - len(said(server)) <= await count(server, "nearcast_changes_held_total") < 300

    run(test)


def test_a_server_that_ends_hears_at_once_what_was_said_before(caplog: pytest.LogCaptureFixture) -> None:
    """Who says too much waits while it is heard, and the end does not wait for that; nothing that was said is lost."""

    async def test() -> None:
        async with running(limits=ServerLimits(client_changes=2.0, client_changes_burst=1)) as server:
            await server.declare("a")
            async with socket_of(server) as socket:
                for number in range(300):
                    await socket.send(orjson.dumps({"role": f"r{number}"}))
                await raw(socket, "notice")
                # Held between any two it would take a quarter of a minute to hear, and nobody waits for that.
                server.server.should_exit = True
                await socket.wait_closed()
        assert "r299" == said(server)[-1]["role"]
        assert not [one for one in caplog.records if one.levelno >= logging.ERROR]

    run(test)


def test_readings_beyond_those_that_a_client_may_keep_are_refused_wherever_they_come_from() -> None:
    """Over HTTP, a WebSocket, or as an event; null makes room, and what was refused is not known."""

    async def test() -> None:
        async with running() as server:
            (await server.http.put("/settings", json={"limits": {"client_readings": 2}})).raise_for_status()
            await server.declare("a", "other")
            for names, status in ("xy", 200), ("xyz", 422), ("z", 422):
                answer = await server.http.put("/clients/a", json={"readings": dict.fromkeys(names, 1)})
                assert (status, "at most 2 readings" in answer.text) == (answer.status_code, status != 200)
            event = {**unit("c"), "type": "nearcast.client", "data": {"client": "a", "readings": {"w": 1}}}
            headers = {"Content-Type": "application/cloudevents+json"}
            answer = await server.http.post("/events", json=event, headers=headers)
            assert (400, "at most 2 readings of a client") == (answer.status_code, answer.json()["expected"])
            async with socket_of(server) as socket:
                for names in "z", "abc":
                    await socket.send(orjson.dumps({"readings": dict.fromkeys(names, 1)}))
                    assert "at most 2 readings" in (await raw(socket, "notice"))["notice"]["fault"]["expected"]
                await socket.send('{"readings": {"x": null, "z": 3}}')
                clients = server.service.session_manager.registry.clients
                await until(lambda: {"y": 1, "z": 3} == clients["a"].readings)
            await is_served(server, "e1")

    run(test)


def measured(server: Running) -> list[float | None]:
    """The bandwidths that were measured, as the journal has them."""
    told = (orjson.loads(one.payload)["data"] for one in stored(server) if one.source.endswith("measured"))
    return [one["readings"]["bandwidth"] for one in told]


@pytest.mark.parametrize("name", ["id", "type", "source", "subject", "attribute"])
def test_a_name_that_is_too_long_is_refused_and_never_told_whole(name: str) -> None:
    """Neither in the answer nor as the reason of the dead letter; the rest of the batch is taken."""

    async def test() -> None:
        async with running() as server:
            await server.declare("other")
            long = "n" * 500_000
            event = unit("e", **{long: 1}) if name == "attribute" else {**unit("e"), name: long}
            headers = {"Content-Type": "application/cloudevents-batch+json"}
            answer = await server.http.post("/events", json=[event, {**unit("good"), "type": "other"}], headers=headers)
            assert (202, [None, 3]) == (answer.status_code, answer.json()["positions"])
            assert "at most 1,000 characters" in answer.text
            assert len(answer.content) < 1_000
            await until(lambda: server.journal.end("dead letters"))
            [letter] = server.journal.read("dead letters", 0, 10).to_pylist()
            assert len(letter["reason"]) < 1_000
            await is_served(server, "e1")

    run(test)


def test_ids_that_are_too_long_are_refused() -> None:
    """Of clients, subscriptions, relations, rules and actions, in documents of any kind."""

    async def test() -> None:
        async with running() as server:
            long = "n" * 1_001
            for kind in ("clients", "subscriptions", "relations", "situations", "actions"):
                answer = await server.http.put(f"/{kind}/{long}", json={})
                assert (422, True) == (answer.status_code, "at most 1,000 characters" in answer.text)
                assert long not in answer.text
            assert 200 == (await server.http.put(f"/clients/{long[1:]}", json={})).status_code

    run(test)


def test_objects_with_long_names_do_not_multiply() -> None:
    """A name of 200 kB before each of many values is refused as it comes."""

    async def test() -> None:
        async with running() as server:
            event = unit("e", **{"n" * 200_000: {str(number): 1 for number in range(50_000)}})
            headers = {"Content-Type": "application/cloudevents+json"}
            answer = await server.http.post("/events", json=event, headers=headers)
            assert (400, "the name of an object of at most 64,000 characters") == (
                answer.status_code,
                answer.json()["expected"],
            )

    run(test)


@asynccontextmanager
async def opened(server: Running, begun: bytes, many: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Many connections that say the beginning of a request."""
    port = int(server.url.rsplit(":", 1)[1])
    async with AsyncExitStack() as stack:
        readers = []
        for _ in range(many):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(begun)
            readers.append(reader)
        yield readers


def test_whoever_begins_requests_and_does_not_end_them_holds_up_nobody() -> None:
    """Beyond the bound the oldest of them are closed for new ones, and it is counted."""

    async def test() -> None:
        async with running(limits=ServerLimits(idle_connections=10)) as server:
            await server.declare("other")
            async with opened(server, b"GET /health HTTP/1.1\r\nHost: ", 30) as readers:
                await is_served(server, "e1")
                assert b"HTTP/1.1 408" == (await readers[0].read())[:12]
                assert await count(server, 'nearcast_rejected_total{reason="idle"}') >= 20

    run(test)


@pytest.mark.parametrize("path", ["POST /events", "PUT /clients/a"])
def test_whoever_breaks_a_request_off_is_counted_and_is_no_fault_of_the_server(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As a publisher does that is killed, or whose line goes, in the middle of what it sends."""

    async def test() -> None:
        async with running() as server:
            begun = f"{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{".encode()
            async with opened(server, begun, 3):
                await asyncio.sleep(0.2)
            name = 'nearcast_rejected_total{reason="broken off"}'
            async with asyncio.timeout(60):
                while await count(server, name) < 3:
                    await asyncio.sleep(0.02)
            await server.declare("other")
            await is_served(server, "e1")

    run(test)
    assert [] == [one for one in caplog.records if one.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    "begun, status",
    [
        (b"GET /health HTTP/1.1\r\nHost: ", b"408"),
        (b"GET /health HTTP/1.1\r\nHost: " + b"h" * 70_000, b"431"),
        (b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nx", b"408"),
        (b"\r\n", b"408"),
    ],
    ids=["half a header", "a long header", "half a body", "nothing"],
)
def test_a_request_that_does_not_end_is_ended(begun: bytes, status: bytes) -> None:
    """With a status that says so."""

    async def test() -> None:
        limits = ServerLimits(header_seconds=0.2, body_seconds=0.2)
        async with running(limits=limits) as server, opened(server, begun, 1) as [reader]:
            assert b"HTTP/1.1 " + status == (await reader.read())[:12]

    run(test)


def test_beyond_the_connections_of_an_address_the_next_one_is_refused() -> None:
    """Those that are at work are left alone; what is idle gives way first, as the one of the test's own requests."""

    async def test() -> None:
        async with running(limits=ServerLimits(address_connections=3)) as server:
            await server.declare("a", "b", "c")
            sockets = (socket_of(server, id) for id in ("a", "b", "c"))
            async with AsyncExitStack() as stack:
                a, *_ = [await stack.enter_async_context(one) for one in sockets]
                [reader] = await stack.enter_async_context(opened(server, b"GET /health HTTP/1.1\r\n\r\n", 1))
                assert b"HTTP/1.1 503" == (await reader.read())[:12]
                await a.send('{"ping": 1}')
                assert 1 == (await raw(a, "pong"))["pong"]
            await until(lambda: not any(one.connection for one in server.service.session_manager.sessions.values()))
            assert 1 == await count(server, 'nearcast_rejected_total{reason="connections"}')

    run(test)


def test_idle_connections_give_way_and_others_do_not(caplog: pytest.LogCaptureFixture) -> None:
    """Of the address that has too many, or of any; and there is one line in the log."""
    closed: list[str] = []
    refused: list[str] = []
    connections = OpenConnections(total=4, each=3, idle=4, refused=refused.append)
    for name, address in ("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"):
        assert connections.open(name, address, lambda name=name: closed.append(name))  # type: ignore[misc]
    connections.work("a1")
    assert connections.open("a4", "a", print)
    assert ["a2"] == closed
    for name in ("a3", "a4", "b1"):
        connections.work(name)
    with caplog.at_level(logging.INFO):
        assert [False, False] == [connections.open(name, name, print) for name in ("c1", "c2")]
    assert ["address", "connections", "connections"] == refused
    assert 1 == len(caplog.messages)
    assert "at most 4 connections in total" in caplog.text
    connections.end("a1")
    assert connections.open("c1", "c", print)
    assert 4 == len(connections)


def test_what_a_slow_moment_withheld_is_sent_after_all() -> None:
    """A receiver that works on what it gets is taken for one on a slow link, until that lapses; also in the journal."""

    async def test() -> None:
        settings = {**SETTINGS, "roles": {}, "matrix": "restriction"}
        with patch.object(client_updates, "MEASURED_SECONDS", 0.3):
            async with running() as server:
                (await server.http.put("/settings", json=settings)).raise_for_status()
                await server.declare("a", relevance=0.3)
                (await server.http.put("/clients/a", json={"readings": {"battery": 1}})).raise_for_status()
                manager = server.service.session_manager
                session = manager.session("a")
                await server.publish(*(unit(str(number)) for number in range(3)))
                await until(lambda: len(waiting(server).waiting) == 3)
                server.service.client_updates.update(session, {"readings": {"bandwidth": 9.0}}, client_updates.MEASURED)
                assert {-1: 3} == waiting(server).by_priority()
                server.service.client_updates._measured["a"] = 0.0
                async with server.client("a") as client:
                    assert 3 == len(await received(client, 3))
                    # What was measured before comes out of the journal once more, and then that it lapsed.
                    await until(lambda: "bandwidth" not in manager.registry.clients["a"].readings)
                    await until(lambda: [9.0, None] == measured(server))
                    server.service.client_updates.update(
                        session, {"readings": {"bandwidth": 9.0}}, client_updates.MEASURED
                    )
                    await server.publish(unit("late"))
                    assert "late" == (await received(client, 1))[0].event["id"]
                await until(lambda: len(measured(server)) > 3)
                *before, last = measured(server)[:4]
                # Where the machine was slow just then, sending was measured instead.
                assert ([9.0, None, 9.0], True) == (before, last is None or last > 9.0)

    run(test)


def test_what_was_measured_before_a_restart_lapses_when_a_client_connects() -> None:
    """The journal has it as the last word; what the client stated holds again, and what waits is sent."""

    async def test() -> None:
        journal = MemoryJournal()
        settings = {**SETTINGS, "roles": {}, "matrix": "restriction"}
        async with running(journal) as server:
            (await server.http.put("/settings", json=settings)).raise_for_status()
            await server.declare("a", relevance=0.3)
            (await server.http.put("/clients/a", json={"readings": {"bandwidth": 3000}})).raise_for_status()
            session = server.service.session_manager.session("a")
            server.service.client_updates.update(session, {"readings": {"bandwidth": 9.0}}, client_updates.MEASURED)
            await until(lambda: [9.0] == measured(server))
            await server.publish(unit("e1"))
        async with running(journal) as server:
            await until(lambda: {-1: 1} == waiting(server).by_priority())
            async with server.client("a") as client:
                assert "e1" == (await received(client, 1))[0].event["id"]
            await until(lambda: [9.0, 3000.0] == measured(server))
            assert {"bandwidth": 3000} == server.service.session_manager.registry.clients["a"].readings

    run(test)


def test_a_session_is_put_in_order_so_often_and_the_last_order_counts() -> None:
    """What is beyond what it may cost waits a moment; no order is left out in the end."""

    async def test() -> None:
        async with running(limits=ServerLimits(reordered_deliveries=150)) as server:
            (await server.http.put("/settings", json={**SETTINGS, "roles": {}})).raise_for_status()
            await server.declare("a", relevance=0.3)
            await server.publish(*(unit(str(number)) for number in range(20)))
            await until(lambda: len(waiting(server).waiting) == 20)
            manager, orders = server.service.session_manager, 0
            reorder = waiting(server).reorder

            def counted(self: object, look_up: Any) -> None:
                nonlocal orders
                orders += 1
                reorder(look_up)

            with patch.object(type(waiting(server)), "reorder", counted):
                for number in range(51):
                    manager.apply(ClientChange("a", readings={"bandwidth": 3000.0 if number % 2 else 9.0}))
                assert manager.session("a").disordered
                assert orders <= 3
                await until(lambda: {2: 20} == waiting(server).by_priority())
                await until(lambda: not manager.session("a").disordered)
            await server.declare("other")
            await is_served(server, "e1")

    run(test)


@pytest.mark.parametrize("removed", ["clients/a", "subscriptions/all-a"])
def test_what_waits_for_what_is_removed_ends_in_parts(removed: str) -> None:
    """Others have their turn between any two of them; every delivery has its outcome."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a", relevance=0.3)
            await server.publish(*(unit(str(number)) for number in range(20)))
            await until(lambda: len(waiting(server).waiting) == 20)
            manager, parts, turns = server.service.session_manager, list[int](), list[int]()
            record, session, ending = manager.record_outcomes, manager.session("a"), manager.cancellation
            turn = 0

            def recorded(session: Session, settled: list[SettledDelivery]) -> Any:
                parts.append(len(settled))
                turns.append(turn)
                return record(session, settled)

            async def others() -> None:
                nonlocal turn
                while True:
                    turn += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(others())
            with patch.object(ending, "record_outcomes", recorded), patch.object(cancellation, "EXPIRED_TOGETHER", 7):
                (await server.http.delete(f"/{removed}")).raise_for_status()
                await until(lambda: 20 == sum(parts))
            task.cancel()
            assert [7, 7, 6] == [count for count in parts if count]
            assert len(set(turns)) == len(turns)
            assert (20, 0) == (session.waiting.settled["unsubscribed"], session.waiting.balance())

    run(test)


def test_the_newest_dead_letters_are_kept() -> None:
    """In about the number that is allowed; those that gave way are counted."""

    async def test() -> None:
        limits = ServerLimits(dead_letters=3, dead_letter_seconds=0.05)
        async with running(limits=limits) as server:
            headers = {"Content-Type": "application/cloudevents+json"}
            for number in range(6):
                await server.http.post("/events", json={"id": f"e{number}"}, headers=headers)
                await until(lambda end=number + 1: server.journal.end("dead letters") == end)  # type: ignore[misc]
            await until(lambda: len(server.journal.read("dead letters", 0, 10)) == 3)
            assert [4, 5, 6] == server.journal.read("dead letters", 0, 10).column("position").to_pylist()
            assert 3 == await count(server, "nearcast_dead_letters_trimmed_total")

    run(test)


def test_who_defines_much_waits_alone() -> None:
    """Those of one sender enter in their order, as fast as it may define; others are let in meanwhile, and are told."""

    async def test() -> None:
        at = 0.0
        paced = Counter("paced", "Those that waited", registry=CollectorRegistry())
        pacing = DefinitionPacing(10, 100, paced, lambda: at)
        busy, other = (AccessToken(name, name, frozenset({"manage"})) for name in ("busy", "other"))
        order: list[str] = []

        async def define(token: AccessToken, name: str, work: int) -> None:
            await pacing.admit(token, work)
            order.append(name)

        with patch.object(definition_pacing, "STEP_SECONDS", 0):
            tasks = [asyncio.create_task(define(busy, f"b{n}", work)) for n, work in enumerate((500, 20, 1))]
            await asyncio.sleep(0)
            await define(other, "o", 100)
            for _ in range(50):
                await asyncio.sleep(0)
            assert ["b0", "o"] == order
            # What was more than the burst is owed.
            at = 41.9
            for _ in range(50):
                await asyncio.sleep(0)
            assert ["b0", "o"] == order
            at = 42.2
            await asyncio.gather(*tasks)
        assert ["b0", "o", "b1", "b2"] == order
        [metric] = paced.collect()
        assert 2 == metric.samples[0].value

    asyncio.run(test())


def test_what_a_definition_takes_rests_on_its_filters_wherever_they_are() -> None:
    """An area in a side of a relation, or in the filter of a layer, takes what it takes in a subscription."""
    areas = " OR ".join(f"S_OVERLAPS(geom, BBOX({low}, 0, 9, 9))" for low in range(3))
    place = Mark("test")
    documents = {
        "nearcast.subscription": ({"id": "s", "client": "a", "filter": areas}, 3 * 16),
        "nearcast.relation.defined": (
            {"id": "r", "a": areas, "b": "type = 'zone'", "when": "distance(a, b) <= 5"},
            50 + 3 * 16 + 1 + 8,
        ),
        "nearcast.zones.defined": ({"id": "z", "of": areas}, 50 + 3 * 16),
    }
    for type_, (data, expected) in documents.items():
        document = {"specversion": "1.0", "id": "1", "source": "x", "type": type_, "data": data}
        assert expected == work_of(changes(read_event(document, place), Settings()))


def test_many_definitions_at_once_wait_and_events_do_not() -> None:
    """By PUT or as events; each is taken in the end."""

    async def test() -> None:
        limits = ServerLimits(definition_work=400.0, definition_burst=20)
        async with running(limits=limits) as server:
            await server.declare("a", "other")
            later = time.monotonic() + 60.0
            server.service.pacing._now = lambda: later
            text = " OR ".join(f"b = {n}" for n in range(60))
            document = {"client": "a", "filter": text}
            first = await server.http.put("/subscriptions/s0", json=document)
            assert 200 == first.status_code
            waiting = [asyncio.create_task(server.http.put(f"/subscriptions/s{n}", json=document)) for n in (1, 2)]
            await is_served(server, "e1")
            assert not any(one.done() for one in waiting)
            server.service.pacing._now = time.monotonic
            assert [200, 200] == [one.status_code for one in await asyncio.gather(*waiting)]
            assert {"s0", "s1", "s2"} <= server.service.session_manager.registry.subscriptions.keys()
            assert 1 <= await count(server, "nearcast_definitions_paced_total") <= 2

    run(test)


def test_a_subscription_beyond_what_all_filters_may_have_is_refused() -> None:
    """With what to do about it; others are taken, also as events."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            assert 200 == (await server.http.put("/settings", json={"limits": {"expressions": 1}})).status_code
            assert 200 == (await _put(server, "s0", "x + 1 > y")).status_code
            refused = await _put(server, "s1", "x + 2 > y")
            assert 400 <= refused.status_code < 500
            assert "at most 1 different expressions" in refused.text and "raise the limit" in refused.text
            assert 200 == (await _put(server, "s0", "x + 2 > y")).status_code
            assert 200 == (await _put(server, "s1", "x = 2")).status_code

    run(test)
