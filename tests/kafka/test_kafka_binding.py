"""Events as Kafka messages, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import Fault
from nearcast.kafka.kafka_binding import KafkaMessage, PlainMessages, event_of, message_of

PLAIN = PlainMessages({"gps": "position"})

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
values = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False), names)
events = st.fixed_dictionaries(
    {"specversion": st.just("1.0"), "id": names, "source": names, "type": names},
    optional={"subject": names, "colour": names, "data": st.dictionaries(names, st.one_of(values, st.lists(values)))},
)


def of(value: bytes | None, key: bytes | None = None, **headers: str) -> KafkaMessage:
    """A message of the topic gps, with headers, whose names have _ for -."""
    written = tuple((name.replace("__", "-"), text.encode()) for name, text in headers.items())
    return KafkaMessage("gps", key, value, written, 2, 7, 1_580_472_000_500)


@given(event=events, structured=st.booleans())
def test_an_event_that_was_written_is_read_as_it_was(event: dict[str, Any], structured: bool) -> None:
    """Structured and binary, in any script."""
    message = message_of(event, "gps", structured, [("nearcast_priority", "0")])
    found = event_of(message, PLAIN)
    found.pop("datacontenttype", None)
    assert event == found
    assert (event.get("subject") or event["source"]).encode() == message.key


@pytest.mark.parametrize(
    ("content_type", "content", "data"),
    [
        ("application/json", b'{"a": 1}', {"data": {"a": 1}}),
        ("", b"[1]", {"data": [1]}),
        ("text/plain; charset=iso-8859-1", b"gr\xfcn", {"data": "grün"}),
        ("image/png", b"\x89PNG", {"data_base64": "iVBORw=="}),
    ],
)
def test_data_of_any_media_type_pass(content_type: str, content: bytes, data: dict[str, Any]) -> None:
    """JSON as what it is, texts as texts, the rest as it came; and out again as the same bytes."""
    head = {"ce_specversion": "1.0", "ce_id": "1", "ce_source": "s", "ce_type": "t"}
    typed = {"content__type": content_type} if content_type else {}
    event = event_of(of(content, **head, **typed), PLAIN)
    assert data == {name: event[name] for name in data}
    back = message_of(event, "gps", False, ())
    assert event.items() <= event_of(back, PLAIN).items()
    assert content.replace(b" ", b"") == (back.value or b"")


def test_a_message_that_is_no_cloudevent_is_an_event_of_its_place() -> None:
    """Named by topic, partition and offset, about its key, at its time."""
    assert {
        "specversion": "1.0",
        "id": "2/7",
        "source": "kafka/gps",
        "type": "position",
        "subject": "van 7",
        "time": "2020-01-31T12:00:00.500000Z",
        "data": {"x": 1},
    } == event_of(of(b'{"x": 1}', b"van 7"), PLAIN)
    assert "gps" == event_of(of(None), PlainMessages())["type"]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (of(b"{"), "JSON"),
        (of(b"1", b"\xff"), "UTF-8 in the key"),
        (of(b"[]", content__type="application/cloudevents+json"), "a CloudEvent, a JSON object"),
        (of(b"[]", content__type="application/cloudevents-batch+json"), "application/cloudevents+json, or ce_"),
        (of(b"{", ce_id="1"), "JSON"),
    ],
)
def test_what_is_no_event_is_told_with_its_place(message: KafkaMessage, expected: str) -> None:
    """Topic, partition and offset."""
    with pytest.raises(Fault) as raised:
        event_of(message, PLAIN)
    assert expected in raised.value.expected
    assert "topic gps, partition 2, offset 7" in str(raised.value)
