"""Mistakes that beginners make in filters, out of habit or by a slip: each is told where it is, and what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearcast.errors import DefinitionError, Mark
from nearcast.language.cql2 import parse
from nearcast.language.definitions.files import load

MISTAKES: list[tuple[int, str, str]] = [
    # Signs of other languages.
    (7, "size == 10", "write ="),
    (7, "size => 10", "write >="),
    (7, "size =< 10", "write <="),
    (7, "size =! 10", "<> for not equal"),
    (5, "x <=> 1", "write ="),
    (3, "x := 1", "a comparison is a sign: ="),
    (11, "size > 10 && x = 1", "write AND"),
    (11, "size > 10 || x = 1", "write OR"),
    (1, "!(size > 10)", "write NOT"),
    (3, "x ≥ 5", "write >="),
    (3, "x ≠ 5", "write <>"),
    (6, "type ~ 'n.*'", "LIKE compares with a pattern"),
    (7, "x > 1 ? 1 : 2", "there are no parameters and branches"),
    (7, "x = 5 # five", "CQL2 has no comments"),
    (8, "x = 5 /* five */", "CQL2 has no comments"),
    (3, "a->b = 1", "a dotted name: a.b"),
    (2, "a['b'] = 1", "a dotted name, a.b"),
    (10, "size > 10; x = 1", "a filter is one condition"),
    # Words of SQL.
    (6, "type ILIKE 'n%'", "CASEI(name) LIKE CASEI('north%')"),
    (6, "type REGEXP 'n.*'", "LIKE compares with a pattern"),
    (6, "type CONTAINS 'n'", "'%north%' contains it"),
    (6, "type equals 'n'", "a comparison is a sign: ="),
    (6, "size gt 10", "a comparison is a sign: >"),
    (7, "x > 1 XOR y > 1", "write (a OR b) AND NOT (a AND b)"),
    (7, "WHERE size > 10", "a filter is a condition alone"),
    (15, "SELECT * FROM events", "a filter is a condition alone"),
    (11, "size > 10 LIMIT 5", "a filter is a condition alone"),
    (6, "CASE WHEN a THEN b END", "there are no branches"),
    (11, "subject = NULL", "absence is asked for with IS NULL"),
    (12, "subject <> NULL", "absence is asked for with IS NULL"),
    (9, "subject NULL", "size IS NULL"),
    (12, "subject IS 'a'", "a value is compared by ="),
    (6, "size EXISTS", "size IS NOT NULL"),
    (1, "LOWER(type) = 'x'", "CASEI(name) = CASEI('North')"),
    (1, "COALESCE(a, 1) = 1", "size IS NULL"),
    (8, "time > NOW()", "a filter has no clock"),
    (1, "ABS(x) > 1", "there are + - * / % ^ and DIV"),
    (1, "LENGTH(type) > 3", "texts are compared"),
    # Lists and bounds.
    (15, "size BETWEEN 1, 2", "for example: size BETWEEN 1 AND 2"),
    (20, "size BETWEEN (1, 2)", "for example: size BETWEEN 1 AND 2"),
    (16, "size BETWEEN 1 TO 2", "for example: size BETWEEN 1 AND 2"),
    (19, "size BETWEEN 1 AND", "something must come behind AND"),
    (9, "size IN 1, 2", "for example: type IN ('a', 'b')"),
    (9, "size IN [1, 2]", "a list stands in parentheses"),
    (10, "size IN ()", "a list has at least one value"),
    (19, "type IN ('a', 'b',)", "there is no comma before )"),
    (14, "type IN ('a' 'b')", "between the values of a list stands a comma"),
    (11, "type = 'a', 'b'", "several values stand in a list"),
    (15, "type = 'a' OR 'b'", "beside AND and OR stand whole comparisons"),
    (9, "type = ('a' OR 'b')", "beside AND and OR stand whole comparisons"),
    (10, "1 < size < 10", "1 < size AND size < 10"),
    (10, "size NOT 5", "NOT stands before a condition"),
    (6, "size 10", "size = 10"),
    (10, "size > 10, x = 1", "conditions are joined by AND or OR"),
    (21, "size > 10 AND (x = 1", "a ( needs a ) behind it"),
    (20, "size > 10 AND x = 1)", "a ) needs a ( before it"),
    (1, "> 10", "a name or a value on each side"),
    # Quotes.
    (8, "type = 'closure", "a ' within is written twice"),
    (8, "type = ‘closure’", "straight quotes"),
    (8, "type = “closure”", "straight single quotes"),
    (1, "`type` = 'a'", "a name with other characters in double ones"),
    (11, 'type LIKE "n%"', "for example: name LIKE 'north%'"),
    (13, "type LIKE n%", "a pattern stands in single quotes"),
    (10, "x = 'it's'", "a ' within is written twice"),
    (15, "alert-level = 'red'", '"alert-level"'),
    (7, "alert level = 'red'", '"alert level"'),
    (15, "distance(user(a), this) < 10", "write user('a')"),
    (15, "distance(user 'a', this) < 10", "write user('a')"),
    (9, "CHANGED('size')", "without single quotes"),
    # Numbers.
    (9, "size > 1,000", "nothing between its thousands"),
    (13, "size > 1.000,5", "a decimal point"),
    (11, "size > 50%", "the remainder of a division"),
    (38, "distance(this, POINT(11.5 48.1)) < 10km", "distances are in metres"),
    (36, "distance(this, POINT(11.5 48.1)) < '10'", "distance(…) <= 150"),
    (6, "x = 0x1F", "a number is of digits"),
    (5, "x = 99999999999999999999", "-2^63 to 2^63 - 1"),
    # Times.
    (13, "time > DATE '2020-01-31'", "write DATE('2020-01-31')"),
    (13, "time > DATE('2020-01-31T00:00:00Z')", "write TIMESTAMP('2020-01-31T00:00:00Z')"),
    (18, "time > TIMESTAMP('2020-01-31')", "write DATE('2020-01-31')"),
    (13, "time > DATE('31.01.2020')", "a day is written year-month-day"),
    (18, "time > TIMESTAMP('2020-01-31T12:00Z')", "a time needs its seconds"),
    (17, "time > INTERVAL '1 day'", "write INTERVAL(start, end)"),
    (25, "T_DURING(time, INTERVAL('PT10M', '..'))", "INTERVAL('2020-01-31', '..')"),
    (16, "T_DURING(time, '2020-01-01/2020-01-02')", "write INTERVAL(start, end)"),
    (15, "T_AFTER(time, '2020-01-01')", "within DATE(…) or TIMESTAMP(…)"),
    # Geometries.
    (1, "ST_Intersects(geom, POINT(1 2))", "did you mean S_INTERSECTS?"),
    (1, "Intersects(geom, POINT(1 2))", "did you mean S_INTERSECTS?"),
    (1, "ST_Distance(geom, POINT(1 2)) < 10", "write distance(a, b) <= 150"),
    (20, "S_INTERSECTS(geom, 'POINT(1 2)')", "without quotes and SRID"),
    (20, "S_INTERSECTS(geom, 'SRID=4326;POINT(1 2)')", "without quotes and SRID"),
    (29, "S_INTERSECTS(geom, SRID=4326;POINT(1 2))", "a geometry has no SRID"),
    (20, "S_INTERSECTS(geom, ST_GeomFromText('POINT(1 2)'))", "POINT(11.5 48.1)"),
    (27, "S_INTERSECTS(geom, POINT(1, 2))", "stands a blank: POINT(11.5 48.1)"),
    (28, "S_INTERSECTS(geom, POLYGON(0 0, 1 0, 1 1, 0 0))", "in parentheses of its own"),
    (20, "S_INTERSECTS(geom, POLYGON((0 0, 1 0, 1 1)))", "a ring ends where it begins"),
    (6, "BBOX(geom, 1, 2, 3, 4)", "S_INTERSECTS(geom, BBOX(west, south, east, north))"),
    (27, "S_INTERSECTS(geom, BBOX(1 2 3 4))", "between the numbers of a BBOX stand commas"),
    (20, "S_INTERSECTS(geom, CIRCLE(1, 2, 3))", "S_DWITHIN"),
    (20, "S_INTERSECTS(geom, {1})", "a geometry is written as POINT(11.5 48.1)"),
    (16, "distance(this, POINT(48.1 111.5)) < 500", "longitude comes first"),
    (1, "distance(this, POINT(11.5 48.1))", "distance(…) <= 150"),
    (7, "count(*) > 1", "count(uform(conditions))"),
    # CQL2 JSON.
    (1, '{"op": "==", "args": [{"property": "a"}, 1]}', "it is called ="),
    (1, '{"eq": [{"property": "a"}, 1]}', '{"op": ">", "args": [{"property": "size"}, 10]}'),
    (21, '{"op": "=", "args": [{"property": "a"}]}', '{"op": ">", "args": [{"property": "size"}, 10]}'),
]  # fmt: skip


@pytest.mark.parametrize(("column", "text", "advice"), MISTAKES, ids=[text for _, text, _ in MISTAKES])
def test_a_mistake_is_told_with_its_place_and_what_to_write(column: int, text: str, advice: str) -> None:
    """At the first token that makes no sense."""
    with pytest.raises(DefinitionError) as caught:
        parse(text, Mark("filter", 1, 1))
    [fault] = caught.value.faults
    assert (Mark("filter", 1, column), True) == (fault.where, advice in fault.advice), str(fault)


@pytest.mark.parametrize(
    "text", ["s_intersects(geom, Point(1 2))", "size != 10", "Size > 1 aNd x = true", "x = 'it''s'", r"x = 'it\'s'"]
)
def test_what_is_no_mistake(text: str) -> None:
    """Keywords, functions and geometries in any case, a second sign for not equal, a second way to write a quote."""
    parse(text, Mark("filter", 1, 1))


def path_of(filter: str, tmp_path: Path, more: str = "") -> Path:
    path = tmp_path / "d.yaml"
    path.write_text(f"clients: [{{id: a}}]\nsubscriptions:\n- id: s\n  client: a\n  filter: {filter}\n{more}")
    return path


def warned(filter: str, tmp_path: Path, more: str = "") -> list[str]:
    return [str(warning).rpartition("/")[2] for warning in load([path_of(filter, tmp_path, more)]).warnings]


def test_a_text_in_double_quotes_is_warned_of(tmp_path: Path) -> None:
    """It is the name of an attribute, which is hardly meant; also within a tree."""
    advice = "double quotes are for names of attributes; the text is 'red'"
    told = f'expected a value to compare with, got the attribute "red"; {advice}'
    assert [f"d.yaml:5:19: {told}"] == warned('level = "red"', tmp_path)
    assert [f"d.yaml:5:40: {told}"] == warned("""{any: [a = 1, {not: 'level = "red"'}]}""", tmp_path)
    assert [] == warned("""'"alert-level" = ''red'''""", tmp_path)


BEYOND = "expected a geometry in degrees: longitudes to 180, latitudes to 90, got "
PLANAR = "channels: {map: {coordinates: planar}}\n"
FIJI = "S_INTERSECTS(geom, POLYGON((179 -18, -179 -18, -179 -16, 179 -16, 179 -18)))"


@pytest.mark.parametrize(
    ("came", "filter"),
    [
        ("POLYGON ((33.0 -116.0", "S_INTERSECTS(geom, POLYGON((33 -116, 34 -116, 34 -117, 33 -117, 33 -116)))"),
        ("POINT (48.1 111.5)", "S_DWITHIN(geom, POINT(48.1 111.5), 500)"),
        ("BBOX(11.0, -95.0", "S_INTERSECTS(geom, BBOX(11, -95, 12, -91))"),
        ("POINT (1.0 91.0)", "count(uform(S_INTERSECTS(geom, POINT(1 91)))) > 1"),
    ],
)
def test_a_geometry_that_is_nowhere_is_a_fault(came: str, filter: str, tmp_path: Path) -> None:
    """Longitude comes first; where a channel is planar it may be in metres."""
    with pytest.raises(DefinitionError) as caught:
        warned(filter, tmp_path)
    [fault] = caught.value.faults
    assert f"{BEYOND}{came}" in str(fault)
    assert fault.where and (fault.where.line, fault.where.column) == (5, 11 + max(0, filter.find("S_INTER")))
    assert fault.advice.startswith("longitude comes first; are they swapped?")
    assert [] == warned(filter, tmp_path, PLANAR)


@pytest.mark.parametrize(
    ("came", "box"),
    [
        ("a box whose south 49 is above its north 48", "BBOX(11, 49, 12, 48)"),
        ("a box whose bottom 9 is above its top 8", "BBOX(11, 48, 9, 12, 49, 8)"),
    ],
)
def test_a_box_that_is_upside_down_is_a_fault(came: str, box: str) -> None:
    """West above east has a meaning, south above north and bottom above top have none."""
    with pytest.raises(DefinitionError, match=f"expected a geometry, got {came}"):
        parse(f"S_INTERSECTS(geom, {box})", Mark("filter", 1, 1))
    parse("S_INTERSECTS(geom, BBOX(179, -18, -179, -16))", Mark("filter", 1, 1))


def test_the_long_way_round_the_globe_is_warned_of(tmp_path: Path) -> None:
    """A ring from 179 to -179 is 358 degrees wide and was meant to be two; the whole globe is what it is."""
    [told] = warned(FIJI, tmp_path)
    assert ("an edge 358 degrees wide" in told, "RFC 7946, 3.1.9" in told) == (True, True)
    world = "S_INTERSECTS(geom, POLYGON((-180 -90, 180 -90, 180 90, -180 90, -180 -90)))"
    assert [] == warned(world, tmp_path) == warned(FIJI, tmp_path, PLANAR)


def test_a_warning_is_told_beside_faults(tmp_path: Path) -> None:
    """Of another subscription of the same file."""
    with pytest.raises(DefinitionError) as caught:
        load([path_of(FIJI, tmp_path, "- {id: bad, client: a, filter: 'S_INTERSECTS(geom, POINT(1 91))'}\n")])
    assert (1, 1) == (len(caught.value.faults), len(caught.value.warnings))


@pytest.mark.parametrize(("seconds", "ttl"), [(600.0, "10 min"), (0.5, "500 ms"), (86400.0, "1 d"), (7.0, "7")])
def test_a_time_to_live_is_a_duration_like_others(seconds: float, ttl: str, tmp_path: Path) -> None:
    """With a unit, or in seconds."""
    path = tmp_path / "d.yaml"
    path.write_text(f"clients: [{{id: a}}]\nsubscriptions: [{{id: s, client: a, filter: x = 1, ttl: {ttl}}}]\n")
    assert seconds == load([path]).subscriptions[0].time_to_live
