"""The blocks of a journal's rows in SQLite: compressed Arrow, written one a call, merged as they gather."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from nearcast.journal.rows import joined, positions_of, schema_of

TABLE = """
CREATE TABLE blocks (
    number INTEGER PRIMARY KEY, log TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    tier INTEGER NOT NULL, size INTEGER NOT NULL, rows BLOB NOT NULL);
CREATE INDEX blocks_of_log ON blocks (log, last)"""

MERGE = 16
"""So many neighbouring blocks of one tier become one of the next: a row is rewritten at most `TIERS` times."""
TIERS = 2
BLOCK_ROWS, BLOCK_BYTES = 10_000, 64 << 20

CODEC: Final = "zstd"
"""4 ms and a tenth of the size for 10,000 events; lz4 takes 3 ms and leaves a quarter, so the disk takes longer."""


def write_blocks(connection: sqlite3.Connection, log: str, rows: pa.Table) -> None:
    """Puts rows, which have their positions, at the end of a log."""
    for block in _cut(rows):
        tier = next((tier for tier in range(TIERS) if len(block) < MERGE ** (tier + 1)), TIERS)
        _put(connection, log, block, tier)
    for tier in range(TIERS):
        _merge(connection, log, tier)


def read_blocks(connection: sqlite3.Connection, log: str, after: int, through: int) -> list[pa.Table]:
    """The rows of the blocks of a log that have some after one position and up to another, block by block."""
    schema = schema_of(log)
    # By number too: deliveries of one event may fill several blocks, which then end at the same position.
    query = "SELECT size, rows FROM blocks WHERE log = ? AND last > ? AND first <= ? ORDER BY last, number"
    blocks = connection.execute(query, (log, after, through)).fetchall()
    return [_decoded(schema, *block) for block in blocks]


def _cut(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows in pieces small enough for a block, none empty."""
    # A single row that is larger than a block has to be one.
    if len(rows) > 1 and (len(rows) > BLOCK_ROWS or rows.nbytes > BLOCK_BYTES):
        yield from _cut(rows.slice(0, len(rows) // 2))
        yield from _cut(rows.slice(len(rows) // 2))
    elif len(rows):
        yield rows


def _put(connection: sqlite3.Connection, log: str, rows: pa.Table, tier: int) -> None:
    positions = positions_of(rows)
    # A batch without its schema, which is known by the log: in a block of few rows that would be the larger part.
    [batch] = rows.combine_chunks().to_batches()
    raw = batch.serialize()
    connection.execute(
        "INSERT INTO blocks (log, first, last, tier, size, rows) VALUES (?, ?, ?, ?, ?, ?)",
        (log, int(positions[0]), int(positions[-1]), tier, raw.size, pa.compress(raw, CODEC, asbytes=True)),
    )


def _merge(connection: sqlite3.Connection, log: str, tier: int) -> None:
    """Merges the newest `MERGE` blocks of a log if all are of this tier and small."""
    query = "SELECT number, tier, size FROM blocks WHERE log = ? ORDER BY last DESC, number DESC LIMIT ?"
    newest = connection.execute(query, (log, MERGE)).fetchall()
    # Only a run of the newest: so blocks stay ranges of positions one after the other, which are read in order.
    if [of for _, of, _ in newest] != [tier] * MERGE or sum(size for *_, size in newest) > BLOCK_BYTES:
        return
    numbers = ", ".join(str(number) for number, *_ in newest)
    blocks = connection.execute(f"SELECT size, rows FROM blocks WHERE number IN ({numbers}) ORDER BY last, number")
    rows = joined(log, [_decoded(schema_of(log), *block) for block in blocks])
    connection.execute(f"DELETE FROM blocks WHERE number IN ({numbers})")
    _put(connection, log, rows, tier + 1)


def _decoded(schema: pa.Schema, size: int, block: bytes) -> pa.Table:
    try:
        raw = pa.decompress(block, size, CODEC)
        return pa.Table.from_batches([_batch(raw, schema)])
    except (pa.ArrowException, OSError) as error:
        # Raised as SQLite's own error for a damaged file, so that it is told in the same way, with the file's name.
        raise sqlite3.DatabaseError(f"malformed block: {error}") from error


def _batch(raw: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    try:
        return pa.ipc.read_record_batch(raw, schema)
    except pa.ArrowInvalid:
        # Of the format before, which lacks the last column; Arrow finds that it ran out of them.
        if "node" not in schema.names:
            raise
        batch = pa.ipc.read_record_batch(raw, schema.remove(len(schema) - 1))
        return batch.append_column(schema.field(len(schema) - 1), pa.nulls(len(batch), schema.types[-1]))
