"""How old is what was stamped with the time of day, by the time that passed, however the clock was set since."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from nearcast.runtime.clock_leaps import ClockLeaps


class PassedTime:
    """`wall` gives seconds since 1970 by the machine's clock, `steady` seconds of one that nobody sets.

    Where the clock leaps forward, what was stamped before is no older for it. Where it is set back that much is taken
    from the leaps, and what was stamped meanwhile is as of a time that is yet to come: it is young for longer. A leap
    is seen when it is asked for.
    """

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._steady = wall, steady
        self._leaps = ClockLeaps(wall(), steady())
        self._lock = threading.Lock()

    def stamped(self, ago: float) -> float:
        """The time of day that was stamped so many seconds ago: what has an earlier stamp is older."""
        with self._lock:
            self._leaps.look(self._wall(), self._steady())
            return self._leaps.moment_before(ago)
