"""The engine for many filters against the plain evaluator, and against rows of bits."""

from __future__ import annotations

import itertools
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.filters.evaluate import level_of
from nearcast.matching import access_paths, engine, engine_matcher, plan
from nearcast.matching.bitset import FilterGroup, MatchedPairs
from nearcast.matching.column_tests import NARROW, Coded, coded
from nearcast.matching.engine import CompiledEngine
from nearcast.matching.matcher import FilterMatcher
from nearcast.matching.simd import PADDING
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.model.filter import And, Atom, Filter, Not, Operator, Or, atoms
from nearcast.runtime import jit_cache, jit_warmup
from nearcast.state.timeline import Environment, Timeline
from tests.matching.test_matcher import AsOf, surrounding, users
from tests.random_filters import attribute_atoms, events, filters, trees

groups = trees(attribute_atoms()).flatmap(
    lambda filter: st.tuples(st.just(filter), st.tuples(*[st.integers(-1, 2)] * sum(1 for _ in atoms(filter))))
)


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    """Compiled before anything is tested, for until then rows of bits would be."""
    jit_warmup.wait_for_warmup()
    jit_warmup.wait_for_warmup(wide=True)


def found(pairs: MatchedPairs) -> set[tuple[int, int, int]]:
    """The pairs as a set, none of them double."""
    result = set(zip(pairs.lanes.tolist(), pairs.groups.tolist(), pairs.levels.tolist(), strict=True))
    assert len(result) == len(pairs.lanes)
    return result


def numbered(some: list[Event]) -> list[Event]:
    """Events with their positions."""
    return [replace(event, position=index + 1) for index, event in enumerate(some)]


def plainly(some: list[FilterGroup], history: list[Event]) -> set[tuple[int, int, int]]:
    """What the plain evaluator says."""
    return {
        (lane, number, level)
        for number, (filter, classes) in enumerate(some)
        for lane, event in enumerate(history)
        if (level := level_of(filter, classes, event, AsOf(Timeline(), [], 0))) is not None
    }


@settings(max_examples=300, deadline=None)
@given(st.lists(groups, min_size=1, max_size=12), st.lists(events(), min_size=1, max_size=10), st.data())
def test_the_engine_gives_the_levels_of_the_plain_evaluator(
    some: list[FilterGroup], drawn: list[Event], data: st.DataObject
) -> None:
    """Whatever the filters, their classes and the events; however a form is taken apart, and in blocks of any size."""
    history = numbered(drawn)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "BLOCK", data.draw(st.sampled_from([1, 3, 16_384])))
        patch.setattr(engine, "SAMPLE", data.draw(st.sampled_from([1, 1000])))
        index = FilterMatcher(some, many=0, narrow=data.draw(st.sampled_from([0, None])))
        pairs = index.match(to_table(history), Environment())
    assert plainly(some, history) == found(pairs)


@settings(max_examples=150, deadline=None)
@given(filters, st.lists(events(), min_size=1, max_size=8), users, st.data())
def test_location_terms_reach_the_engine_as_rows(
    filter: Filter, drawn: list[Event], users: Timeline[str, object], data: st.DataObject
) -> None:
    """Also beside others, and under NOT."""
    history = numbered(drawn)
    around = surrounding(users, history, filter)
    classes = tuple(data.draw(st.lists(st.integers(-1, 2), min_size=64, max_size=64)))[: sum(1 for _ in atoms(filter))]
    some = [(filter, classes), (Not(filter), classes)]
    assert found(FilterMatcher(some).match(to_table(history), around)) == found(
        FilterMatcher(some, many=0).match(to_table(history), around)
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(groups, min_size=1, max_size=8), st.lists(events(), min_size=1, max_size=6), st.integers(60, 700))
def test_sixty_four_lanes_are_no_border(some: list[FilterGroup], drawn: list[Event], count: int) -> None:
    """Batches of any size, from events that come again and again."""
    history = numbered([drawn[index * index % len(drawn)] for index in range(count)])
    table = to_table(history)
    assert found(FilterMatcher(some).match(table, Environment())) == found(
        FilterMatcher(some, many=0).match(table, Environment())
    )


@settings(max_examples=150, deadline=None)
@given(st.lists(attribute_atoms(), min_size=1, max_size=10), st.lists(events(), min_size=1, max_size=8), st.data())
def test_codes_are_those_of_the_classes(some: list[Atom], drawn: list[Event], data: st.DataObject) -> None:
    """The compiled encoder gives what the classes say of each value alone, also for a part of a table."""
    engine = CompiledEngine([(atom, (0,)) for atom in some], data.draw(st.sampled_from([0, NARROW])))
    first = data.draw(st.integers(0, len(drawn) - 1))
    table = to_table(numbered(drawn)).slice(first)
    fast, slow = engine.encode(table), coded(table, engine.columns, np.dtype(engine.codes), PADDING)
    assert slow.codes.tolist() == fast.codes.tolist()
    assert [number >= 0 for number in slow.which] == [number >= 0 for number in fast.which]
    for ours, theirs in zip(fast.which.tolist(), slow.which.tolist(), strict=True):
        assert ours < 0 or repeated_codes(slow, theirs) == repeated_codes(fast, ours)


