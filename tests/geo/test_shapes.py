"""Geometries within a distance of each other: against geodesics, samples of points, and known distances."""

from __future__ import annotations

import json

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.geo.distance import wgs84
from nearcast.geo.line_pieces import within
from tests.shared import shared

longitudes = st.floats(-180, 180)
latitudes = st.floats(-90, 90)
corners = st.tuples(longitudes, latitudes)
lines = st.lists(corners, min_size=2, max_size=4, unique=True).map(shapely.LineString)
rings = st.lists(corners, min_size=4, max_size=5, unique=True).map(
    lambda found: shapely.make_valid(shapely.Polygon(found))
)
geometries = st.one_of(
    corners.map(shapely.Point), st.lists(corners, min_size=1, max_size=3).map(shapely.MultiPoint), lines
)


def test_points_are_within_their_geodesic_distance() -> None:
    """Published geodesics, to the millimetre."""
    for case in json.loads(shared("cases", "geodesic", "geodtest20.json").read_text())["cases"]:
        a, b = shapely.Point(case["lon1"], case["lat1"]), shapely.Point(case["lon2"], case["lat2"])
        assert within(a, b, case["s12"] + 1e-3), case
        assert not within(a, b, case["s12"] - 1e-3), case


@pytest.mark.parametrize(
    ("metres", "a", "b"),
    [
        (110_574.4, "LINESTRING(0 0, 90 0)", "LINESTRING(10 1, 80 1)"),
        (111_319.5, "LINESTRING(179.5 -1, 179.5 1)", "POINT(-179.5 0)"),
        (223_387.8, "LINESTRING(0 88, 0 89)", "LINESTRING(180 88, 180 89)"),
        (0.1, "POLYGON((170 -10, 190 -10, 190 10, 170 10, 170 -10))", "POINT(-175 0)"),
        (0.1, "LINESTRING(180 -5, 180 5)", "LINESTRING(-180 5, -180 9)"),
        (111_693.9, "POINT(0 90)", "LINESTRING(-180 89, 180 89)"),
    ],
)  # fmt: skip
def test_lines_are_within_their_distance(metres: float, a: str, b: str) -> None:
    """Along parallels, across the antimeridian, over the pole: within a metre's tenth."""
    left, right = shapely.from_wkt(a), shapely.from_wkt(b)
    assert within(left, right, metres)
    assert within(right, left, metres)
    if metres > 1:
        assert not within(left, right, metres - 0.2)


@settings(max_examples=60, deadline=None)
@given(geometries, st.one_of(geometries, rings))
def test_what_is_near_agrees_with_samples(a: shapely.Geometry, b: shapely.Geometry) -> None:
    """No sampled pair of points is nearer than the least distance that holds, and it is not much less than theirs."""
    least = min(distance(a, b), distance(b, a))
    assert within(a, b, least + 0.01)
    step = 0.0 if shapely.intersects(a, b) else least
    assert step == 0 or not within(a, b, max(step - spacing(a) - spacing(b) - 0.02, -1))


def spacing(geometry: shapely.Geometry) -> float:
    """Half of the greatest distance in metres between neighbours of 200 samples, at most."""
    return 111_700 * shapely.length(geometry) / 200


def distance(a: shapely.Geometry, b: shapely.Geometry) -> float:
    """The least geodesic between 201 samples of both, or their corners."""
    left, right = samples(a), samples(b)
    pairs = [np.repeat(left, len(right), axis=0), np.tile(right, (len(left), 1))]
    return float(wgs84().inv(*pairs[0].T.copy(), *pairs[1].T.copy())[2].min())


def samples(geometry: shapely.Geometry) -> np.ndarray:
    """Points on a geometry's lines and rings."""
    found = [shapely.get_coordinates(geometry)]
    for part in shapely.get_parts(shapely.boundary(geometry) if shapely.get_dimensions(geometry) == 2 else geometry):
        if shapely.length(part) > 0:
            found.append(
                shapely.get_coordinates(shapely.line_interpolate_point(part, np.linspace(0, 1, 101), normalized=True))
            )
    return np.concatenate(found)


def test_nothing_is_near_an_empty_geometry() -> None:
    """Nor within a negative distance."""
    point = shapely.Point(1, 1)
    assert not within(point, shapely.from_wkt("POLYGON EMPTY"), 1e9)
    assert not within(point, point, -1.0)


def test_any_limit_may_be_asked_for() -> None:
    """More than the globe is wide is everywhere, however much more."""
    assert within(shapely.LineString([(0, 0), (1, 1)]), shapely.Point(180, 0), 1e300)
