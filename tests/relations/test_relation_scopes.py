"""Local relations see only what enters at their own node, global ones everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.model.changes import RelationRemoval
from nearcast.model.event import MAIN, Event
from nearcast.relations.lanes.scopes import Scopes
from nearcast.testing.relations import Reference
from tests.relations.stories import Restarted, Step, defined, events_told, report, summary
from tests.relations.test_stage import FORMS, changes, planar, shards

NODES = (None, "north", "south")
SCOPES = ("global", {"local": MAIN}, {"local": "north"}, {"local": "south"})


def _entering(event: Event, node: str | None) -> Event:
    fields = {name: getattr(event, name) for name in Event.__slots__}
    return Event(**fields | {"node": node})


reports = st.builds(_entering, planar, st.sampled_from(NODES))
definitions = st.builds(
    lambda number, form, scope: defined(f"r{number}", **form, scope=scope),
    st.integers(0, 2),
    st.sampled_from(FORMS),
    st.sampled_from(SCOPES),
)
steps = st.lists(st.one_of(*[reports] * 6, definitions, definitions, changes), max_size=40)


# What forms and restarts do without scopes `test_stage` tries, on twice as many stories.
@settings(max_examples=150, deadline=None)
@given(steps, st.data())
def test_the_stage_tells_what_the_reference_tells(story: Sequence[Step], data: st.DataObject) -> None:
    """Every event, in the same order, whatever the batches and shards, with a restart between any two."""
    cuts = data.draw(st.lists(st.integers(0, len(story)), max_size=6))
    assert events_told(Reference(), story) == events_told(Restarted(data.draw(shards)), story, cuts)


@settings(max_examples=100, deadline=None)
@given(steps, st.data())
def test_a_local_relation_tells_what_it_would_without_other_nodes(story: Sequence[Step], data: st.DataObject) -> None:
    """Its events are those of a journal into which nothing entered elsewhere."""
    cuts = data.draw(st.lists(st.integers(0, len(story)), max_size=6))
    # What enters elsewhere becomes the removal of a relation that is not there: positions stay.
    alone: list[Step] = [
        RelationRemoval("none") if isinstance(step, Event) and step.node != "north" else step for step in story
    ]
    expected, found = (
        [event for event in events_told(Scopes(), one, cuts) if event.node == "north"] for one in (alone, story)
    )
    assert expected == found


def told(*story: Step, cuts: Sequence[int] = ()) -> list[tuple[Any, ...]]:
    """What both engines tell of a story, in short, with the node."""
    found = events_told(Reference(), story)
    assert found == events_told(Scopes(), story, cuts)
    return [(*summary(event), event.node) for event in found]


def test_a_local_relation_does_not_see_what_enters_elsewhere() -> None:
    """Two within ten metres, of which one entered in the south: the global relation alone tells of them."""
    here, there = defined("here", scope={"local": "north"}), defined("all")
    a, b = report("a", 0, second=1, node="north"), report("b", 1, second=2, node="south")
    assert [(4, "enter", "a", "b", None)] == told(here, there, a, b)
    again = report("b", 2, second=3, node="north")
    assert [(4, "enter", "a", "b", None), (5, "enter", "a", "b", "north")] == told(here, there, a, b, again)


def test_what_entered_elsewhere_last_was_here_before() -> None:
    """A local relation begins with the newest report that entered at its node, also where a newer one did elsewhere."""
    a, b, away = report("a", 0, node="north"), report("b", 1, node="north"), report("b", 500, node="south")
    found = [(4, "enter", "a", "b", "present", "north")]
    assert found == told(a, b, away, defined(scope={"local": "north"}))
    assert found == told(a, b, away, defined(scope={"local": "north"}), cuts=[1, 2, 3])


def test_time_that_passes_elsewhere_does_not_pass_here() -> None:
    """Silence lasts by the node's own reports."""
    relation = defined(time_to_live=5, scope={"local": "north"})
    a, b = report("a", 0, second=0, node="north"), report("b", 1, second=0, node="north")
    entered = (3, "enter", "a", "b", "north")
    assert [entered] == told(relation, a, b, report("c", 999, second=60, node="south"))
    silent = (4, "exit", "a", "b", "silent", "north")
    assert [entered, silent] == told(relation, a, b, report("c", 999, second=60, node="north"))


def test_a_relation_that_becomes_local_ends_before_it_begins_anew() -> None:
    """In whichever direction it goes, so that who listens last hears what holds."""
    a, b = report("a", 0, node="north"), report("b", 1, node="north")
    scopes: list[Any] = ["global", {"local": "north"}, "global"]
    expected = [
        (3, "enter", "a", "b", "present", None),
        (4, "exit", "a", "b", "removed", None),
        (4, "enter", "a", "b", "present", "north"),
        (5, "exit", "a", "b", "removed", "north"),
        (5, "enter", "a", "b", "present", None),
    ]
    assert expected == told(a, b, *(defined(scope=scope) for scope in scopes))


@pytest.mark.parametrize("scope, node", [("local", ""), ({"local": "north"}, "north"), ("global", None)])
def test_scopes_are_read(scope: Any, node: str | None) -> None:
    """The server's own node, one that is named, all."""
    assert node == defined(scope=scope).relation.node


def test_what_is_local_is_so_where_it_is_defined() -> None:
    """A definition is of the node at which it enters."""
    assert "north" == defined(scope="local").relation.at("north").node
    assert "south" == defined(scope={"local": "south"}).relation.at("north").node
