"""Events that come in: CloudEvents 1.0 as JSON (semantics §1). JSON is read once, here at the door.

Attributes: the CloudEvent's own (but id, type, source, subject, time, which are fields of `Event`) by their names, then
the data: nested objects become dotted names, a list its name several times, null is absent, data that is no object is
the attribute `data`. A data name that the CloudEvent itself has, or that is one of those five fields, is `data.NAME`.
A GeoJSON geometry is one attribute, its JSON as text; under `geometry` or `geom` it is the event's place too, and a
point there is nothing else. Control events keep their data in the payload alone.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import IO, Any

import orjson

from nearcast.errors import EventError, Fault, Mark
from nearcast.language.definitions.client_documents import GEOMETRY_NAMES, is_geometry, place_of
from nearcast.language.event_degrees import Shapes, check_degrees
from nearcast.language.json_text import loads
from nearcast.language.json_values import unwritable
from nearcast.language.time_advice import time_advice
from nearcast.model.event import CONTROL_PREFIX, Event, Place, source_and_subject
from nearcast.model.limits import Limits
from nearcast.model.subscription import Channel
from nearcast.model.values import INTEGER_MAXIMUM, INTEGER_MINIMUM, Value, has_zone, time_of, time_text

MAX_BYTES = 1024 * 1024
MAX_ATTRIBUTES = 1_000
NAME_LENGTH = Limits().name_length
"""Characters of a name where no settings say otherwise."""
MAX_NESTING = 64
LONGEST_PREFIX = 64 * NAME_LENGTH
"""Characters of the name of an object within data: each of its values has it before its own."""
MAX_AHEAD = timedelta(days=1)
"""How far an event's time may lie after its acceptance: beyond it the sender's clock is wrong."""

KEPT_BYTES = 64 * 1024
"""How much of a bad line a dead letter keeps."""

CONTROL_TYPES = (
    "nearcast.client",
    "nearcast.client.removed",
    "nearcast.subscription",
    "nearcast.subscription.removed",
    "nearcast.settings",
    "nearcast.relation.defined",
    "nearcast.relation.removed",
    "nearcast.situation.defined",
    "nearcast.situation.removed",
    "nearcast.action.defined",
    "nearcast.action.removed",
    "nearcast.zones.defined",
    "nearcast.zones.changed",
    "nearcast.zones.removed",
    "nearcast.tick",
)
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""What some editors write before the first line."""

_FIELDS = frozenset({"id", "type", "source", "subject", "time"})
DATA_NAMES = frozenset({"data", "data_base64"})
NO_CONTEXT = _FIELDS | DATA_NAMES
"""Names of a CloudEvent that are no attributes beside the fields of `Event`."""
KNOWN_NAMES = NO_CONTEXT | {"specversion", "datacontenttype", "dataschema"}
"""Names that CloudEvents says something of; every other one is an extension's."""
_JSON_TYPE = re.compile(r"[^\s/]+/(?:[^\s/]+\+)?json", re.IGNORECASE)
EXTENSION_NAME = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What could not be taken: why, and the first 64 KiB of what came."""

    fault: Fault
    content: bytes


def whole_lines(file: IO[bytes], limit: int = MAX_BYTES) -> Iterator[bytes]:
    """The lines of a file; of a line beyond the limit its first `limit` + 1 bytes, so memory stays bounded."""
    # A file may hold a single line of many gigabytes: it is passed over in pieces.
    while line := file.readline(limit + 1):
        ended = line.endswith(b"\n")
        while not ended and (rest := file.readline(limit)):
            ended = rest.endswith(b"\n")
        yield line


def read_line(line: bytes, where: Mark, channels: Sequence[Channel] = (), accepted: datetime | None = None) -> Event:
    """The event that a line of JSON holds; `payload` is the line itself. Raises `EventError`."""
    line = line.strip().removeprefix(BYTE_ORDER_MARK)
    if len(line) > MAX_BYTES:
        raise EventError(Fault(f"an event of at most {MAX_BYTES:,} bytes", f"{len(line):,} or more", where))
    return read_event(loads(line, where), where, channels, accepted, line)


def read_event(
    document: Mapping[str, Any],
    where: Mark,
    channels: Sequence[Channel] = (),
    accepted: datetime | None = None,
    payload: bytes | None = None,
    name_length: int = NAME_LENGTH,
) -> Event:
    """The event that a CloudEvent's JSON object means; see `EventReader`. Raises `EventError` with the first fault."""
    return EventReader(channels, accepted, name_length).read(document, where, payload)


