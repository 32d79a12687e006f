"""nearcast.spark in a session: pairs, deliveries and dead letters as DataFrames, on batches and on streams."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import workload
from nearcast import spark as nearcast_spark
from nearcast.api.definition_files import Definitions
from nearcast.api.filters import Filter
from nearcast.api.history import replay
from nearcast.api.matching import match
from nearcast.errors import DefinitionError
from nearcast.language.cql2.printer import write
from nearcast.spark import dead_letters, deliveries, derived_events
from tests.pipeline.histories import documents, with_roles

pytestmark = pytest.mark.spark

EVENTS = [
    {"id": "e1", "type": "works", "minutes": None, "lon": 11.60, "lat": 48.17},
    {"id": "e2", "type": "queue", "minutes": 15, "lon": 11.55, "lat": 48.16},
    {"id": "e3", "type": "closure", "minutes": None, "lon": 11.51, "lat": 48.13},
    {"id": "e4", "type": "closure", "minutes": None, "lon": 11.08, "lat": 49.45},
]
FILTERS = {
    "closures": "type = 'closure'",
    "long queues": "type = 'queue' AND minutes >= 10",
    "near Munich": "distance(POINT(11.57 48.14), this) <= 10000",
}
PAIRS = {
    ("e1", "near Munich"),
    ("e2", "long queues"),
    ("e2", "near Munich"),
    ("e3", "closures"),
    ("e3", "near Munich"),
    ("e4", "closures"),
}
DEFINITIONS: dict[str, Any] = {
    "awareness": {"bandwidth": {"maximum": 3750}},
    "channels": {"roads": {"coordinates": "geographic"}},
    "clients": [
        {"id": "van-7", "readings": {"bandwidth": 200}, "position": {"lon": 11.57, "lat": 48.14}},
        {"id": "control-room"},
    ],
    "subscriptions": [
        {
            "id": "around-van-7",
            "client": "van-7",
            "filter": {
                "all": [
                    "distance(user('van-7'), this) <= 10000",
                    {
                        "any": [
                            {"when": "type = 'closure'", "relevance": 1},
                            {"when": "minutes >= 10", "relevance": 0.6},
                        ]
                    },
                ]
            },
        },
        {"id": "all-closures", "client": "control-room", "filter": "type = 'closure'"},
    ],
}
RELATED: dict[str, Any] = {
    "clients": [{"id": "ranger"}],
    "relations": [{"id": "pair", "a": {"entity": "deer-1"}, "b": {"entity": "deer-2"}, "when": "distance(a, b) < 10"}],
    "subscriptions": [{"id": "meetings", "client": "ranger", "filter": "type = 'nearcast.relation'"}],
}


@pytest.fixture
def events(spark: SparkSession) -> DataFrame:
    """Four events of the road, a column per attribute."""
    return spark.createDataFrame(EVENTS, "id string, type string, minutes int, lon double, lat double")  # type: ignore[arg-type]


@pytest.fixture
def lines(spark: SparkSession) -> Callable[[list[dict[str, Any]]], DataFrame]:
    """Makes CloudEvents a DataFrame of their lines, numbered."""

    def made(found: list[dict[str, Any]]) -> DataFrame:
        rows = [(number, json.dumps(document)) for number, document in enumerate(found)]
        return spark.createDataFrame(rows, "number int, value string")

    return made


def pairs_of(frame: DataFrame) -> set[tuple[Any, ...]]:
    rows = [tuple(row) for row in frame.collect()]
    assert len(rows) == len(set(rows))
    return set(rows)


def said(error: pytest.ExceptionInfo[DefinitionError]) -> str:
    return str(error.value)


def test_pairs_are_named_by_id_and_filter(events: DataFrame) -> None:
    """Texts and filters alike, and as `nearcast.match` has them."""
    found = nearcast_spark.match(events, {**FILTERS, "closures": Filter(FILTERS["closures"])})
    assert ["id", "filter"] == found.columns
    assert PAIRS == pairs_of(found)
    assert PAIRS == {(pair["event"], pair["filter"]) for pair in match(EVENTS, FILTERS)}


def test_the_columns_that_identify_a_row_are_chosen(events: DataFrame) -> None:
    """They keep names and types, whatever these are; a table without an id is matched as well."""
    frame = events.withColumnRenamed("id", "row.no").withColumn("bytes", F.lit(b"x"))
    frame = frame.withColumn("unit", F.struct(F.col("minutes").alias("size"))).withColumnRenamed(
        "minutes", "for.minutes"
    )
    filters = {"closures": FILTERS["closures"], "long": "for.minutes >= 10 AND unit.size = 15"}
    found = nearcast_spark.match(frame, filters, keep=["row.no", "bytes"])
    assert ["row.no", "bytes", "filter"] == found.columns
    assert [("e2", b"x", "long"), ("e3", b"x", "closures"), ("e4", b"x", "closures")] == sorted(
        (row[0], bytes(row[1]), row[2]) for row in found.collect()
    )


def test_five_thousand_filters_come_from_parquet(spark: SparkSession, tmp_path: Path) -> None:
    """A table of names and texts; the pairs are those of `nearcast.match`."""
    filters = {f"filter {number}": write(one) for number, one in enumerate(workload.filters(5_000))}
    names, texts = list(filters), list(filters.values())
    spark.createDataFrame(pa.table({"name": names, "filter": texts})).write.parquet(str(tmp_path / "filters"))
    table = workload.values(300).rename_columns(["id", *workload.TEXTS, *workload.INTEGERS])
    frame = spark.createDataFrame(table).repartition(2)
    found = nearcast_spark.match(frame, spark.read.parquet(str(tmp_path / "filters"))).toArrow()
    expected = match(table, filters)
    assert len(expected) > 300
    assert set(zip(expected["event"].to_pylist(), expected["filter"].to_pylist(), strict=True)) == set(
        zip(found["id"].to_pylist(), found["filter"].to_pylist(), strict=True)
    )
    assert len(expected) == len(found)


def test_nothing_runs_before_an_action_and_no_column_is_read_in_vain(
    spark: SparkSession, events: DataFrame, tmp_path: Path
) -> None:
    """Of a Parquet file only what filters and the outcome ask for; a row that fails does so when it is asked for."""
    failing = events.withColumn("minutes", F.raise_error(F.lit("evaluated")).cast("int"))
    nearcast_spark.match(failing, FILTERS)
    events.write.parquet(str(tmp_path / "events"))
    found = nearcast_spark.match(spark.read.parquet(str(tmp_path / "events")), {"long": "minutes > 10"})
    with contextlib.redirect_stdout(io.StringIO()) as plan:
        found.explain()
    assert "ReadSchema: struct<id:string,type:string,minutes:int>" in plan.getvalue()


def test_a_stream_is_matched_as_it_comes(spark: SparkSession, events: DataFrame, tmp_path: Path) -> None:
    """The same pairs, by Structured Streaming."""
    events.write.parquet(str(tmp_path / "events"))
    stream = spark.readStream.schema(events.schema).parquet(str(tmp_path / "events"))
    writer = nearcast_spark.match(stream, FILTERS).writeStream.format("memory").queryName("pairs")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert PAIRS == pairs_of(spark.table("pairs"))


def test_cloudevents_are_matched_out_of_a_column_of_json(
    lines: Callable[[list[dict[str, Any]]], DataFrame],
) -> None:
    """As text or as bytes, as Kafka has them; by the events' ids, or by columns beside them."""
    frame = lines([{"specversion": "1.0", "source": "s", "id": "e", "type": "closure", "data": {"size": 3}}])
    filters = {"closures": "type = 'closure' AND size = 3"}
    assert [("e", "closures")] == [
        tuple(row) for row in nearcast_spark.match(frame, filters, cloudevents="value").collect()
    ]
    as_bytes = frame.withColumn("value", F.col("value").cast("binary"))
    found = nearcast_spark.match(as_bytes, filters, cloudevents="value", keep=["number"])
    assert [(0, "closures")] == [tuple(row) for row in found.collect()]


