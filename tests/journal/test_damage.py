"""A journal that is damaged on its disk is told to be, and never read as something else."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from nearcast.errors import JournalError
from nearcast.journal import block_checksums, encoded_rows
from nearcast.journal.sqlite import SqliteJournal
from nearcast.journal.tables import block_table as module
from nearcast.model.columns import DEAD_LETTERS, LOGS
from nearcast.model.event import Event
from tests.journal.rows import deliveries, events

IDS = ("a", "b", "c", "d", "e")


@pytest.fixture
def small(file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal with several blocks, some of them merged, in pages of 512 bytes: every byte matters soon."""
    monkeypatch.setattr(module, "MERGE", 3)
    with closing(SqliteJournal(file)) as journal:
        for id in IDS:
            journal.append("events", events([id]), {f"e-{id}": Event(id, "t", "s", f"e-{id}", payload=b"{}")})
        journal.commit_range("deliveries", deliveries([1, 1, 3]), 3)
        journal.commit_range("deliveries", deliveries([5]), 5)
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA page_size = 512")
        connection.execute("VACUUM")
    return file


def content(file: Path) -> Iterator[tuple[str, Any]]:
    """All that a journal tells, part by part; nothing of a part that it tells to be damaged."""
    with suppress(JournalError), closing(SqliteJournal(file)) as journal:
        for log in LOGS:
            with suppress(JournalError):
                yield f"end of {log}", journal.end(log)
            for after in (0, 2):
                with suppress(JournalError):
                    yield f"{log} after {after}", journal.read(log, after, 10).to_pylist()
            with suppress(JournalError):
                journal.end_within_bytes(log, 0, 10, 1)
        with suppress(JournalError):
            yield "kept", sorted(event.id for event in journal.kept())
        for id in IDS:
            with suppress(JournalError):
                yield f"position of {id}", journal.positions(id)


def flips(size: int, step: int) -> Iterator[tuple[int, int]]:
    """Places in a file, and what to flip there: a bit, now and then the whole byte."""
    for number, place in enumerate(range(0, size, step)):
        yield place, 0xFF if number % 9 == 8 else 1 << number % 9


@pytest.mark.parametrize(("step", "start"), [(29, 0), pytest.param(1, 0, marks=pytest.mark.long)])
def test_what_is_flipped_on_the_disk_is_told_or_changes_nothing(small: Path, step: int, start: int) -> None:
    """Wherever it is: in blocks, in their tables, in SQLite's own pages. A key alone may be forgotten."""
    whole, original = dict(content(small)), small.read_bytes()
    assert 5 == whole["end of events"] and [3] == whole["position of c"]
    damaged = 0
    for place, flipped in flips(len(original), step):
        copy = bytearray(original)
        copy[place] ^= flipped
        small.write_bytes(copy)
        told = dict(content(small))
        # What is to be found by an id is not found any more where the id itself was hit.
        wrong = {name: found for name, found in told.items() if found not in (whole[name], ALLOWED.get(name[:8]))}
        assert {} == wrong, (place, flipped)
        damaged += told.keys() != whole.keys()
        for left in small.parent.glob(f"{small.name}-*"):
            left.unlink()
    assert damaged > len(original) // step // 5


ALLOWED: dict[str, Any] = {"position": []}


def test_a_damaged_block_is_named_with_its_positions(small: Path) -> None:
    """What lies before it can be read."""
    with closing(sqlite3.connect(small)) as connection:
        connection.execute("UPDATE blocks SET rows = zeroblob(length(rows)) WHERE log = 'events' AND last = 5")
        connection.commit()
    with closing(SqliteJournal(small)) as journal:
        named = r"malformed block \d+ of the log 'events', positions 5 to 5; the file is damaged; stop, and restore"
        with pytest.raises(JournalError, match=named):
            journal.read("events", 0, 10)
        assert 3 == len(journal.read("events", 0, 3))