class EventReader:
    """Reads CloudEvents that are accepted at one moment, under the same channels and limits.

    `name_length` bounds ids, types, sources, subjects and the names of attributes. Without `channels` an event of any
    type may have any kind of place.
    """

    def __init__(
        self, channels: Sequence[Channel] = (), accepted: datetime | None = None, name_length: int = NAME_LENGTH
    ) -> None:
        self._channels, self._accepted, self._name_length = tuple(channels), accepted, name_length
        # Looked up once, and not with each event: a table of channels is found by all that they are.
        self._tables, self._composing = _tables(self._channels), _composing(self._channels)
        self._by_arrival = frozenset(one.name for one in self._channels if one.order == "arrival")

    def read(self, document: Mapping[str, Any], where: Mark, payload: bytes | None = None) -> Event:
        """The event that an object means; `payload` is the object as it came, if it came as bytes.

        Raises `EventError` with the first fault; `where` is its place.
        """
        try:
            if not isinstance(document, dict):
                raise Fault("a CloudEvent, a JSON object", _kind(document), where)
            if payload is None:
                # Not orjson: it would turn NaN into null without a word.
                payload = json.dumps(
                    document, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_written_moment
                ).encode()
                if len(payload) > MAX_BYTES:
                    raise Fault(f"an event of at most {MAX_BYTES:,} bytes", f"{len(payload):,}", where)
            return self._event(document, where, payload)
        except Fault as fault:
            raise EventError(fault) from None
        except (TypeError, ValueError, RecursionError) as error:
            raise EventError(unwritable(document, where, error)) from None

    def _event(self, document: dict[str, Any], where: Mark, payload: bytes) -> Event:
        id, type_, source, subject = _names(document, where, self._name_length)
        # Where senders' clocks are not believed, none is refused for what it says.
        time = _time(document.get("time"), where, None if self._by_arrival else self._accepted)
        attributes = _context(document, where)
        control = type_.startswith(CONTROL_PREFIX)
        if control and type_ not in CONTROL_TYPES:
            raise Fault(
                f"one of {', '.join(CONTROL_TYPES)}", type_, where, "types that begin with nearcast. are its own"
            )
        # Control data may be large, and nobody can subscribe to it: it stays in the payload alone.
        shapes: Shapes = []
        place = None if control else _take_data(document, attributes, shapes, where)
        # No name is longer than the event that has it, but one that is told apart from a field by `data.` before it.
        if len(attributes) > MAX_ATTRIBUTES or not 0 < len(payload) < self._name_length - len("data."):
            check_names(attributes, self._name_length, where)
        channel = about = None
        if self._channels:
            if not control:
                channel = _channel_of(type_, document.get("channel"), place, self._tables, self._channels, where)
            about = source_and_subject(source, subject) if channel in self._composing else None
        if self._by_arrival and self._accepted is not None:
            arrived = channel in self._by_arrival
            time = self._accepted if arrived else _time(document.get("time"), where, self._accepted)
        if shapes:
            check_degrees(shapes, channel, place, self._channels, where)
        accepted = self._accepted
        return Event(
            id, type_, source, subject, time, place, tuple(attributes), payload, channel, accepted, about=about
        )


def _written_moment(value: object) -> str:
    """A moment of a dict or frame as JSON has it."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return time_text(value)
    raise TypeError


def _names(document: dict[str, Any], where: Mark, longest: int) -> tuple[str, str, str, str | None]:
    """The id, type, source and subject of a CloudEvent. Raises `Fault`."""
    if document.get("specversion") != "1.0":
        raise Fault('specversion "1.0"', _kind(document.get("specversion")), where, "events are CloudEvents 1.0")
    id, type_ = _required(document, "id", where), _required(document, "type", where)
    source = _required(document, "source", where)
    subject = document.get("subject")
    if subject is not None and (not isinstance(subject, str) or not subject):
        raise Fault("subject, a text that is not empty", _kind(subject), where)
    if max(len(id), len(type_), len(source), len(subject or "")) > longest:
        for name in ("id", "type", "source", "subject"):
            check_length(document.get(name), name, longest, where)
    return id, type_, source, subject


def _context(document: dict[str, Any], where: Mark) -> list[tuple[str, Value]]:
    """The CloudEvent's own attributes that are no fields of `Event`."""
    attributes: list[tuple[str, Value]] = []
    for name, value in document.items():
        if name not in NO_CONTEXT:
            if type(value) is str and name in KNOWN_NAMES:
                attributes.append((name, value))
            else:
                _add_context(name, value, attributes, where)
    return attributes


