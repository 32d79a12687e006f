"""The truth of atoms over a chunk of events, as rows of bits: bit i of a row is lane i of the chunk.

Of one column only so many rows differ as the chunk has distinct values: of each value the lanes that have it, below
each value the lanes that have a lesser one, and so on. An atom then is a look-up of its row. A repeated name needs
nothing more: its lanes are in several rows, and a row means "some value of the lane".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.decision.match_columns import Codes, Column

Rows = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.intp]

LANES = 1024
"""Lanes of a chunk: a column's rows (8 bytes per 64 lanes and distinct value) then stay in the second-level cache."""

ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


def words(lanes: int) -> int:
    """How many 64-bit words hold one bit per lane."""
    return (lanes + 63) // 64


def bits(lanes: Numbers, width: int) -> Rows:
    """One row with the bits of these lanes set."""
    flags = np.zeros(width * 64, np.bool_)
    flags[lanes] = True
    return np.packbits(flags, bitorder="little").view(np.uint64)


def lanes_of(row: Rows) -> Numbers:
    """The lanes whose bits are set in one row: the inverse of `bits`."""
    return np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))


@dataclass(frozen=True, slots=True)
class ChunkColumn:
    """The rows of one column in one chunk, by rank r among the chunk's m distinct codes.

    `equal[r]`: lanes that have value r. `below[r]`: a value before r (r = m: any). `above[r]`: value r or later.
    `nan`: a NaN. `present`: any value, a NaN too. `single`: no lane has two values.
    """

    codes: Codes
    equal: Rows
    below: Rows
    above: Rows
    nan: Rows
    present: Rows
    single: bool

    def rank(self, bounds: Codes) -> Numbers:
        """Ranks in the chunk of bounds among the batch's distinct values."""
        return np.searchsorted(self.codes, bounds, "left")


def chunk_column(column: Column, first: int, lanes: int) -> ChunkColumn:
    """The rows of a column for the lanes `first` … `first + lanes − 1` of its batch."""
    width = words(lanes)
    begin, end = np.searchsorted(column.lanes, (first, first + lanes))
    here, codes = column.lanes[begin:end] - first, column.codes[begin:end]
    distinct, ranks = np.unique(codes, return_inverse=True)
    rows = _one_hot(ranks, here, len(distinct), width)
    count = len(distinct) - int(len(distinct) > 0 and distinct[-1] == len(column.values))
    equal, empty = rows[:count], np.zeros((1, width), np.uint64)
    below = np.concatenate([empty, np.bitwise_or.accumulate(equal, axis=0)])
    above = np.concatenate([np.bitwise_or.accumulate(equal[::-1], axis=0)[::-1], empty])
    nan = rows[count] if count < len(distinct) else empty[0]
    single = bool((np.diff(here) > 0).all())
    return ChunkColumn(distinct[:count], equal, below, above, nan, below[-1] | nan, single)


def _one_hot(ranks: Numbers, lanes: Codes, count: int, width: int) -> Rows:
    rows = np.zeros((count, width), np.uint64)
    if not len(lanes):
        return rows
    where = ranks * width + (lanes >> 6)
    order = np.argsort(where, kind="stable")
    where, flags = where[order], np.left_shift(np.uint64(1), (lanes & 63).astype(np.uint64))[order]
    starts = np.flatnonzero(np.concatenate([[True], where[1:] != where[:-1]]))
    rows.reshape(-1)[where[starts]] = np.bitwise_or.reduceat(flags, starts)
    return rows
