"""When each event of a file is due that is published at a pace: by the events' own times, or so many a second.

Nothing here waits or reads a clock: what is due is counted in seconds from the beginning, so that waiting for it does
not drift however long publishing takes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, TypeVar

from nearcast.model.values import has_zone, time_of

T = TypeVar("T")


class EventSchedule:
    """Gives to one event after the other the seconds at which it is due, never before one that stands earlier.

    By times, `speed` times as fast as they say; or `rate` a second; without either all at once. An event without a
    time is due with the one before it. `earlier` counts those whose time lies before that of one that stands earlier.
    """

    def __init__(self, speed: float | None = None, rate: float | None = None) -> None:
        self._speed, self._rate = speed, rate
        self._first: datetime | None = None
        self._latest: datetime | None = None
        self._count = 0
        self.earlier = 0

    @property
    def paced(self) -> bool:
        """Whether anything is waited for."""
        return self._speed is not None or self._rate is not None

    def due(self, time: datetime | None) -> float:
        """The seconds at which the next event is due, which has this time or none."""
        self._count += 1
        if time is not None:
            self._first = self._first or time
            self.earlier += self._latest is not None and time < self._latest
            self._latest = max(self._latest or time, time)
        if self._rate is not None:
            return (self._count - 1) / self._rate
        if self._speed is None or self._first is None or self._latest is None:
            return 0.0
        return (self._latest - self._first).total_seconds() / self._speed

    def moved(self, time: datetime, began: datetime) -> datetime:
        """The time of an event whose first one has that of the beginning, at the speed at which they are published.

        Raises `OverflowError` for one beyond the years that there are.
        """
        first = self._first or time
        return began + timedelta(seconds=(time - first).total_seconds() / (self._speed or 1.0))


def time_in(document: Any) -> datetime | None:
    """The time of a CloudEvent as it came; none where it has none, or one that whoever takes it will refuse."""
    written = document.get("time") if isinstance(document, dict) else None
    return time_of(written) if isinstance(written, str) and has_zone(written) else None


async def batches_due(
    scheduled: Iterator[tuple[float, T]],
    most: int,
    now: Callable[[], float],
    rest: Callable[[float], Awaitable[bool]],
) -> AsyncIterator[list[T]]:
    """What is due, as it becomes due, in its order; together, at most so many, where it is late.

    `now` is a clock that runs on evenly, `rest` waits for so many seconds and says whether to end.
    """
    began, waiting = now(), next(scheduled, None)
    while waiting is not None:
        # From the beginning, not from the last one: what is slow once is made up for.
        early = began + waiting[0] - now()
        if early > 0 and await rest(early):
            return
        # Woken a little too early, at least that one is due.
        passed = max(now() - began, waiting[0])
        batch: list[T] = []
        while waiting is not None and waiting[0] <= passed and len(batch) < most:
            batch.append(waiting[1])
            waiting = next(scheduled, None)
        yield batch
