"""The truth of atoms over a chunk of events, as rows of bits: bit i of a row is lane i of the chunk.

Of one column only so many rows differ as the chunk has distinct values: of each value the lanes that have it, below
each value the lanes that have a lesser one, and so on. An atom then is a look-up of its row. A repeated name needs
nothing more: its lanes are in several rows, and a row means "some value of the lane".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.decision.match.columns import Codes, Column

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


@dataclass(frozen=True, slots=True)
class ChunkColumn:
    """The rows of one column in one chunk, by rank r among the chunk's m distinct codes.

    `equal[r]`: lanes that have value r. `nan`: a NaN. `present`: any value, a NaN too. `single`: no lane has two.
    """

    codes: Codes
    equal: Rows
    nan: Rows
    present: Rows
    single: bool

    def rank(self, bounds: Codes) -> Numbers:
        """Ranks in the chunk of bounds among the batch's distinct values."""
        return np.searchsorted(self.codes, bounds, "left")

    def below(self) -> Rows:
        """For each r up to m the lanes that have a value before r; r = m: any."""
        rows = np.zeros((len(self.equal) + 1, self.equal.shape[1]), np.uint64)
        np.bitwise_or.accumulate(self.equal, axis=0, out=rows[1:])
        return rows

    def above(self) -> Rows:
        """For each r up to m the lanes that have value r or a later one; r = m: none."""
        rows = np.zeros((len(self.equal) + 1, self.equal.shape[1]), np.uint64)
        np.bitwise_or.accumulate(self.equal[::-1], axis=0, out=rows[-2::-1])
        return rows


def chunk_column(column: Column, first: int, lanes: int) -> ChunkColumn:
    """The rows of a column for the lanes `first` … `first + lanes − 1` of its batch."""
    width = words(lanes)
    begin, end = np.searchsorted(column.lanes, (first, first + lanes))
    here, codes = column.lanes[begin:end] - first, column.codes[begin:end]
    single = bool((here[1:] > here[:-1]).all())
    order = _order(codes, len(column.values))
    distinct, rows = _one_hot(codes[order], here[order], width)
    count = len(distinct) - int(len(distinct) > 0 and distinct[-1] == len(column.values))
    nan = rows[count] if count < len(distinct) else np.zeros(width, np.uint64)
    return ChunkColumn(distinct[:count], rows[:count], nan, np.bitwise_or.reduce(rows, axis=0), single)


def _order(codes: Codes, most: int) -> Numbers:
    """The stable order of codes up to `most`."""
    # NumPy sorts numbers of 16 bits digit by digit, several times as fast as wider ones.
    return np.argsort(codes.astype(np.uint16) if most < 2**16 else codes, kind="stable")


def _one_hot(codes: Codes, lanes: Codes, width: int) -> tuple[Codes, Rows]:
    """The distinct ones among ascending codes, and for each the row of its lanes, which ascend."""
    if not len(codes):
        return codes, np.zeros((0, width), np.uint64)
    new = np.concatenate([[True], codes[1:] != codes[:-1]])
    where = (np.cumsum(new) - 1) * width + (lanes >> 6)
    flags = np.left_shift(np.uint64(1), (lanes & 63).astype(np.uint64))
    starts = np.flatnonzero(np.concatenate([[True], where[1:] != where[:-1]]))
    distinct = codes[new]
    rows = np.zeros((len(distinct), width), np.uint64)
    rows.reshape(-1)[where[starts]] = np.bitwise_or.reduceat(flags, starts)
    return distinct, rows
