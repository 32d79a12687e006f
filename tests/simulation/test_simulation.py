"""Systems under a simulated time, network and medium are, whatever is done to them, as if nothing had been done."""

from __future__ import annotations

import pytest

from tests.simulation.scenario import run

KEPT: list[int] = []
"""Seeds that found something once."""


def test_a_seed_runs_the_same_again_and_nothing_is_wrong() -> None:
    """What is done in a minute of a disturbed system, and what comes of it, is decided by the seed alone."""
    once = run(1, 60.0)
    assert [] == once.faults
    assert 100 < once.deliveries
    assert once == run(1, 60.0)


@pytest.mark.long
@pytest.mark.parametrize("seed", [*KEPT, *range(1_000, 1_020)])
def test_nothing_is_wrong_however_a_system_is_disturbed(seed: int) -> None:
    """Events, decisions, deliveries, their order and their ends are those of an undisturbed system."""
    assert [] == run(seed).faults
