"""Rows as the content of a block, and back; and how many fit into one. Files and servers of NATS keep the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from nearcast.journal.block_checksums import malformed

BLOCK_ROWS, BLOCK_BYTES = 10_000, 64 << 20

CODEC: Final = "zstd"
"""4 ms and a tenth of the size for 10,000 events; lz4 takes 3 ms and leaves a quarter, so the disk takes longer."""


def cut_rows(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows in pieces small enough for a block, none empty."""
    # A single row that is larger than a block has to be one.
    if len(rows) > 1 and (len(rows) > BLOCK_ROWS or rows.nbytes > BLOCK_BYTES):
        yield from cut_rows(rows.slice(0, len(rows) // 2))
        yield from cut_rows(rows.slice(len(rows) // 2))
    elif len(rows):
        yield rows


def encoded_rows(rows: pa.Table) -> tuple[int, bytes]:
    """Rows as the content of a block, and how many bytes that is when it is not compressed; not of no rows."""
    # A batch without its schema, which is known by the log: in a block of few rows that would be the larger part.
    [batch] = rows.combine_chunks().to_batches()
    raw = batch.serialize()
    return raw.size, pa.compress(raw, CODEC, asbytes=True)


def decoded_rows(schema: pa.Schema, size: int, block: bytes) -> pa.Table:
    """The rows of a block's content. Raises `sqlite3.DatabaseError` where they are none of the schema."""
    try:
        raw = pa.decompress(block, size, CODEC)
        return pa.Table.from_batches([_batch(raw, schema)])
    except (pa.ArrowException, OSError) as error:
        raise malformed(f"block: {error}") from error


def _batch(raw: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    try:
        return pa.ipc.read_record_batch(raw, schema)
    except pa.ArrowInvalid:
        # Of a format before, which lacks the last columns; Arrow finds that it ran out of them.
        if schema.field(-1).name not in ADDED:
            raise
        batch = _batch(raw, schema.remove(len(schema) - 1))
        return batch.append_column(schema.field(-1), pa.nulls(len(batch), schema.types[-1]))


ADDED = ("node", "about", "early")
"""The columns that formats before lack, the last ones of their logs."""