@pytest.mark.parametrize("last", [3, 5])
def test_a_block_that_went_is_missed(small: Path, last: int) -> None:
    """Also the newest, and by who reads beside it."""
    with closing(sqlite3.connect(small)) as connection:
        connection.execute("DELETE FROM blocks WHERE log = 'events' AND last = ?", (last,))
        connection.commit()
    with closing(SqliteJournal(small)) as journal:
        for after in (0, last - 1):
            with pytest.raises(JournalError, match="log 'events': a block is missing"):
                journal.read("events", after, 5)


def test_damage_is_not_merged_into_sound_blocks(file: Path) -> None:
    """Then it would have a checksum of its own."""
    with closing(SqliteJournal(file)) as journal:
        for number in range(module.MERGE - 1):
            journal.append("events", events([number]))
        with sqlite3.connect(file) as connection:
            connection.execute("UPDATE blocks SET size = size + 1 WHERE number = 3")
        connection.close()
        with pytest.raises(JournalError, match="malformed block 3 of the log 'events', positions 3 to 3"):
            journal.append("events", events(["more"]))
        assert 15 == journal.end("events")


def test_a_journal_without_lengths_in_its_blocks_goes_on_with_them(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is read as it is; a version that cannot read what comes then leaves the file alone."""
    with monkeypatch.context() as before, closing(SqliteJournal(file)) as journal:
        before.setattr(encoded_rows, "LENGTHS_ROWS", 1 << 40)
        journal.append("events", events(range(500)))
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version = 5")
    with closing(SqliteJournal(file)) as journal:
        journal.append("events", events(range(500, 1_000)))
        assert [str(number) for number in range(1_000)] == journal.read("events", 0, 1_000).column("id").to_pylist()
    with closing(sqlite3.connect(file)) as connection:
        marks = "SELECT hex(substr(rows, 1, 1)) FROM blocks WHERE log = 'events' ORDER BY last"
        assert [("28",), ("4C",)] == connection.execute(marks).fetchall()
        assert [(6,)] == connection.execute("PRAGMA user_version").fetchall()


def test_blocks_whose_checksums_a_version_before_made_are_checked_by_these(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read as they are, also where nothing may be written; new ones have those of this version."""
    with monkeypatch.context() as before, closing(SqliteJournal(file)) as journal:
        before.setattr(block_checksums.xxhash, "xxh3_128", lambda: blake2b(digest_size=8))
        for number in range(20):
            journal.append("events", events([number]))
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version = 4")
    with closing(SqliteJournal(file, read_only=True)) as journal:
        assert 20 == len(journal.read("events", 0, 100))
    with closing(SqliteJournal(file)) as journal:
        journal.append("events", events([20]))
        assert [str(number) for number in range(21)] == journal.read("events", 0, 100).column("id").to_pylist()
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        lengths = "SELECT DISTINCT length(checksum) FROM blocks WHERE log = 'events' ORDER BY 1"
        assert [(8,), (16,)] == connection.execute(lengths).fetchall()
        assert [(6,)] == connection.execute("PRAGMA user_version").fetchall()
        connection.execute("UPDATE blocks SET rows = zeroblob(length(rows)) WHERE log = 'events' AND first = 1")
    with closing(SqliteJournal(file)) as journal, pytest.raises(JournalError, match="malformed block"):
        journal.read("events", 0, 100)


def test_a_journal_without_checksums_is_read_and_gets_them(file: Path) -> None:
    """Blocks of the format before are read as they are; new ones, and those that they are merged into, are checked."""
    with closing(SqliteJournal(file)) as journal:
        for number in range(20):
            journal.append("events", events([number]))
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for table, column in (("blocks", "previous"), ("blocks", "checksum"), ("ends", "newest"), ("ends", "checksum")):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.execute("PRAGMA user_version = 3")
    with closing(SqliteJournal(file)) as journal:
        assert 20 == len(journal.read("events", 0, 100)) == journal.end("events")
        for number in range(20, 40):
            journal.append("events", events([number]))
        assert [str(number) for number in range(40)] == journal.read("events", 0, 100).column("id").to_pylist()
        assert DEAD_LETTERS.empty_table() == journal.read("dead letters", 0, 10)
    with closing(sqlite3.connect(file)) as connection:
        [[last]] = connection.execute("SELECT max(last) FROM blocks WHERE checksum IS NULL")
        assert last < 20
