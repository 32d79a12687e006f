"""Frames as events: a row means what the dict of its columns means, and fails where that fails."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.api.event_rows import event_of
from nearcast.api.frames import events_of
from nearcast.errors import EventError
from nearcast.language.cloudevents import DeadLetter
from nearcast.language.control_events import changes
from nearcast.model.changes import ClientChange
from nearcast.model.columns import EVENTS, to_events
from nearcast.model.event import Event
from nearcast.model.subscription import Channel, Settings

naive = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "id": (pa.int64(), st.integers(0, 3)),
    "type": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "", "b", "nearcast.client"])),
    "subject": (pa.large_string(), st.sampled_from(["s", ""])),
    "time": (pa.timestamp("us", tz="Europe/Berlin"), naive.map(lambda one: one.replace(tzinfo=UTC))),
    "source": (pa.string(), st.just("here")),
    "lon": (pa.float64(), st.sampled_from([0.0, 180.0 + 1e-10, 181.0, float("nan"), 11.5])),
    "lat": (pa.float32(), st.sampled_from([0.0, 48.0, -91.0])),
    "alt": (pa.int16(), st.integers(-3, 3)),
    "x": (pa.int64(), st.integers(-5, 5)),
    "y": (pa.decimal128(6, 2), st.decimals(-5, 5, places=2)),
    "z": (pa.float64(), st.sampled_from([1.0, float("inf")])),
    "small": (pa.uint8(), st.integers(0, 255)),
    "large": (pa.uint64(), st.sampled_from([0, 2**63 - 1, 2**63, 2**64 - 1])),
    "price": (pa.decimal128(30, 2), st.sampled_from([Decimal("1.50"), Decimal("2.00"), Decimal(2**63), Decimal(-7)])),
    "flag": (pa.bool_(), st.booleans()),
    "day": (pa.date32(), st.dates(date(1, 1, 2))),
    "seen": (pa.timestamp("us"), naive),
    "text": (pa.string_view(), st.sampled_from(["", "t", "2020-01-31T12:00:00Z", "2020-02-31T12:00:00Z", "ü"])),
    "nothing": (pa.null(), st.none()),
    "unit": (
        pa.struct([("size", pa.int32()), ("tags", pa.list_(pa.string())), ("inner", pa.struct([("a", pa.bool_())]))]),
        st.fixed_dictionaries(
            {
                "size": st.none() | st.integers(0, 9),
                "tags": st.none() | st.lists(st.none() | st.just("t"), max_size=3),
                "inner": st.none() | st.just({"a": True}),
            }
        ),
    ),
    "many": (
        pa.large_list(pa.struct([("n", pa.int64())])),
        st.lists(st.none() | st.fixed_dictionaries({"n": st.none() | st.integers(0, 3)}), max_size=3),
    ),
    "geometry": (
        pa.struct([("type", pa.string()), ("coordinates", pa.list_(pa.float64()))]),
        st.sampled_from(
            [
                {"type": "Point", "coordinates": [11.0, 48.0]},
                {"type": "Point", "coordinates": [48.0]},
                {"type": "no", "coordinates": []},
            ]
        ),
    ),
    "shape": (
        pa.struct([("type", pa.string()), ("coordinates", pa.list_(pa.list_(pa.float64())))]),
        st.just({"type": "LineString", "coordinates": [[1.0, 2.0], [3.0, 4.5]]}),
    ),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """A table of some of the columns, cut into chunks."""
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), unique=True, min_size=1, max_size=8))
    count = draw(st.integers(0, 6))
    columns = {}
    for name in names:
        kind, values = COLUMNS[name]
        listed = draw(st.lists(st.none() | values, min_size=count, max_size=count))
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        columns[name] = pa.array(listed, plain).cast(kind) if plain != kind else pa.array(listed, kind)
    table = pa.table(columns)
    middle = draw(st.integers(0, count))
    return pa.concat_tables([table.slice(0, middle), table.slice(middle)])


def told(value: object) -> str:
    """A value with its type; moments in UTC, whatever they call it."""
    return f"moment {value.isoformat()}" if isinstance(value, datetime) else repr(value)


def comparable(event: Event) -> tuple[Any, ...]:
    """An event, whatever the order of its attributes; a list keeps its own."""
    names = sorted({name for name, _ in event.attributes})
    values = [(name, [told(value) for key, value in event.attributes if key == name]) for name in names]
    own = (event.id, event.type, event.source, event.subject, event.time and event.time.isoformat(), event.channel)
    return own, repr(event.place), values


@settings(max_examples=60)
@given(tables(), st.sampled_from([(), (Channel("c", "planar", ("a",)), Channel("d", "geographic", ()))]))
def test_a_row_is_the_event_that_a_dict_of_its_columns_is(table: pa.Table, channels: tuple[Channel, ...]) -> None:
    """Of every type of column; and the same rows are no events, for the same reasons."""
    letters: list[DeadLetter] = []
    found = events_of(table, 10, letters.append, channels)
    expected, faults = [], {}
    for number, row in enumerate(table.to_pylist(), 10):
        row = {name: value for name, value in row.items() if value is not None or name in ("id", "type", "source")}
        try:
            expected.append((number + 1, comparable(event_of(row, number, channels))))
        except EventError as error:
            faults[f"row {number}"] = error.fault
    assert EVENTS == found.schema
    assert faults.keys() == {str(letter.fault.where) for letter in letters}
    assert expected == [(event.position, comparable(event)) for event in to_events(found)]


def test_rows_of_cloudevents_are_read_as_their_json_is() -> None:
    """Data in base 64, another version, a field of the data named as one of the event's."""
    documents: list[dict[str, Any]] = [
        {
            "specversion": "1.0",
            "id": "1",
            "type": "t",
            "source": "s",
            "data": {"type": "inner", "subject": "x", "n": 1},
        },
        {"specversion": "1.0", "id": "2", "type": "t", "source": "s", "subject": "own", "data": {"subject": "x"}},
        {
            "specversion": "1.0",
            "id": "3",
            "type": "t",
            "source": "s",
            "datacontenttype": "application/json",
            "data_base64": "eyJuIjogMn0=",
        },
        {"specversion": "0.3", "id": "4", "type": "t", "source": "s"},
    ]
    letters: list[DeadLetter] = []
    names = dict.fromkeys(name for document in documents for name in document)
    table = pa.table({name: [document.get(name) for document in documents] for name in names})
    found = to_events(events_of(table, 0, letters.append))
    assert [comparable(event_of(one, 0)) for one in documents[:3]] == [comparable(event) for event in found]
    assert ["row 3: expected specversion \"1.0\", got '0.3'; events are CloudEvents 1.0"] == [
        str(letter.fault) for letter in letters
    ]


