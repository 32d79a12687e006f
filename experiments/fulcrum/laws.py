"""The two laws by which the paper foretells what rings cost, measured on walkers on a line."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from experiments.fulcrum.engine import Floats, Track, flow
from nearcast.suppression.strategies.builtin import RangeRing
from nearcast.suppression.strategies.dimensions import DIMENSIONS
from nearcast.suppression.strategies.seam import ThresholdPredicate

METRES = 10.0
"""D of the laws' walkers."""


@dataclass(frozen=True, slots=True)
class Law:
    """One case: `apart` metres at first, `per_metre` reports; ring events as foretold and as counted."""

    law: str
    apart: float
    per_metre: float
    foretold: float
    counted: float


def laws() -> Iterator[Law]:
    """Both laws at several distances and two rates of reports."""
    for apart in (110.0, 1_010.0, 10_010.0):
        for per_metre in (1.0, 10.0):
            yield head_on(apart, per_metre)
    for apart in (20.0, 60.0, 210.0):
        for per_metre in (1.0, 10.0):
            yield side_by_side(apart, per_metre)


def head_on(apart: float, per_metre: float) -> Law:
    """One walks straight at the other, who stands: log2(2(S - D)) ring events before they are near."""
    steps = np.arange(0, (apart - METRES) * per_metre + 2) / per_metre
    walker = _track(steps, np.zeros(len(steps)), first=1, stride=1)
    stander = _track(np.array([apart]), np.zeros(1), first=0, stride=1)
    found = flow(RangeRing(), ThresholdPredicate(DIMENSIONS["planar"], METRES), stander, walker)
    # Each has to say once where it is before there are rings; that both are near is another event.
    return Law("head-on", apart, per_metre, math.log2(2 * (apart - METRES)), found.facts - 2 - len(found.changes))


def side_by_side(apart: float, per_metre: float, metres: float = 20_000.0) -> Law:
    """Both walk abreast: 2V / (S - D) ring events a second, here for each metre that they walk."""
    steps = np.arange(0, metres * per_metre) / per_metre
    one, other = (_track(steps, np.full(len(steps), y), first, stride=2) for first, y in ((0, 0.0), (1, apart)))
    found = flow(RangeRing(), ThresholdPredicate(DIMENSIONS["planar"], METRES), one, other)
    return Law("side by side", apart, per_metre, 2 / (apart - METRES), found.facts / metres)


def _track(x: Floats, y: Floats, first: int, stride: int) -> Track:
    orders = first + stride * np.arange(len(x))
    return Track(orders, orders.astype(np.float64), x, y)
