"""The words as Arrow columns: what travels between the journal, the pipeline and the access servers.

Inside nearcast events are columns; JSON is parsed once, at the door. Attributes are a list of (name, typed value), so
any publisher may send any attributes without a schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import pyarrow as pa

from nearcast.model.event import Event
from nearcast.model.place import Place
from nearcast.model.values import Value, time_of

TIME = pa.timestamp("us", tz="UTC")

ATTRIBUTE = pa.struct(
    [
        ("name", pa.string()),
        ("integer", pa.int64()),
        ("double", pa.float64()),
        ("text", pa.string()),
        ("boolean", pa.bool_()),
        ("time", TIME),
    ]
)
"""One attribute: exactly one value is set, but a text that names a moment has `time` beside `text`."""

EVENTS = pa.schema(
    [
        ("position", pa.int64()),
        ("id", pa.string()),
        ("type", pa.string()),
        ("source", pa.string()),
        ("subject", pa.string()),
        ("time", TIME),
        ("accepted", TIME),
        ("channel", pa.string()),
        ("coordinates", pa.string()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("z", pa.float64()),
        ("attributes", pa.list_(ATTRIBUTE)),
        ("payload", pa.binary()),
    ]
)

ROLE_LEVEL = pa.struct([("role", pa.string()), ("task", pa.string()), ("level", pa.int8())])

DELIVERIES = pa.schema(
    [
        ("position", pa.int64()),
        ("client", pa.string()),
        ("subscription", pa.string()),
        ("level", pa.int8()),
        ("by_role", pa.list_(ROLE_LEVEL)),
    ]
)
"""One row per (position of the event, client). `level` is the level as of the event's position; `by_role`, where a
subscription takes its relevance from roles, the level the event would have under every role and task that selects it,
so that a change of role is a look-up for what still waits (SEMANTICS §3). Null where no role matters."""

OUTCOMES = pa.schema(
    [
        ("position", pa.int64()),
        ("client", pa.string()),
        ("event", pa.int64()),
        ("outcome", pa.string()),
        ("priority", pa.int8()),
        ("attempts", pa.int32()),
        ("queued", TIME),
        ("sent", TIME),
        ("settled", TIME),
    ]
)
"""How a delivery ended. `position` is the outcome's own place in its log, `event` that of the event delivered;
`outcome` is one of `OUTCOME_NAMES`; `sent` is the last sending, null if it never was."""

OUTCOME_NAMES = ("acknowledged", "expired", "conflated", "overflowed", "unsubscribed")

DEAD_LETTERS = pa.schema(
    [
        ("position", pa.int64()),
        ("time", TIME),
        ("where", pa.string()),
        ("reason", pa.string()),
        ("content", pa.binary()),
    ]
)
"""What could not be taken: where it came from, why, and the first 64 KiB of what came."""

LOGS: dict[str, pa.Schema] = {
    "events": EVENTS,
    "deliveries": DELIVERIES,
    "outcomes": OUTCOMES,
    "dead letters": DEAD_LETTERS,
}


def attribute_row(name: str, value: Value) -> dict[str, Any]:
    """One attribute in the shape of `ATTRIBUTE`."""
    row: dict[str, Any] = dict.fromkeys(("integer", "double", "text", "boolean", "time"))
    row["name"] = name
    if isinstance(value, bool):
        row["boolean"] = value
    elif isinstance(value, int):
        row["integer"] = value
    elif isinstance(value, float):
        row["double"] = value
    elif isinstance(value, str):
        row["text"], row["time"] = value, time_of(value)
    else:
        row["time"] = value
    return row


def to_table(events: Iterable[Event]) -> pa.Table:
    """Events as a table of `EVENTS`, in their order."""
    rows = [
        {
            "position": event.position,
            "id": event.id,
            "type": event.type,
            "source": event.source,
            "subject": event.subject,
            "time": event.time,
            "accepted": event.accepted,
            "channel": event.channel,
            "coordinates": event.place.coordinates if event.place else None,
            "x": event.place.x if event.place else None,
            "y": event.place.y if event.place else None,
            "z": event.place.z if event.place else None,
            "attributes": [attribute_row(name, value) for name, value in event.attributes],
            "payload": event.payload,
        }
        for event in events
    ]
    return pa.Table.from_pylist(rows, schema=EVENTS)


def to_events(table: pa.Table) -> list[Event]:
    """The events of a table of `EVENTS`: the inverse of `to_table`."""
    return [_event(row) for row in table.to_pylist()]


def _event(row: dict[str, Any]) -> Event:
    place = None if row["coordinates"] is None else Place(row["coordinates"], row["x"], row["y"], row["z"])
    return Event(
        id=row["id"],
        type=row["type"],
        source=row["source"],
        subject=row["subject"],
        time=row["time"],
        place=place,
        attributes=tuple((attribute["name"], _value(attribute)) for attribute in row["attributes"]),
        payload=row["payload"],
        channel=row["channel"],
        accepted=row["accepted"],
        position=row["position"],
    )


def _value(attribute: dict[str, Any]) -> Value:
    kinds = ("integer", "double", "text", "boolean", "time")
    value: int | float | str | bool | datetime = next(attribute[kind] for kind in kinds if attribute[kind] is not None)
    return value
