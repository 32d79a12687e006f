"""The pace of one connection against simulated links: nothing here reads a clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from nearcast.delivery.pacing import Pacing

SIZE = 500


def simulated(
    pace: Pacing, rate: Callable[[float], float], seconds: float, latency: float = 0.05
) -> list[tuple[float, float]]:
    """Sends as the pace allows over a link of `rate(now)` bytes/s that acknowledges after `latency`; more always waits.

    Returns when each delivery was acknowledged and how long it was under way.
    """
    now, free, position = 0.0, 0.0, 0
    flights: deque[tuple[float, int, float]] = deque()
    done = []
    while now < seconds:
        delay = pace.delay(SIZE, now)
        if delay == 0:
            position += 1
            pace.sent(position, SIZE, now, more=True)
            free = max(free, now) + SIZE / rate(now)
            flights.append((free + latency, position, now))
            continue
        arrival = flights[0][0] if flights else float("inf")
        now = min(arrival, float("inf") if delay is None else now + delay)
        while flights and flights[0][0] <= now:
            _, acknowledged, sent = flights.popleft()
            pace.acknowledged(acknowledged, now)
            done.append((now, now - sent))
    return done


def steady(rate: float) -> Callable[[float], float]:
    return lambda _: rate


@pytest.mark.parametrize("rate", [5_000.0, 50_000.0, 500_000.0])
def test_the_bandwidth_of_a_full_link_is_measured(rate: float) -> None:
    """Within a tenth, whether the link is slow or fast."""
    pace = Pacing()
    done = simulated(pace, steady(rate), 60.0)
    assert rate * 8 / 1000 == pytest.approx(pace.measured(60.0), rel=0.1)
    assert len(done) * SIZE / 60.0 > 0.85 * rate


def test_little_is_under_way_so_that_urgent_ones_need_not_wait() -> None:
    """Once the link is measured, its queue holds no more than about the link itself and the least window."""
    done = simulated(Pacing(), steady(50_000.0), 40.0)
    assert max(under_way for now, under_way in done if now > 20.0) < 0.3


def test_a_stated_bandwidth_is_a_cap() -> None:
    """80 kbit/s are 10,000 bytes/s, whatever the link could take."""
    done = simulated(Pacing(stated=80.0), steady(1e6), 30.0)
    assert 10_000 == pytest.approx(len(done) * SIZE / 30.0, rel=0.05)


def test_a_cap_is_not_taken_for_a_measurement() -> None:
    """Where the cap holds the sending back, nothing is learnt of the link."""
    pace = Pacing(stated=80.0)
    simulated(pace, steady(1e6), 30.0)
    assert pace.measured(30.0) is None


def test_a_link_slower_than_stated_is_measured() -> None:
    """The lesser of both counts."""
    pace = Pacing(stated=3750.0)
    done = simulated(pace, steady(20_000.0), 30.0)
    assert 160.0 == pytest.approx(pace.measured(30.0), rel=0.1)
    assert max(under_way for now, under_way in done if now > 15.0) < 0.5


def test_a_link_that_became_slower_is_noticed() -> None:
    """After the horizon of the measurement."""
    pace = Pacing()
    simulated(pace, lambda now: 100_000.0 if now < 20.0 else 10_000.0, 50.0)
    assert 80.0 == pytest.approx(pace.measured(50.0), rel=0.15)


def test_a_link_that_became_faster_is_noticed() -> None:
    """Sending a little faster than measured finds out."""
    pace = Pacing()
    simulated(pace, lambda now: 10_000.0 if now < 20.0 else 100_000.0, 50.0)
    assert 800.0 == pytest.approx(pace.measured(50.0), rel=0.15)


def test_the_first_deliveries_go_at_once_and_no_more_than_a_window() -> None:
    """Nothing is known yet: a window full, then the acknowledgements decide."""
    pace, sent = Pacing(), 0
    while pace.delay(SIZE, 0.0) == 0.0:
        sent += 1
        pace.sent(sent, SIZE, 0.0, more=True)
    assert (16_384 // SIZE, None) == (sent, pace.delay(SIZE, 0.0))


def test_one_delivery_larger_than_the_window_may_go_alone() -> None:
    """A window never keeps a client from anything for good."""
    assert 0.0 == Pacing().delay(10_000_000, 0.0)


def test_what_was_measured_lapses() -> None:
    """Some seconds after the link was full last; it is full for a while before it is measured again."""
    pace = Pacing()
    simulated(pace, steady(5_000.0), 30.0)
    assert 40.0 == pytest.approx(pace.measured(30.0), rel=0.15)
    assert pace.measured(40.0) is None
    pace.sent(10**6, SIZE, 40.0, more=True)
    pace.acknowledged(10**6, 40.1)
    assert pace.measured(40.1) is None


def worked_on(answers: bool) -> Pacing:
    """The pace of a fast link whose receiver takes 60 ms for each delivery; whether it answers pings meanwhile."""
    pace, now, sent, taken = Pacing(), 0.0, 0, 0
    while now < 20.0:
        while pace.delay(SIZE, now) == 0.0:
            sent += 1
            pace.sent(sent, SIZE, now, more=True)
        if answers and taken % 8 == 0:
            pace.arrived(now - 0.01, now)
        now += 0.06
        if taken < sent:
            taken += 1
            pace.acknowledged(taken, now)
    return pace


def test_a_receiver_that_works_is_not_taken_for_a_slow_link() -> None:
    """Where its answers to pings show that what it works on has arrived; without them nobody can tell."""
    assert (None, True) == (worked_on(True).measured(20.0), worked_on(True).worked_on)
    assert 66.7 == pytest.approx(worked_on(False).measured(20.0), rel=0.1)


def test_answers_to_pings_change_nothing_on_a_slow_link() -> None:
    """There an acknowledgement follows at once, in the same order."""
    pace, now = Pacing(), 0.0
    for position in range(1, 200):
        pace.sent(position, SIZE, now, more=True)
        now += 0.1
        pace.arrived(now - 0.1, now)
        pace.acknowledged(position, now + 0.005)
    assert pace.worked_on is False


def test_few_deliveries_tell_nothing_about_the_link() -> None:
    """A link that was never full has no measured bandwidth."""
    pace = Pacing()
    for position in range(100):
        pace.sent(position, SIZE, position * 1.0, more=False)
        pace.acknowledged(position, position + 0.01)
    assert (None, 0.01) == (pace.measured(100.0), pytest.approx(pace.round_trip, rel=0.01))
