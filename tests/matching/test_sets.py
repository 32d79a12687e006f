"""Sets as maps of bits: the same lanes as by comparing with each point, whatever is missing or repeated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.matching.bitset import FilterGroup
from nearcast.matching.column_tests import missing, several
from nearcast.matching.masks import MOST, WORDS, map_sets, mapped, mapped_singly
from nearcast.matching.matcher import FilterMatcher
from nearcast.matching.programs import COLUMN_SHIFT, FEWEST, IN_POINTS, MAPPED_SHIFT, TEST_SHIFT
from nearcast.matching.simd import PADDING
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.model.filter import Atom, Filter, Operator, atoms
from nearcast.runtime import jit_warmup
from nearcast.state.timeline import Environment
from tests.matching.test_engine import found, numbered, plainly
from tests.random_filters import trees

NARROW_CODES = np.dtype(np.uint16)
KINDS_OF_NONE = [missing(NARROW_CODES), several(NARROW_CODES)]

code_lists = st.lists(st.one_of(st.integers(0, MOST - 1), st.sampled_from(KINDS_OF_NONE)), min_size=64, max_size=64)


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    """Compiled before anything is tested, for until then rows of bits would be."""
    jit_warmup.wait_for_warmup()


def instruction(column: int, low: int, span: int) -> list[int]:
    """A test of a set."""
    return [IN_POINTS << TEST_SHIFT | column << COLUMN_SHIFT, low, span]


@pytest.mark.parametrize("way", [mapped, mapped_singly])
@settings(max_examples=200, deadline=None)
@given(st.sets(st.integers(0, MOST - 1), min_size=FEWEST, max_size=40), code_lists, st.integers(0, 9), st.data())
def test_a_map_tells_of_each_lane_whether_its_code_is_in_the_set(
    way: Any, drawn: set[int], codes: list[int], before: int, data: st.DataObject
) -> None:
    """Of all lanes that are live; no value and several values are in no set."""
    some = data.draw(st.sets(st.sampled_from(codes))) - set(KINDS_OF_NONE)
    points = sorted(drawn | some)
    live = data.draw(st.integers(0, (1 << 64) - 1))
    code = np.array([instruction(0, before, len(points))], np.uint32)
    places = map_sets(code, np.array([0] * before + points, np.uint16), np.array([MOST], np.int64))
    lanes = np.array([7] * before + codes, np.uint16)
    held = int(way(np.int64(code[0, 1]), np.uint64(live), places, before, lanes))
    assert sum((code in points) << lane for lane, code in enumerate(codes)) & live == held & live


def test_small_sets_and_columns_with_many_codes_keep_their_points() -> None:
    """And no others do; equal sets share one map, in the order of their first use."""
    some = [(1, 5, FEWEST), (0, 0, FEWEST + 1), (0, 5, 2), (2, 1, FEWEST), (1, 5, FEWEST)]
    code = np.array([instruction(*one) for one in some], np.uint32)
    places = map_sets(code, np.arange(FEWEST + 5, dtype=np.uint16), np.array([MOST, MOST, MOST + 1], np.int64))
    kept = 2 + FEWEST
    maps = kept + PADDING
    assert [maps, maps + WORDS, 0, 2, maps] == code[:, 1].tolist()
    assert [1, 1, 0, 0, 1] == (code[:, 0] >> MAPPED_SHIFT & 1).tolist()
    assert [5, 6, *range(1, FEWEST + 1)] == places[:kept].tolist()
    bits = [sum(int(word) << 16 * at for at, word in enumerate(places[first : first + WORDS])) for first in code[:2, 1]]
    assert [(1 << FEWEST) - 1 << 5, (1 << FEWEST + 1) - 1] == bits


sets = st.builds(
    lambda name, values: Atom(name, Operator.IN, tuple(values)),
    st.sampled_from(["a", "b", "c"]),
    st.lists(st.integers(0, 30).map(lambda number: f"v{number}"), min_size=2, max_size=20, unique=True),
)
valued = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 32).map(lambda n: f"v{n}")), max_size=5)


def grouped(filter: Filter) -> FilterGroup:
    """A filter with one level."""
    return filter, (0,) * sum(1 for _ in atoms(filter))


@settings(max_examples=80, deadline=None)
@given(st.lists(trees(sets), min_size=1, max_size=8), st.lists(valued, min_size=1, max_size=6), st.integers(1, 1300))
def test_trees_of_sets_select_what_the_plain_evaluator_says(
    some: list[Filter], drawn: list[list[tuple[str, str]]], count: int
) -> None:
    """In batches of any size, with attributes that are missing and attributes with several values."""
    kinds = [Event("e", "t", "s", attributes=tuple(attributes)) for attributes in drawn]
    groups = [grouped(filter) for filter in some]
    expected = plainly(groups, numbered(kinds))
    which = [index * index % len(kinds) for index in range(count)]
    pairs = FilterMatcher(groups, many=0).match(to_table(numbered([kinds[kind] for kind in which])), Environment())
    by_kind = {kind: {(number, level) for lane, number, level in expected if lane == kind} for kind in set(which)}
    assert {(lane, *pair) for lane, kind in enumerate(which) for pair in by_kind[kind]} == found(pairs)
