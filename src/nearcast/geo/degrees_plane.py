"""Whether geometries in degrees are surely within some metres of each other, or surely are not, seen in a plane.

Edges are straight in longitude and latitude (RFC 7946, 3.1.1), so they stay straight where longitudes are scaled, and
GEOS finds the least distance of thousands of edges at once. For two points that are an angle σ apart

    sin²(σ/2) = sin²(Δφ/2) + cos φ₁ cos φ₂ sin²(Δλ/2)

With the least cosine of the latitudes at which two points may be near each other as scale, the distance D in the plane,
in radians, is at most σ / k, where k = sin(x)/x of the greatest half angle x; with the greatest cosine sin(σ/2) ≤ D/2.
On the ellipsoid σ is between the bounds of `geo.distance`. What lies between both, a hundredth for small geometries, is
left to geodesics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
import shapely

from nearcast.geo.distance import LONGEST, SHORTEST, SLACK, Floats

FARTHEST = 0.05
"""Radians up to which a plane is near enough to the globe to be worth it: some 300 km."""

TURNED = 0.5
"""The sine of half a difference in longitude up to which it is: not near a pole."""

POLE = 0.01
"""The least cosine of a latitude: at a pole all longitudes are one place."""

TINY = 1e-13
"""Radians of room for rounding in degrees and their differences: less than a micrometre."""


def within_in_plane(a: shapely.Geometry, b: shapely.Geometry, metres: float) -> bool | None:
    """Whether some point of `a` is at most so many metres from some point of `b`, both in degrees; None where the plane
    does not tell. Neither is empty.
    """
    angle = max(metres, 0.0) / SHORTEST
    bounds = np.radians(shapely.bounds([a, b]))
    if np.abs(bounds).max() > math.pi or np.abs(bounds[:, [1, 3]]).max() > math.pi / 2:
        return None
    low, high = float(bounds[:, 1].max()) - angle, float(bounds[:, 3].min()) + angle
    if low > high + TINY:
        return False
    least, greatest = _cosines(low, high)
    if angle > FARTHEST or least < POLE or math.sin(angle / 2) > TURNED * least:
        return None
    widest = math.asin(math.sin(angle / 2) / least)
    outer = (angle * widest / math.sin(widest) if widest else 0.0) * (1 + SLACK) + TINY
    if not any(_reach(a, b, least, outer)):
        return False
    inner = 2 * math.sin(metres / LONGEST / 2) * (1 - SLACK) - TINY
    return True if inner > 0 and any(_reach(a, b, greatest, inner)) else None


def _cosines(low: float, high: float) -> tuple[float, float]:
    """The least and the greatest cosine of latitudes, in radians."""
    ends = math.cos(max(low, -math.pi / 2)), math.cos(min(high, math.pi / 2))
    return max(min(ends), 1e-9), 1.0 if low <= 0 <= high else max(ends)


def _reach(a: shapely.Geometry, b: shapely.Geometry, scale: float, limit: float) -> Iterator[bool]:
    """Whether some points are so near in the plane, in radians: as they are, and with one a turn farther."""
    mine = shapely.transform(a, partial(_planar, scale, 0.0))
    shapely.prepare(mine)
    west, _, east, _ = shapely.bounds(mine).tolist()
    for turn in (0.0, 2 * math.pi, -2 * math.pi):
        left, _, right, _ = (scale * (value + turn) for value in np.radians(shapely.bounds(b)).tolist())
        # Mostly a turn away is far away.
        if left - limit <= east and right + limit >= west:
            yield bool(shapely.dwithin(mine, shapely.transform(b, partial(_planar, scale, turn)), limit))


def _planar(scale: float, turn: float, degrees: Floats) -> Floats:
    radians = np.radians(degrees)
    # GEOS finds no distance to an edge whose square is too small for a number; what is cut off is far less than `TINY`.
    return np.stack([(radians[:, 0] + turn) * scale, radians[:, 1]], axis=1).round(15)
