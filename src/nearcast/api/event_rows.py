"""Dicts and lines as events: CloudEvents by their `specversion`, any other dict by the rules for the rows of frames."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import orjson

from nearcast.errors import EventError, Fault, Mark
from nearcast.language.cloudevents import (
    KEPT_BYTES,
    MAX_ATTRIBUTES,
    about_of,
    attributes_of,
    channel_of,
    read_event,
    read_line,
)
from nearcast.language.definitions.client_documents import place_of
from nearcast.language.event_degrees import Shapes, check_degrees
from nearcast.model.event import CONTROL_PREFIX, OWN, Event
from nearcast.model.subscription import Channel
from nearcast.model.values import time_of, time_text

TYPE, SOURCE = "row", "rows"
"""What an event's type and source are where neither a column nor a key states them."""

EventLike = Mapping[str, Any] | str | bytes
"""An event as callers have it: a CloudEvent as a dict or as a line of JSON, or a plain dict of attributes."""


def event_of(item: object, row: int, channels: Sequence[Channel] = ()) -> Event:
    """The event that a dict or a line means; `row` is its number. Raises `EventError`."""
    where = Mark(f"row {row}")
    if isinstance(item, (str, bytes)):
        return read_line(item.encode() if isinstance(item, str) else item, where, channels)
    if not isinstance(item, Mapping):
        raise EventError(Fault("an event: a dict, or a line of JSON", f"{type(item).__name__}", where))
    if "specversion" in item:
        return read_event(_document(item), where, channels)
    try:
        return _plain(item, row, channels, where)
    except Fault as fault:
        raise EventError(fault) from None


def label_of(item: object, event: Event, row: int) -> object:
    """What an event is called in results: its id where it has one, else the number of its row."""
    if isinstance(item, Mapping):
        return item.get("id", row)
    return event.id


def content_of(item: object) -> bytes:
    """What a dead letter keeps of an item."""
    if isinstance(item, (str, bytes)):
        return (item.encode(errors="replace") if isinstance(item, str) else item)[:KEPT_BYTES]
    try:
        return orjson.dumps(item, default=str, option=orjson.OPT_NON_STR_KEYS)[:KEPT_BYTES]
    except (TypeError, ValueError, RecursionError):
        return repr(item).encode(errors="replace")[:KEPT_BYTES]


def _document(item: Mapping[str, Any]) -> dict[str, Any]:
    """A CloudEvent as a dict; its time may be a moment."""
    time = item.get("time")
    return {**item, "time": document_text(time)} if isinstance(time, datetime) else dict(item)


def _plain(item: Mapping[str, Any], row: int, channels: Sequence[Channel], where: Mark) -> Event:
    texts = {name: _text(item[name], name, where) for name in ("id", "type", "source") if name in item}
    if item.get("subject") is not None:
        texts["subject"] = _text(item["subject"], "subject", where)
    own = {"id": str(row), "type": TYPE, "source": SOURCE, **texts}
    data = {str(name): value_of(value) for name, value in item.items() if name not in OWN and value is not None}
    if own["type"].startswith(CONTROL_PREFIX):
        document = {"specversion": "1.0", **own, "time": document_text(item.get("time")), "data": data}
        return read_event(document, where, channels)
    time = _time(item.get("time"), where)
    place = place_of(data, where)
    # Of the same form as a frame's row: what is wrong with it is said in the same words.
    channel = channel_of(own["type"], None, place, channels, where)
    shapes: Shapes = []
    attributes = tuple(attributes_of(data, {}, where, shapes))
    check_degrees(shapes, channel, place, channels, where)
    if len(attributes) > MAX_ATTRIBUTES:
        raise Fault(f"at most {MAX_ATTRIBUTES:,} attributes", f"{len(attributes):,}", where)
    subject = own.get("subject")
    about = about_of(own["source"], subject, channel, channels)
    return Event(own["id"], own["type"], own["source"], subject, time, place, attributes, channel=channel, about=about)


def document_text(value: Any) -> Any:
    """One of an event's own fields as a CloudEvent has it: integers and moments as texts."""
    value = value_of(value)
    if isinstance(value, datetime):
        return time_text(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _text(value: object, name: str, where: Mark) -> str:
    value = value_of(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value:
        came = "nothing" if value is None else repr(value)[:80]
        raise Fault(f"{name}, a text that is not empty", came, where)
    return value


def _time(value: object, where: Mark) -> datetime | None:
    if value is None:
        return None
    value = value_of(value)
    if isinstance(value, datetime):
        return value
    text = value if isinstance(value, str) else ""
    moment = time_of(f"{text}T00:00:00Z" if len(text) == 10 else text)
    if moment is None:
        raise Fault("time, as in 2020-01-31T12:00:00Z", repr(value)[:80], where)
    return moment


def value_of(value: Any) -> Any:
    """A Python value as an event holds it: JSON's, and moments in UTC; what it does not know stays as it is."""
    kind = type(value)
    if kind is str or kind is float or kind is bool or kind is int:
        return value
    if isinstance(value, Mapping):
        return {str(name): value_of(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [value_of(inner) for inner in value]
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    # NumPy's scalars and arrays; whoever gives them has imported it.
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.generic, numpy.ndarray)):
        return value_of(value.tolist())
    return value


def _moment(value: datetime) -> datetime:
    """A moment in UTC; without a zone it is taken as UTC, as in texts."""
    # Of another library's kind only the fields are used: it may hold more digits, or be no moment at all.
    fields = (value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond)
    return datetime(*fields, tzinfo=value.tzinfo or UTC, fold=value.fold).astimezone(UTC)
