"""Journals under test, and rows to put into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from nearcast.journal.memory import MemoryJournal
from nearcast.journal.seam import Journal
from nearcast.journal.sqlite import SqliteJournal


@pytest.fixture(params=["memory", "sqlite"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Journal]:
    """Makes a new, empty journal of each kind at every call."""
    made: list[Journal] = []

    def make() -> Journal:
        path = tmp_path / f"{len(made)}.journal"
        made.append(MemoryJournal() if request.param == "memory" else SqliteJournal(path))
        return made[-1]

    request.addfinalizer(lambda: [journal.close() for journal in made])
    return make


@pytest.fixture
def journal(fresh: Callable[[], Journal]) -> Journal:
    """One empty journal of each kind."""
    return fresh()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a journal may be made."""
    return tmp_path / "some.journal"


@pytest.fixture
def sqlite(file: Path) -> Iterator[SqliteJournal]:
    """One empty SQLite journal, in `file`."""
    with closing(SqliteJournal(file)) as journal:
        yield journal
