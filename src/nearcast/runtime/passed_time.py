"""How old is what was stamped with the time of day, by the time that passed, however the clock was set since."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

LEAP = 1.0
"""Seconds by which a clock has to be set forward to count as set."""

LEAPS = 100
"""Leaps that are remembered, the last ones."""


class PassedTime:
    """`wall` gives seconds since 1970 by the machine's clock, `steady` seconds of one that nobody sets.

    Where the clock leaps forward, what was stamped before is no older for it. Where it is set back that much is taken
    from the leaps, and what was stamped meanwhile is as of a time that is yet to come: it is young for longer. A leap
    is seen when it is asked for.
    """

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._steady = wall, steady
        self._last, self._looked = wall(), steady()
        # Each with the time of day before it, and by how much the clock was set.
        self._leaps: deque[tuple[float, float]] = deque(maxlen=LEAPS)
        self._lock = threading.Lock()

    def stamped(self, ago: float) -> float:
        """The time of day that was stamped so many seconds ago: what has an earlier stamp is older."""
        with self._lock:
            wall, steady = self._wall(), self._steady()
            expected = self._last + steady - self._looked
            self._last, self._looked = wall, steady
            while self._leaps and wall < sum(self._leaps[-1]):
                before, _ = self._leaps.pop()
                if wall > before:
                    self._leaps.append((before, wall - before))
            if wall >= expected + LEAP:
                self._leaps.append((expected, wall - expected))
            moment = wall - ago
            for before, leap in reversed(self._leaps):
                if moment >= before + leap:
                    break
                moment -= leap
            return moment
