"""Clients and places within documents: as definitions, management requests and control events write them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import orjson

from nearcast.errors import Fault, Mark
from nearcast.language.definitions.settings_documents import MAX_LEVELS, check_role, read_matrix
from nearcast.language.nodes import MAX_VALUES, DocumentNode, DocumentReader, from_data
from nearcast.model.changes import ClientChange
from nearcast.model.context import HeldClass
from nearcast.model.event import Place, place_data
from nearcast.model.subscription import ClientProfile, Settings
from nearcast.model.values import INTEGER_MAXIMUM, microseconds_of, moment_at, time_of, time_text

GEOMETRY_NAMES = ("geometry", "geom")
GEOMETRIES = frozenset(
    {"Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "MultiPolygon", "GeometryCollection"}
)


_ALSO = {
    "lon": ("lng", "long", "longitude", "Lon", "LON", "x"),
    "lat": ("latitude", "Lat", "LAT", "y"),
}
"""How others call them."""

ROUNDING = 1e-9
"""Degrees by which coordinates may be off for having been computed: a tenth of a millimetre."""


def place_of(data: Mapping[str, Any], where: Mark) -> Place | None:
    """The place that an event's data tells, None if it tells none: a place needs both of x, y or both of lon, lat.

    Raises `Fault` for values that are not finite numbers, degrees out of range, and two kinds of place at once; also
    for one of lon and lat alone, which is no place and means one. An x alone may mean anything.
    """
    places: list[Place] = []
    # Whether a name is there is asked first, for this is done with every event, and most have none of a kind.
    if "x" in data and "y" in data and data["x"] is not None and data["y"] is not None:
        places.append(planar(data["x"], data["y"], data.get("z"), where))
    if "lon" in data or "lat" in data:
        longitude, latitude = data.get("lon"), data.get("lat")
        if longitude is not None and latitude is not None:
            places.append(geographic(longitude, latitude, data.get("alt"), where))
        elif longitude is not None or latitude is not None:
            raise _half(data, where)
    for name in GEOMETRY_NAMES:
        if name in data and is_geometry(data[name]) and (centre := place_of_geometry(data[name], where)):
            places.append(centre)
    if len(places) > 1:
        raise Fault("one place: x and y, or lon and lat, or one geometry", "several", where)
    return places[0] if places else None


def _half(data: Mapping[str, Any], where: Mark) -> Fault:
    """What is said of a longitude without a latitude, or the other way round."""
    there, other = ("lat", "lon") if data.get("lon") is None else ("lon", "lat")
    like = [name for name in _ALSO[other] if name in data]
    advice = f"did you mean {other} by {like[0]}?" if like else f"leave out {there} where nobody knows where it is"
    return Fault("both lon and lat", f"{there} alone", where, advice)


def planar(x: object, y: object, z: object, where: Mark) -> Place:
    """A place in metres. Raises `Fault`."""
    return Place("planar", number(x, "x", where), number(y, "y", where), None if z is None else number(z, "z", where))


def geographic(lon: object, lat: object, alt: object, where: Mark) -> Place:
    """A place in degrees. Raises `Fault`."""
    x, y = _rounded(number(lon, "lon", where), 180.0), _rounded(number(lat, "lat", where), 90.0)
    if not -180 <= x <= 180:
        raise Fault("a longitude from -180 to 180 degrees", f"{x}", where, "are lon and lat in this order?")
    if not -90 <= y <= 90:
        raise Fault("a latitude from -90 to 90 degrees", f"{y}", where, "are lon and lat in this order?")
    return Place("geographic", x, y, None if alt is None else number(alt, "alt", where))


def _rounded(degrees: float, limit: float) -> float:
    """Degrees that are beyond their limit only by the rounding of whoever made them, put back on it."""
    return math.copysign(limit, degrees) if limit < abs(degrees) < limit + ROUNDING else degrees


def number(value: object, name: str, where: Mark) -> float:
    """A finite number. Raises `Fault`."""
    # The type itself, not isinstance: in Python a boolean is an integer.
    if type(value) is float and math.isfinite(value):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise Fault(f"a finite number as {name}", f"{value!r}"[:60], where)
    return float(value)


def is_geometry(value: object) -> bool:
    """Whether a value is a GeoJSON geometry."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    return value["type"] in GEOMETRIES and ("coordinates" in value or "geometries" in value)


