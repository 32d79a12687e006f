"""What entry nodes keep, in a journal's table: changes of it, in order, each with a checksum."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from nearcast.journal.block_checksums import BYTES, checksum_of, malformed
from nearcast.journal.held_back import Kept, merged, stored
from nearcast.journal.tables.log_ends import log_end, put_end

KEPT = """CREATE TABLE IF NOT EXISTS kept_at_nodes (
    number INTEGER PRIMARY KEY, node TEXT NOT NULL, total INTEGER NOT NULL, changes BLOB NOT NULL)"""
"""Made when something is kept first: most journals never have it. Changes of what is kept, in order, counted up at each
node.

A row for each entity, replaced by the next, would be a page to write for each: that takes three times as long.
"""

KEPT_SLACK = 20_000
"""So many changes gather, and as many again as there are entities, before they become one."""


def keep(connection: sqlite3.Connection, node: str, kept: Kept) -> None:
    """Puts what an entry node keeps of some entities."""
    connection.execute(KEPT)
    ends = (
        "SELECT total FROM kept_at_nodes WHERE node = ? ORDER BY number " + one for one in ("LIMIT 1", "DESC LIMIT 1")
    )
    first, last = ((connection.execute(query, (node,)).fetchone() or (0,))[0] for query in ends)
    total = last + len(kept)
    _put_kept(connection, node, last, total, stored(kept))
    if total > 2 * first + KEPT_SLACK:
        total, changes = merged(kept_changes(connection, node))
        connection.execute("DELETE FROM kept_at_nodes WHERE node = ?", (node,))
        _put_kept(connection, node, 0, total, changes)


def _put_kept(connection: sqlite3.Connection, node: str, before: int, total: int, changes: bytes) -> None:
    added = "INSERT INTO kept_at_nodes (node, total, changes) VALUES (?, ?, ?)"
    connection.execute(added, (node, total, _sealed(node, before, total, changes)))
    put_end(connection, _end_of_kept(node), total, 0)


def kept_changes(connection: sqlite3.Connection, node: str) -> Iterator[bytes]:
    """The changes of what a node keeps. Raises `sqlite3.DatabaseError` where one is damaged, or missing."""
    made = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'kept_at_nodes'").fetchone()
    query = "SELECT total, changes FROM kept_at_nodes WHERE node = ? ORDER BY number"
    before = 0
    for total, sealed in connection.execute(query, (node,)).fetchall() if made else ():
        yield _opened(node, before, total, sealed)
        before = total
    end = log_end(connection, _end_of_kept(node)).position
    # Of a format before there is no end.
    if end and end != before:
        raise malformed(f"events that are kept at the node {node}: the newest are missing")


def whole_changes(connection: sqlite3.Connection, node: str) -> tuple[list[bytes], bool]:
    """The changes of what a node keeps that are as they were written, in order; and whether that is all of them."""
    query = "SELECT total, changes FROM kept_at_nodes WHERE node = ? ORDER BY number"
    found: list[bytes] = []
    before, whole = 0, True
    try:
        for total, sealed in connection.execute(query, (node,)):
            try:
                found.append(_opened(node, before, total, sealed))
            except sqlite3.DatabaseError:
                whole = False
            before = total
        end = log_end(connection, _end_of_kept(node)).position
    except (sqlite3.Error, UnicodeDecodeError):
        return found, False
    return found, whole and end in (0, before)


def _end_of_kept(node: str) -> str:
    return f"kept at {node}"


SEAL = b"\1"
"""Before a checksum and changes of what is kept; JSON, as formats before wrote it, begins with a bracket."""


def _sealed(node: str, before: int, total: int, changes: bytes) -> bytes:
    """Changes with a checksum, which also has how many there were before: so one that is missing is missed."""
    return SEAL + checksum_of(node, before, total, changes) + changes


def _opened(node: str, before: int, total: int, sealed: bytes) -> bytes:
    """The changes that were sealed. Raises `sqlite3.DatabaseError` where they are not as they were written."""
    if isinstance(sealed, bytes) and sealed.startswith(b"["):
        return sealed
    changes = sealed[len(SEAL) + BYTES :] if isinstance(sealed, bytes) else b""
    if sealed != _sealed(node, before, total, changes):
        raise malformed(f"events that are kept at the node {node}")
    return changes
