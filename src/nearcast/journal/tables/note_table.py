"""Notes in a journal's table: short texts under names, each with a checksum."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager

from nearcast.journal.block_checksums import checksum_of, malformed
from nearcast.journal.seam import JournalNotes

NOTES = "CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, text TEXT NOT NULL, checksum BLOB) WITHOUT ROWID"
"""Made when the first one is put."""


def put_note(connection: sqlite3.Connection, name: str, text: str | None) -> None:
    """Puts a note in the place of the one before; None: removes it."""
    connection.execute(NOTES)
    if text is None:
        connection.execute("DELETE FROM notes WHERE name = ?", (name,))
        return
    values = (name, text, checksum_of("note", name, text))
    connection.execute("INSERT OR REPLACE INTO notes (name, text, checksum) VALUES (?, ?, ?)", values)


def all_notes(connection: sqlite3.Connection) -> dict[str, str]:
    """All notes by name. Raises `sqlite3.DatabaseError` where one is not as it was written."""
    made = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'notes'").fetchone()
    found: dict[str, str] = {}
    for name, text, checksum in connection.execute("SELECT name, text, checksum FROM notes") if made else ():
        if checksum != checksum_of("note", name, text):
            raise malformed(f"note {name}")
        found[name] = text
    return found


Connecting = Callable[[], AbstractContextManager[sqlite3.Connection]]
"""Gives a connection, within a transaction."""


class TableNotes(JournalNotes):
    """The notes of a journal in a file."""

    def __init__(self, writing: Connecting, reading: Connecting) -> None:
        self._writing, self._reading = writing, reading

    def all(self) -> dict[str, str]:
        """See `JournalNotes.all`."""
        with self._reading() as connection:
            return all_notes(connection)

    def remove(self, name: str) -> None:
        """See `JournalNotes.remove`."""
        with self._writing() as connection:
            put_note(connection, name, None)

    def read(self, name: str) -> str | None:
        """See `JournalNotes.read`."""
        return self.all().get(name)

    def write(self, name: str, text: str) -> None:
        """See `JournalNotes.write`."""
        with self._writing() as connection:
            put_note(connection, name, text)
