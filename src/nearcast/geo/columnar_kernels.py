"""The grid of the columnar index, compiled: points are put into cells, and probes look into those around them.

A cell is at least as wide as what is searched around a probe, so a search looks into two cells along each axis. Cells
are found by a hash: empty space costs nothing, however wide it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nearcast.model.arrays import Floats, Integers
from nearcast.runtime.jit_cache import compiled

FURTHEST = 2.0**60
"""Numbers of cells end here: what lies beyond is all in the last one, where it is as near as it was."""

BITS = 21
SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""Fibonacci hashing: 2^64 divided by the golden ratio."""


@compiled
def _number(coordinate: float, cell: float) -> int:
    """The number of the cell along one axis."""
    return int(np.floor(min(max(coordinate / cell, -FURTHEST), FURTHEST)))


@compiled
def _key(a: int, b: int, c: int) -> int:
    """Cells far apart may have one key: their points are dropped by their distance."""
    mask = (1 << BITS) - 1
    return (a & mask) << (2 * BITS) | (b & mask) << BITS | (c & mask)


@compiled
def _bucket(key: int, shift: int) -> int:
    return np.int64(np.uint64(key) * SPREAD >> np.uint64(shift))  # type: ignore[return-value]


@compiled
def fill_grid(vectors: Floats, grid: Any, own: Integers) -> None:
    """A counting sort of the points by bucket; `own` has room for each point's cell."""
    start, cell = grid.start, grid.cell
    for point in range(len(vectors)):
        x, y, z = vectors[point, 0], vectors[point, 1], vectors[point, 2]
        own[point] = _key(_number(x, cell), _number(y, cell), _number(z, cell))
        start[_bucket(own[point], grid.shift) + 1] += 1
    for bucket in range(len(start) - 1):
        start[bucket + 1] += start[bucket]
    for point in range(len(vectors) - 1, -1, -1):
        bucket = _bucket(own[point], grid.shift) + 1
        # From the back: each count moves down to where its bucket begins, which is where the one before ends.
        start[bucket] -= 1
        grid.order[start[bucket]] = point
        grid.keys[start[bucket]] = own[point]
    for bucket in range(len(start) - 1):
        start[bucket] = start[bucket + 1]
    start[len(start) - 1] = len(vectors)


@compiled
def search_grid(
    first: int, probes: Any, reach: Floats, limits: Floats, points: Any, grid: Any, room: Any
) -> tuple[int, int]:
    """Pairs of the probes from `first` on; returns the first that found too little room, and how many there are."""
    at, cell = 0, grid.cell
    for probe in range(first, len(reach)):
        if at + len(points.since) > len(room.probe):
            return probe, at
        x, y, z = probes.vectors[probe, 0], probes.vectors[probe, 1], probes.vectors[probe, 2]
        since, through, limit, far = probes.since[probe], probes.through[probe], limits[probe], reach[probe]
        for a in range(_number(x - far, cell), _number(x + far, cell) + 1):
            for b in range(_number(y - far, cell), _number(y + far, cell) + 1):
                for c in range(_number(z - far, cell), _number(z + far, cell) + 1):
                    key = _key(a, b, c)
                    bucket = _bucket(key, grid.shift)
                    for index in range(grid.start[bucket], grid.start[bucket + 1]):
                        point = grid.order[index]
                        if grid.keys[index] != key:
                            continue
                        if points.since[point] >= through or since >= points.through[point]:
                            continue
                        dx = x - points.vectors[point, 0]
                        dy = y - points.vectors[point, 1]
                        dz = z - points.vectors[point, 2]
                        square = dx * dx + dy * dy + dz * dz
                        if square <= limit:
                            room.probe[at] = probe
                            room.point[at] = point
                            room.square[at] = square
                            at += 1
    return len(reach), at
