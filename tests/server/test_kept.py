"""Servers that hold back and are killed: relations are told as if every report that was taken had entered."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from nearcast.cli.system import define
from nearcast.client import Publisher
from nearcast.errors import Mark
from nearcast.journal.memory import Abort, MemoryJournal
from nearcast.journal.seam import Journal
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control_events import to_event
from nearcast.language.definitions.files import DefinitionSet
from nearcast.language.definitions.relation_documents import relation_document
from nearcast.model.changes import RelationChange
from nearcast.model.columns import to_table
from tests.server.conftest import Running, run, running, until
from tests.server.test_entrance import NEAR, Stages, moved
from tests.server.test_restart import Process

SECONDS = 600.0
"""In which all is held back and killed, though the machine be busy."""

STRUCTURED = {"Content-Type": "application/cloudevents+json"}


def defined(journal: Journal) -> Stages:
    """The stages of a journal that has a relation."""
    change = RelationChange(relation_document(NEAR, Mark("here")))
    journal.append("events", to_table([to_event(change, "1", "test")]))
    return Stages(journal)


def told_of_all(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is told where every report enters."""
    found: list[dict[str, Any]] = []

    async def test() -> None:
        journal = MemoryJournal()
        stages = defined(journal)
        async with running(journal) as server, server.publisher() as publisher:
            await publisher.publish(events)
        stages.decide()
        found.extend(stages.told)

    run(test)
    return found


class Two:
    """Two that are far apart or together, in small steps, and in jumps of one to the other or away from it."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self._chance, self._at = random.Random(5), {"a": 0.0, "b": 100.0}

    def step(self) -> dict[str, Any]:
        """Where one of them is now."""
        who = self._chance.choice("ab")
        return self._moved(who, self._at[who] + self._chance.gauss(0, 0.02))

    def jump(self, metres: float) -> dict[str, Any]:
        """One is so far from the other now."""
        who, other = self._chance.sample("ab", 2)
        return self._moved(who, self._at[other] + metres)

    def _moved(self, who: str, x: float) -> dict[str, Any]:
        self._at[who] = x
        self.told.append(moved(len(self.told), who, x))
        return self.told[-1]


@contextlib.asynccontextmanager
async def deciding(stages: Stages) -> AsyncIterator[None]:
    """Lets the stages decide, on and on."""

    async def decide() -> None:
        while True:
            await asyncio.to_thread(stages.decide)
            await asyncio.sleep(0.02)

    task = asyncio.create_task(decide())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.faults
def test_a_server_that_is_killed_has_lost_nothing_that_it_held_back(tmp_path: Path) -> None:
    """It is killed amid small steps that are held back, and before one jumps to where the other has stepped."""
    two, held = Two(), []

    async def test() -> None:
        stages = defined(journal)
        server.start()
        await server.healthy()

        async def publish(event: dict[str, Any]) -> None:
            published = await publisher.publish([event])
            assert not published.faults
            held.extend(published.suppressed)
            await asyncio.sleep(0.01)

        async def kill() -> None:
            assert -signal.SIGKILL == await asyncio.to_thread(server.end, signal.SIGKILL)
            server.start()

        async with asyncio.timeout(SECONDS), deciding(stages), Publisher(server.url) as publisher:
            for metres in (3.0, 100.0) * 2:
                killing = None
                while killing is None or not killing.done():
                    await publish(two.step())
                    if killing is None and journal.kept():
                        killing = asyncio.create_task(kill())
                while len(journal.kept()) < 2:
                    await publish(two.step())
                await kill()
                await publish(two.jump(metres))
        assert 0 == await asyncio.to_thread(server.end, signal.SIGTERM)
        assert [] == journal.kept()
        stages.decide()
        found.extend(stages.told)

    found: list[dict[str, Any]] = []
    path = tmp_path / "journal"
    with contextlib.closing(SqliteJournal(path)) as journal, Process(path, "suppress") as server:
        run(test)
    assert ["enter", "exit"] * 2 == [one["detect"] for one in found]
    assert told_of_all(two.told) == found
    assert len(held) >= 8


async def held_back(server: Running, stages: Stages) -> None:
    """Two subjects of which a second report is held back each."""
    async with server.publisher() as publisher:
        await publisher.publish([moved(0, "a", 0.0), moved(1, "b", 100.0)])
        stages.decide()
        await until(lambda: server.service.event_entry._heard == server.journal.end("source filters"))
        published = await publisher.publish([moved(2, "a", 1.0), moved(3, "b", 99.0)])
    assert {0, 1} == published.suppressed


def ids(journal: Journal) -> list[str]:
    """What is in the journal."""
    found: list[str] = journal.read("events", 0, journal.end("events")).column("id").to_pylist()
    return found


def test_what_was_kept_enters_before_anything_else() -> None:
    """Before what a definition file says, and before what is published: as another server's journal shows."""

    async def test() -> None:
        journal = MemoryJournal()
        stages = defined(journal)
        async with running(journal, suppress=True) as server:
            await held_back(server, stages)
            kept = journal.kept()
            assert ["2", "3"] == [event.id for event in kept]
        for change in (NEAR, {**NEAR, "id": "more"}):
            crashed = MemoryJournal()
            defined(crashed)
            crashed.append("events", to_table([]), {event.entity: event for event in kept})
            if change is not NEAR:
                define(crashed, DefinitionSet(relations=(relation_document(change, Mark("here")),)))
            async with running(crashed) as server, server.publisher() as publisher:
                await publisher.publish([moved(4, "a", 2.0)])
            found = ids(crashed)
            assert ["1", "2", "3", "4"] == [id for id in found if len(id) == 1]
            assert ("3", []) == (found[2], crashed.kept())

    run(test)


def test_a_report_is_not_taken_before_it_is_kept_durably() -> None:
    """Where the journal does not take it, its publisher is told so, and it is kept when it comes again."""

    async def test() -> None:
        journal = MemoryJournal()
        stages = defined(journal)
        async with running(journal, suppress=True) as server:
            await held_back(server, stages)
            journal._faults.append(Abort("events", 0, "append"))
            answer = await server.http.post("/events", content=orjson.dumps(moved(4, "a", 2.0)), headers=STRUCTURED)
            assert (503, ["2", "3"]) == (answer.status_code, [event.id for event in journal.kept()])
            answer = await server.http.post("/events", content=orjson.dumps(moved(4, "a", 2.0)), headers=STRUCTURED)
            assert (202, [0]) == (answer.status_code, answer.json()["suppressed"])
            assert ["3", "4"] == [event.id for event in journal.kept()]

    run(test)
