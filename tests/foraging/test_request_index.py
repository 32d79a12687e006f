"""The request index answers as a plain list of filters would, whatever came and lapsed."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nearcast.filters.evaluate import compare
from nearcast.foraging.request_index import RANGED, RequestIndex
from nearcast.model.filter import Atom, Operator
from nearcast.model.foraging import REQUESTED
from nearcast.model.values import Value, kind_of

NAMES = ("Temperature", "Smoke")
VALUES: list[Value] = [*range(6), 2.5, 2**53, 2.0**53, 2**53 + 1, True, False, "a", "b", float("inf")]


@dataclass
class Plain:
    """The naive list: every right of every filter, held against every reading."""

    rights: list[tuple[Atom, float, float]] = field(default_factory=list)

    def matching(self, name: str, value: Value, now: float) -> list[tuple[Atom, float]]:
        return [
            (atom, within)
            for atom, until, within in self.rights
            if until > now and atom.name == name and compare(atom.operator, value, atom.value) is True
        ]


class Sequences(RuleBasedStateMachine):
    """Any sequence of adding, expiring and matching."""

    @initialize()
    def begin(self) -> None:
        self.index, self.plain, self.now = RequestIndex(), Plain(), 0

    @rule(
        name=st.sampled_from(NAMES),
        operator=st.sampled_from(REQUESTED),
        value=st.sampled_from(VALUES),
        lasting=st.integers(1, 6),
        within=st.integers(1, 4),
    )
    def add(self, name: str, operator: Operator, value: Value, lasting: int, within: int) -> None:
        atom = Atom(name, operator, value)
        self.index.register(atom, self.now + lasting, within)
        self.plain.rights.append((atom, self.now + lasting, within))

    @rule(by=st.integers(1, 3))
    def wait(self, by: int) -> None:
        self.now += by

    @rule()
    def expire(self) -> None:
        self.index.expire(self.now)

    @rule(name=st.sampled_from(NAMES), value=st.sampled_from([*VALUES, -1, 3.5, float("nan"), "aa"]))
    def match(self, name: str, value: Value) -> None:
        matching = self.plain.matching(name, value, self.now)
        assert max((within for _, within in matching), default=None) == self.index.match(name, value, self.now)
        assert {(atom.operator, atom.value) for atom, _ in matching} == self.index.satisfied(name, value, self.now)

    @invariant()
    def an_equal_that_stands_for_itself_is_covered_by_no_range(self) -> None:
        for name in NAMES:
            for kind in ("number", "boolean", "text"):
                listing = self.index.listing(name, kind)  # type: ignore[arg-type]
                ranges = [(operator, value) for operator in RANGED for value, _ in listing.get(operator, [])]
                alone = [value for value, _ in listing.get(Operator.EQ, [])]
                assert [] == [one for one in alone for operator, value in ranges if compare(operator, one, value)]

    @invariant()
    def the_index_counts_its_filters(self) -> None:
        self.index.expire(self.now)
        live = {
            (atom.name, atom.operator, kind_of(atom.value), atom.value)  # type: ignore[arg-type]
            for atom, until, _ in self.plain.rights
            if until > self.now
        }
        assert len(live) == len(self.index)


TestSequences = Sequences.TestCase
TestSequences.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def index_of(*filters: tuple[Operator, Value, float]) -> RequestIndex:
    index = RequestIndex()
    for operator, value, until in filters:
        index.register(Atom("Temperature", operator, value), until, 100.0)
    return index


def test_weak_filters_come_first() -> None:
    """Ascending for greater, descending for less, as figure 3 has them."""
    filters = [(operator, value, 9.0) for operator in (Operator.GT, Operator.LT) for value in (30, 10, 20)]
    listing = index_of(*filters).listing("Temperature")
    assert [10, 20, 30] == [value for value, _ in listing[Operator.GT]]
    assert [30, 20, 10] == [value for value, _ in listing[Operator.LT]]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_an_equal_that_a_range_covers_hangs_under_it(order: tuple[int, int]) -> None:
    """The paper's own case: "= 22" needs no filter where there is "> 20", whichever came first."""
    filters = [(Operator.GT, 20, 9.0), (Operator.EQ, 22, 9.0)]
    listing = index_of(*(filters[which] for which in order)).listing("Temperature")
    assert ([(20, [22])], []) == (listing[Operator.GT], listing[Operator.EQ])


def test_what_hangs_under_a_lapsed_filter_moves_to_its_left() -> None:
    """Listing 3, line 6."""
    index = index_of((Operator.GT, 10, 9.0), (Operator.GT, 20, 1.0), (Operator.EQ, 22, 9.0))
    index.expire(1.0)
    assert [(10, [22])] == index.listing("Temperature")[Operator.GT]


def test_what_hangs_under_the_first_filter_stands_for_itself_when_that_lapses() -> None:
    """Listing 3, lines 1 to 4."""
    index = index_of((Operator.GT, 20, 1.0), (Operator.GT, 30, 9.0), (Operator.EQ, 22, 9.0))
    index.expire(1.0)
    listing = index.listing("Temperature")
    assert ([(30, [])], [(22, [])]) == (listing[Operator.GT], listing[Operator.EQ])


def test_or_hangs_under_another_range_that_covers_it() -> None:
    """Rather than be searched for on its own."""
    index = index_of((Operator.GE, 20, 1.0), (Operator.LE, 30, 9.0), (Operator.EQ, 22, 9.0))
    index.expire(1.0)
    assert [(30, [22])] == index.listing("Temperature")[Operator.LE]


def test_asking_again_keeps_a_filter_alive_and_a_shorter_request_does_not_shorten_it() -> None:
    """A filter lasts as long as the longest of those who asked for it."""
    index = index_of((Operator.GT, 20, 5.0), (Operator.GT, 20, 2.0), (Operator.GT, 20, 8.0))
    assert [100.0, 100.0, None] == [index.match("Temperature", 21, now) for now in (4.0, 7.0, 8.0)]


def test_a_far_request_does_not_outlive_itself_in_a_long_near_one() -> None:
    """The reach of an answer is that of the requests that are still alive."""
    index = RequestIndex()
    index.register(Atom("Temperature", Operator.GT, 20), 2.0, 500.0)
    index.register(Atom("Temperature", Operator.GT, 20), 9.0, 30.0)
    assert [500.0, 30.0] == [index.match("Temperature", 21, now) for now in (1.0, 2.0)]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(REQUESTED), st.integers(0, 20)), max_size=60))
def test_an_index_of_which_all_has_lapsed_is_empty(filters: list[tuple[Operator, int]]) -> None:
    """Nothing stays behind of what was asked once."""
    index = index_of(*((operator, value, 1.0) for operator, value in filters))
    index.expire(1.0)
    assert (0, {}) == (len(index), index.listing("Temperature"))


def test_a_requestor_that_asks_for_ever_else_does_not_fill_the_index() -> None:
    """Ever longer and ever nearer: the filter has a bounded number of rights, and answers at least as far as asked."""
    index = RequestIndex()
    for number in range(1_000):
        index.register(Atom("Temperature", Operator.GT, 20), 10.0 + number, 2_000.0 - number)
    assert 1 == len(index)
    assert len(index._ends) < 100
    assert index.match("Temperature", 21, 500.0) >= 1_509.0  # type: ignore[operator]
    assert index.match("Temperature", 21, 1_009.0) is None
