"""Strategies by rings: a subject is silent while it is within a radius of what it published last (SEMANTICS §7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nearcast.decision.strategies.guards import Guard, Ring
from nearcast.decision.strategies.parameters import checked_flag, checked_share, checked_speed
from nearcast.decision.strategies.seam import Bound, Known, Strategy
from nearcast.errors import Fault


@dataclass(frozen=True)
class RangeRing(Strategy):
    """Each side half of what is between the reading and the limit; `share` is that of side a, if it moves more.

    Outside, the rings are (|AB| - D) / 2 around where both were last published; while near, mirrored, (D - |AB|) / 2.
    """

    name: ClassVar[str] = "range-ring"
    share: float = 0.5

    def __post_init__(self) -> None:
        checked_share(self.share)

    def guards(self, known: Known, bound: Bound) -> tuple[Guard, Guard]:
        """Two rings whose radii are the room between them."""
        return _rings(known, bound, self.share)


@dataclass(frozen=True)
class SharedRing(Strategy):
    """One ring for each subject, the smallest of those with its partners: what it publishes goes to all of them."""

    name: ClassVar[str] = "shared-ring"
    shared: ClassVar[bool] = True

    def guards(self, known: Known, bound: Bound) -> tuple[Guard, Guard]:
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

    def guards(self, known: Known, bound: Bound) -> tuple[Guard, Guard]:
        """Rings that both sides, at their top speeds, need the same time to leave."""
        together = sum(self.speeds)
        return _rings(known, bound, self.speeds[0] / together, bound.room(known) / together, self.trust)


def _rings(known: Known, bound: Bound, share: float, quiet: float = 0.0, trust: bool = False) -> tuple[Ring, Ring]:
    assert known.a and known.b
    room = bound.room(known)
    mine, other = (room * part if part else 0.0 for part in (share, 1 - share))
    return (
        Ring(bound.dimension, known.a, mine, quiet, trust),
        Ring(bound.dimension, known.b, other, quiet, trust),
    )
