"""What is derived within limits that are met is what plain references read, however the journal is cut, and whoever
reads it restarted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from nearcast.cli.system import define
from nearcast.errors import Mark
from nearcast.journal.memory import MemoryJournal
from nearcast.language.cloudevents import EventReader
from nearcast.language.control_events import changes, to_event
from nearcast.language.definitions import files
from nearcast.model.columns import DELIVERIES, EVENTS, to_table
from nearcast.model.event import Event
from nearcast.model.subscription import Settings
from nearcast.pipeline.snapshots import load, save
from nearcast.stages.decide import replay
from nearcast.stages.fold import StateFold
from nearcast.state.derived import derived_of
from tests.simulation import world
from tests.simulation.plain_reading import PlainReading, own_clocks

CLIENTS = ["ann", "bob", "cat"]
KEPT = [2, 32, 87]
"""Seeds that found something once: gatherings of which a member is forgotten, and what is defined just then."""

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def written(seed: int, count: int) -> pa.Table:
    """The events of a journal: definitions, reports at two nodes, some of them late, and ticks."""
    chance, journal, known = random.Random(f"limited {seed}"), MemoryJournal(), StateFold()
    limited = {"limits": world.limits(chance)}
    define(journal, files.load([world.definitions(CLIENTS, chance) | limited]))
    list(known.fold(journal.read("events", 0, 1_000), changes))
    for event in _reports(seed, count, chance, known.registry.settings):
        [position] = journal.append("events", to_table([event]))
        list(known.fold(journal.read("events", position - 1, 1), changes))
        if chance.random() < 0.15:
            passed = chance.choice((500_000, 3_000_000, 20_000_000))
            tick = to_event(known.clocks.later(passed).tick(), f"tick {position}", "nearcast")
            accepted = event.accepted and event.accepted + timedelta(microseconds=passed)
            [position] = journal.append("events", to_table([replace(tick, accepted=accepted)]))
            list(known.fold(journal.read("events", position - 1, 1), changes))
    return journal.read("events", 0, journal.end("events"))


def _reports(seed: int, count: int, chance: random.Random, settings: Settings) -> Iterator[Event]:
    reader, now = EventReader(settings.channels), NOON
    for number, document in enumerate(world.documents(CLIENTS, count, seed)):
        now += timedelta(seconds=chance.choice((0.0, 0.5, 2.0, chance.expovariate(1 / 3.0))))
        if chance.random() < 0.7:
            late = chance.choice((0.0, 0.0, chance.expovariate(1 / 5.0)))
            document["time"] = (now - timedelta(seconds=late)).isoformat()
        event = reader.read(document, Mark(f"event {number}"))
        yield replace(event, accepted=now, node=chance.choice(("server-1", "server-2")))


def decided(events: pa.Table, cuts: list[int], folder: Path) -> tuple[list[object], list[object], StateFold]:
    """What is derived, and what is delivered, where a journal is read in parts, after each of which comes a restart."""
    known, bounds = StateFold(), [0, *sorted(cuts), len(events)]
    derived, deliveries = [EVENTS.empty_table()], [DELIVERIES.empty_table()]
    for first, last in pairwise(bounds):
        for batch, found in replay(known, iter([events.slice(first, last - first)]), changes):
            derived.append(derived_of(batch.events))
            deliveries.append(found)
        if last < len(events):
            save(known, folder)
            forgotten = known.forgotten
            known = load(folder, known.position)
            known.forgotten = forgotten
    return pa.concat_tables(derived).to_pylist(), pa.concat_tables(deliveries).to_pylist(), known


@pytest.mark.parametrize("seed", [*KEPT, *(pytest.param(one, marks=pytest.mark.long) for one in range(50))])
def test_what_is_derived_within_limits_is_what_is_read_plainly(seed: int, tmp_path: Path) -> None:
    """Who is forgotten, which pairs do not begin, and which reports do not wait is so for everybody who reads."""
    events, chance = written(seed, 80), random.Random(f"cuts {seed}")
    plain = PlainReading(own_clocks(events))
    expected = pa.concat_tables([EVENTS.empty_table(), *plain.read(events)]).to_pylist()
    derived, deliveries, known = decided(events, [], tmp_path)
    assert (expected, plain.forgotten) == (derived, known.forgotten)
    again = decided(events, sorted(chance.sample(range(1, len(events)), 6)), tmp_path)
    assert (derived, deliveries, known.forgotten) == (*again[:2], again[2].forgotten)
