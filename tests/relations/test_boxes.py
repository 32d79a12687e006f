"""Relations of geometries that meet: by boxes as without them, however entities jump."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.language.definitions.relation_documents import relation_document
from nearcast.model.arrays import Integers
from nearcast.model.event import Event
from nearcast.model.limits import Limits
from nearcast.model.relation import Pair
from nearcast.relations.evaluations import PredicateEvaluator
from nearcast.relations.geometries import boxes, remembered_events
from nearcast.relations.geometries.boxes import meeting, readings, told_box
from nearcast.relations.stage import RelationStage
from nearcast.testing.relations import Reference
from tests.relations.stories import HERE, Step, defined, events_told, report, summary

CARS, ZONES = ("car0", "car1"), ("zone0", "zone1")
FORMS = (
    "S_INTERSECTS(a, b.geom)",
    "S_WITHIN(a.position, b.geom) AND a.size < 3",
    "S_CONTAINS(b.geom, a.geom)",
    "S_INTERSECTS(a.geom, b.geom) AND S_TOUCHES(a.geom, b.geom)",
    "S_INTERSECTS(a.geom, b.geom) OR a.size = 1",
    "NOT S_INTERSECTS(a, b.geom)",
)


def square(x: float, y: float, side: float) -> str:
    """GeoJSON of a square."""
    corners = [[x, y], [x + side, y], [x + side, y + side], [x, y + side], [x, y]]
    return f'{{"type": "Polygon", "coordinates": [{corners}]}}'


def bent(x: float, y: float) -> str:
    """GeoJSON of a polygon that crosses itself, which costs more to read."""
    return f'{{"type": "Polygon", "coordinates": [{[[x, y], [x + 2, y + 2], [x + 2, y], [x, y + 2], [x, y]]}]}}'


def notched(x: float, y: float) -> str:
    """GeoJSON of a square with many corners, which costs more to compare."""
    side = [[x + step / 8, y] for step in range(9)]
    return f'{{"type": "Polygon", "coordinates": [{[*side, [x + 1, y + 1], [x, y + 1], [x, y]]}]}}'


numbers = st.sampled_from([0, 1, 1, 5])
shapes = st.one_of(
    st.builds(square, numbers, numbers, st.sampled_from([1, 2])),
    st.builds(bent, numbers, numbers),
    st.builds(notched, numbers, numbers),
    st.sampled_from(["nothing", '{"type": "Point", "coordinates": [3, 3]}', '{"type": "Polygon", "coordinates": []}']),
)
reports = st.one_of(
    st.builds(
        lambda name, x, y, flat, size: report(name, x, y, geographic=not flat, size=size),
        st.sampled_from(CARS),
        st.one_of(st.none(), numbers),
        numbers,
        st.sampled_from([False, False, False, True]),
        st.integers(1, 4),
    ),
    st.builds(
        lambda name, x, y, shape: report(name, x, y, type="zone", geographic=True, geom=shape),
        st.sampled_from([*ZONES, "car0"]),
        st.one_of(st.none(), numbers),
        numbers,
        shapes,
    ),
)
limits = st.sampled_from([Limits(), Limits(geometry_work=300), Limits(geometry_work=1900), Limits(geometry_corners=6)])


START = (
    *(report(zone, 0, 0, type="zone", geographic=True, geom=square(0, 0, 2)) for zone in ZONES),
    *(report(car, 1, 1, geographic=True, geom=square(1, 1, 1), size=1) for car in CARS),
)
"""Cars in zones: only what holds may end."""


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(FORMS), st.lists(reports, max_size=12), limits, st.sampled_from([1, 10**9]), st.data())
def test_boxes_change_nothing(
    form: str, story: Sequence[Event], within: Limits, tree: int, data: st.DataObject
) -> None:
    """Whatever is told, by points or geometries, within which limits, and however the boxes are looked for."""
    story = [*START, *story]
    at = data.draw(st.sampled_from([0, len(START), len(story)]))
    relation = defined(a="type LIKE '%'", b="type = 'zone'", when=form)
    steps: list[Step] = [*story[:at], relation, *story[at:]]
    cuts = data.draw(st.lists(st.integers(0, len(steps)), max_size=4))
    with patch.object(boxes, "TREE", tree):
        assert events_told(Reference(), steps, limits=within) == events_told(RelationStage(), steps, cuts, within)


corners = st.lists(st.tuples(numbers, numbers, st.integers(-1, 2), st.integers(-1, 2)), max_size=8)


@given(corners, corners, st.sampled_from([1, 10**9]))
def test_boxes_that_meet_are_found(
    left: list[tuple[int, int, int, int]], right: list[tuple[int, int, int, int]], tree: int
) -> None:
    """Those and no others, each pair once; where nothing is nothing meets."""
    own, others = (
        np.array(
            [
                (x, y, x + wide, y + high) if min(wide, high) >= 0 else (np.inf, np.inf, -np.inf, -np.inf)
                for x, y, wide, high in side
            ],
            np.float64,
        ).reshape(-1, 4)
        for side in (left, right)
    )
    expected = {
        (i, j)
        for i, (w, s, e, n) in enumerate(own.tolist())
        for j, (west, south, east, north) in enumerate(others.tolist())
        if w <= east and e >= west and s <= north and n >= south
    }
    with patch.object(boxes, "TREE", tree):
        found = list(meeting(np.arange(len(own)), own, np.arange(len(others)), others))
    pairs = [pair for a, b in found for pair in zip(a.tolist(), b.tolist(), strict=True)]
    assert expected == set(pairs) and len(expected) == len(pairs)


@pytest.mark.parametrize(("form", "count"), list(zip(FORMS, (1, 2, 1, 0, 0, 0), strict=True)))
def test_boxes_alone_decide_where_all_that_is_compared_is_whether_they_meet(form: str, count: int) -> None:
    """The number is how often a predicate reads the geometries of both."""
    relation = relation_document({"id": "r", "a": "type = 'x'", "b": "type = 'y'", "when": form}, HERE)
    assert isinstance(relation.about, Pair)
    assert count == readings(relation.about.when)


def test_what_jumps_is_nowhere_in_between() -> None:
    """Zones between two places of an entity are not looked at, and of those that it was in each once or twice."""
    story: list[Step] = [defined(a="type = 'car'", b="type = 'zone'", when="S_INTERSECTS(a, b.geom)")]
    story += [report(f"zone{n}", n, n, type="zone", geographic=True, geom=square(n, n, 0.5)) for n in range(40)]
    story += [report("car", 39.25 * (n % 2), 39.25 * (n % 2), geographic=True) for n in range(20)]
    looks: list[int] = []
    read = PredicateEvaluator._read_events

    def counted(self: PredicateEvaluator, points: Integers) -> None:
        looks.append(len(points) // 2)
        read(self, points)

    with patch.object(PredicateEvaluator, "_read_events", counted):
        told = events_told(RelationStage(), story)
    assert 2 * 20 - 1 == len(told)
    assert 20 >= sum(looks)


def test_who_is_forgotten_lets_no_other_geometry_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is itself nowhere: those that come later have boxes of their own."""
    inside = defined(a="type = 'car'", b="type = 'zone'", when="S_INTERSECTS(a, b.geom)")
    zones = [report(f"zone{n}", n, n, type="zone", geographic=True, geom=square(n, n, 0.5)) for n in range(6)]
    stage = RelationStage()
    events_told(stage, [inside, *zones, report("car", 4.25, 4.25, geographic=True)])
    read: list[Event] = []

    def counted(event: Event, limits: Limits) -> tuple[float, ...]:
        read.append(event)
        return told_box(event, limits)

    monkeypatch.setattr(remembered_events, "told_box", counted)
    stage.pairing.forget(["zone1", "zone4"])
    more = [report("zone7", 4, 4, type="zone", geographic=True, geom=square(4, 4, 0.5))]
    more += [report("car", x, x, geographic=True) for x in (1.25, 4.25, 5.25)]
    told = events_told(stage, more, [1, 2, 3])
    passed = [(1, "enter", "zone7"), (2, "exit", "zone7"), (3, "enter", "zone7"), (4, "enter", "zone5")]
    assert sorted([*passed, (4, "exit", "zone7")]) == sorted(
        (position, what, zone) for position, what, _, zone, *_ in map(summary, told)
    )
    assert {"car", "zone7"} == {one.entity for one in read}
