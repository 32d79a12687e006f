"""Points near other points, each there for a while: all pairs at once where they are few, else by a grid."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nearcast.geo.timed_points import Floats, NearPairs, TimedPoints

FEW = 1 << 16
"""Pairs up to which all are looked at: a grid takes longer, and has to be compiled."""


def close(probes: TimedPoints, reach: Floats, limits: Floats, points: TimedPoints) -> Iterator[NearPairs]:
    """Every pair of a probe and a point that are there at one time, with a square of at most the probe's limit.

    `reach` of a probe is what no coordinate of such a point is farther away. Pairs come part by part.
    """
    size = len(reach) * len(points.since)
    if size > FEW:
        # Compiled code takes a second to import, and few need it.
        from nearcast.geo.near_points_grid import neighbours

        yield from neighbours(probes, reach, limits, points)
    elif size:
        with np.errstate(over="ignore"):
            squares = np.square(probes.vectors[:, None] - points.vectors).sum(axis=2)
        there = (probes.since[:, None] < points.through) & (points.since < probes.through[:, None])
        probe, point = np.nonzero((squares <= limits[:, None]) & there)
        yield NearPairs(probe.astype(np.int32), point.astype(np.int32), squares[probe, point])
