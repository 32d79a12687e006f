"""The strategies that are here: all reports, rings, a line; and what their parameters must be (semantics §7)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from nearcast.errors import Fault
from nearcast.suppression.strategies.dimensions import GEODESIC_ROUNDING, ROUNDING, Vector
from nearcast.suppression.strategies.guards import Guard, Line, Nowhere, Ring, TakenReport
from nearcast.suppression.strategies.seam import Evaluated, PairKnowledge, Strategy, ThresholdPredicate


@dataclass(frozen=True)
class CommonNode(Strategy):
    """Every report travels to the first node that is on the way of both; it serves any predicate."""

    name: ClassVar[str] = "common-node"
    evaluated: ClassVar[Evaluated] = "common"

    def guards(self, known: PairKnowledge, bound: ThresholdPredicate) -> tuple[Guard, Guard]:
        """No report is held back."""
        return Nowhere(), Nowhere()

    def serves(self, bound: ThresholdPredicate | None) -> str | None:
        """Whatever is asked."""
        return None


@dataclass(frozen=True)
class Subscriber(CommonNode):
    """Every report travels to the subscriber, who evaluates the relation there; it serves any predicate."""

    name: ClassVar[str] = "subscriber"
    evaluated: ClassVar[Evaluated] = "subscriber"


def checked_share(share: object) -> None:
    """The share of the room that side a gets: from 0 to 1."""
    if not _is_number(share) or not 0 <= share <= 1:  # type: ignore[operator]
        raise Fault("a number from 0 to 1 for `share`", repr(share), advice="0.5 gives both sides the same")


def checked_speed(name: str, speed: object) -> None:
    """A top speed, in units of the dimension per second, or None."""
    if speed is not None and (not _is_number(speed) or not 0 <= speed < math.inf):  # type: ignore[operator]
        raise Fault(f"a speed of at least 0 for `{name}`, in units per second", repr(speed))


def checked_flag(name: str, flag: object) -> None:
    """True or false."""
    if not isinstance(flag, bool):
        raise Fault(f"true or false for `{name}`", repr(flag))


def _is_number(value: object) -> bool:
    # By exact type: in Python a bool is an integer.
    return type(value) in (int, float)


@dataclass(frozen=True)
class RangeRing(Strategy):
    """Each side half of what is between the reading and the limit; `share` is that of side a, if it moves more.

    Outside, the rings are (|AB| - D) / 2 around where both were last published; while near, mirrored, (D - |AB|) / 2.
    """

    name: ClassVar[str] = "range-ring"
    share: float = 0.5

    def __post_init__(self) -> None:
        checked_share(self.share)

    def guards(self, known: PairKnowledge, bound: ThresholdPredicate) -> tuple[Guard, Guard]:
        """Two rings whose radii are the room between them."""
        return _rings(known, bound, self.share)


@dataclass(frozen=True)
class SharedRing(Strategy):
    """One ring for each subject, the smallest of those with its partners: what it publishes goes to all of them."""

    name: ClassVar[str] = "shared-ring"
    shared: ClassVar[bool] = True

    def guards(self, known: PairKnowledge, bound: ThresholdPredicate) -> tuple[Guard, Guard]:
        """Two rings of half the room."""
        return _rings(known, bound, 0.5)


@dataclass(frozen=True)
class SpeedBound(Strategy):
    """Rings in proportion to the top speeds of both sides, and the time for which nobody can have left them.

    `speed` is of both, `a` and `b` of one side each: units of the dimension per second. A subject that keeps to it
    cannot leave its ring before `quiet` seconds; with `trust` it is not even looked at until then, and one that does
    not keep to it is noticed late. Without, jumps are noticed at once, and the speeds only share out the room.
    """

    name: ClassVar[str] = "speed-bound"
    speed: float | None = None
    a: float | None = None
    b: float | None = None
    trust: bool = False

    def __post_init__(self) -> None:
        for name in ("speed", "a", "b"):
            checked_speed(name, getattr(self, name))
        if not sum(self.speeds):
            expected = "a top speed above 0: `speed` for both sides, or `a` and `b`"
            raise Fault(expected, "none", advice="without one, range-ring is the strategy to take")
        checked_flag("trust", self.trust)

    @property
    def speeds(self) -> tuple[float, float]:
        """The top speeds of both sides."""
        both = 0.0 if self.speed is None else self.speed
        return both if self.a is None else self.a, both if self.b is None else self.b

    def guards(self, known: PairKnowledge, bound: ThresholdPredicate) -> tuple[Guard, Guard]:
        """Rings that both sides, at their top speeds, need the same time to leave."""
        together = sum(self.speeds)
        return _rings(known, bound, self.speeds[0] / together, bound.room(known) / together, self.trust)


def _rings(
    known: PairKnowledge, bound: ThresholdPredicate, share: float, quiet: float = 0.0, trust: bool = False
) -> tuple[Ring, Ring]:
    assert known.a and known.b
    room = bound.room(known)
    mine, other = (room * part if part else 0.0 for part in (share, 1 - share))
    return (
        Ring(bound.dimension, known.a, mine, quiet, trust),
        Ring(bound.dimension, known.b, other, quiet, trust),
    )


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

    def guards(self, known: PairKnowledge, bound: ThresholdPredicate) -> tuple[Guard, Guard]:
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

        def line(report: TakenReport, start: Vector, ahead: Vector, share: float) -> Line:
            """The line before one side."""
            return Line(bound.dimension, report, start, ahead, share * room)

        back = tuple(-step for step in ahead)
        return line(known.a, a, ahead, self.share), line(known.b, b, back, 1 - self.share)

    def serves(self, bound: ThresholdPredicate | None) -> str | None:
        """Not where a dimension has no points: no line lies between two ratios."""
        lacking = bound is not None and bound.dimension.name not in ("planar", "geodesic", "places", "numeric")
        return "a distance of places or a difference of numbers" if lacking else super().serves(bound)


def _way(a: Vector | None, b: Vector | None) -> Vector | None:
    """From one point to another; None where there is none, or no one way leads from one to the other."""
    if a is None or b is None or len(a) != len(b) or a == b:
        return None
    way = tuple(theirs - mine for mine, theirs in zip(a, b, strict=True))
    return way if math.isfinite(math.hypot(*way)) else None
