"""A batch as columns with ranked values, its places as arrays, and rows of bits: bit i of a row is lane i of a chunk.

Of one column only so many rows differ as the chunk has distinct values: of each value the lanes that have it, below
each value the lanes that have a lesser one, and so on. An atom then is a look-up of its row. A repeated name needs
nothing more: its lanes are in several rows, and a row means "some value of the lane".

A lane is an event's place in the batch. Values of one kind are coded by rank among the batch's distinct values, so all
later work compares small integers and is exact for every type: where the ranks are made, integers and doubles compare
exactly, text by code point, NaN has a rank of its own at the end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.geo.distance import Floats
from nearcast.model.arrays import Flags
from nearcast.model.columns import FEW, entries_of
from nearcast.model.event import OWN, Place
from nearcast.model.values import EXACT, Kind, Value

Codes = npt.NDArray[np.int64]
_FIELDS: dict[Kind, tuple[str, ...]] = {
    "number": ("integer", "double"),
    "text": ("text",),
    "boolean": ("boolean",),
    "time": ("time",),
}


Part = tuple[Codes, Any]
"""Lanes, and of each a value: as an array, or as an Arrow array or a list of texts."""

FEW_ENTRIES = 2_048
"""Attributes of a batch up to which their texts are sooner told apart in Python than by calls of Arrow by column."""


class ColumnLiterals:
    """Literals of one column's tests, as values are compared with them."""

    def __init__(self, literals: Sequence[Value]) -> None:
        self.exact = [plain(literal) for literal in literals]
        self.near: npt.NDArray[Any] = np.zeros(0)
        self.between: list[tuple[int, int]] = []
        """Integers between two doubles, each with its number."""
        if literals and not isinstance(literals[0], str):
            times = hasattr(literals[0], "timestamp")
            self.near = np.array(self.exact, np.int64) if times else np.array([float(one) for one in self.exact])
            large = [(n, one) for n, one in enumerate(self.exact) if isinstance(one, int) and abs(one) > EXACT]
            self.between = [(n, one) for n, one in large if int(self.near[n]) != one]


@dataclass(frozen=True, slots=True)
class Column:
    """The values of one attribute of one kind: `codes[i]` is the rank of a value of lane `lanes[i]`, lanes ascending.

    `values` are the distinct values in order, an array or, for text and for integers beyond 2^53, a list; a NaN has the
    code `len(values)`.
    """

    lanes: Codes
    codes: Codes
    values: Sequence[Any] | npt.NDArray[Any]

    def bounds(self, literals: ColumnLiterals) -> tuple[Codes, Codes]:
        """For each literal: how many distinct values are below it, and how many are at most it."""
        if isinstance(self.values, list):
            below = [bisect_left(self.values, literal) for literal in literals.exact]
            pairs = zip(literals.exact, below, strict=True)
            upto = [bisect_right(self.values, literal, lo=low) for literal, low in pairs]
            return np.array(below, np.int64), np.array(upto, np.int64)
        return _array_bounds(np.asarray(self.values), literals)


def _array_bounds(values: npt.NDArray[Any], literals: ColumnLiterals) -> tuple[Codes, Codes]:
    below, upto = np.searchsorted(values, literals.near, "left"), np.searchsorted(values, literals.near, "right")
    for number, literal in literals.between:
        # Nothing equals it, and its nearest double is on one side of it.
        below[number] = upto[number] = below[number] if int(literals.near[number]) > literal else upto[number]
    return below, upto


def encode(table: pa.Table, wanted: Iterable[tuple[str, Kind]]) -> dict[tuple[str, Kind], Column]:
    """The columns of a table of EVENTS that are wanted and occur, by attribute name and kind."""
    keys = set(wanted)
    parts: dict[tuple[str, Kind], list[Part]] = {}
    for name in OWN:
        kind: Kind = "time" if name == "time" else "text"
        column = table.column(name)
        if (name, kind) in keys and column.null_count < len(column):
            there = np.flatnonzero(np.asarray(column.is_valid()))
            parts[name, kind] = [(there, _numpy(kind, column.drop_null()))]
    for key, part in _attribute_parts(table, keys):
        parts.setdefault(key, []).append(part)
    return {key: _column(key[1], found) for key, found in parts.items()}


