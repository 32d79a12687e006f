"""The HTTP binding of CloudEvents 1.0: from headers and a body to events as JSON (structured, batched, binary).

A reader of its own: the package `cloudevents` reads one event at a time, takes data that is not JSON for text, and
gives no place for a fault; here each event of a batch stands and falls alone.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote_to_bytes

import orjson

from nearcast.errors import DefinitionError, EventError, Fault, Mark
from nearcast.language.cloudevents import BYTE_ORDER_MARK, is_json_type
from nearcast.language.event_data import other_data
from nearcast.language.json_elements import BLANKS, element_bounds, parts
from nearcast.language.json_text import loads, loads_items, too_deep
from nearcast.model.arrays import Integers
from nearcast.runtime.background import give_way

STRUCTURED = "application/cloudevents+json"
BATCHED = "application/cloudevents-batch+json"

LARGE = 512 * 1024
"""Bytes of a batch that is parsed in parts: as a whole this many take some ten milliseconds."""

TOGETHER = 64 * 1024
"""Bytes of its events that are parsed together, about: a millisecond or two."""

_JSON_DOCUMENT = re.compile(r"application/([\w.+-]+\+)?json")

_REQUEST = Mark("request")
_NAME = re.compile(r"[a-z0-9]+")
_ONCE = ("content-type", "content-encoding")


class UnknownContent(Exception):
    """Content that is no CloudEvent in a form this server reads; `fault` says which are."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        super().__init__(str(fault))


@dataclass(slots=True)
class ReceivedEvents:
    """The events of a request in their order: each one's JSON as an object and as bytes.

    `faults` are those that events have already, by index; the object of such an event is None. `batch`: whether they
    came as a batch, in which each has its place, and not one alone.
    """

    documents: list[Any] = field(default_factory=list)
    contents: list[bytes] = field(default_factory=list)
    faults: dict[int, Fault] = field(default_factory=dict)
    batch: bool = True

    def where(self, index: int) -> Mark:
        """An event's place in the request."""
        return Mark(f"event {index}") if self.batch else _REQUEST

    def add(self, document: Any, content: bytes, fault: Fault | None = None) -> None:
        """Takes the next event."""
        if fault is not None:
            self.faults[len(self.documents)] = fault
        self.documents.append(None if fault is not None else document)
        self.contents.append(content)


def check_json(content_type: str | None) -> None:
    """Raises UnknownContent for a content type that is not JSON."""
    media_type = _media_type(content_type)
    if not _JSON_DOCUMENT.fullmatch(media_type):
        advice = "send the header Content-Type: application/json"
        raise UnknownContent(Fault("a JSON object", f"content type {media_type or 'none'}"[:80], _REQUEST, advice))


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object that a body is. Raises DefinitionError."""
    try:
        found = loads(body, _REQUEST) if body.strip() else None
    except EventError as error:
        raise DefinitionError(error.fault) from None
    if not isinstance(found, dict):
        came = "other JSON" if body.strip() else "nothing"
        raise DefinitionError(Fault("a JSON object", came, _REQUEST, "GET /openapi.json says what may be in it"))
    return found


def batched(content_type: str | None) -> bool:
    """Whether a request with this content type is a batch."""
    return _media_type(content_type) == BATCHED


def read_request(
    headers: Iterable[tuple[str, str]], body: bytes, event_bytes: int, batch_events: int = 100_000
) -> ReceivedEvents:
    """The events of a request in their order; `headers` have lower-case names.

    Raises UnknownContent for other content, EventError for a header that comes twice, and for a batch that is no JSON
    array or has too many events.
    """
    by_name = _once(headers)
    media_type = _media_type(by_name.get("content-type"))
    if media_type == BATCHED:
        return _read_batch(body, event_bytes, batch_events)
    if media_type == STRUCTURED:
        return _read_structured(body)
    if "ce-specversion" in by_name and not media_type.startswith("application/cloudevents"):
        return _read_binary(by_name, media_type, body)
    raise UnknownContent(
        Fault(
            f"{STRUCTURED}, {BATCHED}, or the headers ce-specversion, ce-id, ce-type and ce-source",
            f"content type {media_type or 'none'}" + ("" if "ce-specversion" in by_name else " without ce- headers"),
            Mark("request"),
            "see CloudEvents 1.0, HTTP protocol binding",
        )
    )


def _media_type(content_type: str | None) -> str:
    return (content_type or "").partition(";")[0].strip().lower()


def _once(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers by name, of which those that an event is made of come once."""
    by_name: dict[str, str] = {}
    for name, value in headers:
        if name in by_name and (name.startswith("ce-") or name in _ONCE):
            came = f"{_shown(by_name[name])} and {_shown(value)}"
            raise EventError(Fault(f"the header {name} once", came, _REQUEST, "only one of them could count"))
        by_name[name] = value
    return by_name


def _shown(value: str) -> str:
    return ascii(value)[:40]


def _read_structured(body: bytes) -> ReceivedEvents:
    body = body.removeprefix(BYTE_ORDER_MARK)
    try:
        return _alone(loads(body, _REQUEST), body)
    except EventError as error:
        return _alone(None, body, error.fault)


def _alone(document: Any, content: bytes, fault: Fault | None = None) -> ReceivedEvents:
    found = ReceivedEvents(batch=False)
    found.add(document, content, fault)
    return found


