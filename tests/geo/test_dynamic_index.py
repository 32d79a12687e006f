"""The dynamic index misses nobody that is near, wherever things have moved."""

from __future__ import annotations

import math
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.geo.distance import SHORTEST, distance
from nearcast.geo.dynamic_index import SpatialHash, cell_of, cells_around, joined_levels, level_of
from nearcast.model.event import Place

degrees = st.one_of(st.floats(-180, 180), st.sampled_from([180.0, -180.0, 179.999999, -179.999999, 0.0, 1e-5]))
latitudes = st.one_of(st.floats(-90, 90), st.sampled_from([90.0, -90.0, 89.999999, 0.0, 1e-5]))
straight = st.one_of(st.integers(-20, 20).map(float), st.floats(-1e6, 1e6), st.sampled_from([0.0, 1e300, -1e300]))
places = st.one_of(
    st.builds(Place, st.just("geographic"), degrees, latitudes),
    st.builds(Place, st.just("planar"), straight, straight, st.none() | st.floats(-10, 10)),
)
metres = st.one_of(st.sampled_from([0.0, 0.5, 1.0, 2.0, 500.0, 2e7, 1e300, math.inf]), st.floats(0, 1e6))
moves = st.lists(st.tuples(st.integers(0, 9), st.none() | places | st.sampled_from([Place("planar", 0, 0)])))


@settings(max_examples=400, deadline=None)
@given(moves, places, metres, st.lists(metres, max_size=3), st.integers(0, 2))
def test_whoever_is_near_is_found(
    steps: list[tuple[int, Place | None]], here: Place, within: float, sizes: list[float], wider: int
) -> None:
    """After any comings, moves and goings; whatever cells are kept; around a place, and around each thing."""
    index: SpatialHash[int, tuple[int, Place]] = SpatialHash(joined_levels(map(level_of, sizes), wider))
    there: dict[int, Place] = {}
    for key, place in steps:
        if place is None:
            there.pop(key, None)
            index.remove(key)
        else:
            there[key] = place
            index.insert(key, place, (key, place))
    assert len(there) == len(index)
    for centre in (here, *there.values()):
        found = index.candidates(centre, within)
        assert len(set(found)) == len(found)
        assert set(found) <= set(there.items())
        apart = {key: distance(centre, place) for key, place in there.items()}
        assert {key for key, one in apart.items() if one is not None and one <= within} <= {key for key, _ in found}


@settings(max_examples=300, deadline=None)
@given(st.lists(places, max_size=10), places, metres, st.lists(metres, max_size=3))
def test_whoever_is_near_is_in_a_cell_near(there: list[Place], here: Place, within: float, sizes: list[float]) -> None:
    """In one of them, of those half as wide as what is asked for; whatever cells are kept."""
    index: SpatialHash[int, tuple[int, Place]] = SpatialHash(joined_levels(level_of(one) - 1 for one in sizes))
    for number, place in enumerate(there):
        index.insert(number, place, (number, place))
    for centre in (here, *there):
        found = [number for cell in index.near_cells(centre, within) for number, _ in cell]
        assert len(set(found)) == len(found)
        apart = {number: distance(centre, place) for number, place in enumerate(there)}
        assert {number for number, one in apart.items() if one is not None and one <= within} <= set(found)


@given(degrees, latitudes, st.floats(0, 2 * math.pi), st.floats(1e-3, 1e5))
def test_what_is_just_near_enough_is_in_a_cell_beside(lon: float, lat: float, way: float, within: float) -> None:
    """On the globe in every direction, by the geodesic."""
    step = math.degrees(within / SHORTEST)
    there = Place("geographic", lon + step * math.cos(way), max(-90.0, min(90.0, lat + step * math.sin(way))))
    here = Place("geographic", lon, lat)
    apart = distance(here, there)
    assert apart is not None
    assert cell_of(there, level_of(apart)) in cells_around(here, level_of(apart))


def test_few_that_are_far_are_looked_at() -> None:
    """Of 2,000 on a square kilometre, some dozens for ten metres."""
    chance = random.Random(1)
    index: SpatialHash[int, Place] = SpatialHash([level_of(10)])
    for key in range(2_000):
        place = Place("planar", chance.uniform(0, 1000), chance.uniform(0, 1000))
        index.insert(key, place, place)
    assert len(index.candidates(Place("planar", 500, 500), 10)) < 40


@given(st.lists(st.integers(-5, 30)), st.integers(0, 3))
def test_joined_levels_serve_all(levels: list[int], steps: int) -> None:
    """Each by one that is no narrower, and not much wider."""
    kept = joined_levels(levels, steps)
    assert sorted(kept) == list(kept)
    assert all(any(level <= one <= level + steps for one in kept) for level in levels)
    assert set(kept) <= set(levels)
