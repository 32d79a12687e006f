"""CloudEvents as Kafka messages, and back (CloudEvents, Kafka protocol binding 1.0.2): structured and binary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

from nearcast.errors import EventError, Fault, Mark
from nearcast.language.event_data import content_of, data_of
from nearcast.language.json_text import loads
from nearcast.model.values import time_text

STRUCTURED = "application/cloudevents+json"
JSON = "application/json"
PREFIX = "ce_"

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class KafkaMessage:
    """A message of a topic; `timestamp` in milliseconds since 1970. Without a value it is a tombstone of its key."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int = 0
    offset: int = 0
    timestamp: int | None = None

    @property
    def size(self) -> int:
        """Bytes of value, key and headers."""
        parts = (self.value or b"", self.key or b"", *(part for name, value in self.headers for part in (name, value)))
        return sum(map(len, parts))

    @property
    def where(self) -> Mark:
        """Its place, to name in messages."""
        return Mark(f"topic {self.topic}, partition {self.partition}, offset {self.offset}")


@dataclass(frozen=True, slots=True)
class PlainMessages:
    """What becomes of messages that are no CloudEvents: the type of their events, by topic, else the topic's name.

    Such an event is named by where its message is, so that one message is one event however often it is read; its
    subject is the key, its time that of the message.
    """

    types: Mapping[str, str] = field(default_factory=dict)

    def event(self, message: KafkaMessage) -> dict[str, Any]:
        """The event of a message, whose value is JSON. Raises Fault."""
        event: dict[str, Any] = {
            "specversion": "1.0",
            "id": f"{message.partition}/{message.offset}",
            "source": f"kafka/{message.topic}",
            "type": self.types.get(message.topic, message.topic),
        }
        if message.key:
            event["subject"] = _text(message.key, "the key", message.where)
        if message.timestamp is not None and message.timestamp >= 0:
            event["time"] = time_text(datetime.fromtimestamp(message.timestamp / 1000, UTC))
        if message.value:
            event["data"] = _json(message.value, message.where)
        return event


def event_of(message: KafkaMessage, plain: PlainMessages) -> dict[str, Any]:
    """The CloudEvent of a message, as JSON has it; the server looks at what is in it. Raises Fault for what is none."""
    headers = _named(message)
    content_type = headers.get("content-type", "")
    if content_type.lower().startswith(STRUCTURED):
        event = _json(message.value or b"", message.where)
        if not isinstance(event, dict):
            raise Fault("a CloudEvent, a JSON object", type(event).__name__, message.where)
        return event
    if content_type.lower().startswith("application/cloudevents"):
        raise Fault(f"{STRUCTURED}, or ce_ headers", content_type, message.where)
    attributes = {name[len(PREFIX) :]: value for name, value in headers.items() if name.startswith(PREFIX)}
    if not attributes:
        return plain.event(message)
    if content_type:
        attributes["datacontenttype"] = content_type
    try:
        return {**attributes, **(data_of(content_type, message.value, message.where) if message.value else {})}
    except EventError as error:
        raise error.fault from None


def message_of(event: Mapping[str, Any], topic: str, structured: bool, more: Iterable[tuple[str, str]]) -> KafkaMessage:
    """The message of an event, with `more` headers.

    Its key is what the event says as `partitionkey`, else its subject, else its source: what is about one entity stays
    in its order, and a compacted topic keeps the newest.
    """
    key = str(event.get("partitionkey") or event.get("subject") or event.get("source") or "").encode()
    added = tuple((name, value.encode()) for name, value in more)
    if structured:
        return KafkaMessage(topic, key, orjson.dumps(dict(event)), (("content-type", STRUCTURED.encode()), *added))
    attributes = {name: value for name, value in event.items() if name not in ("data", "data_base64")}
    content_type = str(attributes.pop("datacontenttype", JSON))
    headers = [(f"{PREFIX}{name}", _written(value).encode()) for name, value in attributes.items() if value is not None]
    value = content_of(event, content_type)
    if value is not None:
        headers.append(("content-type", content_type.encode()))
    return KafkaMessage(topic, key, value, (*headers, *added))


def _named(message: KafkaMessage) -> dict[str, str]:
    """Headers as texts, by their names in lower case; those that are no texts and not ours are left out."""
    found: dict[str, str] = {}
    for name, value in message.headers:
        name = name.lower()
        if name == "content-type" or name.startswith(PREFIX):
            found[name] = _text(value, f"the header {name}", message.where)
    return found


def _text(value: bytes, what: str, where: Mark) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Fault(f"UTF-8 in {what}", repr(value[:40]), where) from None


def _json(value: bytes, where: Mark) -> Any:
    try:
        return loads(value, where)
    except EventError as error:
        raise error.fault from None


def _written(value: Any) -> str:
    """An attribute as a header: texts as they are, truth as CloudEvents writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)
