"""Files of events, of JSON lines or GeoJSON, as tables of columns in the order of their lines.

A feature's properties are attributes by their names, its geometry is the place and, if more than a point, `geom`; its
id is the event's id, else its ordinal. Properties named type, source, subject and time are the event's own if they are
fit for it; without them the type is `feature` and the source the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from nearcast.errors import EventError, Fault, Mark
from nearcast.language.cloudevents import KEPT_BYTES, DeadLetter, attributes_of, numbered, whole_lines
from nearcast.language.definitions.client_documents import geometry_text, is_geometry, place_of_geometry
from nearcast.language.json_text import loads
from nearcast.model.event import Event
from nearcast.model.subscription import Channel
from nearcast.model.values import time_of

_TEXTS = ("type", "source", "subject")


def read_features(path: Path) -> Iterator[Event | DeadLetter]:
    """The features of a file as events; what is no feature comes as a dead letter."""
    with path.open("rb") as file:
        first = file.readline(KEPT_BYTES)
    line_by_line = _is_feature(first)
    yield from _from_lines(path) if line_by_line else _from_collection(path)


def read_feature(feature: object, where: Mark, ordinal: int) -> Event:
    """The event of one feature. Raises `EventError`."""
    if not isinstance(feature, dict) or feature.get("type") != "Feature":
        raise EventError(Fault("a GeoJSON feature", f"{feature!r}"[:60], where))
    properties = feature.get("properties") or {}
    if not isinstance(properties, dict):
        raise EventError(Fault("properties, an object", f"{properties!r}"[:60], where))
    try:
        return _event(feature, properties, where, ordinal)
    except Fault as fault:
        raise EventError(fault) from None


def _event(feature: dict[str, Any], properties: dict[str, Any], where: Mark, ordinal: int) -> Event:
    id = feature.get("id")
    own: dict[str, str] = {"type": "feature", "source": where.file}
    own |= {name: text for name in _TEXTS if (text := properties.get(name)) and isinstance(text, str)}
    written = properties.get("time")
    time = time_of(written) if isinstance(written, str) else None
    # What became a field is not told again; what did not is told as `data.NAME`.
    taken: dict[str, Any] = own | {"id": str(ordinal if id is None else id)} | ({"time": written} if time else {})
    told = {name: value for name, value in properties.items() if taken.get(name) != value}
    geometry: Any = feature.get("geometry")
    shaped = is_geometry(geometry)
    shape = (("geom", text),) if shaped and (text := geometry_text(geometry)) else ()
    return Event(
        id=taken["id"],
        type=own["type"],
        source=own["source"],
        subject=own.get("subject"),
        time=time,
        # The geometry alone says where a feature is, whatever its properties are named.
        place=place_of_geometry(geometry, where) if shaped else None,
        attributes=(*shape, *attributes_of(told, taken, where)),
        payload=orjson.dumps(feature),
    )


def _is_feature(line: bytes) -> bool:
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return isinstance(document, dict) and document.get("type") == "Feature"


def _from_lines(path: Path) -> Iterator[Event | DeadLetter]:
    with path.open("rb") as file:
        for number, line in enumerate(whole_lines(file), 1):
            if line.isspace():
                continue
            where = Mark(str(path), number)
            try:
                yield read_feature(loads(line.strip(), where), where, number)
            except EventError as error:
                yield DeadLetter(error.fault, line.rstrip(b"\r\n")[:KEPT_BYTES])


def _from_collection(path: Path) -> Iterator[Event | DeadLetter]:
    where = Mark(str(path))
    content = path.read_bytes()
    try:
        document = loads(content, Mark(str(path), 1))
    except EventError as error:
        yield DeadLetter(error.fault, content[:KEPT_BYTES])
        return
    features = document.get("features") if isinstance(document, dict) else None
    if not isinstance(features, list):
        yield DeadLetter(Fault("a FeatureCollection, or one feature a line", "other JSON", where), content[:KEPT_BYTES])
        return
    for ordinal, feature in enumerate(features, 1):
        try:
            yield read_feature(feature, where, ordinal)
        except EventError as error:
            yield DeadLetter(error.fault, orjson.dumps(feature)[:KEPT_BYTES])


if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 10_000
"""Events of one table: enough for columns to pay, few enough to show progress."""

FEATURES = (".geojson", ".json")
"""Endings of files of GeoJSON features; any other holds CloudEvents, one a line."""

OnDeadLetter = Callable[[DeadLetter], None]


Marks = dict[tuple[str, str], Mark]
"""Where control events stand in their files, by source and id: what one changes may turn out wrong when it acts."""


def read_tables(
    paths: Sequence[Path], channels: Sequence[Channel], on_dead: OnDeadLetter, marks: Marks | None = None
) -> Iterator[pa.Table]:
    """Tables of EVENTS of all files, not yet numbered; what cannot be taken goes to `on_dead`, and into `marks` where
    control events stand.
    """
    return as_tables(read_events(paths, channels, on_dead, marks))


def as_tables(events: Iterable[Event]) -> Iterator[pa.Table]:
    """Events as tables of at most `ROWS`."""
    # Columns take longer to load than a small file to read.
    from nearcast.model.columns import to_table

    waiting = iter(events)
    while some := list(islice(waiting, ROWS)):
        yield to_table(some)


def read_events(
    paths: Iterable[Path], channels: Sequence[Channel], on_dead: OnDeadLetter, marks: Marks | None = None
) -> Iterator[Event]:
    """The events of all files, one by one; see `read_tables`."""
    marks = {} if marks is None else marks
    for path in paths:
        features = path.suffix.lower() in FEATURES
        for number, event in enumerate(read_features(path), 1) if features else numbered(path, channels):
            if isinstance(event, DeadLetter):
                on_dead(event)
                continue
            if event.control:
                # Of events with one source and id the first counts.
                marks.setdefault((event.source, event.id), Mark(str(path), number))
            yield event
