"""A clock that a test moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class ManualClock:
    """A clock that stands until it is moved; calling it gives seconds since 1970, as `time.time` does.

    `monotonic` gives the seconds that have passed, as `time.monotonic` does: `move` lets some pass, and `set` is what
    somebody does to a machine's clock, which may go back by it.
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self.moment = start
        self._passed = 0.0

    def __call__(self) -> float:
        """Seconds since 1970."""
        return self.moment.timestamp()

    def move(self, seconds: float) -> datetime:
        """Lets so many seconds pass; the moment that it is then. Raises ValueError for less than none."""
        if not seconds >= 0:
            raise ValueError(f"expected seconds that pass, 0 or more, got {seconds}")
        self.moment += timedelta(seconds=seconds)
        self._passed += seconds
        return self.moment

    def set(self, seconds: float) -> datetime:
        """Sets the clock forward by so many seconds, back if they are negative; none passes."""
        self.moment += timedelta(seconds=seconds)
        return self.moment

    def monotonic(self) -> float:
        """The seconds that have passed, whatever the clock was set to."""
        return self._passed
