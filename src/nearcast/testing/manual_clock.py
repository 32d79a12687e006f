"""A clock that a test moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class ManualClock:
    """A clock that stands until it is moved; calling it gives seconds since 1970, as `time.time` does.

    It never goes back.
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self.moment = start

    def __call__(self) -> float:
        """Seconds since 1970."""
        return self.moment.timestamp()

    def move(self, seconds: float) -> datetime:
        """Lets so many seconds pass; the moment that it is then. Raises ValueError for less than none."""
        if not seconds >= 0:
            raise ValueError(f"expected seconds that pass, 0 or more, got {seconds}")
        self.moment += timedelta(seconds=seconds)
        return self.moment
