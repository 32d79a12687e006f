"""The engine sends what the protocol sends, and comes to what every report gives; only sooner."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.fulcrum.engine import Track, changes, flow
from experiments.fulcrum.together import Together
from nearcast.model.event import Coordinates
from nearcast.suppression.strategies.builtin import CommonNode, ParallelLine, RangeRing, SharedRing, SpeedBound
from nearcast.suppression.strategies.dimensions import DIMENSIONS
from nearcast.suppression.strategies.guards import TakenReport
from nearcast.suppression.strategies.seam import Strategy, ThresholdPredicate
from nearcast.testing.strategy_trials import run
from tests.experiments.test_fulcrum_subjects import Town, strolls
from tests.suppression.traces import walk

ENGINES = [
    RangeRing(),
    RangeRing(0.1),
    ParallelLine(),
    SpeedBound(a=1, b=4),
    SpeedBound(speed=5, trust=True),
    CommonNode(),
]


def track(reports: list[TakenReport], coordinates: Coordinates = "planar") -> Track:
    x, y = (np.array([getattr(report.value, axis) for report in reports], dtype=float) for axis in "xy")
    orders = np.array([report.order for report in reports], dtype=np.int64)
    return Track(orders, np.array([report.time for report in reports], dtype=float), x, y, coordinates)


@pytest.mark.parametrize("strategy", ENGINES, ids=str)
@given(seed=st.integers(0, 2**32), spread=st.sampled_from([15.0, 60.0]), margin=st.sampled_from([0.0, 2.0]))
@settings(max_examples=15, deadline=None)
def test_the_engine_sends_what_the_protocol_sends(strategy: Strategy, seed: int, spread: float, margin: float) -> None:
    """As many facts, and the same changes."""
    trace = walk(random.Random(seed), 300, spread)
    bound = ThresholdPredicate(DIMENSIONS["planar"], 10.0, "<", margin)
    a, b = (track([report for one, report in trace if one == side]) for side in "ab")
    found, trial = flow(strategy, bound, a, b), run(strategy, bound, trace)
    assert trial.facts == found.facts
    assert [(one.order, one.detect == "enter") for one in trial.changes] == found.changes
    if not getattr(strategy, "trust", False):
        assert changes(bound, a, b) == found.changes


@given(seed=st.integers(0, 2**32), count=st.integers(1, 10))
@settings(max_examples=15, deadline=None)
def test_rings_are_shared_as_the_protocol_shares_them(seed: int, count: int) -> None:
    """Each pair comes to its changes; publishing goes on from one to the next in the same way."""
    chance = random.Random(seed)
    pairs = sorted(chance.sample([*combinations("pqrst", 2)], count))
    names = sorted({name for pair in pairs for name in pair})
    reports = [(name, report) for name, report in strolls(chance, "pqrst", 200) if name in names]
    reports = [(name, TakenReport(order, report.value)) for order, (name, report) in enumerate(reports)]
    town = Town(pairs, SharedRing(), 0)
    town.run(reports)
    tracks = {names.index(name): track([report for one, report in reports if one == name]) for name in names}
    numbered = [(names.index(a), names.index(b)) for a, b in pairs]
    shared = Together(SharedRing(), town.bound, tracks, numbered).run()
    wanted = {
        number: [(one.order, one.detect == "enter") for one in town.changes[pair]]
        for number, pair in zip(numbered, pairs, strict=True)
    }
    assert wanted == {pair: shared.changes[pair] for pair in numbered}
    assert Counter({names.index(name): count for name, count in town.published.items()}) == Counter(shared.published)


def test_across_the_antimeridian_the_engine_is_geodesic() -> None:
    """Two ships at either side of it are near."""
    chance = random.Random(1)
    reports = [TakenReport(order, None) for order in range(400)]
    x = np.array([179.995, -179.995] * 200) + np.array([chance.gauss(0, 0.003) for _ in reports])
    y = np.array([chance.gauss(0, 0.003) for _ in reports])
    orders = np.arange(400)
    a, b = (
        Track(orders[cut], orders[cut] * 1.0, (x[cut] + 180) % 360 - 180, y[cut], "geographic")
        for cut in (slice(0, None, 2), slice(1, None, 2))
    )
    bound = ThresholdPredicate(DIMENSIONS["geodesic"], 1_000.0, "<=")
    assert changes(bound, a, b) == flow(RangeRing(), bound, a, b).changes == flow(ParallelLine(), bound, a, b).changes
    assert len(changes(bound, a, b)) > 20