def repeated_codes(batch: Coded, which: int) -> list[list[int]]:
    """The codes of each lane in a column in which lanes have several."""
    return [batch.values[begin:end].tolist() for begin, end in itertools.pairwise(batch.starts[which].tolist())]


@pytest.mark.parametrize("value", [2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2.0**63, 1e300, -0.0, 5, 5.5, float("inf")])
def test_numbers_at_the_edge_have_exact_codes(value: float) -> None:
    """Beside literals that doubles hold, and beside some that they do not."""
    for literals in ([0, 2**53, 2**60, 2.0**63], [0, 2**53 + 1, 5.5], [3, 4, 5, 6]):
        some: list[FilterGroup] = [(Atom("v", op, n), (0,)) for n in literals for op in (Operator.LT, Operator.EQ)]
        history = numbered([Event(id="1", type="t", source="s", attributes=(("v", value),))])
        assert plainly(some, history) == found(FilterMatcher(some, many=0).match(to_table(history), Environment()))


def test_equal_groups_share_what_is_compiled_and_all_are_given() -> None:
    """A group that comes twice is matched once and reported twice."""
    atom = Atom("v", Operator.EQ, 1)
    event = Event(id="1", type="t", source="s", attributes=(("v", 1.0),), position=1)
    pairs = FilterMatcher([(atom, (0,)), (Not(atom), (0,)), (atom, (0,)), (atom, (2,))], many=0).match(
        to_table([event]), Environment()
    )
    assert {(0, 0, 0), (0, 2, 0), (0, 3, 2)} == found(pairs)


def test_an_index_that_was_sent_elsewhere_matches_the_same() -> None:
    """Pickled before its first batch, and after."""
    history = numbered([Event(id=str(n), type="t", source="s", attributes=(("v", n),)) for n in range(300)])
    table = to_table(history)
    index = FilterMatcher([(Atom("v", Operator.LT, n), (0,)) for n in range(20)], many=0)
    before = pickle.loads(pickle.dumps(index))
    expected = found(index.match(table, Environment()))
    after = pickle.loads(pickle.dumps(index))
    assert expected == found(before.match(table, Environment())) == found(after.match(table, Environment()))


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
    pairs = FilterMatcher([(filter, (0,) * (levels + 1))], many=0).match(to_table([event]), Environment())
    assert {(0, 0, 0)} == found(pairs)


def test_a_filter_that_is_too_deep_takes_nothing_else_down() -> None:
    """It selects nothing, and the index says which it is."""
    event = Event(id="1", type="t", source="s", attributes=(("v", 1),), position=1)
    index = FilterMatcher([(deep(5000), (0,) * 5001), (Atom("v", Operator.EQ, 1), (0,))], many=0)
    assert [0] == index.left_out
    assert {(0, 1, 0)} == found(index.match(to_table([event]), Environment()))


def test_a_large_form_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parts share one program, and an event that several of them select is given once."""
    monkeypatch.setattr(access_paths, "ENTRY", 1e-6)
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
    some: list[FilterGroup] = [(filter, (0,) * sum(1 for _ in atoms(filter)))]
    assert 400 * 801 > plan.MOST_WORK
    assert plainly(some, history) == found(FilterMatcher(some, many=0).match(to_table(history), Environment()))


def test_more_codes_than_sixteen_bits_hold() -> None:
    """A column with 70,000 literals is compared in 32 bits, and its neighbours with it."""
    count = 70_000
    some: list[FilterGroup] = [(Atom("v", Operator.LT, n), (0,)) for n in range(0, count, 10_000)]
    some += [(And((Atom("v", Operator.EQ, n), Atom("w", Operator.GE, 1))), (0, 0)) for n in range(count)]
    values = [0, 1, 9_999, 65_519, 65_520, 65_535, 65_536, 69_999, 70_000, 5.5]
    history = numbered([Event(id="1", type="t", source="s", attributes=(("v", v), ("w", v % 2))) for v in values])
    expected = {
        (lane, number, 0)
        for lane, value in enumerate(values)
        for number, holds in enumerate([value < n for n in range(0, count, 10_000)])
        if holds
    } | {(lane, 7 + int(value), 0) for lane, value in enumerate(values) if value % 2 == 1 and value < count}
    assert expected == found(FilterMatcher(some).match(to_table(history), Environment()))


def test_until_the_kernels_are_compiled_rows_of_bits_do_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch waits for the compiler; a filter that goes too deep for the engine is not matched twice."""
    some: list[FilterGroup] = [(Atom("v", Operator.LT, n), (0,)) for n in range(20)] + [(deep(70), (0,) * 71)]
    table = to_table(numbered([Event(id=str(n), type="t", source="s", attributes=(("v", n),)) for n in range(30)]))
    there = False
    monkeypatch.setattr(engine_matcher, "start_warmup", lambda _wide: there)
    index = FilterMatcher(some, many=0)
    before = found(index.match(table, Environment()))
    elsewhere = found(pickle.loads(pickle.dumps(index)).match(table, Environment()))
    there = True
    assert before == elsewhere == found(index.match(table, Environment()))


