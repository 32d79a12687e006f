"""Which of many points lie near each other: a grid whose cells are no smaller than the distance asked for.

Geographic points are put into cells in space, by their unit vectors, so that neither the antimeridian nor the poles are
anything special. What is given is every pair that is near, and perhaps some that are a little farther.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import numpy as np
import numpy.typing as npt

from nearcast.geo.distance import surely_beyond
from nearcast.model.integers import runs
from nearcast.relations.reports import GEOGRAPHIC, PLANAR, Column, Integers

Floats = npt.NDArray[np.float64]

LARGEST = 2.0**20
"""Cells are counted to here from the middle; what lies beyond shares the last one."""

FINEST = {PLANAR: 1.0, GEOGRAPHIC: 1e-6}
"""The least width of a cell: metres, or the unit sphere's chord under some six metres."""

BLOCK = 2_000_000
"""Pairs that are looked at together."""


def near_pairs(
    kind: int, points: Floats, of: Integers, among: Integers, metres: float
) -> Iterator[tuple[Integers, Integers]]:
    """Pairs of a point of `of` and one of `among` that may be within so many metres, in blocks.

    `points` has shape (n, 2) in metres where `kind` is planar, else (n, 3), unit vectors; `of` and `among` are numbers
    of points, without repetition each.
    """
    if not len(of) or not len(among):
        return
    limit = surely_beyond(metres) if kind == GEOGRAPHIC else metres * metres
    width = max(math.sqrt(max(limit, 0.0)) * (1 + 1e-9), FINEST[kind])
    # So near the middle a quotient is rounded by less than the width has to spare: none skips a cell.
    cells = np.clip(np.floor(points / width), -LARGEST, LARGEST).astype(np.int64)
    keys = _keys(cells[among])
    order = np.argsort(keys, kind="stable")
    keys, sorted_among = keys[order], among[order]
    for offset in product((-1, 0, 1), repeat=points.shape[1]):
        wanted = _keys(cells[of] + np.array(offset))
        start, stop = np.searchsorted(keys, wanted, "left"), np.searchsorted(keys, wanted, "right")
        for left, right in _expanded(start, stop):
            a, b = of[left], sorted_among[right]
            apart = ((points[a] - points[b]) ** 2).sum(axis=1)
            # A little room for planar rounding: who is near is decided elsewhere.
            near = apart <= limit * (1 + 1e-9) + (1e-300 if kind == PLANAR else 0.0)
            yield a[near], b[near]


def _keys(cells: Integers) -> Integers:
    """One number for each cell: three counts of 21 bits."""
    key = cells[:, 0]
    for column in range(1, cells.shape[1]):
        # Two cells that are far apart may have one number: their points are too far apart as well.
        key = (key << 21) ^ (cells[:, column] & 0x1FFFFF)
    return key


def _expanded(start: Integers, stop: Integers) -> Iterator[tuple[Integers, Integers]]:
    """(index, number) for all numbers from `start` to `stop` of each index, in blocks."""
    counts = stop - start
    chosen = np.flatnonzero(counts)
    ends = np.cumsum(counts[chosen])
    first = 0
    while first < len(chosen):
        done = ends[first - 1] if first else 0
        last = max(int(np.searchsorted(ends, done + BLOCK, "right")), first + 1)
        part = chosen[first:last]
        yield np.repeat(part, counts[part]), runs(start[part], counts[part])
        first = last


def grid_points(kind: int, columns: dict[str, Column]) -> Floats:
    """Points as `near_pairs` wants them."""
    names = ("x", "y") if kind == PLANAR else ("u", "v", "w")
    return np.stack([columns[name] for name in names], axis=1).astype(np.float64)
