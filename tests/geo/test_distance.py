"""Distances: known geodesics, fences, and bounds that never contradict the geodesic (semantics §4)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nearcast.filters.evaluate import NO_CONTEXT, truth
from nearcast.geo.distance import (
    MAJOR,
    MINOR,
    distance,
    geodesic,
    planar,
    surely_beyond,
    surely_within,
    unit_vectors,
    wgs84,
)
from nearcast.matching.matcher import FilterMatcher
from nearcast.model.columns import to_table
from nearcast.model.event import Event, Place
from nearcast.model.filter import Atom, Distance, Operator, This
from nearcast.state.timeline import Environment
from tests.shared import shared


def earth(longitude: float, latitude: float) -> Place:
    return Place("geographic", longitude, latitude)


def within(centre: Place, metres: float) -> Atom:
    return Atom(Distance(This(), centre), Operator.LE, metres)


def matched(node: Atom, places: list[Place]) -> list[bool]:
    """Which of events at these places the matcher selects."""
    events = [Event(str(number), "t", "s", place=place, position=number) for number, place in enumerate(places, 1)]
    lanes = set(FilterMatcher([(node, (0,))]).match(to_table(events), Environment()).lanes.tolist())
    return [lane in lanes for lane in range(len(places))]


def test_the_half_axes_are_those_of_the_geodesics() -> None:
    """They are written down, for most commands have no geodesic to load."""
    assert (wgs84().a, wgs84().b) == (MAJOR, MINOR)


@pytest.mark.data
def test_known_geodesics() -> None:
    """Twenty pairs whose distance is known to nanometres; longitudes beyond 180 degrees too."""
    for case in json.loads(shared("cases", "geodesic", "geodtest20.json").read_text())["cases"]:
        a, b = earth(case["lon1"], case["lat1"]), earth(case["lon2"], case["lat2"])
        assert case["s12"] == pytest.approx(distance(a, b), abs=1e-6)
        longitude = math.remainder(case["lon2"], 360)
        assert case["s12"] == pytest.approx(distance(a, earth(longitude, case["lat2"])), abs=1e-6)


@pytest.mark.data
def test_known_geodesics_through_the_matcher() -> None:
    """A millimetre less than the distance excludes, a millimetre more includes."""
    for case in json.loads(shared("cases", "geodesic", "geodtest20.json").read_text())["cases"]:
        a, b = earth(case["lon1"], case["lat1"]), earth(math.remainder(case["lon2"], 360), case["lat2"])
        for expected, metres in ((False, case["s12"] - 1e-3), (True, case["s12"] + 1e-3)):
            assert [expected] == matched(within(a, metres), [b])


def noticed(inside: list[bool]) -> Iterator[str]:
    """What a fence reports of an object that is inside or not, update by update; crossing between updates is no
    notion of a distance."""
    before = False
    for now in inside:
        if now != before:
            yield "enter" if now else "exit"
        yield "inside" if now else "outside"
        before = now


def fence_cases() -> Iterator[dict[str, Any]]:
    yield from json.loads(shared("cases", "fences", "fence_cases.json").read_text())["cases"]


@pytest.mark.data
def test_fences() -> None:
    """Within D of a point, by the evaluator and by the matcher, as a fence server reports it."""
    for case in fence_cases():
        command = case["fence"].split()
        latitude, longitude, metres = map(float, command[command.index("POINT") + 1 :])
        kept = command[command.index("DETECT") + 1].split(",") if "DETECT" in command else None
        expected = [what for what in case["expected_detect"] if what != "cross"]
        fence = within(earth(longitude, latitude), metres)
        places = [earth(lon, lat) for _, lat, lon in case["updates"]]
        plainly = [truth(fence, Event("e", "t", "s", place=place), NO_CONTEXT) is True for place in places]
        for inside in (plainly, matched(fence, places)):
            assert expected == [what for what in noticed(inside) if kept is None or what in kept], case["name"]


def test_planar_distances_count_height_if_both_have_one() -> None:
    """Euclidean, in two or three dimensions."""
    assert distance(Place("planar", 0, 0), Place("planar", 3, 4)) == 5
    assert distance(Place("planar", 0, 0, 12), Place("planar", 3, 4)) == 5
    assert distance(Place("planar", 0, 0, 12), Place("planar", 3, 4, 0)) == 13


def test_planar_and_geographic_places_have_no_distance() -> None:
    """Neither way round."""
    assert distance(Place("planar", 0, 0), earth(0, 0)) is None
    assert distance(earth(0, 0), Place("planar", 0, 0)) is None


def test_there_is_no_seam_and_a_pole_is_one_point() -> None:
    """Across the antimeridian a step is a step; at a pole every longitude is the same place."""
    assert distance(earth(0, 0), earth(0.0002, 0)) == pytest.approx(distance(earth(179.9999, 0), earth(-179.9999, 0)))
    assert distance(earth(10, 90), earth(-170, 90)) == pytest.approx(0, abs=1e-6)
    assert distance(earth(10, -90), earth(100, -90)) == pytest.approx(0, abs=1e-6)
    # A quarter of a meridian of WGS84.
    assert distance(earth(0, 0), earth(77, 90)) == pytest.approx(10_001_965.729, abs=1e-3)


longitudes, latitudes = st.floats(-180, 180), st.floats(-90, 90)
steps = st.sampled_from([0.0, 1e-7, 1e-5, 1e-3, 0.1, 5.0])
factors = st.sampled_from([0.0, 0.5, 0.99, 0.993, 0.999, 1 - 1e-7, 1.0, 1 + 1e-7, 1.001, 1.007, 1.01, 2.0])


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Place, Place]:
    """Two places, often near one another, at a pole or beyond the antimeridian."""
    a = earth(draw(longitudes), draw(st.one_of(latitudes, st.sampled_from([-90.0, 0.0, 90.0]))))
    if draw(st.booleans()):
        return a, earth(draw(longitudes), draw(latitudes))
    x, y = a.x + draw(steps) * draw(st.floats(-1, 1)), a.y + draw(steps) * draw(st.floats(-1, 1))
    return a, earth(math.remainder(x, 360), max(-90.0, min(90.0, y)))


@settings(max_examples=2000, deadline=None)
@given(pairs(), factors)
@example((earth(0, 0), earth(180, 0)), 1.0)
@example((earth(0, 90), earth(0, -90)), 1.0)
def test_the_spherical_bounds_never_contradict_the_geodesic(pair: tuple[Place, Place], factor: float) -> None:
    """What is surely within a distance is, what is surely beyond is not, however close the distance to the limit."""
    metres = distance(*pair)
    assert metres is not None
    limit = metres * factor
    a, b = unit_vectors(np.array([place.x for place in pair]), np.array([place.y for place in pair]))
    chord = float(((a - b) ** 2).sum())
    assert metres <= limit or not chord <= surely_within(limit)
    assert metres > limit or not chord > surely_beyond(limit)


@given(st.lists(pairs(), min_size=1, max_size=5))
def test_many_distances_at_once_are_those_one_by_one(found: list[tuple[Place, Place]]) -> None:
    """To the last bit: a matcher must not differ from the evaluator by rounding."""
    columns = np.array([(a.x, a.y, b.x, b.y) for a, b in found]).T
    assert [distance(a, b) for a, b in found] == geodesic(*columns).tolist()


@given(st.lists(st.tuples(*[st.floats(-1e6, 1e6)] * 3), min_size=1, max_size=5))
def test_many_planar_distances_at_once_are_those_one_by_one(found: list[tuple[float, float, float]]) -> None:
    """The same for metres."""
    origin = Place("planar", 0, 0, 0)
    expected = [distance(Place("planar", *point), origin) for point in found]
    assert expected == planar(*np.array(found).T).tolist()
