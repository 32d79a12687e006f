"""What tests of several layers share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The same code has the same outcome, and a machine that is busy is no fault. To look for more examples:
# `pytest --hypothesis-profile=explore`.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for the whole run, started by the first test that needs it: that takes ten seconds."""
    from nearcast.pipeline.spark_session import session

    spark = session("local[2]")
    yield spark
    spark.stop()
