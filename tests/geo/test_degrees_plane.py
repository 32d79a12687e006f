"""Distances in a plane of scaled degrees: they tell nothing else than geodesics, and most of what is asked."""

from __future__ import annotations

import pytest
import shapely
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nearcast.geo.degrees_plane import within_in_plane
from nearcast.geo.line_pieces import within
from nearcast.model.geometry_budget import GeometryWork
from tests.geo.test_shapes import distance, spacing


@st.composite
def pairs(draw: st.DrawFn) -> tuple[shapely.Geometry, shapely.Geometry]:
    """Two points, lines or outlines near some place, also one at the antimeridian or far in the north."""
    x, y = draw(st.sampled_from([0.0, 11.5, 179.99, -179.99])), draw(st.sampled_from([0.0, 48.1, -70.0, 88.0]))
    size = draw(st.sampled_from([1e-4, 0.01, 1.0]))

    def geometry(middle: float) -> shapely.Geometry:
        """One of two, in some size."""
        offsets = st.tuples(st.floats(-3, 3), st.floats(-3, 3))
        corners = [
            (max(-180.0, min(180.0, middle + size * dx)), y + size * dy / 2)
            for dx, dy in draw(st.lists(offsets, min_size=1, max_size=5, unique=True))
        ]
        return shapely.Point(corners[0]) if len(corners) == 1 else shapely.LineString(corners)

    return geometry(x), geometry(draw(st.sampled_from([x, -x])))


@settings(max_examples=60, deadline=None)
@given(pairs(), st.floats(0, 1.5))
@example((shapely.Point(0, 0), shapely.LineString([(0, 0), (0, 4.911e-198)])), 0.0)
@example((shapely.Point(0, 0), shapely.LineString([(0, 0), (0, 4.911e-198)])), 1.0)
def test_the_plane_agrees_with_samples(both: tuple[shapely.Geometry, shapely.Geometry], share: float) -> None:
    """Where it tells something, no sampled pair of points is nearer, or some pair is about so near."""
    a, b = both
    least = min(distance(a, b), distance(b, a))
    found = within_in_plane(a, b, share * least)
    if found is True:
        assert shapely.intersects(a, b) or least - spacing(a) - spacing(b) <= share * least + 0.01
    elif found is False:
        assert least > share * least


@settings(max_examples=50, deadline=None)
@given(pairs(), st.floats(1.02, 3.0))
def test_what_is_a_fiftieth_nearer_or_farther_is_told(
    both: tuple[shapely.Geometry, shapely.Geometry], times: float
) -> None:
    """Of places of a few kilometres beside the poles all but those at the limit itself."""
    a, b = (shapely.transform(one, lambda xy: xy * [1, 0.5]) for one in both)
    a, b = shapely.Point(shapely.get_coordinates(a)[0]), shapely.Point(shapely.get_coordinates(b)[0])
    metres = distance(a, b)
    if 1.0 < metres < 20_000:
        assert within_in_plane(a, b, metres * times)
        assert within_in_plane(a, b, metres / times) is False


@pytest.mark.parametrize(
    ("a", "b", "metres"),
    [
        ("POINT(0 90)", "LINESTRING(10 90, 20 90)", 0.0),
        ("POINT(0 89.99)", "POINT(180 89.99)", 2_500.0),
        ("POINT(200 0)", "POINT(-160 0)", 1.0),
        ("POINT(0 0)", "POINT(90 0)", 1e7),
    ],
)
def test_where_no_plane_is_near_the_globe_nothing_is_told(a: str, b: str, metres: float) -> None:
    """At poles, beyond 180 degrees, and for distances of continents geodesics tell."""
    left, right = shapely.from_wkt(a), shapely.from_wkt(b)
    assert within_in_plane(left, right, metres) is None
    assert within(left, right, metres) is not None


def test_teeth_beside_a_line_are_decided_with_little_work() -> None:
    """16,000 edges a thousand kilometres long, whose pairs would have to be halved many times each."""
    teeth = shapely.LineString([(n / 16_000 + (8.0 if n % 2 else 1.0), 8.0 if n % 2 else 1.0) for n in range(16_000)])
    line = shapely.LineString([(n / 100, 9 if n % 2 else 0) for n in range(100)])
    work = GeometryWork()
    assert within(teeth, line, 1_000, work) is False
    assert within(teeth, line, 3_000, work)
    assert work.spent < 1_000_000
