"""A sweep gives what a loop gives, tells how far it is, and says what went wrong."""

from __future__ import annotations

import json
import math
from itertools import accumulate

import pytest
from pyspark.sql import SparkSession

from experiments.sweep import sweep
from tests.experiments.command import experiment

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def surroundings(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a sweep sets for Spark's Python ends with the test: other tests share the session."""
    monkeypatch.setitem(spark.sparkContext.environment, "PYTHONPATH", "")


def test_outcomes_come_in_the_order_of_the_parameters() -> None:
    """As a loop has them, and each is told of once."""
    told: list[int] = []
    assert [math.sqrt(number) for number in range(5)] == sweep(math.sqrt, range(5), told.append)
    assert 5 == sum(told)
    assert all(count > 0 for count in accumulate(told))


def test_an_exception_arrives_as_it_was_raised() -> None:
    """Not wrapped into one of Spark's; the session goes on."""
    with pytest.raises(ValueError, match=r"domain|nonnegative"):
        sweep(math.sqrt, [4, -1, 9])
    assert [] == sweep(math.sqrt, [])


def test_an_experiment_runs_on_spark() -> None:
    """Each task in a process of Spark, with the outcome that it has here."""
    quick = ["fulcrum", "--quick", "--rate", "1", "--json"]
    here, there = (
        [json.loads(line) for line in experiment(*quick, "--engine", engine).stdout.splitlines()]
        for engine in ("local", "spark")
    )
    assert [row | {"seconds": 0} for row in here if row["kind"] == "counts"] == [
        row | {"seconds": 0} for row in there if row["kind"] == "counts"
    ]
