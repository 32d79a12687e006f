"""Nobody holds the event loop for long: what is large is done elsewhere, and what holds it is told."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import orjson
import pyarrow as pa
import pytest
from fastapi import FastAPI

from nearcast.errors import Mark
from nearcast.journal.memory import MemoryJournal
from nearcast.language.cql2 import parse
from nearcast.model.changes import SubscriptionChange
from nearcast.model.subscription import Subscription
from nearcast.runtime.loop_monitor import LoopMonitor, doing
from nearcast.server.admin import management
from nearcast.server.ingest import group_commit, publishing
from nearcast.server.ingest.group_commit import GroupCommit
from nearcast.server.metrics import ServerMetrics
from nearcast.server.sessions import manager
from nearcast.suppression import interest_index
from tests.server.conftest import run, running, unit, until
from tests.server.test_bounds import count


def test_a_loop_that_is_held_is_counted_and_told(caplog: pytest.LogCaptureFixture) -> None:
    """With how long; a loop that is not held so long is not."""

    async def test() -> None:
        metrics = ServerMetrics()
        monitor = LoopMonitor(0.3, metrics.loop_held)
        task = asyncio.create_task(monitor.run())
        await asyncio.sleep(0.1)
        time.sleep(0.6)
        await until(lambda: monitor.longest >= 0.5)
        await until(lambda: "event loop held" in caplog.text)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        told = metrics.text()
        # The machine may have held it besides.
        assert b"nearcast_loop_holds_total 0.0" not in told
        monitor._note(0.29, 0.29, time.monotonic())
        assert told == metrics.text()
        monitor._note(0.3, 0.3, time.monotonic())
        assert told != metrics.text()

    with caplog.at_level(logging.INFO):
        asyncio.run(test())
    assert "doing=" in caplog.text


def test_what_holds_it_is_told_by_the_functions_of_the_package() -> None:
    """The innermost ones; what the standard library does within them is theirs."""
    seen: list[str] = []

    def table(items: list[int]) -> pa.Table:
        seen.append(doing(sys._getframe()))
        return pa.table({"a": items})

    blocks = GroupCommit(MemoryJournal(), "events", table, ThreadPoolExecutor(1), seconds=0, rows=1, room=1)
    with pytest.raises(Exception, match="expected rows"):
        blocks._append_now([[1]], {})
    [found] = seen
    assert "GroupCommit._append_now:" in found
    assert found.startswith("server.ingest.group_commit.")


def test_a_server_tells_the_longest_hold() -> None:
    """Among its metrics."""

    async def test() -> None:
        async with running() as server:
            time.sleep(0.3)
            await until(lambda: server.service.loop_monitor.longest > 0)
            assert await count(server, "nearcast_loop_longest_hold_seconds") > 0

    run(test)


def test_large_batches_are_read_and_answered_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also their faults, of each event perhaps, and what is looked up since it was there; small ones where they are,
    and the answer to what is all new, for the way to a thread takes longer.
    """
    where: list[str] = []

    def noted(function: Any) -> Any:
        def call(*given: Any) -> Any:
            where.append(threading.current_thread().name.partition("_")[0])
            return function(*given)

        return call

    monkeypatch.setattr(publishing, "read_events", noted(publishing.read_events))
    monkeypatch.setattr(publishing, "_answer", noted(publishing._answer))

    async def test() -> None:
        async with running() as server:
            headers = {"Content-Type": "application/cloudevents-batch+json"}
            faulty = [{**unit(str(number)), "type": ""} for number in range(1_000)]
            answer = await server.http.post("/events", json=faulty, headers=headers)
            assert (400, list(range(1_000))) == (answer.status_code, [one["index"] for one in answer.json()["faults"]])
            assert ["nearcast-reading"] * 2 == where
            await server.http.post("/events", json=[unit("e")], headers=headers)
            assert ["MainThread"] * 2 == where[2:]
            good = [unit(str(number), text="x" * 100) for number in range(1_000)]
            for expected in ("MainThread", "nearcast-reading"):
                answer = await server.http.post("/events", json=good, headers=headers)
                assert [*range(2, 1_002)] == answer.json()["positions"]
                assert ["nearcast-reading", expected] == where[-2:]

    run(test)


