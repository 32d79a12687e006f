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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from nearcast.runtime.clock_leaps import LEAP, SLOWED, ClockLeaps

log = logging.getLogger(__name__)

STEP = 1e-6


class ServerClock:
    """The times, made of a machine's clocks: `wall` gives seconds since 1970, `monotonic` seconds since any moment.

    `set_back` counts how often the wall clock fell back.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.wall, self._monotonic = wall, monotonic
        # Events are read, and so accepted, in several threads.
        self._lock = threading.Lock()
        self._leaps = ClockLeaps(wall(), monotonic())
        self._began = self._leaps.last - self._leaps.looked
        self._ahead = 0.0
        self.set_back = 0

    def now(self) -> float:
        """Seconds since 1970, always more than it gave before."""
        with self._lock:
            wall, steady = self.wall(), self._monotonic()
            self._note_jump(wall - steady - self._began)
            least = self._leaps.last + max(SLOWED * (steady - self._leaps.looked), STEP)
            self._leaps.look(max(wall, least), steady)
            return self._leaps.last

    def _note_jump(self, ahead: float) -> None:
        """Takes note of whether the wall clock was set since the last look."""
        jump, self._ahead = ahead - self._ahead, ahead
        if abs(jump) >= LEAP:
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
        self.now()
        with self._lock:
            return self._leaps.ages(moments)

    def stamp(self, steady: float) -> float:
        """The time of day of a moment that is known by the steady time."""
        return self.ahead_of_steady() + steady

    def ahead_of_steady(self) -> float:
        """How far the time of day is ahead of the steady time now."""
        return self.now() - self.steady()

    def not_before(self, moment: float) -> None:
        """What is accepted from now on comes after what was accepted then."""
        with self._lock:
            self._leaps.last = max(self._leaps.last, moment)


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
