"""Groups that come and go: whatever the sequence, what is matched is what a new index and the plain evaluator say."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.matching import incremental as coming_and_going
from nearcast.matching import matcher as few_or_many
from nearcast.matching.atom_table import AtomTable
from nearcast.matching.bitset import FilterGroup, MatchedPairs
from nearcast.matching.incremental import PARTS, IncrementalIndex
from nearcast.matching.matcher import FilterMatcher
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.model.filter import Atom, Operator
from nearcast.runtime import jit_warmup
from nearcast.state.timeline import Environment
from tests.matching.test_engine import found, groups, numbered, plainly
from tests.random_filters import events

Step = tuple[str, int]
steps = st.lists(
    st.tuples(st.sampled_from(["add", "add", "remove", "match", "wait"]), st.integers(0, 1000)), max_size=40
)


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    """Compiled before anything is tested."""
    jit_warmup.wait_for_warmup()


@dataclass
class Twin:
    """Groups in a standing index, and beside it as they are."""

    incremental_index: IncrementalIndex = field(default_factory=IncrementalIndex)
    there: list[tuple[int, FilterGroup]] = field(default_factory=list)

    def add(self, group: FilterGroup) -> None:
        """Adds a group, maybe once more."""
        self.there.append((self.incremental_index.acquire(group), group))

    def remove(self, which: int) -> None:
        """Removes one of those that are there."""
        if self.there:
            number, _ = self.there.pop(which % len(self.there))
            self.incremental_index.release(number)

    def numbers(self) -> dict[int, FilterGroup]:
        """The distinct groups by number; equal ones have one, others have others."""
        numbers = dict(self.there)
        assert len(numbers) == len(set(numbers.values())) == len(self.incremental_index)
        return numbers


def as_numbered(numbers: dict[int, FilterGroup], pairs: set[tuple[int, int, int]]) -> set[tuple[int, int, int]]:
    """Pairs of groups in a list as those of the groups' numbers."""
    order = list(numbers)
    return {(lane, order[group], level) for lane, group, level in pairs}


@settings(max_examples=120, deadline=None)
@given(st.lists(groups, min_size=1, max_size=12), st.lists(events(), min_size=1, max_size=6), steps)
def test_any_sequence_is_as_a_new_index(some: list[FilterGroup], drawn: list[Event], sequence: list[Step]) -> None:
    """Small parts, large ones, rows of bits and the engine, and an index made beside at any time."""
    history = numbered(drawn)
    table = to_table(history)
    twin = Twin()
    limits = {"TOGETHER": 1, "BESIDE": 6, "MANY": 3, "STEP": 2, "PARTS": 3, "LARGE": 4}
    with patch.multiple(coming_and_going, **limits), patch.object(few_or_many, "MANY", 3):
        for what, which in [*sequence, ("match", 0)]:
            if what == "add":
                twin.add(some[which % len(some)])
            elif what == "remove":
                twin.remove(which)
            elif what == "wait":
                twin.incremental_index.wait_until_made()
            else:
                numbers = twin.numbers()
                got = found(twin.incremental_index.index(table).match(table, Environment()))
                assert as_numbered(numbers, plainly(list(numbers.values()), history)) == got
        # Of the last match only: that a new index gives what the plain evaluator does is held by its own tests.
        fresh = found(FilterMatcher(list(numbers.values())).match(table, Environment()))
        assert as_numbered(numbers, fresh) == got
        twin.incremental_index.wait_until_made()


class Held:
    """A background task that does its work when somebody waits for it, at once."""

    begun: ClassVar[list[Held]] = []

    def __init__(self, _: str, make: Callable[[], object]) -> None:
        self.made: object = None
        self._make: Callable[[], object] | None = make
        Held.begun.append(self)

    @property
    def running(self) -> bool:
        """Whether nobody has waited yet."""
        return self._make is not None

    def wait(self) -> None:
        """Does the work."""
        make, self._make = self._make, None
        if make:
            self.made = make()


held_steps = st.lists(
    st.tuples(st.sampled_from(["add", "add", "add", "remove", "match", "match", "made"]), st.integers(0, 1000)),
    min_size=10,
    max_size=50,
)


@settings(max_examples=120, deadline=None)
@given(
    st.lists(groups, min_size=4, max_size=16),
    st.lists(events(), min_size=4, max_size=6),
    held_steps,
    st.sampled_from([0, 4]),
)
def test_an_index_made_beside_may_end_at_any_moment(
    some: list[FilterGroup], drawn: list[Event], sequence: list[Step], told: int
) -> None:
    """While it is made, and once it is, pairs are the plain evaluator's, whether or not all is read anew for it."""
    history = numbered(drawn)
    table = to_table(history)
    twin = Twin()
    limits = {
        "TOGETHER": 1,
        "BESIDE": 2,
        "MANY": 3,
        "STEP": 2,
        "PARTS": 2,
        "LARGE": 4,
        "TOLD": told,
        "BackgroundTask": Held,
    }
    with patch.multiple(coming_and_going, **limits), patch.object(few_or_many, "MANY", 3):
        for what, which in [*sequence, ("made", 0), ("match", 0)]:
            if what == "add":
                twin.add(some[which % len(some)])
            elif what == "remove":
                twin.remove(which)
            elif what == "made":
                for task in Held.begun:
                    task.wait()
                Held.begun.clear()
            else:
                numbers = twin.numbers()
                got = found(twin.incremental_index.index(table).match(table, Environment()))
                assert as_numbered(numbers, plainly(list(numbers.values()), history)) == got