def geometry_text(geometry: Mapping[str, Any]) -> str | None:
    """A GeoJSON geometry as the text that an attribute holds; None for a point, which is told by the place alone."""
    return None if geometry["type"] == "Point" else orjson.dumps(geometry).decode()


def place_of_geometry(geometry: Mapping[str, Any], where: Mark) -> Place | None:
    """A point's place; a collection's first point; of anything else the centre of its bounding box.

    A box wider than half the globe is taken to cross the antimeridian. None for a geometry without positions, which is
    as good as none (RFC 7946, 3.1).
    """
    corners: list[tuple[float, float]] = []
    point: Place | None = None
    for part in _members(geometry):
        plain = None if part["type"] == "Point" else _plain_positions(part.get("coordinates"))
        if plain is not None and _within(plain, 180, 90):
            corners += _extremes(plain)
            continue
        for position in _positions(part.get("coordinates")):
            if point is None and part["type"] == "Point":
                point = geographic(*_position(position, where), where)
            corners.append(_corner(position, where))
    return point or (_centre(corners) if corners else None)


def positions_of(geometry: Mapping[str, Any]) -> Iterator[list[Any]]:
    """The positions of a GeoJSON geometry, of a collection those of its members; of any kind of values."""
    for part in _members(geometry):
        yield from _positions(part.get("coordinates"))


def surely_within(geometry: Mapping[str, Any], longitude: float, latitude: float) -> bool:
    """Whether all positions of a geometry are two numbers, at most so great; false also where that is not seen at once.

    An outline may have a hundred thousand: one by one they take a fifth of a second.
    """
    plain = (_plain_positions(part.get("coordinates")) for part in _members(geometry))
    return all(one is not None and _within(one, longitude, latitude) for one in plain)


_Plain = tuple[list[float], list[float]]
"""Longitudes and latitudes of positions that are two numbers each."""


def _plain_positions(coordinates: object) -> _Plain | None:
    """The positions within nested coordinates where all are two numbers; None for any others."""
    level: list[Any] = [coordinates]
    kinds = {type(coordinates)}
    while kinds == {list}:
        inner = list(chain.from_iterable(level))
        kinds = set(map(type, inner))
        if kinds and kinds <= _NUMBERS and set(map(len, level)) == {2}:
            return inner[::2], inner[1::2]
        level = inner
    return None


def _within(positions: _Plain, longitude: float, latitude: float) -> bool:
    bounds = zip(positions, (longitude, latitude), strict=True)
    # The least of some numbers may be any where one is no number, but then their sum is none.
    return all(-most <= min(each) and max(each) <= most and not math.isnan(sum(each)) for each, most in bounds)


def _extremes(positions: _Plain) -> list[tuple[float, float]]:
    """Positions whose centre is that of all: of each half of the globe the least and the greatest."""
    x, y = positions
    ends = [min(x), max(x)]
    if ends[0] < 0 <= ends[1]:
        ends += [max(one for one in x if one < 0), min(one for one in x if one >= 0)]
    return [(float(one), float(other)) for one, other in zip(ends, [min(y), max(y), y[0], y[0]], strict=False)]


