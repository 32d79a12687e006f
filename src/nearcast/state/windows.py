"""Readings over a time: what aggregates are about, kept for each name and entity as long as somebody asks for.

A rule's readings are those of a class, a relation's the values of an attribute. An aggregate is of one entity's
readings of one name, those of the last so many seconds, through the moment at which it is looked at. It has no value
where there are fewer than it needs, or where some are left out for there were too many.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from nearcast.model.expression import AGGREGATES, Array, Call, Constant, Expression, Property, parts
from nearcast.model.limits import Limits
from nearcast.model.values import Value

SECOND = 1_000_000
"""Moments and durations are whole microseconds: sums of them are exact."""

UNITS = {"ms": 1_000, "s": SECOND, "min": 60 * SECOND, "h": 3_600 * SECOND, "d": 86_400 * SECOND}
"""Microseconds of the units in which windows are written."""

FOREVER = (1 << 63) - 1
"""A moment that never comes, as `lateness` has it, which loads what a command that checks definitions does without."""

ReadingKey = tuple[str, str]
"""Entity, and class or attribute."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate of a class or attribute: over `span` microseconds; a rate is per `unit` microseconds.

    `text` is how it is written.
    """

    function: str
    name: str
    span: int
    unit: int
    least: int
    text: str


class AggregateFinding(NamedTuple):
    """An aggregate of an entity's readings: how many there are, the moments of the first and the last, and its value;
    None for the reason `why`.
    """

    text: str
    readings: int
    first: int
    last: int
    value: float | None
    why: str = ""


def aggregate_of(call: Call) -> Aggregate:
    """What a call of an aggregate means."""
    subject, window, *more = call.arguments
    assert isinstance(subject, Property) and isinstance(window, Constant), "definitions are checked"
    number, unit = str(window.value).split()
    least = more[0].value if more and isinstance(more[0], Constant) else 2 if call.function == "RATE" else 1
    assert isinstance(least, int), "definitions are checked"
    text = f"{call.function}({', '.join([subject.name, str(window.value), *(str(least) for _ in more)])})"
    span = max(1, round(float(number) * UNITS[unit]))
    return Aggregate(call.function, subject.name, span, UNITS[unit], least, text)


def aggregates_in(expression: Expression) -> tuple[Aggregate, ...]:
    """The aggregates of an expression, each once."""
    calls = (part for part in parts(expression) if isinstance(part, Call) and part.function in AGGREGATES)
    return tuple(dict.fromkeys(map(aggregate_of, calls)))


def by_name(expression: Expression) -> Expression:
    """An expression in which the aggregates are attributes, by how they are written."""
    match expression:
        case Call(function, _) if function in AGGREGATES:
            return Property(aggregate_of(expression).text)
        case Call(function, arguments):
            return Call(function, tuple(map(by_name, arguments)))
        case Array(items):
            return Array(tuple(map(by_name, items)))
    return expression


class KeptReading(NamedTuple):
    """A reading of a window: its moment, its position in the journal, its value."""

    moment: int
    position: int
    value: Value


class ReadingWindows(Protocol):
    """The readings of some time of each name by each entity; `beyond`: how many of a name `limits` left out."""

    limits: Limits
    beyond: Counter[str]

    def prepare(self, spans: Mapping[str, int]) -> None:
        """Keeps from now on the readings of these names, for so long; those of others are forgotten."""

    def put_reading(self, key: ReadingKey, reading: KeptReading, now: int) -> object:
        """Takes a reading in, at a moment."""

    def leaves(self, key: ReadingKey, span: int, now: int) -> int:
        """The moment at which the next reading leaves so long a window, after one; `FOREVER` where none does."""

    def forget(self, entities: Collection[str]) -> None:
        """Drops the readings of some entities."""

    def find(self, key: ReadingKey, aggregate: Aggregate, now: int, after: int) -> AggregateFinding:
        """An aggregate of an entity's readings at a moment, of those behind a position of the journal."""


