"""Entities by source and subject: everything that names one means both (semantics §1)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

import nearcast
from nearcast.errors import DefinitionError, EventError, Mark
from nearcast.journal.memory import MemoryJournal
from nearcast.language.cloudevents import read_event
from nearcast.model.columns import to_table
from nearcast.model.event import Event, source_and_subject
from nearcast.model.subscription import Channel
from nearcast.suppression.interest_index import Demand, may_select, outward
from nearcast.suppression.leases import Lease, LeasedGuard
from nearcast.suppression.strategies.guards import Anywhere

BOTH = {"channels": {"town": {"coordinates": "planar", "entity": "source and subject"}}}

ASKING = {
    "channels": {"town": {"coordinates": "planar"}},
    "clients": [{"id": "ops", "lists": {"mine": ["city-a 17", "city-b 17"]}}],
    "relations": [
        {"id": "close", "a": "type = 'bus'", "b": "type = 'bus'", "when": "distance(a, b) < 100"},
        {"id": "named", "a": {"entity": "city-a 17"}, "b": {"entity": "city-b 17"}, "when": "distance(a, b) < 200"},
        {"id": "crowd", "among": {"client": "ops", "list": "mine"}, "within": 50, "count": 2},
    ],
    "subscriptions": [
        {"id": "told", "client": "ops", "filter": "type = 'nearcast.relation'"},
        {"id": "line", "client": "ops", "filter": "type = 'bus' AND CHANGED(line)"},
        {"id": "more", "client": "ops", "filter": "n > PREVIOUS(n)"},
        {"id": "near", "client": "ops", "filter": "count(uform(type = 'bus'), this, 60) >= 2"},
    ],
}

report = st.fixed_dictionaries(
    {
        "source": st.sampled_from(["city-a", "city-b", "old town"]),
        "subject": st.sampled_from(["17", "18", None]),
        "x": st.sampled_from([0, 40, 90, 500]),
        "line": st.sampled_from(["7", "9"]),
        "n": st.integers(0, 2),
    }
)


def event(number: int, told: dict[str, Any], named: bool) -> dict[str, Any]:
    """A bus's report; if `named`, its subject is what source and subject together name."""
    subject = source_and_subject(told["source"], told["subject"]) if named else told["subject"]
    document = {"specversion": "1.0", "id": str(number), "type": "bus", "source": told["source"]}
    document["time"] = f"2026-01-01T00:00:{number:02}Z"
    data = {"x": told["x"], "y": 0, "line": told["line"], "n": told["n"]}
    return document | {"subject": subject, "data": data}


@settings(max_examples=15, deadline=None)
@given(st.lists(report, max_size=8))
def test_what_is_told_is_what_subjects_of_both_names_would_make(told: list[dict[str, Any]]) -> None:
    """Relations by filter, by name and in lists, CHANGED, PREVIOUS and uform; of dicts as of frames."""
    plain, both = ([event(number, one, named) for number, one in enumerate(told)] for named in (True, False))
    derived: list[list[Any]] = [[], []]
    expected = nearcast.replay(plain, ASKING, on_derived=derived[0].append)
    assert expected == nearcast.replay(both, ASKING | BOTH, on_derived=derived[1].append)
    assert derived[0] == derived[1]
    if told:
        assert expected == nearcast.replay(pa.Table.from_pylist(both), ASKING | BOTH).to_pylist()


def test_two_cities_both_have_a_bus_17() -> None:
    """By subject alone they are one bus, which is never near itself and whose line changes; by both they are two."""
    told = [{"source": city, "subject": "17", "x": 0, "line": line, "n": 0} for city, line in CITIES]
    events = [event(number, one, named=False) for number, one in enumerate(told)]
    together, apart = nearcast.replay(events, ASKING), nearcast.replay(events, ASKING | BOTH)
    assert ["line", "line"] == [one["subscription"] for one in together if one["subscription"] != "near"]
    assert {"told"} == {one["subscription"] for one in apart if one["subscription"] != "near"}


CITIES = (("city-a", "7"), ("city-b", "9"), ("city-a", "7"))


@pytest.mark.parametrize(
    ("entity", "source", "subject"),
    [("a 1", "a", "1"), ("a", "a", None), ("old%20town 1", "old town", "1"), ("old%20town", "old town", None)],
)
def test_both_names_are_one(entity: str, source: str, subject: str | None) -> None:
    """With a space between; one within a source is written out, so no other source and subject have the same."""
    document = {"specversion": "1.0", "id": "1", "type": "t", "source": source, "subject": subject}
    channels = (Channel("all", "planar", entity="source and subject"),)
    assert entity == read_event(document, Mark("e"), channels).entity
    assert (subject or source) == read_event(document, Mark("e"), (Channel("all", "planar"),)).entity
    assert (subject or source) == Event("1", "t", source, subject).entity


def test_another_word_is_a_fault() -> None:
    """With a guess."""
    channels = {"channels": {"town": {"coordinates": "planar", "entity": "subject and source"}}}
    with pytest.raises(DefinitionError, match="entity: subject or source and subject, got 'subject and"):
        nearcast.Definitions.read(channels)
    with pytest.raises(EventError):
        nearcast.replay([{"specversion": "1.0"}], ASKING | BOTH)


def test_what_is_wanted_of_an_entity_by_both_names_is_wanted_of_its_events() -> None:
    """Filters for publishers know source and subject alone: they select at least what the relation is about."""
    channels = (Channel("all", "planar", entity="source and subject"),)
    names = [("city-a", "17"), ("old town", "17 b"), ("old town", None)]
    events = [
        read_event(
            {"specversion": "1.0", "id": "1", "type": "bus", "source": one, "subject": other}, Mark("e"), channels
        )
        for one, other in names
    ]
    for event in events:
        demand = Demand((), (event.entity, "somebody else"))
        found = outward(demand)
        assert found is not None
        assert any(may_select(filter, event) for filter in found)


def test_a_lease_is_for_the_entity_by_both_names() -> None:
    """The bus 17 of another city is another one, also for who holds it back."""
    channels = (Channel("all", "planar", entity="source and subject"),)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    lease = Lease(1, "city-a 17", frozenset({"bus"}), now, (LeasedGuard("", Anywhere()),))
    document = {"specversion": "1.0", "id": "1", "type": "bus", "subject": "17", "time": "2026-01-01T00:00:05Z"}
    document["data"] = {"x": 1, "y": 1}  # type: ignore[assignment]
    own, other = (read_event({**document, "source": one}, Mark("e"), channels) for one in ("city-a", "city-b"))
    assert (True, False) == (lease.permits(own), lease.permits(other))


def test_what_is_kept_at_a_node_keeps_its_name() -> None:
    """A journal that holds an event back gives it as it was."""
    channels = (Channel("all", "planar", entity="source and subject"),)
    document = {"specversion": "1.0", "id": "1", "type": "bus", "source": "a", "subject": "17"}
    event = read_event(document, Mark("e"), channels)
    journal = MemoryJournal()
    journal.append("events", to_table([]), {event.entity: event})
    assert ["a 17"] == [one.entity for one in journal.kept()]
