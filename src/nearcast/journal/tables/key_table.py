"""The keys of events, in a journal's table: which (source, id) is at which position."""

from __future__ import annotations

import sqlite3
from itertools import count

import pyarrow as pa

from nearcast.journal.block_checksums import COLUMNS, checked_block, is_position, malformed
from nearcast.journal.encoded_rows import decoded_rows
from nearcast.journal.rows import keys_of, positions_of, schema_of, within
from nearcast.journal.tables.block_table import read_blocks
from nearcast.journal.tables.log_ends import unchecked_blocks

KEYS = "CREATE TABLE keys (id TEXT, source TEXT, position INTEGER NOT NULL, PRIMARY KEY (id, source)) WITHOUT ROWID"

SORTED = 5_000
"""Keys that are put in order together."""


def register_keys(connection: sqlite3.Connection, rows: pa.Table, after: int) -> tuple[pa.Table, list[int]]:
    """Gives positions after `after` to the events whose (source, id) is new; those events, and everyone's positions."""
    keys = keys_of(rows)
    positions = list(range(after + 1, after + 1 + len(keys)))
    connection.execute("SAVEPOINT guess")
    # In the order of the index, neighbours share a page; and nearly always every event is new. Some at a time, for
    # nothing else is done while Python sorts.
    ordered = [(*key, position) for key, position in zip(keys, positions, strict=True)]
    added = 0
    for start in range(0, len(ordered), SORTED):
        some = sorted(ordered[start : start + SORTED])
        added += connection.executemany("INSERT OR IGNORE INTO keys VALUES (?, ?, ?)", some).rowcount
    if added == len(keys):
        connection.execute("RELEASE guess")
        return rows, positions
    connection.execute("ROLLBACK TO guess")
    return _register_each(connection, rows, keys, after)


def _register_each(
    connection: sqlite3.Connection, rows: pa.Table, keys: list[tuple[str, str]], after: int
) -> tuple[pa.Table, list[int]]:
    """The same where some events are known already, or come twice."""
    fresh, positions, following = [], [], count(after + 1)
    for index, key in enumerate(keys):
        known = connection.execute("SELECT position FROM keys WHERE id = ? AND source = ?", key).fetchone()
        if known is None:
            known = (next(following),)
            connection.execute("INSERT INTO keys VALUES (?, ?, ?)", (*key, *known))
            fresh.append(index)
        positions.append(known[0])
    return rows.take(pa.array(fresh, pa.int64())), positions


def forget_blocks(connection: sqlite3.Connection, blocks: list[tuple[int]]) -> None:
    """Removes the keys of the events in blocks, which have these numbers."""
    unchecked = unchecked_blocks(connection)
    for number in blocks:
        row = connection.execute(f"SELECT {COLUMNS} FROM blocks WHERE number = ?", number).fetchone()
        block = checked_block("events", row, unchecked)
        _forget_keys(connection, decoded_rows(schema_of("events"), block.size, block.rows))


def check_key(connection: sqlite3.Connection, id: str, position: int) -> None:
    """Raises `sqlite3.DatabaseError` where the event at a position has another id."""
    if not is_position(position):
        raise malformed(f"key of the event {id}")
    for rows in read_blocks(connection, "events", position - 1, position):
        if within(rows, position - 1, position).column("id").to_pylist() == [id]:
            return
    raise malformed(f"key of the event {id}: at position {position} is another event, or none")


def _forget_keys(connection: sqlite3.Connection, events: pa.Table) -> None:
    """Removes the keys of events that are let go of."""
    # In the order of the index, as they are put there.
    ordered = sorted((*key, at) for key, at in zip(keys_of(events), positions_of(events).tolist(), strict=True))
    connection.executemany("DELETE FROM keys WHERE id = ? AND source = ? AND position = ?", ordered)
