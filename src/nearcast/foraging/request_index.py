"""The request index of a provider: what others want to be told, in sorted arrays of thresholds (listings 2 and 3).

Per context class and operator there is a sorted array. An `=` that a range covers needs no search of its own: it hangs
under the tightest filter that covers it. When that lapses, it moves to the next weaker one; where there is none, to
another operator's range, else it stands for itself.

The listings leave three things open, settled here so that an answer never differs from that of a plain list of
filters: an `=` is covered by `>=` and `<=` too, and by one range, not two; a range that comes later takes the `=`
filters that it covers under itself; a filter asked for twice keeps every right that the other does not include.

A filter's *right* is how long and how far it holds: several requestors may have asked for the same.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, count
from math import inf
from typing import Any

from nearcast.filters.truth import COMPARE
from nearcast.foraging.neighbour_shares import NeighbourShares
from nearcast.model.filter import Atom, Operator
from nearcast.model.foraging import REQUESTED
from nearcast.model.values import Kind, Value, kind_of, time_of

MOST = 200_000
"""Filters of an index; a neighbour whose share is full registers none that are new until some have ended."""

MOST_RIGHTS = 32
"""Of one filter; requestors whose requests all last equally long need one."""


@dataclass(slots=True)
class IndexedFilter:
    """A filter of the index: its literal, its rights, and the `=` filters that hang under it, ascending.

    Rights are (until, within) of which none is both shorter and narrower than another: with them the index answers as
    if each request stood for itself. `ends`: when the next of them ends, as far as the index waits for it.
    `neighbour`: who brought the first.
    """

    value: Any
    rights: list[tuple[float, float]] = field(default_factory=list)
    ends: float = inf
    equals: list[IndexedFilter] = field(default_factory=list)
    neighbour: str = ""

    @property
    def within(self) -> float:
        """The farthest that somebody who asked for this may be."""
        return max(within for _, within in self.rights)

    def extend(self, until: float, within: float) -> bool:
        """Adds a right; False if there is one already that lasts as long and reaches as far."""
        if any(until <= other and within <= reach for other, reach in self.rights):
            return False
        # Those that the new one includes; what includes the new one has been looked for.
        kept = [right for right in self.rights if right[0] > until or right[1] > within]
        self.rights = [*kept, (until, within)]
        if len(self.rights) > MOST_RIGHTS:
            # Whoever asks so is no honest requestor; one right that includes all of them costs others nothing.
            self.rights = [(max(until for until, _ in self.rights), self.within)]
        return True

    def lapse(self, now: float) -> None:
        """Drops the rights that have ended: a right holds before its end, not at it."""
        self.rights = [right for right in self.rights if right[0] > now]


def value_of(filter: IndexedFilter) -> Any:
    """What arrays of filters are sorted by."""
    return filter.value


def find(filters: list[IndexedFilter], value: Any) -> IndexedFilter | None:
    """The filter of this value in an ascending array."""
    at = bisect_left(filters, value, key=value_of)
    return filters[at] if at < len(filters) and filters[at].value == value else None


def remove(filters: list[IndexedFilter], filter: IndexedFilter) -> None:
    """Takes a filter out of an ascending array."""
    del filters[bisect_left(filters, filter.value, key=value_of)]


class ThresholdRanges:
    """The filters of one comparison other than `=`, the weakest first.

    So a value satisfies a beginning of the array, found by bisection; the last of the beginning is the tightest filter
    that it satisfies. Stored ascending, as bisection wants it; `<` and `<=` are read from the end, which is the
    descending order of the paper.
    """

    def __init__(self, operator: Operator) -> None:
        self.falling = operator in (Operator.LT, Operator.LE)
        # Whether a threshold that equals the value is satisfied decides on which side of it a bisection must end.
        self._bisect = bisect_left if operator in (Operator.GT, Operator.LE) else bisect_right
        self._filters: list[IndexedFilter] = []
        self._reach: list[float] | None = None

    def __len__(self) -> int:
        return len(self._filters)

    def weakest_first(self) -> Iterator[IndexedFilter]:
        """Every filter, from the weakest to the tightest."""
        return reversed(self._filters) if self.falling else iter(self._filters)

    def find(self, value: Any) -> IndexedFilter | None:
        """The filter with this threshold."""
        return find(self._filters, value)

    def insert_filter(self, filter: IndexedFilter) -> IndexedFilter | None:
        """Puts a filter in its place; gives the next weaker one, from which it may take what hangs there."""
        insort(self._filters, filter, key=value_of)
        self.changed()
        return self._weaker(filter)

    def remove(self, filter: IndexedFilter) -> IndexedFilter | None:
        """Takes a filter out; gives the next weaker one, which takes what hung under it: "the left element"."""
        weaker = self._weaker(filter)
        remove(self._filters, filter)
        self.changed()
        return weaker

    def changed(self) -> None:
        """Says that a right has changed."""
        self._reach = None

    def satisfied(self, value: Any) -> list[IndexedFilter]:
        """The filters that a value satisfies, the weakest first."""
        at = self._bisect(self._filters, value, key=value_of)
        return self._filters[at:][::-1] if self.falling else self._filters[:at]

    def tightest(self, value: Any) -> tuple[IndexedFilter, float] | None:
        """The tightest filter that a value satisfies, and the greatest reach of all that it satisfies."""
        # Rising, the satisfied ones end before the place found; falling, they begin there.
        at = self._bisect(self._filters, value, key=value_of) - (not self.falling)
        if not 0 <= at < len(self._filters):
            return None
        # Readings far outnumber registrations: the greatest reach of each beginning is kept until one comes.
        if self._reach is None:
            reach = list(accumulate((filter.within for filter in self.weakest_first()), max))
            self._reach = reach[::-1] if self.falling else reach
        return self._filters[at], self._reach[at]

    def _weaker(self, filter: IndexedFilter) -> IndexedFilter | None:
        at = bisect_left(self._filters, filter.value, key=value_of) + (1 if self.falling else -1)
        return self._filters[at] if 0 <= at < len(self._filters) else None


RANGED: tuple[Operator, ...] = tuple(operator for operator in REQUESTED if operator is not Operator.EQ)


class RequestIndex:
    """The live filters of requests, by class and kind of value: add, expire, match; at most `most` of them."""

    def __init__(self, most: int = MOST) -> None:
        self.shares = NeighbourShares(most)
        self._classes: dict[tuple[str, Kind], ClassIndex] = {}
        self._ends: list[tuple[float, int, tuple[str, Kind], Operator, Value]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self.shares)

    def register(self, condition: Atom, until: float, within: float, neighbour: str = "") -> bool:
        """Registers an atomic request until a time, for requestors up to `within` away; whether it is a new filter.

        A new one for which the neighbour that brought it has no room left is counted in `shares.refused`.
        """
        name, value = condition.name, condition.value
        assert isinstance(name, str) and value is not None and not isinstance(value, tuple)
        key = (name, kind_of(value))
        of_class = self._classes.get(key)
        known = of_class.find(condition.operator, value) if of_class else None
        # What is there already is renewed however full it is.
        if known is None and not self.shares.hold(neighbour):
            return False
        filter, new = self._classes.setdefault(key, ClassIndex()).register(condition.operator, value)
        if new:
            filter.neighbour = neighbour
        if filter.extend(until, within):
            self._classes[key].changed(condition.operator)
            self._await(filter, min(until for until, _ in filter.rights), key, condition.operator)
        return new

    def _await(self, filter: IndexedFilter, end: float, key: tuple[str, Kind], operator: Operator) -> None:
        """Lets the next end of a filter's rights be noticed: one is awaited for each filter, not for each right."""
        if end < filter.ends:
            filter.ends = end
            heapq.heappush(self._ends, (end, next(self._order), key, operator, filter.value))

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
            end, _, key, operator, value = heapq.heappop(self._ends)
            filter = self._classes[key].find(operator, value) if key in self._classes else None
            # An end may be that of a filter that is gone, or one before which another was awaited.
            if filter is None or filter.ends != end:
                continue
            filter.lapse(now)
            filter.ends = inf
            self._classes[key].changed(operator)
            if filter.rights:
                self._await(filter, min(until for until, _ in filter.rights), key, operator)
            else:
                self._classes[key].remove(operator, filter)
                self.shares.release(filter.neighbour)
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
        self._ranges = {operator: ThresholdRanges(operator) for operator in RANGED}
        self._equals: list[IndexedFilter] = []

    def __bool__(self) -> bool:
        return bool(self._equals) or any(map(len, self._ranges.values()))

    def register(self, operator: Operator, value: Value) -> tuple[IndexedFilter, bool]:
        """The filter of this operator and value, and whether it was added now."""
        found = self.find(operator, value)
        if found:
            return found, False
        filter = IndexedFilter(value)
        if operator is Operator.EQ:
            self._settle(filter)
        else:
            self._spread(operator, filter)
        return filter, True

    def find(self, operator: Operator, value: Value) -> IndexedFilter | None:
        """The filter of this operator and value, wherever it hangs."""
        if operator is not Operator.EQ:
            return self._ranges[operator].find(value)
        # It hangs under the tightest cover of some operator: so these few arrays are all there are to look in.
        homes = (self._equals, *(cover.equals for cover, _ in self._covers(value)))
        return next((found for home in homes if (found := find(home, value))), None)

    def _covers(self, value: Value) -> Iterator[tuple[IndexedFilter, float]]:
        """The tightest filter of each operator that a value satisfies, with the greatest reach up to it."""
        return (found for ranges in self._ranges.values() if (found := ranges.tightest(value)))

    def _settle(self, equal: IndexedFilter) -> None:
        """Hangs an `=` under a range that covers it, else lets it stand for itself."""
        cover = next(self._covers(equal.value), None)
        insort(cover[0].equals if cover else self._equals, equal, key=value_of)

    def _spread(self, operator: Operator, filter: IndexedFilter) -> None:
        """Adds a range, which takes the `=` filters that it covers from its neighbour and from those on their own."""
        weaker = self._ranges[operator].insert_filter(filter)
        # What it covers hung, if under this operator, under the next weaker one: that was the tightest till now.
        for home in (self._equals, weaker.equals if weaker else []):
            covered = [equal for equal in home if COMPARE[operator](equal.value, filter.value)]
            for equal in covered:
                remove(home, equal)
                insort(filter.equals, equal, key=value_of)

    def changed(self, operator: Operator) -> None:
        """Says that a right of a filter has changed."""
        if operator is not Operator.EQ:
            self._ranges[operator].changed()

    def remove(self, operator: Operator, filter: IndexedFilter) -> None:
        """Takes a filter out; what hung there moves to its left, or settles anew (listing 3)."""
        if operator is Operator.EQ:
            homes = (self._equals, *(cover.equals for cover, _ in self._covers(filter.value)))
            remove(next(home for home in homes if find(home, filter.value)), filter)
            return
        # What satisfied this filter satisfies a weaker one too; the one next to it is then the tightest.
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


def _shown(filter: IndexedFilter) -> tuple[Value, list[Value]]:
    return filter.value, [equal.value for equal in filter.equals]
