"""Polygons of zones out of GeoJSON: what is wrong with one is told, and what crosses the antimeridian is cut there.

Coordinates are longitude before latitude, or x before y; heights are left out. A zone may count its longitudes on
beyond 180, as maps do that are drawn across the antimeridian (RFC 7946, 3.1.9, asks for parts instead; both will do).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import orjson
import shapely
import shapely.affinity

from nearcast.errors import Fault
from nearcast.geo.distance import Floats
from nearcast.geo.geometry_work import edge_boxes, meeting
from nearcast.model.event import Coordinates
from nearcast.model.limits import Limits

KINDS = ("Polygon", "MultiPolygon")

ROUND = "longitude comes first"

FARTHEST = 360.0
"""Degrees of longitude to which a zone may count on."""

_NUMBERS = {int, float}

_GLOBE = (-180.0, -90.0, 180.0, 90.0)


def zone_text(geometry: Any, coordinates: Coordinates, limits: Limits | None = None) -> str:
    """The GeoJSON text of a zone's geometry, without heights. Raises `Fault`, without a place, for one that is none."""
    limits = limits or Limits()
    if not isinstance(geometry, dict) or geometry.get("type") not in KINDS:
        came = geometry.get("type") if isinstance(geometry, dict) else None
        raise Fault("a Polygon or MultiPolygon as geometry", "none" if came is None else str(came)[:80])
    parts = geometry.get("coordinates")
    single = geometry["type"] == "Polygon"
    rings = [_rings(part) for part in ([parts] if single else _listed(parts, "polygons"))]
    for ring in (ring for part in rings for ring in part):
        _check_ring(ring, coordinates)
    text = orjson.dumps(
        {
            "type": geometry["type"],
            "coordinates": [ring.tolist() for ring in rings[0]]
            if single
            else [[ring.tolist() for ring in part] for part in rings],
        }
    ).decode()
    if len(text) > limits.zone_bytes:
        advice = "simplify it, or cut it into several zones"
        raise Fault(
            f"a zone of at most {limits.zone_bytes:,} characters (limit zone_bytes)", f"{len(text):,}", None, advice
        )
    for part in rings:
        _check_polygon(shapely.Polygon(part[0], part[1:]), limits)
    return text


def shape_of(text: str, coordinates: Coordinates) -> shapely.Geometry:
    """The shape of a zone's geometry, prepared; what lies beyond 180 degrees of longitude comes round."""
    shape: shapely.Geometry = shapely.from_geojson(text)
    if not shapely.is_valid(shape):
        # Each part is: some lie side by side, or over each other.
        shape = shapely.unary_union(shapely.get_parts(shape))
    if coordinates == "geographic":
        shape = _come_round(shape)
    shapely.prepare(shape)
    return shape


def _listed(value: Any, what: str) -> list[Any]:
    if isinstance(value, list) and value:
        return value
    raise Fault(f"a list of {what} in coordinates", "none" if not value else str(value)[:40])


def _rings(part: Any) -> list[Floats]:
    return [_ring(ring) for ring in _listed(part, "rings")]


def _ring(ring: Any) -> Floats:
    """A ring as an array of shape (corners, 2)."""
    corners = _corners(_listed(ring, "corners"))
    first, last = corners[0].tolist(), corners[-1].tolist()
    if len(corners) < 4 or first != last:
        advice = "the first corner comes again at the end"
        came = f"{len(corners)} corners" if len(corners) < 4 else f"{first} to {last}"
        raise Fault("a closed ring of four corners or more", came, None, advice)
    return corners


def _corners(ring: list[Any]) -> Floats:
    pairs = [one[:2] for one in ring if type(one) is list]
    if len(pairs) == len(ring) and set(map(len, pairs)) == {2} and _NUMBERS.issuperset(map(type, chain(*pairs))):
        try:
            corners = np.array(pairs, np.float64)
        except OverflowError:
            corners = np.full((1, 2), np.inf)
        if np.isfinite(corners).all():
            return corners
    # One by one: some is no corner, and is named.
    return np.array([_corner(one) for one in ring])


def _corner(corner: Any) -> tuple[float, float]:
    pair = corner[:2] if isinstance(corner, list) else ()
    if len(pair) == 2 and all(type(one) in (int, float) and math.isfinite(one) for one in pair):
        return float(pair[0]), float(pair[1])
    raise Fault("two finite numbers as a corner", str(corner)[:40])


def _check_ring(ring: Floats, coordinates: Coordinates) -> None:
    if coordinates == "planar":
        return
    low, high = np.abs(ring).max(axis=0)[1], np.abs(ring).max(axis=0)[0]
    if low > 90:
        corner = ring[int(np.abs(ring[:, 1]).argmax())].tolist()
        swapped = "; are they swapped?" if high <= 90 else "; metres belong to a planar layer" if low > 180 else ""
        raise Fault("latitudes to 90", f"{corner}", None, ROUND + swapped)
    if high > FARTHEST:
        corner = ring[int(np.abs(ring[:, 0]).argmax())].tolist()
        raise Fault(f"longitudes to {FARTHEST:g}", f"{corner}", None, f"{ROUND}; metres belong to a planar layer")
    wide = float(np.abs(np.diff(ring[:, 0])).max())
    if 180 < wide < 360:
        advice = "cut it at the antimeridian (RFC 7946, 3.1.9), or count longitudes on beyond 180"
        raise Fault("edges of at most half the globe", f"one {wide:g} degrees wide", None, advice)


def _check_polygon(polygon: shapely.Polygon, limits: Limits) -> None:
    edges = edge_boxes(polygon)
    if meeting(edges, edges, limits.geometry_work // 10) > limits.geometry_work:
        advice = "simplify it, or cut it into several zones"
        raise Fault("a polygon whose edges can be held against each other (limit geometry_work)", "more", None, advice)
    if not shapely.is_valid(polygon):
        came = shapely.is_valid_reason(polygon)
        raise Fault("a polygon whose rings do not cross or touch themselves", came, None, "mend it where that is")


def _come_round(shape: shapely.Geometry) -> shapely.Geometry:
    west, _, east, _ = shapely.bounds(shape).tolist()
    if west >= -180 and east <= 180:
        return shape
    pieces = [one for turned in _turned(shape) for one in _polygons(turned)]
    return shapely.unary_union(pieces)


def _turned(shape: shapely.Geometry) -> Iterator[shapely.Geometry]:
    globe = shapely.box(*_GLOBE)
    for turn in (-360.0, 0.0, 360.0):
        yield shapely.intersection(shapely.affinity.translate(shape, turn), globe)


def _polygons(shape: shapely.Geometry) -> Iterator[shapely.Geometry]:
    yield from (part for part in shapely.get_parts(shape) if shapely.get_dimensions(part) == 2)
