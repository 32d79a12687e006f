"""Guards: where a subject may be without a word. They are values, and travel to where its reports enter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

from nearcast.suppression.strategies.dimensions import ROUNDING, Dimension, Vector


@dataclass(frozen=True, slots=True)
class TakenReport:
    """What an entry node took of a subject: its place in the order of all reports, its value, its time in seconds.

    A value of None says that the subject has none any more: it left, or has been silent for too long.
    """

    order: int
    value: Any
    time: float = 0.0


class Guard(Protocol):
    """A set of reports that may be held back."""

    def permits(self, report: TakenReport) -> bool:
        """Whether the report may be held back."""


@dataclass(frozen=True, slots=True)
class Anywhere:
    """Every report may be held back: a ring without end."""

    def permits(self, report: TakenReport) -> bool:
        """Yes."""
        return True


@dataclass(frozen=True, slots=True)
class Nowhere:
    """No report may be held back."""

    def permits(self, report: TakenReport) -> bool:
        """No."""
        return False


@dataclass(frozen=True, slots=True)
class Same:
    """A report of the value that is known already may be held back."""

    value: Any

    def permits(self, report: TakenReport) -> bool:
        """Whether the value is the known one."""
        return bool(report.value == self.value)


@dataclass(frozen=True, slots=True)
class Ring:
    """Reports within a radius of what was published last may be held back.

    `quiet`: seconds before and after the published report within which no report can lie outside, by a known top
    speed. With `trust` reports of this time are not looked at.
    """

    dimension: Dimension
    centre: TakenReport
    radius: float
    quiet: float = 0.0
    trust: bool = False

    def permits(self, report: TakenReport) -> bool:
        """Whether the report lies in the ring, its edge included."""
        if report.value == self.centre.value:
            return True
        if report.value is None:
            return False
        if self.trust and abs(report.time - self.centre.time) < self.quiet:
            return True
        moved = self.dimension.moved(self.centre.value, report.value)
        # From or to a value without bounds there is no way that a radius could measure.
        return moved is not None and moved < math.inf and moved <= self.radius > 0


@dataclass(frozen=True, slots=True)
class Line:
    """Reports on this side of a line, plane in space, may be held back: `reach` from what was published last.

    `start` is the published value's point, `ahead` the direction to the other subject, of length 1.
    """

    dimension: Dimension
    centre: TakenReport
    start: Vector
    ahead: Vector
    reach: float

    def permits(self, report: TakenReport) -> bool:
        """Whether the report lies before the line."""
        if report.value == self.centre.value:
            return True
        point = None if report.value is None else self.dimension.vector(report.value)
        if point is None or len(point) != len(self.start):
            return False
        advance = aside = 0.0
        for now, before, part in zip(point, self.start, self.ahead, strict=True):
            advance += (now - before) * part
            aside += abs(now - before)
        return advance + ROUNDING * aside <= self.reach
