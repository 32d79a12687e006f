"""What comparing geometries takes, counted before it is done: a few corners may take GEOS minutes (semantics §12).

The unit is about what it takes to see that the boxes of two edges do not meet. What is counted rests on the coordinates
alone, on no clock and on nothing that was kept, so every process that decides an event again comes to the same end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import shapely

from nearcast.geo.distance import Floats
from nearcast.model.arrays import Integers, runs

Shapes = npt.NDArray[np.object_]

CORNER = 10
"""Units of a corner that is read and prepared, and of one that distances are measured from."""

COMPARED = 2
"""Units of a corner of a geometry that is compared with another."""

PAIR = 40
"""Units of two edges of different geometries, or of a line with itself, whose boxes meet: they may cross there."""

MENDING = 1_500
"""Units of two edges of one geometry that may cross where a geometry is mended."""

RATHER_EXACT = 1_000_000
"""Pairs of edges, side by side along one axis, up to which they are looked at one by one."""

CHUNK = 500_000
"""Pairs that are looked at together."""


@dataclass(frozen=True, slots=True)
class EdgeBoxes:
    """The boxes of a geometry's edges and points: least and greatest coordinates, shape (n, 2) each."""

    low: Floats
    high: Floats

    def __len__(self) -> int:
        return len(self.low)

    def near(self, other: EdgeBoxes) -> EdgeBoxes:
        """Those that meet the box around another geometry's."""
        if not len(self) or not len(other):
            return self
        low, high = other.low.min(axis=0), other.high.max(axis=0)
        there = ((self.low <= high) & (self.high >= low)).all(axis=1)
        return self if there.all() else EdgeBoxes(self.low[there], self.high[there])


def edge_boxes(shape: shapely.Geometry | Shapes) -> EdgeBoxes:
    """The boxes of all edges of lines and rings, and of points, of a geometry or of several."""
    parts = simple_parts(shape)
    kinds = shapely.get_type_id(parts)
    lines = np.concatenate([shapely.get_rings(parts[kinds == 3]), parts[(kinds == 1) | (kinds == 2)]])
    corners, line = shapely.get_coordinates(lines, return_index=True)
    first = np.flatnonzero(line[1:] == line[:-1])
    points = shapely.get_coordinates(parts[kinds == 0])
    a, b = corners[first], corners[first + 1]
    return EdgeBoxes(np.concatenate([np.minimum(a, b), points]), np.concatenate([np.maximum(a, b), points]))


def simple_parts(shape: shapely.Geometry | Shapes) -> Shapes:
    """The points, lines and polygons of a geometry, out of collections too."""
    parts = members(shape)
    return shapely.get_parts(parts) if len(parts) else parts


def members(shape: shapely.Geometry | Shapes) -> Shapes:
    """What collections have in them, also those within each other; a geometry that is no collection is itself."""
    parts = np.atleast_1d(np.asarray(shape, dtype=object))
    while (nested := shapely.get_type_id(parts) == 7).any():
        parts = np.concatenate([parts[~nested], shapely.get_parts(parts[nested])])
    return parts


def meeting(a: EdgeBoxes, b: EdgeBoxes, enough: int) -> int:
    """How many pairs of boxes, one of each, meet; or more, where that is no more than `enough`, or very many."""
    a, b = a.near(b), b.near(a)
    if len(a) * len(b) <= enough:
        return len(a) * len(b)
    beside = [_beside(a, b, axis) for axis in (0, 1)]
    axis = int(beside[1] < beside[0])
    if beside[axis] <= enough or beside[axis] > RATHER_EXACT:
        return beside[axis]
    return sum(_both(a, b, axis)) + sum(_both(b, a, axis, strictly=True))


def _beside(a: EdgeBoxes, b: EdgeBoxes, axis: int) -> int:
    """How many pairs overlap along one axis."""
    begun = np.searchsorted(np.sort(b.low[:, axis]), a.high[:, axis], "right")
    ended = np.searchsorted(np.sort(b.high[:, axis]), a.low[:, axis], "left")
    return int((begun - ended).sum())


def _both(
    a: EdgeBoxes, b: EdgeBoxes, axis: int, strictly: bool = False, whose: Integers | None = None
) -> Iterator[int]:
    """How many pairs meet where that of `b` begins within that of `a` along an axis; `strictly`: behind its begin.

    With `whose` only pairs of different owners count.
    """
    order = np.argsort(b.low[:, axis], kind="stable")
    low, high = b.low[order], b.high[order]
    first = np.searchsorted(low[:, axis], a.low[:, axis], "right" if strictly else "left")
    count = np.maximum(np.searchsorted(low[:, axis], a.high[:, axis], "right") - first, 0)
    other = 1 - axis
    for rows in _chunks(count):
        left, right = np.repeat(rows, count[rows]), runs(first[rows], count[rows])
        meet = (a.low[left, other] <= high[right, other]) & (a.high[left, other] >= low[right, other])
        if whose is not None:
            meet &= whose[left] != whose[order[right]]
        yield int(np.count_nonzero(meet))


def _chunks(count: Integers) -> Iterator[Integers]:
    """Rows whose counts together are about as many as are looked at together."""
    ends = np.cumsum(count)
    cuts = np.searchsorted(ends, np.arange(CHUNK, int(ends[-1]) if len(ends) else 0, CHUNK), "right")
    yield from np.split(np.arange(len(count)), np.unique(cuts))


def crossing(edges: EdgeBoxes) -> int:
    """How many pairs of a geometry's own edges may cross, beside neighbours; or more, if very many."""
    ordered = meeting(edges, edges, 0)
    # Each meets itself, the one before it and the one behind it.
    return max(0, ordered - 3 * len(edges)) // 2


def overlapping(parts: Shapes) -> int:
    """How many pairs of edges of different parts may cross; or more, if very many lie beside each other."""
    each = [edge_boxes(part) for part in parts]
    edges = EdgeBoxes(np.concatenate([one.low for one in each]), np.concatenate([one.high for one in each]))
    beside = [_beside(edges, edges, axis) for axis in (0, 1)]
    axis = int(beside[1] < beside[0])
    if beside[axis] > RATHER_EXACT:
        return beside[axis]
    whose = np.repeat(np.arange(len(each)), [len(one) for one in each])
    # A pair is there both ways.
    return sum(sum(_both(edges, edges, axis, strictly, whose)) for strictly in (False, True)) // 2
