"""GeoJSON features as events (RFC 7946).

A feature's properties are attributes by their names, its geometry is the place and, if more than a point, `geom`; its
id is the event's id, else its ordinal. Properties named type, source, subject and time are the event's own if they are
fit for it; without them the type is `feature` and the source the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from nearcast.errors import EventError, Fault, Mark
from nearcast.language.cloudevents import NAME_LENGTH, attributes_of, channel_of, check_length, check_names
from nearcast.language.definitions.client_documents import geometry_text, is_geometry, place_of_geometry
from nearcast.language.event_degrees import Shapes, check_degrees
from nearcast.model.event import Event, cloud_event
from nearcast.model.subscription import Channel
from nearcast.model.values import time_of

_TEXTS = ("type", "source", "subject")


def is_feature(document: object) -> bool:
    """Whether a JSON value is meant as a feature, and no CloudEvent."""
    return isinstance(document, dict) and document.get("type") == "Feature" and "specversion" not in document


def read_feature(
    feature: object,
    where: Mark,
    ordinal: int,
    channels: Sequence[Channel] = (),
    name_length: int = NAME_LENGTH,
) -> Event:
    """The event of one feature, under the same limits as a CloudEvent. Raises `EventError`."""
    try:
        fields, told, geometry = _parts(feature, where, ordinal)
        place = None if geometry is None else place_of_geometry(geometry, where)
        text = None if geometry is None else geometry_text(geometry)
        shape = () if text is None else (("geom", text),)
        time = fields.get("time")
        shapes: Shapes = []
        attributes = attributes_of(told, fields, where, shapes)
        for name in ("id", "type", "source", "subject"):
            check_length(fields.get(name), name, name_length, where)
        check_names(attributes, name_length, where)
        channel = channel_of(fields["type"], None, place, channels, where)
        check_degrees(shapes, channel, place, channels, where)
        return Event(
            id=fields["id"],
            type=fields["type"],
            source=fields["source"],
            subject=fields.get("subject"),
            time=None if time is None else time_of(time),
            # The geometry alone says where a feature is, whatever its properties are named.
            place=place,
            attributes=(*shape, *attributes),
            payload=orjson.dumps(feature),
            channel=channel,
        )
    except Fault as fault:
        raise EventError(fault) from None


def feature_document(feature: object, where: Mark, ordinal: int) -> dict[str, Any]:
    """The CloudEvent that a feature is published as: what is read of it is what is read of the feature. Raises
    `EventError`.
    """
    try:
        fields, told, geometry = _parts(feature, where, ordinal)
    except Fault as fault:
        raise EventError(fault) from None
    time = fields.pop("time", None)
    document = cloud_event(fields["id"], fields["type"], fields["source"], fields.get("subject"), None)
    if time is not None:
        document["time"] = time
    data = told if geometry is None else {**told, "geom": geometry}
    return document | ({"data": data} if data else {})


def _parts(feature: object, where: Mark, ordinal: int) -> tuple[dict[str, str], dict[str, Any], dict[str, Any] | None]:
    """The event's own fields, what else the properties tell, and the geometry if there is one."""
    if not isinstance(feature, dict) or feature.get("type") != "Feature":
        raise Fault("a GeoJSON feature", f"{feature!r}"[:60], where)
    properties = feature.get("properties") or {}
    if not isinstance(properties, dict):
        raise Fault("properties, an object", f"{properties!r}"[:60], where)
    geometry = feature.get("geometry")
    if geometry is not None and not is_geometry(geometry):
        raise Fault("a GeoJSON geometry, or null", f"{geometry!r}"[:60], where, "RFC 7946, 3.1, has seven types")
    fields: dict[str, str] = {"type": "feature", "source": where.file}
    fields |= {name: text for name in _TEXTS if (text := properties.get(name)) and isinstance(text, str)}
    id, time = feature.get("id"), properties.get("time")
    fields["id"] = str(ordinal if id is None else id)
    if isinstance(time, str) and time_of(time):
        fields["time"] = time
    # What became a field is not told again; what did not is told as `data.NAME`.
    told = {name: value for name, value in properties.items() if fields.get(name) != value}
    return fields, told, geometry
