"""What holding back where events enter saves, and costs: `python -m benchmarks.suppression [--world cars] …`.

Worlds: `pairs`, subjects that walk slowly, each to meet one other; `cars` that drive at 14 m/s and report once a
second, any two within 1 km, `--density` of them on a square kilometre; `ships`, those of a day, any two within 500 m.
Reports are published in turn; the stages see them in batches, and their word comes behind each batch. Costs are times
of the clock, so nothing else should run: at the entry node for every report, of the journal for what enters and what is
kept, and of the stages for all that entered, beside those where every report enters. What is told must be equal.

Then what it costs to know whether anybody else may want a report, where many subscribe.
"""

from __future__ import annotations

import argparse
import math
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

from benchmarks.machine import machine
from nearcast.errors import Mark
from nearcast.importers import ais
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language import cql2
from nearcast.language.cloudevents import read_event
from nearcast.language.definitions.relation_documents import relation_document
from nearcast.model.changes import RelationChange, SubscriptionChange
from nearcast.model.columns import EVENTS, to_table
from nearcast.model.event import Event, Place
from nearcast.model.relation import Relation
from nearcast.model.subscription import Subscription
from nearcast.relations.stage import RelationStage
from nearcast.state.derived import StageInput
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository
from nearcast.suppression.guarded import GuardedStates
from nearcast.suppression.ingest_filter import IngestFilter
from nearcast.suppression.interest_index import InterestIndex, may_select

START = datetime(2026, 1, 1, tzinfo=UTC)


def main() -> None:
    """Prints what enters, what it costs, and the same without holding back."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", choices=WORLDS, default="pairs")
    parser.add_argument("--subjects", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=60, help="reports of each subject")
    parser.add_argument("--density", type=float, default=0.1, help="cars on a square kilometre")
    parser.add_argument("--ais", type=Path, default=Path("../shared/data/ais_us_20220103/AISdata.csv.gz"))
    parser.add_argument("--reports", type=int, default=200_000, help="of the ships")
    parser.add_argument("--batch", type=int, default=500, help="reports between two batches of the stages")
    parser.add_argument("--group", type=int, default=50, help="reports that become durable together")
    parser.add_argument("--subscriptions", type=int, default=10_000, help="for what it costs to know who wants what")
    options = parser.parse_args()
    print(machine())
    relations, events = WORLDS[options.world](options)
    plain = _run(relations, events, options, holding=False)
    unkept = _run(relations, events, options, keeping=False)
    held = _run(relations, events, options)
    assert held.told == plain.told, "what is told must not change"
    count = len(events)
    print(f"{count} reports of {len({one.entity for one in events})} subjects, {len(held.told)} begins and ends")
    print(f"every report: {plain.entered} entered; us a report: {plain.costs(count)}")
    print(f"held back: {held.entered} entered, {1 - held.entered / count:.1%} did not; {held.costs(count)}")
    if held.entered < count:
        kept = 1e6 * (held.seconds["journal"] - unkept.seconds["journal"]) / (count - held.entered)
        print(f"  of a report that is held back the journal keeps {kept:.1f} us")
    _print_interest(options.subscriptions)


@dataclass(slots=True)
class Outcome:
    """How many entered, what was told, and the seconds by what took them."""

    entered: int = 0
    told: list[bytes] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("entry", "journal", "stages"), 0.0))

    def costs(self, count: int) -> str:
        """Microseconds of each of so many reports."""
        return ", ".join(f"{name} {1e6 * seconds / count:.1f}" for name, seconds in self.seconds.items())

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Counts the CPU time of the block."""
        began = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - began


