"""The request index of a provider: what others want to be told, searched for every reading (listings 2 and 3).

Per context class and operator there is a sorted array. An `=` that a range covers needs no search of its own: it hangs
under the tightest filter that covers it. When that lapses, it moves to the next weaker one; where there is none, to
another operator's range, else it stands for itself.

The listings leave three things open, settled here so that an answer never differs from that of a plain list of
filters: an `=` is covered by `>=` and `<=` too, and by one range, not two; a range that comes later takes the `=`
filters that it covers under itself; a filter asked for twice keeps every right that the other does not include.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from nearcast.decision.foraging.ranges import Ranges, Registered, find, remove, value_of
from nearcast.decision.truths import COMPARE
from nearcast.model.filter import Atom, Operator
from nearcast.model.foraging import REQUESTED
from nearcast.model.values import Kind, Value, kind_of, time_of

RANGED: tuple[Operator, ...] = tuple(operator for operator in REQUESTED if operator is not Operator.EQ)


class RequestIndex:
    """The live filters of requests, by class and kind of value: add, expire, match."""

    def __init__(self) -> None:
        self._classes: dict[tuple[str, Kind], ClassIndex] = {}
        self._ends: list[tuple[float, int, tuple[str, Kind], Operator, Value]] = []
        self._order = count()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, condition: Atom, until: float, within: float) -> bool:
        """Registers an atomic request until a time, for requestors up to `within` away; whether it is a new filter."""
        name, value = condition.name, condition.value
        assert isinstance(name, str) and value is not None and not isinstance(value, tuple)
        key = (name, kind_of(value))
        filter, new = self._classes.setdefault(key, ClassIndex()).register(condition.operator, value)
        self._size += new
        if filter.extend(until, within):
            self._classes[key].changed(condition.operator)
            heapq.heappush(self._ends, (until, next(self._order), key, condition.operator, value))
        return new

    def match(self, name: str, value: Value, now: float) -> float | None:
        """How far a reading must be told: the greatest reach of the filters it satisfies; None if it satisfies none."""
        reaches = self._ask(name, value, now, ClassIndex.reach)
        return max((reach for reach in reaches if reach is not None), default=None)

    def satisfied(self, name: str, value: Value, now: float) -> set[tuple[Operator, Value]]:
        """The filters that a reading satisfies, one by one: for explanations, and to hold `match` against."""
        return {found for each in self._ask(name, value, now, ClassIndex.satisfied) for found in each}

    def _ask(self, name: str, value: Value, now: float, question: Callable[[ClassIndex, Any], Any]) -> Iterator[Any]:
        self.expire(now)
        for kind, form in _forms(value):
            found = self._classes.get((name, kind))
            if found:
                yield question(found, form)

    def expire(self, now: float) -> None:
        """Ends the rights whose time has come, and the filters that have none left."""
        while self._ends and self._ends[0][0] <= now:
            _, _, key, operator, value = heapq.heappop(self._ends)
            filter = self._classes[key].find(operator, value) if key in self._classes else None
            # An end may be that of a right which a longer one has replaced, or of a filter that is gone.
            if filter is None:
                continue
            filter.lapse(now)
            self._classes[key].changed(operator)
            if not filter.rights:
                self._classes[key].remove(operator, filter)
                self._size -= 1
            if not self._classes[key]:
                del self._classes[key]

    def listing(self, name: str, kind: Kind = "number") -> dict[Operator, list[tuple[Value, list[Value]]]]:
        """The arrays of a class: per operator (value, what hangs there), the weakest first."""
        found = self._classes.get((name, kind))
        return found.listing() if found else {}


def _forms(value: Value) -> Iterator[tuple[Kind, Value]]:
    """A reading as each kind of filter sees it; NaN satisfies none of the comparisons here."""
    if value == value:
        yield kind_of(value), value
    moment = time_of(value) if isinstance(value, str) else None
    if moment:
        yield "time", moment


class ClassIndex:
    """The filters of one context class and one kind of value."""

    def __init__(self) -> None:
        self._ranges = {operator: Ranges(operator) for operator in RANGED}
        self._equals: list[Registered] = []

    def __bool__(self) -> bool:
        return bool(self._equals) or any(map(len, self._ranges.values()))

    def register(self, operator: Operator, value: Value) -> tuple[Registered, bool]:
        """The filter of this operator and value, and whether it was added now."""
        found = self.find(operator, value)
        if found:
            return found, False
        filter = Registered(value)
        if operator is Operator.EQ:
            self._settle(filter)
        else:
            self._spread(operator, filter)
        return filter, True

    def find(self, operator: Operator, value: Value) -> Registered | None:
        """The filter of this operator and value, wherever it hangs."""
        if operator is not Operator.EQ:
            return self._ranges[operator].find(value)
        homes = (self._equals, *(cover.equals for cover, _ in self._covers(value)))
        return next((found for home in homes if (found := find(home, value))), None)

    def _covers(self, value: Value) -> Iterator[tuple[Registered, float]]:
        """The tightest filter of each operator that a value satisfies, with the greatest reach up to it."""
        return (found for ranges in self._ranges.values() if (found := ranges.tightest(value)))

    def _settle(self, equal: Registered) -> None:
        """Hangs an `=` under a range that covers it, else lets it stand for itself."""
        cover = next(self._covers(equal.value), None)
        insort(cover[0].equals if cover else self._equals, equal, key=value_of)

    def _spread(self, operator: Operator, filter: Registered) -> None:
        """Adds a range, which takes the `=` filters that it covers from its neighbour and from those on their own."""
        weaker = self._ranges[operator].add(filter)
        for home in (self._equals, weaker.equals if weaker else []):
            covered = [equal for equal in home if COMPARE[operator](equal.value, filter.value)]
            for equal in covered:
                remove(home, equal)
                insort(filter.equals, equal, key=value_of)

    def changed(self, operator: Operator) -> None:
        """Says that a right of a filter has changed."""
        if operator is not Operator.EQ:
            self._ranges[operator].changed()

    def remove(self, operator: Operator, filter: Registered) -> None:
        """Takes a filter out; what hung there moves to its left, or settles anew (listing 3)."""
        if operator is Operator.EQ:
            homes = (self._equals, *(cover.equals for cover, _ in self._covers(filter.value)))
            remove(next(home for home in homes if find(home, filter.value)), filter)
            return
        weaker = self._ranges[operator].remove(filter)
        for equal in filter.equals:
            if weaker:
                insort(weaker.equals, equal, key=value_of)
            else:
                self._settle(equal)

    def reach(self, value: Value) -> float | None:
        """The greatest reach of the filters that a value satisfies; None if there are none."""
        greatest: float | None = None
        for cover, reach in self._covers(value):
            hanging = find(cover.equals, value)
            greatest = max(greatest or 0.0, reach, hanging.within if hanging else 0.0)
        # What a range covers is not among these: one search is saved where none is left to find.
        single = find(self._equals, value) if greatest is None else None
        return single.within if single else greatest

    def satisfied(self, value: Value) -> Iterator[tuple[Operator, Value]]:
        """The operator and literal of every filter that a value satisfies."""
        for operator, ranges in self._ranges.items():
            yield from ((operator, filter.value) for filter in ranges.satisfied(value))
        equal = self.find(Operator.EQ, value)
        if equal:
            yield Operator.EQ, equal.value

    def listing(self) -> dict[Operator, list[tuple[Value, list[Value]]]]:
        """Per operator (value, what hangs there), the weakest first."""
        listing = {operator: [*map(_shown, ranges.weakest_first())] for operator, ranges in self._ranges.items()}
        return {Operator.EQ: [*map(_shown, self._equals)], **listing}


def _shown(filter: Registered) -> tuple[Value, list[Value]]:
    return filter.value, [equal.value for equal in filter.equals]
