"""Expressions by the plain evaluator: what CQL2 beyond one attribute and literals means."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from nearcast.errors import Mark
from nearcast.filters.evaluate import NO_CONTEXT, EmptyContext, truth
from nearcast.language.cql2 import parse
from nearcast.matching.matcher import FilterMatcher
from nearcast.model.columns import to_table
from nearcast.model.event import Event, Place
from nearcast.model.values import Value
from nearcast.state.timeline import Environment

HERE = Mark("here")
NAN = float("nan")
MAXIMUM = 2**63 - 1
SQUARE = json.dumps({"type": "Polygon", "coordinates": [[[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]]]})
BOWTIE = json.dumps({"type": "Polygon", "coordinates": [[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]]})
LINE = json.dumps({"type": "LineString", "coordinates": [[0, 0], [4, 4]]})


def holds(text: str, *attributes: tuple[str, Value], place: Place | None = None) -> bool | None:
    """The truth event by event; TRUE in columns exactly where it is TRUE here."""
    event = Event("e", "t", "s", place=place, attributes=attributes, time=datetime(2026, 1, 2, 12, tzinfo=UTC))
    filter = parse(text, HERE)
    found = truth(filter, event, NO_CONTEXT)
    assert (found is True) == FilterMatcher((), [filter]).held(to_table([event]), Environment())[0][0]
    return found


@pytest.mark.parametrize(
    ("expected", "text", "a", "b"),
    [
        (True, "a = b", 1, 1.0),
        (False, "a = b", 2**53, 2**53 + 1),
        (True, "a < b", 2.0**53, 2**53 + 1),
        (None, "a = b", 1, True),
        (None, "a < b", "1", 2),
        (True, "a < b", "ö", "日本"),
        (True, "a <> b", NAN, NAN),
        (False, "a = b", NAN, NAN),
        (True, "a + b = 3", 1, 2),
        (True, "a + b > 9223372036854775807", MAXIMUM, 2),
        (True, "a - 1 = 9223372036854775806", MAXIMUM, 0),
        (None, "a / b > 0", 1, 0),
        (None, "NOT (a / b > 0)", 1, 0),
        (None, "a div b = 0 OR a % b = 0", 1, 0.0),
        (None, "a * b > 0", 1e308, 10),
        (None, "a ^ b > 0", -8, 0.5),
        (None, "a ^ b > 0", 10, 400),
        (None, "a ^ b > 0", 0, -1),
        (True, "a ^ b = 4611686018427387904", 2, 62),
        (True, "a / b = 3.5", 7, 2),
        (True, "a div b = -3 AND a % b = -1", -7, 2),
        (True, "a div b = -3 AND a % b = 1", 7, -2),
        (None, "a + 1 > 0", "x", 0),
        (None, "a + 1 > 0", NAN, 0),
        (True, "a + 1 IS NULL", "x", 0),
        (True, "(a > b) IS NULL", "x", 0),
        (False, "(a > b) IS NULL", 1, 0),
        (True, "b IN (1, a + 1)", 4, 5),
        (True, "a BETWEEN b - 1 AND b", 4, 5),
        (None, "a BETWEEN b AND 'z'", 4, 5),
        (True, "CASEI(a) = CASEI(b)", "STRASSE", "straße"),
        (True, "CASEI(a) = CASEI('οδος')", "ΟΔΟΣ", 0),
        (True, "ACCENTI(a) = ACCENTI(b)", "débárquér", "debarquer"),
        (True, "ACCENTI(a) = ACCENTI(b)", "e\u0301", "é"),
        (False, "ACCENTI(a) = ACCENTI(b)", "が", "か"),
        (True, "ACCENTI(CASEI(a)) LIKE ACCENTI(CASEI('%ÉL_'))", "hotel!", 0),
        (None, "CASEI(a) = 'x'", 5, 0),
        (True, "a = DATE('2026-01-02')", "2026-01-02", 0),
        (True, "a = DATE('2026-01-02')", "2026-01-02T23:59:59Z", 0),
        (False, "a > DATE('2026-01-02')", "2026-01-02T00:00:01Z", 0),
        (None, "a > DATE('2026-01-02')", "soon", 0),
        (True, "time > a", "2026-01-02T11:59:59Z", 0),
        (None, "time = a", "2026-01-02", 0),
        (None, "a IN (TIMESTAMP('2026-01-02T12:00:00Z'), b)", "2026-01-02", 0),
        (True, "a IN (DATE('2026-01-01'), DATE('2026-01-02'))", "2026-01-02", 0),
        (True, "TRUE", 0, 0),
        (False, "FALSE OR NOT TRUE", 0, 0),
        (True, "1 = 1 AND 'a' LIKE '_'", 0, 0),
    ],
)  # fmt: skip
def test_scalar_expressions(expected: bool | None, text: str, a: Value, b: Value) -> None:
    """Exact numbers, texts of any script, days and moments; what has no result is UNKNOWN."""
    assert expected is holds(text, ("a", a), ("b", b))


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (True, "a = b"),
        (False, "a > b"),
        (True, "a + b = 5"),
        (False, "a + b = 7"),
        (True, "a + a = 3"),
        (None, "a = c"),
        (None, "a + c = 2"),
        (True, "a = c OR a = b"),
    ],
)
def test_repeated_and_missing_names(expected: bool | None, text: str) -> None:
    """Some choice of the values satisfies it; nothing to choose from is UNKNOWN."""
    assert expected is holds(text, ("a", 1), ("a", 2), ("b", 2), ("b", 3))


def test_many_values_end() -> None:
    """Of names repeated a thousand times so many choices count, and no more."""
    many = [("a", float(number)) for number in range(1_000)]
    assert holds(" + ".join(["a"] * 40) + " = 0.5", *many) is False
    assert holds("a < a", *many) is True


FIRST, SECOND = "INTERVAL(a, b)", "INTERVAL('2026-01-10', '2026-01-20')"


@pytest.mark.parametrize(
    ("relation", "a", "b"),
    [
        ("BEFORE", 1, 9), ("MEETS", 1, 10), ("OVERLAPS", 5, 15), ("STARTS", 10, 15), ("DURING", 12, 15),
        ("FINISHES", 15, 20), ("EQUALS", 10, 20), ("FINISHEDBY", 5, 20), ("CONTAINS", 5, 25), ("STARTEDBY", 10, 25),
        ("OVERLAPPEDBY", 15, 25), ("METBY", 20, 25), ("AFTER", 21, 25),
    ],
)  # fmt: skip
def test_thirteen_relations_of_intervals(relation: str, a: int, b: int) -> None:
    """Exactly one of them holds between two intervals; disjoint are those before or after."""
    days = ("a", f"2026-01-{a:02}"), ("b", f"2026-01-{b:02}")
    every = "BEFORE MEETS OVERLAPS STARTS DURING FINISHES EQUALS FINISHEDBY CONTAINS STARTEDBY OVERLAPPEDBY METBY AFTER"
    assert [relation] == [name for name in every.split() if holds(f"T_{name}({FIRST}, {SECOND})", *days)]
    assert (relation in ("BEFORE", "AFTER")) is holds(f"T_DISJOINT({FIRST}, {SECOND})", *days)
    assert (relation not in ("BEFORE", "AFTER")) is holds(f"T_INTERSECTS({SECOND}, {FIRST})", *days)


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (True, "T_AFTER(a, DATE('2026-01-01'))"),
        (False, "T_AFTER(a, DATE('2026-01-02'))"),
        (True, "T_EQUALS(a, DATE('2026-01-02'))"),
        (True, "T_DURING(a, INTERVAL('2026-01-01', '..'))"),
        (True, "T_INTERSECTS(a, INTERVAL('..', '..'))"),
        (True, "T_INTERSECTS(a, INTERVAL('2026-01-02', '2026-01-02'))"),
        (False, "T_INTERSECTS(a, INTERVAL('2026-01-02T12:00:00Z', '2026-01-02T13:00:00Z'))"),
        (True, "T_EQUALS(INTERVAL('..', '..'), INTERVAL('..', '..'))"),
        (False, "T_EQUALS(INTERVAL('..', a), INTERVAL('..', '..'))"),
        (None, "T_AFTER(b, DATE('2026-01-01'))"),
        (None, "T_DURING(INTERVAL(a, c), INTERVAL('2026-01-01', '..'))"),
        (None, "T_DURING(INTERVAL(a, '2025-01-01'), INTERVAL('2026-01-01', '..'))"),
        (True, "T_BEFORE(a, time)"),
    ],
)
def test_times_of_attributes(expected: bool | None, text: str) -> None:
    """Days and moments compare by day; open ends are beyond all; what ends before it starts is no time."""
    assert expected is holds(text, ("a", "2026-01-02T11:00:00Z"), ("b", "tomorrow"))


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (True, "A_CONTAINS(tags, ('x', 2))"),
        (True, "A_CONTAINS(tags, (2.0))"),
        (False, "A_CONTAINS(tags, ('x', TRUE))"),
        (True, "A_CONTAINEDBY(tags, ('x', 'y', 2, 3))"),
        (True, "A_EQUALS(('y', 2, 'x', 'x'), tags)"),
        (False, "A_EQUALS(tags, ('x', 'y'))"),
        (True, "A_OVERLAPS(tags, ('z', 1 + 1))"),
        (False, "A_OVERLAPS(tags, ())"),
        (True, "A_CONTAINS(tags, ())"),
        (None, "A_CONTAINS(none, ('x'))"),
        (None, "A_CONTAINS(tags, (none))"),
        (True, "A_CONTAINS((1, ('a', 'b')), (('b', 'a')))"),
        (True, "A_CONTAINS(days, (DATE('2026-01-02')))"),
        (False, "A_CONTAINS((TIMESTAMP('2026-01-02T01:00:00Z')), (TIMESTAMP('2026-01-02T02:00:00Z')))"),
        (True, "A_EQUALS((POINT(1 2)), (POINT(1 2)))"),
    ],
)
def test_arrays_are_sets(expected: bool | None, text: str) -> None:
    """Without order and repetition; elements are equal as in a comparison."""
    assert expected is holds(text, ("tags", "x"), ("tags", 2), ("tags", "y"), ("days", "2026-01-02T10:00:00Z"))


@pytest.mark.parametrize(
    ("expected", "text", "shape"),
    [
        (True, "S_CONTAINS(geom, POINT(1 1))", SQUARE),
        (True, "S_WITHIN(POINT(1 1), geometry)", SQUARE),
        (True, "S_INTERSECTS(area, LINESTRING(-1 2, 5 2))", SQUARE),
        (True, "S_CROSSES(area, BBOX(1, 1, 2, 2))", LINE),
        (True, "S_TOUCHES(area, POINT(4 4))", LINE),
        (True, "S_OVERLAPS(area, POLYGON((2 2, 6 2, 6 6, 2 6, 2 2)))", SQUARE),
        (True, "S_EQUALS(area, POLYGON((4 4, 0 4, 0 0, 4 0, 4 4)))", SQUARE),
        (False, "S_DISJOINT(area, BBOX(3, 3, 9, 9))", SQUARE),
        (True, "S_INTERSECTS(area, POINT(0.5 0.5))", BOWTIE),
        (True, "S_INTERSECTS(area, POLYGON((0 0, 2 2, 2 0, 0 2, 0 0)))", LINE),
        (None, "S_INTERSECTS(area, POINT(1 1))", "{}"),
        (None, "S_INTERSECTS(area, POINT(1 1))", '{"type": "Polygon", "coordinates": [[[0, 0]]]}'),
        (None, "S_INTERSECTS(area, POINT(1 1))", "POINT(1 1)"),
        (None, "S_INTERSECTS(none, POINT(1 1))", SQUARE),
        (True, "geom IS NOT NULL AND S_INTERSECTS(geom, area)", SQUARE),
        (True, "S_DWITHIN(area, POINT(5 4), 111100)", SQUARE),
        (False, "S_DWITHIN(area, POINT(5 4), 110000)", SQUARE),
        (True, "S_DWITHIN(area, BBOX(1, 1, 2, 2), 0)", SQUARE),
    ],
)
def test_geometries(expected: bool | None, text: str, shape: str) -> None:
    """Of any type, under any name; a crossed polygon is mended, and what is no geometry is UNKNOWN."""
    assert expected is holds(text, ("area", shape), ("geom", shape))


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (True, "S_WITHIN(geom, BBOX(170, -10, -170, 10))"),
        (True, "S_DWITHIN(geom, POINT(-179.5 0), 112000)"),
        (False, "S_DWITHIN(geom, POINT(-179.5 0), 111000)"),
        (True, "geometry IS NOT NULL"),
        (None, "S_INTERSECTS(area, geom)"),
    ],
)
def test_an_event_without_a_geometry_is_a_point(expected: bool | None, text: str) -> None:
    """Its own geometry is then the place where it is, across the antimeridian too."""
    assert expected is holds(text, place=Place("geographic", 179.5, 0.0))


def test_a_planar_place_is_a_point_in_metres() -> None:
    """A geometry that is written takes the kind of the other side."""
    place = Place("planar", 1000.0, 2000.0)
    assert holds("S_DWITHIN(geom, LINESTRING(0 2030, 5000 2030), 30)", place=place) is True
    assert holds("S_DWITHIN(geom, LINESTRING(0 2030, 5000 2030), 29)", place=place) is False
    assert holds("S_WITHIN(geom, BBOX(0, 0, 1500, 2500))", place=place) is True
    assert holds("S_INTERSECTS(geom, area)", ("area", SQUARE), place=place) is None


@dataclass
class Before(EmptyContext):
    """Surroundings in which these events came before."""

    events: tuple[Event, ...]

    def user(self, name: str) -> Place | None:
        return Place("geographic", 1.0, 1.0) if name == "ann" else None

    def entities(self) -> Iterable[Event]:
        return self.events


@pytest.mark.parametrize(
    ("expected", "text", "subject"),
    [
        (True, "level > PREVIOUS(level)", "x"),
        (True, "CHANGED(level)", "x"),
        (False, "CHANGED(kind)", "x"),
        (False, "CHANGED(ratio)", "x"),
        (False, "CHANGED(none)", "x"),
        (True, "CHANGED(note)", "x"),
        (None, "CHANGED(level)", "z"),
        (None, "level > PREVIOUS(level)", "z"),
        (True, "PREVIOUS(level) IS NULL", "z"),
        (None, "level > PREVIOUS(note)", "x"),
        (True, "A_EQUALS(PREVIOUS(kind), ('a', 'b'))", "x"),
        (True, "S_DWITHIN(user('ann'), POINT(1 1), 0)", "x"),
        (None, "S_DWITHIN(geom, user('bob'), 10)", "x"),
    ],
)
def test_the_previous_event_and_users(expected: bool | None, text: str, subject: str) -> None:
    """PREVIOUS and CHANGED look at the entity's newest event before this one."""
    told = (("kind", "a"), ("kind", "b"), ("ratio", NAN))
    before = Event("1", "t", "s", "x", attributes=(*told, ("level", 1)))
    other = Event("2", "t", "s", "y", attributes=(("level", 9),))
    now = Event("3", "t", "s", subject, attributes=(*told, ("level", 2), ("note", 1)))
    assert expected is truth(parse(text, HERE), now, Before((before, other)))
