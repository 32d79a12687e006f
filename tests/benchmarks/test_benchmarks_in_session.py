"""Benchmarks that ask for a Spark session run in the one of the tests: to start another takes longer than they do."""

from __future__ import annotations

import importlib
import sys

import pytest
from pyspark.sql import SparkSession

from tests.benchmarks.test_benchmarks_run import IN_SESSION, WIDTH, check_printed

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", IN_SESSION)
def test_a_benchmark_runs_in_a_session(
    name: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As its command does, small."""
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setattr(sys, "argv", [name, *IN_SESSION[name].split()])
    importlib.import_module(f"benchmarks.{name}").main()
    check_printed(capfd.readouterr().out)
