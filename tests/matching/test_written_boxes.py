"""Predicates whose areas are elsewhere are decided by their boxes, and say what the plain evaluator says."""

from __future__ import annotations

import json
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.errors import Mark
from nearcast.filters.evaluate import EmptyContext, truth
from nearcast.geo.shapes import SPATIAL
from nearcast.language.cql2 import parse
from nearcast.matching import computed_atoms
from nearcast.matching.computed_atoms import ComputedAtoms
from nearcast.model.columns import to_table
from nearcast.model.event import Event, Place
from nearcast.model.filter import Atom, Filter, atoms
from nearcast.state.timeline import Environment

SIDES = st.integers(-3, 3)

AREAS = st.builds(
    lambda x, y, size: f"POLYGON(({x} {y}, {x + size} {y}, {x} {y + size}, {x} {y}))", SIDES, SIDES, SIDES
)
LINES = st.builds(lambda x, y: f"LINESTRING({x} {y}, {y} {x}, 9 1)", SIDES, SIDES)
WRITTEN = st.one_of(
    AREAS,
    LINES,
    st.builds("POINT({} {})".format, SIDES, SIDES),
    st.builds("BBOX({}, {}, {}, {})".format, SIDES, SIDES, SIDES, st.integers(3, 5)),
)
"""A box whose west is east of its east is in two parts."""

PREDICATES = st.tuples(st.sampled_from(sorted(SPATIAL)), WRITTEN, st.booleans()).map(
    lambda one: f"{one[0]}({one[1]}, geom)" if one[2] else f"{one[0]}(geom, {one[1]})"
)

PLACES = st.none() | st.builds(Place, st.sampled_from(["planar", "geographic"]), SIDES, SIDES)

TOLD = st.none() | st.builds(lambda x, y: {"type": "LineString", "coordinates": [[x, y], [2, 2]]}, SIDES, SIDES)


def _event(number: int, place: Place | None, told: dict[str, object] | None) -> Event:
    more = () if told is None else (("geom", json.dumps(told)),)
    return Event(f"e{number}", "zone", "city", attributes=more, place=place, position=number)


FILTERS = PREDICATES.map(lambda text: parse(text, Mark("filter")))


@settings(max_examples=300)
@given(st.lists(FILTERS, min_size=1, max_size=8), st.lists(st.tuples(PLACES, TOLD), min_size=1, max_size=6))
def test_truths_are_those_of_the_plain_evaluator(filters: list[Filter], told: list[tuple[object, object]]) -> None:
    """Wherever areas, places and told outlines are."""
    predicates: list[Atom] = list(dict.fromkeys(atom for filter in filters for atom in atoms(filter)))
    events = [_event(number, *one) for number, one in enumerate(told, 1)]  # type: ignore[arg-type]
    expected = [[truth(atom, event, EmptyContext()) for event in events] for atom in predicates]
    true, comparable = ComputedAtoms(predicates).rows(to_table(events), Environment())
    found = [
        [_truth_of(int(row[0]), int(known[0]), lane) for lane in range(len(events))]
        for row, known in zip(true, comparable, strict=True)
    ]
    assert expected == found


def _truth_of(row: int, known: int, lane: int) -> bool | None:
    return bool(row >> lane & 1) if known >> lane & 1 else None


def test_areas_elsewhere_are_not_compared() -> None:
    """However many there are, with points that are in the box of none."""
    filters = [
        parse(f"S_OVERLAPS(geom, POLYGON(({n} 0, {n + 1} 0, {n} 1, {n} 0)))", Mark("filter")) for n in range(100)
    ]
    predicates = [atom for filter in filters for atom in atoms(filter)]
    events = to_table([_event(1, Place("planar", 0, 500), None), _event(2, None, None)])
    with patch.object(computed_atoms, "truths_of") as compared:
        true, comparable = ComputedAtoms(predicates).rows(events, Environment())
    assert not compared.called
    assert not true.any()
    assert [1] * 100 == comparable[:, 0].tolist()
