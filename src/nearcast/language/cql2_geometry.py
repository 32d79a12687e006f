"""Geometries of CQL2: from GeoJSON to well-known text, checked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nearcast.language.definitions.client_documents import ROUNDING
from nearcast.model.expression import MENDED, Box, Shape

GEOMETRIES = {
    "POINT": "Point",
    "LINESTRING": "LineString",
    "POLYGON": "Polygon",
    "MULTIPOINT": "MultiPoint",
    "MULTILINESTRING": "MultiLineString",
    "MULTIPOLYGON": "MultiPolygon",
    "GEOMETRYCOLLECTION": "GeometryCollection",
    "BBOX": "BBOX",
}
NESTED = {"Point": 0, "LineString": 1, "MultiPoint": 1, "Polygon": 2, "MultiLineString": 2, "MultiPolygon": 3}
"""How many lists lie around the positions of each type's coordinates."""

_WORDS = {type_: word for word, type_ in GEOMETRIES.items()}


def literal(geometry: Mapping[str, Any]) -> Shape | Box:
    """The expression of a geometry's GeoJSON. Raises ValueError with what is wrong with it."""
    if "bbox" in geometry and "type" not in geometry:
        return Box(tuple(_finite(number) for number in geometry["bbox"]))
    import shapely

    text = well_known(geometry)
    try:
        shape = shapely.from_wkt(text)
    except shapely.GEOSException as error:
        raise ValueError(str(error).rpartition("Exception: ")[2]) from None
    if shapely.get_num_coordinates(shape) > MENDED and not shapely.is_valid(shape):
        raise ValueError(f"one that crosses itself, with more than {MENDED:,} corners")
    return Shape(text)


def within_degrees(geometry: Shape | Box) -> bool:
    """Whether a geometry lies on the globe, up to rounding, if its coordinates are degrees."""
    if isinstance(geometry, Shape):
        import shapely

        west, south, east, north = shapely.bounds(shapely.from_wkt(geometry.text)).tolist()
    else:
        middle = len(geometry.bounds) // 2
        west, south, east, north = (*geometry.bounds[:2], *geometry.bounds[middle : middle + 2])
    # An empty geometry has no bounds: nothing of it lies anywhere else.
    return not (max(abs(west), abs(east)) > 180 + ROUNDING or max(abs(south), abs(north)) > 90 + ROUNDING)


def well_known(geometry: Mapping[str, Any]) -> str:
    """The well-known text of a GeoJSON geometry, with every digit. Raises ValueError for what is none."""
    type_ = geometry.get("type") if isinstance(geometry, Mapping) else None
    if not isinstance(type_, str):
        raise ValueError("a geometry without a type")
    if type_ == "GeometryCollection":
        inner = ", ".join(_members(geometry))
        return f"GEOMETRYCOLLECTION ({inner})" if inner else "GEOMETRYCOLLECTION EMPTY"
    if type_ not in NESTED or "coordinates" not in geometry:
        raise ValueError(f"{type_!r} is no type of geometry" if type_ not in NESTED else "no coordinates")
    coordinates = geometry["coordinates"]
    if _hollow(coordinates):
        return f"{_WORDS[type_]} EMPTY"
    if type_ in ("MultiLineString", "MultiPolygon") and isinstance(coordinates, (list, tuple)):
        # CQL2 text has no empty parts, and they are nowhere.
        coordinates = [part for part in coordinates if not _hollow(part)]
    inner = _written(coordinates, NESTED[type_], type_ == "MultiPoint")
    return f"{_WORDS[type_]} {f'({inner})' if type_ == 'Point' else inner}"


def _members(collection: Mapping[str, Any]) -> Iterator[str]:
    """The geometries in a collection, and in those within it: CQL2 text has neither these nor empty ones."""
    members = collection.get("geometries")
    if not isinstance(members, (list, tuple)):
        raise ValueError("a collection without geometries")
    for member in members:
        if isinstance(member, Mapping) and member.get("type") == "GeometryCollection":
            yield from _members(member)
        elif not (text := well_known(member)).endswith("EMPTY"):
            yield text


def _hollow(coordinates: Any) -> bool:
    """Whether lists hold nothing but lists: an empty geometry, which some write with empty parts."""
    return isinstance(coordinates, (list, tuple)) and all(_hollow(part) for part in coordinates)


def _written(coordinates: Any, depth: int, loose: bool) -> str:
    if not isinstance(coordinates, (list, tuple)):
        raise ValueError("coordinates are lists of numbers")
    if depth == 0:
        return _position(coordinates)
    if not coordinates:
        return "EMPTY"
    inner = (_written(part, depth - 1, False) for part in coordinates)
    return "(" + ", ".join(f"({part})" if loose else part for part in inner) + ")"


def _position(numbers: Sequence[Any]) -> str:
    if not 2 <= len(numbers) <= 4:
        raise ValueError("a position has two or three numbers")
    # A fourth number, a measure, says nothing of where a point is.
    return " ".join(repr(_finite(number)) for number in numbers[:3])


def _finite(number: Any) -> float:
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number):
        raise ValueError(f"{number!r} is no finite number")
    return float(number)
