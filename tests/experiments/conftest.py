"""Where the real data are, and filters of definitions as values."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nearcast.errors import Mark
from nearcast.language.cql2 import parse
from nearcast.model.filter import And, Filter, Not, Or


@pytest.fixture(scope="session")
def data() -> Callable[[str], Path]:
    """The path of a data file under the shared folder; skips where it is not there."""
    shared = Path(os.environ.get("NEARCAST_SHARED") or Path(__file__).parents[3] / "shared")

    def find(name: str) -> Path:
        path = shared / "data" / name
        if not path.exists():
            pytest.skip(f"real data are needed, and {name} is not there: set NEARCAST_SHARED to the shared folder")
        return path

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
