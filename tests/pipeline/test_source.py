"""The log of events as a Spark data source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from nearcast.errors import JournalError
from nearcast.journal.sqlite import SqliteJournal
from nearcast.model.columns import EVENTS
from nearcast.pipeline import source
from nearcast.pipeline.source import JournalStreamReader, opened, sent
from tests.journal.rows import events


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    """A journal of 25 events."""
    with closing(SqliteJournal(tmp_path / "some.journal")) as journal:
        journal.append("events", events(range(25)))
        yield journal


def options(journal: SqliteJournal, **more: object) -> dict[str, str]:
    """Options of the source, all as text, as Spark gives them."""
    return {"journal": journal.path} | {name: str(value) for name, value in more.items()}


def stream(journal: SqliteJournal, **more: object) -> JournalStreamReader:
    """A stream's reader without Spark."""
    return JournalStreamReader(options(journal, **more))


def told(rows: Iterator[pa.RecordBatch]) -> list[tuple[int, int]]:
    """The ranges of a batch."""
    return [(row["after"], row["through"]) for batch in rows for row in batch.to_pylist()]


def test_a_stream_tells_every_position_once(journal: SqliteJournal) -> None:
    """Batch by batch, from where it begins to the end."""
    reader = stream(journal, after=2)
    rows, offset = reader.read(reader.initialOffset())
    assert ([(2, 25)], {"position": 25}) == (told(rows), offset)
    journal.append("events", events(range(25, 30)))
    rows, offset = reader.read(offset)
    assert ([(25, 30)], {"position": 30}) == (told(rows), offset)


def test_a_stream_tells_the_same_again(journal: SqliteJournal) -> None:
    """After a restart a batch is as it was."""
    reader = stream(journal)
    rows, end = reader.read(reader.initialOffset())
    journal.append("events", events(range(25, 30)))
    assert list(rows) == list(reader.readBetweenOffsets(reader.initialOffset(), end))


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
    assert ([(20, 25)], {"position": 25}) == (told(rows), offset)
    rows, halted = reader.read(offset)
    assert ([], 25, True) == (told(rows), halted["position"], halted != offset)
    assert halted["position"] == reader.read(halted)[1]["position"]


@pytest.mark.spark
@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_ranges_open_to_all_events(
    spark: SparkSession, journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    """Shared among any number of tasks, each position is read once."""
    monkeypatch.setattr(source, "PIECE", 10)
    path = journal.path

    def events_of(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in source.opened(parts, path):
            yield from table.to_batches()

    found = source.ranges(spark, 3, 25, partitions).mapInArrow(events_of, from_arrow_schema(EVENTS))
    assert journal.read("events", 3, 22).to_pylist() == found.toArrow().sort_by("position").to_pylist()


@pytest.mark.parametrize(("partitions", "size", "count"), [(1, 10_000, 1), (3, 10_000, 3), (2, 7, 4)])
def test_events_that_are_sent_are_those_of_the_log_without_payloads(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int, size: int, count: int
) -> None:
    """In blocks that any executor opens without a journal, shared evenly; in smaller ones where events are large."""
    monkeypatch.setattr(source, "PIECE", size)
    with closing(SqliteJournal(tmp_path / "some.journal")) as journal:
        journal.append("events", events(range(20)))
        table = journal.read("events", 0, 100)
    blocks = sent(spark, table, partitions).toArrow()
    after, through = blocks["after"].to_pylist(), blocks["through"].to_pylist()
    assert (count, 0, 20) == (len(blocks), after[0], through[-1])
    assert after[1:] == through[:-1]
    found = pa.concat_tables(opened(iter(blocks.to_batches()), None))
    assert table.drop_columns("payload").to_pylist() == found.drop_columns("payload").to_pylist()
    assert 20 == found.column("payload").null_count
