"""Journals under test, and rows to put into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from nearcast.journal.jetstream.nats_journal import NatsJournal
from nearcast.journal.memory import MemoryJournal
from nearcast.journal.seam import Journal
from nearcast.journal.sqlite import SqliteJournal


@pytest.fixture(params=["memory", "sqlite", "nats"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Journal]:
    """Makes a new, empty journal of each kind at every call."""
    made: list[Journal] = []

    def memory() -> Journal:
        return MemoryJournal()

    def sqlite() -> Journal:
        return SqliteJournal(tmp_path / f"{len(made)}.journal")

    makers: dict[str, Callable[[], Journal]] = {"memory": memory, "sqlite": sqlite}
    if request.param == "nats":
        new_stream: Callable[[], str] = request.getfixturevalue("new_stream")
        makers["nats"] = lambda: NatsJournal(new_stream())

    def make() -> Journal:
        made.append(makers[request.param]())
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
def url(new_stream: Callable[[], str]) -> str:
    """Where a journal on NATS may be made."""
    return new_stream()


@pytest.fixture
def sqlite(file: Path) -> Iterator[SqliteJournal]:
    """One empty SQLite journal, in `file`."""
    with closing(SqliteJournal(file)) as journal:
        yield journal
