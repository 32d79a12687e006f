"""Events of zones made of columns are those made one by one, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.model.columns import EVENTS, to_table
from nearcast.model.zone import Zone
from nearcast.relations.entity_table import GEOGRAPHIC, NOWHERE, PLANAR
from nearcast.relations.reports import moment_of
from nearcast.relations.told_pairs import PlaceColumns
from nearcast.relations.transition_tables import CausingEvents
from nearcast.state.lateness import NEVER
from nearcast.zones import zone_tables as module
from nearcast.zones.told_zones import COLUMNS, NO_REASON, NO_ZONE, ToldZones, joined_zones
from nearcast.zones.zone_tables import zone_tables
from nearcast.zones.zone_transitions import DETECTIONS, REASON_NAMES, ZoneTransition
from tests.zones.plain_events import zone_events

NOON = 1_767_268_800_000_000
NAMES = ("a", "a/b", "a%2Fb", 'quo"te\\', "2026-01-01T12:00:00Z", "Zoë 🚢", "line\nbreak", "", "b")

micros = st.one_of(st.just(NEVER), st.integers(NOON, NOON + 5), st.sampled_from([0, -1, NOON + 500_000]))
height = st.one_of(st.just(float("nan")), st.floats(-1e3, 1e3))
degrees = st.one_of(st.floats(-89, 89), st.sampled_from([0.0, -0.0, 1e-7, 45.0]))
places = st.tuples(st.sampled_from([NOWHERE, PLANAR, GEOGRAPHIC]), degrees, degrees, height)
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(NAMES),
)
values = st.recursive(plain, lambda own: st.lists(own, max_size=2) | st.dictionaries(st.sampled_from(NAMES), own))
properties = st.one_of(st.just({}), st.dictionaries(st.sampled_from([*NAMES, "id", "data.x"]), values, max_size=4))


name_sets = st.sets(st.sampled_from(NAMES), min_size=1).map(sorted)
area_names = st.lists(st.sampled_from([one for one in NAMES if one]), min_size=1, max_size=4, unique=True)
place_lists = st.lists(places, min_size=1, max_size=4)
heads = st.sampled_from([*product(range(4), range(3), range(3), range(5))])
whereabouts = st.tuples(st.integers(0, len(NAMES) - 1), st.none() | st.integers(0, 3), st.integers(0, 3))
ends = st.tuples(micros, st.integers(NO_REASON, 3), st.just(NEVER) | micros, st.booleans())
row_lists = st.lists(st.tuples(heads, whereabouts, ends), max_size=12)
"""Rows as they are for as many names, areas and places as there can be, and for layers that are numbered from 0 on."""


@st.composite
def told(draw: st.DrawFn, sequences: int = 0) -> ToldZones:
    """Things told by layers that are numbered from somewhere on."""
    names, there = draw(name_sets), draw(place_lists)
    areas = [Zone("layer", name, "{}", orjson.dumps(draw(properties)).decode()) for name in draw(area_names)]
    rows = [
        (
            *(row, phase, sequences + of, detect, name % len(names)),
            *(NO_ZONE if area is None else area % len(areas), place % len(there), *end),
        )
        for (row, phase, of, detect), (name, area, place), end in draw(row_lists)
    ]
    columns = zip(*rows, strict=True) if rows else ([] for _ in COLUMNS)
    kinds = (np.bool_ if column == "present" else np.int64 for column in COLUMNS)
    kind, *numbers = zip(*there, strict=True)
    return ToldZones(
        {sequences + number: f"l/{number}" for number in range(3)},
        names,
        areas,
        PlaceColumns(np.array(kind, np.int8), *(np.array(column) for column in numbers)),
        *(np.array(column, kind) for column, kind in zip(map(list, columns), kinds, strict=True)),
    )


causes = st.lists(st.tuples(micros, micros), min_size=4, max_size=4).map(
    lambda times: CausingEvents(np.arange(7, 11), *(np.array(column) for column in zip(*times, strict=True)))
)


def one_by_one(told: ToldZones) -> Iterator[tuple[int, ZoneTransition]]:
    """Each by itself, with its row."""
    there = told.places.places()
    columns: Any = zip(*(getattr(told, name).tolist() for name in COLUMNS), strict=True)
    for row, phase, sequence, detect, entity, zone, place, since, reason, time, present in columns:
        area = None if zone == NO_ZONE else told.zones[zone]
        head = (phase, sequence, told.layers[sequence], DETECTIONS[detect], told.names[entity], area, there[place])
        why = None if reason == NO_REASON else REASON_NAMES[reason]
        yield row, ZoneTransition(*head, moment_of(since), why, present, moment_of(time))


@settings(max_examples=100, deadline=None)
@given(told(), told(10), causes, st.integers(1, 5))
def test_columns_make_the_events_that_are_made_one_by_one(
    first: ToldZones, second: ToldZones, causing: CausingEvents, at_once: int
) -> None:
    """In the same order, with the same parts, whatever names, properties, places and times there are."""
    alone = [*one_by_one(first), *one_by_one(second)]
    expected = [
        event for row in range(4) for event in zone_events([one for at, one in alone if at == row], causing.at(row))
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "AT_ONCE", at_once)
        found = list(zone_tables(joined_zones([first, second]), causing))
    assert to_table(expected).equals(pa.concat_tables(found) if found else EVENTS.empty_table())
    assert all(len(one) <= at_once for one in found)