@dataclass(slots=True)
class _Window:
    """The readings of one name by one entity, by moment, and their values. Of those up to `missed` some are left out.

    `lowest`: none has a lower position; `numeric`: all values are numbers. Then nothing need be looked at one by one.
    """

    kept: list[KeptReading] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    missed: int | None = None
    lowest: int = 1 << 62
    numeric: bool = True
    found: dict[tuple[Aggregate, int, int], AggregateFinding] = field(default_factory=dict)


class IndexedReadingWindows:
    """The readings of the names that `spans` has, for so many microseconds."""

    def __init__(self) -> None:
        self.spans: Mapping[str, int] = {}
        self.limits = Limits()
        self.beyond: Counter[str] = Counter()
        self.total = 0
        self._windows: dict[ReadingKey, _Window] = {}
        self._swept = 0

    def prepare(self, spans: Mapping[str, int]) -> None:
        """Keeps from now on the readings of these names, for so long; those of others are forgotten."""
        self.spans = spans
        self.forget([], [key for key in self._windows if key[1] not in spans])

    def put_reading(self, key: ReadingKey, reading: KeptReading, now: int, slowest: int | None = None) -> str:
        """Takes a reading in, at a moment; gives the name of the limit for which one is left out, or nothing.

        `slowest`: how far all entities have come at least, where that is not `now`.
        """
        span = self.spans.get(key[1])
        if span is None or reading.moment < now - span:
            return ""
        window = self._windows.setdefault(key, _Window())
        window.found.clear()
        self._drop(window, bisect_left(window.kept, (now - span,)))
        _insert(window, reading)
        self.total += 1
        slowest = now if slowest is None else slowest
        if self.total > self.limits.windows_readings and slowest > self._swept:
            self._sweep(slowest)
        many = len(window.kept) > self.limits.window_readings
        if not many and self.total <= self.limits.windows_readings:
            return ""
        self.beyond[key[1]] += 1
        window.missed = window.kept[0].moment
        self._drop(window, 1)
        return "window_readings" if many else "windows_readings"

    def leaves(self, key: ReadingKey, span: int, now: int) -> int:
        """The moment at which the next reading leaves so long a window, after one; `FOREVER` where none does.

        Those that were left out leave it too: then it is known again.
        """
        window = self._windows.get(key)
        if window is None:
            return FOREVER
        first = bisect_left(window.kept, (now - span,))
        moments = [window.kept[first].moment] if first < len(window.kept) else []
        if window.missed is not None and window.missed >= now - span:
            moments.append(window.missed)
        return min(moments) + span + 1 if moments else FOREVER

    def leaving(self, key: ReadingKey, span: int, now: int) -> int:
        """How many readings have left so long a window by a moment, of those that are kept."""
        window = self._windows.get(key)
        return 0 if window is None else bisect_left(window.kept, (now - span,))

    def _drop(self, window: _Window, count: int) -> None:
        if count:
            del window.kept[:count], window.values[:count]
            self.total -= count

    def _sweep(self, now: int) -> None:
        """Forgets readings that are too old, of entities that are silent too."""
        self._swept = now
        for key, window in list(self._windows.items()):
            first = now - self.spans[key[1]]
            self._drop(window, bisect_left(window.kept, (first,)))
            if not window.kept and (window.missed is None or window.missed < first):
                del self._windows[key]

    def has(self, key: ReadingKey) -> bool:
        """Whether there are readings of a key, or some were left out."""
        return key in self._windows

    def find(self, key: ReadingKey, aggregate: Aggregate, now: int, after: int) -> AggregateFinding:
        """An aggregate of an entity's readings at a moment, of those behind a position of the journal."""
        window = self._windows.get(key)
        if window is None:
            return aggregated(aggregate, ())
        if window.missed is not None and window.missed >= now - aggregate.span:
            return too_many(aggregate.text, self.limits)
        first = bisect_left(window.kept, (now - aggregate.span,))
        known = aggregate, first, after
        if known not in window.found:
            window.found[known] = _found(window, aggregate, first, after)
        return window.found[known]

    def forget(self, entities: Collection[str], keys: Iterable[ReadingKey] = ()) -> None:
        """Drops the readings of some entities, or by their keys."""
        for key in [*((entity, name) for entity in entities for name in self.spans), *keys]:
            window = self._windows.pop(key, None)
            if window is not None:
                self.total -= len(window.kept)

    def everything(self) -> Iterator[tuple[ReadingKey, Sequence[KeptReading], int | None]]:
        """All readings that are kept, by key, and through which moment some are left out."""
        return ((key, window.kept, window.missed) for key, window in self._windows.items())

    def copy(self) -> IndexedReadingWindows:
        """The same readings, which go on by themselves."""
        found = IndexedReadingWindows()
        found.spans, found.limits, found.total, found._swept = self.spans, self.limits, self.total, self._swept
        found._windows = {
            key: _Window(list(one.kept), list(one.values), one.missed, one.lowest, one.numeric)
            for key, one in self._windows.items()
        }
        return found

    def __deepcopy__(self, memo: object) -> IndexedReadingWindows:
        # Readings do not change, and there may be very many.
        return self.copy()

    def restore(self, key: ReadingKey, kept: Sequence[KeptReading], missed: int | None) -> None:
        """Puts back what `everything` gave."""
        window = self._windows[key] = _Window(missed=missed)
        for one in kept:
            _insert(window, one)
        self.total += len(kept)


