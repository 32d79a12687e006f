"""Sets of values say exactly what the plain evaluator says of each value."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.algebra.intervals import BOTTOM, TOP, Cut, next_number
from nearcast.algebra.texts import Undecided, prefixed, shortest
from nearcast.algebra.value_sets import ALL_VALUES, ValueSet, satisfying
from nearcast.filters.evaluate import satisfies
from nearcast.model.filter import Atom, Operator
from nearcast.model.values import Value
from tests.random_filters import attribute_atoms, values

atoms_of_values = attribute_atoms().filter(lambda atom: atom.operator is not Operator.IS_NULL)
some_values = st.lists(values, min_size=1, max_size=8)


def matches(pattern: str, text: str) -> bool:
    return satisfies(Atom("x", Operator.LIKE, pattern), text) is True


@settings(max_examples=300, deadline=None)
@given(atoms_of_values, some_values)
def test_an_atom_is_satisfied_by_the_values_of_its_set(atom: Atom, some: list[Value]) -> None:
    """And compares with those of the other."""
    holding, comparable = satisfying(atom)
    for value in some:
        truth = satisfies(atom, value)
        assert (truth is True) == (value in holding)
        assert (truth is not None) == (value in comparable)


@settings(max_examples=300, deadline=None)
@given(atoms_of_values, atoms_of_values, some_values)
def test_sets_are_combined_value_by_value(one: Atom, other: Atom, some: list[Value]) -> None:
    """Union, intersection, difference, complement."""
    a, b = satisfying(one)[0], satisfying(other)[0]
    for value in some:
        assert (value in a | b) == (value in a or value in b)
        assert (value in a & b) == (value in a and value in b)
        assert (value in a - b) == (value in a and value not in b)
        assert (value in ALL_VALUES - a) == (value not in a)


@settings(max_examples=300, deadline=None)
@given(atoms_of_values, atoms_of_values, atoms_of_values)
def test_some_value_is_one_of_the_set(one: Atom, other: Atom, third: Atom) -> None:
    """If it says that there is none, the set is covered by its complement too."""
    found: ValueSet = (satisfying(one)[0] & satisfying(other)[0]) - satisfying(third)[0]
    try:
        value = found.some()
    except Undecided:
        return
    assert value is None or value in found
    assert (value is None) == found.within(ValueSet())


patterns = st.text("ab%_", max_size=4)
bounds = st.text("ab", max_size=3)


@settings(max_examples=300, deadline=None)
@given(st.lists(patterns, max_size=2), st.lists(patterns, max_size=2), bounds, st.none() | bounds)
def test_the_shortest_text_is_found_where_there_is_one(
    like: list[str], unlike: list[str], low: str, high: str | None
) -> None:
    """Held against all texts of three letters up to six of them."""
    found = shortest((0, low, 0) if low else BOTTOM, (0, high, 0) if high else TOP, like, unlike)

    def wanted(text: str) -> bool:
        within = low <= text and (not high or text < high)
        return within and all(matches(one, text) for one in like) and not any(matches(one, text) for one in unlike)

    texts = ("".join(letters) for size in range(7) for letters in product("abc", repeat=size))
    expected = next((text for text in texts if wanted(text)), None)
    if found is None:
        assert expected is None
    else:
        assert wanted(found)
        assert expected is None or len(found) <= len(expected)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_no_number_lies_between_neighbours(number: float) -> None:
    """Neither the next integer nor the next double."""
    after = next_number(number)
    assert number < after <= math.floor(number) + 1
    if abs(number) < 1e300:
        assert after <= math.nextafter(float(number), math.inf) or math.nextafter(float(number), math.inf) <= number


@pytest.mark.parametrize(("prefix", "after"), [("a", "b"), ("ab", "ac"), ("a\U0010ffff", "b")])
def test_what_begins_so_is_an_interval(prefix: str, after: str) -> None:
    """Up to the text whose last character is the next one."""
    expected: tuple[Cut, Cut] = ((0, prefix, 0), (0, after, 0))
    assert expected == prefixed(prefix)
    assert (BOTTOM, TOP) == prefixed("")
