"""A server that holds back what can change nothing, with the real stages beside it."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from nearcast.errors import JournalError, Mark
from nearcast.journal.memory import MemoryJournal
from nearcast.journal.seam import Journal
from nearcast.language.cloudevents import read_event
from nearcast.language.control_events import changes, to_event
from nearcast.language.definitions.relation_documents import relation_document
from nearcast.model.changes import RelationChange
from nearcast.model.columns import DELIVERIES, SOURCE_FILTERS, entered_events, to_table
from nearcast.relations.lanes.scopes import Scope
from nearcast.server.config import ServerConfig
from nearcast.server.service import AccessServer
from nearcast.stages.fold import StateFold
from nearcast.state.derived import derived_of
from nearcast.suppression.guarded import GuardedStates
from tests.server.conftest import Running, run, running, until

NEAR = {
    "id": "near",
    "a": {"entity": "a"},
    "b": {"entity": "b"},
    "when": "distance(a, b) < 10",
    "margin": 2,
    "strategy": "range-ring",
}


class Stages:
    """A pipeline of the real stages; it tells how relations stand as the live one does."""

    def __init__(self, journal: Journal) -> None:
        self.journal, self.known = journal, StateFold()
        self.guarded_states: defaultdict[Scope, GuardedStates] = defaultdict(GuardedStates)
        self.told: list[dict[str, Any]] = []

    def decide(self) -> None:
        """Decides what is new in the journal."""
        after, end = self.known.position, self.journal.end("events")
        if end == after:
            return
        for batch in self.known.fold(self.journal.read("events", after, end - after), changes):
            for payload in derived_of(batch.events).column("payload").to_pylist():
                self.told.append(orjson.loads(payload)["data"])
        pairings = self.known.pairings.items()
        rows = [asdict(one) for scope, each in pairings for one in self.guarded_states[scope].changes_until(each, end)]
        self.journal.commit_range("source filters", pa.Table.from_pylist(rows, SOURCE_FILTERS), end)
        self.journal.commit_range("deliveries", DELIVERIES.empty_table(), end)


def moved(number: int, subject: str, x: float) -> dict[str, Any]:
    """A report of where a subject is."""
    event = {"specversion": "1.0", "id": str(number), "type": "car", "source": "s", "subject": subject}
    return event | {"time": f"2026-01-01T12:{number // 60:02}:{number % 60:02}Z", "data": {"x": x, "y": 0.0}}


def walk(steps: int) -> list[dict[str, Any]]:
    """Two that walk slowly, and sometimes jump."""
    chance, at = random.Random(3), {"a": 0.0, "b": 30.0}
    found = []
    for number in range(steps):
        who = chance.choice("ab")
        at[who] += chance.gauss(0, 0.3) if chance.random() < 0.93 else chance.choice([-25.0, 25.0])
        found.append(moved(number, who, at[who]))
    return found


@asynccontextmanager
async def related(
    suppress: bool, scope: object = "global", journal: MemoryJournal | None = None, **more: Any
) -> AsyncIterator[tuple[Running, Stages]]:
    """A server whose journal has a relation, and the stages beside it."""
    journal = journal or MemoryJournal()
    change = RelationChange(relation_document({**NEAR, "scope": scope}, Mark("here")))
    journal.append("events", to_table([to_event(change, "1", "test")]))
    async with running(journal, suppress=suppress, **more) as server:
        yield server, Stages(journal)


async def told(suppress: bool, steps: int) -> tuple[list[dict[str, Any]], int]:
    """What is told of a walk, and how many events entered while they were published."""
    async with related(suppress) as (server, stages), server.publisher() as publisher:
        for event in walk(steps):
            published = await publisher.publish([event])
            assert not published.faults
            assert (published.positions[0] is None) == (0 in published.suppressed)
            stages.decide()
            heard = server.journal.end("source filters")
            await until(lambda end=heard: not suppress or server.service.event_entry._heard == end)  # type: ignore[misc]
        entered = server.journal.end("events") - 1
        held = (await server.http.get("/metrics")).text.partition("\nnearcast_suppressed_total ")[2]
        assert suppress == (float(held.split("\n")[0]) >= max(steps - entered, 1))
    stages.decide()
    return stages.told, entered


def test_far_fewer_events_enter_and_the_same_is_told() -> None:
    """Who, where, how far apart, since when: all is the same."""

    async def test() -> None:
        everything, all_of_them = await told(False, 100)
        found, entered = await told(True, 100)
        assert everything == found
        assert len(found) >= 2
        assert 100 == all_of_them
        assert entered <= 50

    run(test)


def test_what_is_kept_enters_with_a_definition_and_at_the_end() -> None:
    """A subscription begins with where everything is; so does whoever starts again."""

    async def test() -> None:
        async with related(True) as (server, stages), server.publisher() as publisher:
            await publisher.publish([moved(0, "a", 0.0), moved(1, "b", 100.0)])
            stages.decide()
            await until(lambda: server.service.event_entry._heard == server.journal.end("source filters"))
            first = await publisher.publish([moved(2, "a", 1.0), moved(3, "b", 99.0)])
            again = await publisher.publish([moved(2, "a", 1.0)])
            before = server.journal.end("events")
            assert [({0, 1}, [None, None]), ({0}, [None])] == [
                (set(one.suppressed), one.positions) for one in (first, again)
            ]
            await server.declare("ann", filter="type = 'bus'")
            assert before + 2 + 2 == server.journal.end("events")
            await publisher.publish([moved(4, "a", 1.5), moved(5, "b", 99.5)])
        ids = server.journal.read("events", 0, server.journal.end("events")).column("id").to_pylist()
        assert {"2", "3", "4", "5"} <= set(ids)

    run(test)


def test_what_a_subscription_may_want_enters() -> None:
    """However well the guards permit it."""

    async def test() -> None:
        async with related(True) as (server, stages), server.publisher() as publisher:
            await server.declare("ann", filter="type = 'car' AND distance(user('ann'), this) < 5")
            for number in range(4):
                published = await publisher.publish([moved(number, "ab"[number % 2], 100.0 * (number % 2))])
                assert published.positions[0]
                stages.decide()
                await asyncio.sleep(0.1)

    run(test)


@pytest.mark.parametrize("scope, held", [("global", set()), ("local", {0, 1})])
def test_beside_another_server_only_local_relations_hold_back(scope: str, held: set[int]) -> None:
    """The other server's reports are no affair of theirs, and enter."""

    async def test() -> None:
        journal = MemoryJournal()
        journal.join("south", False)
        async with related(True, scope, journal) as (server, stages), server.publisher() as publisher:
            await publisher.publish([moved(0, "a", 0.0), moved(1, "b", 100.0)])
            away = moved(2, "a", 95.0)
            journal.append("events", entered_events([read_event(away, Mark("here"))], "south"))
            stages.decide()
            await until(lambda: server.service.event_entry._heard == journal.end("source filters"))
            found = await publisher.publish([moved(3, "a", 1.0), moved(4, "b", 99.0)])
            assert held == set(found.suppressed)
            stages.decide()
            assert ["enter"] * (scope == "global") == [one["detect"] for one in stages.told][:1]

    run(test)


