"""The engine for many filters against the plain evaluator, and against rows of bits."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.decision import match_cover, match_engine, match_plan
from nearcast.decision.evaluate import level_of
from nearcast.decision.match import Group, Index, Pairs
from nearcast.decision.timeline import Surrounding, Track
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.model.filter import And, Atom, Filter, Not, Operator, Or, atoms
from tests.decision.filters import attribute_atoms, events, filters, trees
from tests.decision.test_match import AsOf, surrounding, users

groups = trees(attribute_atoms()).flatmap(
    lambda filter: st.tuples(st.just(filter), st.tuples(*[st.integers(-1, 2)] * sum(1 for _ in atoms(filter))))
)


def found(pairs: Pairs) -> set[tuple[int, int, int]]:
    """The pairs as a set, none of them double."""
    result = set(zip(pairs.lanes.tolist(), pairs.groups.tolist(), pairs.levels.tolist(), strict=True))
    assert len(result) == len(pairs.lanes)
    return result


def numbered(some: list[Event]) -> list[Event]:
    """Events with their positions."""
    return [replace(event, position=index + 1) for index, event in enumerate(some)]


def plainly(some: list[Group], history: list[Event]) -> set[tuple[int, int, int]]:
    """What the plain evaluator says."""
    return {
        (lane, number, level)
        for number, (filter, classes) in enumerate(some)
        for lane, event in enumerate(history)
        if (level := level_of(filter, classes, event, AsOf(Track(), [], 0))) is not None
    }


@settings(max_examples=300, deadline=None)
@given(st.lists(groups, min_size=1, max_size=12), st.lists(events(), min_size=1, max_size=10), st.data())
def test_the_engine_gives_the_levels_of_the_plain_evaluator(
    some: list[Group], drawn: list[Event], data: st.DataObject
) -> None:
    """Whatever the filters, their classes and the events; however a form is taken apart, and in blocks of any size."""
    history = numbered(drawn)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(match_engine, "BLOCK", data.draw(st.sampled_from([1, 3, 16_384])))
        patch.setattr(match_engine, "SAMPLE", data.draw(st.sampled_from([1, 1000])))
        pairs = Index(some, many=0).match(to_table(history), Surrounding())
    assert plainly(some, history) == found(pairs)


@settings(max_examples=150, deadline=None)
@given(filters, st.lists(events(), min_size=1, max_size=8), users, st.data())
def test_location_terms_reach_the_engine_as_rows(
    filter: Filter, drawn: list[Event], users: Track[str, object], data: st.DataObject
) -> None:
    """Also beside others, and under NOT."""
    history = numbered(drawn)
    around = surrounding(users, history, filter)
    classes = tuple(data.draw(st.lists(st.integers(-1, 2), min_size=64, max_size=64)))[: sum(1 for _ in atoms(filter))]
    some = [(filter, classes), (Not(filter), classes)]
    assert found(Index(some).match(to_table(history), around)) == found(
        Index(some, many=0).match(to_table(history), around)
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(groups, min_size=1, max_size=8), st.lists(events(), min_size=1, max_size=6), st.integers(60, 700))
def test_sixty_four_lanes_are_no_border(some: list[Group], drawn: list[Event], count: int) -> None:
    """Batches of any size, from events that come again and again."""
    history = numbered([drawn[index * index % len(drawn)] for index in range(count)])
    table = to_table(history)
    assert found(Index(some).match(table, Surrounding())) == found(Index(some, many=0).match(table, Surrounding()))


def test_equal_groups_share_what_is_compiled_and_all_are_given() -> None:
    """A group that comes twice is matched once and reported twice."""
    atom = Atom("v", Operator.EQ, 1)
    event = Event(id="1", type="t", source="s", attributes=(("v", 1.0),), position=1)
    pairs = Index([(atom, (0,)), (Not(atom), (0,)), (atom, (0,)), (atom, (2,))], many=0).match(
        to_table([event]), Surrounding()
    )
    assert {(0, 0, 0), (0, 2, 0), (0, 3, 2)} == found(pairs)


def test_an_index_that_was_sent_elsewhere_matches_the_same() -> None:
    """Pickled before its first batch, and after."""
    history = numbered([Event(id=str(n), type="t", source="s", attributes=(("v", n),)) for n in range(300)])
    table = to_table(history)
    index = Index([(Atom("v", Operator.LT, n), (0,)) for n in range(20)], many=0)
    before = pickle.loads(pickle.dumps(index))
    expected = found(index.match(table, Surrounding()))
    after = pickle.loads(pickle.dumps(index))
    assert expected == found(before.match(table, Surrounding())) == found(after.match(table, Surrounding()))


def deep(levels: int) -> Filter:
    """And and Or in turn, so many within each other."""
    filter: Filter = Atom("v", Operator.EQ, 1)
    for level in range(levels):
        filter = (And if level % 2 else Or)((Atom("v", Operator.EQ, 1), filter))
    return filter


@pytest.mark.parametrize("levels", [10, 59, 60, 61, 100])
def test_a_deep_filter_is_matched(levels: int) -> None:
    """By the engine or, deeper than its stack of masks, by rows of bits."""
    filter = deep(levels)
    event = Event(id="1", type="t", source="s", attributes=(("v", 1),), position=1)
    pairs = Index([(filter, (0,) * (levels + 1))], many=0).match(to_table([event]), Surrounding())
    assert {(0, 0, 0)} == found(pairs)


def test_a_filter_that_is_too_deep_takes_nothing_else_down() -> None:
    """It selects nothing, and the index says which it is."""
    event = Event(id="1", type="t", source="s", attributes=(("v", 1),), position=1)
    index = Index([(deep(5000), (0,) * 5001), (Atom("v", Operator.EQ, 1), (0,))], many=0)
    assert [0] == index.left_out
    assert {(0, 1, 0)} == found(index.match(to_table([event]), Surrounding()))


def test_a_large_form_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parts share one program, and an event that several of them select is given once."""
    monkeypatch.setattr(match_cover, "ENTRY", 1e-6)
    any_of = [
        Or(tuple(Atom(name, Operator.EQ, value) for name in ("a", "b") for value in range(200))) for _ in range(2)
    ]
    filter = And((any_of[0], any_of[1], Atom("c", Operator.LT, 50)))
    chance = np.random.default_rng(1)
    drawn = [
        Event(
            id="1", type="t", source="s", attributes=tuple(zip("abc", chance.integers(0, 400, 3).tolist(), strict=True))
        )
        for _ in range(400)
    ]
    history = numbered(drawn)
    some: list[Group] = [(filter, (0,) * sum(1 for _ in atoms(filter)))]
    assert 400 * 801 > match_plan.MOST_WORK
    assert plainly(some, history) == found(Index(some, many=0).match(to_table(history), Surrounding()))
