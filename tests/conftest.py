"""What tests of several layers share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for the whole run, started by the first test that needs it: that takes ten seconds."""
    from nearcast.pipeline.session import session

    spark = session("local[2]")
    yield spark
    spark.stop()