def test_definitions_of_a_few_kilobytes_are_read_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """However their type is written: an outline of 32 KiB takes thirty times as long as other data of that size."""
    where: list[str] = []
    read = publishing.read_events

    def noted(*given: Any) -> Any:
        where.append(threading.current_thread().name.partition("_")[0])
        return read(*given)

    monkeypatch.setattr(publishing, "read_events", noted)
    filter = " OR ".join(f"kind = 'k{number}'" for number in range(200))

    async def test() -> None:
        async with running() as server:
            structured = {"Content-Type": "application/cloudevents+json"}
            event = {"specversion": "1.0", "id": "1", "type": "nearcast.subscription", "source": "me"}
            event["data"] = {"id": "s", "client": "a", "filter": filter}
            plain, escaped = orjson.dumps(event), orjson.dumps(event).replace(b"nearcast", b"\\u006eearcast")
            for body in (plain, escaped):
                assert 202 == (await server.http.post("/events", content=body, headers=structured)).status_code
            for kind in ("nearcast.subscription", "%6eearcast.subscription"):
                binary = {"ce-specversion": "1.0", "ce-id": kind, "ce-type": kind, "ce-source": "me"}
                json = {**binary, "Content-Type": "application/json"}
                answer = await server.http.post("/events", content=orjson.dumps(event["data"]), headers=json)
                assert 202 == answer.status_code
            assert ["nearcast-reading"] * 4 == where
            await server.http.post("/events", json=unit("e", text=filter), headers=structured)
            assert "MainThread" == where[-1]

    run(test)


def test_answers_about_definitions_are_written_in_a_thread() -> None:
    """There may be a hundred thousand, with as many literals in each."""
    threads: list[int] = []

    def written() -> bytes:
        threads.append(threading.get_ident())
        return b"{}"

    answer = asyncio.run(management.answer(written))
    assert b"{}" == answer.body
    assert threading.get_ident() not in threads
    assert {"position": 7, "document": {"a": 1}} == orjson.loads(management.changed(7, b'{"a":1}'))


def test_the_api_is_described_in_a_thread() -> None:
    """As FastAPI would, whose own route takes a tenth of a second of the event loop."""
    threads: list[int] = []

    async def test() -> None:
        async with running() as server:
            app = server.server.config.app

            def openapi() -> dict[str, Any]:
                threads.append(threading.get_ident())
                return FastAPI.openapi(app)

            with mock.patch.object(app, "openapi", openapi):
                answer = await server.http.get("/openapi.json")
            assert FastAPI.openapi(app) == answer.json()
            assert threads
            assert threading.get_ident() not in threads

    run(test)


def test_what_is_wanted_is_found_out_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between which others are answered, and definitions change: the answer is about those of when it was asked."""
    monkeypatch.setattr(interest_index, "STEP", 1)

    async def test() -> None:
        async with running() as server:
            registry = server.service.session_manager.registry
            for number in range(20):
                wanted = Subscription(f"s{number}", ("a",), parse(f"type = 't' AND size = {number}", Mark("f")))
                registry.apply(SubscriptionChange(wanted))
            turns = 0

            async def others() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            beside = asyncio.create_task(others())
            found = await server.service.routing.wants_types(registry, ["t", "u"])
            beside.cancel()
            await asyncio.gather(beside, return_exceptions=True)
            assert {"t": True, "u": False} == found
            assert turns >= 20

    run(test)


def test_columns_of_many_rows_are_made_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each column in one go holds every thread; the rows are the same, in one block."""
    sizes: list[int] = []
    monkeypatch.setattr(group_commit, "PIECE", 3)
    journal = MemoryJournal()

    def table(items: list[int]) -> pa.Table:
        sizes.append(len(items))
        rows = [{"position": 0, "where": str(item), "reason": "r", "content": b"c", "time": None} for item in items]
        return pa.Table.from_pylist(rows, schema=journal.read("dead letters", 0, 1).schema)

    with ThreadPoolExecutor(1) as executor:
        blocks = GroupCommit(journal, "dead letters", table, executor, seconds=0, rows=1, room=1)
        assert [1, 2, 3, 4, 5, 6, 7, 8] == blocks._append_now([[0, 1], [*range(2, 8)]], {})
    assert [3, 3, 2] == sizes
    assert [str(item) for item in range(8)] == journal.read("dead letters", 0, 10).column("where").to_pylist()