def _attribute_parts(table: pa.Table, keys: set[tuple[str, Kind]]) -> Iterator[tuple[tuple[str, Kind], Part]]:
    """What the attributes give for columns. A name of the event's own is among them where the event has it not."""
    names = sorted({name for name, _ in keys})
    entries, lanes = entries_of(table)
    coded = pc.index_in(entries.field("name"), value_set=pa.array(names, pa.string()))
    which = coded.fill_null(-1).to_numpy(zero_copy_only=False)
    # NumPy sorts numbers of 16 bits digit by digit, several times as fast as wider ones.
    which = which.astype(np.int16) if len(names) < 2**15 else which
    order = np.argsort(which, kind="stable")
    starts = np.searchsorted(which[order], np.arange(len(names) + 1)).tolist()
    kinds = {kind for _, kind in keys}
    fields = [_EntryField(kind, name, entries) for kind in _FIELDS if kind in kinds for name in _FIELDS[kind]]
    for index, name in enumerate(names):
        rows = order[starts[index] : starts[index + 1]]
        for one in fields if len(rows) else ():
            if (name, one.kind) in keys and len(here := one.there(rows)):
                yield (name, one.kind), (lanes[here], one.values(here))


class _EntryField:
    """A field of all attributes of a batch."""

    def __init__(self, kind: Kind, name: str, entries: pa.StructArray) -> None:
        self.kind = kind
        array = entries.field(name)
        self._valid = np.asarray(array.is_valid()) if array.null_count else None
        self._none = array.null_count == len(array)
        self._values: Any = None if self._none else _numpy(name, array)

    def there(self, rows: Numbers) -> Numbers:
        """Those of some attributes that have a value here."""
        if self._none:
            return rows[:0]
        return rows if self._valid is None else rows[self._valid[rows]]

    def values(self, rows: Numbers) -> Any:
        """Their values."""
        if isinstance(self._values, list):
            return [self._values[row] for row in rows.tolist()]
        return self._values.take(pa.array(rows)) if isinstance(self._values, pa.Array) else self._values[rows]


def _numpy(field: str, array: Any) -> Any:
    """The values of a field, anything where there are none: an array, or of texts an Arrow array or a list."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
    if field == "text":
        return array.to_pylist() if len(array) <= FEW_ENTRIES else array
    array = array.cast(pa.int64()) if field == "time" else array
    nothing = False if field == "boolean" else 0
    return (array.fill_null(nothing) if array.null_count else array).to_numpy(zero_copy_only=False)


def _column(kind: Kind, parts: Sequence[Part]) -> Column:
    """One column from its parts, the lanes of each of which ascend."""
    values, codes = _distinct(kind, [values for _, values in parts])
    if len(parts) == 1:
        return Column(parts[0][0], codes, values)
    where = np.concatenate([lanes for lanes, _ in parts])
    order = np.argsort(where, kind="stable")
    return Column(where[order], codes[order], values)


def _distinct(kind: Kind, pieces: list[Any]) -> tuple[Any, Codes]:
    if kind == "text":
        return _distinct_texts(pieces)
    if kind == "number" and any(piece.dtype == np.int64 and _beyond(piece) for piece in pieces):
        return _ranked([value for piece in pieces for value in piece.tolist()])
    together = np.concatenate([piece.astype(np.int64 if kind == "time" else np.float64) for piece in pieces])
    if len(together) <= FEW:
        known, codes = _ranked(together.tolist())
        return np.array(known, together.dtype), codes
    values, codes = np.unique(together, return_inverse=True)
    # NaNs are sorted last, and are one value to `unique`.
    if len(values) and kind == "number" and np.isnan(values[-1]):
        values = values[:-1]
    return values, codes


def _beyond(integers: npt.NDArray[np.int64]) -> bool:
    return bool(integers.max() > EXACT or integers.min() < -EXACT)


def _distinct_texts(pieces: list[Any]) -> tuple[list[str], Codes]:
    if all(isinstance(piece, list) for piece in pieces):
        return _ranked([text for piece in pieces for text in piece])
    array = pa.concat_arrays([pa.array(piece, pa.string()) if isinstance(piece, list) else piece for piece in pieces])
    coded = array.dictionary_encode()
    texts = coded.dictionary.to_pylist()
    order = sorted(range(len(texts)), key=texts.__getitem__)
    rank = np.empty(len(texts), np.int64)
    rank[order] = np.arange(len(texts))
    return [texts[index] for index in order], rank[coded.indices.to_numpy()]


def _ranked(together: list[Any]) -> tuple[list[Any], Codes]:
    """The distinct ones of values in order, and the rank of each value; that of a NaN is behind them.

    Python's own comparison is exact, also of integers that doubles cannot hold with doubles.
    """
    values = sorted({value for value in together if value == value})
    rank = {value: index for index, value in enumerate(values)}
    return values, np.array([rank.get(value, len(values)) for value in together], np.int64)


def plain(literal: Value) -> Any:
    """A literal in the terms of a column's values: a time is its microseconds since 1970."""
    if hasattr(literal, "timestamp"):
        return microseconds(literal)
    return int(literal) if isinstance(literal, bool) else literal