def test_no_server_enters_beside_the_only_one() -> None:
    """One that holds back for global relations has to be alone; others are refused, and told how to go on."""

    async def test() -> None:
        journal = MemoryJournal()
        async with running(journal, suppress=True):
            pass
        service = AccessServer(ServerConfig(Path("unused"), node="south"), journal)
        with pytest.raises(JournalError, match=r"no access server but main.*start main once without --suppress"):
            await service.start()
        service.executor.shutdown()

    run(test)


ANY = {"id": "near", **dict.fromkeys("ab", "type = 'car'"), "when": "distance(a, b) < 10", "strategy": "shared-ring"}


def test_relations_between_any_entities_are_told_as_if_every_report_had_entered() -> None:
    """By a server that finds out where everybody is from the journal, and is told of relations while it runs."""
    events = walk(100)
    parked = moved(0, "c", 5.0) | {"id": "parked"}

    async def test(suppress: bool) -> tuple[list[dict[str, Any]], int]:
        journal = MemoryJournal()
        async with running(journal) as server, server.publisher() as publisher:
            await publisher.publish([parked])
        async with running(journal, suppress=suppress) as server, server.publisher() as publisher:
            stages = Stages(journal)
            (await server.http.put("/relations/near", json={**ANY})).raise_for_status()
            await until(lambda: bool(server.service.event_entry._entry._rings) == suppress)
            await until(lambda: not server.service.event_entry._entry.unready)
            for event in events:
                await publisher.publish([event])
            entered = journal.end("events")
        stages.decide()
        found.append(stages.told)
        return stages.told, entered

    found: list[Any] = []
    entered: list[int] = []

    async def both() -> None:
        for suppress in (False, True):
            entered.append((await test(suppress))[1])

    run(both)
    assert found[0] == found[1]
    assert {"a", "b", "c"} == {one[side] for one in found[0] for side in "ab"}
    assert entered[1] < entered[0] - 30