def _take_data(
    document: dict[str, Any], attributes: list[tuple[str, Value]], shapes: Shapes, where: Mark
) -> Place | None:
    """Adds the data's attributes, and its geometries to `shapes`, and gives the place that it tells."""
    data = _binary(document, where) if document.get("data_base64") is not None else document.get("data")
    if not isinstance(data, dict):
        _add("data", data, attributes, 1, where)
        return None
    attributes += attributes_of(data, document, where, shapes)
    place = place_of(data, where)
    # That has looked at all positions of those that tell a place, of which there may be a hundred thousand.
    placed = [data.get(name) for name in GEOMETRY_NAMES]
    shapes[:] = [one for one in shapes if not any(one[1] is other for other in placed)] if shapes else []
    return place


def check_length(name: str | None, what: str, longest: int, where: Mark | None) -> None:
    """Refuses a name that is too long, and tells its beginning only. Raises `Fault`."""
    if name is not None and len(name) > longest:
        raise Fault(f"{what} of at most {longest:,} characters", f"{len(name):,}, {name[:40]!r}…", where)


def check_names(attributes: Sequence[tuple[str, Value]], longest: int, where: Mark) -> None:
    """Refuses too many attributes, and one whose name is too long. Raises `Fault`."""
    if len(attributes) > MAX_ATTRIBUTES:
        raise Fault(f"at most {MAX_ATTRIBUTES:,} attributes", f"{len(attributes):,}", where)
    for name, _ in attributes:
        # Looked at here, and not by a call: this is done for every attribute of every event.
        if len(name) > longest:
            check_length(name, "the name of an attribute", longest, where)


def _required(document: dict[str, Any], name: str, where: Mark) -> str:
    value = document.get(name)
    if not isinstance(value, str) or not value:
        raise Fault(f"{name}, a text that is not empty", _kind(value), where)
    return value


def _time(written: object, where: Mark, accepted: datetime | None) -> datetime | None:
    if written is None:
        return None
    time = time_of(written) if isinstance(written, str) and has_zone(written) else None
    if time is None:
        raise Fault("time, as in 2020-01-31T12:00:00Z", _kind(written), where, time_advice(written))
    if accepted is not None and time - accepted > MAX_AHEAD:
        ahead = time - accepted
        raise Fault(
            "a time at most a day ahead", f"{written}, {ahead.days} days ahead", where, "check the sender's clock"
        )
    return time


def _add_context(name: str, value: Any, attributes: list[tuple[str, Value]], where: Mark) -> None:
    """One of the CloudEvent's own attributes, an extension perhaps."""
    if name not in KNOWN_NAMES and not EXTENSION_NAME.fullmatch(name):
        advice = "an extension's name is of a-z and 0-9; what the event tells belongs into data"
        raise Fault("an attribute of CloudEvents or an extension", name[:60], where, advice)
    if isinstance(value, (dict, list)):
        raise Fault(f"a text, number or boolean as {name}", _kind(value), where, "objects and lists belong into data")
    _add(name, value, attributes, 1, where)


