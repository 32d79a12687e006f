"""Who may want an event: the index answers as looking at every filter does."""

from __future__ import annotations

import json
from itertools import islice, pairwise
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import Mark
from nearcast.filters.expressions import truth_of
from nearcast.language import cql2
from nearcast.language.definitions.relation_documents import relation_document
from nearcast.model.changes import (
    Change,
    ClientChange,
    ClientRemoval,
    RelationChange,
    RelationRemoval,
    SettingsChange,
    SituationRemoval,
    SubscriptionChange,
    SubscriptionRemoval,
)
from nearcast.model.event import Event
from nearcast.model.filter import And, Atom, Filter, Operator, Or
from nearcast.model.subscription import Roles, Settings, Subscription
from nearcast.routing.filter_index import FilterIndex, required
from nearcast.state.registry import Registry
from nearcast.suppression.interest_index import MOST_ATOMS, Demand, InterestIndex, may_select, outward
from tests import random_filters

HERE = Mark("here")


def relation(id: str, **data: Any) -> RelationChange:
    return RelationChange(relation_document({"id": id, "when": "distance(a, b) < 10", **data}, HERE))


demands = st.lists(random_filters.attribute_atoms(), min_size=1, max_size=3).map(lambda atoms: And(tuple(atoms)))
"""Mostly conjunctions: these are what an index can tell from one another."""

ids = st.sampled_from("123456")
relations = st.sampled_from(
    [
        relation("1", a={"entity": "e1"}, b={"entity": "e2"}, strategy="range-ring"),
        relation("1", a={"entity": "a"}, b={"entity": "s"}),
        relation("2", a="type = 'a'", b="tag = 'z'"),
        relation("3", a="type = 'nearcast.relation'", b="tag = 'z'"),
        RelationChange(
            relation_document({"id": "4", "among": {"client": "ann", "list": "l"}, "within": 3, "count": 2}, HERE)
        ),
    ]
)
relevances = st.sampled_from([None, None, None, None, None, (0.5, 0.0, 1.0), (1.0,)])
changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(
        lambda id, filter, relevance: SubscriptionChange(Subscription(id, ("ann",), filter, relevance)),
        ids,
        st.one_of(demands, demands, demands, random_filters.filters),
        relevances,
    ),
    st.builds(SubscriptionRemoval, ids),
    relations,
    st.builds(RelationRemoval, ids),
    st.builds(lambda names: ClientChange("ann", lists={"l": tuple(names)}), st.lists(st.sampled_from(["a", "e1"]))),
    st.just(ClientRemoval("ann")),
    st.sampled_from([Settings(), Settings(roles=Roles({("r", "t"): {"1": (0.0, 1.0)}}))]).map(SettingsChange),
    st.just(SituationRemoval("none")),
)


def plain(registry: Registry, guards: bool, event: Event) -> tuple[bool, bool]:
    """Whether the event, and its type, may be wanted: every definition is looked at alone."""
    answers = []
    for kind, name in (("subscriptions", SubscriptionChange), ("relations", RelationChange)):
        for one in getattr(registry, kind).values():
            alone = Registry(registry.settings, dict(registry.clients))
            alone.apply(name(one))
            interest_index = InterestIndex(alone, guards)
            scanned = _filters(one, interest_index)
            found = any(may_select(filter, event) for filter in scanned)
            by_type = any(
                may_select(filter, Event("", event.type, ""), is_open=lambda atom: atom.name != "type")
                for filter in scanned
            )
            named = bool(interest_index._entities)
            greedy = interest_index.all
            answers.append((greedy or found or event.entity in interest_index._entities, greedy or named or by_type))
    return any(one for one, _ in answers), any(one for _, one in answers)


def _filters(definition: Any, interest_index: InterestIndex) -> list[Filter]:
    if isinstance(definition, Subscription):
        return [definition.filter]
    return list(interest_index._relations[definition.id][1].filters)


@given(
    st.lists(st.tuples(changes, st.booleans()), max_size=12),
    st.lists(random_filters.events(), max_size=4),
    st.booleans(),
)
def test_the_index_answers_as_the_scan_does(told: list[tuple[Change, bool]], events: list[Event], guards: bool) -> None:
    """Whatever is defined, replaced and removed, looked at now and then or only at the end."""
    registry = Registry()
    interest_index = InterestIndex(registry, guards)
    for change, look in told:
        registry.apply(change)
        if look:
            interest_index.follow_definitions(registry)
    interest_index.follow_definitions(registry)
    for event in events:
        assert plain(registry, guards, event) == (interest_index.wants(event), interest_index.wants_type(event.type))


@given(
    st.lists(st.tuples(changes, st.integers(0, 3)), max_size=12),
    st.lists(random_filters.events(), max_size=3),
)
def test_the_index_follows_in_steps_while_definitions_change(
    told: list[tuple[Change, int]], events: list[Event]
) -> None:
    """Between its steps others may change, ask and follow: in the end it answers as the scan does."""
    registry = Registry()
    interest_index = InterestIndex(registry)
    with mock.patch.multiple("nearcast.suppression.interest_index", STEP=1, READ=1, ASKED=1):
        for change, steps in told:
            registry.apply(change)
            for _ in islice(interest_index.follow_in_steps(registry), steps):
                [interest_index.wants_type(event.type) for event in events]
        while not interest_index.follows(registry):
            for _ in interest_index.follow_in_steps(registry):
                [interest_index.wants_type(event.type) for event in events]
    for event in events:
        assert plain(registry, True, event) == (interest_index.wants(event), interest_index.wants_type(event.type))


