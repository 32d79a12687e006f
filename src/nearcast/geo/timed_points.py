"""Points that are somewhere for a while, and the pairs of them that are found near each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Short = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


class TimedPoints(NamedTuple):
    """Points, shape (n, 3), each there for the positions after `since` up to `through`."""

    vectors: Floats
    since: Integers
    through: Integers

    def select(self, which: Integers) -> TimedPoints:
        """The points of these numbers."""
        return TimedPoints(self.vectors[which], self.since[which], self.through[which])


class NearPairs(NamedTuple):
    """Pairs side by side: which probe, which point, and the square of their distance."""

    probe: Short
    point: Short
    square: Floats
