"""`nearcast.open_journal`: what a system kept, for those who read it with Arrow."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

import nearcast
from nearcast.errors import JournalError
from nearcast.journal.sqlite import SqliteJournal
from tests.journal.rows import events, ids


def test_what_was_kept_is_read_as_tables(tmp_path: Path) -> None:
    """By positions, also while somebody writes."""
    path = tmp_path / "journal"
    with closing(SqliteJournal(path)) as own, closing(nearcast.open_journal(str(path))) as journal:
        own.append("events", events("abc"))
        assert (3, ["b", "c"]) == (journal.end("events"), ids(journal.read("events", after=1, limit=10)))


@pytest.mark.parametrize(("name", "came"), [("nothing", "nothing there"), (".", "a folder")])
def test_where_no_journal_is_none_is_made(tmp_path: Path, name: str, came: str) -> None:
    """It is told what was expected and where it is."""
    with pytest.raises(JournalError, match=f"expected a journal, got {came}; it is the file `journal`"):
        nearcast.open_journal(tmp_path / name)
    assert [] == list(tmp_path.iterdir())
