"""The live query: every event once, through failures, stops and restarts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from nearcast.journal.sqlite import SqliteJournal
from nearcast.pipeline.query import start
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


class Reading:
    """Reads stretches of so many positions at most, on from where it was."""

    def __init__(self, journal: SqliteJournal, limit: int = 1_000, after: int = 0) -> None:
        self.journal, self.limit, self.after, self.calls = journal, limit, after, 0
        self.seen: list[list[int]] = []

    def __call__(self) -> bool:
        end = self.journal.end("events")
        self.calls += 1
        if end > self.after:
            self.seen.append(positions(self.journal.read("events", self.after, self.limit)))
            self.after = self.seen[-1][-1]
        return self.after < end

    def has(self, position: int) -> bool:
        """Whether it is there, or beyond."""
        return self.after >= position

    def coming(self, seconds: float) -> bool:
        """Waits for more."""
        return self.journal.wait({"events": self.after}, seconds)


def test_every_event_comes_once_in_order(spark: SparkSession, journal: SqliteJournal) -> None:
    """Whoever is called reads on; what is more than a stretch is read by more calls, without news."""
    reading = Reading(journal, 40)
    running = start(spark, journal.path, reading)
    for number in range(30):
        journal.append("events", events(range(number * 10, number * 10 + 10)))
    until(lambda: reading.after >= 300)
    calls = reading.calls
    journal.append("events", events(range(300, 400)))
    until(lambda: reading.after >= 400)
    running.stop()
    assert list(range(1, 401)) == [at for stretch in reading.seen for at in stretch]
    assert max(map(len, reading.seen)) <= 40
    assert reading.calls >= calls + 3


def test_a_batch_goes_on_with_what_comes(spark: SparkSession, journal: SqliteJournal) -> None:
    """Spark is asked for no other, until that has lasted for so long; to stop it waits for nothing."""
    reading = Reading(journal)
    running = start(spark, journal.path, reading, coming=reading.coming, stay=300)
    for number in range(5):
        journal.append("events", events([number]))
        until(partial(reading.has, number + 1))
    assert 1 == running.batches
    running.stop()
    assert (1, [[1], [2], [3], [4], [5]]) == (running.batches - 1, reading.seen)
    assert running.query.exception() is None


def test_a_batch_goes_on_no_longer_than_asked(spark: SparkSession, journal: SqliteJournal) -> None:
    """Where things come on and on: then Spark notes how far it is, and begins the next one."""
    reading = Reading(journal)
    running = start(spark, journal.path, reading, coming=reading.coming, stay=0.1)
    published = 0
    while running.batches < 3 and published < 3_000:
        journal.append("events", events([published]))
        published += 1
        time.sleep(0.01)
    until(partial(reading.has, published))
    running.stop()
    assert (True, published) == (running.batches >= 3, reading.after)


def test_while_nothing_comes_there_is_no_other_batch(spark: SparkSession, journal: SqliteJournal) -> None:
    """However long that is; and what comes then is decided in the one that waits."""
    reading = Reading(journal)
    running = start(spark, journal.path, reading, coming=reading.coming, stay=0.1)
    for number in range(3):
        journal.append("events", events([number]))
        until(partial(reading.has, number + 1))
        time.sleep(0.5)
    assert (1, 3) == (running.batches, reading.after)
    running.stop()
    assert 3 == reading.after


def test_a_backlog_does_not_hold_up_a_stop(spark: SparkSession, journal: SqliteJournal) -> None:
    """It ends between two stretches of what waits."""
    journal.append("events", events(range(100)))
    calls: list[int] = []

    def endless() -> bool:
        calls.append(0)
        time.sleep(0.02)
        return True

    running = start(spark, journal.path, endless)
    until(lambda: len(calls) > 2)
    running.stop()
    assert not running.query.isActive
    assert running.query.exception() is None


def test_a_failed_batch_ends_the_query_with_its_error(spark: SparkSession, journal: SqliteJournal) -> None:
    """What a batch raises comes out of `wait` as it was raised."""

    def fail() -> bool:
        raise LookupError("no such thing")

    journal.append("events", events("a"))
    with pytest.raises(LookupError, match="no such thing"):
        start(spark, journal.path, fail).wait(60)


def test_a_stop_during_a_batch_is_quiet(
    spark: SparkSession, journal: SqliteJournal, capfd: pytest.CaptureFixture[str]
) -> None:
    """When `stop` returns the batch is over; the query has no error, and nothing is said."""
    begun, over = threading.Event(), threading.Event()

    def slow() -> bool:
        begun.set()
        time.sleep(0.5)
        over.set()
        return False

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

    def fail() -> bool:
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
    checkpoint = tmp_path / "checkpoint" if kept else None
    reading = Reading(journal)
    for rounds in (1, 2):
        journal.append("events", events(range(rounds * 100, rounds * 100 + 50)))
        running = start(spark, journal.path, reading, after=0 if kept else reading.after, checkpoint=checkpoint)
        until(partial(lambda end: reading.after == end, rounds * 50))
        running.stop()
    assert list(range(1, 101)) == [at for stretch in reading.seen for at in stretch]


def test_a_query_that_begins_where_nothing_is_left_waits_for_events(
    spark: SparkSession, journal: SqliteJournal
) -> None:
    """Spark begins with a batch of nothing then; what is appended afterwards comes as always."""
    journal.append("events", events("ab"))
    reading = Reading(journal, after=2)
    running = start(spark, journal.path, reading, after=2)
    until(lambda: bool(reading.calls) or running.wait(1))
    journal.append("events", events("c"))
    until(lambda: bool(reading.seen) or running.wait(1))
    running.stop()
    assert [[3]] == reading.seen
