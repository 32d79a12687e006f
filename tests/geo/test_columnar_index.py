"""The columnar index gives the very pairs that looking at all gives, and none that is near is missing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.geo import columnar_index
from nearcast.geo.columnar_index import TimedPoints, always_there, near_pairs, square_limit
from nearcast.geo.distance import geodesic, unit_vectors

Pairs = set[tuple[int, int]]

degrees = st.one_of(st.floats(-180, 180), st.sampled_from([180.0, -180.0, 179.99999, -179.99999, 0.0, 1e-5]))
latitudes = st.one_of(st.floats(-90, 90), st.sampled_from([90.0, -90.0, 89.99999, 0.0, 1e-5]))
metres = st.one_of(st.sampled_from([0.0, 1.0, 5.0, 500.0, 2e7, 1e200]), st.floats(0, 1e6))
coordinates = st.one_of(
    st.integers(-20, 20).map(float), st.floats(-1e6, 1e6), st.sampled_from([0.0, 1e-200, 1e100, -1e100])
)
moments = st.tuples(st.integers(0, 5), st.integers(0, 5))


@pytest.fixture(params=[0, 1 << 16])
def few(request: pytest.FixtureRequest) -> Iterator[int]:
    """By the grid, in small parts; and by looking at all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columnar_index, "FEW", request.param)
        patch.setattr(columnar_index, "ROOM", 1)
        yield request.param


def pairs_of(probes: TimedPoints, limits: np.ndarray, points: TimedPoints) -> Pairs:
    """The pairs that the index gives, each of which it gives once."""
    found = [pair for part in near_pairs(probes, limits, points) for pair in zip(*part[:2], strict=True)]
    assert len(set(found)) == len(found)
    return {(int(probe), int(point)) for probe, point in found}


def all_pairs(vectors: np.ndarray, within: float, geographic: bool) -> Pairs:
    """Of every second point and every point."""
    limits = np.full(len(vectors[::2]), square_limit(within, geographic))
    return pairs_of(always_there(vectors[::2]), limits, always_there(vectors))


@pytest.mark.usefixtures("few")
@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(degrees, latitudes), min_size=1, max_size=12), metres)
def test_no_near_pair_on_the_globe_is_missed(places: list[tuple[float, float]], within: float) -> None:
    """By the geodesic; also across the antimeridian and at the poles."""
    lon, lat = (np.array(column) for column in zip(*places, strict=True))
    first, second = np.meshgrid(np.arange(0, len(lon), 2), np.arange(len(lon)), indexing="ij")
    a, b = first.ravel(), second.ravel()
    near = geodesic(lon[a], lat[a], lon[b], lat[b]) <= within
    expected = set(zip((a[near] // 2).tolist(), b[near].tolist(), strict=True))
    assert expected <= all_pairs(unit_vectors(lon, lat), within, True)


@pytest.mark.usefixtures("few")
@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(coordinates, coordinates), min_size=1, max_size=12), metres)
def test_no_near_pair_on_the_plane_is_missed(places: list[tuple[float, float]], within: float) -> None:
    """Also of far places, and at distance 0."""
    points = np.array([(x, y, 0.0) for x, y in places])
    apart = np.hypot(*(points[::2, None, :2] - points[None, :, :2]).transpose(2, 0, 1))
    expected = set(zip(*(one.tolist() for one in np.nonzero(apart <= within)), strict=True))
    assert expected <= all_pairs(points, within, False)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(coordinates, coordinates, coordinates, moments), min_size=1, max_size=8),
    st.lists(st.tuples(coordinates, coordinates, coordinates, moments, metres), min_size=1, max_size=8),
)
def test_the_grid_gives_what_looking_at_all_gives(points: list, probes: list) -> None:
    """Each probe with a limit of its own, many at one place, and each point for a while."""

    def located(some: list) -> TimedPoints:
        """The first four columns."""
        vectors = np.array([one[:3] for one in some], np.float64)
        return TimedPoints(vectors, *(np.array([one[3][end] for one in some], np.int64) for end in (0, 1)))

    limits = np.array([square_limit(one[4], False) for one in probes])
    found = []
    for few in (0, 1 << 16):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(columnar_index, "FEW", few)
            patch.setattr(columnar_index, "ROOM", 1)
            found.append(pairs_of(located(probes), limits, located(points)))
    assert found[0] == found[1]


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("within", [1.0, 10.0])
def test_few_that_are_far_are_given(within: float) -> None:
    """What the index gives follows neighbours, not pairs."""
    points = np.zeros((2000, 3))
    points[:, :2] = np.random.default_rng(1).uniform(0, 1000, (2000, 2))
    near = np.hypot(*(points[::2, None, :2] - points[None, :, :2]).transpose(2, 0, 1)) <= within
    assert int(near.sum()) == len(all_pairs(points, within, False))
