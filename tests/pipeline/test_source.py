"""The log of events as a Spark data source."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from nearcast.errors import JournalError
from nearcast.journal.sqlite import SqliteJournal
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.pipeline import source
from nearcast.pipeline.source import BLOCK_ROWS, EVENT_ROWS, JournalSource, JournalStreamReader
from tests.journal.rows import events, positions


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    """A journal of 25 events."""
    with closing(SqliteJournal(tmp_path / "some.journal")) as journal:
        journal.append("events", events(range(25)))
        yield journal


def options(journal: SqliteJournal, **more: object) -> dict[str, str]:
    """Options of the source, all as text, as Spark gives them."""
    return {"journal": journal.path} | {name: str(value) for name, value in more.items()}


def read(spark: SparkSession, journal: SqliteJournal, **more: object) -> pa.Table:
    """The events as a batch source gives them, by position."""
    spark.dataSource.register(JournalSource)
    frame = spark.read.format("nearcast").options(**options(journal, **more)).load()
    return frame.toArrow().sort_by("position")


@pytest.mark.spark
def test_a_batch_is_the_log(spark: SparkSession, journal: SqliteJournal) -> None:
    """Read at once, the source gives the log as it is."""
    assert journal.read("events", 0, 25).to_pylist() == read(spark, journal).to_pylist()


@pytest.mark.spark
@pytest.mark.parametrize("partitions", [1, 2, 7, 100])
def test_any_number_of_partitions_gives_the_range(spark: SparkSession, journal: SqliteJournal, partitions: int) -> None:
    """A range of positions is read once each, however many tasks read it."""
    assert list(range(4, 21)) == positions(read(spark, journal, after=3, through=20, partitions=partitions))


@pytest.mark.spark
def test_an_empty_range_is_empty(spark: SparkSession, journal: SqliteJournal) -> None:
    """Nothing behind the end is no error."""
    assert [] == positions(read(spark, journal, after=25, partitions=2))


def stream(journal: SqliteJournal, **more: object) -> JournalStreamReader:
    """A stream's reader without Spark."""
    return JournalStreamReader(options(journal, **more))


def test_a_stream_reads_at_most_its_limit(journal: SqliteJournal) -> None:
    """Row by row, batch by batch, every position comes once."""
    reader = stream(journal, after=2, limit=10)
    offset, seen = reader.initialOffset(), []
    for _ in range(4):
        rows, offset = reader.read(offset)
        seen += [positions(batch) for batch in rows]
    assert ([list(range(3, 13)), list(range(13, 23)), [23, 24, 25]], {"position": 25}) == (seen, offset)


def test_a_stream_gives_the_same_again(journal: SqliteJournal) -> None:
    """After a restart a batch is read again as it was."""
    reader = stream(journal, rows="blocks")
    rows, end = reader.read(reader.initialOffset())
    journal.append("events", events(range(25, 30)))
    assert list(rows) == list(reader.readBetweenOffsets(reader.initialOffset(), end))


def test_a_large_batch_carries_ranges_only(journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the option `inline` the rows say what to read."""
    monkeypatch.setattr(source, "PIECE", 10)
    rows, _ = stream(journal, rows="blocks", inline=24).read({"position": 0})
    assert [(0, 10, None), (10, 20, None), (20, 25, None)] == [tuple(row.values()) for row in next(rows).to_pylist()]


def test_a_batch_of_large_events_is_shorter(journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fits the memory, and what is large does not go through Java's."""
    for one in range(25, 65):
        journal.append("events", to_table([Event(str(one), "t", "s", payload=os.urandom(50_000))]))
    monkeypatch.setattr(source, "INLINE_BYTES", 400_000)
    monkeypatch.setattr(source, "BATCH_BYTES", 1_000_000)
    reader = stream(journal, rows="blocks")
    offset, found = reader.initialOffset(), list[dict[str, Any]]()
    while offset["position"] < 65:
        rows, offset = reader.read(offset)
        found += [row for batch in rows for row in batch.to_pylist()]
    assert len(found) > 2
    assert [0, *(row["through"] for row in found[:-1])] == [row["after"] for row in found]
    assert max(len(row["block"] or b"") for row in found) < 500_000
    assert any(row["block"] is None for row in found)


def test_a_checkpoint_of_another_journal_is_refused(journal: SqliteJournal) -> None:
    """An offset behind the end of the journal would skip events in silence."""
    with pytest.raises(JournalError, match="ends at position 25, but the checkpoint of the query is at 26"):
        stream(journal).read({"position": 26})


def test_a_source_without_journal_is_refused() -> None:
    """The error names the option."""
    with pytest.raises(JournalError, match='the option "journal"'):
        JournalStreamReader({})


def test_a_halted_stream_gives_one_batch_without_rows(journal: SqliteJournal, tmp_path: Path) -> None:
    """Once the file is there and all is read, an empty batch comes, once; the offset stays one to go on from."""
    (tmp_path / "halt").touch()
    reader = stream(journal, halt=tmp_path / "halt", after=20)
    rows, offset = reader.read(reader.initialOffset())
    assert ([5], {"position": 25}) == ([len(batch) for batch in rows], offset)
    rows, halted = reader.read(offset)
    assert ([0], 25, True) == ([len(batch) for batch in rows], halted["position"], halted != offset)
    assert [] == list(reader.read(halted)[0])


@pytest.mark.spark
@pytest.mark.parametrize("inline", [0, 100])
def test_blocks_open_to_the_same_events(spark: SparkSession, journal: SqliteJournal, inline: int) -> None:
    """Whether a batch carries its events or says where they are, the executors get them all."""
    rows, _ = stream(journal, rows="blocks", inline=inline).read({"position": 0})
    blocks = spark.createDataFrame(pa.Table.from_batches(rows), BLOCK_ROWS)
    path = journal.path

    def events_of(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in source.opened(parts, path):
            yield from table.to_batches()

    found = blocks.repartition(2).mapInArrow(events_of, EVENT_ROWS).toArrow().sort_by("position")
    assert journal.read("events", 0, 25).to_pylist() == found.to_pylist()


@pytest.mark.spark
def test_a_small_batch_is_collected_with_its_events(spark: SparkSession, journal: SqliteJournal) -> None:
    """The driver gets the range and the events; of a large batch only the range."""
    small, large = (
        source.collect(
            spark.createDataFrame(
                pa.Table.from_batches(stream(journal, rows="blocks", inline=inline).read({"position": 5})[0]),
                BLOCK_ROWS,
            )
        )
        for inline in (100, 0)
    )
    assert (5, 25, journal.read("events", 5, 20)) == (small.after, small.through, small.events)
    assert (5, 25, None) == (large.after, large.through, large.events)
