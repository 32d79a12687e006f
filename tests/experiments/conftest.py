"""Where the real data are, and filters of definitions as values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nearcast.errors import Mark
from nearcast.language.cql2 import parse
from nearcast.model.filter import And, Filter, Not, Or
from tests.shared import shared


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
