"""The repository: the newest event of every entity (semantics §1)."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.columns import to_events, to_table
from nearcast.model.event import Event
from nearcast.state.repository import Repository
from tests.random_filters import events


@given(st.lists(st.lists(events(), max_size=6), max_size=6), st.sampled_from([0, 1, 10_000]))
def test_the_newest_event_of_every_entity_however_they_come(parts: list[list[Event]], slack: int) -> None:
    """In the order of the journal, whatever the cuts and however often the repository is compacted."""
    every = [event for part in parts for event in part]
    numbered = iter([replace(event, position=position) for position, event in enumerate(every, 1)])
    repository, newest = Repository(), dict[str, Event]()
    with patch("nearcast.state.repository.SLACK", slack):
        for part in parts:
            taken = [next(numbered) for _ in part]
            newest.update({event.entity: event for event in taken})
            repository.fold_events(to_table(taken))
    expected = sorted(event.position for event in newest.values())
    assert expected == [event.position for event in to_events(repository.newest())]


def test_payloads_stay_in_the_journal() -> None:
    """The repository keeps what decides: place and attributes."""
    repository = Repository()
    repository.fold_events(to_table([Event("e", "t", "s", attributes=(("a", 1),), payload=b"{}", position=1)]))
    (kept,) = to_events(repository.newest())
    assert (("a", 1),) == kept.attributes
    assert not kept.payload


def test_an_entity_is_the_subject_else_the_source() -> None:
    """A source that reports on itself and on others is one entity beside them."""
    repository = Repository()
    found = [("1", None), ("2", "x"), ("3", None), ("4", "s")]
    repository.fold_events(to_table(Event(id, "t", "s", subject, position=int(id)) for id, subject in found))
    assert ["2", "4"] == [event.id for event in to_events(repository.newest())]
