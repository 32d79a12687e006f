"""Geometries of events: on the globe, where they are in degrees."""

from __future__ import annotations

import pyarrow as pa
import pytest

from nearcast.api.event_rows import event_of
from nearcast.api.frames import events_of
from nearcast.errors import EventError, Mark
from nearcast.language.cloudevents import DeadLetter, read_event
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
