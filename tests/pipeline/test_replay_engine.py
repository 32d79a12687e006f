"""Which engine decides a history."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from nearcast.cli import engine_choice
from nearcast.cli.engine_choice import EngineChoice
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control_events import changes
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.pipeline import replay_engine
from nearcast.pipeline.replay_engine import START_SECONDS, BatchCosts, cores_of, estimate
from nearcast.stages.fold import StateFold
from nearcast.state.registry import Registry
from tests.stages.test_adapt import ANN, subscribed

CORES = float(len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("cores", "master"),
    [
        (CORES, None),
        (CORES, "local[*]"),
        (1.0, "local"),
        (3.0, "local[3]"),
        (3.0, "local[3,2]"),
        (6.0, "local-cluster[2, 3, 1024]"),
        (math.inf, "spark://host:7077"),
        (math.inf, "yarn"),
    ],
)
def test_the_cores_of_a_master(cores: float, master: str | None) -> None:
    """A cluster is named so as to be used: it has any number."""
    assert cores == cores_of(master)


@pytest.mark.parametrize(
    ("spark", "events", "folding", "deciding", "cores"),
    [
        # Many events that cost little are done before Spark has begun, on any number of cores.
        (False, 100_000, 5e-6, 15e-6, 2.0),
        (False, 100_000, 5e-6, 15e-6, math.inf),
        # A few that cost much are not.
        (True, 10_000, 5e-6, 5e-3, 2.0),
        # On one core nothing is saved, however many there are.
        (False, 100_000_000, 5e-6, 1e-3, 1.0),
        # Folding is done on one core in any case, so it must be deciding that costs.
        (False, 1_000_000, 50e-6, 10e-6, 64.0),
        (True, 1_000_000, 10e-6, 50e-6, 64.0),
    ],
)
def test_spark_is_worth_its_start_where_deciding_costs_much(
    spark: bool, events: int, folding: float, deciding: float, cores: float
) -> None:
    """By estimated seconds, not by the number of events."""
    assert spark == estimate(events, folding, deciding, cores).spark_pays


def test_the_start_of_spark_is_counted() -> None:
    """No history is decided by Spark in less."""
    assert START_SECONDS == estimate(0, 1.0, 1.0, 8.0).spark


def test_batches_tell_what_others_cost_but_the_first_one() -> None:
    """It makes the index too. The clock goes on with every look: a batch is folded in two seconds, decided in four."""
    seconds: Iterator[float] = map(float, range(1_000))
    costs, known = BatchCosts(2.0, lambda: next(seconds)), StateFold()
    found = []
    for start in (0, 100, 200):
        events = [Event(str(number), "t", "s", position=number + 1) for number in range(start, start + 100)]
        assert [100] == [len(batch.events) for batch, _ in costs.decided(known, to_table(events), changes)]
        found.append(costs.estimate(1_000))
    assert [None, 60.0, 60.0] == [one and one.here for one in found]
    assert 300 == known.position


@pytest.mark.spark
def test_what_spark_goes_on_with_is_decided_as_by_one_process(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the event on that it comes to; here after the first two batches, for its start counts nothing."""
    monkeypatch.setattr(replay_engine, "START_SECONDS", 0.0)
    monkeypatch.setattr(replay_engine, "CARRYING_SECONDS", 0.0)
    monkeypatch.setattr(replay_engine, "ENOUGH_EVENTS", 1)
    monkeypatch.setattr(engine_choice, "FIRST_STRETCH", 50)
    events = [Event(str(number), "t", "s", attributes=(("n", number % 7),), payload=b"{}") for number in range(300)]
    journal = SqliteJournal(tmp_path / "journal")
    journal.append("events", to_table(events))

    def decided(engine: str) -> tuple[str, list[dict[str, Any]]]:
        registry = Registry()
        for change in (ANN, subscribed("some", text="n = 1")):
            registry.apply(change)
        choice = EngineChoice(engine, "local[2]", tmp_path)
        deliveries = [found for _, found in choice.decided(journal, StateFold(registry), 300)]
        return choice.told, [row for table in deliveries for row in table.to_pylist()]

    told, rows = decided("auto")
    assert told.startswith("local, then spark for 200 events: about ")
    assert ("local", rows) == decided("local")
    assert [number for number in range(1, 301) if number % 7 == 2] == [row["position"] for row in rows]
