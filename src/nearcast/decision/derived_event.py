"""A derived event as the journal has it: a CloudEvent that, read again, would give the same attributes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from nearcast.model.event import Event, cloud_event
from nearcast.model.place import Place
from nearcast.model.values import Value


@dataclass(frozen=True, slots=True)
class Cause:
    """The event that something is derived as of: its place in the journal, its time, when it was accepted."""

    position: int
    time: datetime | None
    accepted: datetime | None

    @property
    def moment(self) -> datetime | None:
        """When it happened, as far as that is known."""
        return self.time or self.accepted


def derived_event(
    type_: str, source: str, id: str, subject: str, data: Any, cause: Cause, place: Place | None, part: int = 0
) -> Event:
    """The event of a type, about a subject, that a cause brings about; its attributes are those of its data."""
    time = cause.moment
    document = {**cloud_event(id, type_, source, subject, time), "data": data}
    attributes: list[tuple[str, Value]] = [("specversion", "1.0")]
    for name, value in data.items() if isinstance(data, dict) else (("data", data),):
        _add_attributes(f"data.{name}" if name in document and isinstance(data, dict) else name, value, attributes)
    return Event(
        id=id,
        type=type_,
        source=source,
        subject=subject,
        time=time,
        place=place,
        attributes=tuple(attributes),
        payload=orjson.dumps(document),
        accepted=cause.accepted,
        position=cause.position,
        part=part,
    )


def _add_attributes(name: str, value: Any, to: list[tuple[str, Value]]) -> None:
    """Adds the attributes that data makes, as at the door: nested names are dotted, lists repeat."""
    if isinstance(value, dict):
        for key, child in value.items():
            _add_attributes(f"{name}.{key}", child, to)
    elif isinstance(value, list):
        for child in value:
            _add_attributes(name, child, to)
    elif value is not None:
        to.append((name, value))
