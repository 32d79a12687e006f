"""Counts of entities in rules: what `count(uform(conditions)) >= 20` means, three-valued.

Of each entity its newest report counts: the conditions are TRUE of it, FALSE, or UNKNOWN. So how many there are lies
between two numbers, and a comparison is known where it is the same for both and all between.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from nearcast.filters.truth import COMPARE, Truth
from nearcast.model.filter import Atom, Count, Entities, Filter, Operator
from nearcast.model.limits import Limits
from nearcast.situations.readings import ContextReading, SituationCentre, is_near

UNKNOWN = "UNKNOWN"
"""The value of a report of which it is not known whether it satisfies the conditions; others have true or false."""

NAMED = 10
"""Of the entities that are counted so many are named where a situation is told of: those that reported last."""

FOR_EVER = 1 << 62
"""A moment that does not come."""


@dataclass(frozen=True, slots=True)
class EntityCount:
    """A comparison of a count with `limits`: of the entities that satisfy `conditions` (None: all).

    `name` is how they are written; by it their reports are kept. From `enough` entities on, more change nothing; where
    it is `ordered`, neither do fewer below.
    """

    name: str
    conditions: Filter | None
    operator: Operator
    limits: tuple[float, ...]
    enough: int
    ordered: bool


class CountedArea(NamedTuple):
    """Where entities count: within metres of a centre, or in a named place; and which of their reports: those behind a
    position, `valid` for so many microseconds (None: until the next).
    """

    centre: SituationCentre
    metres: float
    area: str | None
    after: int
    valid: int | None


class EntityTally(NamedTuple):
    """How many entities count and of how many that is unknown, as far as a comparison asks: none, where it is ordered
    and they are surely not enough; whether more are left out.

    `lapses`: the first moment at which the comparison may be another though nobody reports.
    """

    counted: int
    unknown: int
    left_out: bool = False
    lapses: int = FOR_EVER


class CountFinding(NamedTuple):
    """A count as it was told, or is explained: how it is written, how many there are, of how many it is unknown; some
    that reported last, by name, of both.
    """

    text: str
    counted: int
    unknown: int
    newest: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    why: str = ""


class EntityCounts(Protocol):
    """The newest report of each entity that conditions are about; `beyond` counts those that `limits` left out."""

    limits: Limits
    beyond: Counter[str]

    @property
    def names(self) -> Collection[str]:
        """What is counted."""

    def newest(self, entity: str, name: str) -> ContextReading | None:
        """The newest report of an entity."""

    def tally(self, count: EntityCount, area: CountedArea, now: int) -> EntityTally:
        """How many there are, as far as the comparison asks."""

    def found(self, name: str, area: CountedArea, now: int) -> list[ContextReading]:
        """The reports that count, and those of which it is unknown, in any order."""

    def is_left_out(self, name: str, valid: int | None, now: int) -> bool:
        """Whether some were left out that may count."""


_ORDERED = (Operator.GT, Operator.GE, Operator.LT, Operator.LE)
"""Comparisons that are the same for all numbers below a limit, and for all above."""


def count_of(atom: Atom) -> EntityCount | None:
    """What a condition counts; None if it counts no entities."""
    if not isinstance(atom.name, Count) or not isinstance(atom.name.of, Entities):
        return None
    of, operator = atom.name.of, atom.operator
    limits = tuple(one for one in atom.literals if isinstance(one, (int, float)))
    # Who made the conditions of other than text has them as they are.
    name = of.text or f"uform({of.conditions!r})"
    return EntityCount(name, of.conditions, operator, limits, _enough(operator, limits), operator in _ORDERED)


def _enough(operator: Operator, limits: Sequence[float]) -> int:
    least = max(limits)
    return max(0, math.ceil(least) if operator in (Operator.GE, Operator.LT) else math.floor(least) + 1)


def truth_of_count(count: EntityCount, tally: EntityTally) -> Truth:
    """The truth of a comparison with a number of which it is known between what it lies."""
    least = tally.counted
    if least >= count.enough or not (tally.unknown or tally.left_out):
        return _satisfies(count, least)
    most = max(least, count.enough)
    if not tally.left_out:
        most = min(most, least + tally.unknown)
    # Truth changes beside a limit alone.
    beside = (math.floor(limit) + step for limit in count.limits for step in (-1, 0, 1, 2))
    found = {_satisfies(count, number) for number in {least, most, *(one for one in beside if least <= one <= most)}}
    return found.pop() if len(found) == 1 else None


def _satisfies(count: EntityCount, number: int) -> bool:
    match count.operator:
        case Operator.IN:
            return number in count.limits
        case Operator.BETWEEN:
            low, high = count.limits
            return low <= number <= high
    return bool(COMPARE[count.operator](number, count.limits[0]))


def tallied(reports: Iterable[ContextReading], valid: int | None, enough: int, left_out: bool = False) -> EntityTally:
    """The tally of fresh reports, each of another entity: no more of them are looked at than are enough."""
    counted: list[int] = []
    unknown: list[int] = []
    if enough > 0:
        for one in reports:
            (counted if one.value is True else unknown).append(one.moment)
            if len(counted) >= enough:
                break
    if valid is None or enough <= 0:
        return EntityTally(len(counted), len(unknown), left_out)
    # While so many are fresh, it is of no matter which of the others are.
    moments = counted if len(counted) >= enough else [*counted, *unknown]
    lapses = min(moments) + valid + 1 if moments else FOR_EVER
    return EntityTally(len(counted), len(unknown), left_out, lapses)


def counts_in(report: ContextReading, area: CountedArea, now: int) -> bool:
    """Whether a report counts there, or may."""
    if report.value is False or report.position <= area.after:
        return False
    if area.valid is not None and report.moment < now - area.valid:
        return False
    return area.area in report.areas if area.area is not None else is_near(area.centre, report, area.metres)


def finding_of(name: str, found: Iterable[ContextReading], why: str = "") -> CountFinding:
    """What reports that count come to."""
    ordered = sorted(found, key=lambda one: (-one.moment, one.entity))
    counted = [one.entity for one in ordered if one.value is True]
    unknown = [one.entity for one in ordered if one.value is not True]
    return CountFinding(name, len(counted), len(unknown), tuple(counted[:NAMED]), tuple(unknown[:NAMED]), why)
