"""The sorted arrays of the request index: thresholds of one operator, and what hangs under each (figure 3).

A filter's *right* is how long and how far it holds: several requestors may have asked for the same.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from nearcast.model.filter import Operator


@dataclass(slots=True)
class Registered:
    """A filter of the index: its literal, its rights, and the `=` filters that hang under it, ascending.

    Rights are (until, within) of which none is both shorter and narrower than another: with them the index answers as
    if each request stood for itself.
    """

    value: Any
    rights: list[tuple[float, float]] = field(default_factory=list)
    equals: list[Registered] = field(default_factory=list)

    @property
    def within(self) -> float:
        """The farthest that somebody who asked for this may be."""
        return max(within for _, within in self.rights)

    def extend(self, until: float, within: float) -> bool:
        """Adds a right; False if there is one already that lasts as long and reaches as far."""
        if any(until <= other and within <= reach for other, reach in self.rights):
            return False
        kept = [right for right in self.rights if right[0] > until or right[1] > within]
        self.rights = [*kept, (until, within)]
        return True

    def lapse(self, now: float) -> None:
        """Drops the rights that have ended: a right holds before its end, not at it."""
        self.rights = [right for right in self.rights if right[0] > now]


def value_of(filter: Registered) -> Any:
    """What arrays of filters are sorted by."""
    return filter.value


def find(filters: list[Registered], value: Any) -> Registered | None:
    """The filter of this value in an ascending array."""
    at = bisect_left(filters, value, key=value_of)
    return filters[at] if at < len(filters) and filters[at].value == value else None


def remove(filters: list[Registered], filter: Registered) -> None:
    """Takes a filter out of an ascending array."""
    del filters[bisect_left(filters, filter.value, key=value_of)]


class Ranges:
    """The filters of one comparison other than `=`, the weakest first.

    So a value satisfies a beginning of the array, found by bisection; the last of the beginning is the tightest filter
    that it satisfies. Stored ascending, as bisection wants it; `<` and `<=` are read from the end, which is the
    descending order of the paper.
    """

    def __init__(self, operator: Operator) -> None:
        self.falling = operator in (Operator.LT, Operator.LE)
        # Whether a threshold that equals the value is satisfied decides on which side of it a bisection must end.
        self._bisect = bisect_left if operator in (Operator.GT, Operator.LE) else bisect_right
        self._filters: list[Registered] = []
        self._reach: list[float] | None = None

    def __len__(self) -> int:
        return len(self._filters)

    def weakest_first(self) -> Iterator[Registered]:
        """Every filter, from the weakest to the tightest."""
        return reversed(self._filters) if self.falling else iter(self._filters)

    def find(self, value: Any) -> Registered | None:
        """The filter with this threshold."""
        return find(self._filters, value)

    def add(self, filter: Registered) -> Registered | None:
        """Puts a filter in its place; gives the next weaker one, from which it may take what hangs there."""
        insort(self._filters, filter, key=value_of)
        self.changed()
        return self._weaker(filter)

    def remove(self, filter: Registered) -> Registered | None:
        """Takes a filter out; gives the next weaker one, which takes what hung under it: "the left element"."""
        weaker = self._weaker(filter)
        remove(self._filters, filter)
        self.changed()
        return weaker

    def changed(self) -> None:
        """Says that a right has changed."""
        self._reach = None

    def satisfied(self, value: Any) -> list[Registered]:
        """The filters that a value satisfies, the weakest first."""
        at = self._bisect(self._filters, value, key=value_of)
        return self._filters[at:][::-1] if self.falling else self._filters[:at]

    def tightest(self, value: Any) -> tuple[Registered, float] | None:
        """The tightest filter that a value satisfies, and the greatest reach of all that it satisfies."""
        at = self._bisect(self._filters, value, key=value_of) - (not self.falling)
        if not 0 <= at < len(self._filters):
            return None
        # Readings far outnumber registrations: the greatest reach of each beginning is kept until one comes.
        if self._reach is None:
            reach = list(accumulate((filter.within for filter in self.weakest_first()), max))
            self._reach = reach[::-1] if self.falling else reach
        return self._filters[at], self._reach[at]

    def _weaker(self, filter: Registered) -> Registered | None:
        at = bisect_left(self._filters, filter.value, key=value_of) + (1 if self.falling else -1)
        return self._filters[at] if 0 <= at < len(self._filters) else None