def test_an_index_that_is_prepared_is_not_planned_again_where_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers match at once; one that is not prepared is planned where it matches."""
    table = to_table(numbered([Event(id=str(n), type="t", source="s", attributes=(("v", n),)) for n in range(300)]))
    indexes = [FilterMatcher([(Atom("v", Operator.LT, n), (0,)) for n in range(20)], many=0) for _ in range(2)]
    indexes[0].prepare(table, Environment())
    prepared, other = (pickle.loads(pickle.dumps(index)) for index in indexes)
    plans = []
    monkeypatch.setattr(engine, "plan", lambda *given: plans.append(given) or plan.plan(*given))
    prepared.match(table, Environment())
    assert [] == plans
    other.match(table, Environment())
    assert 1 == len(plans)


def test_compiled_code_is_kept_by_what_it_is_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another source, another folder; none where nothing can be written."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    stamped = [jit_cache.folder.__wrapped__()]
    monkeypatch.setattr(jit_cache.sys, "version", "another")
    stamped.append(jit_cache.folder.__wrapped__())
    assert [tmp_path, tmp_path] == [place and place.parent for place in stamped]
    assert 2 == len(set(stamped))
    monkeypatch.setattr(jit_cache, "_places", lambda: iter([tmp_path / "file" / "below"]))
    (tmp_path / "file").touch()
    assert jit_cache.folder.__wrapped__() is None


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o777])
def test_compiled_code_is_not_kept_where_others_may_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """What is loaded is run: a folder that is open to others is not used, nor one that is a link to somewhere."""
    monkeypatch.setattr(jit_cache, "_places", lambda: iter([tmp_path]))
    found = jit_cache.folder.__wrapped__()
    assert found and 0o700 == found.stat().st_mode & 0o777
    found.chmod(mode)
    assert jit_cache.folder.__wrapped__() is None
    found.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    found.symlink_to(tmp_path / "elsewhere")
    assert jit_cache.folder.__wrapped__() is None


def test_code_that_cannot_be_read_or_kept_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A half-written file, or a folder that went, is nobody's fault."""
    monkeypatch.setattr(jit_cache, "folder", lambda: tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    assert 3 == jit_cache.compiled(_sum)(1, 2)
    files = sorted((tmp_path / "kept").iterdir())
    assert [".nbc", ".nbi"] == sorted(file.suffix for file in files)
    for file in files:
        file.write_bytes(file.read_bytes()[:20])
    assert 3 == jit_cache.compiled(_sum)(1, 2)
    shutil.rmtree(tmp_path / "kept")
    (tmp_path / "kept").touch()
    assert 3 == jit_cache.compiled(_sum)(1, 2)


def _sum(a: int, b: int) -> int:
    return a + b


@pytest.mark.parametrize("literal", [-1, 0, 1, 2**53, -(2**53)])
@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 1])
def test_the_largest_integers_have_their_codes(literal: int, value: int) -> None:
    """However far they are from the literals: a difference may be too large for 64 bits."""
    table = to_table(numbered([Event("e", "t", "s", attributes=(("tag", value),))]))
    for operator in (Operator.EQ, Operator.LT, Operator.GE):
        engine = CompiledEngine([(Atom("tag", operator, literal), (0,))], NARROW)
        fast, slow = engine.encode(table), coded(table, engine.columns, np.dtype(engine.codes), PADDING)
        assert slow.codes.tolist() == fast.codes.tolist()


def test_what_planning_takes_is_kept_until_enough_events_were_seen() -> None:
    """Then the index is smaller, and finds what it found before."""
    index = FilterMatcher([(Atom("v", Operator.LT, n), (0,)) for n in range(3_000)], many=0)
    table = to_table(numbered([Event(id=str(n), type="t", source="s", attributes=(("v", n),)) for n in range(300)]))
    index.prepare(table.slice(0, 10), Environment())
    planned_without_sample, before = len(pickle.dumps(index)), found(index.match(table.slice(0, 10), Environment()))
    index.prepare(table, Environment())
    assert before == found(index.match(table.slice(0, 10), Environment()))
    assert len(pickle.dumps(index)) < planned_without_sample - 4 * 3_000
