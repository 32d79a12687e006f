"""The stages on Spark: the outcome is that of deciding in one process, wherever and in whatever parts it is decided."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.definitions import files
from nearcast.pipeline.batch_replay import replay
from nearcast.pipeline.live import BatchDecider, PipelineConfig
from nearcast.pipeline.monitoring import PipelineMetrics
from nearcast.pipeline.past_journal import RecordedClients
from nearcast.pipeline.query import start
from nearcast.stages import decide as decide_module
from nearcast.stages.fold import StateFold
from nearcast.state.registry import Registry
from tests.pipeline.histories import documents, in_this_process, live_rows, rows, until_decided, with_roles, written

pytestmark = pytest.mark.spark

ALL = 100_000


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    """Clients that move and change their tasks, subscriptions that come and go, and 100 reports and changes."""
    with closing(written(tmp_path, with_roles(), documents(100))) as journal:
        yield journal


def test_the_history_decides_something_of_every_kind(journal: SqliteJournal) -> None:
    """What the other tests compare is no empty list: all levels, all subscriptions, and roles."""
    found = in_this_process(journal)
    assert {0, 1, 2} == {row["level"] for row in found}
    assert {"near", "kinds", "passing", "large"} == {row["subscription"].split()[0] for row in found}
    assert any(row["by_role"] for row in live_rows(journal))


@pytest.mark.parametrize("stretch", [1, 7, ALL])
def test_replay_does_not_depend_on_how_history_is_cut(journal: SqliteJournal, stretch: int) -> None:
    """Position by position, in sevens, all at once."""
    assert in_this_process(journal) == in_this_process(journal, stretch)


@pytest.mark.parametrize("partitions", [1, 2, 5])
@pytest.mark.parametrize("stretch", [30, ALL])
def test_replay_on_executors_gives_the_same(
    spark: SparkSession, journal: SqliteJournal, tmp_path: Path, stretch: int, partitions: int
) -> None:
    """Each stretch spread over one, two or more tasks than there are cores."""
    decided = replay(spark, journal, StateFold(), tmp_path, range_size=stretch, spread=1, partitions=partitions)
    assert in_this_process(journal) == rows(decided)


@pytest.mark.parametrize(
    ("limit", "spread", "changes"),
    [(1, ALL, ALL), (7, ALL, ALL), (7, 1, 1), (ALL, ALL, ALL), (ALL, 1, ALL), (ALL, ALL, 3), (ALL, 1, 3)],
)
def test_the_live_query_writes_the_same_deliveries(
    spark: SparkSession, journal: SqliteJournal, tmp_path: Path, limit: int, spread: int, changes: int
) -> None:
    """However the stream is cut, in the driver and on the executors: each delivery once, in the order of positions."""
    config = PipelineConfig(Path(journal.path), tmp_path, limit=limit, spread=spread, changes=changes)
    decider = BatchDecider(spark, journal, config, PipelineMetrics())
    running = start(spark, journal.path, decider)
    until_decided(journal, journal.end("events"))
    running.stop()
    assert live_rows(journal) == journal.read("deliveries", 0, ALL).to_pylist()


def test_a_range_under_other_definitions_is_decided_on_executors_as_in_this_process(
    spark: SparkSession, journal: SqliteJournal, tmp_path: Path
) -> None:
    """Up to a position, and without the definitions that the journal has."""
    registry = Registry()
    for change in files.load([tmp_path / "definitions.yaml"]).changes():
        registry.apply(change)
    known = [StateFold(registry.copy()) for _ in range(2)]
    spread = replay(spark, journal, known[0], tmp_path, through=90, parse=RecordedClients(), range_size=30, spread=1)
    here = decide_module.replay(known[1], journal.row_ranges("events", 0, 90, 45), RecordedClients())
    found = rows(spread)
    assert rows(here) == found
    assert 90 == known[0].position
    assert not any(row["subscription"].startswith("passing") for row in found)
    assert {row["subscription"] for row in found} < {row["subscription"] for row in in_this_process(journal)}


def test_what_waits_is_seen_before_a_batch_is_decided(
    spark: SparkSession, journal: SqliteJournal, tmp_path: Path
) -> None:
    """A pipeline that was away for long may take long for its first batch."""
    metrics = PipelineMetrics()
    BatchDecider(spark, journal, PipelineConfig(Path(journal.path), tmp_path), metrics)
    assert journal.end("events") == metrics.registry.get_sample_value("nearcast_pipeline_waiting")


def test_a_query_that_begins_again_too_early_changes_nothing(
    spark: SparkSession, journal: SqliteJournal, tmp_path: Path
) -> None:
    """Batches that overlap with what is decided are recognised by their positions."""
    for limit in (50, 30):
        config = PipelineConfig(Path(journal.path), tmp_path, limit=limit)
        running = start(spark, journal.path, BatchDecider(spark, journal, config, PipelineMetrics()))
        until_decided(journal, journal.end("events"))
        time.sleep(0.5)
        running.stop()
    assert live_rows(journal) == journal.read("deliveries", 0, ALL).to_pylist()
