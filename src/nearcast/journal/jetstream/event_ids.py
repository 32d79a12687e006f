"""Which events a log has, by id and source: a table beside the log, made from it and kept up with it.

The log decides: an append expects the block that this table was read up to, so an event is known or new for sure. The
table may be lost at any time; then the log is read once more.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from nearcast.journal.jetstream.chained_blocks import GENESIS, ChainedBlock

TABLES = """
CREATE TABLE IF NOT EXISTS keys (id TEXT, source TEXT, position INTEGER NOT NULL, PRIMARY KEY (id, source))
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS through (
    one INTEGER PRIMARY KEY CHECK (one = 1), stream TEXT, sequence INTEGER, number INTEGER, position INTEGER,
    checksum BLOB)
"""
ASKED = 5_000
"""Keys that are asked for at once."""

Key = tuple[str, str]
"""Id and source."""


class IdsThrough(NamedTuple):
    """The block that a table goes through, by its sequence, number and checksum; and its position."""

    sequence: int
    number: int
    position: int
    checksum: bytes


class EventIds:
    """The table in a file, which processes share; None: in one that goes with this object.

    `stream` says which stream it is of: one of another is begun anew.
    """

    def __init__(self, path: Path | None, stream: str) -> None:
        self._path, self._stream = path, stream
        self._lock = threading.RLock()
        self._connection = self._opened()

    def _opened(self) -> sqlite3.Connection:
        try:
            return self._made()
        except sqlite3.DatabaseError:
            if self._path is None:
                raise
            # It says nothing that the log does not say.
            for mark in ("", "-wal", "-shm"):
                Path(f"{self._path}{mark}").unlink(missing_ok=True)
            return self._made()

    def _made(self) -> sqlite3.Connection:
        name = "" if self._path is None else os.fspath(self._path)
        connection = sqlite3.connect(name, 30.0, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            for statement in TABLES.split(";"):
                connection.execute(statement)
            found = connection.execute("SELECT stream FROM through").fetchone()
            if found != (self._stream,):
                self._empty(connection)
        except sqlite3.DatabaseError:
            connection.close()
            raise
        return connection

    def _empty(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM keys")
        values = (self._stream, 0, 0, 0, GENESIS)
        connection.execute("INSERT OR REPLACE INTO through VALUES (1, ?, ?, ?, ?, ?)", values)
        connection.execute("COMMIT")

    def through(self) -> IdsThrough:
        """Up to which block the table goes."""
        with self._lock:
            query = "SELECT sequence, number, position, checksum FROM through"
            return IdsThrough(*self._connection.execute(query).fetchone())

    def note(self, keys: Sequence[Key], positions: Sequence[int], block: ChainedBlock) -> None:
        """Takes in the events of a block; none where the table has that block."""
        ordered = sorted((*key, at) for key, at in zip(keys, positions, strict=True))
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                [number] = self._connection.execute("SELECT number FROM through").fetchone()
                if number < block.head.number:
                    self._connection.executemany("INSERT OR IGNORE INTO keys VALUES (?, ?, ?)", ordered)
                    query = "UPDATE through SET sequence = ?, number = ?, position = ?, checksum = ?"
                    values = (block.sequence, block.head.number, block.head.through, block.checksum)
                    self._connection.execute(query, values)
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def forget(self, through: int) -> None:
        """Forgets the events up to a position, which the log has let go of."""
        with self._lock:
            self._connection.execute("DELETE FROM keys WHERE position <= ?", (through,))

    def restart(self) -> None:
        """Forgets all: it is not of this log."""
        with self._lock:
            self._empty(self._connection)

    def known(self, keys: Sequence[Key]) -> dict[Key, int]:
        """The positions of those events that the log has."""
        found: dict[Key, int] = {}
        with self._lock:
            for start in range(0, len(keys), ASKED):
                asked = keys[start : start + ASKED]
                marks = ", ".join(["(?, ?)"] * len(asked))
                query = f"SELECT id, source, position FROM keys WHERE (id, source) IN (VALUES {marks})"
                rows = self._connection.execute(query, [part for key in asked for part in key])
                found.update({(id, source): position for id, source, position in rows})
        return found

    def positions(self, id: str, source: str | None) -> list[int]:
        """The positions of the events with an id, ascending."""
        query = "SELECT position FROM keys WHERE id = ?1 AND (?2 IS NULL OR source = ?2) ORDER BY position"
        with self._lock:
            return [position for (position,) in self._connection.execute(query, (id, source))]

    def close(self) -> None:
        """Closes the table."""
        with self._lock:
            self._connection.close()


def fresh_rows(keys: Iterable[Key], known: dict[Key, int], after: int) -> tuple[list[int], list[int]]:
    """Which of some events are new, by index, and the position of each; new ones get those behind `after`."""
    fresh: list[int] = []
    positions: list[int] = []
    given = dict(known)
    for index, key in enumerate(keys):
        if key not in given:
            fresh.append(index)
            given[key] = after + len(fresh)
        positions.append(given[key])
    return fresh, positions
