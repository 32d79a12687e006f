"""Geometries: from the texts that hold them, and the relations of CQL2 between two of them (OGC 21-065r2, 7.6, 7.7).

Relations are those of simple features on the coordinates as they are, planar, without heights. A geometry that is not
valid, a polygon that crosses itself, is mended before it is compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import shapely

from nearcast.decision.location import LONGEST
from nearcast.decision.near import within
from nearcast.model.expression import MENDED, Box, Shape
from nearcast.model.place import Place

KEPT = 512
"""Geometries kept parsed: filters name few, and the events of one batch often share theirs."""

SMALL = 16 * 1024
"""Characters of a text that counts as small."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """A geometry, and whether its coordinates are metres; None: it is written in the filter, and takes the other's."""

    shape: shapely.Geometry
    planar: bool | None = None


@lru_cache(maxsize=KEPT)
def written(expression: Shape | Box) -> Geometry:
    """The geometry of a literal, prepared, for it meets many others."""
    shape = _mended(shapely.from_wkt(expression.text)) if isinstance(expression, Shape) else _box(expression.bounds)
    shapely.prepare(shape)
    return Geometry(shape)


def _box(bounds: tuple[float, ...]) -> shapely.Geometry:
    west, south, east, north = bounds if len(bounds) == 4 else (bounds[0], bounds[1], bounds[3], bounds[4])
    # GeoJSON and CQL2 alike write a box across the antimeridian so; planar relations need it in two parts.
    if west <= east:
        return _mended(shapely.box(west, south, east, north))
    return _mended(shapely.MultiPolygon([shapely.box(west, south, 180, north), shapely.box(-180, south, east, north)]))


def told(text: str) -> Geometry | None:
    """The geometry that an attribute's text holds as GeoJSON; None if it holds none."""
    if not text.startswith("{"):
        return None
    # Senders choose how large their geometries are: many small ones are kept, and few large ones.
    return _small(text) if len(text) <= SMALL else _large(text)


def _parsed(text: str) -> Geometry | None:
    shape = shapely.from_geojson(text, on_invalid="ignore")
    if shape is None or (shapely.get_num_coordinates(shape) > MENDED and not shapely.is_valid(shape)):
        return None
    return Geometry(_mended(shape), False)


_small = lru_cache(maxsize=KEPT)(_parsed)
_large = lru_cache(maxsize=8)(_parsed)


def at(place: Place) -> Geometry:
    """The point where something is."""
    return Geometry(shapely.Point(place.x, place.y), place.coordinates == "planar")


def around(shape: shapely.Geometry) -> tuple[tuple[float, float] | None, float]:
    """A point in degrees, and the metres from it that no point of a geometry exceeds; None for one that has none.

    A geometry may lie on both sides of the antimeridian: then half the globe is no more than it may take.
    """
    if shapely.is_empty(shape):
        return None, 0.0
    west, south, east, north = shapely.bounds(shape).tolist()
    middle = (west + east) / 2, (south + north) / 2
    return middle, LONGEST * math.hypot(math.radians(east - west) / 2, math.radians(north - south) / 2)


def _mended(shape: shapely.Geometry) -> shapely.Geometry:
    if shapely.is_valid(shape):
        return shape
    # Not by linework, the default: a hundred crossing edges take it half a second, and the cube of more.
    return shapely.make_valid(shape, method="structure", keep_collapsed=True)


Relation = Callable[..., Any]

SPATIAL: dict[str, Relation] = {
    "S_INTERSECTS": shapely.intersects,
    "S_EQUALS": shapely.equals,
    "S_DISJOINT": shapely.disjoint,
    "S_TOUCHES": shapely.touches,
    "S_WITHIN": shapely.within,
    "S_OVERLAPS": shapely.overlaps,
    "S_CROSSES": shapely.crosses,
    "S_CONTAINS": shapely.contains,
}

CONVERSE = {"S_WITHIN": "S_CONTAINS", "S_CONTAINS": "S_WITHIN"}
"""The relations with the sides changed; all others are the same both ways."""


def related(function: str, a: Geometry, b: Geometry) -> bool | None:
    """Whether two geometries are so related; None for the few pairs that cannot be compared."""
    if a.planar is not None and b.planar is not None and a.planar != b.planar:
        return None
    try:
        # Only a prepared left side is fast.
        if shapely.is_prepared(b.shape) and not shapely.is_prepared(a.shape):
            return bool(SPATIAL[CONVERSE.get(function, function)](b.shape, a.shape))
        return bool(SPATIAL[function](a.shape, b.shape))
    # A few pairs have no relation that GEOS can compute; one event's must not end the batch.
    except shapely.GEOSException:
        return None


def near(a: Geometry, b: Geometry, metres: float) -> bool | None:
    """Whether two geometries are within so many metres; None between metres and degrees."""
    if a.planar is not None and b.planar is not None and a.planar != b.planar:
        return None
    if a.planar or b.planar:
        return metres >= 0 and bool(shapely.distance(a.shape, b.shape) <= metres)
    return within(a.shape, b.shape, metres)
