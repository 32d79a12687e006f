"""A delivered event has typed fields, and is the mapping that it came as."""

from __future__ import annotations

from datetime import UTC, datetime

from nearcast.client import DeliveredEvent

DOCUMENT = {
    "specversion": "1.0",
    "id": "e1",
    "type": "closure",
    "source": "city",
    "time": "2026-01-31T13:00:00+01:00",
    "data": {"type": "full", "lane": {"number": 2}, "tags": ["a", "b"], "until": None},
}


def test_its_fields_have_their_types() -> None:
    """A time is a moment in UTC; what is not there is None."""
    event = DeliveredEvent(DOCUMENT)
    assert ("e1", "closure", "city", None) == (event.id, event.type, event.source, event.subject)
    assert datetime(2026, 1, 31, 12, tzinfo=UTC) == event.time
    assert DOCUMENT["data"] == event.data


def test_its_attributes_are_named_as_filters_name_them() -> None:
    """Nested data by dotted names, lists as lists, the event's own before its data's."""
    attributes = DeliveredEvent(DOCUMENT).attributes
    assert ("closure", "full", 2) == (attributes["type"], attributes["data.type"], attributes["lane.number"])
    assert ["a", "b"] == attributes["tags"]
    assert {"id", "source", "time", "specversion"} < attributes.keys()
    assert "until" not in attributes


def test_it_is_the_mapping_that_it_came_as() -> None:
    """Who indexes it goes on doing so."""
    event = DeliveredEvent(DOCUMENT)
    assert DOCUMENT == event == dict(event)
    assert ("e1", "?") == (event["id"], event.get("dataschema", "?"))


def test_an_event_that_the_server_has_lost_is_empty() -> None:
    """It is false, and its fields are empty."""
    event = DeliveredEvent({})
    assert (False, "", None, None, {}) == (bool(event), event.id, event.time, event.data, event.attributes)