def microseconds(time: Any) -> int:
    """A moment as whole microseconds since 1970, as Arrow counts them."""
    return int(pa.scalar(time, pa.timestamp("us", tz="UTC")).value)


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


@dataclass(frozen=True, slots=True)
class PlaceArrays:
    """Places as arrays of one shape: whether known, whether geographic, x, y, and z (0 and not `high` if unknown)."""

    known: Flags
    geographic: Flags
    x: Floats
    y: Floats
    z: Floats
    high: Flags

    def select(self, index: npt.NDArray[np.intp] | Flags) -> PlaceArrays:
        """The points at these indices, or where these flags are set."""
        return PlaceArrays(*(getattr(self, name)[index] for name in PlaceArrays.__slots__))

    def joined(self, others: PlaceArrays) -> PlaceArrays:
        """These points, and others behind them."""
        return PlaceArrays(
            *(np.concatenate([getattr(self, name), getattr(others, name)]) for name in PlaceArrays.__slots__)
        )

    def replaced(self, index: npt.NDArray[np.intp], others: PlaceArrays) -> PlaceArrays:
        """The points with others in these places."""
        found = PlaceArrays(*(getattr(self, name).copy() for name in PlaceArrays.__slots__))
        for name in PlaceArrays.__slots__:
            getattr(found, name)[index] = getattr(others, name)
        return found

    def lanes(self, first: int, last: int) -> PlaceArrays:
        """The points from `first` up to but not including `last`."""
        return PlaceArrays(*(getattr(self, name)[first:last] for name in PlaceArrays.__slots__))

    def upright(self) -> PlaceArrays:
        """The points as a column, to be met with a row of others."""
        return PlaceArrays(*(getattr(self, name)[:, None] for name in PlaceArrays.__slots__))


def points_of(places: Sequence[Place | None]) -> PlaceArrays:
    """Places as arrays; None is unknown."""
    there = [place if place else Place("planar", 0.0, 0.0) for place in places]
    return PlaceArrays(
        np.array([place is not None for place in places], np.bool_),
        np.array([place.coordinates == "geographic" for place in there], np.bool_),
        np.array([place.x for place in there], np.float64),
        np.array([place.y for place in there], np.float64),
        np.array([place.z or 0.0 for place in there], np.float64),
        np.array([place.z is not None for place in there], np.bool_),
    )


def event_points(table: pa.Table) -> PlaceArrays:
    """The places of the events of a table of EVENTS."""
    coordinates, z = table.column("coordinates"), table.column("z")
    return PlaceArrays(
        np.asarray(coordinates.is_valid()),
        np.asarray(pc.equal(coordinates, "geographic").fill_null(False)),
        table.column("x").fill_null(0.0).to_numpy(),
        table.column("y").fill_null(0.0).to_numpy(),
        z.fill_null(0.0).to_numpy(),
        np.asarray(z.is_valid()),
    )


def pack(flags: Flags, width: int) -> Rows:
    """Flags of shape (n, lanes) as rows of bits, shape (n, words)."""
    padded = np.zeros((flags.shape[0], width * 64), np.bool_)
    padded[:, : flags.shape[1]] = flags
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)
