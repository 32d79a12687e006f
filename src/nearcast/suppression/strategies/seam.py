"""What a strategy is: the one thing it decides, and how to write one.

Two subjects, a and b, report; each enters at a node of its own. A relation holds by a `ThresholdPredicate`: what a
`Dimension` reads from both newest values against a limit. If every report travelled, anybody could evaluate that. A
strategy says which need not: from what both nodes know of each other (`PairKnowledge`: the last published report of
each, and whether the relation holds) it gives each subject a *guard*, and a report that its subject's guard permits is
held back. The protocol around it (`nearcast.testing.entry_node`) is the same for every strategy: it publishes what no
guard permits, keeps what it held back until that is settled, and looks at it again when word of the other side comes
late.

**The one obligation.** As long as a report of a lies in a's guard, and one of b in b's, the relation between these two
must be as `PairKnowledge` says. Each guard must permit the report it was made from. Nothing else: with it, the outcome
is that of evaluating every report, whatever is late, repeated, jumps or comes out of order. A tighter guard costs
messages, a wider one than this is wrong; `nearcast.testing.strategy_trials.differences` tells which.

**A plug-in** is a class with this interface, usually a frozen dataclass whose fields are its parameters. It checks them
in `__post_init__` and raises a `Fault`; it is announced under the entry point group `nearcast.strategies`::

    @dataclass(frozen=True)
    class Cautious(Strategy):
        name = "cautious"
        share: float = 0.25

        def guards(self, known: PairKnowledge, bound: ThresholdPredicate) -> tuple[Guard, Guard]:
            radius = self.share * bound.room(known)
            return Ring(bound.dimension, known.a, radius), Ring(bound.dimension, known.b, radius)

    [project.entry-points."nearcast.strategies"]
    cautious = "my_package.strategies:Cautious"

`guards` is asked only where both subjects have published values that compare; it must be a function of its arguments,
for both sides ask it for themselves and must get the same. One that raises, gives something else, or takes more than
`watched.LINES` lines of Python is cut off: from then on nothing is held back, which is what `common-node` does.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from nearcast.errors import Fault
from nearcast.suppression.strategies.dimensions import Dimension
from nearcast.suppression.strategies.guards import Anywhere, Guard, Nowhere, Same, TakenReport

SideName = Literal["a", "b"]
"""The side of a subject: a is the lexicographically smaller one, which reports what the relation does."""

Evaluated = Literal["entry", "common", "subscriber"]
"""Where a relation is evaluated: where reports enter, at the first node common to all, or at the subscriber."""

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class PairKnowledge:
    """What both sides know of a pair: the last published report of each, and whether the relation holds."""

    a: TakenReport | None = None
    b: TakenReport | None = None
    holds: bool = False

    def of(self, side: SideName) -> TakenReport | None:
        """The last published report of a side."""
        return self.a if side == "a" else self.b


@dataclass(frozen=True, slots=True)
class ThresholdPredicate:
    """A predicate: a reading of two values against a limit. What holds ends where it fails by more than `margin`."""

    dimension: Dimension
    limit: float
    operator: Literal["<", "<=", ">", ">="] = "<"
    margin: float = 0.0

    def __post_init__(self) -> None:
        if not math.isfinite(self.limit):
            raise Fault("a finite number to compare with", repr(self.limit))
        if not 0 <= self.margin < math.inf:
            raise Fault("a margin of at least 0", repr(self.margin), advice="in the unit of the limit")

    def threshold(self, holds: bool) -> float:
        """What the reading is compared with: the limit, and once the relation holds, the margin beyond it."""
        margin = self.margin if holds else 0.0
        return self.limit + margin if self.operator in ("<", "<=") else self.limit - margin

    def reading(self, a: Any, b: Any) -> Any:
        """What is compared; None where a value is missing or both do not compare."""
        return None if a is None or b is None else self.dimension.reading(a, b)

    def holds(self, a: Any, b: Any, before: bool) -> bool:
        """Whether the relation holds between two values, given whether it held before.

        Where a subject has no value any more it does not; where two values do not compare, that changes nothing.
        """
        if a is None or b is None:
            return False
        reading = self.reading(a, b)
        return before if reading is None else bool(OPERATORS[self.operator](reading, self.threshold(before)))

    def room(self, known: PairKnowledge) -> float:
        """How far both subjects together may move from where they are known before the relation can change."""
        reading = self.reading(known.a and known.a.value, known.b and known.b.value)
        return 0.0 if reading is None else self.dimension.room(reading, self.threshold(known.holds))


class Strategy(ABC):
    """Which reports of two subjects may be held back. `name` is that of definitions."""

    name: ClassVar[str]
    evaluated: ClassVar[Evaluated] = "entry"
    shared: ClassVar[bool] = False
    """Whether what a subject publishes goes to all its partners, so that it has one ring instead of one for each."""

    @abstractmethod
    def guards(self, known: PairKnowledge, bound: ThresholdPredicate) -> tuple[Guard, Guard]:
        """A guard for each side, where both have published values that compare."""

    def serves(self, bound: ThresholdPredicate | None) -> str | None:
        """None if the strategy can serve a predicate, which is None if it is no bound; else what it expects."""
        return "a comparison of a distance, difference or ratio of both sides with a number" if bound is None else None


def guards(strategy: Strategy, known: PairKnowledge, bound: ThresholdPredicate) -> tuple[Guard, Guard]:
    """The guards of a pair, also where a side is unknown, has no value, or has one that does not compare."""
    a, b = known.a, known.b
    if a is None or b is None:
        # Until the other is heard of, all of it is one question: whoever comes second is told.
        return Nowhere() if a is None else Anywhere(), Nowhere() if b is None else Anywhere()
    if a.value is None or b.value is None:
        return _absent(a, b), _absent(b, a)
    if bound.reading(a.value, b.value) is None:
        return Same(a.value), Same(b.value)
    return strategy.guards(known, bound)


def _absent(mine: TakenReport, other: TakenReport) -> Guard:
    """A guard where at least one of two has no value: only that one's coming back changes anything."""
    return Same(None) if mine.value is None else Anywhere()
