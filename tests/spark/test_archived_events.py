"""An archive's events as a DataFrame: matched and decided as `nearcast replay` does what it reads of the archive."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from nearcast import spark as nearcast_spark
from nearcast.api.matching import match
from nearcast.cli.system import define
from nearcast.errors import Mark, SetupError
from nearcast.journal.archive.archive_files import file_name
from nearcast.journal.archive.archive_writer import ArchiveWriter
from nearcast.journal.archive.archived_journal import ArchivedJournal
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.cloudevents import read_event
from nearcast.language.control_events import changes
from nearcast.language.definitions import files
from nearcast.model.columns import NO_DELIVERIES, entered_events
from nearcast.stages.decide import replay
from nearcast.stages.fold import StateFold
from tests.cli.test_offline import nearcast

pytestmark = pytest.mark.spark

NIGHT = datetime(2126, 1, 1, 23, 58, tzinfo=UTC)
EVENTS = 240
DEFINITIONS: dict[str, Any] = {
    "awareness": {"bandwidth": {"maximum": 3750}},
    "channels": {"a road": {"coordinates": "planar", "types": ["unit"]}},
    "clients": [{"id": "ann", "readings": {"bandwidth": 200}, "position": {"x": 0, "y": 0}}],
    "subscriptions": [
        {"id": "few", "client": "ann", "filter": "size > 7 AND unit.kind = 'car'"},
        {"id": "pairs", "client": "ann", "filter": "type = 'nearcast.relation'"},
    ],
    # Of events without a time that of acceptance counts.
    "relations": [{"id": "near", "a": "TRUE", "b": "TRUE", "when": "distance(a, b) < 12", "for": "5 s"}],
}
"""Of some history; it has what the archive's rows have beside their JSON: channels, and moments of acceptance."""


def event(number: int) -> dict[str, Any]:
    data = {"x": number * 7 % 50, "y": number * 13 % 20, "size": number % 11}
    head = {"specversion": "1.0", "id": f"e{number}", "type": "unit", "source": "s", "subject": f"unit {number % 6}"}
    return {**head, "data": {**data, "unit": {"kind": ["car", "foot"][number % 2]}, "tags": ["a", number]}}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of what a system decided over midnight, a second apart, with more behind its end."""
    folder = tmp_path_factory.mktemp("archived")
    (folder / "own.yaml").write_text(yaml.safe_dump(DEFINITIONS))
    defined = files.load([folder / "own.yaml"])
    with closing(SqliteJournal(folder / "journal")) as journal:
        define(journal, defined)
        channels = defined.settings.channels if defined.settings else ()
        found = [
            read_event(event(at), Mark("test"), channels, NIGHT + timedelta(seconds=at)) for at in range(EVENTS + 1)
        ]
        journal.append("events", entered_events(found[:-1], "main"))
        end = journal.end("events")
        for _, rows in replay(StateFold(), journal.row_ranges("events", 0, end, 50), changes):
            journal.commit_range("deliveries", rows, end)
        journal.commit_range("deliveries", NO_DELIVERIES, end)
        ArchiveWriter(journal, folder / "archive").write()
        journal.append("events", entered_events(found[-1:], "main"))
    # Of a writer at work, behind what the manifest says.
    newest = next((folder / "archive" / "events").glob("*/*/*.parquet"))
    (newest.parent / file_name(end + 1, end + 9)).write_bytes(newest.read_bytes())
    return folder / "archive"


def test_they_are_those_that_replay_reads(archive: Path, spark: SparkSession) -> None:
    """All that is in the archive and no more, with every column; days and channels leave files out."""
    frame = nearcast_spark.archived_events(spark, archive)
    with closing(ArchivedJournal(archive)) as journal:
        read = journal.read("events", 0, 1 << 40)
    assert EVENTS < len(read) == frame.count()
    assert read.equals(frame.orderBy("position").toArrow().select(read.column_names).cast(read.schema))
    of_day = frame.where("day = '2126-01-02' AND channel = 'a road'")
    assert read["position"].to_pylist()[-120:] == [one.position for one in of_day.orderBy("position").collect()]
    some = nearcast_spark.archived_events(spark, archive, first=10, last=30)
    assert [*range(10, 31)] == sorted(one.position for one in some.collect())
    assert 0 == nearcast_spark.archived_events(spark, archive, first=len(read) + 1).count()


def test_they_are_matched_as_their_cloudevents(archive: Path, spark: SparkSession) -> None:
    """By any filter, wherever the rows are."""
    filters = {"cars": "unit.kind = 'car' AND size > 3", "near": "x < 10", "tagged": "tags = 7", "all": "type = 'unit'"}
    frame = nearcast_spark.archived_events(spark, archive).where("channel = 'a road'")
    expected = {(one["event"], one["filter"]) for one in match([event(at) for at in range(EVENTS)], filters)}
    found = nearcast_spark.match(frame.repartition(3), filters).collect()
    assert len(expected) == len(found)
    assert expected == {(one["id"], one["filter"]) for one in found}


def test_they_are_decided_as_replay_decides_them(archive: Path, spark: SparkSession) -> None:
    """By the definitions that are among them, by their moments of acceptance; also what is derived."""
    done = nearcast(archive.parent, "replay", "--archive", "archive", "--derived", "derived.jsonl")
    names = ("position", "event", "client", "subscription", "level", "priority")
    expected = [tuple(one[name] for name in names) for one in map(json.loads, done.stdout.splitlines())]
    frame = nearcast_spark.archived_events(spark, archive).repartition(3)
    found = nearcast_spark.deliveries(frame, {}, order="position", keep=["position"])
    assert expected == [tuple(one) for one in found.collect()]
    assert {"few", "pairs"} == {one[3] for one in expected}
    told = [json.loads(line) for line in (archive.parent / "derived.jsonl").read_text().splitlines()]
    assert "dwell" in {one["data"]["detect"] for one in told}
    derived = nearcast_spark.derived_events(frame, {}, order="position").collect()
    assert told == [json.loads(one["content"]) for one in derived]


def test_they_are_decided_alone_by_other_definitions(archive: Path, spark: SparkSession) -> None:
    """Without an order, where nothing asks for one and what changed definitions is left out."""
    frame = nearcast_spark.archived_events(spark, archive).where("channel = 'a road'")
    found = nearcast_spark.deliveries(frame, {**DEFINITIONS, "relations": []}).collect()
    expected = [at for at in range(EVENTS) if at % 11 > 7 and at % 2 == 0]
    assert {f"e{at}" for at in expected} == {one["event"] for one in found}
    assert 0 == nearcast_spark.dead_letters(frame).count()


def test_a_folder_without_an_archive_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    """At once."""
    with pytest.raises(SetupError, match=r"expected the folder of an archive, got .*which has no archive\.json"):
        nearcast_spark.archived_events(spark, tmp_path)
