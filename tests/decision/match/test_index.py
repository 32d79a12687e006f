"""The columnar matcher against the plain evaluator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.decision.evaluate import level_of, truth
from nearcast.decision.match.index import Index, location_conditions
from nearcast.decision.remembered import asked_of_previous
from nearcast.decision.timeline import Member, Members, Surrounding, Track
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.model.filter import Atom, Filter, Operator, atoms
from nearcast.model.place import Place
from nearcast.model.values import Value
from tests.decision.filters import USERS, events, filters, places


class AsOf:
    """Surroundings of one event, from the whole history before it."""

    def __init__(self, users: Track[str, Place], history: list[Event], position: int) -> None:
        self._users, self._position = users, position
        self._newest = {event.entity: event for event in history if event.position < position}

    def user(self, name: str) -> Place | None:
        return self._users.at(name, self._position)

    def entities(self) -> Iterable[Event]:
        return self._newest.values()


def surrounding(users: Track[str, Place], history: list[Event], filter: Filter) -> Surrounding:
    """The timeline of a history, made entity by entity with the plain evaluator."""
    entities = {}
    for term in location_conditions(filter):
        members = Members()
        for event in history:
            inside = term.conditions is None or truth(term.conditions, event, AsOf(Track(), [], 0)) is True
            members.changes.append((event.position, event.entity, Member(event.place) if inside else None))
        entities[term] = members
    previous: dict[str, Track[str, tuple[Value, ...]]] = {name: Track() for name in asked_of_previous(filter)}
    for name, track in previous.items():
        for event in history:
            track.set(event.entity, event.position, tuple(event.values(name)))
    return Surrounding(users, entities, previous)


users = st.dictionaries(st.sampled_from(USERS[:2]), places).flatmap(
    lambda base: st.lists(st.tuples(st.sampled_from(USERS[:2]), st.integers(1, 8), places), max_size=5).map(
        lambda changes: make_track(base, changes)
    )
)


def make_track(base: dict[str, Place], changes: list[tuple[str, int, Place]]) -> Track[str, Place]:
    track: Track[str, Place] = Track(base)
    for key, position, place in sorted(changes, key=lambda change: change[1]):
        track.set(key, position, place)
    return track


@settings(max_examples=1500, deadline=None)
@given(filters, st.data(), st.lists(events(), min_size=1, max_size=8), users)
def test_the_columnar_matcher_gives_the_level_of_the_plain_evaluator(
    filter: Filter, data: st.DataObject, found: list[Event], users: Track[str, Place]
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
    with patch("nearcast.decision.match.bits.LANES", data.draw(st.sampled_from([1, 3, 1024]))):
        pairs = Index([(filter, classes)]).match(to_table(history), surrounding(users, history, filter))
    assert expected == set(zip(pairs.lanes.tolist(), pairs.levels.tolist(), strict=True))
    assert len(expected) == len(pairs.lanes)


@pytest.mark.parametrize("literal", [2**53 + 1, 2**53 + 3, 2**63 - 1, -(2**53) - 1, -(2**53) - 3])
@pytest.mark.parametrize("operator", list(Operator)[:6])
def test_a_double_compares_exactly_with_an_integer_between_two_doubles(operator: Operator, literal: int) -> None:
    """Also where the nearest double is the one above the integer."""
    event = Event(id="1", type="t", source="s", attributes=(("v", float(literal)),), position=1)
    atom = Atom("v", operator, literal)
    expected = 1 if truth(atom, event, AsOf(Track(), [], 1)) else 0
    assert expected == len(Index([(atom, (0,))]).match(to_table([event]), Surrounding()).lanes)
