"""The grid gives every pair that is near."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.geo.distance import geodesic, unit_vectors
from nearcast.relations.near_pairs import near_pairs
from nearcast.relations.reports import GEOGRAPHIC, PLANAR

Pairs = set[tuple[int, int]]

degrees = st.one_of(st.floats(-180, 180), st.sampled_from([180.0, -180.0, 179.99999, -179.99999, 0.0, 1e-5]))
latitudes = st.one_of(st.floats(-90, 90), st.sampled_from([90.0, -90.0, 89.99999, 0.0, 1e-5]))
metres = st.one_of(st.sampled_from([0.0, 1.0, 5.0, 500.0, 2e7]), st.floats(0, 1e6))
coordinates = st.one_of(st.integers(-20, 20).map(float), st.floats(-1e6, 1e6))


def given_pairs(kind: int, points: np.ndarray, within: float) -> Pairs:
    """All pairs that the grid gives, of every second point among all."""
    everyone = np.arange(len(points))
    found = near_pairs(kind, points, everyone[::2], everyone, within)
    return {pair for a, b in found for pair in zip(a.tolist(), b.tolist(), strict=True)}


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(degrees, latitudes), min_size=1, max_size=12), metres)
def test_no_near_pair_on_the_globe_is_missed(places: list[tuple[float, float]], within: float) -> None:
    """By the geodesic; also across the antimeridian and at the poles."""
    lon, lat = (np.array(column) for column in zip(*places, strict=True))
    first, second = np.meshgrid(np.arange(0, len(lon), 2), np.arange(len(lon)), indexing="ij")
    a, b = first.ravel(), second.ravel()
    near = geodesic(lon[a], lat[a], lon[b], lat[b]) <= within
    expected = set(zip(a[near].tolist(), b[near].tolist(), strict=True))
    assert expected <= given_pairs(GEOGRAPHIC, unit_vectors(lon, lat), within)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(coordinates, coordinates), min_size=1, max_size=12), metres)
def test_no_near_pair_on_the_plane_is_missed(places: list[tuple[float, float]], within: float) -> None:
    """Also of far places, and at distance 0."""
    points = np.array(places)
    apart = np.hypot(*(points[::2, None] - points[None]).transpose(2, 0, 1))
    expected = {(2 * a, b) for a, b in zip(*(one.tolist() for one in np.nonzero(apart <= within)), strict=True)}
    assert expected <= given_pairs(PLANAR, points, within)


@pytest.mark.parametrize("within", [1.0, 10.0])
def test_few_that_are_far_are_given(within: float) -> None:
    """What the grid gives follows neighbours, not pairs."""
    points = np.random.default_rng(1).uniform(0, 1000, (2000, 2))
    near = np.hypot(*(points[::2, None] - points[None]).transpose(2, 0, 1)) <= within
    assert int(near.sum()) == len(given_pairs(PLANAR, points, within))
