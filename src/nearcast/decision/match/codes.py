"""Attributes as small codes: each column's literals cut its values into classes that no filter can tell apart.

A column is an attribute and a kind. Whatever the values, only their order relative to the literals matters; so the
literals are sorted once, and a value's code is its class among them. Every atom then is a range of codes, known before
any event is seen, and matching compares numbers of 16 bits (32 where a column has very many literals) exactly.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.decision.match.columns import Column, encode
from nearcast.decision.match.tests import Key

Integers = npt.NDArray[np.int64]
Codes = npt.NDArray[Any]
"""Codes by column and lane, of 16 or 32 bits without sign, shape (columns, stride)."""

NARROW = 2**16 - 16
"""The most classes of a column whose codes take 16 bits."""


def missing(codes: np.dtype[Any]) -> int:
    """The code of a lane without a value in the column."""
    return int(np.iinfo(codes).max)


def several(codes: np.dtype[Any]) -> int:
    """The code of a lane with more than one value in the column."""
    return missing(codes) - 1


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of one column's values: codes of what lies below, at, and between its literals, which ascend.

    The literals are those in `exact` if doubles hold them all, else `literals`; the other is empty, or None.
    `cut[2 i]` is the code of what lies between literals i − 1 and i, `cut[2 i + 1]` that of literal i. `size` is the
    number of codes; the last is that of NaN and, where nothing asks for order, of every value that is no literal.
    """

    literals: Sequence[Any]
    ordered: bool
    cut: npt.NDArray[np.int32]
    size: int
    exact: npt.NDArray[np.float64] | None

    def of(self, values: Sequence[Any] | npt.NDArray[Any]) -> Integers:
        """The codes of distinct values in order, and behind them that of NaN."""
        codes = np.full(len(values) + 1, self.size - 1, np.int64)
        if self.exact is not None and isinstance(values, np.ndarray):
            known = self.exact.astype(values.dtype) if values.dtype == np.int64 else self.exact
            places = np.searchsorted(known, values, "left") + np.searchsorted(known, values, "right")
            codes[:-1] = self.cut[places]
        else:
            # Not as doubles of NumPy's, which other numbers are rounded to before they are compared.
            literals = self.literals if self.exact is None else self.exact.tolist()
            given = values if isinstance(values, list) else np.asarray(values).tolist()
            codes[:-1] = self.cut[[self._place(literals, value) for value in given]]
        return codes

    def _place(self, literals: Sequence[Any], value: Any) -> int:
        """Twice the number of literals below a value, and one more if it is a literal itself."""
        number = bisect_left(literals, value)
        if number < len(literals) and literals[number] == value:
            return 2 * number + 1
        return 2 * number if self.ordered else 0


@dataclass(frozen=True, slots=True)
class Coded:
    """A batch as codes: `codes[c, lane]`. Of the columns in which a lane has several values, `starts` and `values`.

    Lane l has in such a column, the s-th of them, the codes `values[starts[s, l]]` … `values[starts[s, l + 1] − 1]`;
    `which[c]` is s, or −1.
    """

    codes: Codes
    lanes: int
    which: Integers
    starts: Integers
    values: Codes

    @property
    def complete(self) -> npt.NDArray[np.bool_]:
        """The columns in which every lane has a value."""
        return np.asarray((self.codes[:, : self.lanes] != missing(self.codes.dtype)).all(axis=1))


def coded(table: pa.Table, columns: Mapping[Key, Classes], codes: np.dtype[Any], padding: int) -> Coded:
    """The events of a table of EVENTS as codes of these columns."""
    lanes = len(table)
    result = np.full((len(columns), lanes + padding), missing(codes), codes)
    which = np.full(len(columns), -1, np.int64)
    starts: list[Integers] = []
    values: list[Codes] = []
    size = 0
    found = encode(table, columns)
    for number, (key, classes) in enumerate(columns.items()):
        column = found.get(key)
        if column is None:
            continue
        own = classes.of(column.values).astype(codes)[column.codes]
        result[number, column.lanes] = own
        if (np.diff(column.lanes) == 0).any():
            which[number] = len(starts)
            starts.append(size + _repeats(column, lanes, result[number], several(codes)))
            values.append(own)
            size += len(own)
    return Coded(
        result,
        lanes,
        which,
        np.array(starts, np.int64).reshape(len(starts), lanes + 1),
        np.concatenate([*values, np.zeros(1, codes)]).astype(codes),
    )


def _repeats(column: Column, lanes: int, codes: Codes, mark: int) -> Integers:
    """Marks the lanes with more than one value; returns where each lane's values begin."""
    per_lane = np.bincount(column.lanes, minlength=lanes)
    codes[:lanes][per_lane > 1] = mark
    return np.concatenate([[0], np.cumsum(per_lane)]).astype(np.int64)