def test_control_events_of_a_frame_are_numbered_with_all_its_rows() -> None:
    """Also in a later batch."""
    table = pa.table({"type": ["nearcast.client.removed"], "client": ["a"]})
    [event] = to_events(events_of(table, 10_000))
    assert ("10000", 10_001) == (event.id, event.position)


def test_a_control_event_may_stand_beside_decimals_and_dates() -> None:
    """What other rows have columns for is in its row, too, as in a dict."""
    row = {"type": "nearcast.client", "client": "a", "price": Decimal("1.50"), "day": date(2026, 1, 31)}
    [event] = to_events(events_of(pa.Table.from_pylist([row]), 0))
    assert comparable(event_of(row, 0)) == comparable(event)
    assert {"client": "a", "price": 1.5, "day": "2026-01-31"} == json.loads(event.payload)["data"]


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.timestamp("s")])
def test_a_control_event_may_stand_beside_timestamps(kind: pa.DataType) -> None:
    """Of any unit, with a zone and without; in a CloudEvent as an extension, as of a dict."""
    own = {"id": "1", "source": "s", "type": "nearcast.client", "seen": datetime(2026, 1, 31, 12, tzinfo=UTC)}
    table = pa.Table.from_pylist([{**own, "client": "a"}])
    moments = pa.array([own["seen"]], pa.timestamp("us", "UTC")).cast(kind)
    at = table.schema.get_field_index("seen")
    [event] = to_events(events_of(table.set_column(at, "seen", moments)))
    assert {"client": "a", "seen": "2026-01-31T12:00:00Z"} == json.loads(event.payload)["data"]
    cloudevent = {**own, "specversion": "1.0", "data": {"client": "a"}}
    [event] = to_events(events_of(pa.Table.from_pylist([cloudevent]).set_column(at, "seen", moments)))
    assert comparable(event_of(cloudevent, 0)) == comparable(event)
    assert [ClientChange("a")] == changes(event, Settings())


def test_a_cloudevent_of_python_may_have_moments() -> None:
    """As its time and in its data; its JSON has them as texts."""
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    own = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "time": moment}
    event = event_of({**own, "data": {"at": moment}}, 0)
    assert (moment, ("at", moment)) == (event.time, event.attributes[-1])
    assert b'"time":"2026-01-31T12:00:00Z","data":{"at":"2026-01-31T12:00:00Z"}' in event.payload
