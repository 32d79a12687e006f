"""The ends of a journal's logs, in their table: how far each goes, and which is its newest block."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from nearcast.journal.block_checksums import UNCHECKED, checksum_of, is_position, malformed


class LogEnd(NamedTuple):
    """The end of a log, and the number of its newest block; None as a format before wrote it."""

    position: int
    newest: int | None


def log_end(connection: sqlite3.Connection, log: str) -> LogEnd:
    """The end of a log. Raises `sqlite3.DatabaseError` where it is not as it was written, or went."""
    query = "SELECT position, newest, checksum FROM ends WHERE log = ?"
    found = connection.execute(query, (log,)).fetchone()
    if found is None:
        if newest_block(connection, log):
            raise malformed(f"end of the log {log!r}: there is none, and there are blocks")
        return LogEnd(0, 0)
    position, newest, checksum = found
    old = newest is None and checksum is None and is_position(position) and unchecked_blocks(connection) > 0
    if not old and checksum != checksum_of(log, position, newest):
        raise malformed(f"end of the log {log!r}")
    return LogEnd(position, newest)


def put_end(connection: sqlite3.Connection, log: str, end: int, newest: int) -> None:
    """Puts the end of a log and the number of its newest block."""
    values = (log, end, newest, checksum_of(log, end, newest))
    connection.execute("INSERT OR REPLACE INTO ends (log, position, newest, checksum) VALUES (?, ?, ?, ?)", values)


def newest_block(connection: sqlite3.Connection, log: str) -> int:
    """The number of the newest block of a log; 0 where there is none."""
    query = "SELECT number FROM blocks WHERE log = ? ORDER BY last DESC, number DESC LIMIT 1"
    found: tuple[int] | None = connection.execute(query, (log,)).fetchone()
    return found[0] if found else 0


def unchecked_blocks(connection: sqlite3.Connection) -> int:
    """The number up to which blocks may be without checksums."""
    found = connection.execute("SELECT position FROM ends WHERE log = ?", (UNCHECKED,)).fetchone()
    return found[0] if found and is_position(found[0]) else 0
