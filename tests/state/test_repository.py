"""The repository: the newest event of every entity (semantics §1)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.columns import to_events, to_table
from nearcast.model.event import Event
from nearcast.model.limits import Limits
from nearcast.state.entity_ledger import EntityLedger
from nearcast.state.event_size import size_of
from nearcast.state.repository import Repository, sizes_of
from tests.random_filters import events


@given(
    st.lists(st.lists(events(), max_size=6), max_size=6),
    st.sampled_from([0, 1, 10_000]),
    st.sampled_from([2, 64]),
    st.data(),
)
def test_the_newest_event_of_every_entity_however_they_come(
    parts: list[list[Event]], slack: int, gathered: int, data: st.DataObject
) -> None:
    """By their moments, whatever the cuts and however often tables are put together; late ones are counted. What was
    kept of a moment stays as it was then, also where it is what the repository goes by later.
    """
    every = [event for part in parts for event in part]
    numbered = iter([replace(event, position=position) for position, event in enumerate(every, 1)])
    repository, newest, late_events = Repository(), dict[str, Event](), 0
    repository.compacted_beside = data.draw(st.booleans())
    kept = []
    module = "nearcast.state.repository"
    with patch(f"{module}.SLACK", slack), patch(f"{module}.GATHERED", gathered):
        for part in parts:
            taken = [next(numbered) for _ in part]
            for event in taken:
                if (late := _is_late(event, newest.get(event.entity))) is False:
                    newest[event.entity] = event
                late_events += late
            repository.fold_events(to_table(taken))
            expected = sorted(event.position for event in newest.values())
            kept.append((expected, repository.superseded() or repository.as_of_now()))
            if data.draw(st.booleans()):
                earlier = data.draw(st.sampled_from(kept))[1]
                earlier.newest()
                repository.adopt(earlier)
                assert repository._rows == sum(map(len, repository._tables))
    assert late_events == repository.late
    for then, moment in kept:
        assert then == [event.position for event in to_events(moment.newest())]
    expected = sorted(event.position for event in newest.values())
    assert expected == [event.position for event in to_events(repository.newest())]


def test_where_it_is_compacted_beside_nobody_waits_for_it_and_what_gathers_has_a_bound() -> None:
    """What is superseded is given out; whoever found the newest of it meanwhile gives it back."""
    repository, module = Repository(), "nearcast.state.repository"
    repository.compacted_beside = True
    given, most = [], 0
    with patch(f"{module}.SLACK", 10), patch(f"{module}.GATHERED", 4):
        for position in range(1, 500):
            repository.fold_events(to_table([Event(f"e{position}", "t", "s", f"s{position % 5}", position=position)]))
            most = max(most, repository._rows)
            if kept := repository.superseded():
                given.append(kept)
            # For a while nobody has time for it.
            if given and not 200 < position < 400 and position % 3 == 0:
                given[-1].newest()
                repository.adopt(given.pop())
            if position == 200:
                assert most <= 5 + 1 * (5 + 10) + 8
    assert most <= 5 + 2 * (5 + 10) + 4
    assert [495, 496, 497, 498, 499] == [event.position for event in to_events(repository.newest())]


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


def test_the_sizes_of_a_slice_and_of_chunks_are_those_of_their_events() -> None:
    """Wherever a table begins within what it is a part of, and whatever lies where no text is."""
    some = [
        Event(str(number), "t", f"s{number}", subject=None if number % 3 else "né", attributes=attributes)
        for number, attributes in enumerate([(("a", 1),), (), (("b", "é"), ("c", "long text")), (("d", True),)] * 3)
    ]
    whole = to_table(some)
    expected = [size_of(event) for event in some]
    hidden = pc.if_else(pc.equal(whole.column("id"), "4"), None, whole.column("id"))
    assert expected == sizes_of(whole).tolist()
    assert expected[2:9] == sizes_of(whole.slice(2, 7)).tolist()
    assert expected[2:9] * 2 == sizes_of(pa.concat_tables([whole.slice(2, 7)] * 2)).tolist()
    assert expected[4] - 1 == sizes_of(whole.set_column(1, "id", hidden)).tolist()[4]
    assert [] == sizes_of(whole.slice(3, 0)).tolist()


@given(
    st.lists(st.lists(events(), max_size=5), max_size=6),
    st.integers(1, 4),
    st.sampled_from([300, 900, 1 << 31]),
    st.sampled_from([3, 1 << 16]),
)
def test_what_is_forgotten_does_not_rest_on_seeing_at_once_that_there_is_room(
    parts: list[list[Event]], entities: int, most: int, sweep: int
) -> None:
    """The outcome is that of looking at every report of every batch."""
    limits, numbered = Limits(entities=entities, entities_bytes=most), iter(range(1, 1000))
    tables = [to_table([replace(event, position=next(numbered)) for event in part]) for part in parts]
    found = []
    for has_room in (EntityLedger.has_room, lambda *_: False):
        repository = Repository()
        with (
            patch("nearcast.state.entity_ledger.SWEEP", sweep),
            patch.object(EntityLedger, "has_room", has_room),
        ):
            for table in tables:
                repository.fold_within(table, limits)
        found.append(
            (repository.newest().column("position").to_pylist(), repository.bytes, repository.entities, repository.late)
        )
    assert found[1] == found[0]
