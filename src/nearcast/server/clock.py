"""The one place where the server reads the time; everything else gets it as a value.

There are three times. `now` is the time of day, which stamps what is accepted and written. It follows the machine's
clock, but never runs backwards: where that was set back it goes on from where it was, a hundredth slower, until the
clock has come up to it. So what lasts a minute lasts a minute, also while the clock is behind. `steady` runs on evenly
whatever happens to the machine's clock: timers count by it, so that neither an hour back nor a day forward stops or
ends anything. It is in seconds since 1970 too, right when the process began. `wall` is the machine's clock as it is,
for others who compare it with theirs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

log = logging.getLogger(__name__)

JUMP = 1.0
"""Seconds by which a clock has to be set to count as set: less is how clocks are corrected that run well."""

JUMPS = 100
"""Leaps forward of the time of day that are remembered."""

STEP = 1e-6

PACE = 0.99
"""How fast the time of day goes while the machine's clock is behind it."""


class ServerClock:
    """The times, made of a machine's clocks: `wall` gives seconds since 1970, `monotonic` seconds since any moment.

    `set_back` counts how often the wall clock fell back.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.wall, self._monotonic = wall, monotonic
        # Events are read, and so accepted, in several threads.
        self._lock = threading.Lock()
        self._last, self._looked = wall(), monotonic()
        self._began = self._last - self._looked
        self._ahead = 0.0
        self._leaps: deque[tuple[float, float]] = deque(maxlen=JUMPS)
        self.set_back = 0

    def now(self) -> float:
        """Seconds since 1970, always more than it gave before."""
        with self._lock:
            wall, steady = self.wall(), self._monotonic()
            self._note_jump(wall - steady - self._began)
            passed, self._looked = steady - self._looked, steady
            leap = wall - self._last - passed
            if leap >= JUMP:
                self._leaps.append((self._last + passed, leap))
            self._last = max(wall, self._last + max(PACE * passed, STEP))
            return self._last

    def _note_jump(self, ahead: float) -> None:
        """Takes note of whether the wall clock was set since the last look."""
        jump, self._ahead = ahead - self._ahead, ahead
        if abs(jump) >= JUMP:
            self.set_back += jump < 0
            log.warning("the machine's clock was set seconds=%+.1f: timers go on, times of acceptance never fall", jump)

    def steady(self) -> float:
        """Seconds by which timers count."""
        return self._began + self._monotonic()

    def age(self, moment: float) -> float:
        """For how many seconds something is there that was stamped with a time of day, however the clock was set since
        this process began; 0 for what is yet to come.
        """
        now = self.now()
        # Mostly the clock was never set: then this is all, for each delivery.
        return max(0.0, now - moment) if not self._leaps else self.ages([moment])[0]

    def ages(self, moments: Sequence[float]) -> list[float]:
        """The age of each of several moments."""
        now = self.now()
        with self._lock:
            leaps = [*self._leaps]
        if not leaps:
            return [max(0.0, now - moment) for moment in moments]
        set_since = (sum(leap for before, leap in leaps if before >= moment) for moment in moments)
        return [max(0.0, now - moment - since) for moment, since in zip(moments, set_since, strict=True)]

    def stamp(self, steady: float) -> float:
        """The time of day of a moment that is known by the steady time."""
        return self.ahead_of_steady() + steady

    def ahead_of_steady(self) -> float:
        """How far the time of day is ahead of the steady time now."""
        return self.now() - self.steady()

    def not_before(self, moment: float) -> None:
        """What is accepted from now on comes after what was accepted then."""
        with self._lock:
            self._last = max(self._last, moment)


_clock = ServerClock()


def now() -> float:
    """The time of day, in seconds since 1970: what is accepted and written is stamped with it."""
    return _clock.now()


def wall() -> float:
    """The machine's clock, in seconds since 1970: what others hold against their own."""
    return _clock.wall()


def steady() -> float:
    """The time by which timers count, in seconds since 1970 as this process began; it runs on evenly."""
    return _clock.steady()


def age(moment: float) -> float:
    """For how many seconds something is there that was stamped with `now`."""
    return _clock.age(moment)


def ages(moments: Sequence[float]) -> list[float]:
    """The age of each of several moments."""
    return _clock.ages(moments)


def ahead_of_steady() -> float:
    """How far the time of day is ahead of the steady time now: what makes stamps of several at once."""
    return _clock.ahead_of_steady()


def stamp(steady: float) -> float:
    """The time of day of a steady time."""
    return _clock.stamp(steady)


def set_back() -> int:
    """How often the machine's clock fell back since this process began."""
    return _clock.set_back


def not_before(moment: float) -> None:
    """The time of day comes after this one from now on."""
    _clock.not_before(moment)


def moment(seconds: float) -> datetime:
    """Seconds since 1970 as a moment in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


@contextmanager
def replaced(other: ServerClock) -> Iterator[ServerClock]:
    """For the length of a block the server's time is that of another clock."""
    global _clock
    before, _clock = _clock, other
    try:
        yield other
    finally:
        _clock = before
