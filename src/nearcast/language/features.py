"""Events from GeoJSON: a FeatureCollection, or one feature a line, for matching files that are no CloudEvents.

A feature's properties are attributes by their names, its geometry is the place (`geom`), its id the event's id, else
its ordinal in the file. The type is `feature`, the source the file; a property of these names is `data.NAME`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from nearcast.errors import EventError, Fault, Mark
from nearcast.language.cloudevents import KEPT_BYTES, DeadLetter, loads, read_event, whole_lines
from nearcast.model.event import Event

MAX_COLLECTION = 512 * 1024 * 1024
"""A FeatureCollection is one JSON text and is read whole."""


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
    id = feature.get("id")
    document: dict[str, Any] = {
        "specversion": "1.0",
        "id": str(ordinal if id is None else id),
        "type": "feature",
        "source": where.file,
        # The geometry alone says where a feature is, whatever its properties are named.
        "data": {"geom": feature.get("geometry")} | {f"{name}": value for name, value in properties.items()},
    }
    return read_event(document, where)


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
                yield DeadLetter(error.fault, line[:KEPT_BYTES])


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
