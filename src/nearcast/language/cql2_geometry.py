"""Geometries of CQL2: well-known text to GeoJSON and back, checked where they are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import shapely

from nearcast.errors import Fault
from nearcast.language.tokens import Token
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

MAX_COLLECTIONS = 10

_WORDS = {type_: word for word, type_ in GEOMETRIES.items()}


class Geometries:
    """Reads geometries from tokens, of which `take` gives the next and `look` shows it."""

    def __init__(self, take: Callable[[], Token], look: Callable[[], Token], fault: Callable[[str], Fault]) -> None:
        self._take = take
        self._look = look
        self._fault = fault
        self._depth = 0

    def read(self) -> dict[str, Any]:
        """The GeoJSON of the geometry that begins with the next token, its keyword; a box is `{"bbox": […]}`."""
        type_ = GEOMETRIES[self._take().word]
        if type_ == "BBOX":
            return {"bbox": self._box()}
        if self._look().word in ("Z", "M", "ZM"):
            self._take()
        if self._look().word == "EMPTY":
            self._take()
            return {"type": type_, "geometries" if type_ == "GeometryCollection" else "coordinates": []}
        if type_ == "GeometryCollection":
            return {"type": type_, "geometries": self._several(self._member)}
        if type_ == "Point":
            return {"type": type_, "coordinates": self._several(self._position, 1)[0]}
        # The points of a MULTIPOINT may stand in parentheses of their own.
        return {"type": type_, "coordinates": self._coordinates(NESTED[type_], type_ == "MultiPoint")}

    def _box(self) -> list[float]:
        numbers = self._several(self._number)
        if len(numbers) not in (4, 6):
            raise self._fault("BBOX(west, south, east, north) or with heights: 4 or 6 numbers")
        return numbers

    def _member(self) -> dict[str, Any]:
        if self._look().word not in GEOMETRIES or self._look().word == "BBOX":
            raise self._fault("a geometry")
        self._depth += 1
        if self._depth > MAX_COLLECTIONS:
            raise self._fault(f"collections at most {MAX_COLLECTIONS} deep")
        member = self.read()
        self._depth -= 1
        return member

    def _coordinates(self, depth: int, loose: bool) -> list[Any]:
        if self._look().word == "EMPTY":
            self._take()
            return []
        if depth > 1:
            return self._several(lambda: self._coordinates(depth - 1, False))
        return self._several(self._loose if loose else self._position)

    def _loose(self) -> list[float]:
        return self._several(self._position, 1)[0] if self._look().kind == "open" else self._position()

    def _several(self, part: Callable[[], Any], most: int = 1_000_000) -> list[Any]:
        """What stands in parentheses, with commas between."""
        if self._look().kind != "open":
            raise self._fault("(")
        self._take()
        found = [part()]
        while self._look().kind == "comma" and len(found) < most:
            self._take()
            found.append(part())
        if self._look().kind != "close":
            raise self._fault("a comma or )" if most > 1 else ")")
        self._take()
        return found

    def _position(self) -> list[float]:
        numbers = [self._number(), self._number()]
        while self._look().kind in ("number", "sign") and len(numbers) < 4:
            numbers.append(self._number())
        return numbers

    def _number(self) -> float:
        sign = self._take().text if self._look().kind == "sign" and self._look().text in "+-" else ""
        if self._look().kind != "number":
            raise self._fault("a number")
        number = float(sign + self._look().text)
        if not math.isfinite(number):
            raise self._fault("a coordinate that is a finite number")
        self._take()
        return number


def literal(geometry: Mapping[str, Any]) -> Shape | Box:
    """The expression of a geometry's GeoJSON. Raises ValueError with what is wrong with it."""
    if "bbox" in geometry and "type" not in geometry:
        return Box(tuple(_finite(number) for number in geometry["bbox"]))
    text = well_known(geometry)
    try:
        shape = shapely.from_wkt(text)
    except shapely.GEOSException as error:
        raise ValueError(str(error).rpartition("Exception: ")[2]) from None
    if shapely.get_num_coordinates(shape) > MENDED and not shapely.is_valid(shape):
        raise ValueError(f"one that crosses itself, with more than {MENDED:,} corners")
    return Shape(text)


def well_known(geometry: Mapping[str, Any]) -> str:
    """The well-known text of a GeoJSON geometry, with every digit. Raises ValueError for what is none."""
    type_ = geometry.get("type") if isinstance(geometry, Mapping) else None
    if not isinstance(type_, str):
        raise ValueError("a geometry without a type")
    if type_ == "GeometryCollection":
        members = geometry.get("geometries")
        if not isinstance(members, (list, tuple)):
            raise ValueError("a collection without geometries")
        inner = ", ".join(well_known(member) for member in members)
        return f"GEOMETRYCOLLECTION ({inner})" if members else "GEOMETRYCOLLECTION EMPTY"
    if type_ not in NESTED or "coordinates" not in geometry:
        raise ValueError(f"{type_!r} is no type of geometry" if type_ not in NESTED else "no coordinates")
    coordinates = geometry["coordinates"]
    if _hollow(coordinates):
        return f"{_WORDS[type_]} EMPTY"
    inner = _written(coordinates, NESTED[type_], type_ == "MultiPoint")
    return f"{_WORDS[type_]} {f'({inner})' if type_ == 'Point' else inner}"


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