def _members(geometry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The geometries in a collection and in those within it, in their order; any other is its own."""
    found: list[Mapping[str, Any]] = []
    waiting: list[Any] = [geometry]
    while waiting:
        one = waiting.pop()
        inner = one.get("geometries") if is_geometry(one) else None
        if isinstance(inner, list) and one["type"] == "GeometryCollection":
            waiting.extend(reversed(inner))
        elif is_geometry(one):
            found.append(one)
    return found


def _corner(position: list[Any], where: Mark) -> tuple[float, float]:
    """The longitude and latitude of a position."""
    # An outline may have a hundred thousand: most are two numbers, and need no more than this.
    if len(position) == 2 and type(position[0]) in _NUMBERS and type(position[1]) in _NUMBERS:
        x, y = position
        if -180 <= x <= 180 and -90 <= y <= 90:
            return float(x), float(y)
    place = geographic(*_position(position, where), where)
    return place.x, place.y


_NUMBERS = frozenset({int, float})


def _centre(positions: list[tuple[float, float]]) -> Place:
    longitudes, latitudes = [x for x, _ in positions], [y for _, y in positions]
    # Boxes wider than half the globe are rarer than such that cross the antimeridian.
    if max(longitudes) - min(longitudes) > 180:
        longitudes = [x + 360 if x < 0 else x for x in longitudes]
    x = (min(longitudes) + max(longitudes)) / 2
    return Place("geographic", x - 360 if x > 180 else x, (min(latitudes) + max(latitudes)) / 2)


def _position(value: object, where: Mark) -> tuple[object, object, object]:
    if not isinstance(value, list) or not 2 <= len(value) <= 4:
        raise Fault("[longitude, latitude] or [longitude, latitude, altitude]", f"{value!r}"[:60], where)
    return value[0], value[1], value[2] if len(value) > 2 else None


def _positions(coordinates: object) -> Iterator[list[Any]]:
    """The positions within nested coordinates; without recursion, for depth is the sender's choice."""
    waiting = [coordinates]
    while waiting:
        item = waiting.pop()
        if not isinstance(item, list) or not item:
            continue
        if isinstance(item[0], list):
            waiting.extend(item)
        else:
            yield item


_FIELDS = ("role", "task", "readings", "position", "matrix", "lists", "classes", "moments", "lapsed")


def client_document(data: Mapping[str, Any], where: Mark, settings: Settings | None = None) -> ClientChange:
    """The change that a client's document asks for; the client is named by `id` or `client`.

    With settings, its role and task must be defined there, and its place be of a kind that the channels have. Raises
    `DefinitionError` with every fault.
    """
    settings = settings or Settings()
    reader = DocumentReader(settings.limits)
    change = read_client(from_data(data, where, MAX_VALUES), settings, reader)
    reader.refuse()
    assert change is not None, "without a fault there is a change"
    return change


def client_data(client: ClientProfile | ClientChange) -> dict[str, Any]:
    """A client, or a change of one, as a document, JSON-able; `client_document` inverts it."""
    data: dict[str, Any] = {"id": client.id} if isinstance(client, ClientProfile) else {"client": client.client}
    if client.role is not None:
        data["role"] = client.role
    if client.task is not None:
        data["task"] = client.task
    if client.readings is not None and (client.readings or isinstance(client, ClientChange)):
        data["readings"] = dict(client.readings)
    if client.place is not None:
        data["position"] = place_data(client.place)
    if client.matrix is not None:
        data["matrix"] = [list(row) for row in client.matrix]
    if client.lists is not None and (client.lists or isinstance(client, ClientChange)):
        data["lists"] = {name: list(entities) for name, entities in client.lists.items()}
    if isinstance(client, ClientChange) and client.classes is not None:
        data["classes"] = {name: _class_data(held) for name, held in client.classes.items()}
    if isinstance(client, ClientChange) and client.moments is not None:
        data["moments"] = _moments_data(client.moments)
    # Of a client too: who says again what it read withdraws nothing by it that came since.
    lapsed = client.lapsed if isinstance(client, ClientChange) else client.lapsed() or None
    if lapsed is not None:
        data["lapsed"] = _moments_data(lapsed)
    return data


def _moments_data(moments: Mapping[str, int]) -> dict[str, str]:
    return {name: time_text(moment_at(moment)) for name, moment in moments.items()}


def _class_data(held: HeldClass) -> dict[str, Any]:
    data: dict[str, Any] = {"class": held.context_class, "moment": held.moment}
    return data | {"rising" if held.rising else "falling": list(held.toward)} if held.toward else data


def read_client(node: DocumentNode, settings: Settings, reader: DocumentReader) -> ClientChange | None:
    """The change of a client's node; None after a fault."""
    before = len(reader.faults)
    names = [name for name in ("id", "client") if isinstance(node.value, dict) and name in node.value]
    fields = reader.fields(node, names[:1] or ("id",), _FIELDS, "a client")
    id = reader.name(fields[names[0]], "a client's id") if names and names[0] in fields else None
    role = reader.text(fields["role"], "role") if "role" in fields else None
    task = reader.text(fields["task"], "task") if "task" in fields else None
    check_role(fields.get("role"), role, fields.get("task"), task, settings.roles, reader)
    readings = _readings(fields["readings"], reader) if "readings" in fields else None
    place = _place(fields["position"], settings, reader) if "position" in fields else None
    matrix = read_matrix(fields["matrix"], settings.levels, reader) if "matrix" in fields else None
    lists = _lists(fields["lists"], reader) if "lists" in fields else None
    classes = _classes(fields["classes"], reader) if "classes" in fields else None
    moments, lapsed = (_moments(fields[one], one, reader) if one in fields else None for one in ("moments", "lapsed"))
    if (names and names[0] in fields and id is None) or len(reader.faults) > before or id is None:
        return None
    return ClientChange(id, role, task, readings, place, matrix, lists, classes, moments=moments, lapsed=lapsed)


def _place(node: DocumentNode, settings: Settings, reader: DocumentReader) -> Place | None:
    """Where a client is: of a kind that some channel has, if there are any."""
    place = read_place(node, reader)
    kinds = sorted({channel.coordinates for channel in settings.channels})
    if place is not None and kinds and place.coordinates not in kinds:
        keys = " or ".join("x and y" if kind == "planar" else "lon and lat" for kind in kinds)
        expected = f"a {' or '.join(kinds)} position, as the channels have"
        reader.fault(expected, node, f"give {keys}", came=f"a {place.coordinates} one")
        return None
    return place


def read_place(node: DocumentNode, reader: DocumentReader) -> Place | None:
    """A place: `{x, y[, z]}` in metres or `{lon, lat[, alt]}` in degrees; None after a fault."""
    is_planar = isinstance(node.value, dict) and ("x" in node.value or "y" in node.value)
    names = ("x", "y", "z") if is_planar else ("lon", "lat", "alt")
    fields = reader.fields(node, names[:2], names[2:], "a position")
    if not set(names[:2]) <= set(fields):
        if isinstance(node.value, dict) and set(names[:2]) <= set(node.value):
            reader.fault(f"numbers as {names[0]} and {names[1]}", node)
        return None
    x, y, z = (fields[name].value if name in fields else None for name in names)
    try:
        return planar(x, y, z, node.where) if is_planar else geographic(x, y, z, node.where)
    except Fault as fault:
        reader.note_raised(fault)
        return None


def _readings(node: DocumentNode, reader: DocumentReader) -> dict[str, float | None]:
    """Readings by name; null: it is unknown again."""
    readings: dict[str, float | None] = {}
    most = reader.limits.client_readings
    if isinstance(node.value, dict) and len(node.value) > most:
        reader.fault(f"at most {most:,} readings of a client", node, came=f"{len(node.value):,}")
        return readings
    for name, reading in reader.named(node, "readings"):
        if reading.value is None:
            readings[name] = None
            continue
        value = reader.number(reading, f"the reading {name}", low=0)
        if value is not None:
            readings[name] = float(value)
    return readings


def _lists(node: DocumentNode, reader: DocumentReader) -> dict[str, tuple[str, ...]]:
    """The lists of entities that a client names; an entity counts once in each."""
    lists: dict[str, tuple[str, ...]] = {}
    most = reader.limits.client_lists
    if isinstance(node.value, dict) and len(node.value) > most:
        reader.fault(f"at most {most:,} lists of a client", node, came=f"{len(node.value):,}")
        return lists
    for name, listed in reader.named(node, "lists"):
        items = reader.items(listed, f"the list {name}")
        entities = (reader.text(item, "an entity's id") for item in items)
        lists[name] = tuple(dict.fromkeys(entity for entity in entities if entity))
    return lists


def _moments(node: DocumentNode, what: str, reader: DocumentReader) -> dict[str, int]:
    """The times of readings, by reading, in microseconds since 1970."""
    found: dict[str, int] = {}
    for name, written in reader.named(node, what):
        moment = time_of(written.value) if isinstance(written.value, str) else None
        if moment is None:
            reader.fault("the time of a reading, as in 2026-01-31T12:00:00Z", written)
        else:
            found[name] = microseconds_of(moment)
    return found


def _classes(node: DocumentNode, reader: DocumentReader) -> dict[str, HeldClass]:
    """The classes that earlier readings led to, by reading; times are in microseconds since 1970."""
    found = {}
    for name, held in reader.named(node, "classes"):
        fields = reader.fields(held, ("class", "moment"), ("rising", "falling"), f"the class of {name}")
        if len(fields) - ("rising" in fields) - ("falling" in fields) < 2:
            continue
        moment = reader.integer(fields["moment"], "moment", 0, INTEGER_MAXIMUM) or 0
        toward = fields.get("rising") or fields.get("falling")
        items = [] if toward is None else reader.items(toward, "since when")
        since = tuple(reader.integer(one, "since when", 0, INTEGER_MAXIMUM) or 0 for one in items)
        own = reader.integer(fields["class"], "a class", 0, MAX_LEVELS) or 0
        found[name] = HeldClass(own, moment, "rising" in fields, since)
    return found
