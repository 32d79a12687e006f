"""A strategy by lines: a subject is silent while it does not come nearer (SEMANTICS §7, Fulcrum figure 5)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from nearcast.decision.strategies.dimensions import GEODESIC_ROUNDING, ROUNDING, Vector
from nearcast.decision.strategies.guards import Guard, Line, Report
from nearcast.decision.strategies.parameters import checked_share
from nearcast.decision.strategies.rings import RangeRing
from nearcast.decision.strategies.seam import Bound, Known, Strategy


@dataclass(frozen=True)
class ParallelLine(Strategy):
    """Two parallel lines between both, the threshold apart, square to the way from one to the other.

    While each stays on its own side, both are at least the threshold apart, wherever else they go. On WGS84 the lines
    are planes in space. Only being apart can be had this way: while the reading is below its threshold, and where the
    straight way is, the guards are rings. `share` of the way belongs to side a.
    """

    name: ClassVar[str] = "parallel-line"
    share: float = 0.5

    def __post_init__(self) -> None:
        checked_share(self.share)

    def guards(self, known: Known, bound: Bound) -> tuple[Guard, Guard]:
        """A line for each side if both are apart, else rings."""
        assert known.a and known.b
        a, b = (bound.dimension.vector(report.value) for report in (known.a, known.b))
        way = _way(a, b)
        if a is None or b is None or way is None:
            return RangeRing(self.share).guards(known, bound)
        straight = math.hypot(*way)
        threshold = bound.threshold(known.holds)
        room = straight - threshold - ROUNDING * (straight + abs(threshold)) - GEODESIC_ROUNDING
        if room <= 0 or bound.reading(known.a.value, known.b.value) <= threshold:
            return RangeRing(self.share).guards(known, bound)
        ahead = tuple(step / straight for step in way)

        def line(report: Report, start: Vector, ahead: Vector, share: float) -> Line:
            """The line before one side."""
            return Line(bound.dimension, report, start, ahead, share * room)

        back = tuple(-step for step in ahead)
        return line(known.a, a, ahead, self.share), line(known.b, b, back, 1 - self.share)

    def serves(self, bound: Bound | None) -> str | None:
        """Not where a dimension has no points: no line lies between two ratios."""
        lacking = bound is not None and bound.dimension.name not in ("planar", "geodesic", "numeric")
        return "a distance of places or a difference of numbers" if lacking else super().serves(bound)


def _way(a: Vector | None, b: Vector | None) -> Vector | None:
    """From one point to another; None where there is none, or no one way leads from one to the other."""
    if a is None or b is None or len(a) != len(b) or a == b:
        return None
    way = tuple(theirs - mine for mine, theirs in zip(a, b, strict=True))
    return way if math.isfinite(math.hypot(*way)) else None
