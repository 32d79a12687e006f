"""The pipeline's journal waits for a disk that is full."""

from __future__ import annotations

import pickle
import sqlite3
from pathlib import Path
from unittest.mock import patch

import pytest

from nearcast.errors import JournalError
from nearcast.journal.sqlite import SqliteJournal
from nearcast.model.columns import DELIVERIES
from nearcast.pipeline import retrying_journal
from nearcast.pipeline.retrying_journal import RetryingJournal

FULL, BROKEN = sqlite3.SQLITE_FULL, sqlite3.SQLITE_CORRUPT


def failing(times: int, code: int = FULL) -> object:
    """Makes a journal fail so many times before it covers anything."""
    whole, left = SqliteJournal.commit_range, [times]

    def commit_range(journal: SqliteJournal, *given: object) -> None:
        if left[0]:
            left[0] -= 1
            cause = sqlite3.OperationalError("database or disk is full")
            cause.sqlite_errorcode = code
            raise JournalError("full") from cause
        whole(journal, *given)  # type: ignore[arg-type]

    return patch.object(SqliteJournal, "commit_range", commit_range)


def test_a_full_disk_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And told in a line when it begins and one when it is over."""
    journal = RetryingJournal(SqliteJournal(tmp_path / "journal"), lambda: False)
    with failing(3), patch.object(retrying_journal, "RETRY_SECONDS", 0.0):
        journal.commit_range("deliveries", DELIVERIES.empty_table(), 7)
    assert 7 == journal.end("deliveries")
    assert ["journal fails", "journal recovered"] == [" ".join(text.split()[:2]) for text in caplog.messages]


@pytest.mark.parametrize(("stopped", "code"), [(True, FULL), (False, BROKEN)])
def test_what_is_not_waited_for(tmp_path: Path, stopped: bool, code: int) -> None:
    """Who is asked to end does not wait, and nothing else is waited for."""
    journal = RetryingJournal(SqliteJournal(tmp_path / "journal"), lambda: stopped)
    with failing(1, code), pytest.raises(JournalError):
        journal.commit_range("deliveries", DELIVERIES.empty_table(), 7)
    assert 0 == journal.end("deliveries")


def test_it_travels_as_a_plain_journal(tmp_path: Path) -> None:
    """Workers only read."""
    assert SqliteJournal is type(
        pickle.loads(pickle.dumps(RetryingJournal(SqliteJournal(tmp_path / "journal"), lambda: False)))
    )
