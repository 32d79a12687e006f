"""Events that are kept beside a journal instead of entering it: the newest one of an entity, as two blobs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from nearcast.errors import JournalError
from nearcast.model.event import Event
from nearcast.model.place import Place
from nearcast.model.values import Value

Kept = Mapping[str, Event | None]
"""By entity the event that is kept of it from now on; None: nothing is any more."""

Stored = tuple[bytes, bytes]
"""An event's fields, as JSON, and its payload as it came."""


def stored(event: Event) -> Stored:
    """An event as it is stored; its position is not, for it has none."""
    place = event.place
    fields = (
        event.id,
        event.type,
        event.source,
        event.subject,
        event.time,
        event.accepted,
        event.channel,
        None if place is None else (place.coordinates, place.x, place.y, place.z),
        [(name, _plain(value)) for name, value in event.attributes],
    )
    return orjson.dumps(fields), event.payload


def restored(row: Stored) -> Event:
    """The event that was stored."""
    id, type, source, subject, time, accepted, channel, place, attributes = orjson.loads(row[0])
    return Event(
        id,
        type,
        source,
        subject,
        _moment(time),
        None if place is None else Place(*place),
        tuple((name, _value(value)) for name, value in attributes),
        row[1],
        channel,
        _moment(accepted),
    )


def refuse_beside(others: Mapping[str, bool], node: str) -> None:
    """Refuses an entry node beside others, of which each may be the only one. Raises JournalError."""
    for other in (other for other, alone in others.items() if alone):
        raise JournalError(
            f"expected no access server but {other}, which holds back events of global relations (--suppress), got"
            f" {node}; start {other} once without --suppress, or this one as --node {other} instead of it"
        )


def by_acceptance(events: Iterable[Event]) -> list[Event]:
    """Events in the order of their acceptance."""
    earliest = datetime.min.replace(tzinfo=UTC)
    return sorted(events, key=lambda event: (event.accepted or event.time or earliest, event.entity))


def _plain(value: Value) -> Any:
    """A value as JSON has it; what JSON does not know is told by its kind."""
    if isinstance(value, datetime):
        return {"time": value}
    if isinstance(value, float) and not math.isfinite(value):
        return {"double": repr(value)}
    return value


def _value(plain: Any) -> Value:
    if isinstance(plain, dict):
        [(kind, text)] = plain.items()
        return float(text) if kind == "double" else datetime.fromisoformat(text)
    found: Value = plain
    return found


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