@pytest.mark.parametrize(
    ("message", "expected", "came"),
    [
        ({"ping": [[1]] * 50_000}, "ping: a number or a text of at most 80", "a list of 50,000"),
        ({"ack": [[1]] * 50_000}, "ack: a list of at most 10000 positions", "a list of 50,000"),
        ({"ack": {"a": 1}}, "ack: a list of at most 10000 positions", "an object of 1"),
        ({f"k{number}": 1 for number in range(50_000)}, "an object with some of", "k0, k1, k2, k3, k4"),
        ({"readings": {"a": [[1]] * 20_000}}, "of at most 32,768 bytes in one message", "80,020"),
        ({"position": {f"k{number}": 1 for number in range(9_000)}, "ack": []}, "at most 32,768 bytes", "88,904"),
    ],
)
def test_of_a_message_that_means_nothing_little_is_looked_at(message: Any, expected: str, came: str) -> None:
    """It is told by how much of what it is, and others are served."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            answer = await server.http.post("/clients/a/messages", json=message)
            fault = answer.json()
            assert (422, came) == (answer.status_code, fault["came"])
            assert expected in fault["expected"]

    run(test)


def test_acknowledgements_may_be_as_many_as_a_message_holds() -> None:
    """What a client says of itself is bounded, and not what it has got."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            message = {"ack": [f"{10**9 + number}.1" for number in range(10_000)], "role": "r"}
            answer = await server.http.post("/clients/a/messages", json=message)
            assert "positions of deliveries to a" == answer.json()["expected"]
            assert "r" == server.service.session_manager.registry.clients["a"].role

    run(test)


def test_of_many_faults_the_first_hundred_are_told() -> None:
    """And how many more there are."""

    async def test() -> None:
        async with running() as server:
            document = {"when": {"all": [{"x": number} for number in range(500)]}}
            found = (await server.http.put("/situations/s", json=document)).json()
            assert 100 == len(found["faults"])
            assert found["more"] >= 400

    run(test)


def test_lists_beyond_those_that_a_client_may_have_are_refused() -> None:
    """In one document, and with those that it has; other entities for one that is there are no more lists."""

    async def test() -> None:
        async with running() as server:
            (await server.http.put("/settings", json={"limits": {"client_lists": 2}})).raise_for_status()
            for names, status in ("ab", 200), ("abc", 422), ("c", 422), ("b", 200):
                answer = await server.http.put("/clients/a", json={"lists": {name: ["x", names] for name in names}})
                assert (status, "at most 2 lists of a client" in answer.text) == (answer.status_code, status != 200)
            event = {**unit("c"), "type": "nearcast.client", "data": {"client": "a", "lists": {"w": ["x"]}}}
            answer = await server.http.post(
                "/events", json=[event], headers={"Content-Type": "application/cloudevents-batch+json"}
            )
            assert (400, "at most 2 lists of a client") == (answer.status_code, answer.json()["expected"])
            known = server.service.session_manager.registry.clients["a"].lists
            assert {"a": ("x", "ab"), "b": ("x", "b")} == known

    run(test)


def test_what_expires_together_ends_in_parts_between_which_others_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred thousand may wait for a client that is away; all of them end."""
    monkeypatch.setattr(manager, "EXPIRED_TOGETHER", 3)

    async def test() -> None:
        async with running() as server:
            await server.declare("a", ttl=0.01)
            parts: list[int] = []
            record = server.service.session_manager.record_outcomes

            def recorded(session: Any, settled: Any) -> Any:
                parts.append(len(settled))
                return record(session, settled)

            monkeypatch.setattr(server.service.session_manager, "record_outcomes", recorded)
            await server.publish(*(unit(str(number)) for number in range(10)))
            await until(lambda: sum(parts) == 10)
            assert 3 >= max(parts)
            assert not server.service.session_manager.session("a").waiting.waiting

    run(test)