def _read_batch(body: bytes, event_bytes: int, batch_events: int) -> ReceivedEvents:
    body = body.removeprefix(BYTE_ORDER_MARK)
    if len(body) > LARGE:
        return _read_in_parts(body, event_bytes, batch_events)
    try:
        found, contents = loads_items(body, _REQUEST)
    except EventError as error:
        return _one_by_one(body, error, event_bytes, batch_events)
    if contents is None:
        raise EventError(Fault("a JSON array of CloudEvents", "other JSON", _REQUEST))
    _check_count(len(contents), batch_events)
    came = ReceivedEvents()
    _take_items(came, found, contents, event_bytes)
    return came


def _take_items(came: ReceivedEvents, items: list[Any], contents: list[bytes], event_bytes: int) -> None:
    """Takes the next events of a batch, of which each is JSON."""
    first = len(came.documents)
    came.documents += items
    came.contents += contents
    if max(map(len, contents), default=0) > event_bytes:
        for index, content in enumerate(contents, first):
            if len(content) > event_bytes:
                came.faults[index] = _too_large(event_bytes, f"{len(content):,}", came.where(index))
                came.documents[index] = None


def _check_count(count: int, most: int) -> None:
    if count > most:
        expected, came = f"a batch of at most {most:,} events", f"{count:,}"
        raise EventError(Fault(expected, came, _REQUEST, "send it in smaller parts"))


def _read_in_parts(body: bytes, event_bytes: int, batch_events: int) -> ReceivedEvents:
    """The events of a large array, some at a time: between them others have their turn. Raises EventError."""
    bounds = element_bounds(body)
    if bounds is None:
        array = body.lstrip(BLANKS)[:1] == b"["
        came = "one whose brackets or quotes do not match" if array else "something else"
        raise EventError(Fault("a JSON array of CloudEvents", came, _REQUEST, "send the whole array"))
    _check_count(len(bounds), batch_events)
    found = ReceivedEvents()
    for first, last in parts(bounds, TOGETHER):
        _read_part(body, bounds[first:last], event_bytes, found)
        give_way()
    return found


def _read_part(body: bytes, bounds: Integers, event_bytes: int, found: ReceivedEvents) -> None:
    begin, end = int(bounds[0, 0]), int(bounds[-1, 1])
    # What is too large alone is not parsed.
    if len(bounds) > 1 or end - begin <= event_bytes:
        try:
            items, contents = loads_items(b"[%b]" % body[begin:end], _REQUEST)
        except EventError:
            contents = None
        if contents is not None and len(contents) == len(bounds):
            _take_items(found, items, contents, event_bytes)
            return
    _read_apart(body, bounds, event_bytes, found)


def _one_by_one(body: bytes, error: EventError, event_bytes: int, batch_events: int) -> ReceivedEvents:
    """The events of an array that is no JSON as a whole: what is wrong is a fault of its own event only.

    Raises the error of the whole where no array is to be seen.
    """
    bounds = element_bounds(body)
    if bounds is None:
        raise error
    _check_count(len(bounds), batch_events)
    found = ReceivedEvents()
    _read_apart(body, bounds, event_bytes, found, error)
    return found


def _read_apart(
    body: bytes, bounds: Integers, event_bytes: int, found: ReceivedEvents, error: EventError | None = None
) -> None:
    """Reads events of an array each by itself. Raises the error of the whole where between commas there is nothing."""
    for begin, end in bounds.tolist():
        content, where = body[begin:end].strip(BLANKS), found.where(len(found.documents))
        if not content:
            raise error or EventError(Fault("an event between two commas", "nothing", where))
        if len(content) > event_bytes:
            found.add(None, content[:event_bytes], _too_large(event_bytes, f"{len(content):,}", where))
            continue
        try:
            found.add(loads(content, where), content)
        except EventError as own:
            found.add(None, content, own.fault)


def _too_large(event_bytes: int, came: str, where: Mark) -> Fault:
    return Fault(f"an event of at most {event_bytes:,} bytes", came, where)


def _read_binary(headers: dict[str, str], media_type: str, body: bytes) -> ReceivedEvents:
    event: dict[str, object] = {}
    fault = None
    for name, value in headers.items():
        if name.startswith("ce-") and _NAME.fullmatch(name[3:]):
            try:
                event[name[3:]] = header_value(value, name)
            except Fault as found:
                event[name[3:]], fault = value, fault or found
    if headers.get("content-type"):
        event["datacontenttype"] = headers["content-type"]
    if body and (not media_type or is_json_type(media_type)):
        try:
            event["data"] = loads(body.removeprefix(BYTE_ORDER_MARK), Mark("request", 1))
        except EventError as error:
            event["data_base64"] = base64.b64encode(body).decode()
            fault = fault or replace(error.fault, expected=f"data: {error.fault.expected}")
    elif body:
        event.update(other_data(media_type, headers["content-type"], body))
    try:
        return _alone(event, orjson.dumps(event), fault)
    except TypeError:
        return _alone(None, body, fault or too_deep(_REQUEST))


def header_value(value: str, name: str) -> str:
    """The text of a ce- header: quotes taken off, percent-encoding undone (HTTP binding, 3.1.3.2).

    Some senders do not encode: their UTF-8, which HTTP gives as Latin-1, is read as what it is. Raises `Fault` for
    bytes that are no UTF-8.
    """
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    try:
        return unquote_to_bytes(value.encode("latin-1")).decode()
    except UnicodeError:
        expected = f"UTF-8 in the header {name}"
        raise Fault(expected, _shown(value), _REQUEST, f"percent-encode the UTF-8 of {name}, ü as %C3%BC") from None
