"""Distances: planar Euclidean, geographic geodesic on WGS84 (semantics §4).

The spherical bounds rest on the metric of the ellipsoid: with geodetic latitude taken as spherical, every element of a
path on WGS84 is between `SHORTEST` and `LONGEST` metres per radian of the same path on the unit sphere, the least and
the greatest radius of curvature (meridian at the equator, either at the pole). So is every distance.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from nearcast.model.event import Place

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from pyproj import Geod

MAJOR, MINOR = 6378137.0, 6356752.314245179
"""Half axes of WGS84 in metres, as PROJ has them."""

SLACK = 1e-9
"""Relative room for rounding in the bounds: far above that of doubles, far below what could hide a metre."""
SHORTEST = MINOR * MINOR / MAJOR * (1 - SLACK)
LONGEST = MAJOR * MAJOR / MINOR * (1 + SLACK)

Floats: TypeAlias = "npt.NDArray[np.float64]"


@cache
def wgs84() -> Geod:
    """Geodesics on WGS84. Loaded with the first: most commands ask for none."""
    from pyproj import Geod

    return Geod(ellps="WGS84")


def distance(a: Place, b: Place) -> float | None:
    """Metres between two places; None between a planar and a geographic one."""
    if a.coordinates != b.coordinates:
        return None
    if a.coordinates == "geographic":
        return float(wgs84().inv(a.x, a.y, b.x, b.y)[2])
    dx, dy = a.x - b.x, a.y - b.y
    dz = 0.0 if a.z is None or b.z is None else a.z - b.z
    return math.sqrt(dx * dx + dy * dy + dz * dz)


def geodesic(x1: Floats, y1: Floats, x2: Floats, y2: Floats) -> Floats:
    """Metres on WGS84 between points in degrees, element by element: exactly what `distance` gives."""
    import numpy as np

    return np.asarray(wgs84().inv(x1, y1, x2, y2)[2], dtype=np.float64)


def planar(dx: Floats, dy: Floats, dz: Floats) -> Floats:
    """Metres from differences; `dz` is 0 where a side has no height: exactly what `distance` gives."""
    import numpy as np

    # Beyond all doubles is infinitely far, for numbers one by one without a word.
    with np.errstate(over="ignore"):
        return np.sqrt(dx * dx + dy * dy + dz * dz)


def unit_vector(place: Place) -> tuple[float, float, float]:
    """A geographic place on the unit sphere."""
    longitude, latitude = math.radians(place.x), math.radians(place.y)
    across = math.cos(latitude)
    return across * math.cos(longitude), across * math.sin(longitude), math.sin(latitude)


def unit_vectors(longitude: Floats, latitude: Floats) -> Floats:
    """Points on the unit sphere, shape (n, 3), from degrees: no seam at the antimeridian, no trouble at the poles."""
    import numpy as np

    lon, lat = np.radians(longitude), np.radians(latitude)
    across = np.cos(lat)
    return np.stack([across * np.cos(lon), across * np.sin(lon), np.sin(lat)], axis=-1)


def chord_squared(metres: float, radius: float) -> float:
    """The square of the unit sphere's chord under an arc of `metres` at `radius` metres per radian; 4 is the most."""
    angle = min(max(metres, 0.0) / radius, math.pi)
    return (2 * math.sin(angle / 2)) ** 2


def surely_within(metres: float) -> float:
    """Chords whose square is at most this are within `metres`, whatever the direction and place; negative: none is."""
    return chord_squared(metres, LONGEST) * (1 - SLACK) - SLACK**2 if metres > 0 else -1.0


def surely_beyond(metres: float) -> float:
    """Chords whose square is above this are farther than `metres`, whatever the direction and place."""
    return chord_squared(metres, SHORTEST) * (1 + SLACK) + SLACK**2
