"""The repository: the newest event of every entity (semantics §1)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.columns import to_events, to_table
from nearcast.model.event import Event
from nearcast.state.repository import Repository
from tests.random_filters import events


@given(st.lists(st.lists(events(), max_size=6), max_size=6), st.sampled_from([0, 1, 10_000]))
def test_the_newest_event_of_every_entity_however_they_come(parts: list[list[Event]], slack: int) -> None:
    """By their moments, whatever the cuts and however often the repository is compacted; late ones are counted."""
    every = [event for part in parts for event in part]
    numbered = iter([replace(event, position=position) for position, event in enumerate(every, 1)])
    repository, newest, late_events = Repository(), dict[str, Event](), 0
    with patch("nearcast.state.repository.SLACK", slack):
        for part in parts:
            taken = [next(numbered) for _ in part]
            for event in taken:
                if (late := _is_late(event, newest.get(event.entity))) is False:
                    newest[event.entity] = event
                late_events += late
            repository.fold_events(to_table(taken))
    assert late_events == repository.late
    expected = sorted(event.position for event in newest.values())
    assert expected == [event.position for event in to_events(repository.newest())]


@given(st.lists(st.lists(st.tuples(events(), st.integers(0, 1)), max_size=6), max_size=6), st.data())
def test_what_there_is_of_all_entities_is_followed(parts: list[list[tuple[Event, int]]], data: st.DataObject) -> None:
    """As if all were counted after each batch, also where an entity is derived by then, or forgotten."""
    repository, position = Repository(), 0
    for part in parts:
        numbered = [replace(event, position=position + at, part=two) for at, (event, two) in enumerate(part, 1)]
        position += len(part)
        repository.fold_events(to_table(numbered))
        ledger = repository._ledger
        assert ledger.totals == ledger._totals_of(np.arange(len(ledger)))
        assert (len(repository.newest()), ledger.totals.known) == (repository.entities, int(ledger.known.sum()))
        if gone := data.draw(st.sets(st.sampled_from(sorted(ledger.numbers)))) if ledger.numbers else ():
            repository.forget(gone)
            assert repository._ledger.totals == repository._ledger._totals_of(np.arange(len(repository._ledger)))


def _is_late(event: Event, newest: Event | None) -> bool:
    """Whether an event is of an earlier moment than the newest of its entity."""
    own, other = event.moment, newest and newest.moment
    return own is not None and other is not None and own < other


def test_a_report_ahead_of_its_acceptance_counts_as_of_that() -> None:
    """What a sender says whose clock is right again an hour later is newer, though its time is earlier."""
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    ahead = Event("ahead", "t", "s", time=noon + timedelta(hours=23), accepted=noon, position=1)
    right = Event("right", "t", "s", time=noon + timedelta(hours=1), accepted=noon + timedelta(hours=1), position=2)
    late = Event("late", "t", "s", time=noon, accepted=noon + timedelta(hours=2), position=3)
    repository = Repository()
    repository.fold_events(to_table([ahead]))
    repository.fold_events(to_table([right, late]))
    assert ["right"] == [event.id for event in to_events(repository.newest())]
    assert (noon, 1) == (ahead.moment, repository.late)


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
