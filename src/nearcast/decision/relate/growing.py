"""Tables of numbers that grow: columns with room at their ends, so that adding a row seldom copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[Any]

ROOM = 64
"""Rows for which there is room at first."""


class Growing:
    """Columns of one length, by name; `fill` has the type of each and the value of what is not given."""

    def __init__(self, fill: Mapping[str, Any]) -> None:
        self._fill = dict(fill)
        self._columns: dict[str, Column] = {name: np.full(ROOM, value) for name, value in fill.items()}
        self.length = 0

    def __getitem__(self, name: str) -> Column:
        """A column, without its room: what is written into it stays."""
        return self._columns[name][: self.length]

    def append(self, count: int = 1, **values: Any) -> int:
        """Adds rows; gives the number of the first of them."""
        first, self.length = self.length, self.length + count
        if self.length > len(self._columns[next(iter(self._fill))]):
            self._resize(2 * self.length)
        for name, value in self._fill.items():
            self._columns[name][first : self.length] = values.get(name, value)
        return first

    def _resize(self, size: int) -> None:
        for name, column in self._columns.items():
            larger = np.full(size, self._fill[name], column.dtype)
            kept = min(len(column), size, self.length)
            larger[:kept] = column[:kept]
            self._columns[name] = larger

    def keep(self, which: npt.NDArray[np.bool_]) -> None:
        """Drops the rows that are not wanted; the others move up."""
        count = int(which.sum())
        for name in self._fill:
            self._columns[name][:count] = self[name][which]
        self.length = count

    def chosen(self, rows: npt.NDArray[np.intp]) -> Growing:
        """Some rows, as a table of their own."""
        found = Growing(self._fill)
        found.append(len(rows), **{name: self[name][rows] for name in self._fill})
        return found

    @property
    def size(self) -> int:
        """Bytes that the rows take."""
        return sum(self[name].nbytes for name in self._fill)

    def __getstate__(self) -> dict[str, Any]:
        # Without the room: state is stored.
        columns = {name: self[name].copy() for name in self._fill}
        return {"_fill": self._fill, "_columns": columns, "length": self.length}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
