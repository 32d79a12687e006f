"""An event of files explained in one pass over them: as if all of them had been folded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.cli.explain_text import as_text
from nearcast.errors import Fault
from nearcast.explain.explanation import explain
from nearcast.explain.past_state import PastState
from nearcast.explain.single_pass import SinglePass
from nearcast.explain.state_at import state_at
from nearcast.explain.why_not import why_not
from nearcast.journal.memory import MemoryJournal
from nearcast.language.control_events import changes, to_event
from nearcast.language.cql2 import write
from nearcast.model.changes import Change, ClientChange, SettingsChange
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.model.limits import Limits
from nearcast.model.subscription import Settings
from nearcast.state.event_size import size_of
from nearcast.state.registry import Registry
from nearcast.state.repository import sizes_of
from tests.random_filters import events
from tests.stages.test_stages import all_settings, every_change

ANN = ClientChange("ann")
narrow = st.sampled_from(
    [
        Limits(),
        Limits(),
        Limits(entity_bytes=300),
        Limits(entities=1),
        Limits(entities_bytes=600),
        Limits(entity_age=60),
    ]
)


def published(history: Sequence[Event | Change]) -> list[Event]:
    """A history as it is read of files: without positions, each with an id of its own."""
    return [
        replace(item, id=str(number)) if isinstance(item, Event) else to_event(item, str(number), "test")
        for number, item in enumerate(history)
    ]


def in_one_pass(history: Sequence[Event], id: str, registry: Registry | None = None) -> PastState | None:
    found = SinglePass(id, None, registry or Registry(), changes)
    for event in history:
        found.follow(event)
    return found.meant()


def folded(history: Sequence[Event], id: str, registry: Registry | None = None) -> PastState:
    journal = MemoryJournal()
    journal.append("events", to_table(history))
    [position] = journal.positions(id)
    return state_at([journal.read("events", 0, len(history))], position, changes, registry)


def told(past: PastState) -> list[str]:
    """What is told of an event, to those who may want it."""
    found = [explain(past.scene, name) for name in ("ann", "bob")]
    return [as_text(one, why_not(one, past, write), None) for one in found]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(events(), events(), every_change), min_size=1, max_size=14), narrow, st.data())
def test_one_pass_tells_what_the_fold_tells(history: list[Event | Change], limits: Limits, data: st.DataObject) -> None:
    """Of any event of any history, some of it repeated; what is beyond the limits is left to the fold."""
    registry = Registry(replace(data.draw(all_settings()), limits=limits))
    story = published([ANN, *history])
    story += data.draw(st.lists(st.sampled_from(story), max_size=2))
    id = data.draw(st.sampled_from(story)).id
    past = in_one_pass(story, id, registry.copy())
    if past is not None:
        assert told(folded(story, id, registry.copy())) == told(past)
    assert past is not None or limits != Limits()


@settings(max_examples=100, deadline=None)
@given(st.lists(events(), max_size=5))
def test_an_event_has_the_size_of_its_row(some: list[Event]) -> None:
    """What is beyond a limit is so in one pass and in columns."""
    assert sizes_of(to_table(some)).tolist() == [size_of(event) for event in some]


def test_what_needs_the_fold() -> None:
    """Forgotten entities, and limits that change on the way."""
    story = published([ANN, Event("", "t", "s", "a"), Event("", "t", "s", "b"), Event("", "t", "s", "a")])
    assert in_one_pass(story, "3") is not None
    assert in_one_pass(story, "3", Registry(Settings(limits=Limits(entities=1)))) is None
    renewed = published([SettingsChange(Settings(limits=Limits(entities=2)))])
    assert in_one_pass([replace(renewed[0], id="new"), *story], "3") is None


def test_an_id_that_no_event_has() -> None:
    """It is said without deriving anything, where nothing can be derived."""
    with pytest.raises(Fault, match="the id of one of the 1 events there are, got 'no'"):
        in_one_pass(published([ANN]), "no")
