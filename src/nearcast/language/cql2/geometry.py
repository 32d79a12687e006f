"""Geometries of CQL2: from the tokens of well-known text to GeoJSON, and from GeoJSON to well-known text, checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from nearcast.errors import Fault
from nearcast.language.cql2.tokens import Tokens
from nearcast.language.definitions.client_documents import ROUNDING
from nearcast.language.marks import Locate
from nearcast.model.expression import Box, Shape

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

Item = TypeVar("Item")

MAX_PARENTHESES = 10
"""Parentheses of a geometry within each other."""

PLAIN = 50
"""Corners up to which a geometry is not looked at when it is read: whatever it is, it takes no more than is allowed."""

_WORDS = {type_: word for word, type_ in GEOMETRIES.items()}

_NUMBERS = {"Z": 3, "M": 3, "ZM": 4}
"""How many a position has at least that is of more than two dimensions."""


def begins_geometry(tokens: Tokens, index: int) -> bool:
    """Whether a geometry's keyword stands at an index, and what makes it one and no name stands behind it."""
    if tokens.texts[index].upper() not in GEOMETRIES:
        return False
    following = tokens.texts[index + 1].upper()
    sized = following in _NUMBERS and (tokens.kinds[index + 2] == "(" or tokens.texts[index + 2].upper() == "EMPTY")
    return tokens.kinds[index + 1] == "(" or sized or following == "EMPTY"


def read_geometry(tokens: Tokens, index: int, locate: Locate) -> tuple[dict[str, Any], int]:
    """The GeoJSON of the geometry whose keyword stands at an index, and the index behind it; a BBOX is its numbers.

    Measures are left out, and a collection within a collection is its members. Raises `Fault` at the first token that
    cannot stand there.
    """
    reading = _WellKnownText(tokens, index, locate)
    if tokens.texts[index].upper() == "BBOX":
        return reading.box(), reading.at
    return reading.geometry(0), reading.at


class _WellKnownText:
    """Goes through the tokens of one geometry."""

    def __init__(self, tokens: Tokens, at: int, locate: Locate) -> None:
        self.at = at
        self._kinds, self._texts, self._starts = tokens
        self._locate = locate
        self._count = 0

    def box(self) -> dict[str, Any]:
        """The numbers of a BBOX."""
        self.at += 1
        bounds = self._listed(self._number, 0)
        if len(bounds) not in (4, 6):
            self.at -= 1
            raise self._fault("BBOX(west, south, east, north) or with heights: 4 or 6 numbers")
        return {"bbox": bounds}

    def geometry(self, depth: int) -> dict[str, Any]:
        """A geometry within so many parentheses, from its keyword."""
        word = self._texts[self.at].upper()
        if word not in GEOMETRIES or word == "BBOX":
            raise self._fault("a geometry")
        type_, self.at = GEOMETRIES[word], self.at + 1
        members = "geometries" if type_ == "GeometryCollection" else "coordinates"
        dimension = self._texts[self.at].upper()
        self.at += dimension in _NUMBERS
        if self._texts[self.at].upper() == "EMPTY":
            self.at += 1
            return {"type": type_, members: []}
        if type_ == "GeometryCollection":
            found = self._listed(lambda: self.geometry(depth + 1), depth)
            # CQL2 has no collection within a collection.
            return {"type": type_, members: [one for member in found for one in member.get(members, [member])]}
        return {"type": type_, members: self._coordinates(NESTED[type_], type_ == "MultiPoint", dimension, depth)}

    def _coordinates(self, lists: int, loose: bool, dimension: str, depth: int) -> list[Any]:
        """Positions within so many lists; `loose`: each may stand in parentheses of its own."""
        if lists > 1:
            return self._listed(lambda: self._coordinates(lists - 1, False, dimension, depth + 1), depth)
        if lists == 1 and not loose:
            return self._listed(lambda: self._position(dimension), depth)
        if lists == 1:
            return self._listed(lambda: self._loose(dimension, depth + 1), depth)
        self._expect("(", "(", depth)
        position = self._position(dimension)
        self._expect(")", ")")
        return position

    def _loose(self, dimension: str, depth: int) -> list[float]:
        if self._kinds[self.at] != "(":
            return self._position(dimension)
        return self._coordinates(0, False, dimension, depth)

    def _listed(self, item: Callable[[], Item], depth: int) -> list[Item]:
        """What stands in parentheses, with commas between."""
        self._expect("(", "(", depth)
        found = [item()]
        while self._kinds[self.at] == ",":
            self.at += 1
            found.append(item())
        self._expect(")", "a comma or )")
        return found

    def _position(self, dimension: str) -> list[float]:
        """As many numbers as every position of the geometry has."""
        numbers: list[float] = []
        while len(numbers) < _NUMBERS.get(dimension, 2) or (len(numbers) < 4 and self._begins_number()):
            numbers.append(self._number())
        self._count = self._count or len(numbers)
        if len(numbers) != self._count:
            raise self._fault(f"as many numbers as the first position has, {self._count}")
        return numbers[: 2 if dimension == "M" else 3]

    def _begins_number(self) -> bool:
        signed = self._texts[self.at] in ("+", "-")
        return self._kinds[self.at + signed] == "number"

    def _number(self) -> float:
        if not self._begins_number():
            raise self._fault("a number", self._number_advice())
        sign = -1 if self._texts[self.at] == "-" else 1
        self.at += self._kinds[self.at] == "sign"
        number = float(self._texts[self.at])
        if math.isinf(number):
            raise self._fault("a coordinate that is a finite number")
        self.at += 1
        return sign * number

    def _number_advice(self) -> str:
        if self._kinds[self.at] == ",":
            return "between the numbers of a position stands a blank: POINT(11.5 48.1)"
        if self._kinds[self.at] == "name":
            return "write S_INTERSECTS(geom, BBOX(west, south, east, north))"
        return "a position has a longitude and a latitude: POINT(11.5 48.1)" if self._kinds[self.at] == ")" else ""

    def _parenthesis_advice(self) -> str:
        if self._begins_number() and self._kinds[self.at - 1] == "(":
            return "each ring and line stands in parentheses of its own: POLYGON((0 0, 1 0, 1 1, 0 0))"
        return "between the numbers of a BBOX stand commas" if self._begins_number() else ""

    def _expect(self, kind: str, written: str, depth: int = 0) -> None:
        if self._kinds[self.at] != kind:
            raise self._fault(written, self._parenthesis_advice())
        if depth >= MAX_PARENTHESES:
            raise self._fault(f"parentheses of a geometry at most {MAX_PARENTHESES} deep")
        self.at += 1

    def _fault(self, expected: str, advice: str = "") -> Fault:
        return Fault(expected, self._texts[self.at], self._locate(self._starts[self.at]), advice)


