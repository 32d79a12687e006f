"""What entities' numbers were over a time, where predicates of relations ask for it, and when that changes by itself.

A report of an entity is a reading of each of its attributes that is asked for, if it counts: what is late moves nothing
here either. A reading leaves its window at the first microsecond at which it is too old. Where an aggregate has another
value then, that is a row of its own: its entity's pairs are evaluated though nothing is reported (semantics §7).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from heapq import heappop, heappush

import numpy as np

from nearcast.model.limits import Limits
from nearcast.model.relation import SIDES, Named
from nearcast.model.values import Value
from nearcast.relations.entity_table import EntityTable
from nearcast.relations.pair_rules import PairRule
from nearcast.relations.reports import NO_VALUES, Values
from nearcast.state.lateness import FOREVER, NEVER
from nearcast.state.stream_clocks import StreamClocks
from nearcast.state.timeline import Excess
from nearcast.state.windows import Aggregate, AggregateFinding, IndexedReadingWindows, KeptReading

Asked = tuple[Aggregate, int]
"""An aggregate of an attribute, of the readings behind a position."""


def known_value(found: AggregateFinding) -> float | None:
    """The value of an aggregate as predicates have it: one that is not finite is none (semantics §2)."""
    value = found.value
    return None if value is None or not math.isfinite(value) else value


class EntityWindows:
    """The readings of entities over the times that relations ask for; of those of one scope and lateness.

    `values` are the aggregates that have a value, by entity, as far as rows were gone through; `numbers` has a number
    of each aggregate, by which they and `asked`, of each rule, name it. `excess` counts readings beyond the limits.
    """

    def __init__(self, known: EntityTable) -> None:
        self.known = known
        self.readings = IndexedReadingWindows()
        self.values: dict[str, Values] = {}
        self.asked: dict[int, tuple[tuple[str, int, int], ...]] = {}
        self.excess: Counter[Excess] = Counter()
        self._numbers: dict[Asked, int] = {}
        self._given = 0
        self._touched: dict[int, frozenset[int]] = {}
        self._of: dict[str, list[tuple[int, Aggregate, int]]] = {}
        self._spans: dict[str, tuple[int, ...]] = {}
        self._shortest = 0
        self._named: dict[str, frozenset[str] | None] = {}
        self._due: dict[str, tuple[int, int]] = {}
        self._heaps: dict[int, list[tuple[int, str]]] = {}

    def copy(self, known: EntityTable) -> EntityWindows:
        """The same windows, which go on by themselves, over a copy of what is known."""
        found = copy(self)
        found.known, found.readings, found.excess = known, self.readings.copy(), Counter()
        found.values, found._due = dict(self.values), dict(self._due)
        found._heaps = {clock: list(heap) for clock, heap in self._heaps.items()}
        return found

    @property
    def attributes(self) -> Sequence[str]:
        """The attributes that are asked for; none where no predicate has an aggregate."""
        return list(self._of)

    def limit(self, limits: Limits, excess: Counter[Excess]) -> None:
        """Goes on within these limits, and counts there what is beyond them."""
        self.readings.limits, self.excess = limits, excess

    def prepare(self, asking: Collection[PairRule], clocks: StreamClocks) -> None:
        """Keeps from now on what these rules ask for; the clocks are those now."""
        asked = {(one.aggregate, rule.after): None for rule in asking for one in rule.aggregates}
        self._numbers = {one: self._number(one) for one in asked}
        self.asked = {
            rule.number: tuple(
                (one.text, SIDES.index(one.side), self._numbers[one.aggregate, rule.after]) for one in rule.aggregates
            )
            for rule in asking
        }
        self._touched = {
            number: frozenset(rule for rule, own in self.asked.items() if number in {one[2] for one in own})
            for number in self._numbers.values()
        }
        self._of = {}
        for (aggregate, after), number in self._numbers.items():
            self._of.setdefault(aggregate.name, []).append((number, aggregate, after))
        self._spans = {name: tuple({one.span for _, one, _ in own}) for name, own in self._of.items()}
        self._shortest = min((min(spans) for spans in self._spans.values()), default=0)
        self._named = {name: _entities(asking, name) for name in self._of}
        self.readings.prepare({name: max(spans) for name, spans in self._spans.items()})
        self.refresh(clocks)

    def _number(self, one: Asked) -> int:
        """The number of an aggregate; those of others are not used again."""
        if one in self._numbers:
            return self._numbers[one]
        self._given += 1
        return self._given

    def refresh(self, clocks: StreamClocks) -> None:
        """Finds all values anew, as of these clocks."""
        entities = {entity for (entity, _), _, _ in self.readings.everything()}
        self.values, self._due, self._heaps = {}, {}, {}
        for entity in sorted(entities):
            clock = self._clock_of(entity, clocks)
            self.values[entity] = self._found(entity, int(clocks.values[clock]))
            self._schedule(entity, clock, int(clocks.values[clock]))

    def _clock_of(self, entity: str, clocks: StreamClocks) -> int:
        return 0 if clocks.single else int(self.known.columns["clock"][self.known.number(entity)])

    def _found(self, entity: str, now: int) -> Values:
        """The aggregates of an entity that have a value at a moment."""
        found = {}
        for name, asked in self._of.items():
            if self.readings.has((entity, name)):
                for number, aggregate, after in asked:
                    value = known_value(self.readings.find((entity, name), aggregate, now, after))
                    if value is not None:
                        found[number] = value
        return found

    def _schedule(self, entity: str, clock: int, now: int) -> None:
        """Takes note of when the next reading of an entity leaves a window, after a moment."""
        every = ((name, span) for name, spans in self._spans.items() for span in spans)
        due = min((self.readings.leaves((entity, name), span, now) for name, span in every), default=FOREVER)
        if due == FOREVER:
            self._due.pop(entity, None)
            self.readings.forget([entity])
        elif self._due.get(entity) != (due, clock):
            self._due[entity] = (due, clock)
            heappush(self._heaps.setdefault(clock, []), (due, entity))

    def next_leaving(self, clock: int) -> int:
        """The moment, by one of the clocks, at which the next reading leaves its window; `FOREVER` where none does."""
        heap = self._heaps.get(clock)
        while heap and self._due.get(heap[0][1]) != (heap[0][0], clock):
            heappop(heap)
        return heap[0][0] if heap else FOREVER

    def next_due(self, clocks: StreamClocks) -> int:
        """Microseconds until the next reading leaves its window; see `DerivingStage.next_due`."""
        numbers = np.array(sorted(self._heaps), np.int64)
        due = np.array([self.next_leaving(one) for one in numbers.tolist()], np.int64)
        return clocks.wait(due, None if clocks.single else numbers)

    def leaving(self, clocks: StreamClocks) -> int:
        """How many readings leave their windows until the clocks stand so, or have left one of several before."""
        times = clocks.values.tolist()
        gone = [(entity, times[clock]) for entity, (due, clock) in self._due.items() if due <= times[clock]]
        every = [(name, span) for name, spans in self._spans.items() for span in spans]
        return sum(self.readings.leaving((entity, name), span, now) for entity, now in gone for name, span in every)

    def leave(self, clock: int, now: int) -> list[str]:
        """The entities of which readings leave at the next moment, by one of the clocks, by name."""
        moment, found = self.next_leaving(clock), []
        while self.next_leaving(clock) == moment:
            found.append(heappop(self._heaps[clock])[1])
            del self._due[found[-1]]
        for entity in found:
            self._schedule(entity, clock, now)
        return sorted(found)

    def change(self, entity: str, now: int) -> frozenset[int]:
        """Finds the values of an entity anew; gives the rules, by number, of which some aggregate has another."""
        before, after = self.values.get(entity, NO_VALUES), self._found(entity, now)
        if before == after:
            return frozenset()
        self.values[entity] = after
        changed = [number for number in before.keys() | after.keys() if before.get(number) != after.get(number)]
        return frozenset().union(*(self._touched.get(number, frozenset()) for number in changed))

    def put_report(
        self,
        entity: str,
        clock: int,
        told: Mapping[str, Value],
        moment: int,
        position: int,
        now: int,
        slowest: int,
    ) -> set[str]:
        """Takes in what a report tells; gives the names of limits for which some of it was left out."""
        beyond = set[str]()
        reading = False
        for name, value in told.items():
            named = self._named[name]
            # What is of no moment is in no window.
            if moment != NEVER and (named is None or entity in named):
                kept = KeptReading(moment, position, value)
                beyond.add(self.readings.put_reading((entity, name), kept, now, slowest))
                reading = True
        due = self._due.get(entity)
        moves = due is not None and due[1] != clock
        # What came leaves after what was there, but where it is late or the first.
        if moves or (reading and (due is None or moment + self._shortest < due[0])):
            self._schedule(entity, clock, now)
        if moves or reading:
            self.values[entity] = self._found(entity, now)
        return beyond - {""}

    def forget(self, entities: Collection[str]) -> None:
        """Drops the readings of some entities."""
        self.readings.forget(entities)
        for entity in entities:
            self.values.pop(entity, None)
            self._due.pop(entity, None)


def _entities(rules: Collection[PairRule], attribute: str) -> frozenset[str] | None:
    """The entities of which an attribute is asked for; None: of any."""
    found = set[str]()
    for rule in rules:
        for one in rule.aggregates:
            if one.aggregate.name == attribute:
                side = rule.pair.a if one.side == "a" else rule.pair.b
                if not isinstance(side, Named):
                    return None
                found.add(side.entity)
    return frozenset(found)
