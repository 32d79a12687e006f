"""Strategies that hold nothing back: every report travels to where the relation is evaluated (SEMANTICS §7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nearcast.decision.strategies.guards import Guard, Nowhere
from nearcast.decision.strategies.seam import Bound, Evaluated, Known, Strategy


@dataclass(frozen=True)
class CommonNode(Strategy):
    """Every report travels to the first node that is on the way of both; it serves any predicate."""

    name: ClassVar[str] = "common-node"
    evaluated: ClassVar[Evaluated] = "common"

    def guards(self, known: Known, bound: Bound) -> tuple[Guard, Guard]:
        """No report is held back."""
        return Nowhere(), Nowhere()

    def serves(self, bound: Bound | None) -> str | None:
        """Whatever is asked."""
        return None


@dataclass(frozen=True)
class Subscriber(CommonNode):
    """Every report travels to the subscriber, who evaluates the relation there; it serves any predicate."""

    name: ClassVar[str] = "subscriber"
    evaluated: ClassVar[Evaluated] = "subscriber"
