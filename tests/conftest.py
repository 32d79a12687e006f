"""What tests of several layers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import settings

from nearcast.errors import Mark
from nearcast.language.cql2 import parse
from nearcast.language.definitions.files import Definitions, load
from nearcast.model.filter import And, Filter, Not, Or
from tests.shared import shared

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
def loaded(tmp_path: Path) -> Callable[[dict[str, Any]], Definitions]:
    """Writes a definitions document and loads it."""

    def through_a_file(definitions: dict[str, Any]) -> Definitions:
        path = tmp_path / "definitions.yaml"
        path.write_text(yaml.safe_dump(definitions, sort_keys=False), encoding="utf-8")
        return load([path])

    return through_a_file
