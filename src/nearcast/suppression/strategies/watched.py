"""A plug-in strategy under watch: one that raises or runs too long is cut off, and nothing is held back any more.

What is counted is lines of Python, not seconds: that needs no clock, cuts off at the same place on every machine, and
ends a loop without end in any thread. What it cannot end is one call into C that does not return.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from nearcast.suppression.strategies.guards import Guard, Nowhere, TakenReport
from nearcast.suppression.strategies.seam import Evaluated, PairKnowledge, Strategy, ThresholdPredicate

LINES = 20_000
"""Lines of Python that a plug-in may run for one answer: some milliseconds."""

Answer = TypeVar("Answer")

_log = logging.getLogger(__name__)


class WatchedStrategy(Strategy):
    """A plug-in's strategy; `reason` says why it was cut off, None while it was not."""

    name = "plug-in"

    def __init__(self, strategy: Strategy, lines: int = LINES) -> None:
        self.strategy, self.reason = strategy, None
        self._lines = lines

    reason: str | None

    @property
    def evaluated(self) -> Evaluated:  # type: ignore[override]
        """Where the plug-in says; at the common node once it is cut off."""
        return "common" if self.reason else self.strategy.evaluated

    @property
    def shared(self) -> bool:  # type: ignore[override]
        """As the plug-in says."""
        return self.strategy.shared

    def guards(self, known: PairKnowledge, bound: ThresholdPredicate) -> tuple[Guard, Guard]:
        """The plug-in's guards, as long as it gives any."""
        if self.reason is None:
            try:
                a, b = within(self._lines, lambda: self.strategy.guards(known, bound))
                return _WatchedGuard(self, a), _WatchedGuard(self, b)
            # Whatever it raises, SystemExit too, must not end anything but itself.
            except BaseException as error:
                self.cut_off(error)
        return Nowhere(), Nowhere()

    def permits(self, guard: Guard, report: TakenReport) -> bool:
        """What one of its guards says, as long as it says something."""
        if self.reason is None:
            try:
                return bool(within(self._lines, lambda: guard.permits(report)))
            except BaseException as error:
                self.cut_off(error)
        return False

    def cut_off(self, error: BaseException) -> None:
        """Asks the plug-in no more; an interruption by the user is passed on."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        self.reason = f"{type(error).__name__}: {error}"
        name = getattr(self.strategy, "name", type(self.strategy).__name__)
        _log.warning("strategy %s is cut off, its relations are evaluated by common-node: %s", name, self.reason)

    def serves(self, bound: ThresholdPredicate | None) -> str | None:
        """What the plug-in says, if it says something."""
        try:
            return within(self._lines, lambda: self.strategy.serves(bound))
        except BaseException as error:
            self.cut_off(error)
        return None


class _WatchedGuard:
    """A guard of a plug-in: asking it is running the plug-in's code again."""

    def __init__(self, watched: WatchedStrategy, guard: Guard) -> None:
        self._watched, self._guard = watched, guard

    def permits(self, report: TakenReport) -> bool:
        return self._watched.permits(self._guard, report)


class TooLong(BaseException):
    """More lines than allowed. Not an `Exception`: the plug-in's own handlers should let it pass."""


def within(lines: int, call: Callable[[], Answer]) -> Answer:
    """What a call gives, if it runs at most so many lines of Python; else raises `TooLong`."""
    left = lines

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        """Counts lines and calls of the thread."""
        nonlocal left
        left -= 1
        if left < 0:
            raise TooLong(f"more than {lines:,} lines of Python for one answer")
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        return call()
    finally:
        sys.settrace(before)
