"""The HTTP binding of CloudEvents 1.0: from headers and a body to events as JSON (structured, batched, binary).

A reader of its own: the package `cloudevents` reads one event at a time, takes data that is not JSON for text, and
gives no place for a fault; here each event of a batch stands and falls alone.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

import orjson

from nearcast.errors import DefinitionError, EventError, Fault, Mark
from nearcast.language.json_text import loads, marked, repeated_fault, repeated_key, without_marks

STRUCTURED = "application/cloudevents+json"
BATCHED = "application/cloudevents-batch+json"

_JSON_TYPE = re.compile(r"(application|text)/([\w.+-]+\+)?json")
_JSON_DOCUMENT = re.compile(r"application/([\w.+-]+\+)?json")
_REQUEST = Mark("request")
_NAME = re.compile(r"[a-z0-9]+")


class UnknownContent(Exception):
    """Content that is no CloudEvent in a form this server reads; `fault` says which are."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        super().__init__(str(fault))


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """One event of a request: its JSON as an object and as bytes, or the fault that it has already.

    `index` is its place in a batch.
    """

    document: Any
    content: bytes
    where: Mark
    index: int = 0
    fault: Fault | None = None


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
) -> list[ReceivedEvent]:
    """The events of a request in their order; `headers` have lower-case names.

    Raises UnknownContent for other content, EventError for a batch that is no JSON array or has too many events.
    """
    by_name = dict(headers)
    media_type = _media_type(by_name.get("content-type"))
    if media_type == BATCHED:
        return _read_batch(body, event_bytes, batch_events)
    if media_type == STRUCTURED:
        return [_read_structured(body)]
    if "ce-specversion" in by_name and not media_type.startswith("application/cloudevents"):
        return [_read_binary(by_name, media_type, body)]
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


def _read_structured(body: bytes) -> ReceivedEvent:
    where = Mark("request")
    try:
        return ReceivedEvent(loads(body, where), body, where)
    except EventError as error:
        return ReceivedEvent(None, body, where, fault=error.fault)


def _read_batch(body: bytes, event_bytes: int, batch_events: int) -> list[ReceivedEvent]:
    try:
        found = loads(body, Mark("request"))
    except EventError as error:
        found = _each(body, error)
    if not isinstance(found, list):
        raise EventError(Fault("a JSON array of CloudEvents", "other JSON", Mark("request")))
    if len(found) > batch_events:
        expected = f"a batch of at most {batch_events:,} events"
        raise EventError(Fault(expected, f"{len(found):,}", _REQUEST, "send it in smaller parts"))
    return [_of_batch(index, item, event_bytes) for index, item in enumerate(found)]


def _each(body: bytes, error: EventError) -> Any:
    """An integer beyond 64 bits, or a key that comes twice, is a fault of its own event only; any other fault is one of
    the whole batch.
    """
    try:
        orjson.loads(body)
        return marked(body)
    except (ValueError, RecursionError):
        raise error from None


def _of_batch(index: int, item: Any, event_bytes: int) -> ReceivedEvent:
    where = Mark(f"event {index}")
    key = repeated_key(item)
    if key is not None:
        return ReceivedEvent(None, without_marks(item), where, index, repeated_fault(key, where))
    try:
        content = orjson.dumps(item)
    except TypeError as error:
        return ReceivedEvent(
            item, repr(item).encode(), where, index, Fault("integers within 64 bits", str(error), where)
        )
    fault = None
    if len(content) > event_bytes:
        fault = Fault(f"an event of at most {event_bytes:,} bytes", f"{len(content):,}", where)
    return ReceivedEvent(item, content, where, index, fault)


def _read_binary(headers: dict[str, str], media_type: str, body: bytes) -> ReceivedEvent:
    event: dict[str, object] = {}
    for name, value in headers.items():
        if name.startswith("ce-") and _NAME.fullmatch(name[3:]):
            event[name[3:]] = header_value(value)
    if headers.get("content-type"):
        event["datacontenttype"] = headers["content-type"]
    fault = None
    if body and (not media_type or _JSON_TYPE.fullmatch(media_type)):
        try:
            event["data"] = loads(body, Mark("request", 1))
        except EventError as error:
            event["data_base64"] = base64.b64encode(body).decode()
            fault = replace(error.fault, expected=f"data: {error.fault.expected}")
    elif body:
        event.update(_other_data(media_type, body))
    return ReceivedEvent(event, orjson.dumps(event), Mark("request"), fault=fault)


def _other_data(media_type: str, body: bytes) -> dict[str, object]:
    if media_type.startswith("text/") or media_type.endswith("xml"):
        try:
            return {"data": body.decode()}
        except UnicodeDecodeError:
            pass
    return {"data_base64": base64.b64encode(body).decode()}


def header_value(value: str) -> str:
    """The text of a ce- header: quotes taken off, percent-encoding undone (§3.1.3.2), what is not UTF-8 replaced."""
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    return unquote(value, errors="replace")
