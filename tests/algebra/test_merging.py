"""Simplifying and merging: nothing that an event is told by them changes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.algebra.comparison import covers
from nearcast.algebra.merging import merge
from nearcast.algebra.simplify import simplify
from nearcast.errors import Mark
from nearcast.filters.evaluate import NO_CONTEXT, truth
from nearcast.language.cql2 import parse, write
from nearcast.model.event import Event
from nearcast.model.filter import And, Atom, Filter, Or, atoms
from tests.random_filters import attribute_atoms, events, filters

conjunctions = st.lists(attribute_atoms(), min_size=1, max_size=3).map(lambda parts: And(tuple(parts)))


def said(text: str) -> Filter:
    return parse(text, Mark("f", 1, 1))


@st.composite
def alike(draw: st.DrawFn) -> tuple[Filter, Filter]:
    """Two filters that differ in some of their atoms' values."""
    first = draw(conjunctions)
    changed = [draw(st.sampled_from([part, draw(attribute_atoms())])) for part in first.children]
    second = [Atom(was.name, now.operator, now.value) for was, now in zip(atoms(first), changed, strict=True)]
    return first, And(tuple(second))


@settings(max_examples=100, deadline=None)
@given(filters, st.lists(events(), min_size=2, max_size=6))
def test_a_simple_filter_has_the_same_truth(filter: Filter, some: list[Event]) -> None:
    """TRUE, FALSE or UNKNOWN, of every event; and is not longer."""
    simple = simplify(filter)
    assert [truth(filter, event, NO_CONTEXT) for event in some] == [truth(simple, event, NO_CONTEXT) for event in some]
    assert sum(1 for _ in atoms(simple)) <= sum(1 for _ in atoms(filter))


@settings(max_examples=150, deadline=None)
@given(alike(), st.booleans(), st.lists(events(), min_size=2, max_size=6))
def test_a_merge_accepts_all_that_either_accepts(pair: tuple[Filter, Filter], perfect: bool, some: list[Event]) -> None:
    """And a perfect one nothing else."""
    merged = merge(*pair, perfect)
    if merged is None:
        return
    for event in some:
        either = any(truth(filter, event, NO_CONTEXT) is True for filter in pair)
        accepted = truth(merged, event, NO_CONTEXT) is True
        assert accepted >= either
        assert not perfect or accepted == either
    if perfect:
        assert False not in (covers(merged, Or(pair)), covers(Or(pair), merged))


@pytest.mark.parametrize(
    ("simple", "text"),
    [
        ("a IN (1, 2, 3)", "a = 1 OR a = 2 OR a IN (3, 1)"),
        ("a > 5", "a > 3 AND a > 5"),
        ("a >= 3", "a > 3 OR a > 5 OR a = 3"),
        ("a BETWEEN 1 AND 9", "a BETWEEN 1 AND 5 OR a BETWEEN 5 AND 9"),
        ("a = 1", "NOT NOT a = 1"),
        ("a = 1", "a IN (1, 1)"),
        ("a IN (TRUE, 1)", "a IN (TRUE, 1) OR a IN (1, TRUE)"),
        ("a = 1", "(a = 1 AND b = 2) OR a = 1"),
        ("type = 'a'", "type = 'a' AND type IN ('a', 'b')"),
        # One is UNKNOWN of a text, the other of a number, an IN of both of neither.
        ("a = 1 OR a = 'x'", "a = 1 OR a = 'x'"),
        ("a > 3 AND NOT a > 5", "a > 3 AND NOT a > 5"),
        ("name LIKE 'ab%'", "name LIKE 'ab%' OR name LIKE 'abc%' OR name = 'ab'"),
    ],
)
def test_what_is_simple(simple: str, text: str) -> None:
    """One atom for several, nothing redundant, no double negation."""
    assert simple == write(simplify(said(text)))


@pytest.mark.parametrize(
    ("first", "second", "perfect", "imperfect"),
    [
        ("t = 'x' AND a > 3", "t = 'x' AND a < 1", "t = 'x' AND (a > 3 OR a < 1)", "t = 'x' AND (a > 3 OR a < 1)"),
        ("t = 'x' AND b = 1", "t = 'y' AND b = 2", None, "t IN ('x', 'y') AND b IN (1, 2)"),
        ("t = 'x' AND b = 1", "t = 'x' AND c = 2", None, None),
        ("t = 'x' AND b = 1", "t = 'x' AND b = 'z'", None, None),
        ("t = 'x' AND b >= 1", "b >= 0 AND t = 'x'", "b >= 0 AND t = 'x'", "b >= 0 AND t = 'x'"),
    ],
)
def test_what_merges(first: str, second: str, perfect: str | None, imperfect: str | None) -> None:
    """Filters about the same attributes and kinds: perfectly if one clause differs."""
    found = [merge(said(first), said(second), way) for way in (True, False)]
    assert [perfect, imperfect] == [one and write(one) for one in found]
