"""The algebra of filters: what it claims is so, and on the decidable part it always decides."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.algebra.comparison import FilterRelation, compare, covers, find, intersects
from nearcast.algebra.constraints import NOTHING_ASSUMED, Premises
from nearcast.errors import Mark
from nearcast.filters.evaluate import NO_CONTEXT, truth
from nearcast.language.cql2 import parse
from nearcast.model.event import Event
from nearcast.model.filter import And, Atom, Filter, Not, Operator, Or, PlainNot
from tests.random_filters import attribute_atoms, events, filters, trees

attribute_filters = trees(attribute_atoms())


def said(text: str) -> Filter:
    return parse(text, Mark("f", 1, 1))


def accepts(filter: Filter, event: Event) -> bool:
    return truth(filter, event, NO_CONTEXT) is True


@st.composite
def related(draw: st.DrawFn) -> tuple[Filter, Filter]:
    """Two filters that share parts, so that they often do relate."""
    a, b, c = draw(filters), draw(filters), draw(filters)
    shapes: list[tuple[Filter, Filter]] = [
        (a, b),
        (And((a, b)), a),
        (Or((a, b)), And((b, a))),
        (And((a, Or((b, c)))), Or((And((a, b)), And((a, c))))),
        (Not(And((a, b))), Or((Not(a), Not(b)))),
        (PlainNot(a), Not(a)),
    ]
    return draw(st.sampled_from(shapes))


def is_single(event: Event) -> bool:
    names = [name for name, _ in event.attributes]
    return len(names) == len(set(names))


def has_integers_only(event: Event) -> bool:
    return not any(type(value) is float and not value.is_integer() for _, value in event.attributes)


@settings(max_examples=150, deadline=None)
@given(related(), st.lists(events(), min_size=3, max_size=12), st.sampled_from([(0, 0), (1, 0), (0, 1), (1, 1)]))
def test_what_it_claims_is_so_for_every_event(
    pair: tuple[Filter, Filter], some: list[Event], kind: tuple[int, int]
) -> None:
    """A relation is never contradicted by an event of the kind that was assumed."""
    first, second = pair
    assumed = Premises(single=bool(kind[0]), integers=bool(kind[1]))
    found = compare(first, second, assumed)
    for event in some:
        if assumed.single > is_single(event) or assumed.integers > has_integers_only(event):
            continue
        a, b = accepts(first, event), accepts(second, event)
        assert not (found.within and a and not b)
        assert not (found.covers and b and not a)
        assert not (found.meet is False and a and b)


@settings(max_examples=100, deadline=None)
@given(related())
def test_its_witnesses_are_what_they_are_called(pair: tuple[Filter, Filter]) -> None:
    """An event shown as accepted by one or both is, by the plain evaluator."""
    first, second = pair
    found = compare(first, second)
    for witness, expected in (
        (found.only_first, (True, False)),
        (found.only_second, (False, True)),
        (found.both, (True, True)),
    ):
        if witness:
            truths = [truth(filter, witness.event, witness) is True for filter in pair]
            assert list(expected) == truths
    assert (found.within is False) == (found.only_first is not None)


@settings(max_examples=150, deadline=None)
@given(attribute_filters, attribute_filters)
def test_about_attributes_it_always_answers(first: Filter, second: Filter) -> None:
    """Filters without location terms are decided, with the one exception of texts and moments of one value."""
    assert FilterRelation.UNKNOWN is not compare(first, second).relation


@settings(max_examples=100, deadline=None)
@given(attribute_filters, attribute_filters, attribute_filters)
def test_covering_is_a_preorder(a: Filter, b: Filter, c: Filter) -> None:
    """Every filter covers itself, and what it covers covers for it."""
    assert covers(a, a) is True
    assert covers(Or((a, b)), a) is True
    assert covers(a, And((a, b))) is True
    if covers(a, b) and covers(b, c):
        assert covers(a, c) is True


def may_have_one_truth(first: Filter, second: Filter) -> bool:
    """Whether nothing says of two filters that not both are TRUE, and FALSE, of the same events."""
    both = [(first, second), (second, first), (Not(first), Not(second)), (Not(second), Not(first))]
    return all(covers(wide, narrow) is not False for wide, narrow in both)


@settings(max_examples=100, deadline=None)
@given(filters, filters)
def test_three_valued_laws_hold(a: Filter, b: Filter) -> None:
    """Double negation, De Morgan and absorption keep every truth; the plain negation of UNKNOWN is TRUE."""
    assert may_have_one_truth(a, Not(Not(a)))
    assert may_have_one_truth(Not(Or((a, b))), And((Not(a), Not(b))))
    assert may_have_one_truth(And((a, Or((a, b)))), a)
    assert covers(PlainNot(a), Not(a)) is not False
    assert intersects(a, PlainNot(a)) is not True


EXAMPLES = [
    ("size > 5", "size > 3", "SUBSET", "SUBSET"),
    ("size > 5", "size < 3", "INTERSECT", "EMPTY"),
    ("type = 'a'", "type = 'b'", "EMPTY", "EMPTY"),
    ("size > 5", "size > 'a'", "INTERSECT", "EMPTY"),
    ("NOT size > 3", "size <= 3", "INTERSECT", "SUPERSET"),
    ("size BETWEEN 1 AND 5", "size >= 1 AND size <= 5", "SUBSET", "EQUAL"),
    ("size IN (1, 2, 'a')", "size = 1 OR size = 2 OR size = 'a'", "EQUAL", "EQUAL"),
    ("size > 9007199254740992", "size >= 9007199254740993", "EQUAL", "EQUAL"),
    ("size > 0.1", "size >= 0.10000000000000002", "EQUAL", "EQUAL"),
    ("size IS NULL", "size IS NOT NULL", "EMPTY", "EMPTY"),
    ("size IS NOT NULL", "size > 3 OR NOT size > 3", "SUPERSET", "SUPERSET"),
    ("name LIKE 'abc%'", "name >= 'abc' AND name < 'abd'", "SUBSET", "EQUAL"),
    ("type LIKE 'abc%'", "type >= 'abc' AND type < 'abd'", "EQUAL", "EQUAL"),
    ("type LIKE '%bc'", "type LIKE '%c'", "SUBSET", "SUBSET"),
    ("type LIKE '%ab%'", "type LIKE '%ba%'", "INTERSECT", "INTERSECT"),
    ("type LIKE '_'", "type LIKE '__'", "EMPTY", "EMPTY"),
    ("type LIKE 'a%' AND type LIKE '%b'", "type LIKE 'a%b'", "EQUAL", "EQUAL"),
    ("at > TIMESTAMP('2026-01-02T00:00:00Z')", "at >= TIMESTAMP('2026-01-01T00:00:00Z')", "SUBSET", "SUBSET"),
    ("at = '2026-01-02T00:00:00Z'", "at = TIMESTAMP('2026-01-02T00:00:00Z')", "SUBSET", "SUBSET"),
    ("at = 'noon'", "at > TIMESTAMP('2026-01-02T00:00:00Z')", "INTERSECT", "EMPTY"),
    ("type LIKE 'a%'", "type = TIMESTAMP('2026-01-02T00:00:00Z')", "EMPTY", "EMPTY"),
    ("type LIKE '2026-01-04%'", "type = TIMESTAMP('2026-01-02T00:00:00Z')", "EMPTY", "EMPTY"),
    ("type LIKE '%+02:00'", "type = TIMESTAMP('2026-01-02T00:00:00Z')", "INTERSECT", "INTERSECT"),
    ("type > TIMESTAMP('2026-01-02T00:00:00Z')", "type < TIMESTAMP('2026-01-02T00:00:00Z')", "EMPTY", "EMPTY"),
    ("flag = TRUE OR flag = FALSE", "flag IN (TRUE, FALSE)", "EQUAL", "EQUAL"),
    ("flag", "flag <> FALSE", "EQUAL", "EQUAL"),
    ("a = 1 AND (b = 1 OR c = 1)", "(a = 1 AND b = 1) OR (a = 1 AND c = 1)", "EQUAL", "EQUAL"),
    ("a BETWEEN 0 AND 10", "a BETWEEN 0 AND 5 OR a BETWEEN 5 AND 10", "EQUAL", "EQUAL"),
    ("type = 5", "size = 1", "EMPTY", "EMPTY"),
    ("distance(user('a'), this) <= 5", "distance(user('a'), this) <= 10", "SUBSET", "SUBSET"),
    ("distance(user('a'), this) <= 5", "distance(user('a'), this) > 5", "EMPTY", "EMPTY"),
    ("S_DWITHIN(this, POINT(11 48), 500)", "S_DWITHIN(this, POINT(11 48), 600)", "SUBSET", "SUBSET"),
    ("S_DWITHIN(this, POINT(11 48), 500)", "S_DWITHIN(this, POINT(12 48), 500)", "UNKNOWN", "UNKNOWN"),
    ("S_DWITHIN(this, POINT(11 48), 500)", "distance(user('a'), this) > 9", "INTERSECT", "INTERSECT"),
    ("distance(uform(), this) <= 5", "distance(uform(), this) > 5", "UNKNOWN", "UNKNOWN"),
    ("count(uform()) > 3", "count(uform()) >= 4", "EQUAL", "EQUAL"),
    ("TRUE", "size > 3", "SUPERSET", "SUPERSET"),
    ("NOT FALSE", "1 = 1", "EQUAL", "EQUAL"),
    ("FALSE OR size > 3", "size > 3 AND NOT 1 > 2", "EQUAL", "EQUAL"),
    ("size > 3 AND 'a' LIKE 'b%'", "size > 3", "EMPTY", "EMPTY"),
    ("1 / 0 = 1", "NOT 1 / 0 = 1", "EMPTY", "EMPTY"),
    ("CASEI(name) = CASEI('A')", "casei(name) = CASEI('a')", "UNKNOWN", "EQUAL"),
    ("CASEI(name) = CASEI('A')", "CASEI(name) = CASEI('B')", "UNKNOWN", "EMPTY"),
    ("CASEI(name) LIKE CASEI('AB%')", "CASEI(name) LIKE CASEI('a%')", "UNKNOWN", "SUBSET"),
    ("NOT CASEI(name) LIKE CASEI('A%')", "CASEI(name) IN (CASEI('B'), 'c')", "UNKNOWN", "SUPERSET"),
    ("name = CASEI('A')", "name = 'a'", "UNKNOWN", "EQUAL"),
    ("size + 1 > 2 * 2", "3 < size + 1", "UNKNOWN", "SUBSET"),
    ("size + 1 > 4", "size + 1 < 3", "UNKNOWN", "EMPTY"),
    ("size < load", "load > size", "UNKNOWN", "EQUAL"),
    ("size < load", "NOT load > size", "UNKNOWN", "EMPTY"),
    ("S_WITHIN(geom, BBOX(0, 0, 1, 1))", "S_CONTAINS(BBOX(0, 0, 1, 1), geom)", "UNKNOWN", "EQUAL"),
    ("T_BEFORE(start, DATE('2026-01-01'))", "T_AFTER(DATE('2026-01-01'), start)", "UNKNOWN", "EQUAL"),
]


@pytest.mark.parametrize(("first", "second", "relation", "unrepeated"), EXAMPLES)
def test_known_relations(first: str, second: str, relation: str, unrepeated: str) -> None:
    """Of events as they come, and of events in which no attribute has several values."""
    assert relation == compare(said(first), said(second)).relation
    assert unrepeated == compare(said(first), said(second), Premises(single=True)).relation


TURNED = {"SUBSET": "SUPERSET", "SUPERSET": "SUBSET"}


@pytest.mark.parametrize(("first", "second", "relation", "_"), EXAMPLES)
def test_a_relation_turns_with_its_filters(first: str, second: str, relation: str, _: str) -> None:
    """SUBSET one way is SUPERSET the other; all others are the same."""
    assert TURNED.get(relation, relation) == compare(said(second), said(first)).relation


def test_an_impossible_filter_is_found_out() -> None:
    """It has nothing in common with any filter, itself included."""
    assert find(said("type = 5 AND size > 3")).possible is False
    assert FilterRelation.EMPTY is compare(said("count(uform()) < 0"), said("count(uform()) < 0")).relation


def test_integers_may_be_assumed() -> None:
    """Then above 50 is from 51 on, and there is nothing between two neighbours."""
    whole = Premises(single=True, integers=True)
    assert FilterRelation.EQUAL is compare(said("high > 50"), said("high >= 51"), whole).relation
    assert FilterRelation.SUPERSET is compare(said("high > 50"), said("high >= 51")).relation
    assert find(said("high > 50 AND high < 51"), whole).possible is False


def test_what_is_too_large_is_unknown() -> None:
    """A question beyond the budget is not answered, and never wrongly."""
    boxes: list[Any] = [
        And(tuple(Or((Atom(f"a{i}", Operator.EQ, i + j), Atom(f"b{j}", Operator.EQ, j))) for i in range(12)))
        for j in range(12)
    ]
    assert find(And((And(tuple(boxes)), PlainNot(Or(tuple(boxes))))), NOTHING_ASSUMED, steps=2).possible in (
        None,
        False,
    )
