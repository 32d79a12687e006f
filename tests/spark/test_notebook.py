"""The notebook and the benchmark of DataFrames do what they show."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from benchmarks import dataframes
from tests.spark.notebook import cells, outputs, run

pytestmark = pytest.mark.spark


def test_the_notebook_prints_what_it_shows(spark: SparkSession) -> None:
    """Each cell, run in a session that is there already."""
    notebook = cells()
    assert outputs(notebook) == run(notebook)


def test_the_benchmark_finds_the_same_pairs_in_every_way(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stops where a way finds others; each way has a line, with the machine around it."""
    dataframes.main(["--events", "400", "--filters", "20", "--rounds", "1"])
    printed = capsys.readouterr().out
    assert [1, 1, 1, 1, 2] == [
        printed.count(name) for name in ("nearcast.spark.match", "nested loop", "expressions", "hash join", "PySpark")
    ]
