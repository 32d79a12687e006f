"""Events that are kept beside a journal instead of entering it: the newest one of an entity."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from nearcast.errors import JournalError
from nearcast.model.event import Event, Place
from nearcast.model.values import Value

Kept = Mapping[str, Event | None]
"""By entity the event that is kept of it from now on; None: nothing is any more."""


def stored(kept: Kept) -> bytes:
    """What is kept of some entities from now on: JSON of one list of texts, three in turn of each.

    Those are the entity, its event's fields as JSON, and the payload; null, where nothing is kept. So changes are put
    together without a look into events.
    """
    flat: list[str | None] = []
    for entity, event in kept.items():
        flat += (entity, *((None, None) if event is None else (_fields(event), event.payload.decode())))
    return orjson.dumps(flat)


def restored(changes: Iterable[bytes]) -> list[Event]:
    """What is kept after such changes, one after the other; in the order of acceptance."""
    return by_acceptance(_event(*both) for both in _last(changes).values() if both[0] is not None)


def merged(changes: Iterable[bytes]) -> tuple[int, bytes]:
    """Changes as one, and of how many entities something is kept then."""
    found = {entity: both for entity, both in _last(changes).items() if both[0] is not None}
    return len(found), orjson.dumps([text for entity, both in found.items() for text in (entity, *both)])


def _last(changes: Iterable[bytes]) -> dict[str, tuple[str, str]]:
    """By entity the last of what was stored of it."""
    found: dict[str, tuple[str, str]] = {}
    for change in changes:
        flat = orjson.loads(change)
        found.update(zip(flat[::3], zip(flat[1::3], flat[2::3], strict=True), strict=True))
    return found


def _fields(event: Event) -> str:
    """An event as JSON, without its payload, and its position: it has none."""
    place = event.place
    fields = (
        event.id,
        event.type,
        event.source,
        event.subject,
        event.time,
        event.accepted,
        event.channel,
        event.node,
        None if place is None else (place.coordinates, place.x, place.y, place.z),
        [(name, _plain(value)) for name, value in event.attributes],
        event.about,
    )
    return orjson.dumps(fields).decode()


def _event(fields: str, payload: str) -> Event:
    # Without `about`, as it was written before there was such.
    id, type, source, subject, time, accepted, channel, node, place, attributes, *about = orjson.loads(fields)
    return Event(
        id,
        type,
        source,
        subject,
        _moment(time),
        None if place is None else Place(*place),
        tuple((name, _value(value)) for name, value in attributes),
        payload.encode(),
        channel,
        _moment(accepted),
        node=node,
        about=about[0] if about else None,
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
