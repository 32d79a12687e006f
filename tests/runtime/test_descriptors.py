"""File descriptors: what is said where there are no more, and how many connections there is room for."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nearcast.errors import JournalError
from nearcast.journal.sqlite import SqliteJournal
from nearcast.runtime.descriptors import RESERVED, exhausted, room_for_connections


@contextmanager
def soft_limit(most: int) -> Iterator[None]:
    """This process may have so many descriptors meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_journal_is_not_blamed_for_want_of_descriptors(tmp_path: Path) -> None:
    """The error says what is lacking and what to do; SQLite says that the file cannot be opened."""
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    with soft_limit(free), pytest.raises(JournalError) as caught:
        SqliteJournal(tmp_path / "journal")
    assert "no file descriptor is free" in str(caught.value)
    assert "ulimit -n" in str(caught.value)
    assert exhausted() is None


def test_the_soft_limit_is_raised_for_connections() -> None:
    """As far as the hard one lets; beyond that there are fewer connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 500
    with soft_limit(300):
        assert wanted == room_for_connections(wanted)
        assert wanted + RESERVED == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if hard != resource.RLIM_INFINITY:
        with soft_limit(300):
            assert hard - RESERVED == room_for_connections(10 * hard)
