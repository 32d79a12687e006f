"""CloudEvents at the door."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import EventError, Mark
from nearcast.language.cloudevents import MAX_BYTES, DeadLetter, read_event, read_line
from nearcast.language.control_events import changes, to_event
from nearcast.language.event_files import read_file
from nearcast.model.changes import SettingsChange
from nearcast.model.event import Event, Place
from nearcast.model.subscription import Channel, Settings
from tests.language.strategies import characters, floats, geographic_places, integers, planar_places, texts, times
from tests.shared import shared
from tests.written_events import write_event

HERE = Mark("e.jsonl", 3)
OPS = Channel("ops", "planar", ("unit", "chat"))
FIRES = Channel("fires", "geographic", ())


def document(**fields: Any) -> dict[str, Any]:
    """A CloudEvent with some fields changed; None leaves one out."""
    whole = {"specversion": "1.0", "id": "e1", "type": "unit", "source": "s1", **fields}
    return {name: value for name, value in whole.items() if value is not None}


def told(**data: Any) -> dict[str, list[Any]]:
    """The attributes that data makes, by name."""
    event = read_event(document(data=data), HERE)
    return {name: list(event.values(name)) for name, _ in event.attributes if name != "specversion"}


def test_a_whole_event() -> None:
    """Fields, attributes, place, channel and payload of a line."""
    line = orjson.dumps(
        document(subject="u1", time="2020-01-01T00:00:00Z", data={"affiliation": "H", "x": 0, "y": 1.5})
    )
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    attributes = (("specversion", "1.0"), ("affiliation", "H"), ("x", 0), ("y", 1.5))
    event = Event("e1", "unit", "s1", "u1", moment, Place("planar", 0, 1.5), attributes, line, "ops", moment)
    assert event == read_line(line + b"\n", HERE, [OPS], moment)


def test_nested_data_becomes_dotted_names() -> None:
    """Objects nest by dots, a list is its name several times, null is absence."""
    assert told(unit={"size": 5, "kinds": ["a", "b"]}, gone=None) == {"unit.size": [5], "unit.kinds": ["a", "b"]}


def test_the_event_wins() -> None:
    """A data name that the CloudEvent has itself is `data.NAME`; one that it could have but has not is its own."""
    event = read_event(document(data={"type": 5, "subject": "x", "mood": 1}, mood="calm"), HERE)
    assert list(event.values("type")) == ["unit"]
    assert list(event.values("subject")) == ["x"]
    assert list(event.values("data.type")) == [5]
    assert event.entity == event.source
    assert (list(event.values("mood")), list(event.values("data.mood"))) == (["calm"], [1])


@pytest.mark.parametrize(("values", "data"), [(["x"], "x"), ([1, 2], [1, [2]]), ([True], True), ([], None)])
def test_data_that_is_no_object(values: list[object], data: object) -> None:
    """Such data is the attribute `data`."""
    assert values == list(read_event(document(data=data), HERE).values("data"))


@pytest.mark.parametrize(
    ("place", "data"),
    [
        (Place("planar", 1, 2), {"x": 1, "y": 2}),
        (Place("planar", 1, 2, 3), {"x": 1, "y": 2, "z": 3}),
        (Place("geographic", 150.5, -33, 10), {"lon": 150.5, "lat": -33, "alt": 10}),
        (Place("geographic", 1, 2), {"geometry": {"type": "Point", "coordinates": [1, 2]}}),
        (Place("geographic", 1, 2), {"geom": {"type": "Point", "coordinates": [1, 2]}}),
        (Place("geographic", 1, 2), {"geom": {"type": "LineString", "coordinates": [[0, 0], [2, 4]]}}),
        (Place("geographic", 180, 2), {"geom": {"type": "LineString", "coordinates": [[179, 0], [-179, 4]]}}),
        (None, {"x": 1}),
        (None, {"geometry": "round"}),
    ],
)
def test_places(place: Place | None, data: dict[str, Any]) -> None:
    """Both of x and y, both of lon and lat, or a geometry, by its point or the centre of its box."""
    assert place == read_event(document(data=data), HERE).place


POLYGON = {"type": "Polygon", "coordinates": [[[0, 0], [2, 0], [2, 2], [0, 0]]]}


def test_a_geometry_is_one_attribute() -> None:
    """Its JSON as text, under whatever name; a point at its own name is the place alone."""
    text = '{"type":"Polygon","coordinates":[[[0,0],[2,0],[2,2],[0,0]]]}'
    assert {"geometry": [text], "unit.area": [text]} == told(geometry=POLYGON, unit={"area": POLYGON})
    assert {"home": ['{"type":"Point","coordinates":[1,2]}']} == told(home={"type": "Point", "coordinates": [1, 2]})
    assert {"areas": [text, text]} == told(areas=[POLYGON, POLYGON])


def test_an_event_with_a_geometry_is_written_and_read_again() -> None:
    """Made of its fields, the geometry is GeoJSON again, and tells the place."""
    document = {"specversion": "1.0", "id": "1", "type": "t", "source": "s", "data": {"geometry": POLYGON, "a": 1}}
    event = read_event(document, HERE)
    again = write_event(replace(event, payload=b""))
    assert document == again
    assert event.place == read_event(again, HERE).place == Place("geographic", 1.0, 1.0)


def test_a_point_is_no_attribute() -> None:
    """What became the place is not told again as attributes."""
    assert told(geometry={"type": "Point", "coordinates": [1, 2]}, size=1) == {"size": [1]}


@pytest.mark.parametrize(("channel", "type_"), [("ops", "unit"), ("ops", "chat"), ("fires", "smoke")])
def test_channels_by_type(channel: str, type_: str) -> None:
    """A channel without types takes every type that no other takes."""
    assert channel == read_event(document(type=type_), HERE, [FIRES, OPS]).channel


def test_a_channel_named_by_the_event() -> None:
    """The extension `channel` chooses among channels that take the type."""
    again = Channel("again", "planar", ("unit",))
    assert read_event(document(channel="again"), HERE, [OPS, again]).channel == "again"


@pytest.mark.parametrize(
    ("came", "fields"),
    [
        ("nothing", {"id": None}),
        ("''", {"id": ""}),
        ("5", {"source": 5}),
        ("nothing", {"type": None}),
        ("'0.3'", {"specversion": "0.3"}),
        ("''", {"subject": ""}),
        ("'2020-01-01T00:00:00'", {"time": "2020-01-01T00:00:00"}),
        ("2030-01-01T00:00:00Z, 2191 days ahead", {"time": "2030-01-01T00:00:00Z"}),
        ("Mood", {"Mood": "calm"}),
        ("an object", {"mood": {}}),
        ("both", {"data": 1, "data_base64": "AA=="}),
        ("'?'", {"data_base64": "?"}),
        ("1,001", {"data": {str(number): number for number in range(1000)}}),
        ("9223372036854775808", {"data": {"a": 2**63}}),
        ("100000000000000000000", {"data": {"a": 10**20}}),
        ("'left'", {"data": {"x": "left", "y": 1}}),
        ("True", {"data": {"x": True, "y": 1}}),
        ("181.0", {"data": {"lon": 181, "lat": 0}}),
        ("-91.0", {"data": {"lon": 0, "lat": -91}}),
        ("lon alone", {"data": {"lon": 11, "lat": None}}),
        ("lat alone", {"data": {"lat": 48, "lng": 11}}),
        ("several", {"data": {"lon": 0, "lat": 0, "x": 0, "y": 0}}),
        ("a geographic one", {"data": {"lon": 0, "lat": 0}}),
        ("the unknown channel else", {"channel": "else"}),
        ("the type smoke", {"type": "smoke"}),
        ("nearcast.else", {"type": "nearcast.else"}),
    ],
)
def test_bad_events(came: str, fields: dict[str, Any]) -> None:
    """Each way to be wrong is a fault that tells what came, at the line."""
    whole = document(**fields)
    line = b'{"specversion":"1.0","id":"e1","type":"unit","source":"s1","data":{"a":1' + b"0" * 20 + b"}}"
    with pytest.raises(EventError) as caught:
        read_line(
            line if came == str(10**20) else orjson.dumps(whole), HERE, [OPS], datetime(2024, 1, 1, 1, tzinfo=UTC)
        )
    assert came == caught.value.fault.came
    assert (caught.value.fault.where.file, caught.value.fault.where.line) == ("e.jsonl", 3)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("column", "line"), [(6, b'{"a":NaN}'), (6, b'{"a":1e400}'), (7, b'{"a":1'), (1, b"\xff"), (73, b"")]
)
def test_bad_json_has_a_column(column: int, line: bytes) -> None:
    """What is no JSON has its line and column; an integer beyond 64 bits too, which would come as a double."""
    line = line or b'{"specversion":"1.0","id":"e1","type":"unit","source":"s1","data":{"a":[99999999999999999999]}}'
    with pytest.raises(EventError) as caught:
        read_line(line, HERE)
    assert Mark("e.jsonl", 3, column) == caught.value.fault.where


@pytest.mark.parametrize(
    ("advice", "time"),
    [
        ("in UTC it lies outside the years 1 to 9999", "0001-01-01T00:00:00+14:00"),
        ("in UTC it lies outside the years 1 to 9999", "9999-12-31T23:59:59-01:00"),
        ("there is no day 30 in 2020-02", "2020-02-30T12:00:00Z"),
        ("there is no month 13", "2020-13-30T12:00:00Z"),
        ("there is no year 0", "0000-01-30T12:00:00Z"),
        ("a year has 4 digits", "20-01-30T12:00:00Z"),
        ("a month has 2 digits", "2020-1-30T12:00:00Z"),
        ("there is no hour 25", "2020-02-20T25:00:00Z"),
        ("there is no hour 24; midnight is 00 of the day that begins", "2020-02-20T24:00:00Z"),
        ("there is no minute 60", "2020-02-20T12:60:00Z"),
        ("there is no second 61", "2016-12-31T23:59:61Z"),
        ("a second 60 is a leap second, the last of a month in UTC", "2020-02-20T12:00:60Z"),
        ("a time needs its seconds", "2026-01-31T12:00Z"),
        ("a time needs its minutes and seconds", "2026-01-31T12Z"),
        ("between hours, minutes and seconds stand colons", "2026-01-31T120000Z"),
        ("write the zone as +01:00, with a colon", "2026-01-31T12:00:00+0100"),
        ("write the zone as +01:00, with a colon", "2026-01-31T12:00:00+1"),
        ("write the zone as -08:00, with a colon", "2026-01-31T12:00:00 UTC-8"),
        ("there is no zone +25:00", "2026-01-31T12:00:00+25:00"),
        ("a zone is Z for UTC or an offset as +01:00; it has no name", "2026-01-31T12:00:00 CET"),
        ("a point before the fraction of a second, not a comma", "2026-01-31T12:00:00,5Z"),
        ("after the point stands the fraction of a second", "2026-01-31T12:00:00.Z"),
        ("between the day and the time of day stands a T", "2026-01-31_12:00:00Z"),
        ("a time needs its zone, Z for UTC or as +01:00", "2020-01-31T12:00:00"),
        ("a time needs its time of day and its zone, as 2020-01-31T12:00:00Z", "2020-01-31"),
        (
            "a time is written year-month-day, T, hour:minute:second and zone, as 2020-01-31T12:00:00Z",
            "31.1.2020 12:00",
        ),
        ("a time is a text, as '2020-01-31T12:00:00Z', not a count of seconds", 1580000000),
        ("a time is a text", {"seconds": 7}),
    ],
)
def test_a_bad_time_is_told_what_is_wrong_with_it(advice: str, time: object) -> None:
    """Which part of it is wrong: a zone is asked for only where there is none."""
    with pytest.raises(EventError) as caught:
        read_event(document(time=time), HERE)
    assert advice == caught.value.fault.advice


@pytest.mark.parametrize(
    ("moment", "written"),
    [
        (datetime(1991, 1, 1, tzinfo=UTC), "1990-12-31T23:59:60Z"),
        (datetime(1991, 1, 1, tzinfo=UTC), "1990-12-31T15:59:60-08:00"),
        (datetime(2016, 7, 1, 0, 0, 0, 250_000, tzinfo=UTC), "2016-06-30T23:59:60.25Z"),
        (datetime(2026, 1, 31, 12, 0, 0, 123_456, tzinfo=UTC), "2026-01-31T12:00:00.1234567890Z"),
        (datetime(2026, 1, 31, 12, 0, 0, 999_999, tzinfo=UTC), f"2026-01-31t12:00:00.{'9' * 300}z"),
    ],
)
def test_times_of_rfc_3339(moment: datetime, written: str) -> None:
    """A leap second is the second after it, a fraction of any length is cut to microseconds (RFC 3339, 5.6 to 5.8)."""
    assert moment == read_event(document(time=written), HERE).time


def test_half_a_place_is_told_what_the_other_half_may_be_called() -> None:
    """A longitude by another name is found."""
    with pytest.raises(EventError, match=r"expected both lon and lat, got lat alone; did you mean lon by lng\?"):
        read_event(document(data={"lat": 48, "lng": 11}), HERE)


def test_depth_has_a_limit() -> None:
    """Data deeper than 64 is a fault, however it came."""
    data: Any = 1
    for _ in range(65):
        data = {"a": data}
    with pytest.raises(EventError, match="at most 64 deep"):
        read_event(document(data=data), HERE)


def test_nan_in_a_document() -> None:
    """NaN is no JSON, also where a document comes as values."""
    with pytest.raises(EventError, match="expected a finite number as a, got nan"):
        read_event(document(data={"a": float("nan")}), HERE)


def test_binary_data() -> None:
    """Binary data is read if it is JSON, else only kept."""
    content = base64.b64encode(b'{"a": 1}').decode()
    read = read_event(document(data_base64=content, datacontenttype="application/json"), HERE)
    kept = read_event(document(data_base64=content, datacontenttype="image/png"), HERE)
    assert (list(read.values("a")), list(kept.values("a"))) == ([1], [])
    assert content == orjson.loads(kept.payload)["data_base64"]


@pytest.mark.parametrize(
    ("values", "content", "content_type"),
    [
        ([1], b'\xef\xbb\xbf{"a": 1}', "application/geo+json; charset=utf-8"),
        ([1], b'{"a": 1}', "APPLICATION/JSON"),
        ([], b'{"a": 1}\n{"a": 2}', "application/json-seq"),
        ([], b"", "application/json"),
        ([], b'{"a": 1}', "text/plain"),
    ],
)
def test_base_64_is_read_by_its_media_type(values: list[int], content: bytes, content_type: str) -> None:
    """JSON, of whichever type that ends so, is data; anything else is only kept."""
    written = base64.b64encode(content).decode()
    event = read_event(document(data_base64=written, data=None, datacontenttype=content_type), HERE)
    assert values == list(event.values("a"))


def test_base_64_that_is_no_json_is_told_where_it_was_announced() -> None:
    """The fault names data_base64, not a line of the file that has no JSON."""
    with pytest.raises(EventError, match=r"e\.jsonl:3: expected data_base64: JSON, got .*; datacontenttype says that"):
        read_event(document(data_base64="AAE=", datacontenttype="application/json"), HERE)
    assert read_event(document(data_base64=None, data={"a": 1}), HERE).attributes[-1] == ("a", 1)


def test_bad_lines_do_not_stop_a_file(tmp_path: Path) -> None:
    """Good lines are events, bad ones dead letters with their line, blank ones nothing; memory stays bounded."""
    good = orjson.dumps(document())
    path = tmp_path / "e.jsonl"
    path.write_bytes(b"\n".join([good, b"", b"{bad", b"y" * (2 * MAX_BYTES + 5), b"[1]", good]))
    found = [event for _, event in read_file(path)]
    assert [Event, DeadLetter, DeadLetter, DeadLetter, Event] == [type(one) for one in found]
    assert [one.fault.where.line for one in found if isinstance(one, DeadLetter) and one.fault.where] == [3, 4, 5]
    assert [len(one.content) for one in found if isinstance(one, DeadLetter)] == [4, 64 * 1024, 3]


_keys = st.text(characters, min_size=1, max_size=6)
_data = st.dictionaries(
    _keys,
    st.recursive(
        integers | floats | texts | st.booleans() | st.none(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3),
        max_leaves=5,
    ),
    max_size=5,
).filter(lambda data: not {"x", "y", "lon", "lat", "geom", "geometry"} & data.keys())


@given(_data, st.none() | times, st.none() | _keys)
def test_an_event_is_written_as_it_came(data: dict[str, Any], time: datetime | None, subject: str | None) -> None:
    """The payload is the event: reading what was written gives the same event."""
    written = time.isoformat() if time else None
    event = read_event(document(data=data, time=written, subject=subject), HERE)
    assert replace(event, payload=b"") == replace(read_line(event.payload, HERE), payload=b"")


@given(
    st.lists(st.tuples(_keys, integers | floats | texts | st.booleans()), max_size=5),
    st.none() | planar_places | geographic_places,
    st.none() | times,
)
def test_an_event_without_a_payload(
    attributes: list[tuple[str, Any]], place: Place | None, time: datetime | None
) -> None:
    """An event made of fields is written so that reading gives its fields again."""
    used = {
        "x",
        "y",
        "z",
        "lon",
        "lat",
        "alt",
        "geom",
        "geometry",
        "id",
        "type",
        "source",
        "subject",
        "time",
        "specversion",
    }
    attributes = [pair for pair in attributes if pair[0] not in used]
    event = Event("e", "t", "s", None, time, place, tuple(attributes))
    again = read_event(write_event(event), HERE)
    assert (event.place, event.time) == (again.place, again.time)
    for name, _ in attributes:
        assert list(event.values(name)) == list(again.values(name))


@pytest.mark.data
def test_conformance_samples() -> None:
    """The samples of version 1.0 are taken, those of version 0.3 refused by their version."""
    for version in ("v1.0/v1_minimum", "v0.3/v03_minimum"):
        text = shared("data", "cloudevents_conformance", "yaml", f"{version}.yaml").read_text(encoding="utf-8")
        samples = [sample for sample in yaml.load_all(text, Loader=yaml.BaseLoader) if sample]
        assert samples
        for sample in samples:
            whole = {**sample["ContextAttributes"], "data": sample["Data"]}
            if version.startswith("v1"):
                assert whole["id"] == read_event(whole, HERE).id
                continue
            with pytest.raises(EventError, match=r'specversion "1\.0"'):
                read_event(whole, HERE)


def test_in_a_channel_by_arrival_the_time_is_the_acceptance() -> None:
    """Whatever the publisher states, also tomorrow; other channels, and files, go by what is stated."""
    channels = (Channel("old", "planar", ("unit",), order="arrival"), FIRES)
    noon, later = datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 3, 12, tzinfo=UTC)
    stated = document(time="2026-01-03T12:00:00Z")
    assert (noon, later) == tuple(read_event(stated, HERE, channels, taken).time for taken in (noon, None))
    with pytest.raises(EventError, match="time"):
        read_event({**stated, "type": "fire"}, HERE, channels, noon)
    change = SettingsChange(Settings(channels=channels))
    assert [change] == changes(to_event(change, "e", "s"), Settings())
