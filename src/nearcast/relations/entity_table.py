"""What was heard of entities, as columns: where each is, and since when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.geo.distance import unit_vectors
from nearcast.model.arrays import Flags, Integers
from nearcast.model.event import Coordinates
from nearcast.state.lateness import NEVER, moments_of
from nearcast.state.repository import entities
from nearcast.state.stream_clocks import SHARED, StreamClocks

Column = npt.NDArray[Any]

ROOM = 64
"""Rows for which there is room at first."""


class GrowableTable:
    """Columns of one length, by name; `fill` has the type of each and the value of what is not given."""

    # The room behind the rows has the values that are not given, so that a row costs what is given of it.
    def __init__(self, fill: Mapping[str, Any]) -> None:
        self._fill = dict(fill)
        self._columns: dict[str, Column] = {name: np.full(ROOM, value) for name, value in fill.items()}
        self.length = 0

    def __getitem__(self, name: str) -> Column:
        """A column, without its room: what is written into it stays."""
        return self._columns[name][: self.length]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._fill)

    def fill(self, name: str) -> Any:
        """The value of a column that is not given."""
        return self._fill[name]

    def append(self, count: int = 1, **values: Any) -> int:
        """Adds rows; gives the number of the first of them."""
        first, self.length = self.length, self.length + count
        if self.length > len(self._columns[next(iter(self._fill))]):
            self._resize(2 * self.length)
        for name, value in values.items():
            self._columns[name][first : self.length] = value
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
        for name, value in self._fill.items():
            self._columns[name][:count] = self[name][which]
            self._columns[name][count : self.length] = value
        self.length = count

    def drop(self, rows: npt.NDArray[np.intp]) -> None:
        """Drops some rows, ascending; the last ones come in their place, so that only few are moved."""
        count = self.length - len(rows)
        there = np.ones(len(rows), np.bool_)
        there[rows[rows >= count] - count] = False
        last, free = count + np.flatnonzero(there), rows[rows < count]
        for name, value in self._fill.items():
            column = self[name]
            column[free] = column[last]
            column[count:] = value
        self.length = count

    def chosen(self, rows: npt.NDArray[np.intp]) -> GrowableTable:
        """Some rows, as a table of their own."""
        found = GrowableTable(self._fill)
        found.append(len(rows), **{name: self[name][rows] for name in self._fill})
        return found

    def copy(self) -> GrowableTable:
        """The same rows, without room."""
        found = GrowableTable.__new__(GrowableTable)
        found.__setstate__(self.__getstate__())
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


NOWHERE, PLANAR, GEOGRAPHIC = 0, 1, 2

PLACE = ("kind", "x", "y", "z", "u", "v", "w")
"""What is known of a place; u, v, w are a geographic one's unit vector, z is NaN where there is no height."""

_KINDS: dict[str | None, int] = {None: NOWHERE, "planar": PLANAR, "geographic": GEOGRAPHIC}
COORDINATES: dict[int, Coordinates] = {PLANAR: "planar", GEOGRAPHIC: "geographic"}


class EntityTable:
    """Everything that was heard of, numbered: where it is, the moment of its newest report (`key`), and from when it is
    counted how long it is silent (`heard`), by which `clock`: that moment, or the clock where the report had none.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.numbers: dict[str, int] = {}
        self.columns = GrowableTable(
            {"kind": np.int8(NOWHERE)}
            | dict.fromkeys(PLACE[1:], np.float64(0))
            | {"key": np.int64(NEVER), "heard": np.int64(NEVER), "position": np.int64(-1), "seen": np.False_}
            | {"code": np.uint32(0), "clock": np.int8(SHARED)}
        )

    def __len__(self) -> int:
        return len(self.names)

    def copy(self) -> EntityTable:
        """The same, which goes on by itself."""
        found = EntityTable()
        found.names, found.numbers, found.columns = list(self.names), dict(self.numbers), self.columns.copy()
        return found

    def number(self, name: str) -> int:
        """The number of an entity, also of one that has not been heard of yet."""
        found = self.numbers.get(name)
        if found is None:
            found = self.numbers[name] = len(self.names)
            self.names.append(name)
            self.columns.append(code=crc32(name.encode()))
        return found

    def numbered(self, table: pa.Table) -> Integers:
        """The number of each event's entity."""
        coded = entities(table).combine_chunks().dictionary_encode()
        if isinstance(coded, pa.ChunkedArray):
            coded = coded.combine_chunks()
        names = coded.dictionary.to_pylist()
        self._number_all([name for name in names if name not in self.numbers])
        own = np.array([self.numbers[name] for name in names], np.int64)
        return own[coded.indices.to_numpy()] if len(own) else np.zeros(0, np.int64)

    def _number_all(self, names: Sequence[str]) -> None:
        """Numbers entities that have not been heard of, each once."""
        first = self.columns.append(len(names), code=[crc32(name.encode()) for name in names])
        self.numbers.update(zip(names, range(first, first + len(names)), strict=True))
        self.names += names

    def begin(self, newest: pa.Table, clocks: StreamClocks) -> None:
        """Takes the newest event of every entity; the clocks go on to where these are."""
        moments, clock = moments_of(newest), clocks.numbers(newest)
        if len(newest):
            clocks.set_to(clocks.over(clock, moments)[:, -1])
        self.set_newest(self.numbered(newest), {**placed_columns(newest), "clock": clock}, newest, moments, moments)

    def set_clocks(self, newest: pa.Table, clocks: StreamClocks) -> None:
        """Lets every entity go by the clock of the channel of its newest event, those being other clocks now."""
        self.columns["clock"][:] = SHARED
        if not clocks.single and len(newest):
            number = np.array([self.numbers.get(name, -1) for name in entities(newest).to_pylist()], np.int64)
            self.columns["clock"][number[number >= 0]] = clocks.numbers(newest)[number >= 0]

    def forget(self, gone: Integers, kept: Flags) -> Integers:
        """Drops what is known of entities by number, and those that are not kept; the new number of each that is."""
        for name in ("kind", *PLACE[1:], "key", "heard", "position", "seen", "clock"):
            self.columns[name][gone] = self.columns.fill(name)
        numbers: Integers = np.cumsum(kept) - 1
        self.names = [name for name, stays in zip(self.names, kept.tolist(), strict=True) if stays]
        self.numbers = {name: number for number, name in enumerate(self.names)}
        self.columns.keep(kept)
        return numbers

    def set_newest(
        self, number: Integers, placed: dict[str, Column], table: pa.Table, key: Integers, heard: Integers
    ) -> None:
        """Takes newer events of some entities, each of one: where they are, their moments, and since when it is counted
        that they are silent.
        """
        for name, column in placed.items():
            self.columns[name][number] = column
        self.columns["key"][number] = key
        self.columns["heard"][number] = heard
        self.columns["position"][number] = table.column("position").to_numpy()
        self.columns["seen"][number] = True


def placed_columns(table: pa.Table) -> dict[str, Column]:
    """The places of events as columns."""
    coded = table.column("coordinates").combine_chunks()
    kinds = np.array([_KINDS[one] for one in coded.to_pylist()], np.int8)
    x, y = (pc.fill_null(table.column(name), 0.0).to_numpy() for name in ("x", "y"))
    z = table.column("z").to_numpy()
    vectors = np.zeros((len(kinds), 3))
    there = kinds == GEOGRAPHIC
    vectors[there] = unit_vectors(x[there], y[there])
    return {"kind": kinds, "x": x, "y": y, "z": z, "u": vectors[:, 0], "v": vectors[:, 1], "w": vectors[:, 2]}
