"""Files of events in every form they come in, and what is told of those that cannot be read."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from nearcast.errors import Fault
from nearcast.language.cloudevents import DeadLetter, read_event
from nearcast.language.event_files import read_file
from nearcast.language.features import feature_document
from nearcast.language.input_files import opened
from nearcast.model.event import Event, Place
from nearcast.model.subscription import Channel


def event(id: str, **data: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": id, "type": "t", "source": "s", "data": data}


def feature(id: str, geometry: object = None, **properties: Any) -> dict[str, Any]:
    return {"type": "Feature", "id": id, "properties": properties, "geometry": geometry}


def read(path: Path) -> list[str]:
    """The ids of events, and what is told of dead letters."""
    return [found.id if isinstance(found, Event) else str(found.fault) for _, found in read_file(path)]


EVENTS = [event("a", text="ü\n"), event("b", n=[1, {"x": 2}])]
FEATURES = [feature("a", {"type": "Point", "coordinates": [1, 2]}, name="ü"), feature("b")]
PRETTY = orjson.OPT_INDENT_2


def lines(values: list[Any], before: bytes = b"", option: int = 0) -> bytes:
    return b"".join(before + orjson.dumps(value, option=option) + b"\n" for value in values)


COLLECTION = {"type": "FeatureCollection", "name": "x", "features": FEATURES, "bbox": [1, 2, 1, 2]}
FORMS: list[tuple[str, bytes]] = [
    ("e.jsonl", lines(EVENTS)),
    ("e.jsonl", b"\xef\xbb\xbf\n\n" + lines(EVENTS).replace(b"\n", b"\r\n")),
    ("e.ndjson", lines(EVENTS)[:-1]),
    ("e.jsonl", lines(FEATURES)),
    ("e.json", lines(EVENTS)),
    ("e.json", orjson.dumps(EVENTS)),
    ("e.json", orjson.dumps(EVENTS, option=PRETTY)),
    ("e.json", lines(EVENTS, option=PRETTY)),
    ("e.json", orjson.dumps(COLLECTION)),
    ("e.geojson", lines(FEATURES)),
    ("e.geojson", b"\xef\xbb\xbf" + orjson.dumps(COLLECTION)),
    ("e.geojson", orjson.dumps(COLLECTION, option=PRETTY)),
    ("e.geojson", orjson.dumps(dict(reversed(COLLECTION.items())))),
    ("e.geojsonl", lines(FEATURES)),
    ("e.geojsonl", orjson.dumps(COLLECTION)),
    ("e.geojsons", lines(FEATURES, b"\x1e")),
    ("e.geojsons", lines(FEATURES, b"\x1e", PRETTY)),
    ("e.txt", lines(EVENTS)),
    ("e", orjson.dumps(EVENTS, option=PRETTY)),
    ("e", orjson.dumps(COLLECTION)),
]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("name", "content"), FORMS)
def test_every_form_has_the_same_events(name: str, content: bytes, packed: bool, tmp_path: Path) -> None:
    """Lines, lists, collections, text sequences, with byte order marks; gzipped whatever the name says."""
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if packed else content)
    assert ["a", "b"] == read(path)


@pytest.mark.parametrize(("name", "content"), FORMS)
def test_standard_input_is_read_as_a_file_is(name: str, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its form is told by what comes."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert ["a", "b"] == read(Path("-"))


def test_one_feature_alone(tmp_path: Path) -> None:
    """In one line or in several."""
    for option in (0, PRETTY):
        (tmp_path / "f.geojson").write_bytes(orjson.dumps(FEATURES[0], option=option))
        assert ["a"] == read(tmp_path / "f.geojson")


def test_a_large_first_line_is_no_collection(tmp_path: Path) -> None:
    """A coastline in the first feature of many lines."""
    coast = {"type": "LineString", "coordinates": [[index / 1e5, 1] for index in range(100_000)]}
    (tmp_path / "f.geojson").write_bytes(lines([feature("coast", coast), *FEATURES]))
    (tmp_path / "f.geojsonl").write_bytes(lines([feature("coast", coast), *FEATURES]))
    assert ["coast", "a", "b"] == read(tmp_path / "f.geojson") == read(tmp_path / "f.geojsonl")


def test_a_bad_value_spoils_no_other(tmp_path: Path) -> None:
    """Its fault has its place: in a document of one line the column."""
    path = tmp_path / "f.geojson"
    path.write_bytes(
        b'{"features": [{"type": "Feature", "id": "a"}, {"type": "Feature", "id": NaN}, 7, '
        b'{"type": "Feature", "id": "b"}]}'
    )
    first, nan, seven, last = read(path)
    columns = [path.read_bytes().index(word) + 1 for word in (b"NaN", b"7")]
    assert ("a", "b") == (first, last)
    assert f"f.geojson:1:{columns[0]}: expected JSON, got" in nan
    assert f"f.geojson:1:{columns[1]}: expected a GeoJSON feature, got 7" in seven
    path.write_bytes(b'\x1e{"type": "Feature", "id": "a"\n\x1e{"type": "Feature", "id": "b"}\n')
    assert ["f.geojson:1:30", "b"] == [one.rpartition("/")[2].partition(": ")[0] for one in read(path)]


@pytest.mark.parametrize(
    ("told", "name", "content"),
    [
        ("expected CloudEvents or GeoJSON features, one a line or in a list, got an empty file", "e.jsonl", b""),
        ("expected CloudEvents or GeoJSON features, one a line or in a list, got an empty file", "e.jsonl", b"\n \n"),
        ("expected CloudEvents or GeoJSON features, one a line or in a list, got an empty list", "e.json", b"[]"),
        (
            "expected a JSON document to its end, got the end of the file; it was cut off: fetch it again",
            "e.json",
            b"[",
        ),
        ("got trailing comma is not allowed; one value a line, without commas between", "e.jsonl", b'{"a": 1,},'),
        ("got unexpected content after document; one value a line, without commas between", "e.jsonl", b'{"a": 1},'),
        (
            "expected JSON in UTF-8, got the byte 0xfc, which is none there; write it in UTF-8",
            "e.jsonl",
            b'{"a": "\xfc"}',
        ),
    ],
)
def test_what_holds_no_event_is_told(told: str, name: str, content: bytes, tmp_path: Path) -> None:
    """In one line, with what to do."""
    (tmp_path / name).write_bytes(content)
    [found] = read(tmp_path / name)
    assert found.endswith(told)


def test_a_collection_without_features_is_no_fault(tmp_path: Path) -> None:
    """Nothing was to be told that day."""
    (tmp_path / "f.geojson").write_bytes(b'{"type": "FeatureCollection", "features": []}')
    assert [] == read(tmp_path / "f.geojson")


@pytest.mark.parametrize(
    ("told", "content"),
    [
        (
            "expected a whole gzip file, got one that is cut off; fetch it again, or pack it anew",
            gzip.compress(lines(EVENTS), mtime=0)[:-4],
        ),
        ("expected a gzip file that is whole", gzip.compress(lines(EVENTS), mtime=0)[:10] + b"\xff" * 99),
        ("got a zip archive; unpack it first", b"PK\x03\x04more"),
        ("got a file packed with zstd; unpack it, or pack it with gzip", b"\x28\xb5\x2f\xfdmore"),
        ("got UTF-16; save it as UTF-8", '{"a": 1}'.encode("utf-16")),
        ("got UTF-16; save it as UTF-8", gzip.compress('{"a": 1}'.encode("utf-16"), mtime=0)),
    ],
)
def test_a_file_that_cannot_be_read_is_told(told: str, content: bytes, tmp_path: Path) -> None:
    """In one line, with what to do; what came before is there."""
    path = tmp_path / "e.jsonl"
    path.write_bytes(content)
    with pytest.raises(Fault) as caught:
        read(path)
    assert told in str(caught.value)


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    """A folder, and a name that there is not."""
    with pytest.raises(Fault, match="expected a file, got a folder; name the files in it"), opened(tmp_path):
        pass
    with pytest.raises(Fault, match="expected a file that there is, got none"), opened(tmp_path / "none"):
        pass


@pytest.mark.parametrize(
    ("place", "geometry"),
    [
        (None, None),
        (None, {"type": "Point", "coordinates": []}),
        (None, {"type": "Polygon", "coordinates": []}),
        (None, {"type": "MultiPolygon", "coordinates": [[[]]]}),
        (None, {"type": "GeometryCollection", "geometries": []}),
        (Place("geographic", 1, 2), {"type": "Point", "coordinates": [1, 2, None][:2]}),
        (
            Place("geographic", 3, 4),
            {
                "type": "GeometryCollection",
                "geometries": [
                    {"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": [3, 4]}]}
                ],
            },
        ),
        (
            Place("geographic", 1, 1),
            {
                "type": "GeometryCollection",
                "geometries": [
                    {
                        "type": "GeometryCollection",
                        "geometries": [{"type": "LineString", "coordinates": [[0, 0], [2, 2]]}],
                    }
                ],
            },
        ),
        (Place("geographic", 180, -17), {"type": "LineString", "coordinates": [[179, -18], [-179, -16]]}),
    ],
)
def test_geometries_of_features(place: Place | None, geometry: object, tmp_path: Path) -> None:
    """Null and empty ones are nowhere (RFC 7946, 3.1 and 3.2); in a collection also nested ones count."""
    (tmp_path / "f.geojson").write_bytes(orjson.dumps(feature("a", geometry)))
    [(_, found)] = read_file(tmp_path / "f.geojson")
    assert isinstance(found, Event)
    assert place == found.place


@pytest.mark.parametrize(
    ("told", "geometry"),
    [
        (
            "a latitude from -90 to 90 degrees, got 111.5; are lon and lat in this order?",
            {"type": "Point", "coordinates": [48.1, 111.5]},
        ),
        ("a longitude from -180 to 180", {"type": "MultiPoint", "coordinates": [[0, 0], [181, 0]]}),
        (
            "a latitude from -90",
            {
                "type": "GeometryCollection",
                "geometries": [
                    {"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": [0, 91]}]}
                ],
            },
        ),
        ("a finite number as lon", {"type": "Point", "coordinates": ["1", 2]}),
        ("a GeoJSON geometry, or null, got", {"type": "Circle", "coordinates": [1, 2]}),
        ("[longitude, latitude]", {"type": "Point", "coordinates": [1]}),
    ],
)
def test_impossible_geometries_are_faults(told: str, geometry: object, tmp_path: Path) -> None:
    """Degrees that there are not, most often in the wrong order, and what is no geometry."""
    (tmp_path / "f.geojson").write_bytes(orjson.dumps(feature("a", geometry)))
    [(_, found)] = read_file(tmp_path / "f.geojson")
    assert isinstance(found, DeadLetter)
    assert told in str(found.fault)


def test_features_belong_to_channels(tmp_path: Path) -> None:
    """As other events do: of a type that none takes they are dead letters."""
    path = tmp_path / "f.geojson"
    path.write_bytes(lines([feature("a", type="fire"), feature("b")]))
    found = [event for _, event in read_file(path, [Channel("fires", "geographic", ("fire",))])]
    assert isinstance(found[0], Event)
    assert isinstance(found[1], DeadLetter)
    assert "fires" == found[0].channel


def test_a_feature_is_published_as_the_event_that_is_read_of_it(tmp_path: Path) -> None:
    """Its fields, attributes and place; its geometry is data."""
    path = tmp_path / "f.geojson"
    line = {"type": "LineString", "coordinates": [[0, 0], [2, 2]]}
    given = feature("7", line, type="fire", time="2020-01-31T12:00:00Z", size=3, names=["a", "b"])
    path.write_bytes(orjson.dumps(given))
    [(where, found)] = read_file(path)
    assert isinstance(found, Event)
    published = read_event(feature_document(given, where, 1), where)
    assert (found.id, found.type, found.source, found.time, found.place) == (
        published.id,
        published.type,
        published.source,
        published.time,
        published.place,
    )
    assert sorted(found.attributes) == sorted(one for one in published.attributes if one[0] != "specversion")
