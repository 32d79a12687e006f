"""Checking files, and the warnings of what can never hold."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from nearcast.errors import Mark
from nearcast.language.checks.file_check import check
from nearcast.language.cloudevents import DeadLetter
from nearcast.language.cql2 import parse
from nearcast.language.definitions.filter_warnings import never_holding
from nearcast.language.event_files import read_file
from nearcast.model.event import Event, Place
from tests.language.printed import listing


def read_features(path: Path) -> list[Event | DeadLetter]:
    return [event for _, event in read_file(path)]


def never(text: str) -> list[str]:
    """The reasons why atoms of a text can never hold, with a client `a` and a type `unit`."""
    return [found.advice for found in never_holding(parse(text, Mark("f")), frozenset({"a"}), frozenset({"unit"}))]


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("type is a text", "type = 5"),
        ("source is a text", "source IN (1, TRUE)"),
        ("time is a timestamp", "time > 'abc'"),
        ("its lower bound is above its upper one", "a BETWEEN 2 AND 1"),
        ("its bounds are of two kinds", "a BETWEEN 2 AND 'x'"),
        ("no channel takes this type", "type = 'units'"),
        ("no channel takes this type", "type IN ('units', 'chat')"),
        ("no client has this id", "distance(user('b'), this) < 5"),
        ("a distance is never below 0", "distance(this, user('a')) < 0"),
        ("a count is never below 0", "count(this) = -1"),
        ("every event has type", "type IS NULL"),
        ("every event has specversion", "specversion IS NULL"),
        ("type is a text", "count(uform(type = 5)) > 1"),
        ("no value satisfies it", "a < ''"),
        ("its atoms exclude one another", "type = 'unit' AND (id LIKE 'a%' AND id LIKE '%b' AND id < 'a')"),
        ("its atoms exclude one another", "a = 1 OR (b IS NULL AND b > 3)"),
        ("its atoms exclude one another", "distance(this, user('a')) < 1 AND distance(this, user('a')) > 2"),
        ("only an event in which an attribute has several values", "a > 5 AND a < 3"),
        ("FALSE selects nothing", "a = 1 OR FALSE"),
        ("a division by zero", "a / (1 - 1) > 1"),
        ("no client has this id", "S_DWITHIN(geom, user('b'), 5)"),
    ],
)
def test_what_never_holds(reason: str, text: str) -> None:
    """An atom that no event can satisfy has a warning that says why."""
    (found,) = never(text)
    assert found.startswith(reason)


@pytest.mark.parametrize(
    "text",
    [
        "type = 'unit' AND a BETWEEN 1 AND 1",
        "time > '2020-01-01T00:00:00Z' OR time > TIMESTAMP('2020-01-01T00:00:00Z')",
        "type IN ('unit', 'x') OR type <> 'x' OR type LIKE 'x'",
        "distance(this, user('a')) <= 0 OR count(this) > -1 OR distance(this, this) <> -1",
        "subject IS NULL",
        "a > 3 AND a < 5 AND (b = 1 OR b = 2)",
        "NOT a > 3 AND a <> 5",
    ],
)
def test_what_may_hold(text: str) -> None:
    """No warning for what some event can satisfy."""
    assert never(text) == []


def test_files_of_every_kind(tmp_path: Path) -> None:
    """Definitions, XML and event files are checked together, each fault with file and line."""
    (tmp_path / "d.yaml").write_text("channels: {ops: {coordinates: planar, types: [unit]}}\nclients: [{}]")
    (tmp_path / "s.xml").write_text("<SUBSCRIPTION>\n<ATOM name='type' operator='' value='5'/></SUBSCRIPTION>")
    (tmp_path / "r.xml").write_text("<RELEVANCE>\n<ROLE/></RELEVANCE>")
    good = orjson.dumps({"specversion": "1.0", "id": "e", "type": "unit", "source": "s"})
    late = good.replace(b'"unit"', b'"nearcast.client"')
    (tmp_path / "e.jsonl").write_bytes(good + b"\n\n{\n" + late)
    with gzip.open(tmp_path / "e.ndjson.gz", "wb") as file:
        file.write(b"[]\n")
    (tmp_path / "x.txt").write_text("")
    names = ("d.yaml", "s.xml", "r.xml", "e.jsonl", "e.ndjson.gz", "x.txt", "gone.xml", "gone.jsonl")
    report = check([tmp_path / name for name in names])
    places = [(Path(fault.where.file).name, fault.where.line) for fault in report.faults if fault.where]
    files = [("d.yaml", 2), ("r.xml", 2), ("e.jsonl", 3), ("e.jsonl", 4), ("e.ndjson.gz", 1)]
    assert [*files, ("x.txt", None), ("gone.xml", None), ("gone.jsonl", None)] == places
    assert [(one.came, one.where.line) for one in report.warnings if one.where] == [("type = 5", 2)]
    assert not report.good


def test_a_number_that_no_event_can_have_is_a_fault(tmp_path: Path) -> None:
    """Where it stands: else the first situation that calls for the action could not be told."""
    path = tmp_path / "d.yaml"
    for number, faults in (("9223372036854775807", 0), ("9223372036854775808", 1)):
        act = f"{{id: act, when: Fire, publish: {{type: alert, data: {{n: {number}}}}}}}"
        path.write_text(f"ontology: {{situations: {{Fire: {{}}}}}}\nactions: [{act}]")
        found = check([path]).faults
        expected = "d.yaml:2:66: expected an integer within 64 bits, got 9223372036854775808; send it as a text"
        assert [expected] * faults == [str(one).rpartition("/")[2] for one in found]


def test_times_far_ahead_are_faults_as_they_are_for_the_server(tmp_path: Path) -> None:
    """Where it is said when the events would be published; a day ahead is none."""
    event = {"specversion": "1.0", "id": "e", "type": "unit", "source": "s"}
    times = ("2026-01-01T20:00:00Z", "9999-01-01T00:00:00Z")
    (tmp_path / "e.jsonl").write_bytes(b"\n".join(orjson.dumps(event | {"time": time}) for time in times))
    report = check([tmp_path / "e.jsonl"], now=datetime(2026, 1, 1, tzinfo=UTC))
    assert [("a time at most a day ahead", 2)] == [
        (one.expected, one.where and one.where.line) for one in report.faults
    ]


def test_a_broken_archive_is_a_fault(tmp_path: Path) -> None:
    """A file that only seems to be gzipped is told as such."""
    (tmp_path / "e.gz").write_bytes(b"none")
    (fault,) = check([tmp_path / "e.gz"]).faults
    assert str(fault).endswith("e.gz:1:1: expected JSON, got invalid literal, expected 'null'")
    (tmp_path / "e.gz").write_bytes(gzip.compress(b"some")[:-3])
    (fault,) = check([tmp_path / "e.gz"]).faults
    assert str(fault).endswith(
        "e.gz: expected a whole gzip file, got one that is cut off; fetch it again, or pack it anew"
    )


@pytest.mark.data
def test_printed_listings_pass(tmp_path: Path) -> None:
    """The thesis' printed files have no fault."""
    for title in ("Listing 6-1", "Listing 7-3", "Listing 7-6"):
        (tmp_path / f"{title}.xml").write_text(listing(title), encoding="utf-8")
    assert check(sorted(tmp_path.iterdir())).good


