"""The columnar index: all pairs of two sets of points that are near each other, arrays in and arrays out.

Points are vectors in space, so there is no seam at the antimeridian, and no trouble at the poles: on the globe of the
unit sphere, with chords as distances; on the plane their third coordinate is 0. Heights are left out: they only add to
a distance. Each point may be there for a while only. All pairs are looked at where they are few, else those of a grid.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from nearcast.geo.distance import surely_beyond, unit_vectors
from nearcast.model.arrays import Floats, Int32s, Integers
from nearcast.model.event import Place

FEW = 1 << 16
"""Pairs up to which all are looked at: a grid takes longer, and has to be compiled."""

PAD = 1e-9
"""Relative room for rounding in what is searched around a point."""

SMALLEST, LARGEST = 2.0**-20, 2.0**1000
"""Bounds of a cell's width: finer cells of the unit sphere would not fit into a key."""

ROOM = 1 << 18
"""Pairs that are handed out together, or as many as one probe finds."""


class TimedPoints(NamedTuple):
    """Points, shape (n, 3), each there for the positions after `since` up to `through`."""

    vectors: Floats
    since: Integers
    through: Integers

    def take(self, which: Integers) -> TimedPoints:
        """The points of these numbers."""
        return TimedPoints(self.vectors[which], self.since[which], self.through[which])


class NearPairs(NamedTuple):
    """Pairs side by side: which probe, which point, and the square of their distance."""

    probe: Int32s
    point: Int32s
    square: Floats


def always_there(vectors: Floats) -> TimedPoints:
    """Points, shape (n, 3), that are there all the time."""
    return TimedPoints(vectors, np.zeros(len(vectors), np.int64), np.ones(len(vectors), np.int64))


def square_limit(metres: float, geographic: bool) -> float:
    """What the square of the distance of two points, as vectors, does not exceed if they are within so many metres."""
    if geographic:
        return surely_beyond(metres)
    wide = max(metres, 0.0) * (1 + PAD)
    return wide * wide


def may_be_within(a: Place | None, b: Place | None, metres: float) -> bool:
    """Whether two places may be within so many metres, as `near_pairs` finds them."""
    if a is None or b is None or a.coordinates != b.coordinates:
        return False
    globe = a.coordinates == "geographic"
    both = np.array([[one.x, one.y] for one in (a, b)])
    one, other = unit_vectors(*both.T) if globe else both
    return bool(np.square(one - other).sum() <= square_limit(metres, globe))


class _Grid(NamedTuple):
    """Points by cell: those of bucket b are `order[start[b]]` … `order[start[b + 1] − 1]`, `keys` their cells."""

    cell: float
    shift: int
    start: Integers
    order: Int32s
    keys: Integers


def near_pairs(probes: TimedPoints, limits: Floats, points: TimedPoints) -> Iterator[NearPairs]:
    """Every pair of a probe and a point that are there at one time, with a square of at most the probe's limit.

    Pairs come part by part, in any order.
    """
    size = len(limits) * len(points.since)
    if size > FEW:
        yield from grid_pairs(probes, limits, points)
    elif size:
        with np.errstate(over="ignore"):
            squares = np.square(probes.vectors[:, None] - points.vectors).sum(axis=2)
        there = (probes.since[:, None] < points.through) & (points.since < probes.through[:, None])
        probe, point = np.nonzero((squares <= limits[:, None]) & there)
        yield NearPairs(probe.astype(np.int32), point.astype(np.int32), squares[probe, point])


def grid_pairs(probes: TimedPoints, limits: Floats, points: TimedPoints) -> Iterator[NearPairs]:
    """The same by a grid in compiled code, however few there are."""
    # What no coordinate of a point within the limit is farther away.
    reach = np.sqrt(limits) * (1 + PAD) + 1e-15 * np.abs(probes.vectors).max(axis=1, initial=1e-100)
    exponents = np.ceil(np.log2(np.clip(2.0 * reach, SMALLEST, LARGEST))).astype(np.int64)
    for exponent in np.unique(exponents).tolist():
        which = np.flatnonzero(exponents == exponent)
        own = probes if len(which) == len(reach) else probes.take(which)
        for found in _searched(own, np.minimum(reach[which], LARGEST), limits[which], points, 2.0**exponent):
            yield found._replace(probe=which[found.probe].astype(np.int32))


def _searched(
    probes: TimedPoints, reach: Floats, limits: Floats, points: TimedPoints, cell: float
) -> Iterator[NearPairs]:
    # Compiled code takes a second to import, and few need it.
    from nearcast.geo.columnar_kernels import fill_grid, search_grid

    count = len(points.since)
    bits = max(4, (2 * count).bit_length())
    order, keys = np.empty(count, np.int32), np.empty(count, np.int64)
    grid = _Grid(cell, 64 - bits, np.zeros((1 << bits) + 1, np.int64), order, keys)
    fill_grid(points.vectors, grid, np.empty(count, np.int64))
    size, done = max(ROOM, count), 0
    while done < len(reach):
        room = NearPairs(np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.float64))
        done, found = search_grid(done, probes, reach, limits, points, grid, room)
        yield NearPairs(room.probe[:found], room.point[:found], room.square[:found])