def test_rows_that_are_no_events_end_the_job_or_are_left_out(events: DataFrame) -> None:
    """The error shows the row and what to do; the same rows can be had with their reasons."""
    faulty = events.withColumn("lat", F.when(F.col("id") == "e2", 95.0).otherwise(F.col("lat")))
    with pytest.raises(PythonException) as error:
        nearcast_spark.match(faulty, FILTERS).collect()
    assert 'expected a latitude from -90 to 90 degrees, got 95.0 in the row {"id":"e2"' in str(error.value)
    assert "dead_letters='drop' leaves such rows out" in str(error.value)
    left = nearcast_spark.match(faulty, FILTERS, dead_letters="drop")
    assert {pair for pair in PAIRS if pair[0] != "e2"} == pairs_of(left)
    [letter] = dead_letters(faulty).collect()
    assert ("e2", "expected a latitude") == (letter["id"], letter["reason"][:19])


def test_lines_that_are_no_cloudevents_are_shown(lines: Callable[[list[dict[str, Any]]], DataFrame]) -> None:
    """The line itself, and what is wrong with it; null is no event either."""
    frame = lines([{"specversion": "0.3"}]).unionByName(lines([{}]).withColumn("value", F.lit(None).cast("string")))
    found = dead_letters(frame, cloudevents="value").collect()
    assert ['{"specversion": "0.3"}', None] == [row["value"] for row in found]
    assert all(row["reason"].startswith("expected ") for row in found)


