"""Ages by the time that passed, where the machine's clock is set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nearcast.runtime.passed_time import PassedTime
from nearcast.testing import ManualClock

DAY = 86_400.0

steps = st.lists(
    st.tuples(st.floats(0, 2 * DAY), st.sampled_from([0.0, 0.0, 2.0, DAY, 400 * DAY, -2.0, -DAY])), max_size=8
)


@given(steps, st.floats(0, 3 * DAY))
def test_nothing_is_older_than_the_time_that_passed(steps: list[tuple[float, float]], ago: float) -> None:
    """However the clock is set forward and back; where it is never set back, nothing is younger either."""
    machine = ManualClock()
    passed = PassedTime(machine, machine.monotonic)
    stamps = [(machine(), machine.monotonic())]
    for seconds, by in steps:
        machine.move(seconds)
        passed.stamped(0.0)
        stamps.append((machine(), machine.monotonic()))
        machine.set(by)
        passed.stamped(0.0)
        stamps.append((machine(), machine.monotonic()))
    until, now = passed.stamped(ago), machine.monotonic()
    forward = all(by >= 0 for _, by in steps)
    for stamp, at in stamps:
        if stamp < until - 1e-3:
            assert now - at > ago - 1e-2
        elif forward and stamp > until + 1e-3:
            assert now - at < ago + 1e-2


def test_a_clock_that_was_wrong_for_a_minute_is_as_one_that_never_was() -> None:
    """A day ahead, and right again: then what comes is as old as it is."""
    machine = ManualClock()
    passed = PassedTime(machine, machine.monotonic)
    start = machine()
    machine.set(DAY)
    machine.move(60)
    assert start == passed.stamped(60)
    machine.set(-DAY)
    assert start == passed.stamped(60)
    machine.move(2 * DAY)
    assert start + 60 == passed.stamped(2 * DAY)
