"""Times: moments, days, and the fifteen relations of CQL2 between instants and closed intervals (OGC 21-065r2, 7.8).

A moment is in UTC, a day has no zone. Where a day meets a moment, the coarser decides: both are compared by day. The
relations are those of the W3C's Time Ontology; the ten of intervals take an attribute's instant as an interval from it
to itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache

from nearcast.model.expression import day, day_of
from nearcast.model.values import time_of

Instant = datetime | date

LONGEST = 64
"""Characters of a text that is kept with the moment it names: a longer one has a fraction of thirty digits."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The time from `start` to `end`, both included; None: open."""

    start: Instant | None
    end: Instant | None


@lru_cache(maxsize=4096)
def instant_of_text(text: str) -> Instant | None:
    """The moment or day that a text names."""
    return day_of(text) or time_of(text)


def instant_of(value: object) -> Instant | None:
    """What of time a value is: a moment, a day, or a text that names one."""
    if isinstance(value, str):
        return instant_of_text(value) if len(value) <= LONGEST else time_of(value)
    return value if isinstance(value, date) else None


def order(a: Instant, b: Instant) -> int:
    """−1, 0 or 1: whether `a` is before, at or after `b`."""
    # A day has no zone: a moment's day can be told, a day's moment cannot.
    if not (isinstance(a, datetime) and isinstance(b, datetime)):
        a, b = day(a), day(b)
    return (a > b) - (a < b)


def as_interval(value: object) -> Interval | None:
    """A value as a time with a start and an end; None if it is none, or ends before it starts."""
    if not isinstance(value, Interval):
        instant = instant_of(value)
        return None if instant is None else Interval(instant, instant)
    # Attributes may say that something ended before it began: no relation holds of that.
    if value.start is not None and value.end is not None and order(value.start, value.end) > 0:
        return None
    return value


def _ends(a: Instant | None, b: Instant | None, open_end: int) -> int:
    """The order of two starts (`open_end` −1) or two ends (1): an open one is before or after all others."""
    if a is None or b is None:
        return 0 if a is b else open_end if a is None else -open_end
    return order(a, b)


def _starts(a: Interval, b: Interval) -> int:
    return _ends(a.start, b.start, -1)


def _finishes(a: Interval, b: Interval) -> int:
    return _ends(a.end, b.end, 1)


def _gap(a: Interval, b: Interval) -> int:
    """The order of the end of `a` and the start of `b`: −1 where `a` is before `b`; open ends are beyond all starts."""
    return 1 if a.end is None or b.start is None else order(a.end, b.start)


def _disjoint(a: Interval, b: Interval) -> bool:
    return _gap(a, b) < 0 or _gap(b, a) < 0


def _during(a: Interval, b: Interval) -> bool:
    return _starts(a, b) > 0 and _finishes(a, b) < 0


def _overlaps(a: Interval, b: Interval) -> bool:
    return _starts(a, b) < 0 and _gap(a, b) > 0 and _finishes(a, b) < 0


def _begins(a: Interval, b: Interval) -> bool:
    return _starts(a, b) == 0 and _finishes(a, b) < 0


def _ends_with(a: Interval, b: Interval) -> bool:
    return _finishes(a, b) == 0 and _starts(a, b) > 0


Relation = Callable[[Interval, Interval], bool]

TEMPORAL: dict[str, Relation] = {
    "T_AFTER": lambda a, b: _gap(b, a) < 0,
    "T_BEFORE": lambda a, b: _gap(a, b) < 0,
    "T_DISJOINT": _disjoint,
    "T_EQUALS": lambda a, b: _starts(a, b) == 0 and _finishes(a, b) == 0,
    "T_INTERSECTS": lambda a, b: not _disjoint(a, b),
    "T_CONTAINS": lambda a, b: _during(b, a),
    "T_DURING": _during,
    "T_FINISHEDBY": lambda a, b: _ends_with(b, a),
    "T_FINISHES": _ends_with,
    "T_MEETS": lambda a, b: _gap(a, b) == 0,
    "T_METBY": lambda a, b: _gap(b, a) == 0,
    "T_OVERLAPPEDBY": lambda a, b: _overlaps(b, a),
    "T_OVERLAPS": _overlaps,
    "T_STARTEDBY": lambda a, b: _begins(b, a),
    "T_STARTS": _begins,
}
