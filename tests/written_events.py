"""The CloudEvent of an event that a test made of its fields."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from nearcast.language.definitions.client_documents import GEOMETRY_NAMES, is_geometry
from nearcast.model.event import Event, cloud_event
from nearcast.model.values import Value, time_text


def write_event(event: Event) -> dict[str, Any]:
    """The CloudEvent of an event: the payload if it has one, else made of its fields.

    Made of fields, attributes become data under their dotted names, so that reading gives the same attributes again.
    """
    if event.payload:
        document: dict[str, Any] = orjson.loads(event.payload)
        return document
    document = cloud_event(event.id, event.type, event.source, event.subject, event.time)
    data = _data_of(event, document)
    if data:
        document["data"] = data
    return document


def _data_of(event: Event, document: Mapping[str, Any]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    # A geometry tells where it is.
    shaped = any(name in GEOMETRY_NAMES and _shape(value) for name, value in event.attributes)
    if event.place is not None and not shaped:
        names = ("x", "y", "z") if event.place.coordinates == "planar" else ("lon", "lat", "alt")
        data.update(zip(names, (event.place.x, event.place.y, event.place.z), strict=True))
    listed: dict[str, list[Any]] = {}
    for name, value in event.attributes:
        listed.setdefault(name, []).append(_written(value))
    listed.pop("specversion", None)
    for name, values in listed.items():
        plain = name.removeprefix("data.")
        data[plain if plain in document else name] = values if len(values) > 1 else values[0]
    return {name: value for name, value in data.items() if value is not None}


def _shape(value: Value) -> Any:
    """The GeoJSON geometry that an attribute's text holds; None if it holds none."""
    if not isinstance(value, str) or not value.startswith("{"):
        return None
    try:
        geometry = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    return geometry if is_geometry(geometry) else None


def _written(value: Value) -> Any:
    geometry = _shape(value)
    if geometry is not None:
        return geometry
    return time_text(value) if isinstance(value, datetime) else value