def _pairs(options: argparse.Namespace) -> tuple[list[Relation], list[Event]]:
    relations = [relation_of(pair) for pair in range(options.subjects // 2)]
    return relations, list(reports(options.subjects, options.rounds))


def _cars(options: argparse.Namespace) -> tuple[list[Relation], list[Event]]:
    """Cars keep their course for a while, about 48 degrees north."""
    chance = random.Random(7)
    side = (options.subjects / options.density) ** 0.5 * 1_000
    at = [[chance.uniform(0, side), chance.uniform(0, side)] for _ in range(options.subjects)]
    course = [chance.uniform(0, 2 * math.pi) for _ in at]
    events = []
    for turn in range(options.rounds):
        moment = START + timedelta(seconds=turn)
        for car, (x, y) in enumerate(at):
            if chance.random() < 0.02:
                course[car] = chance.uniform(0, 2 * math.pi)
            at[car] = [x + 14 * math.cos(course[car]), y + 14 * math.sin(course[car])]
            place = Place("geographic", 11 + at[car][0] / 74_600, 48 + at[car][1] / 111_200)
            events.append(Event(f"{turn}-{car}", "car", "s", f"c{car}", moment, place, accepted=moment))
    return [_any("car", 1_000)], events


def _ships(options: argparse.Namespace) -> tuple[list[Relation], list[Event]]:
    events = []
    for document in islice(ais.events(options.ais, "time"), options.reports):
        event = read_event(document, Mark("vessel"))
        events.append(replace(event, payload=b"", accepted=event.time))
    return [_any("vessel", 500)], events


WORLDS = {"pairs": _pairs, "cars": _cars, "ships": _ships}


def _any(type: str, metres: float) -> Relation:
    sides = dict.fromkeys("ab", f"type = '{type}'")
    data = {"id": "near", **sides, "when": f"distance(a, b) <= {metres}", "strategy": "shared-ring"}
    return relation_document(data, Mark("benchmark"))


def relation_of(pair: int) -> Relation:
    """Of two subjects, who are to meet."""
    sides = {"a": {"entity": f"s{2 * pair}"}, "b": {"entity": f"s{2 * pair + 1}"}}
    data = {"id": f"r{pair}", **sides, "when": "distance(a, b) < 10", "margin": 2, "strategy": "range-ring"}
    return relation_document(data, Mark("benchmark"))


def reports(subjects: int, rounds: int) -> Iterator[Event]:
    """Each subject walks half a metre between two reports, now and then in another direction."""
    chance = random.Random(7)
    at = [[chance.uniform(0, 100), chance.uniform(0, 100)] for _ in range(subjects)]
    step = [[chance.uniform(-0.5, 0.5) for _ in "xy"] for _ in at]
    for turn in range(rounds):
        moment = START + timedelta(seconds=turn)
        for subject in range(subjects):
            if chance.random() < 0.05:
                step[subject] = [chance.uniform(-0.5, 0.5) for _ in "xy"]
            at[subject] = [place + move for place, move in zip(at[subject], step[subject], strict=True)]
            name = f"s{subject}"
            yield Event(f"{turn}-{subject}", "car", "s", name, moment, Place("planar", *at[subject]), accepted=moment)


def _run(
    relations: list[Relation],
    events: list[Event],
    options: argparse.Namespace,
    holding: bool = True,
    keeping: bool = True,
) -> Outcome:
    """Publishes all; without `keeping` what is held back is in memory alone."""
    entry, relating, guarded_states, repository = IngestFilter(), RelationStage(), GuardedStates(), Repository()
    entry.define(Registry(relations={one.id: one for one in relations}), 0)
    for one in entry.unready:
        one.load([])
    defined = [(0, RelationChange(one)) for one in relations]
    list(relating.derive(StageInput(defined, {}, EVENTS.empty_table(), Registry(), repository)))
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as folder:
        journal = SqliteJournal(Path(folder) / "journal")
        for start in range(0, len(events), options.batch):
            stop = min(start + options.batch, len(events))
            for first in range(start, stop, options.group):
                _enter(entry, journal, events[first : min(first + options.group, stop)], outcome, holding, keeping)
            with outcome.timed("stages"):
                after, outcome.entered = outcome.entered, journal.end("events")
                table = journal.read("events", after, outcome.entered - after)
                found = list(relating.derive(StageInput([], {}, table, Registry(), repository)))
                repository.fold_events(table)
                word = guarded_states.changes_until(relating.pairing, max(outcome.entered, 1))
            # Who begins or ends, and since when: positions differ.
            payloads = (payload for one in found for payload in one.column("payload").to_pylist())
            outcome.told += [payload.partition(b'"data":')[2] for payload in payloads]
            entry.learn(word)
        journal.close()
    outcome.told.sort()
    return outcome


def _enter(
    entry: IngestFilter, journal: SqliteJournal, events: list[Event], outcome: Outcome, holding: bool, keeping: bool
) -> None:
    """Lets a group of reports enter that becomes durable together."""
    with outcome.timed("entry"):
        taken = [one for event in events for one in entry.admit(event)] if holding else events
        kept = entry.changes() if keeping else {}
    with outcome.timed("journal"):
        positions = journal.append("events", to_table(taken), kept)
    with outcome.timed("entry"):
        if holding:
            entry.written(taken, positions)


def _print_interest(subscriptions: int) -> None:
    """Microseconds to know who may want an event, by the index and by looking at every filter."""
    registry = Registry()
    for number in range(subscriptions):
        registry.apply(_subscription(number))
    filters = [one.filter for one in registry.subscriptions.values()]
    nobody = Event("1", "t5", "s", "s1", START, Place("planar", 0, 0), (("unit", "other"), ("speed", 1)))
    print(f"who of {subscriptions} subscriptions may want an event; us of CPU")
    built = _microseconds(lambda: InterestIndex(registry), 3)
    interest_index = InterestIndex(registry)
    fresh = iter(range(1_000_000))
    rows = {
        "an event that nobody wants": (
            _microseconds(lambda: any(may_select(one, nobody) for one in filters), 10),
            _microseconds(lambda: interest_index.wants(nobody), 10_000),
        ),
        "GET /wanted of one type": (
            built + _microseconds(lambda: interest_index.wants_type(f"t{next(fresh)}"), 10),
            _microseconds(
                lambda: (interest_index.follow_definitions(registry), interest_index.wants_type("t5")), 10_000
            ),
        ),
        "one subscription changes": (
            built,
            _microseconds(lambda: (registry.apply(_subscription(7)), interest_index.follow_definitions(registry)), 100),
        ),
    }
    for what, (before, now) in rows.items():
        print(f"  {what}: all looked at anew {before:,.0f}, by the index {now:,.1f}")


def _subscription(number: int) -> SubscriptionChange:
    """Filters of ten types, each for a unit of its own."""
    filter = cql2.parse(f"type = 't{number % 10}' AND unit = 'u{number}' AND speed > 3", Mark("benchmark"))
    return SubscriptionChange(Subscription(str(number), ("x",), filter))


def _microseconds(run: Callable[[], object], times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        run()
    return 1e6 * (time.process_time() - began) / times


if __name__ == "__main__":
    main()