@pytest.mark.parametrize(
    ("change", "filters", "expected"),
    [
        ({"drop": "id"}, FILTERS, "expected a column id, by which the outcome names each row, got the columns type, "),
        ({}, {"a": "type = 'x' AND"}, "filter a:1:15: expected "),
        ({}, {"a": "tipe = 'x'"}, "filter a:1:1: expected a column tipe, got the columns "),
        ({}, {"a": "picture = 'x'"}, "column picture: expected a type that an attribute can have, got the type binary"),
        ({}, {"a": "CHANGED(type)"}, "filter a:1:1: expected a filter about the event alone, got "),
        ({"keep": ["filter"]}, FILTERS, "expected a column filter, got the columns "),
        ({"keep": ["typo"]}, FILTERS, "did you mean type?"),
        ({}, {}, "expected one filter or more, got none"),
        ({"dead_letters": "skip"}, FILTERS, "expected dead_letters='raise' or 'drop', got 'skip'"),
        (
            {"cloudevents": "lat"},
            FILTERS,
            "column lat: expected CloudEvents as JSON, text or bytes, got the type double",
        ),
    ],
)
def test_faults_are_told_before_anything_runs(
    events: DataFrame, change: dict[str, Any], filters: dict[str, str], expected: str
) -> None:
    """With the place in the filter, or the name of the column, and what to do."""
    frame = events.withColumn("picture", F.lit(b"x")).drop(change.pop("drop", ""))
    with pytest.raises(DefinitionError) as error:
        nearcast_spark.match(frame, filters, **change)
    assert expected in said(error)


def test_a_table_of_filters_has_each_name_once(spark: SparkSession, events: DataFrame) -> None:
    """And columns by these names, and a text in each row."""
    for rows, schema, expected in (
        (
            [("a", "type = 'x'"), ("a", "type = 'y'")],
            "name string, filter string",
            "each filter's name once, got a again",
        ),
        ([("a", None)], "name string, filter string", "filter a: expected a filter as CQL2 text"),
        ([("a", "type = 'x'")], "id string, text string", "with the columns name and filter, got id, text"),
    ):
        with pytest.raises(DefinitionError) as error:
            nearcast_spark.match(events, spark.createDataFrame(rows, schema))
        assert expected in said(error)


def test_deliveries_of_rows_are_decided_wherever_they_are(events: DataFrame, tmp_path: Path) -> None:
    """As `nearcast.replay` decides them: client, level, and the priority in the client's context."""
    expected = {
        tuple(row[name] for name in ("event", "client", "subscription", "level", "priority"))
        for row in replay(EVENTS, Definitions.read(DEFINITIONS))
    }
    path = tmp_path / "definitions.yaml"
    path.write_text(yaml.safe_dump(DEFINITIONS))
    assert 4 == len(expected)
    assert expected == pairs_of(deliveries(events.repartition(3), path))
    found = deliveries(events.repartition(2), Definitions.read(DEFINITIONS), keep=["type"])
    assert {("closure", "e4", "control-room")} < {tuple(row)[:3] for row in found.collect()}


