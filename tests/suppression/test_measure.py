"""What predicates measure, held against what they mean."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import Mark
from nearcast.language.definitions.relation_predicates import read_predicate
from nearcast.model.event import Event, Place
from nearcast.model.relation import Named, Pair, Relation
from nearcast.relations.predicate import RelationPredicate, widened
from nearcast.suppression.strategies.measure import UNREADABLE, measure_of

WHENS = (
    "distance(a, b) < 9",
    "10 > distance(b, a)",
    "distance(a, b) >= 5",
    "a.x - b.y > -3",
    "b.y - a.x <= 2",
    "a.x / b.y < 2",
    "1.5 < b.y / a.x",
    "a.x <= b.y",
    "b.y < a.x",
)
NAMES: dict[Literal["a", "b"], str] = {"a": "x", "b": "y"}

number = st.one_of(st.integers(1, 30), st.floats(0.5, 30))
place = st.one_of(
    st.builds(Place, st.just("planar"), st.floats(0, 9), st.floats(0, 9)),
    st.builds(Place, st.just("geographic"), st.floats(0, 1e-4), st.floats(0, 1e-4)),
)


def relation(when: str, margin: float = 0.0) -> Relation:
    return Relation("r", Pair(Named("a"), Named("b"), read_predicate(when, lambda offset: Mark("here"))), margin=margin)


def event(side: Literal["a", "b"], value: Any, at: Place | None = None) -> Event:
    attributes = () if value is None else ((NAMES[side], value),)
    return Event("1", "unit", "s", side, place=at, attributes=attributes)


@given(st.sampled_from(WHENS), st.sampled_from([0.0, 1.5]), number, number, place, place, st.booleans())
def test_a_bound_holds_where_its_predicate_does(
    when: str, margin: float, x: Any, y: Any, here: Place, there: Place, before: bool
) -> None:
    """For entering, and with the margin for staying: whichever side is first, planar or geographic."""
    about = relation(when, margin)
    measure = measure_of(about)
    if measure is None:
        assert margin and when in ("a.x <= b.y", "b.y < a.x")
        return
    a, b = event("a", x, here), event("b", y, there)
    values = measure.value("a", a), measure.value("b", b)
    bound = measure.bound_for(*values)
    first, second = values if measure.first == "a" else values[::-1]
    assert isinstance(about.about, Pair)
    truth = RelationPredicate(widened(about.about.when, margin if before else 0.0)).truth(a, b)
    # What does not compare, a place in the plane with one on the globe, changes nothing.
    assert (before if truth is None else truth) == bound.holds(first, second, before)


@pytest.mark.parametrize("when", ["a.k = b.k", "a.x + b.x < 3", "a.x - a.y < 3 AND b.x = 1", "distance(a, b) = 3"])
def test_other_predicates_measure_nothing(when: str) -> None:
    """They are evaluated on every report."""
    assert measure_of(relation(when)) is None


def test_what_cannot_be_read() -> None:
    """Nothing is None; several values, texts and numbers that no double holds are unreadable."""
    measure = measure_of(relation("a.x - b.y < 3"))
    assert measure
    assert measure.value("a", event("a", None)) is None
    several = Event("1", "unit", "s", "a", attributes=(("x", 1), ("x", 2)))
    assert [UNREADABLE] * 3 == [measure.value("a", one) for one in (several, event("a", "1"), event("a", 2**60))]
