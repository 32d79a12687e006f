"""Geometries of events: on the globe, where they are in degrees."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.api.event_rows import event_of
from nearcast.api.frames import events_of
from nearcast.errors import EventError, Fault, Mark
from nearcast.language.cloudevents import DeadLetter, read_event
from nearcast.language.definitions import client_documents
from nearcast.language.definitions.client_documents import place_of_geometry
from nearcast.language.event_degrees import beyond
from nearcast.language.features import read_feature
from nearcast.model.subscription import Channel

HERE = Mark("here")


AREAS = {
    "Polygon": [[[0, 0], [200, 0], [200, 50], [0, 0]]],
    "LineString": [[-33.8, 151.2], [-33.9, 151.2]],
    "MultiPoint": [[0, 0], [0, 90.5]],
}


@pytest.mark.parametrize("kind", AREAS)
def test_a_geometry_beyond_the_globe_is_a_fault(kind: str) -> None:
    """As a point is, in whatever attribute it is; of a planar channel it may be in metres."""
    area = {"type": kind, "coordinates": AREAS[kind]}
    collection = {"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": [0, 0]}, area]}
    for data in ({"area": area}, {"at": {"deep": area}}, {"some": [collection]}):
        event = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": data}
        feature = {"type": "Feature", "properties": data, "geometry": None}
        for channels in ((), (Channel("all", "geographic"),)):
            with pytest.raises(EventError, match="a geometry in degrees: longitudes to 180, latitudes to 90") as found:
                read_event(event, HERE, channels)
            assert (kind != "Polygon") == ("are they swapped?" in str(found.value))
            with pytest.raises(EventError, match="a geometry in degrees"):
                event_of({"type": "t", **data}, 0, channels)
            with pytest.raises(EventError, match="a geometry in degrees"):
                read_feature(feature, HERE, 1, channels)
        planar = (Channel("all", "planar"),)
        assert read_event(event, HERE, planar).attributes
        assert event_of({"type": "t", **data}, 0, planar).attributes
        assert read_feature(feature, HERE, 1, planar).attributes


@pytest.mark.parametrize("kind", AREAS)
def test_a_row_with_a_geometry_beyond_the_globe_is_a_dead_letter(kind: str) -> None:
    """And the others are events."""
    area = {"type": kind, "coordinates": AREAS[kind]}
    frame = pa.Table.from_pylist([{"type": "t", "inner": {"area": one}} for one in (None, area)])
    letters: list[DeadLetter] = []
    assert 1 == len(events_of(frame, 0, letters.append, (Channel("all", "geographic"),)))
    expected = "row 1: expected a geometry in degrees: longitudes to 180, latitudes to 90, got inner.area with "
    assert [True] == [str(letter.fault).startswith(expected) for letter in letters]
    assert 2 == len(events_of(frame, channels=(Channel("all", "planar"),)))


EDGES = st.sampled_from([-180, -180.0 - 5e-10, 180, 181, -90.5, 90, 0, -0.0, 10**400, True, "1", None])
POSITIONS = st.lists(st.floats(-180, 180) | st.floats(-90, 90) | st.integers(-90, 90) | EDGES, min_size=1, max_size=3)
PLAIN = st.tuples(st.floats(-180, 180), st.integers(-90, 90)).map(list)
COORDINATES = st.one_of(
    st.lists(PLAIN, min_size=1),
    st.lists(st.lists(PLAIN, min_size=1)),
    st.lists(POSITIONS),
    st.lists(st.lists(POSITIONS)),
)


@given(st.lists(st.builds(lambda inner: {"type": "LineString", "coordinates": inner}, COORDINATES), max_size=3))
def test_what_is_seen_at_once_is_what_is_seen_one_by_one(lines: list[dict[str, Any]]) -> None:
    """The place of a geometry, and what in it is no place on the globe, whatever its coordinates are."""
    geometry = {"type": "GeometryCollection", "geometries": lines}

    def found() -> tuple[object, object]:
        try:
            place: object = place_of_geometry(geometry, Mark("test"))
        except (Fault, OverflowError) as error:
            place = str(error)
        return place, beyond("geom", geometry)

    at_once = found()
    with mock.patch.object(client_documents, "_plain_positions", return_value=None):
        assert found() == at_once