def test_a_features_geometry_is_an_attribute(tmp_path: Path) -> None:
    """As `geom`, but for a point, which is the place."""
    line = {"type": "LineString", "coordinates": [[0, 0], [2, 2]]}
    point = {"type": "Point", "coordinates": [1, 1]}
    path = tmp_path / "f.geojson"
    path.write_bytes(
        b"\n".join(orjson.dumps({"type": "Feature", "properties": {}, "geometry": one}) for one in (line, point))
    )
    first, second = read_features(path)
    assert isinstance(first, Event)
    assert isinstance(second, Event)
    assert (("geom", '{"type":"LineString","coordinates":[[0,0],[2,2]]}'),) == first.attributes
    assert () == second.attributes
    assert first.place == second.place == Place("geographic", 1, 1)


FEATURE = {
    "type": "Feature",
    "id": 7,
    "properties": {"type": "fire", "alert": "Advice", "lon": "east", "time": "2020-01-01", "size": 3},
    "geometry": {"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": [150, -33]}]},
}


@pytest.mark.parametrize("form", ["collection", "lines"])
def test_features(form: str, tmp_path: Path) -> None:
    """A feature's properties are attributes, its geometry its place, its id the event's, else its ordinal."""
    path = tmp_path / "f.geojson"
    nameless = {name: value for name, value in FEATURE.items() if name != "id"}
    if form == "lines":
        path.write_bytes(orjson.dumps(FEATURE) + b"\n" + orjson.dumps(nameless))
    else:
        path.write_bytes(orjson.dumps({"type": "FeatureCollection", "features": [FEATURE, nameless]}))
    first, second = read_features(path)
    assert isinstance(first, Event)
    assert isinstance(second, Event)
    assert ((first.id, second.id), first.type) == (("7", "2"), "fire")
    assert Place("geographic", 150, -33) == first.place
    assert [next(first.values(name)) for name in ("type", "alert", "lon", "size")] == ["fire", "Advice", "east", 3]
    assert list(first.values("time")) == ["2020-01-01"]


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"type": "FeatureCollection", "features": [5]}', '{"type": "Feature", "properties": 5}']
)
def test_what_is_no_feature(text: str, tmp_path: Path) -> None:
    """What is no feature comes as a dead letter."""
    path = tmp_path / "f.geojson"
    path.write_text(text)
    (found,) = read_features(path)
    assert not isinstance(found, Event)
    assert text[:1].encode() in found.content or found.content == b"5"
