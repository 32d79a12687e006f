"""Geometries known by what is around them compare as those that are read, and are read only where that is needed."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.geo import shapes, told_geometry
from nearcast.geo.told_geometry import ToldGeometries, around_written
from nearcast.model.expression import SPATIAL, Box
from nearcast.model.geometry_budget import READ_TOGETHER, EventGeometryWork, GeometryWork
from nearcast.model.limits import Limits
from tests.relations.test_boxes import bent, square

texts = st.one_of(
    st.builds(square, st.integers(-3, 3), st.integers(-3, 3), st.sampled_from([1, 2, 0.5])),
    st.builds(bent, st.integers(-3, 3), st.integers(-3, 3)),
    st.sampled_from(
        [
            '{"type": "Point", "coordinates": [1, 1]}',
            '{"type": "LineString", "coordinates": [[-2, 0], [2, 1], [0, -2]]}',
            '{"type": "Polygon", "coordinates": []}',
        ]
    ),
)


@settings(max_examples=100, deadline=None)
@given(
    texts, texts, st.sampled_from([*SPATIAL, "S_DWITHIN"]), st.sampled_from([0.0, 50_000.0, 300_000.0]), st.booleans()
)
def test_known_geometries_are_as_those_that_are_read(
    one: str, other: str, function: str, metres: float, comparing: bool
) -> None:
    """In every relation and at every distance, with the same work; also against one that is written."""
    found = []
    box, known = Box((-1.0, -1.0, 1.0, 1.0)), ToldGeometries([one, other])
    read = shapes.told(one), shapes.told(other), shapes.written(box)
    for a, b, written in (read, (known(one), known(other), around_written(box))):
        assert a and b
        works = [GeometryWork(Limits(), comparing=comparing) for _ in range(2)]
        if function == "S_DWITHIN":
            truths = [shapes.near(a, c, metres, work) for c, work in zip((b, written), works, strict=True)]
        else:
            truths = [shapes.related(function, a, c, work) for c, work in zip((b, written), works, strict=True)]
        found.append((truths, [(work.spent, work.lacking, work.beyond) for work in works], a.corners, a.cost))
    assert found[0] == found[1]


def test_what_surely_is_apart_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is what costs too much to be read, or what is no geometry."""
    known = ToldGeometries([square(0, 0, 1), square(5, 5, 1), "{", 5], 10**6)
    a, b = known(square(0, 0, 1)), known(square(5, 5, 1))
    assert a and b and known("{") is None and known(square(1, 1, 1)) is None
    dear = ToldGeometries([square(0, 0, 2)], 20)(square(0, 0, 2))
    assert dear and not dear.readable
    box = around_written(Box((7.0, 7.0, 8.0, 8.0)))
    monkeypatch.setattr(told_geometry, "told", None)
    monkeypatch.setattr(told_geometry, "written", None)
    assert shapes.related("S_INTERSECTS", a, box, GeometryWork()) is False
    assert shapes.related("S_INTERSECTS", a, b, GeometryWork()) is False
    assert shapes.near(a, b, 1_000, GeometryWork()) is False
    assert shapes.near(a, dear, 1_000, GeometryWork()) is None


@pytest.mark.parametrize("corners", [30, 300, 3_000])
def test_what_is_read_for_one_event_is_read_once(corners: int) -> None:
    """As many texts as count once together, however long they are."""
    ring = [[step, 0] for step in range(corners)]
    text = orjson.dumps({"type": "Polygon", "coordinates": [[*ring, [0, 9], [0, 0]]]}).decode()
    texts = [text + " " * number for number in range(min(400, READ_TOGETHER // len(text) // 2))]
    first = [shapes.told(one) for one in texts]
    assert all(one is shapes.told(text) for one, text in zip(first, texts, strict=True))


def test_a_text_counts_anew_when_more_was_read_than_is_kept() -> None:
    """So that what is read again is counted."""
    together, small, large = EventGeometryWork(Limits(), READ_TOGETHER), "a" * 10, "b" * (READ_TOGETHER - 5)
    for text in (small, small, large, small):
        work = GeometryWork(Limits())
        work.read(text, 1, 7)
        together.count(work)
    assert 3 * 7 == together.spent