def test_what_needs_an_order_is_decided_in_it(
    spark: SparkSession, lines: Callable[[list[dict[str, Any]]], DataFrame]
) -> None:
    """Relations among entities, and clients that move and change meanwhile, as `nearcast.replay` decides them."""
    apart = [
        {"id": str(n), "subject": f"deer-{1 + n % 2}", "x": 20.0 * (n % 4 // 2), "y": 0.0, "at": n} for n in range(12)
    ]
    frame = spark.createDataFrame(
        list(reversed(apart)), "id string, subject string, x double, y double, at int"
    ).repartition(3)  # type: ignore[arg-type]
    definitions = Definitions.read(RELATED)
    expected = [row["event"] for row in replay(apart, definitions)]
    assert len(expected) > 2
    assert expected == [row["event"] for row in deliveries(frame, definitions, order="at").collect()]
    with pytest.raises(DefinitionError) as error:
        deliveries(frame, definitions)
    assert "for what depends on those before, got the relation pair without an order; say by order=[…]" in said(error)
    history, changing = documents(120), Definitions.read(with_roles())
    names = ("event", "client", "subscription", "level", "priority")
    wanted = [tuple(row[name] for name in names) for row in replay([json.dumps(one) for one in history], changing)]
    told = deliveries(lines(history).repartition(2), changing, cloudevents="value", order=[F.col("number")])
    assert wanted == [tuple(row) for row in told.collect()]


def test_derived_events_are_those_of_a_replay(spark: SparkSession) -> None:
    """Relations, situations and actions, each as the CloudEvent that it is, beside what is kept of its cause's row."""
    ontology = {"classes": {"Temperature": {"unit": "degC", "within": 100}}, "situations": {"Fire": {}}}
    definitions = {
        **RELATED,
        "subscriptions": [],
        "ontology": ontology,
        "situations": [{"id": "fire", "class": "Fire", "when": "Temperature > 80"}],
        "actions": [{"id": "alarm", "when": "Fire", "run": {"name": "ring"}}],
    }
    rows = [
        {"id": str(n), "subject": f"deer-{1 + n % 2}", "time": f"2026-01-31T12:00:0{n}Z", "x": float(n % 5), "y": 0.0}
        | {"Temperature": 60 + 10 * n}
        for n in range(8)
    ]
    expected: list[dict[str, Any]] = []
    replay(rows, definitions, on_derived=expected.append)
    assert {"nearcast.relation", "nearcast.situation", "nearcast.action"} == {one["type"] for one in expected}
    frame = spark.createDataFrame(rows, "id string, subject string, time string, x double, y double, Temperature int")  # type: ignore[arg-type]
    table = derived_events(frame.repartition(2), definitions, order="time", keep=["subject"])
    assert ["subject", "event", "type", "content"] == table.columns
    found = table.collect()
    assert expected == [json.loads(row["content"]) for row in found]
    assert [(one["id"], one["type"]) for one in expected] == [(row["event"], row["type"]) for row in found]


def test_events_that_change_definitions_need_an_order(lines: Callable[[list[dict[str, Any]]], DataFrame]) -> None:
    """Decided alone they would change what holds for an unknown part of the others."""
    change = {"specversion": "1.0", "source": "s", "id": "c", "type": "nearcast.client", "data": {"client": "van-7"}}
    with pytest.raises(PythonException, match=r"may be decided in any order, got one of type nearcast\.client"):
        deliveries(lines([change]), DEFINITIONS, cloudevents="value").collect()


def test_a_stream_has_no_order(spark: SparkSession) -> None:
    """The running system decides what comes; the error says so."""
    stream = spark.readStream.format("rate").load().withColumn("id", F.col("value"))
    with pytest.raises(DefinitionError, match="expected rows that end, to be decided in an order, got a stream"):
        deliveries(stream, RELATED, order="timestamp")
