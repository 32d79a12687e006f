"""The columnar matcher against the plain evaluator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.errors import Mark
from nearcast.filters.evaluate import EmptyContext, level_of, truth
from nearcast.language.cql2 import parse
from nearcast.matching.computed_atoms import ComputedAtoms
from nearcast.matching.matcher import FilterMatcher, location_conditions
from nearcast.model.columns import to_table
from nearcast.model.event import Event, Place
from nearcast.model.filter import Atom, Filter, Operator, atoms
from nearcast.model.limits import Limits
from nearcast.model.values import Value
from nearcast.state.previous_values import asked_of_previous
from nearcast.state.timeline import EntityMembership, Environment, TermMembers, Timeline
from tests.random_filters import USERS, events, filters, places


class AsOf(EmptyContext):
    """Surroundings of one event, from the whole history before it."""

    def __init__(self, users: Timeline[str, Place], history: list[Event], position: int) -> None:
        self._users, self._position = users, position
        self._newest = {event.entity: event for event in history if event.position < position}

    def user(self, name: str) -> Place | None:
        return self._users.at(name, self._position)

    def entities(self) -> Iterable[Event]:
        return self._newest.values()


def surrounding(users: Timeline[str, Place], history: list[Event], filter: Filter) -> Environment:
    """The timeline of a history, made entity by entity with the plain evaluator."""
    entities = {}
    for term in location_conditions(filter):
        members = TermMembers()
        for event in history:
            inside = term.conditions is None or truth(term.conditions, event, AsOf(Timeline(), [], 0)) is True
            members.changes.append((event.position, event.entity, EntityMembership(event.place) if inside else None))
        entities[term] = members
    previous: dict[str, Timeline[str, tuple[Value, ...]]] = {name: Timeline() for name in asked_of_previous(filter)}
    for name, track in previous.items():
        for event in history:
            track.record_change(event.entity, event.position, tuple(event.values(name)))
    return Environment(users, entities, previous)


def make_track(base: dict[str, Place], changes: list[tuple[str, int, Place]]) -> Timeline[str, Place]:
    track: Timeline[str, Place] = Timeline(base)
    for key, position, place in sorted(changes, key=lambda change: change[1]):
        track.record_change(key, position, place)
    return track


names_and_positions = st.sampled_from([*product(USERS[:2], range(1, 9))])
users = st.builds(
    make_track,
    st.dictionaries(st.sampled_from(USERS[:2]), places),
    st.lists(st.builds(lambda at, place: (*at, place), names_and_positions, places), max_size=5),
)


@settings(max_examples=1500, deadline=None)
@given(filters, st.data(), st.lists(events(), min_size=1, max_size=8), users, st.sampled_from([1, 3, 1024]))
def test_the_columnar_matcher_gives_the_level_of_the_plain_evaluator(
    filter: Filter, data: st.DataObject, found: list[Event], users: Timeline[str, Place], together: int
) -> None:
    """Whatever the filter, the classes, the events and what is around them."""
    count = sum(1 for _ in atoms(filter))
    classes = tuple(data.draw(st.lists(st.integers(-1, 2), min_size=count, max_size=count)))
    history = [replace(event, position=index + 1) for index, event in enumerate(found)]
    expected = {
        (lane, level)
        for lane, event in enumerate(history)
        if (level := level_of(filter, classes, event, AsOf(users, history, event.position))) is not None
    }
    with patch("nearcast.matching.bitset.LANES", together):
        pairs = FilterMatcher([(filter, classes)]).match(to_table(history), surrounding(users, history, filter))
    assert expected == set(zip(pairs.lanes.tolist(), pairs.levels.tolist(), strict=True))
    assert len(expected) == len(pairs.lanes)


@pytest.mark.parametrize("literal", [2**53 + 1, 2**53 + 3, 2**63 - 1, -(2**53) - 1, -(2**53) - 3])
@pytest.mark.parametrize("operator", list(Operator)[:6])
def test_a_double_compares_exactly_with_an_integer_between_two_doubles(operator: Operator, literal: int) -> None:
    """Also where the nearest double is the one above the integer."""
    event = Event(id="1", type="t", source="s", attributes=(("v", float(literal)),), position=1)
    atom = Atom("v", operator, literal)
    expected = 1 if truth(atom, event, AsOf(Timeline(), [], 1)) else 0
    assert expected == len(FilterMatcher([(atom, (0,))]).match(to_table([event]), Environment()).lanes)


@pytest.mark.parametrize(("work", "selected", "beyond"), [(Limits().geometry_work, 200, False), (20, 0, True)])
def test_what_rests_on_the_place_alone_is_decided_once_for_each_place(work: int, selected: int, beyond: bool) -> None:
    """A crowd tells of thousands of pairs at few places. Where a limit is met that is counted as without."""
    filter = parse("S_INTERSECTS(geom, POLYGON((-1 -1, 7 -1, 7 1, -1 1, -1 -1)))", Mark("here"))
    table = to_table([Event(str(n), "t", "s", place=Place("planar", n % 3 * 6.0, 0.0), position=n) for n in range(300)])
    decided, around = list[int](), Environment(limits=Limits(geometry_work=work))
    own = ComputedAtoms._decided

    def counted(*given: Any) -> Any:
        decided.append(len(given[1]))
        return own(*given)

    with patch("nearcast.matching.bitset.LANES", 100), patch.object(ComputedAtoms, "_decided", counted):
        pairs = FilterMatcher([(filter, (0,))]).match(table, around)
    assert [3, *([100] * 3 if beyond else [])] == decided
    assert (selected, beyond) == (len(pairs.lanes), bool(around.excess))
