"""Pauses between attempts."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from nearcast.runtime.backoff import backoff


def test_pauses_double_up_to_a_bound() -> None:
    """The bound holds for the first one too."""
    assert [0.5, 1.0, 2.0, 4.0, 5.0, 5.0] == list(islice(backoff(0.5, 5.0), 6))
    assert [3.0, 3.0] == list(islice(backoff(10.0, 3.0), 2))


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.floats(0, 1), st.lists(st.floats(0, 1), min_size=12, max_size=12))
def test_chance_cuts_no_more_than_its_share(first: float, longest: float, jitter: float, chances: list[float]) -> None:
    """Of whatever is drawn, a pause is between what is left without that share and the whole."""
    plain = list(islice(backoff(first, longest), 12))
    draws = iter(chances)
    cut = list(islice(backoff(first, longest, jitter, lambda: next(draws)), 12))
    assert all(whole * (1 - jitter) <= pause <= whole for whole, pause in zip(plain, cut, strict=True))
