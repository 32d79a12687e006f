"""The file of Java's classes that the tests' Javas map: who makes it does so unseen, so here is seen that it could."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.class_archive import exercise

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_what_is_run_for_the_file_runs(spark: SparkSession, tmp_path: Path) -> None:
    """Else it would not be made, and each Java of the tests would take twice as long to start."""
    exercise(spark, tmp_path)
