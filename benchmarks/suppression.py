"""What holding back where events enter saves, and costs: `python -m benchmarks.suppression [--subjects 1000] …`.

Subjects move slowly, each is to meet one other. Reports are published in turn; the stages see them in batches, and
their word of how relations stand comes behind each batch. Costs are CPU time of this process: at the entry node for
every report, and of the stages for all that entered, beside the stages where every report enters. What is told is
checked to be equal.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from benchmarks.machine import machine
from nearcast.decision.derived import Stretch
from nearcast.decision.entry import Entry
from nearcast.decision.registry import Registry
from nearcast.decision.relate.stage import Relating
from nearcast.decision.relate.standing import Standings
from nearcast.decision.repository import Repository
from nearcast.errors import Mark
from nearcast.language.relation_document import relation_document
from nearcast.model.changes import RelationChange
from nearcast.model.columns import EVENTS, to_table
from nearcast.model.event import Event
from nearcast.model.place import Place
from nearcast.model.relation import Relation

START = datetime(2026, 1, 1, tzinfo=UTC)


def main() -> None:
    """Prints what enters, what it costs, and the same without holding back."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subjects", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=60, help="reports of each subject")
    parser.add_argument("--batch", type=int, default=500, help="reports between two batches of the stages")
    options = parser.parse_args()
    print(machine())
    relations = [_relation(pair) for pair in range(options.subjects // 2)]
    events = list(_reports(options.subjects, options.rounds))
    plain, plain_told, _, plain_cost = _run(relations, events, options.batch, False)
    entered, told, cost, stages = _run(relations, events, options.batch, True)
    assert told == plain_told, "what is told must not change"
    count = len(events)
    print(f"{count} reports of {options.subjects} subjects, {len(told)} begins and ends")
    print(f"every report: {plain} entered, stages {1e6 * plain_cost / count:.1f} us of CPU a report")
    print(f"held back: {entered} entered, {1 - entered / count:.1%} did not")
    print(f"  entry {1e6 * cost / count:.1f} us, stages {1e6 * stages / count:.1f} us of CPU a report")


def _relation(pair: int) -> Relation:
    sides = {"a": {"entity": f"s{2 * pair}"}, "b": {"entity": f"s{2 * pair + 1}"}}
    data = {"id": f"r{pair}", **sides, "when": "distance(a, b) < 10", "margin": 2, "strategy": "range-ring"}
    return relation_document(data, Mark("benchmark"))


def _reports(subjects: int, rounds: int) -> Iterator[Event]:
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
    relations: list[Relation], events: list[Event], batch: int, holding: bool
) -> tuple[int, list[bytes], float, float]:
    """How many entered, what was told, and the seconds of CPU at the entry node and in the stages."""
    entry, relating, standings, repository = Entry(), Relating(), Standings(), Repository()
    entry.define(Registry(relations={one.id: one for one in relations}), 0)
    defined = [(0, RelationChange(one)) for one in relations]
    relating.advance(Stretch(defined, {}, EVENTS.empty_table(), Registry(), repository))
    told: list[bytes] = []
    entered, at_entry, in_stages = 0, 0.0, 0.0
    for start in range(0, len(events), batch):
        began = time.process_time()
        taken = [one for event in events[start : start + batch] for one in entry.take(event, holding)]
        positions = list(range(entered + 1, entered + 1 + len(taken)))
        entry.written(taken, positions)
        at_entry += time.process_time() - began
        entered += len(taken)
        began = time.process_time()
        placed = [replace(event, position=position) for event, position in zip(taken, positions, strict=True)]
        table = to_table(placed)
        found = relating.advance(Stretch([], {}, table, Registry(), repository))
        repository.add(table)
        word = standings.advance(relating.pairing, max(entered, 1))
        in_stages += time.process_time() - began
        # Who begins or ends, and since when: positions differ.
        told += [event.payload.partition(b'"data":')[2] for event in found]
        entry.learn(word)
    return entered, sorted(told), at_entry, in_stages


if __name__ == "__main__":
    main()
