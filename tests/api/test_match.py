"""`nearcast.match`: every kind of input gives the pairs that the plain evaluator gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nearcast
from nearcast.errors import DefinitionError, EventError, Fault, Mark
from nearcast.filters.evaluate import NO_CONTEXT, truth
from nearcast.language.cloudevents import read_event
from nearcast.language.cql2 import parse

FILTERS = {
    "hot": "temperature > 20.5",
    "exact": "n = 9007199254740993",
    "text": "kind = 'a' OR kind LIKE 'b%'",
    "kind of": "kind IN ('a', 'c') AND NOT (n < 3)",
    "nested": "unit.size >= 2",
    "listed": "tags = 'x' AND NOT (tags = 'y')",
    "none": "subject IS NULL",
    "when": "time > TIMESTAMP('2020-01-01T12:00:00Z') OR seen < TIMESTAMP('2020-06-01T00:00:00Z')",
    "day": "born >= DATE('2020-02-01')",
    "near": "distance(this, POINT(11.5 48.1)) <= 30000",
    "inside": "S_INTERSECTS(geom, BBOX(11, 48, 12, 49))",
    "true": "flag",
    "type": "type = 'row' OR source = 'city'",
    "sum": "temperature + n > 10",
}

moments = st.datetimes(datetime(2019, 1, 1), datetime(2021, 1, 1)).map(lambda one: one.replace(tzinfo=UTC))


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


rows = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["a", "b", "row"]),
        "source": st.sampled_from(["city", "land"]),
        "subject": maybe(st.sampled_from(["s1", "s2"])),
        "time": maybe(moments),
        "temperature": maybe(st.floats(-50, 50) | st.just(20.5)),
        "n": maybe(st.integers(-5, 5) | st.sampled_from([2**53, 2**53 + 1])),
        "kind": maybe(st.sampled_from(["a", "b", "bb", "c"])),
        "unit": maybe(st.fixed_dictionaries({"size": maybe(st.integers(0, 4)), "name": maybe(st.just("u"))})),
        "tags": maybe(st.lists(st.sampled_from(["x", "y"]), max_size=3)),
        "seen": maybe(moments),
        "born": maybe(moments.map(lambda one: one.date())),
        "flag": maybe(st.booleans()),
        "place": maybe(st.tuples(st.floats(11, 12), st.floats(47, 49))),
    }
)
SCHEMA = pa.schema(
    [
        ("type", pa.string()),
        ("source", pa.string()),
        ("subject", pa.string()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("temperature", pa.float64()),
        ("n", pa.int64()),
        ("kind", pa.dictionary(pa.int32(), pa.string())),
        ("unit", pa.struct([("size", pa.int64()), ("name", pa.string())])),
        ("tags", pa.list_(pa.string())),
        ("seen", pa.timestamp("us")),
        ("born", pa.date32()),
        ("flag", pa.bool_()),
        ("lon", pa.float64()),
        ("lat", pa.float64()),
    ]
)


def placed(row: dict[str, Any]) -> dict[str, Any]:
    place = row.pop("place")
    return {**row, "lon": place and place[0], "lat": place and place[1]}


def cloudevent(row: dict[str, Any], number: int) -> dict[str, Any]:
    """A row as a publisher would send it."""

    def written(value: Any) -> Any:
        return value.isoformat().replace("+00:00", "Z") if hasattr(value, "isoformat") else value

    own = {name: written(row[name]) for name in ("type", "source", "subject", "time")}
    data = {name: written(value) for name, value in row.items() if name not in own}
    return {"specversion": "1.0", "id": str(number), **own, "data": data}


def as_pairs(found: Any) -> list[tuple[int, str]]:
    if isinstance(found, pd.DataFrame):
        return list(zip(found["event"].tolist(), found["filter"].tolist(), strict=True))
    if isinstance(found, pl.DataFrame):
        return found.rows()
    if isinstance(found, (pa.Table, pa.RecordBatch)):
        found = found.to_pylist()
    return [(int(one["event"]), one["filter"]) for one in found]


@settings(max_examples=40)
@given(st.lists(rows.map(placed), max_size=8))
def test_every_kind_of_input_gives_the_pairs_of_the_plain_evaluator(given_rows: list[dict[str, Any]]) -> None:
    """Dicts, iterators, CloudEvents as dicts and lines, Arrow, pandas and Polars alike."""
    documents = [cloudevent(row, number) for number, row in enumerate(given_rows)]
    trees = {name: parse(text, Mark(name)) for name, text in FILTERS.items()}
    expected = [
        (number, name)
        for number, document in enumerate(documents)
        for name, tree in trees.items()
        if truth(tree, read_event(document, Mark("event")), NO_CONTEXT) is True
    ]
    table = pa.Table.from_pylist(given_rows, SCHEMA)
    without = table.cast(SCHEMA.set(6, pa.field("kind", pa.string())))
    assert expected == as_pairs(nearcast.match(given_rows, FILTERS))
    assert expected == as_pairs(nearcast.match(iter(given_rows), FILTERS))
    assert expected == as_pairs(nearcast.match(documents, FILTERS))
    assert expected == as_pairs(nearcast.match([json.dumps(document) for document in documents], FILTERS))
    assert expected == as_pairs(nearcast.match(table, FILTERS))
    assert expected == as_pairs(nearcast.match(pl.from_arrow(table), FILTERS))
    # Without this pandas would make integers beside a null doubles.
    frame = without.to_pandas(integer_object_nulls=True)
    assert expected == as_pairs(nearcast.match(frame, FILTERS))
    if documents:
        assert expected == as_pairs(nearcast.match(pa.Table.from_pylist(documents), FILTERS))


def test_pairs_come_back_as_the_events_came() -> None:
    """A list for a list, an iterator for an iterator, a frame of the same kind for a frame."""
    rows = [{"n": 1}, {"n": 2}]
    table = pa.Table.from_pylist(rows)
    few = {"all": "n > 0"}
    assert isinstance(nearcast.match(rows, few), list)
    assert isinstance(nearcast.match(tuple(rows), few), list)
    assert {"event": 0, "filter": "all"} == next(nearcast.match(iter(rows), few))
    for frame in (table, table.to_batches()[0], table.to_pandas(), pl.from_arrow(table)):
        assert type(frame) is type(nearcast.match(frame, few))
        assert 2 == len(nearcast.match(frame, few))
        assert 0 == len(nearcast.match(frame[:0], few))
    assert 2 == nearcast.match(table.to_reader(), few).read_all().num_rows
    assert isinstance(nearcast.match(pl.DataFrame(rows)["n"].to_frame(), {}), pl.DataFrame)


def test_an_iterator_is_read_as_pairs_are_asked_for() -> None:
    """Never more than a few thousand events ahead."""
    read = []

    def events() -> Iterator[dict[str, Any]]:
        for number in range(50_000):
            read.append(number)
            yield {"n": number}

    assert {"event": 7, "filter": "seven"} == next(nearcast.match(events(), {"seven": "n = 7"}))
    assert 10_000 == len(read)


@pytest.mark.parametrize("ids", [[3, 1], ["b", "a"], pd.Categorical(["b", "a"])])
def test_events_are_called_by_their_ids(ids: Any) -> None:
    """Of the type they have in the frame."""
    found = nearcast.match(pd.DataFrame({"id": ids, "n": [1, 2]}), {"all": "n > 0", "two": "n = 2"})
    assert [(ids[0], "all"), (ids[1], "all"), (ids[1], "two")] == as_pairs(found)


def test_an_index_without_a_name_is_no_attribute() -> None:
    """What pandas calls a row by is not told; an index with a name is a column."""
    frame = pd.DataFrame({"n": [1, 2, 3]})[lambda one: one["n"] > 1]
    assert [(0, "two")] == as_pairs(nearcast.match(frame, {"two": "n = 2"}))
    named = frame.rename_axis("k")
    assert [(1, "k")] == as_pairs(nearcast.match(named, {"k": "k = 2"}))
    ranged = pd.DataFrame({"n": [1, 2, 3]}, index=pd.RangeIndex(3, name="k"))
    assert [(2, "k")] == as_pairs(nearcast.match(ranged, {"k": "k = 2"}))


def test_many_filters_over_many_rows_take_the_engine() -> None:
    """Several batches, and the pairs are in order."""
    table = pa.table({"n": list(range(25_000))})
    filters = {f"f{number}": f"n % 1000 = {number} AND n >= {number}" for number in range(250)}
    found = nearcast.match(table, filters)
    expected = [(row, f"f{row % 1000}") for row in range(25_000) if row % 1000 < 250]
    assert expected == list(zip(found["event"].to_pylist(), found["filter"].to_pylist(), strict=True))


WRONG: list[tuple[Any, str]] = [
    ({"n": 1}, "got one dict; put a single event into a list"),
    ("n", "got a text; of a file, give the open file"),
    (7, "an Arrow, pandas or Polars frame, got int"),
    (pl.LazyFrame({"n": [1]}), "got polars LazyFrame; collect"),
    (pl.Series("n", [1]), "a frame that Arrow can hold, got polars Series"),
    (pd.DataFrame({"n": [1, "x"]}), "got pandas DataFrame: .*column n"),
    (pd.DataFrame([[1, 2]], columns=["n", "n"]), "Duplicate column names"),
    (pa.table([[1], [2]], names=["n", "n"]), "column n: expected each column once"),
    (pl.DataFrame({"n": [1], "raw": [b"x"]}), "column raw: .*binary.*cast the column"),
    (pa.table({"n": [1], "took": pa.array([1], pa.duration("s"))}), r"column took: .*duration\[s\]"),
    (pa.table({"n": [1], "id": [1.5]}), "column id: expected texts or integers"),
    (pa.table({"specversion": ["1.0"], "id": ["a"], "type": ["t"], "n": [1]}), "a column source, as CloudEvents have"),
    (pa.table({"n": [1], "time": [5]}), "column time: expected timestamps"),
    (pa.table({"n": [1], "lon": ["east"], "lat": [1.0]}), "column lon: expected numbers"),
    (pa.table({"n": [1], "m": pa.array([[(1, 2)]], pa.map_(pa.int8(), pa.int8()))}), "a map whose keys are texts"),
]


@pytest.mark.parametrize(("events", "text"), WRONG)
def test_what_is_no_frame_of_events_is_told(events: Any, text: str) -> None:
    """What was expected, what came, where, and what to do."""
    with pytest.raises(Fault, match=text):
        nearcast.match(events, {"f": "n > 0"})


ROWS_WRONG: list[tuple[Any, str]] = [
    ([{"n": 1}, 7], "row 1: expected an event: a dict, or a line of JSON, got int"),
    ([{"n": 1}, "{"], "row 1:1:2: expected JSON"),
    ([{"n": object()}], "row 0: expected a JSON value as n"),
    ([{"id": "a"}, {"id": "a"}], "row 1: expected each id of a source once, got 'a' of 'rows' again"),
    (pa.table({"id": ["a", "b", "a"], "n": [1, 2, 3]}), "row 2: expected each id of a source once"),
    (pa.table({"type": [None], "n": [1]}), "row 0: expected type, a text that is not empty, got nothing"),
    (pa.table({"type": ["a", None], "n": [1, 2]}), "row 1: expected type, a text that is not empty, got nothing"),
    (
        pa.table({"n": pa.array([1, 2**63], pa.uint64())}),
        "row 1: expected n within 64 bits, got 9223372036854775808; send it as",
    ),
    (pa.table({"n": [1], "lon": [500.0], "lat": [1.0]}), "row 0: expected a longitude from -180 to 180"),
    (pa.table({"n": [1], "time": ["noon"]}), "row 0: expected time, as in 2020-01-31T12:00:00Z, got 'noon'"),
    (pa.table({"n": [1], "type": ["nearcast.no"]}), "row 0: expected one of nearcast.client"),
]


@pytest.mark.parametrize(("events", "text"), ROWS_WRONG)
def test_an_event_that_cannot_be_taken_is_raised_or_told(events: Any, text: str) -> None:
    """With the number of its row; with `on_dead_letter` the rest goes on."""
    with pytest.raises(EventError, match=text):
        nearcast.match(events, {"f": "n > 0 OR n IS NULL"})
    letters: list[nearcast.DeadLetter] = []
    nearcast.match(events, {"f": "n > 0 OR n IS NULL"}, on_dead_letter=letters.append)
    [letter] = letters
    assert letter.content


FILTERS_WRONG: list[tuple[Any, str]] = [
    ("n > 0", "expected filters by name, got str; as in"),
    ({"a": "n >", "b": "m = 1 AND"}, r"filter a:1:4: (?s:.*)filter b:1:10: "),
    ([("a", "n > 1"), ("a", "n > 2")], "filter a: expected each filter's name once, got a again"),
    ({7: "n > 1"}, "a text as a filter's name, got 7"),
    ({"a": 7}, "filter a: expected a filter as CQL2 text, got int"),
    ({"a": "n > 0 AND unit.sise > 1"}, "filter a:1:11: expected a column unit.sise, .*; did you mean unit.size"),
    ({"a": "unit.wide > 1 OR other = 2"}, r"a column unit.wide(?s:.*)a column other"),
    ({"a": "NOT (m = 1 OR n = 1)"}, "a column m"),
    ({"a": "m + n > 3"}, "a column m"),
    ({"a": "distance(this, POINT(1 2)) < 3"}, "a column lon beside lat, or x beside y"),
    ({"a": "S_INTERSECTS(geom, BBOX(0, 0, 1, 1))"}, "a column geom"),
    ({"a": "n > 0 AND distance(user('u'), this) < 3"}, "filter a:1:11: expected a filter about the event alone"),
    ({"a": "CHANGED(n)"}, "got a condition about the previous event"),
]


@pytest.mark.parametrize(("filters", "text"), FILTERS_WRONG)
def test_a_filter_that_cannot_be_is_told(filters: Any, text: str) -> None:
    """Every fault of all of them, with filter, line and column, before any row is read."""
    table = pa.table({"n": [1], "unit": [{"size": 1}]})
    with pytest.raises(DefinitionError, match=text):
        nearcast.match(table, filters)


@pytest.mark.parametrize(
    "text",
    ["m = 1 OR n = 1", "m IS NULL", "NOT (m IS NOT NULL)", "unit.size = 1", "type = 'row'", "n = 1 OR NOT m = 1"],
)
def test_a_filter_that_may_hold_without_a_column_is_none(text: str) -> None:
    """What is asked about the column is UNKNOWN."""
    table = pa.table({"n": [1], "unit": [{"size": 1}]})
    assert [(0, "f")] == as_pairs(nearcast.match(table, {"f": text}))
