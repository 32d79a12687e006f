"""What tests of several layers share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The same code has the same outcome, and a machine that is busy is no fault. To look for more examples:
# `pytest --hypothesis-profile=explore`.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("repeatable")


FIRST = ("match", "language", "system", "docs", "pipeline", "experiments", "decision")
"""Folders in the order in which workers begin with them. Kernels are compiled first, beside tests that need none of
them; then come the longest: a long one that begins last leaves the other worker idle."""

TOGETHER = ("match", "pipeline")
"""Folders whose tests stay in one worker: they share compiled kernels, or the one Spark session."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers (`pytest -n 2`) begin with the longest tests."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: next((FIRST.index(one) for one in item.path.parts if one in FIRST), len(FIRST)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Workers get whole modules, whose tests share fixtures, or whole folders.

    Nothing keeps two modules from running at the same time: files, journals and data folders are below `tmp_path`,
    servers choose free ports, and multicast ports are a worker's own (`tests/node/conftest.py`).
    """
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.partition("::")[0]
            return next((folder for folder in TOGETHER if folder in module.split("/")), module)

    return Together(config, log)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for the whole run, started by the first test that needs it: that takes ten seconds."""
    from nearcast.pipeline.spark_session import session

    spark = session("local[2]")
    yield spark
    spark.stop()
