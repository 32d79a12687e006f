"""Filters that are large or deep: what can be compiled is, and nothing else is taken down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nearcast.matching.matcher import FilterMatcher
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.model.filter import And, Atom, Filter, Not, Operator, Or, atoms
from nearcast.runtime import jit_warmup
from nearcast.state.timeline import Environment

EVENTS = to_table([Event("1", "t", "s", attributes=(("a", 1), ("b", "x" * 50)), position=1)])
GOOD = Atom("a", Operator.EQ, 1)
SIZE = 2_000


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    """Compiled before anything is tested, for until then rows of bits would be."""
    jit_warmup.wait_for_warmup()


def large() -> Iterator[Filter]:
    """Alternatives in conjunction, whose distribution would have 2^2000 parts, and the like; all select the event."""
    some = [Or((Atom(f"a{number}", Operator.EQ, 1), GOOD)) for number in range(SIZE)]
    every = [And((GOOD, Atom("b", Operator.NE, str(number)))) for number in range(SIZE)]
    yield from (And(tuple(some)), Or(tuple(every)))
    yield Atom("a", Operator.IN, tuple(range(10_000)))
    yield Atom("b", Operator.LIKE, "%x" * 40 + "%" * 10_000)


@pytest.mark.parametrize("many", [0, 99])
def test_large_filters_are_compiled_without_distributing(many: int) -> None:
    """By the engine and by rows of bits."""
    filters = [GOOD, *large()]
    index = FilterMatcher([(filter, (0,) * sum(1 for _ in atoms(filter))) for filter in filters], many=many)
    assert list(range(len(filters))) == sorted(index.match(EVENTS, Environment()).groups.tolist())
    assert [] == index.left_out


@pytest.mark.parametrize("many", [0, 99])
def test_a_filter_that_goes_too_deep_is_left_out_alone(many: int) -> None:
    """Its number is told; no document can hold such a filter."""
    deep: Filter = GOOD
    for _ in range(SIZE):
        deep = And((Not(Not(deep)), GOOD))
    index = FilterMatcher([(GOOD, (0,)), (deep, (0,) * (SIZE + 1))], many=many)
    assert ([0], [1]) == (index.match(EVENTS, Environment()).groups.tolist(), index.left_out)