def _insert(window: _Window, reading: KeptReading) -> None:
    at = bisect_right(window.kept, reading[:2], key=lambda one: one[:2])
    window.kept.insert(at, reading)
    window.values.insert(at, reading.value)
    window.lowest = min(window.lowest, reading.position)
    window.numeric = window.numeric and _is_number(reading.value)


def _found(window: _Window, aggregate: Aggregate, first: int, after: int) -> AggregateFinding:
    """An aggregate of the readings from a number on, of those behind a position."""
    kept = window.kept
    if not (window.numeric and window.lowest > after and len(kept) - first >= aggregate.least):
        return aggregated(aggregate, [one for one in kept[first:] if one.position > after])
    return _of_values(aggregate, window.values[first:], kept[first].moment, kept[-1].moment)  # type: ignore[arg-type]


def _is_number(value: Value) -> bool:
    # By exact type: in Python a bool is an integer.
    return type(value) is float or type(value) is int


def too_many(text: str, limits: Limits) -> AggregateFinding:
    """What is found where readings are left out."""
    most = f"at most {limits.window_readings:,} readings of one entity and {limits.windows_readings:,} of all"
    return AggregateFinding(text, 0, 0, 0, None, f"{most} are kept, and there were more")


def aggregated(aggregate: Aggregate, readings: Sequence[KeptReading]) -> AggregateFinding:
    """An aggregate of readings, by moment; only a count is of others than numbers."""
    if aggregate.function != "COUNT":
        readings = [one for one in readings if _is_number(one.value)]
    if not readings:
        return AggregateFinding(aggregate.text, 0, 0, 0, None, f"no reading came in that time, of {aggregate.least}")
    count, first, last = len(readings), readings[0].moment, readings[-1].moment
    if count < aggregate.least:
        why = f"{count} came in that time, of {aggregate.least} that it needs"
        return AggregateFinding(aggregate.text, count, first, last, None, why)
    return _of_values(aggregate, [one.value for one in readings], first, last)  # type: ignore[misc]


def _of_values(aggregate: Aggregate, values: Sequence[float], first: int, last: int) -> AggregateFinding:
    """The aggregate of values by moment, enough of them, the first and the last of these moments."""
    value = _value(aggregate, values, last - first)
    why = "all of them are of one moment" if value is None else ""
    return AggregateFinding(aggregate.text, len(values), first, last, value, why)


def _value(aggregate: Aggregate, values: Sequence[float], lasted: int) -> float | None:
    match aggregate.function:
        case "COUNT":
            return len(values)
        case "MAX":
            return max(values)
        case "MIN":
            return min(values)
        case "RATE":
            return (values[-1] - values[0]) / lasted * aggregate.unit if lasted else None
    # Added exactly, so that no order of adding makes another sum.
    total = _sum(values)
    return total / len(values) if aggregate.function == "AVG" else total


def _sum(values: Sequence[float]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        # Beyond all numbers, or infinities that are none together.
        return sum(values)
