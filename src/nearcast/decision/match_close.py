"""Points near other points, each there for a while: all pairs at once where they are few, else by a grid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Short = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

FEW = 1 << 16
"""Pairs up to which all are looked at: a grid takes longer, and has to be compiled."""


class Located(NamedTuple):
    """Points, shape (n, 3), each there for the positions after `since` up to `through`."""

    vectors: Floats
    since: Integers
    through: Integers

    def take(self, which: Integers) -> Located:
        """The points of these numbers."""
        return Located(self.vectors[which], self.since[which], self.through[which])


class Found(NamedTuple):
    """Pairs side by side: which probe, which point, and the square of their distance."""

    probe: Short
    point: Short
    square: Floats


def close(probes: Located, reach: Floats, limits: Floats, points: Located) -> Iterator[Found]:
    """Every pair of a probe and a point that are there at one time, with a square of at most the probe's limit.

    `reach` of a probe is what no coordinate of such a point is farther away. Pairs come part by part.
    """
    size = len(reach) * len(points.since)
    if size > FEW:
        # Compiled code takes a second to import, and few need it.
        from nearcast.decision.match_grid import neighbours

        yield from neighbours(probes, reach, limits, points)
    elif size:
        with np.errstate(over="ignore"):
            squares = np.square(probes.vectors[:, None] - points.vectors).sum(axis=2)
        there = (probes.since[:, None] < points.through) & (points.since < probes.through[:, None])
        probe, point = np.nonzero((squares <= limits[:, None]) & there)
        yield Found(probe.astype(np.int32), point.astype(np.int32), squares[probe, point])
