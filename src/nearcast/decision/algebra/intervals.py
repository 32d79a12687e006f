"""Sets of values of one ordered kind, as disjoint intervals between cuts.

A cut lies between two neighbouring values, so an interval needs no notion of open and closed, and two equal sets have
equal intervals. Where its values lie is the affair of a grid (`grids`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Cut = tuple[Any, ...]
"""(0, value, 0): right before that value; (0, value, 1): right after it; `BOTTOM` and `TOP`: around everything."""

BOTTOM: Cut = (-1,)
TOP: Cut = (1,)


@dataclass(frozen=True, slots=True)
class Intervals:
    """A set: (low, high) pairs of cuts, ascending, none empty, no two touching."""

    parts: tuple[tuple[Cut, Cut], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __contains__(self, value: Any) -> bool:
        before = (0, value, 0)
        at = bisect_right(self.parts, before, key=lambda part: part[0])
        return at > 0 and before < self.parts[at - 1][1]

    def __or__(self, other: Intervals) -> Intervals:
        if not self.parts or not other.parts:
            return self if self.parts else other
        return union((*self.parts, *other.parts))

    def __and__(self, other: Intervals) -> Intervals:
        found, mine, theirs = [], iter(self.parts), iter(other.parts)
        a, b = next(mine, None), next(theirs, None)
        while a and b:
            low, high = max(a[0], b[0]), min(a[1], b[1])
            if low < high:
                found.append((low, high))
            # Whichever ends first cannot meet anything further.
            if a[1] < b[1]:
                a = next(mine, None)
            else:
                b = next(theirs, None)
        return Intervals(tuple(found))

    def __invert__(self) -> Intervals:
        cuts = [BOTTOM, *(cut for part in self.parts for cut in part), TOP]
        pairs = zip(cuts[::2], cuts[1::2], strict=True)
        return Intervals(tuple((low, high) for low, high in pairs if low < high))

    def __sub__(self, other: Intervals) -> Intervals:
        return self & ~other if self.parts and other.parts else self


def union(parts: Iterable[tuple[Cut, Cut]]) -> Intervals:
    """The set that any intervals make together; empty ones among them do not matter."""
    found: list[tuple[Cut, Cut]] = []
    for low, high in sorted(parts):
        if low >= high:
            continue
        # Touching intervals become one, so that equal sets look equal.
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return Intervals(tuple(found))


NOTHING = Intervals()
EVERYTHING = Intervals(((BOTTOM, TOP),))
