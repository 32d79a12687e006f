"""Benchmarks that ask for a Spark session run in the one of the tests: to start another takes longer than they do."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.benchmarks.test_benchmarks_run import IN_SESSION, check_here

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", IN_SESSION)
def test_a_benchmark_runs_in_a_session(
    name: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As its command does, small."""
    check_here(name, IN_SESSION[name], monkeypatch, capfd)
