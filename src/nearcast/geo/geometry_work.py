"""What comparing geometries takes, counted before it is done: a few corners may take GEOS minutes (semantics §12).

The unit is about what it takes to see that the boxes of two edges do not meet. What is counted rests on the coordinates
alone, on no clock and on nothing that was kept, so every process that decides an event again comes to the same end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import shapely

from nearcast.geo.distance import Floats
from nearcast.model.arrays import Integers, runs

Shapes = npt.NDArray[np.object_]

CORNER = 10
"""Units of a corner that is read and prepared, and of one that distances are measured from."""

COMPARED = 2
"""Corners of geometries that are compared for one unit."""

BOTH = 1_500
"""Units of comparing two geometries of which none is a point, beside what rests on their corners."""

PAIR = 40
"""Units of two edges of different geometries, or of a line with itself, whose boxes meet: they may cross there."""

MENDING = 1_500
"""Units of two edges of one geometry that may cross where a geometry is mended."""

RATHER_EXACT = 1_000_000
"""Pairs of edges, side by side along one axis, up to which they are looked at one by one."""

EACH = 20_000
"""Pairs of edges that are looked at without putting any in order."""

CHUNK = 500_000
"""Pairs that are looked at together."""


@dataclass(frozen=True)
class EdgeBoxes:
    """The boxes of a geometry's edges and points: rows of least x, least y, greatest x, greatest y, shape (4, n)."""

    columns: Floats

    def __len__(self) -> int:
        return self.columns.shape[1]

    @cached_property
    def bounds(self) -> tuple[float, ...]:
        """The box around all of them."""
        west, south, east, north = self.columns
        return float(west.min()), float(south.min()), float(east.max()), float(north.max())

    def near(self, other: EdgeBoxes) -> EdgeBoxes:
        """Those that meet the box around another geometry's."""
        if not len(self) or not len(other):
            return self
        (west, south, east, north), (left, low, right, high) = self.columns, other.bounds
        rows = np.flatnonzero((west <= right) & (east >= left) & (south <= high) & (north >= low))
        return self if len(rows) == len(self) else EdgeBoxes(self.columns[:, rows])

    def along(self, axis: int) -> tuple[Floats, Floats]:
        """Where each begins and ends along an axis."""
        return self.columns[axis], self.columns[axis + 2]


def edge_boxes(shape: shapely.Geometry | Shapes) -> EdgeBoxes:
    """The boxes of all edges of lines and rings, and of points, of a geometry or of several."""
    parts = simple_parts(shape)
    kinds = shapely.get_type_id(parts)
    lines = np.concatenate([shapely.get_rings(parts[kinds == 3]), parts[(kinds == 1) | (kinds == 2)]])
    return _edges(lines, parts[kinds == 0])[0]


def _edges(lines: Shapes, points: Shapes) -> tuple[EdgeBoxes, Integers]:
    """The boxes of the edges of lines, and of points; and of each edge which line it is of."""
    corners, line = shapely.get_coordinates(lines, return_index=True)
    first = np.flatnonzero(line[1:] == line[:-1])
    a, b, alone = corners[first], corners[first + 1], shapely.get_coordinates(points)
    low, high = np.concatenate([np.minimum(a, b), alone]), np.concatenate([np.maximum(a, b), alone])
    return EdgeBoxes(np.ascontiguousarray(np.concatenate([low, high], axis=1).T)), line[first]


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
    if len(a) * len(b) <= EACH:
        return _each(a, b)
    beside = [_beside(a, b, axis) for axis in (0, 1)]
    axis = int(beside[1] < beside[0])
    if beside[axis] <= enough or beside[axis] > RATHER_EXACT:
        return beside[axis]
    return sum(_both(a, b, axis)) + sum(_both(b, a, axis, strictly=True))


def _each(a: EdgeBoxes, b: EdgeBoxes) -> int:
    """How many pairs of boxes meet, each looked at."""
    west, south, east, north = a.columns[:, :, None]
    left, low, right, high = b.columns
    meet = west <= right
    for more in (east >= left, south <= high, north >= low):
        meet &= more
    return int(np.count_nonzero(meet))


def _beside(a: EdgeBoxes, b: EdgeBoxes, axis: int) -> int:
    """How many pairs overlap along one axis."""
    (begin, end), (low, high) = a.along(axis), b.along(axis)
    begun = np.searchsorted(np.sort(low), end, "right")
    ended = np.searchsorted(np.sort(high), begin, "left")
    return int((begun - ended).sum())


def _both(
    a: EdgeBoxes, b: EdgeBoxes, axis: int, strictly: bool = False, whose: Integers | None = None
) -> Iterator[int]:
    """How many pairs meet where that of `b` begins within that of `a` along an axis; `strictly`: behind its begin.

    With `whose` only pairs of different owners count.
    """
    (begin, end), (low, high) = a.along(axis), a.along(1 - axis)
    order = np.argsort(b.along(axis)[0], kind="stable")
    begins, (lows, highs) = b.along(axis)[0][order], (one[order] for one in b.along(1 - axis))
    first = np.searchsorted(begins, begin, "right" if strictly else "left")
    count = np.maximum(np.searchsorted(begins, end, "right") - first, 0)
    for rows in _chunks(count):
        left, right = np.repeat(rows, count[rows]), runs(first[rows], count[rows])
        meet = (low[left] <= highs[right]) & (high[left] >= lows[right])
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
    """How many pairs of edges of different polygons may cross; or more, if very many lie beside each other."""
    simple, part = shapely.get_parts(parts, return_index=True)
    rings, of = shapely.get_rings(simple, return_index=True)
    edges, ring = _edges(rings, np.array([], object))
    whose = part[of][ring]
    beside = [_beside(edges, edges, axis) for axis in (0, 1)]
    axis = int(beside[1] < beside[0])
    if beside[axis] > RATHER_EXACT:
        return beside[axis]
    # A pair is there both ways.
    return sum(sum(_both(edges, edges, axis, strictly, whose)) for strictly in (False, True)) // 2
