"""The live query: every event once, through failures, stops and restarts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from nearcast.journal.sqlite import SqliteJournal
from nearcast.pipeline.query import start
from nearcast.pipeline.source import JournalBatch, collect
from tests.journal.rows import events, positions

pytestmark = pytest.mark.spark


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    """An empty journal."""
    with closing(SqliteJournal(tmp_path / "some.journal")) as journal:
        yield journal


def until(reached: Callable[[], bool]) -> None:
    """Waits for a state, at most three minutes: a machine may have much else to do."""
    end = time.monotonic() + 180
    while not reached():
        assert time.monotonic() < end, "the query did not get there"
        time.sleep(0.02)


def test_every_event_comes_once_in_order(spark: SparkSession, journal: SqliteJournal) -> None:
    """Batches follow each other without a gap while events are appended, and keep to the limit."""
    seen: list[list[int]] = []
    running = start(spark, journal.path, lambda batch, _: seen.append(positions(collect(batch).events)), limit=40)
    for number in range(30):
        journal.append("events", events(range(number * 10, number * 10 + 10)))
    until(lambda: sum(map(len, seen)) >= 300)
    running.stop()
    assert list(range(1, 301)) == [at for batch in seen for at in batch]
    assert max(map(len, seen)) <= 40


def test_a_failed_batch_ends_the_query_with_its_error(spark: SparkSession, journal: SqliteJournal) -> None:
    """What a batch raises comes out of `wait` as it was raised."""

    def fail(batch: DataFrame, number: int) -> None:
        raise LookupError("no such thing")

    journal.append("events", events("a"))
    with pytest.raises(LookupError, match="no such thing"):
        start(spark, journal.path, fail).wait(60)


def test_a_stop_during_a_batch_is_quiet(
    spark: SparkSession, journal: SqliteJournal, capfd: pytest.CaptureFixture[str]
) -> None:
    """When `stop` returns the batch is over; the query has no error, and nothing is said."""
    begun, over = threading.Event(), threading.Event()

    def slow(batch: DataFrame, number: int) -> None:
        begun.set()
        time.sleep(0.5)
        over.set()

    journal.append("events", events("a"))
    running = start(spark, journal.path, slow)
    assert begun.wait(60)
    running.stop()
    assert (True, False, None) == (over.is_set(), running.query.isActive, running.query.exception())
    assert "" == capfd.readouterr().err


def test_a_batch_that_fails_while_the_query_is_stopped_is_not_hidden(
    spark: SparkSession, journal: SqliteJournal
) -> None:
    """Its error comes out of `wait`, also when `stop` was called before it failed."""
    begun = threading.Event()

    def fail(batch: DataFrame, number: int) -> None:
        begun.set()
        time.sleep(0.5)
        raise LookupError("no such thing")

    journal.append("events", events("a"))
    running = start(spark, journal.path, fail)
    assert begun.wait(60)
    running.stop()
    with pytest.raises(LookupError, match="no such thing"):
        running.wait(60)


@pytest.mark.parametrize("kept", [True, False])
def test_after_a_restart_nothing_is_missing(
    spark: SparkSession, journal: SqliteJournal, tmp_path: Path, kept: bool
) -> None:
    """Started again behind what was decided, or from the checkpoint, the query goes on."""
    seen: list[int] = []
    checkpoint = tmp_path / "checkpoint" if kept else None
    for rounds in (1, 2):
        journal.append("events", events(range(rounds * 100, rounds * 100 + 50)))
        after = 0 if kept else max(seen, default=0)
        running = start(
            spark,
            journal.path,
            lambda batch, _: seen.extend(positions(collect(batch).events)),
            after=after,
            checkpoint=checkpoint,
        )
        until(partial(lambda end: max(seen, default=0) == end, rounds * 50))
        running.stop()
    assert list(range(1, 101)) == sorted(set(seen))
    assert kept or len(seen) == 100


def test_a_query_that_begins_where_nothing_is_left_waits_for_events(
    spark: SparkSession, journal: SqliteJournal
) -> None:
    """Spark begins with a batch of nothing then; what is appended afterwards comes as always."""
    journal.append("events", events("ab"))
    seen: list[JournalBatch | None] = []
    running = start(spark, journal.path, lambda batch, _: seen.append(collect(batch)), after=2)
    until(lambda: bool(seen) or running.wait(1))
    journal.append("events", events("c"))
    until(lambda: any(seen) or running.wait(1))
    running.stop()
    assert [(2, 3)] == [(batch.after, batch.through) for batch in seen if batch]
