"""Servers that die and come back: nothing is lost, nothing comes twice, the order of an entity is kept."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from nearcast.client import Client, Delivery, Publisher
from nearcast.errors import JournalError
from nearcast.journal.memory import MemoryJournal
from nearcast.journal.seam import Journal
from nearcast.journal.sqlite import SqliteJournal
from nearcast.model.columns import DELIVERIES
from nearcast.model.sequence import position_of, sequence
from nearcast.server import service
from nearcast.server.sessions.journal_tailer import DecidedDelivery
from nearcast.server.sessions.outcomes import (
    DeliveryOutcome,
    SettledCheckpoint,
    SettledMark,
    delivered,
    note,
    outcome_table,
    unsettled,
)
from nearcast.server.sessions.payloads import PayloadCache
from tests.server.conftest import Running, received, run, running, unit, until
from tests.server.fake_pipeline import FakePipeline

PROGRAM = """
import logging, sys
from pathlib import Path
from nearcast.server.app import serve
from nearcast.server.config import ServerConfig
logging.basicConfig(level=logging.INFO)
serve(ServerConfig(Path(sys.argv[1]), port=int(sys.argv[2]), suppress="suppress" in sys.argv))
"""


class Process:
    """A server of its own process on one port, which can be killed and started again; it ends with the block."""

    def __init__(self, path: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.path, self.url = path, f"http://127.0.0.1:{self.port}"
        self.options = options
        self.log = path.with_suffix(".log").open("ab")
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process and self.process.poll() is None:
            self.end(signal.SIGKILL)
        self.log.close()

    def start(self) -> None:
        command = [sys.executable, "-c", PROGRAM, str(self.path), str(self.port), *self.options]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=dict(os.environ))

    def end(self, with_signal: signal.Signals) -> int:
        assert self.process
        self.process.send_signal(with_signal)
        return self.process.wait(60)

    async def healthy(self) -> None:
        async with asyncio.timeout(60), httpx.AsyncClient(base_url=self.url) as http:
            while True:
                try:
                    if (await http.get("/health")).status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.05)


async def collect(client: Client, found: list[Delivery]) -> None:
    async for delivery in client.deliveries():
        found.append(delivery)
        await asyncio.sleep(random.random() * 0.002)


@pytest.mark.faults
def test_killing_the_server_again_and_again_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """Clients that reconnect, a publisher that repeats itself, a pipeline that goes on: each event once, in order."""

    async def test() -> None:
        server.start()
        pipeline = FakePipeline(journal)
        await server.healthy()
        await _declare(server.url)
        clients = {id: Client(server.url, id) for id in ("a", "b")}
        found: dict[str, list[Delivery]] = {id: [] for id in clients}
        tasks = [asyncio.create_task(collect(clients[id], found[id])) for id in clients]
        publishing = asyncio.create_task(_publish(server.url, 600))
        tasks.append(asyncio.create_task(_decide(pipeline)))
        for _ in range(4):
            await asyncio.sleep(random.uniform(0.2, 0.6))
            assert -signal.SIGKILL == server.end(signal.SIGKILL)
            server.start()
            await server.healthy()
        positions = await publishing
        await until(lambda: all(len(one) >= 600 for one in found.values()), 180.0)
        await until(lambda: len(_outcomes(journal)) == 1_200)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for id, client in clients.items():
            assert sorted(positions) == sorted(one.position for one in found[id])
            _check_order(found[id])
            assert client.connections >= 2
            assert len(client._seen) < 600
            await client.close()
        assert {"acknowledged"} == set(_outcomes(journal).values())
        assert 0 == server.end(signal.SIGTERM)

    with Process(tmp_path / "journal") as server, closing(SqliteJournal(server.path)) as journal:
        run(test)


async def _declare(url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60.0) as http:
        for id in ("a", "b"):
            (await http.put(f"/clients/{id}", json={})).raise_for_status()
        body = {"clients": ["a", "b"], "filter": "type = 'unit'"}
        (await http.put("/subscriptions/s", json=body)).raise_for_status()


async def _publish(url: str, count: int) -> list[int]:
    positions: list[int] = []
    async with Publisher(url) as publisher:
        for start in range(0, count, 20):
            events = [unit(str(number), f"u{number % 7}", n=number) for number in range(start, start + 20)]
            positions += [one for one in (await publisher.publish(events)).positions if one]
            await asyncio.sleep(0.05)
    return positions


async def _decide(pipeline: FakePipeline) -> None:
    while True:
        await asyncio.to_thread(pipeline.decide)
        await asyncio.sleep(0.03)


def _check_order(found: list[Delivery]) -> None:
    by_entity: dict[tuple[int, Any], list[int]] = defaultdict(list)
    for one in found:
        by_entity[one.priority, one.event["subject"]].append(one.position)
    assert all(positions == sorted(positions) for positions in by_entity.values())


def _outcomes(journal: SqliteJournal) -> dict[tuple[str, int], str]:
    rows = journal.read("outcomes", 0, 1_000_000).to_pylist()
    assert len(rows) == len({(row["client"], row["event"]) for row in rows}), "a delivery ends once"
    return {(row["client"], row["event"]): row["outcome"] for row in rows}


@pytest.mark.faults
def test_a_server_that_is_asked_to_end_writes_what_it_knows(tmp_path: Path) -> None:
    """SIGTERM: acknowledgements are flushed, clients come back to the next server, and nothing comes again."""

    async def test() -> None:
        server.start()
        await server.healthy()
        await _declare(server.url)
        async with Client(server.url, "a") as client:
            await client.connected()
            [*_] = await _publish(server.url, 20)
            FakePipeline(journal).decide()
            await received(client, 20)
            await until(lambda: not client._unsent)
            assert 0 == await asyncio.to_thread(server.end, signal.SIGTERM)
            assert 20 == len(_outcomes(journal))
            server.start()
            await server.healthy()
            async with httpx.AsyncClient(base_url=server.url, timeout=60.0) as http:
                assert 0 == (await http.get("/clients/a/waiting")).json()["queued"]
            await client.connected()
            assert 0 == client.duplicates
        server.end(signal.SIGKILL)

    with Process(tmp_path / "journal") as server, closing(SqliteJournal(server.path)) as journal:
        run(test)


def test_a_restarted_server_takes_up_what_is_not_settled() -> None:
    """Everything decided while there was no server, and before; what is settled stays so."""

    async def test() -> None:
        journal = MemoryJournal()
        async with running(journal) as server:
            await server.declare("a")
            positions = await server.publish(*(unit(str(number)) for number in range(10)))
            async with server.client("a") as client:
                assert positions[:4] == [one.position for one in await received(client, 4)]
                await until(lambda: journal.end("outcomes") >= 4)
        async with running(journal) as server, server.client("a") as client:
            rest = 10 - journal.end("outcomes")
            assert positions[10 - rest :] == [one.position for one in await received(client, rest)]

    run(test)


def test_what_a_subscription_selected_before_it_ended_is_not_that_of_its_namesake() -> None:
    """Another one took it over, and still has it after a restart that finds a new subscription of the old name."""

    async def test() -> None:
        journal = MemoryJournal()
        urgent = {"client": "a", "filter": "type = 'unit'", "relevance": 1}
        async with running(journal) as server:
            await server.declare("a", relevance=0.3)
            await server.http.put("/subscriptions/urgent", json=urgent)
            [first] = await server.publish(unit("1"))
            await until(lambda: first in chosen(server))
            await server.http.delete("/subscriptions/urgent")
            await server.http.put("/subscriptions/urgent", json=urgent)
            [second] = await server.publish(unit("2"))
            await until(lambda: second in chosen(server))
            before = chosen(server)
        async with running(journal) as server:
            assert {first: ("all-a", 0), second: ("urgent", 2)} == before == chosen(server)

    run(test)


def chosen(server: Running) -> dict[int, tuple[str, int]]:
    """The subscription and level of what waits for the client a."""
    found = server.service.session_manager.session("a").waiting.waiting
    return {position_of(one): (delivery.subscription, delivery.level) for one, delivery in found.items()}


def test_a_client_library_forgets_what_is_settled_and_drops_what_comes_again() -> None:
    """Its memory is what is in flight; repeated acknowledgements are harmless."""

    async def test() -> None:
        journal = MemoryJournal()
        async with running(journal) as server, server.client("a", automatic=False) as client:
            await server.declare("a")
            [first, second] = await server.publish(unit("1"), unit("2"))
            assert [first, second] == [one.position for one in await received(client, 2)]
            await client.acknowledge(first)
            await until(lambda: [*client._seen] == [second])
            assert not client._seen[second].acknowledged
            await server.service.session_manager.session("a").connection.close(1012, "test")
            await until(lambda: client.duplicates == 1)
            await client.acknowledge(second)
            await until(lambda: not client._seen)
            assert client._arrived.empty()

    run(test)


def test_the_watermark_never_passes_what_is_not_settled(tmp_path: Path) -> None:
    """A pair is written only when every delivery before it is settled."""
    checkpoint = SettledCheckpoint(tmp_path / "settled", "j")
    assert SettledMark() == checkpoint.read()
    checkpoint.move_forward(MemoryJournal(), through=10, outcomes_end=7, oldest=3)
    checkpoint.move_forward(MemoryJournal(), through=20, outcomes_end=9, oldest=4)
    assert SettledMark() == checkpoint.read()
    checkpoint.move_forward(MemoryJournal(), through=30, outcomes_end=15, oldest=12)
    assert SettledMark(10, 7) == SettledCheckpoint(tmp_path / "settled", "j").read()
    checkpoint.move_forward(MemoryJournal(), through=40, outcomes_end=30, oldest=None)
    assert SettledMark(30, 15) == checkpoint.read()
    assert SettledMark() == SettledCheckpoint(tmp_path / "settled", "another journal").read()


def test_the_watermark_tells_of_no_outcome_of_what_is_still_being_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """An outcome before the mark whose delivery is behind it would not be found: that delivery would come again."""
    monkeypatch.setattr(service, "AT_ONCE", 1)
    read, marks = threading.Event(), list[tuple[int, int]]()

    class Noted(SettledCheckpoint):
        def move_forward(self, journal: Journal, through: int, outcomes_end: int, oldest: int | None) -> None:
            marks.append((through, outcomes_end))

    class Told(MemoryJournal):
        def end(self, log: str) -> int:
            found = super().end(log)
            if log == "outcomes":
                read.set()
            return found

    async def test() -> None:
        journal = Told()
        async with running(journal) as server:
            await server.declare("a")
            session_manager, tasks = server.service.session_manager, list[asyncio.Task[None]]()
            deliver = session_manager.deliver

            def acknowledging(decided: list[DecidedDelivery]) -> None:
                """The first is acknowledged at once, while the others are handed over."""
                deliver(decided)
                if tasks:
                    read.wait(0.2)
                    return
                session = session_manager.session("a")
                settled = session.waiting.acknowledge([decided[0].sequence], 1.0)
                journal.append("outcomes", outcome_table([DeliveryOutcome("a", one) for one in settled]))
                read.clear()
                tasks.append(asyncio.create_task(server.service._advance(Noted(None, "j"))))

            monkeypatch.setattr(session_manager, "deliver", acknowledging)
            positions = await server.publish(*(unit(str(number)) for number in range(3)))
            await until(lambda: tasks)
            await tasks[0]
            assert [(positions[-1], 1)] == marks

    run(test)


def test_a_note_waits_for_the_journal_that_it_is_of(tmp_path: Path) -> None:
    """What a loss of power takes from the journal must not be noted as done: the journal is on the disk first."""
    path = tmp_path / "settled"

    class Failing(MemoryJournal):
        def sync(self) -> None:
            assert "10" == path.read_text()
            raise JournalError("the disk is gone")

    note(path, "10", MemoryJournal())
    with pytest.raises(JournalError):
        note(path, "20", Failing())
    assert "10" == path.read_text()


def test_positions_that_nothing_has_yet_are_not_looked_up() -> None:
    """Who acknowledges thousands of them costs the server nothing."""
    reads: list[int] = []

    class Counted(MemoryJournal):
        def read(self, log: str, after: int, limit: int) -> pa.Table:
            reads.append(after)
            return super().read(log, after, limit)

    journal = Counted()
    row = {"position": 5, "part": 0, "client": "a", "subscription": "s", "level": 0}
    journal.commit_range("deliveries", pa.Table.from_pylist([row, row | {"position": 2_900}], DELIVERIES), 3_000)
    asked = [sequence(one, 0) for one in (5, 6, 2_900, *range(4_000, 4_000_000, 4_000))]
    assert {sequence(5, 0), sequence(2_900, 0)} == delivered(journal, "a", asked)
    assert [4, 2_899] == reads


def test_a_damaged_watermark_costs_time_only(tmp_path: Path) -> None:
    """The logs are read from their beginnings."""
    (tmp_path / "settled").write_text("{")
    assert SettledMark() == SettledCheckpoint(tmp_path / "settled", "j").read()


def test_from_a_mark_on_the_same_is_unsettled_as_from_the_beginning() -> None:
    """Reading less of the logs changes nothing."""

    async def test() -> None:
        journal = MemoryJournal()
        async with running(journal) as server:
            await server.declare("a")
            positions = await server.publish(*(unit(str(number)) for number in range(6)))
            await until(lambda: server.service.session_manager.outstanding() == 6)
            await server.http.post("/clients/a/acks", json={"ack": [*positions[:2], positions[4]]})
        payloads = PayloadCache(journal, 1_000_000)
        end = journal.end("deliveries")
        for mark in (SettledMark(), SettledMark(positions[1], 2)):
            pieces = unsettled(journal, payloads, mark, end)
            assert [positions[2], positions[3], positions[5]] == [
                position_of(one.sequence) for piece in pieces for one in piece
            ]

    run(test)