def below(count: int) -> list[FilterGroup]:
    """So many groups, each of which holds below a number of its own."""
    return [(Atom("v", Operator.LT, n), (0,)) for n in range(count)]


TABLE = to_table(numbered([Event(id=str(n), type="t", source="s", attributes=(("v", n),)) for n in range(300)]))


def matched(pairs: MatchedPairs) -> set[int]:
    """The groups that are among some pairs."""
    return set(np.unique(pairs.groups).tolist())


def test_what_was_shown_stays_as_it_was() -> None:
    """An index that a batch has does not change when a later one's groups come and go; it can be sent elsewhere."""
    incremental_index = IncrementalIndex()
    numbers = [incremental_index.acquire(group) for group in below(10)]
    before = incremental_index.index(TABLE)
    incremental_index.release(numbers[9])
    another = incremental_index.acquire((Atom("w", Operator.EQ, 1), (0,)))
    after = incremental_index.index(TABLE)
    assert another == numbers[9], "numbers are used again"
    assert set(numbers[1:]) == matched(before.match(TABLE, Environment()))
    assert set(numbers[1:9]) == matched(after.match(TABLE, Environment()))
    assert set(numbers[1:]) == matched(pickle.loads(pickle.dumps(before)).match(TABLE, Environment()))


def test_an_equal_group_is_there_once() -> None:
    """As often as it was taken it must be let go."""
    incremental_index = IncrementalIndex()
    [group] = below(1)
    first, second = incremental_index.acquire(group), incremental_index.acquire((Atom("v", Operator.LT, 0), (0,)))
    assert (first, 1) == (second, len(incremental_index))
    assert [False, True] == [incremental_index.release(first), incremental_index.release(second)]
    assert 0 == len(incremental_index)


def test_many_that_come_one_by_one_make_few_parts() -> None:
    """What is small is joined, and the parts become one beside, with nothing lost on the way."""
    incremental_index = IncrementalIndex()
    most = 0
    for group in below(400):
        incremental_index.acquire(group)
        index = incremental_index.index(TABLE)
        most = max(most, len(index.parts))
    assert 3 <= most <= PARTS + 2
    assert set(range(1, 400)) == matched(index.match(TABLE, Environment()))
    incremental_index.wait_until_made()
    assert matched(index.match(TABLE, Environment())) == matched(
        incremental_index.index(TABLE).match(TABLE, Environment())
    )


def test_an_index_made_before_any_event_is_made_anew_for_those_that_come() -> None:
    """Beside, for events spread as the first large batch has them."""
    incremental_index = IncrementalIndex()
    with patch("nearcast.matching.engine_matcher.REPLANNED", 0):
        for group in below(300):
            incremental_index.acquire(group)
        assert not incremental_index.index(TABLE.slice(0, 10)).parts[0][0].planned_without_sample(10)
        assert incremental_index.index(TABLE).parts[0][0].planned_without_sample(300)
        incremental_index.wait_until_made()
        assert not incremental_index.index(TABLE).parts[0][0].planned_without_sample(300)


def test_an_index_that_cannot_be_made_beside_is_made_in_the_next_batch(caplog: pytest.LogCaptureFixture) -> None:
    """It says so, and nothing is lost."""
    incremental_index = IncrementalIndex()
    groups = below(300)
    with patch("nearcast.matching.engine_matcher.REPLANNED", 0):
        for group in groups:
            incremental_index.acquire(group)
        incremental_index.index(TABLE.slice(0, 10))
        with patch.object(coming_and_going, "_IndexPart", side_effect=MemoryError("no room")):
            incremental_index.index(TABLE)
            incremental_index.wait_until_made()
    assert "background task failed task=nearcast-matcher" in caplog.text
    assert set(range(1, 300)) == matched(incremental_index.index(TABLE).match(TABLE, Environment()))


def test_a_tree_is_read_once(caplog: pytest.LogCaptureFixture) -> None:
    """When the index is made anew, beside, it is put together of what was read before."""
    incremental_index = IncrementalIndex()
    read = []
    number = AtomTable.number

    def counted(self: AtomTable, atom: Atom) -> int:
        read.append(atom)
        return number(self, atom)

    small = patch.object(coming_and_going, "BESIDE", 20)
    with small, patch.object(AtomTable, "number", counted), caplog.at_level("INFO"):
        for group in below(500):
            incremental_index.acquire(group)
            incremental_index.index(TABLE)
        incremental_index.wait_until_made()
    assert "rebuilding the index" in caplog.text
    assert 500 == len(read)


def test_a_vocabulary_that_was_told_of_many_that_went_is_left() -> None:
    """What nobody asks any more does not stay for ever; what there is is matched all the same."""
    incremental_index = IncrementalIndex()
    numbers = []
    with patch.multiple(coming_and_going, BESIDE=100, TOLD=1):
        for group in below(1_000):
            numbers.append(incremental_index.acquire(group))
            if len(numbers) > 250:
                incremental_index.release(numbers.pop(0))
            if group[0].value % 50 == 0:  # type: ignore[union-attr, operator]
                index = incremental_index.index(TABLE)
                incremental_index.wait_until_made()
        index = incremental_index.index(TABLE)
    vocabularies = [part.flat.atom_table for part in incremental_index._parts]
    assert max(atom_table.told for atom_table in vocabularies) < 1_000
    assert len(incremental_index) == len(numbers) == 250
    assert set(numbers) == matched(index.match(TABLE, Environment()))
