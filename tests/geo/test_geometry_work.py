"""What comparing geometries takes is counted beforehand, and what is too much is not done, whoever decides."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import Mark
from nearcast.filters.evaluate import NO_CONTEXT, atom_truth
from nearcast.geo import shapes
from nearcast.geo.geometry_work import EdgeBoxes, crossing, edge_boxes, meeting
from nearcast.geo.line_pieces import within
from nearcast.language.cql2 import parse
from nearcast.matching.matcher import FilterMatcher
from nearcast.model.columns import to_table
from nearcast.model.event import Event, Place
from nearcast.model.filter import Atom
from nearcast.model.geometry_budget import GeometryWork
from nearcast.model.limits import Limits
from nearcast.state.timeline import Environment

SNAPSHOT = "nsw_rfs_fires/snapshots/20200103T093510Z.geojson.gz"

ends = st.tuples(st.integers(0, 5), st.integers(0, 5))
lines = st.lists(st.lists(ends, min_size=2, max_size=3).map(shapely.LineString), min_size=1, max_size=5)


def naive(a: EdgeBoxes, b: EdgeBoxes) -> int:
    """The same, pair by pair."""
    pairs = itertools.product(range(len(a)), range(len(b)))
    boxes = [shapely.box(*a.columns[:, i]).intersects(shapely.box(*b.columns[:, j])) for i, j in pairs]
    return sum(map(bool, boxes))


@given(lines, lines)
def test_edges_that_may_meet_are_counted(a: list[shapely.LineString], b: list[shapely.LineString]) -> None:
    """Each pair of boxes that meet once; where a rough count does, it is no less."""
    left, right = edge_boxes(np.array(a)), edge_boxes(np.array(b))
    exact = naive(left, right)
    assert exact == meeting(left, right, 0)
    assert exact <= meeting(left, right, 30)


def comb(corners: int) -> dict[str, Any]:
    """A polygon whose teeth lean, so that the boxes of all their edges meet; it is valid."""
    teeth = [[n / corners + (1.0 if n % 2 else 0.1), 1.0 if n % 2 else 0.1] for n in range(corners)]
    return {"type": "Polygon", "coordinates": [[[0, 0], *teeth, [1, 0], [0, 0]]]}


def tangle(corners: int) -> dict[str, Any]:
    """A polygon in which every edge crosses many others."""
    ring = np.random.default_rng(1).random((corners, 2)).tolist()
    return {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}


def squares(count: int) -> dict[str, Any]:
    """A collection of squares within each other."""
    sides = (1 + n / count for n in range(count))
    rings = ([[0, 0], [side, 0], [side, side], [0, side], [0, 0]] for side in sides)
    return {"type": "GeometryCollection", "geometries": [{"type": "Polygon", "coordinates": [ring]} for ring in rings]}


def grid(side: int, shift: float) -> dict[str, Any]:
    """A polygon of many squares apart from each other."""
    corners = [(x + shift, y + shift) for x in range(side) for y in range(side)]
    rings = [[[[x, y], [x + 0.5, y], [x + 0.5, y + 0.5], [x, y]]] for x, y in corners]
    return {"type": "MultiPolygon", "coordinates": rings}


def line(polygon: dict[str, Any]) -> dict[str, Any]:
    """The outline of a polygon."""
    return {"type": "LineString", "coordinates": polygon["coordinates"][0]}


def truth(text: str, limits: Limits | None = None, **told: dict[str, Any]) -> bool | None:
    """The truth of an atom for an event that tells such geometries, the same by the evaluator and by the matcher."""
    atom = parse(text, Mark("test"))
    assert isinstance(atom, Atom)
    event = Event("e", "zone", "city", None, None, None, tuple((name, json.dumps(one)) for name, one in told.items()))
    plain = atom_truth(atom, event, NO_CONTEXT, limits or Limits())
    around = Environment(limits=limits or Limits())
    matched = FilterMatcher([(atom, (0,))]).match(to_table([event]), around)
    assert len(matched.lanes) == (plain is True)
    assert (plain is None) == bool(around.excess)
    return plain


BOX = "POLYGON((0 0, 1 0, 1 1, 0 0))"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"S_INTERSECTS(geom, {BOX})", {"geom": comb(16_000)}),
        (f"S_INTERSECTS(geom, {BOX})", {"geom": tangle(1_000)}),
        ("S_OVERLAPS(a, geom)", {"a": line(comb(500)), "geom": line(comb(501))}),
        ("S_INTERSECTS(a, geom)", {"a": grid(50, 0.0), "geom": grid(50, 0.7)}),
        (f"S_INTERSECTS(geom, {BOX})", {"geom": {"type": "MultiPoint", "coordinates": [[5, 5]] * 60_000}}),
    ],
)
def test_what_takes_too_much_is_unknown(text: str, told: dict[str, Any]) -> None:
    """However it does: edges beside each other, crossings, parts, corners."""
    assert truth(text, **told) is None


@pytest.mark.parametrize(
    ("expected", "text", "told"),
    [
        (True, f"S_INTERSECTS(geom, {BOX})", comb(1_000)),
        (True, f"S_INTERSECTS(geom, {BOX})", tangle(60)),
        (False, f"S_TOUCHES(geom, {BOX})", squares(25)),
        (False, "S_OVERLAPS(geom, geom)", squares(15)),
        (True, f"S_INTERSECTS(geom, {BOX})", grid(50, 0.1)),
    ],
)
def test_what_takes_little_is_decided(expected: bool, text: str, told: dict[str, Any]) -> None:
    """Also where it crosses itself, or is a collection of polygons within each other."""
    assert expected is truth(text, geom=told)


def test_the_limits_are_settings() -> None:
    """Who allows less decides less; one point is decided in any case."""
    square = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}
    point = {"type": "Point", "coordinates": [0.5, 0.2]}
    assert truth(f"S_INTERSECTS(area, {BOX})", area=square) is True
    assert truth(f"S_INTERSECTS(area, {BOX})", Limits(geometry_corners=3), area=square) is None
    assert truth(f"S_INTERSECTS(area, {BOX})", Limits(geometry_work=100), area=square) is None
    assert truth(f"S_INTERSECTS(area, {BOX})", Limits(geometry_corners=3), area=point) is True


def test_the_limit_is_of_all_that_an_atom_reads() -> None:
    """Of many geometries they are decided until the work is done; one that holds is enough."""
    atom = parse("S_OVERLAPS(parts, geom)", Mark("test"))
    assert isinstance(atom, Atom)
    many = tuple(("parts", json.dumps(line(comb(200 + n)))) for n in range(70))
    event = Event("e", "zone", "city", None, None, None, (*many, ("geom", json.dumps(line(comb(300))))))
    assert atom_truth(atom, event, NO_CONTEXT) is None
    near = parse("S_INTERSECTS(parts, geom)", Mark("test"))
    assert isinstance(near, Atom) and atom_truth(near, event, NO_CONTEXT) is True


def test_distances_of_lines_beside_each_other_are_bounded() -> None:
    """Metres between long outlines, in the plane and on the globe."""
    far = shapely.affinity.translate(shapely.from_geojson(json.dumps(line(comb(8_000)))), 3)
    a, b = (shapes.Geometry(one, False, 8_000) for one in (far, shapely.affinity.translate(far, 0, 2)))
    work = GeometryWork()
    assert (None, True) == (shapes.near(a, b, 300_000, work), bool(work.reason))
    assert shapes.near(a, b, 1.0, GeometryWork()) is False


def test_fires_take_a_small_part_of_what_is_allowed(data: Callable[[str], Path]) -> None:
    """Outlines of a day of bushfires, read, and held against the largest."""
    limits = Limits()
    features = json.loads(gzip.decompress(data(SNAPSHOT).read_bytes()))["features"]
    found = [one for feature in features if (one := shapes.told(json.dumps(feature["geometry"])))]
    largest = max(found, key=lambda one: one.corners)
    assert largest.corners * 5 < limits.geometry_corners
    for one in found:
        assert one.cost * 2 < limits.geometry_work
        assert shapes.comparing("S_OVERLAPS", one, largest) * 1.5 < limits.geometry_work


def test_pairs_of_a_ring_with_itself() -> None:
    """Neighbours are no crossing."""
    assert 0 == crossing(edge_boxes(shapely.box(0, 0, 1, 1).buffer(0)))
    assert 1 <= crossing(edge_boxes(shapely.LineString([(0, 0), (1, 1), (2, 1), (2, 0), (1, 0), (0, 1)])))


def test_many_polygons_of_a_collection_are_put_together_where_they_meet() -> None:
    """Each is joined with those that it meets, not with thousands that are elsewhere."""
    boxes = [shapely.box(2 * n, 0, 2 * n + 1, 1) for n in range(300)]
    shape = shapely.GeometryCollection([*boxes, shapely.box(0.5, 0, 1.5, 1)])
    found = shapes.told(shapely.to_geojson(shape))
    assert found is not None and found.cost < 100_000
    assert 300 == len(shapely.get_parts(found.shape))
    assert shapely.equals(found.shape, shapely.unary_union(boxes).union(shapely.box(0.5, 0, 1.5, 1)))


def test_distances_seen_by_edges_are_those_that_are_measured() -> None:
    """Of a point and an outline, just within and just beyond a distance; most take no more than that look."""
    outline, work = shapely.Point(10, 50).buffer(1, quad_segs=64), Limits().geometry_work
    told = shapes.told(shapely.to_geojson(outline))
    assert told is not None
    for degrees in (1.001, 1.1, 1.5, 3.0):
        place = shapes.at(Place("geographic", 10 + degrees, 50.0))
        for metres in (10.0, 1_000.0, 50_000.0, 200_000.0):
            budget = GeometryWork()
            assert within(outline, place.shape, metres) == shapes.near(told, place, metres, budget)
            assert budget.spent * 50 < work
    assert shapes._seen_by_edges(told, shapes.at(Place("geographic", 13.0, 50.0)), 1_000.0) is False
    assert shapes._seen_by_edges(told, shapes.at(Place("geographic", 11.1, 50.0)), 50_000.0) is True
