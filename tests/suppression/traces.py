"""Traces of reports for strategies: random walks that jump, stop, repeat, go and come back, in every dimension."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from nearcast.model.event import Place
from nearcast.suppression.strategies.builtin import (
    CommonNode,
    ParallelLine,
    RangeRing,
    SharedRing,
    SpeedBound,
    Subscriber,
)
from nearcast.suppression.strategies.dimensions import DIMENSIONS, Money
from nearcast.suppression.strategies.guards import TakenReport
from nearcast.suppression.strategies.seam import SideName, Strategy, ThresholdPredicate
from nearcast.testing.strategy_trials import Trace

START = datetime(2022, 1, 3, tzinfo=UTC)

STRATEGIES: tuple[Strategy, ...] = (
    Subscriber(),
    CommonNode(),
    RangeRing(),
    RangeRing(0.9),
    ParallelLine(),
    ParallelLine(0.2),
    SpeedBound(speed=2.0),
    SpeedBound(a=0.0, b=3.0),
    SharedRing(),
)

whole = st.integers(-30, 30).map(float)
smooth = st.floats(-30, 30)
line = st.one_of(whole, smooth)
"""Whole numbers meet limits exactly, and each other."""

planar = st.builds(lambda x, y, z: Place("planar", x, y, z), line, line, st.sampled_from([None, None, None, 0.0, 5.0]))

lon = st.one_of(st.floats(-180, 180), st.floats(179.9, 180), st.floats(-180, -179.9), st.sampled_from([-180.0, 180.0]))
lat = st.one_of(st.floats(-90, 90), st.floats(-0.1, 0.1), st.floats(89.9, 90))
geographic = st.builds(lambda x, y: Place("geographic", x, y), lon, lat)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "planar": planar,
    "places": st.one_of(geographic, planar),
    "geodesic": st.one_of(geographic, st.just(Place("planar", 0.0, 0.0))),
    "numeric": st.one_of(line, st.integers(-30, 30), st.sampled_from([float("nan"), float("inf"), 2**60, 2**60 + 1])),
    "temporal": line.map(lambda seconds: START + timedelta(seconds=seconds)),
    "monetary": st.builds(
        Money, st.decimals(-30, 30, places=2).map(Decimal), st.sampled_from(["EUR", "EUR", "EUR", "CHF"])
    ),
    "ratio": st.one_of(st.floats(1e-3, 1e3), st.integers(1, 30), st.just(0)),
}

VALUES["signed difference"] = VALUES["numeric"]

limits = {
    "geodesic": st.sampled_from([0.0, 100.0, 11_000.0, 2_000_000.0]),
    "ratio": st.one_of(st.sampled_from([0.0, 1.0, 2.0]), st.floats(0.1, 10)),
}
number = st.one_of(st.sampled_from([-1.0, 0.0, 1.0, 5.0, 10.0]), st.floats(0, 40))


@st.composite
def bounds(draw: st.DrawFn, dimension: str) -> ThresholdPredicate:
    """A predicate in a dimension: D = 0 too, with and without a margin."""
    limit = draw(limits.get(dimension, number))
    margin = draw(st.sampled_from([0.0, 0.0, 0.5, 3.0]))
    return ThresholdPredicate(DIMENSIONS[dimension], limit, draw(st.sampled_from(["<", "<=", ">", ">="])), margin)


@st.composite
def traces(draw: st.DrawFn, dimension: str, most: int = 30) -> Trace:
    """Reports of both sides. Values come from a few, so that subjects stay, come back and meet; times are not in order.

    Some reports say that the subject is gone.
    """
    values = draw(st.lists(VALUES[dimension], min_size=2, max_size=8))
    if dimension in ("planar", "geodesic", "numeric", "signed difference"):
        values += [moved for value in values for moved in _near(value)]
    one = st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([*values, *values, None]), st.floats(0, 100))
    return [
        (side, TakenReport(order, value, at))
        for order, (side, value, at) in enumerate(draw(st.lists(one, max_size=most)))
    ]


def _near(value: Any) -> Iterator[Any]:
    """Values a little aside: without, random ones would hardly ever be within one ring."""
    for step in (0.01, -0.5):
        if isinstance(value, Place):
            yield Place(value.coordinates, min(value.x + step / 10, 180.0), value.y, value.z)
        else:
            yield value + step


def late(draw: st.DrawFn) -> Iterator[tuple[int, ...]]:
    """Delays of messages without end, drawn as they are asked for: none, some, far overtaken, and repeated."""
    times = st.integers(0, 12)
    while True:
        yield tuple(draw(st.lists(times, min_size=1, max_size=2)))


def walk(chance: Any, steps: int, spread: float, side: SideName | None = None) -> Trace:
    """A long trace of two planar walkers that stand, walk and sometimes jump, from a `random.Random`."""
    places = {"a": [0.0, 0.0], "b": [spread, 0.0]}
    trace: list[tuple[SideName, TakenReport]] = []
    for order in range(steps):
        who: SideName = side or chance.choice("ab")
        if chance.random() < 0.7:
            places[who] = [at + chance.gauss(0, 3) for at in places[who]]
        if chance.random() < 0.01:
            places[who] = [chance.uniform(-spread, spread), chance.uniform(-spread, spread)]
        trace.append((who, TakenReport(order, Place("planar", *places[who]), float(order))))
    return trace
