"""Derived events: behind their causes, decided as of there, in the same batch."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.language.control_events import changes
from nearcast.model.changes import ClientChange
from nearcast.model.columns import to_events, to_table
from nearcast.model.event import Event
from nearcast.model.sequence import position_of, read_sequence, sequence, write_sequence
from nearcast.stages.decide import decide
from nearcast.stages.fold import StateFold
from nearcast.state import derived as module
from nearcast.state.derived import At, StageInput, derived_of, merge_derived, merge_tables, pieces
from nearcast.state.registry import Registry
from tests.stages.test_adapt import ANN, subscribed
from tests.stages.test_stages import as_table


class Echo:
    """A stage that derives two events from each that has not been derived."""

    def passes_over(self, stage_input: StageInput) -> bool:
        return False

    def derive(self, stage_input: StageInput) -> list[Event]:
        return [
            Event(
                f"{event.id}.{number}",
                "nearcast.relation",
                "echo",
                attributes=event.attributes,
                position=event.position,
            )
            for event in to_events(stage_input.events)
            for number in (1, 2)
            if not event.part
        ]


def test_derived_events_are_decided_in_the_batch_of_their_cause() -> None:
    """Behind it, each apart, by the same subscriptions as any other event."""
    [batch] = StateFold(stages=[Echo()]).fold(
        as_table([ANN, subscribed("all"), Event("e", "t", "s", attributes=(("a", 1),))]), changes
    )
    found = decide(batch, batch.events).select(["position", "part", "client", "subscription"]).to_pylist()
    assert [(3, 0), (3, 1), (3, 2)] == [(row["position"], row["part"]) for row in found]
    assert {("ann", "all")} == {(row["client"], row["subscription"]) for row in found}


def test_a_stage_sees_what_the_one_before_it_derived() -> None:
    """Parts go on where those of the earlier stage end."""
    [batch] = StateFold(stages=[Echo(), Echo()]).fold(as_table([Event("e", "t", "s")]), changes)
    assert [("e", 0), ("e.1", 1), ("e.2", 2), ("e.1", 3), ("e.2", 4)] == [
        (event.id, event.part) for event in to_events(batch.events)
    ]


def test_a_stage_hears_what_was_known_before_its_first_batch() -> None:
    """As changes at the position where it begins."""
    heard: list[At] = []

    class Listening(Echo):
        def derive(self, stage_input: StageInput) -> list[Event]:
            heard.extend(stage_input.changes)
            return []

    registry = Registry()
    registry.apply(ClientChange("ann"))
    known = StateFold(registry)
    known.stages = [Listening()]
    for _ in range(2):
        [*_] = known.fold(as_table([Event("e", "t", "s")]), changes)
    assert ["ann"] == [change.client for _, change in heard if isinstance(change, ClientChange)]


@given(st.lists(st.integers(1, 6)), st.lists(st.integers(1, 6)))
def test_parts_number_the_derived_events_of_each_cause(first: list[int], second: list[int]) -> None:
    """From 1 without gaps, however many are woven in and in whatever order they come."""
    events = to_table([Event(str(at), "t", "s", position=at) for at in range(1, 7)])
    for positions in (first, second):
        events = merge_derived(events, [Event(f"d{at}", "t", "s", position=at) for at in positions])
    keys = list(zip(events["position"].to_pylist(), events["part"].to_pylist(), strict=True))
    assert sorted(keys) == keys
    for at in range(1, 7):
        assert list(range(1 + (first + second).count(at))) == [part for position, part in keys if position == at]
    assert len(first) + len(second) == len(derived_of(events))


derivations = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 4), st.booleans()).map(
        lambda one: (one[0], [Event(f"d{one[0]}", "t", "s", position=one[0])] * one[1], one[2])
    ),
    max_size=8,
).map(lambda found: sorted(found, key=lambda one: one[0]))
"""Derived events of six causes, some of them together as a table."""


@given(derivations, st.integers(1, 5))
def test_so_many_derived_events_are_in_memory_together(found: list[tuple[int, list[Event], bool]], most: int) -> None:
    """Pieces together are the whole; each ends with an event, and only those of one cause may be more."""
    events = to_table([Event(str(at), "t", "s", position=at) for at in range(1, 7)])
    derived = [one for _, own, together in found for one in ([to_table(own)] if together else own)]
    with patch.object(module, "AT_ONCE", 1):
        cut = list(pieces(events, derived, most))
    assert merge_derived(events, derived) == pa.concat_tables(piece for piece, _ in cut)
    ends = [until for _, until in cut[:-1]]
    assert None is cut[-1][1]
    for (piece, _), start, stop in zip(cut, [0, *ends], [*ends, 7], strict=True):
        positions = piece.column("position").to_pylist()
        assert all(start <= position < stop for position in positions)
        assert most >= len(derived_of(piece)) or 1 == len(set(derived_of(piece).column("position").to_pylist()))


@given(st.lists(derivations, min_size=1, max_size=3), st.sets(st.tuples(st.integers(1, 6), st.integers(0, 2))))
def test_what_several_derive_is_in_the_order_of_causes(
    sources: list[list[tuple[int, list[Event], bool]]], first: set[tuple[int, int]]
) -> None:
    """Of one cause in the order of the sources, but for those that are to be first."""
    told = [
        [to_table([replace(event, id=f"{number}") for event in own]) for _, own, _ in source]
        for number, source in enumerate(sources)
    ]
    rows = [
        (event.position, number) for number, source in enumerate(told) for one in source for event in to_events(one)
    ]
    expected = sorted(rows, key=lambda one: (one[0], one not in first, one[1]))
    found = [event for table in merge_tables(told, first) for event in to_events(table)]
    assert expected == [(event.position, int(event.id)) for event in found]


@given(st.integers(1, 1 << 42), st.integers(0, (1 << 20) - 1), st.integers(1, 1 << 42), st.integers(0, (1 << 20) - 1))
def test_sequences_order_as_position_and_part_do(position: int, part: int, other: int, another: int) -> None:
    """And what clients are told of one is read as the same one."""
    one, two = sequence(position, part), sequence(other, another)
    assert ((position, part) < (other, another)) == (one < two)
    assert one == read_sequence(write_sequence(one)) and position == position_of(one)
    assert (part == 0) == isinstance(write_sequence(one), int)


@pytest.mark.parametrize("what", [1 << 43, 1 << 63, f"{1 << 43}.1", -1, True, 1.0, "1", None])
def test_what_no_sequence_can_hold_is_not_read(what: object) -> None:
    """The journal's columns have 64 bits."""
    with pytest.raises(ValueError, match="expected a position"):
        read_sequence(what)