def literal(geometry: Mapping[str, Any]) -> Shape | Box:
    """The expression of a geometry's GeoJSON. Raises ValueError with what is wrong with it."""
    if "bbox" in geometry and "type" not in geometry:
        return _box(tuple(_finite(number) for number in geometry["bbox"]))
    import shapely

    text = well_known(geometry)
    try:
        shapely.from_wkt(text)
    except shapely.GEOSException as error:
        raise ValueError(str(error).rpartition("Exception: ")[2]) from None
    found = Shape(text)
    if text.count(",") > PLAIN:
        from nearcast.geo.shapes import written

        if written(found).shape is None:
            raise ValueError("one that crosses itself too often, or whose edges lie beside each other too long")
    return found


def _box(bounds: tuple[float, ...]) -> Box:
    middle = len(bounds) // 2
    # West above east means across the antimeridian; for the others the other way round means nothing.
    for low, high, names in zip(bounds[1:middle], bounds[middle + 1 :], ("south north", "bottom top"), strict=False):
        if low > high:
            below, above = names.split()
            raise ValueError(f"a box whose {below} {low:g} is above its {above} {high:g}")
    return Box(bounds)


def bounds_of(geometry: Shape | Box) -> tuple[float, float, float, float]:
    """West, south, east and north of a geometry; not numbers where it is empty."""
    if isinstance(geometry, Shape):
        import shapely

        west, south, east, north = shapely.bounds(shapely.from_wkt(geometry.text)).tolist()
        return west, south, east, north
    middle = len(geometry.bounds) // 2
    (west, south), (east, north) = geometry.bounds[:2], geometry.bounds[middle : middle + 2]
    return west, south, east, north


def within_degrees(geometry: Shape | Box, swapped: bool = False) -> bool:
    """Whether a geometry lies on the globe, up to rounding, if its coordinates are degrees.

    `swapped`: if latitude came first.
    """
    west, south, east, north = bounds_of(geometry)
    x, y = max(abs(west), abs(east)), max(abs(south), abs(north))
    if swapped:
        x, y = y, x
    # An empty geometry has no bounds: nothing of it lies anywhere else.
    return not (x > 180 + ROUNDING or y > 90 + ROUNDING)


def longest_way(geometry: Shape) -> float:
    """The degrees of longitude of the longest edge of a geometry."""
    import numpy as np
    import shapely

    waiting, longest = [shapely.from_wkt(geometry.text)], 0.0
    while waiting:
        part = waiting.pop()
        if shapely.get_type_id(part) > 3:
            waiting.extend(shapely.get_parts(part))
            continue
        for line in shapely.get_rings(part) if shapely.get_dimensions(part) == 2 else [part]:
            ways = np.abs(np.diff(shapely.get_coordinates(line)[:, 0]))
            longest = max(longest, float(ways.max(initial=0.0)))
    return longest


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
