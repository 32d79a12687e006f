"""When the events of a file are due: by their times, at a rate, without drift."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from nearcast.client.event_schedule import EventSchedule, batches_due

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_an_hour_is_a_minute_at_speed_60() -> None:
    """Counted from the first event with a time; before it nothing is waited for."""
    schedule = EventSchedule(speed=60)
    assert [0, 0, 60, 60.5] == [schedule.due(time) for time in (None, NOON, at(3600), at(3630))]


def test_what_has_no_time_or_an_earlier_one_goes_at_once() -> None:
    """With the one before it: the order is the file's. Those that are earlier than one before them are counted."""
    schedule = EventSchedule(speed=1)
    assert [0, 10, 10, 10, 12] == [schedule.due(time) for time in (NOON, at(10), None, at(5), at(12))]
    assert 1 == schedule.earlier


def test_a_rate_asks_for_no_times() -> None:
    """So many a second, evenly."""
    schedule = EventSchedule(rate=4)
    assert [0, 0.25, 0.5] == [schedule.due(time) for time in (None, at(1000), None)]


def test_without_a_pace_all_is_due_at_once() -> None:
    """Whatever the times are."""
    schedule = EventSchedule()
    assert [0, 0, 0] == [schedule.due(time) for time in (at(100), None, at(5000))]


def test_times_are_moved_to_when_their_events_are_published() -> None:
    """The first to the beginning, the others as far behind it as they are due; one that is late stays late."""
    schedule, began = EventSchedule(speed=60), at(1e8)
    schedule.due(NOON)
    assert [began, began + timedelta(seconds=1), began - timedelta(seconds=0.5)] == [
        schedule.moved(time, began) for time in (NOON, at(60), at(-30))
    ]


@given(st.lists(st.none() | st.floats(-1e6, 1e6), max_size=20), st.floats(1e-3, 1e3))
def test_due_is_the_greatest_time_so_far(seconds: list[float | None], speed: float) -> None:
    """Since the first, so many times as fast; it never falls."""
    schedule = EventSchedule(speed=speed)
    times = [None if one is None else at(one) for one in seconds]
    found = [schedule.due(time) for time in times]
    known = [[one for one in times[: number + 1] if one is not None] for number in range(len(times))]
    assert [(max(one) - one[0]).total_seconds() / speed if one else 0 for one in known] == found
    assert sorted(found) == found


class _Clock:
    """A clock that is moved by hand: by rests, which begin and end late, and by what is done in between."""

    def __init__(self, oversleeps: float) -> None:
        self.time, self.rested, self._oversleeps = 1000.0, list[float](), oversleeps

    def now(self) -> float:
        return self.time

    async def rest(self, seconds: float) -> bool:
        self.rested.append(seconds)
        self.time += seconds + self._oversleeps
        return len(self.rested) > 100


def taken(
    due: Sequence[float], clock: _Clock, work: Sequence[float] = (), most: int = 100
) -> list[tuple[float, list[int]]]:
    """When which are taken, by their numbers, where the n-th batch takes so long."""

    async def all_of_it() -> list[tuple[float, list[int]]]:
        found = []
        scheduled = ((seconds, number) for number, seconds in enumerate(due))
        async for batch in batches_due(scheduled, most, clock.now, clock.rest):
            found.append((clock.time - 1000.0, batch))
            clock.time += work[len(found) - 1] if len(found) <= len(work) else 0.0
        return found

    return asyncio.run(all_of_it())


def test_a_pace_does_not_drift() -> None:
    """Each rest is a little too long, and each request takes its time: what is due is counted from the beginning."""
    found = taken(range(50), _Clock(0.125), [0.25] * 50)
    assert [(number + 0.125 * (number > 0), [number]) for number in range(50)] == found


def test_what_became_late_is_made_up_for_together() -> None:
    """What was due meanwhile goes in one batch, or in several of the greatest size; then the pace is as before."""
    assert [(0, [0]), (3.5, [1, 2, 3]), (4, [4])] == taken(range(5), _Clock(0), [3.5])
    assert [(0, [0]), (3.5, [1, 2]), (3.5, [3]), (4, [4])] == taken(range(5), _Clock(0), [3.5], most=2)


def test_all_at_once_is_in_batches_of_the_greatest_size() -> None:
    """Without a rest."""
    clock = _Clock(0)
    assert [[0, 1, 2], [3, 4, 5], [6]] == [batch for _, batch in taken([0] * 7, clock, most=3)]
    assert [] == clock.rested


def test_a_rest_that_is_ended_ends_it() -> None:
    """Nothing is taken any more."""
    clock = _Clock(0)
    clock.rested = [0.0] * 100
    assert [(0, [0])] == taken(range(5), clock)
