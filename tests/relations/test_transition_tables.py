"""Events of relations made of columns are those made one by one, byte for byte."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.geo.distance import distance
from nearcast.model.columns import EVENTS, to_table
from nearcast.relations import transition_tables as module
from nearcast.relations.entity_table import GEOGRAPHIC, NOWHERE, PLANAR
from nearcast.relations.told_pairs import COLUMNS, AtRow, PlaceColumns, ToldPairs, joined_told
from nearcast.relations.transition_events import Participant, Transition, transition_events
from nearcast.relations.transition_tables import CausingEvents, transition_tables
from nearcast.state.lateness import NEVER

NOON = 1_767_268_800_000_000
NAMES = ("a", "a/b", "a%2Fb", 'quo"te\\', "2026-01-01T12:00:00Z", "Zoë 🚢", "line\nbreak", "", "b")

micros = st.one_of(st.just(NEVER), st.integers(NOON, NOON + 5), st.sampled_from([0, -1, NOON + 500_000]))
height = st.one_of(st.just(float("nan")), st.floats(-1e3, 1e3))
degrees = st.one_of(st.floats(-89, 89), st.sampled_from([0.0, -0.0, 1e-7, 45.0]))
places = st.tuples(st.sampled_from([NOWHERE, PLANAR, PLANAR, GEOGRAPHIC, GEOGRAPHIC]), degrees, degrees, height)
far = st.tuples(st.just(PLANAR), st.sampled_from([1e16, 1e200, -1e308]), st.floats(-1e9, 1e9), height)


name_sets = st.sets(st.sampled_from(NAMES), min_size=1).map(sorted)
place_lists = st.lists(st.one_of(places, places, places, far), min_size=1, max_size=4)
heads = st.sampled_from([*product(range(4), range(3), range(3), range(3))])
pairs = st.tuples(*[st.integers(0, len(NAMES) - 1)] * 2, *[st.integers(0, 3)] * 2)
ends = st.tuples(micros, st.integers(-1, 2), st.just(NEVER) | micros, st.booleans())
row_lists = st.lists(st.tuples(heads, pairs, ends), max_size=12)
"""Rows as they are for as many names and places as there can be, and for relations that are numbered from 0 on."""


@st.composite
def told(draw: st.DrawFn, sequences: int = 0) -> ToldPairs:
    """Things told of pairs of relations that are numbered from somewhere on."""
    names, there = draw(name_sets), draw(place_lists)
    rows = [
        (row, phase, sequences + of, detect, a % len(names), b % len(names), at % len(there), to % len(there), *end)
        for (row, phase, of, detect), (a, b, at, to), end in draw(row_lists)
    ]
    columns = zip(*rows, strict=True) if rows else ([] for _ in COLUMNS)
    kinds = (np.bool_ if column == "present" else np.int64 for column in COLUMNS)
    kind, *numbers = zip(*there, strict=True)
    return ToldPairs(
        {sequences + number: f"r/{number}" for number in range(3)},
        names,
        PlaceColumns(np.array(kind, np.int8), *(np.array(column) for column in numbers)),
        *(np.array(column, kind) for column, kind in zip(map(list, columns), kinds, strict=True)),
    )


gatherings = st.builds(
    lambda row, phase, name: (
        row,
        Transition(phase, 20, "crowd", "enter", Participant(name, None), (), 1.5, None, count=3),
    ),
    st.integers(0, 3),
    st.integers(0, 1),
    st.sampled_from(NAMES),
)
causes = st.lists(st.tuples(micros, micros), min_size=4, max_size=4).map(
    lambda times: CausingEvents(np.arange(7, 11), *(np.array(column) for column in zip(*times, strict=True)))
)


@settings(max_examples=200, deadline=None)
@given(told(), told(10), st.lists(gatherings, max_size=3), causes, st.integers(1, 5), st.sampled_from([None, "north"]))
def test_columns_make_the_events_that_are_made_one_by_one(
    first: ToldPairs, second: ToldPairs, others: list[AtRow], causing: CausingEvents, at_once: int, node: str | None
) -> None:
    """In the same order, with the same parts, whatever names, places and times there are."""
    alone = [*others, *first.transitions(), *second.transitions()]
    expected = [
        replace(event, node=node)
        for row in range(4)
        for event in transition_events([_measured(one) for at, one in alone if at == row], causing.at(row), 1)
    ]
    before, module.AT_ONCE = module.AT_ONCE, at_once
    try:
        found = list(transition_tables(joined_told([first, second]), others, causing, node))
    finally:
        module.AT_ONCE = before
    assert to_table(expected).equals(pa.concat_tables(found) if found else EVENTS.empty_table())
    positions = [table.column("position") for table in found]
    assert all(one[-1].as_py() < other[0].as_py() for one, other in pairwise(positions))


def _measured(told: Transition) -> Transition:
    """With the distance as places have it one by one."""
    if told.count is not None:
        return told
    a, b = told.a.place, told.b[0].place
    return replace(told, distance=distance(a, b) if a and b else None)
