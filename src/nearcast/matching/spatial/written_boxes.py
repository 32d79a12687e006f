"""The boxes of geometries that are written in predicates: where none of some points is in one, nothing is compared.

Areas are mostly elsewhere: of a thousand predicates that hold areas against few points, most are decided by one look
at all boxes together, which takes no longer than to compare with two or three of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nearcast.geo.distance import Floats
from nearcast.model.arrays import Flags


class WrittenBoxes:
    """The boxes of so many predicates, shape (predicates, 4): west, south, east, north; NaN where a box says nothing.

    Points outside of a box are apart from what is written, so a predicate that has a box is FALSE for them.
    """

    def __init__(self, boxes: Sequence[tuple[float, float, float, float] | None]) -> None:
        nothing = (np.nan, np.nan, np.nan, np.nan)
        self._boxes = np.array([nothing if box is None else box for box in boxes], np.float64).reshape(-1, 4)
        self._there = ~np.isnan(self._boxes).any(axis=1)

    def apart(self, x: Floats, y: Floats) -> Flags:
        """Of which predicates no point is in the box; not of those that have none."""
        west, south, east, north = (side[:, None] for side in self._boxes.T)
        inside = (x >= west) & (x <= east) & (y >= south) & (y <= north)
        return np.logical_and(self._there, ~inside.any(axis=1))