@given(demands, st.lists(demands, max_size=5), random_filters.events())
def test_what_selects_an_event_is_found(filter: Filter, others: list[Filter], event: Event) -> None:
    """By the event and by its type, also after others with the same requirements are gone."""
    index = FilterIndex()
    for one in (*others, filter, *others):
        index.add_filter(one)
    for one in (*others, *others):
        index.remove_filter(one)
    assert not may_select(filter, event) or [filter] == list(dict.fromkeys(index.for_event(event)))
    assert {*index.for_event(event)} <= {*index.for_type(event.type)}
    index.remove_filter(filter)
    assert [] == list(index.for_event(event))


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ("type = 'car' AND unit = 'u7' AND speed > 3", {"type": {"car"}, "unit": {"u7"}}),
        ("type IN ('car', 'bus') AND unit = 'u7'", {"type": {"car", "bus"}, "unit": {"u7"}}),
        ("type = 'car' AND unit = 'a' OR type = 'bus' AND line = 'b'", {"type": {"car", "bus"}}),
        ("type = 'car' OR speed > 3", {}),
        ("NOT type = 'car'", {}),
        ("tag IN ('a', 'b') AND tag = 'c'", {"tag": {"c"}}),
        ("time = TIMESTAMP('2026-01-01T12:00:00Z')", {}),
    ],
)
def test_what_filters_require(filter: str, expected: dict[str, set[str]]) -> None:
    """Texts only: numbers are equal to others of another kind, and moments to texts."""
    assert expected == required(cql2.parse(filter, HERE))


def test_few_filters_are_looked_at_for_one_event() -> None:
    """Of many, those of its type and its unit, and those that require neither."""
    index = FilterIndex()
    for number in range(1_000):
        index.add_filter(cql2.parse(f"type = 't{number % 10}' AND unit = 'u{number}'", HERE))
    index.add_filter(cql2.parse("speed > 3", HERE))
    event = Event("1", "t7", "s", attributes=(("unit", "u17"), ("speed", 1)))
    assert 2 == len(list(index.for_event(event)))


def test_many_texts_behind_one_in_are_kept_under_each() -> None:
    """Added and removed in one look at each: the filter is not compared with itself for every text."""
    index = FilterIndex()
    filter = cql2.parse(f"vessel IN {tuple(f'v{number}' for number in range(50_000))}", HERE)
    index.add_filter(filter)
    index.add_filter(filter)
    assert [filter] == list(index.for_event(Event("1", "report", "s", attributes=(("vessel", "v49999"),))))
    assert [] == list(index.for_event(Event("1", "report", "s", attributes=(("vessel", "other"),))))
    index.remove_filter(filter)
    index.remove_filter(filter)
    assert [] == list(index.for_event(Event("1", "report", "s", attributes=(("vessel", "v49999"),))))


def test_a_long_conjunction_is_told_by_its_first_conditions() -> None:
    """What publishers are told selects more, and is held against others in a time that does not grow."""
    listed = tuple(Atom(f"n{number}", Operator.EQ, number) for number in range(20_000))
    assert (And(listed[:MOST_ATOMS]),) == outward(Demand((And(listed),)))
    assert (And(listed[:MOST_ATOMS]),) == outward(Demand((And(listed[:MOST_ATOMS]),)))
    either = Or(tuple(And((first, second)) for first, second in pairwise(listed[: MOST_ATOMS + 1])))
    assert outward(Demand((And((either, *listed[:2])),))) == (And(listed[:2]),)


def test_an_event_that_takes_too_much_work_may_be_wanted() -> None:
    """No more atoms are looked at than the limit of one event allows; an ordinary outline is looked at by all."""
    registry = Registry()
    teeth = [[n / 100, n % 2] for n in range(1_000)]
    lines = {
        name: json.dumps({"type": "LineString", "coordinates": told})
        for name, told in (("dear", teeth), ("short", teeth[:3]))
    }
    for number in range(60):
        # Each crosses every tooth, and none is equal to them.
        text = f"S_EQUALS(geom, LINESTRING({', '.join(f'{10 * (n % 2)} {number / 100 + n / 90}' for n in range(30))}))"
        registry.apply(SubscriptionChange(Subscription(str(number), ("ann",), cql2.parse(text, HERE))))
    found = {}
    for name, line in lines.items():
        with mock.patch("nearcast.suppression.interest_index.truth_of", wraps=truth_of) as compared:
            wanted = InterestIndex(registry).wants(Event("e", "zone", "city", attributes=(("geom", line),)))
        found[name] = wanted, compared.call_count
    assert (False, 60) == found["short"]
    assert found["dear"][0] and 1 < found["dear"][1] < 60
