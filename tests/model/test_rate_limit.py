"""Rate limits: so much per second, and a burst at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.rate_limit import RateLimit


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(1, 4)), max_size=60))
def test_no_more_is_spent_than_came_in(asked: list[tuple[float, int]]) -> None:
    """The burst, and the rate times the time since the beginning."""
    bucket, now, spent = RateLimit(2.0, 5.0), 100.0, 0
    for pause, cost in asked:
        now += pause
        spent += cost * bucket.spend(cost, now)
        assert spent <= 5.0 + 2.0 * (now - 100.0) + 1e-6


def test_what_costs_more_than_the_burst_is_owed() -> None:
    """It would never get through otherwise."""
    bucket = RateLimit(1.0, 5.0)
    assert [True, False, False, True] == [bucket.spend(*one) for one in ((8, 0.0), (1, 1.0), (1, 3.9), (1, 4.1))]


def test_a_clock_that_is_set_back_gives_nothing() -> None:
    """And takes nothing away."""
    bucket = RateLimit(1.0, 1.0)
    assert [True, False, True] == [bucket.spend(1, now) for now in (10.0, 5.0, 6.0)]


def test_what_is_affordable_is_not_spent_yet() -> None:
    """Of two limits neither gives anything where the other refuses."""
    bucket = RateLimit(1.0, 2.0)
    assert [True, True, True, False] == [
        bucket.affords(2, 0.0), bucket.affords(2, 0.0), bucket.spend(2, 0.0), bucket.affords(2, 1.0),
    ]  # fmt: skip
