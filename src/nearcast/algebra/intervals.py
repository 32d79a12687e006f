"""Sets of values of one ordered kind as disjoint intervals between cuts; kinds are discrete, so a cut has one form.

Between 2^53 and 2^53 + 1, or between two neighbouring doubles, there is no number that an event can carry; after a text
comes the same text with a zero character; a moment is a whole number of microseconds.

A cut lies between two neighbouring values, so an interval needs no notion of open and closed, and two equal sets have
equal intervals. Where its values lie is the affair of a `ValueGrid`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from nearcast.model.filter import Operator

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

FIRST_MOMENT = datetime.min.replace(tzinfo=UTC)
MODERN = datetime(2026, 1, 1, tzinfo=UTC)
LAST_YEAR = 9999
_MICROSECOND, _SECOND = timedelta(microseconds=1), timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class ValueGrid:
    """The cuts right before and right after a value of one kind, and a value within an interval that is not empty."""

    before: Callable[[Any], Cut]
    after: Callable[[Any], Cut]
    within: Callable[[Cut, Cut], Any]

    def compared(self, operator: Operator, value: Any) -> Intervals:
        """The values of this kind that satisfy `operator value`; for <> without NaN, which lies nowhere."""
        before, after = self.before(value), self.after(value)
        match operator:
            case Operator.EQ:
                return union([(before, after)])
            case Operator.NE:
                return union([(BOTTOM, before), (after, TOP)])
            case Operator.LT:
                return union([(BOTTOM, before)])
            case Operator.LE:
                return union([(BOTTOM, after)])
            case Operator.GT:
                return union([(after, TOP)])
            case _:
                return union([(before, TOP)])

    def some(self, values: Intervals) -> Any:
        """A value of a set, None if it is empty; short and round where there is a choice."""
        return self.within(*values.parts[0]) if values else None


def _number_before(value: float) -> Cut:
    return BOTTOM if value == -math.inf else (0, value, 0)


def _number_after(value: float) -> Cut:
    if value == math.inf:
        return TOP
    # Below all numbers there is no least one above minus infinity: integers have no end.
    return (0, value, 1) if value == -math.inf else (0, next_number(value), 0)


def next_number(value: float) -> float:
    """The least number above a finite one that is an integer or a double."""
    try:
        double = float(value)
    except OverflowError:
        return math.floor(value) + 1
    # Rounding to a double may go up or down; only above counts.
    if double <= value:
        double = math.nextafter(double, math.inf)
    return min(double, math.floor(value) + 1)


def _number_within(low: Cut, high: Cut) -> float:
    if low == BOTTOM or low[2]:
        if high in (TOP, (0, math.inf, 0)):
            return 0
        return -math.inf if high[1] == -math.inf else math.floor(high[1]) - 1
    if low[1] == math.inf:
        return math.inf
    # For people: 6 rather than 5.000000000000001 as an example of more than 5.
    whole = math.ceil(low[1])
    return whole if (0, whole, 0) < high else low[1]


def _integer_before(value: float) -> Cut:
    if math.isinf(value):
        return TOP if value > 0 else BOTTOM
    return (0, math.ceil(value), 0)


def _integer_after(value: float) -> Cut:
    if math.isinf(value):
        return TOP if value > 0 else BOTTOM
    return (0, math.floor(value) + 1, 0)


def _text_before(value: str) -> Cut:
    return (0, value, 0) if value else BOTTOM


def _text_after(value: str) -> Cut:
    return (0, value + "\0", 0)


def _text_within(low: Cut, high: Cut) -> str:
    if low == BOTTOM:
        return "a" if high > (0, "a", 0) else ""
    least = str(low[1])
    # The text right after 'a' is 'a' and a zero character, which nobody wants to see.
    readable = least[:-1] + "a"
    return readable if least.endswith("\0") and (0, readable, 0) < high else least


def _moment_before(value: datetime) -> Cut:
    return BOTTOM if value == FIRST_MOMENT else (0, value, 0)


def _moment_after(value: datetime) -> Cut:
    try:
        return (0, value + _MICROSECOND, 0)
    except OverflowError:
        return TOP


def _roomy(moment: datetime) -> bool:
    return bool(moment.microsecond) and moment.year < LAST_YEAR


def _moment_within(low: Cut, high: Cut) -> datetime:
    if low != BOTTOM:
        least: datetime = low[1]
        whole = least.replace(microsecond=0) + _SECOND if _roomy(least) else least
        return whole if (0, whole, 0) < high else least
    return MODERN if high > (0, MODERN, 0) else high[1] - _MICROSECOND


def _boolean_before(value: bool) -> Cut:
    return (0, True, 0) if value else BOTTOM


def _boolean_after(value: bool) -> Cut:
    return TOP if value else (0, True, 0)


NUMBERS = ValueGrid(_number_before, _number_after, _number_within)
INTEGERS = ValueGrid(_integer_before, _integer_after, _number_within)
TEXTS = ValueGrid(_text_before, _text_after, _text_within)
MOMENTS = ValueGrid(_moment_before, _moment_after, _moment_within)
BOOLEANS = ValueGrid(_boolean_before, _boolean_after, lambda low, high: low != BOTTOM)
