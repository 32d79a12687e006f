"""The blocks of a journal's logs, in their table: written at the end of a log, merged, read in order.

Small blocks become larger ones: a log with a block for each of a million events would be slow to read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa

from nearcast.journal.block_checksums import (
    COLUMNS,
    StoredBlock,
    block_checksum,
    check_links,
    checked_block,
    is_position,
    malformed,
)
from nearcast.journal.encoded_rows import BLOCK_BYTES, cut_rows, decoded_rows, encoded_rows
from nearcast.journal.rows import joined, positions_of, schema_of
from nearcast.journal.tables.log_ends import log_end, newest_block, unchecked_blocks

BLOCKS = """
CREATE TABLE blocks (
    number INTEGER PRIMARY KEY, log TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    tier INTEGER NOT NULL, size INTEGER NOT NULL, rows BLOB NOT NULL, previous INTEGER, checksum BLOB);
CREATE INDEX blocks_of_log ON blocks (log, last)"""

MERGE = 16
"""So many neighbouring blocks of one tier become one of the next: a row is rewritten at most `TIERS` times."""
TIERS = 2


def write_blocks(connection: sqlite3.Connection, log: str, rows: pa.Table) -> None:
    """Puts rows, which have their positions, at the end of a log."""
    for block in cut_rows(rows):
        tier = next((tier for tier in range(TIERS) if len(block) < MERGE ** (tier + 1)), TIERS)
        put_rows(connection, log, block, tier, newest_block(connection, log))
    for tier in range(TIERS):
        _merge(connection, log, tier)


def read_blocks(connection: sqlite3.Connection, log: str, after: int, through: int) -> Iterator[pa.Table]:
    """The rows of the blocks of a log that have some after one position and up to another, block by block.

    Within a transaction: what lies beside them is looked at too. Raises `sqlite3.DatabaseError` where one of them is
    not as it was written, or is missing; where there is none any more, at the end.
    """
    schema, unchecked = schema_of(log), unchecked_blocks(connection)
    # By number too: deliveries of one event may fill several blocks, which then end at the same position.
    query = f"SELECT {COLUMNS} FROM blocks WHERE log = ? AND (last, number) > (?, ?) ORDER BY last, number LIMIT 1"
    at, link = (after, LAST), _before(connection, log, (after, LAST), after)
    while (row := connection.execute(query, (log, *at)).fetchone()) is not None:
        block = checked_block(log, row, unchecked)
        check_links(log, [link, (block.number, block.previous)])
        # Only of a block that was checked is it known that it lies behind.
        if block.first > through:
            return
        yield decoded_rows(schema, block.size, block.rows)
        # What lies behind need not be read; of one position there may be several blocks, but of events.
        if block.last > through or (block.last == through and log == "events"):
            return
        at, link = (block.last, block.number), (block.number, block.previous)
    check_links(log, [link, (0, log_end(connection, log).newest)])


def _before(connection: sqlite3.Connection, log: str, first: tuple[int, int], after: int) -> tuple[int, int | None]:
    """The number of the block before the one with this last position and number; 0 where there is none."""
    query = (
        "SELECT number FROM blocks WHERE log = ? AND (last, number) < (?, ?) ORDER BY last DESC, number DESC LIMIT 1"
    )
    found = connection.execute(query, (log, *first)).fetchone()
    if found is None:
        return 0, None
    # By its number, so that it is the table that answers: the index may be what is damaged.
    last = connection.execute("SELECT last FROM blocks WHERE number = ?", found).fetchone()
    if last is None or not is_position(last[0]) or last[0] > after:
        raise malformed(f"index of the log {log!r} at block {found[0]}")
    return found[0], None


LAST = (1 << 63) - 1
"""The greatest number that SQLite keeps."""


TRIMMED_ROWS = 10_000
"""Positions that are let go of at once, about: who writes waits meanwhile, some 50 ms for events with their ids."""


def oldest_blocks(connection: sqlite3.Connection, log: str, through: int) -> list[tuple[int]]:
    """The numbers of some of the oldest blocks of a log that end at a position or before; empty where there are none.

    The newest is not among them: what is written next has a link to it.
    """
    # Cheap: `rows` is the last column, so SQLite reads none of it.
    query = "SELECT number, first, last FROM blocks WHERE log = ? AND last <= ? AND number <> ? ORDER BY last, number"
    numbers: list[tuple[int]] = []
    count = 0
    with closing(connection.execute(query, (log, through, newest_block(connection, log)))) as found:
        for number, first, last in found:
            numbers.append((number,))
            count += last - first + 1
            if count >= TRIMMED_ROWS:
                break
    return numbers


def remove_oldest(connection: sqlite3.Connection, log: str, numbers: list[tuple[int]]) -> None:
    """Removes blocks of a log by their numbers, of which there are others behind."""
    connection.executemany("DELETE FROM blocks WHERE number = ?", numbers)
    if numbers:
        begin_with_oldest(connection, log)


def begin_with_oldest(connection: sqlite3.Connection, log: str) -> None:
    """Makes the oldest block of a log the first of it, without a link: those before it are gone on purpose."""
    query = f"SELECT {COLUMNS} FROM blocks WHERE log = ? ORDER BY last, number LIMIT 1"
    oldest = connection.execute(query, (log,)).fetchone()
    block = checked_block(log, oldest, unchecked_blocks(connection))._replace(previous=0)
    # One of a format before has no link.
    if block.checksum is not None:
        sum = block_checksum(log, block)
        connection.execute("UPDATE blocks SET previous = 0, checksum = ? WHERE number = ?", (sum, block.number))


def put_rows(connection: sqlite3.Connection, log: str, rows: pa.Table, tier: int, previous: int) -> int:
    """Puts rows as one block behind the one of a number; its own number."""
    positions = positions_of(rows)
    size, content = encoded_rows(rows, lengths=True)
    block = StoredBlock(0, int(positions[0]), int(positions[-1]), tier, size, previous, None, content)
    return _insert(connection, log, block)


def put_stored(connection: sqlite3.Connection, log: str, block: StoredBlock, previous: int) -> int:
    """Puts a block of another journal, as it is, behind the one of a number; its own number."""
    moved = block._replace(previous=previous)
    return _insert(connection, log, moved)


def _insert(connection: sqlite3.Connection, log: str, block: StoredBlock) -> int:
    found = connection.execute(
        "INSERT INTO blocks (log, first, last, tier, size, previous, checksum, rows) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (log, *block[1:6], block_checksum(log, block), block.rows),
    )
    return int(found.lastrowid or 0)


def _merge(connection: sqlite3.Connection, log: str, tier: int) -> None:
    """Merges the newest `MERGE` blocks of a log if all are of this tier and small."""
    query = "SELECT number, tier, size FROM blocks WHERE log = ? ORDER BY last DESC, number DESC LIMIT ?"
    newest = connection.execute(query, (log, MERGE)).fetchall()
    # Only a run of the newest: so blocks stay ranges of positions one after the other, which are read in order.
    if [of for _, of, _ in newest] != [tier] * MERGE or sum(size for *_, size in newest) > BLOCK_BYTES:
        return
    numbers = ", ".join(str(number) for number, *_ in newest)
    found = connection.execute(f"SELECT {COLUMNS} FROM blocks WHERE number IN ({numbers}) ORDER BY last, number")
    # What is damaged would get a checksum of its own.
    unchecked = unchecked_blocks(connection)
    blocks = [checked_block(log, row, unchecked) for row in found]
    rows = joined(log, [decoded_rows(schema_of(log), one.size, one.rows) for one in blocks])
    connection.execute(f"DELETE FROM blocks WHERE number IN ({numbers})")
    put_rows(connection, log, rows, tier + 1, newest_block(connection, log))


def decoded_block(log: str, block: StoredBlock) -> pa.Table:
    """The rows of a block. Raises `sqlite3.DatabaseError` where they are none of its log."""
    return decoded_rows(schema_of(log), block.size, block.rows)