def _binary(document: dict[str, Any], where: Mark) -> Any:
    """The data within data_base64: read if it is JSON, else only kept in the payload."""
    if document.get("data") is not None:
        raise Fault("data or data_base64", "both", where)
    try:
        content = base64.b64decode(document["data_base64"], validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise Fault("data_base64 in base 64", _kind(document["data_base64"]), where) from None
    written = document.get("datacontenttype")
    if not content or not isinstance(written, str) or not is_json_type(written):
        return None
    try:
        return loads(content.removeprefix(BYTE_ORDER_MARK), where)
    except EventError as error:
        fault = replace(error.fault, expected=f"data_base64: {error.fault.expected}", where=where)
        raise replace(fault, advice=fault.advice or f"datacontenttype says that it is {written[:60]}") from None


def is_json_type(content_type: str) -> bool:
    """Whether a media type, perhaps with parameters, is one of JSON: its subtype is json, or ends with +json."""
    return bool(_JSON_TYPE.fullmatch(content_type.partition(";")[0].strip()))


def attributes_of(
    data: Mapping[str, Any], own: Mapping[str, Any], where: Mark, shapes: Shapes
) -> list[tuple[str, Value]]:
    """The attributes that an object of data makes beside those of the event's `own`; geometries are added to `shapes`
    too. Raises `Fault`.
    """
    attributes: list[tuple[str, Value]] = []
    for name, value in data.items():
        # The type itself, not isinstance: a boolean is an int to Python, and this is the door's innermost loop.
        kind = type(value)
        if name in own and name not in DATA_NAMES and own[name] is not None:
            name = f"data.{name}"
        if kind is str or kind is float or kind is bool:
            attributes.append((name, value))
        elif name not in GEOMETRY_NAMES or not is_geometry(value) or value["type"] != "Point":
            _add(name, value, attributes, 2, where, shapes)
    return attributes


def _add(
    name: str, value: Any, attributes: list[tuple[str, Value]], depth: int, where: Mark, shapes: Shapes | None = None
) -> None:
    kind = type(value)
    if kind is str or kind is float or kind is bool:
        attributes.append((name, value))
    elif kind is int:
        if not INTEGER_MINIMUM <= value <= INTEGER_MAXIMUM:
            raise Fault(f"{name} within 64 bits", str(value), where, "send it as a text or a double")
        attributes.append((name, value))
    elif depth > MAX_NESTING:
        raise Fault(f"data at most {MAX_NESTING} deep", "deeper data", where)
    elif kind is dict and is_geometry(value):
        attributes.append((name, orjson.dumps(value).decode()))
        if shapes is not None:
            shapes.append((name, value))
    elif kind is dict:
        check_length(name, "the name of an object", LONGEST_PREFIX, where)
        for key, child in value.items():
            # Here, and not at the end: each name repeats the one of its object, so a small event may make long ones.
            if len(attributes) > MAX_ATTRIBUTES:
                raise Fault(f"at most {MAX_ATTRIBUTES:,} attributes", "more", where)
            _add(f"{name}.{key}", child, attributes, depth + 1, where, shapes)
    elif kind is list:
        for child in value:
            _add(name, child, attributes, depth + 1, where, shapes)
    elif kind is datetime:
        # JSON has no moments; dicts of Python have.
        attributes.append((name, value))
    elif value is not None:
        raise Fault(f"a JSON value as {name}", _kind(value), where)


def channel_of(type_: str, named: object, place: Place | None, channels: Sequence[Channel], where: Mark) -> str | None:
    """The channel of an event of this type and place that names one, or not; None without channels. Raises `Fault`."""
    return _channel_of(type_, named, place, _tables(tuple(channels)), channels, where) if channels else None


def _channel_of(
    type_: str, named: object, place: Place | None, tables: _Tables, channels: Sequence[Channel], where: Mark
) -> str:
    by_name, by_type, other = tables
    channel = by_name.get(named) if isinstance(named, str) else by_type.get(type_, other)
    if channel is None or (channel.types and type_ not in channel.types):
        known = ", ".join(f"{one.name} ({' '.join(one.types) or 'every other type'})" for one in channels)
        unknown = named is not None and channel is None
        came = f"the unknown channel {str(named)[:80]}" if unknown else f"the type {type_}"
        raise Fault(f"an event for a channel: {known}", came, where)
    if place is not None and place.coordinates != channel.coordinates:
        keys = "x and y" if channel.coordinates == "planar" else "lon and lat"
        raise Fault(
            f"a {channel.coordinates} place in channel {channel.name}",
            f"a {place.coordinates} one",
            where,
            f"it has {keys}",
        )
    return channel.name


def about_of(source: str, subject: str | None, channel: str | None, channels: Sequence[Channel]) -> str | None:
    """The entity of an event in a channel where that names it by source and subject; None elsewhere."""
    if channel is None or channel not in _composing(tuple(channels)):
        return None
    return source_and_subject(source, subject)


@lru_cache(maxsize=64)
def _composing(channels: tuple[Channel, ...]) -> frozenset[str]:
    """The names of the channels that name entities by source and subject."""
    return frozenset(one.name for one in channels if one.entity == "source and subject")


_Tables = tuple[dict[str, Channel], dict[str, Channel], Channel | None]


@lru_cache(maxsize=64)
def _tables(channels: tuple[Channel, ...]) -> _Tables:
    """Channels by name, by type, and the one that takes every other type; the first of several wins."""
    by_type: dict[str, Channel] = {}
    for channel in channels:
        for type_ in channel.types:
            by_type.setdefault(type_, channel)
    return {one.name: one for one in channels}, by_type, next((one for one in channels if not one.types), None)


def _kind(value: object) -> str:
    """What came, in few words."""
    if value is None:
        return "nothing"
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    return repr(value)[:80]
