"""Rows as the content of a block, and back; and how many fit into one. Files and servers of NATS keep the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from nearcast.journal.block_checksums import malformed
from nearcast.journal.stored_offsets import restore_offsets, store_lengths

BLOCK_ROWS, BLOCK_BYTES = 10_000, 64 << 20

CODEC: Final = "zstd"
"""4 ms and a tenth of the size for 10,000 events; lz4 takes 3 ms and leaves a quarter, so the disk takes longer."""

LENGTHS = b"L"
"""What a block begins with that has lengths in the place of offsets; others begin with zstd's own mark."""

LENGTHS_ROWS, LENGTHS_LEVEL = 100, 3
"""Blocks of so many rows have lengths: of 1,000 positions of ships they are 144 bytes each, not 222. It takes a
microsecond a row more to write and read; of a block of one row it would be as many as all the rest.
"""


def cut_rows(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows in pieces small enough for a block, none empty."""
    # A single row that is larger than a block has to be one.
    if len(rows) > 1 and (len(rows) > BLOCK_ROWS or rows.nbytes > BLOCK_BYTES):
        yield from cut_rows(rows.slice(0, len(rows) // 2))
        yield from cut_rows(rows.slice(len(rows) // 2))
    elif len(rows):
        yield rows


def encoded_rows(rows: pa.Table, lengths: bool = False) -> tuple[int, bytes]:
    """Rows as the content of a block, and how many bytes that is when it is not compressed; not of no rows. `lengths`:
    where they are many with lengths in the place of offsets, which versions before cannot read.
    """
    # A batch without its schema, which is known by the log: in a block of few rows that would be the larger part.
    [batch] = rows.combine_chunks().to_batches()
    raw = batch.serialize()
    if lengths and len(rows) >= LENGTHS_ROWS:
        changed = bytearray(raw)
        store_lengths(changed, batch.schema)
        return raw.size, LENGTHS + pa.Codec(CODEC, LENGTHS_LEVEL).compress(changed, asbytes=True)
    return raw.size, pa.compress(raw, CODEC, asbytes=True)


def decoded_rows(schema: pa.Schema, size: int, block: bytes) -> pa.Table:
    """The rows of a block's content. Raises `sqlite3.DatabaseError` where they are none of the schema."""
    try:
        lengths = block.startswith(LENGTHS)
        raw = pa.decompress(memoryview(block)[len(LENGTHS) :] if lengths else block, size, CODEC)
        return pa.Table.from_batches([_batch(raw, schema, lengths)])
    except (pa.ArrowException, OSError, ValueError) as error:
        raise malformed(f"block: {error}") from error


def _batch(raw: pa.Buffer, schema: pa.Schema, lengths: bool) -> pa.RecordBatch:
    try:
        return restore_offsets(bytearray(raw), schema) if lengths else pa.ipc.read_record_batch(raw, schema)
    except pa.ArrowInvalid:
        # Of a format before, which lacks the last columns; Arrow finds that it ran out of them.
        if schema.field(-1).name not in ADDED:
            raise
        batch = _batch(raw, schema.remove(len(schema) - 1), lengths)
        return batch.append_column(schema.field(-1), pa.nulls(len(batch), schema.types[-1]))


ADDED = ("node", "about", "early")
"""The columns that formats before lack, the last ones of their logs."""
