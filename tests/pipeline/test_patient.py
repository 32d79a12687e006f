"""The pipeline's journal waits for a disk that is full."""

from __future__ import annotations

import pickle
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

from nearcast.errors import JournalError
from nearcast.journal.jetstream.nats_connection import Unanswered
from nearcast.journal.memory import MemoryJournal
from nearcast.journal.sqlite import SqliteJournal
from nearcast.journal.tables.note_table import TableNotes
from nearcast.model.columns import DEAD_LETTERS, DELIVERIES
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


@pytest.mark.parametrize("written", [True, False])
def test_what_was_written_though_its_answer_was_lost_is_not_written_again(written: bool) -> None:
    """Also where others wrote meanwhile."""
    letter = {"position": 0, "time": datetime.now(UTC), "where": "here", "reason": "", "content": b"mine"}
    mine, other = (pa.Table.from_pylist([{**letter, "content": one}] * 2, DEAD_LETTERS) for one in (b"mine", b"other"))
    inner = MemoryJournal()
    inner.append("dead letters", mine)
    answers = iter([False, True])
    append = inner.append

    def unanswered(log: str, rows: pa.Table, *given: object) -> list[int]:
        if next(answers):
            return append(log, rows)
        for one in [other, mine, other] if written else [other]:
            append(log, one)
        raise JournalError("no answer") from Unanswered("nobody answers")

    journal = RetryingJournal(inner, lambda: False)
    with patch.object(inner, "append", unanswered), patch.object(retrying_journal, "RETRY_SECONDS", 0.0):
        assert [5, 6] == journal.append("dead letters", mine)
    assert 4 == inner.read("dead letters", 0, 100).column("content").to_pylist().count(b"mine")


def test_notes_are_waited_for_too(tmp_path: Path) -> None:
    """As what they go with is."""
    sqlite = SqliteJournal(tmp_path / "journal")
    journal, write, failures = RetryingJournal(sqlite, lambda: False), TableNotes.write, [1]

    def failing_once(notes: TableNotes, name: str, text: str) -> None:
        if failures and failures.pop():
            cause = sqlite3.OperationalError("database or disk is full")
            cause.sqlite_errorcode = FULL
            raise JournalError("full") from cause
        write(notes, name, text)

    with patch.object(TableNotes, "write", failing_once), patch.object(retrying_journal, "RETRY_SECONDS", 0.0):
        journal.notes.write("name", "text")
    assert ("text", {"name": "text"}) == (journal.notes.read("name"), sqlite.notes.all())
    journal.notes.remove("name")
    assert {} == journal.notes.all()


def test_it_travels_as_a_plain_journal(tmp_path: Path) -> None:
    """Workers only read."""
    assert SqliteJournal is type(
        pickle.loads(pickle.dumps(RetryingJournal(SqliteJournal(tmp_path / "journal"), lambda: False)))
    )
