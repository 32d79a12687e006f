"""Leaps of a time of day, seen against a clock that nobody sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.runtime.clock_leaps import ClockLeaps

HOUR = 3_600.0

steps = st.lists(st.tuples(st.floats(0.0, 5 * HOUR), st.sampled_from([0.0, 0.5, 2.0, HOUR, 24 * HOUR])), max_size=8)


@given(steps)
def test_stamps_of_a_clock_that_never_falls_are_as_old_as_the_time_that_passed(
    steps: list[tuple[float, float]],
) -> None:
    """Of that age is what is found by it; corrections that count as no leap are left out of account."""
    wall, steady, small = 1e9, 0.0, 0.0
    leaps = ClockLeaps(wall, steady)
    stamps = [(wall, steady)]
    for seconds, by in steps:
        small += by if by < 1.0 else 0.0
        wall, steady = wall + seconds + by, steady + seconds
        leaps.look(wall, steady)
        stamps.append((wall, steady))
    ages = leaps.ages([stamp for stamp, _ in stamps])
    for (_, at), age in zip(stamps, ages, strict=True):
        assert steady - at == pytest.approx(age, abs=small + 1e-3)
        assert [age] == pytest.approx(leaps.ages([leaps.moment_before(age)]), abs=1e-3)


def test_a_moment_that_a_leap_passed_over_is_as_old_as_the_leap() -> None:
    """Another clock stamped it, which did not leap: neither older than what came before it, nor younger than the
    leap.
    """
    leaps = ClockLeaps(1e9, 0.0)
    leaps.look(1e9 + HOUR, 0.0)
    leaps.look(1e9 + HOUR + 60, 60.0)
    assert [70.0, 60.0, 60.0, 59.0] == leaps.ages([1e9 - 10, 1e9, 1e9 + HOUR / 2, 1e9 + HOUR + 1])


def test_a_leap_that_was_taken_back_was_none() -> None:
    """What was stamped meanwhile is yet to come; where half of it is taken back, half of it was one."""
    leaps = ClockLeaps(1e9, 0.0)
    leaps.look(1e9 + 2 * HOUR, 0.0)
    leaps.look(1e9 + HOUR + 60, 60.0)
    assert ([60.0], 1e9 + HOUR) == (leaps.ages([1e9]), leaps.moment_before(60))
    leaps.look(1e9 + 120, 120.0)
    assert [120.0, 0.0] == leaps.ages([1e9, 1e9 + HOUR])
    assert not leaps
