"""How long values are, in the place of where they begin: of texts and lists in a serialized batch.

Where each begins is a number that grows from row to row, so no two are alike, and no compressor finds anything in them.
How long each is repeats: of positions of a fleet, whose attributes have the same names, it is a quarter of a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

WIDTH = 4
"""Bytes of an offset."""


def store_lengths(raw: bytearray, schema: pa.Schema) -> None:
    """Changes a serialized batch so, in its place."""
    for offsets in _offsets(raw, pa.ipc.read_record_batch(pa.py_buffer(raw), schema)):
        offsets[1:] = np.diff(offsets)


def restore_offsets(raw: bytearray, schema: pa.Schema) -> pa.RecordBatch:
    """The batch that was changed so, in the same memory. Raises `ArrowInvalid` where it has fewer columns."""
    batch = pa.ipc.read_record_batch(pa.py_buffer(raw), schema)
    for offsets in _offsets(raw, batch):
        np.cumsum(offsets, out=offsets)
    return batch


def _offsets(raw: bytearray, batch: pa.RecordBatch) -> Iterator[npt.NDArray[np.int32]]:
    """The offsets of each column, as they are in the memory of the batch."""
    begin = pa.py_buffer(raw).address
    for column in batch.columns:
        for buffer, counts in zip(column.buffers(), _are_offsets(column.type), strict=True):
            if counts and buffer is not None and buffer.size:
                yield np.frombuffer(raw, np.int32, buffer.size // WIDTH, buffer.address - begin)


@cache
def _are_offsets(kind: pa.DataType) -> tuple[bool, ...]:
    """Which of the buffers of a column of this type are offsets, those of its children behind its own."""
    if pa.types.is_list(kind):
        return False, True, *_are_offsets(kind.value_type)
    if pa.types.is_struct(kind):
        return False, *(one for child in kind for one in _are_offsets(child.type))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return False, True, False
    return False, False
