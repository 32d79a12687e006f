"""From Arrow to codes, in compiled code: every attribute of a batch is looked at once, in the buffers it came in.

What `match.codes.Classes` says of one value is said here for all: a name is looked up by its hash, a text among the
literals of its column too, a number by a table where the literals are whole and lie close, else by halving. UTF-8 sorts
as code points do, so texts are compared as bytes. Columns whose literals no double holds go the slow way.

The kernels take arrays and no tuples of them, and what they call becomes a part of them: to hand over many arrays costs
more than to look up one value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.matching.column_tests import Classes, Coded, Key, coded, missing
from nearcast.model.arrays import Int32s, Integers
from nearcast.model.event import OWN
from nearcast.model.values import EXACT, Kind
from nearcast.runtime.jit_cache import compiled, inlined

Bytes = npt.NDArray[np.uint8]
Doubles = npt.NDArray[np.float64]

BEYOND = 2.0**63
"""The first double that no integer of 64 bits is."""


@inlined
def _hash(data: Bytes, begin: int, end: int, seed: int) -> Any:
    """The hash of some bytes (FNV-1a)."""
    hashed = np.uint64(0xCBF29CE484222325) ^ (np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15))
    for at in range(begin, end):
        hashed = (hashed ^ np.uint64(data[at])) * np.uint64(0x100000001B3)
    return hashed ^ (hashed >> np.uint64(29))


@compiled
def fill(data: Bytes, starts: Integers, slots: Integers, seeds: Integers) -> None:
    """Puts each text into a slot by its hash; `seeds` tell equal ones of different columns apart."""
    most = np.uint64(len(slots) - 1)
    for text in range(len(seeds)):
        slot = _hash(data, starts[text], starts[text + 1], seeds[text]) & most
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & most
        slots[slot] = text


@inlined
def _find(
    data: Bytes, begin: int, end: int, seed: int, first: int, last: int, known: Bytes, starts: Integers, slots: Integers
) -> int:
    """The text from `first` to before `last` that has these bytes, or −1."""
    most = np.uint64(len(slots) - 1)
    slot = _hash(data, begin, end, seed) & most
    found = -1
    while slots[slot] >= 0 and found < 0:
        text = slots[slot]
        start = starts[text]
        if first <= text < last and starts[text + 1] - start == end - begin:
            at = 0
            while at < end - begin and known[start + at] == data[begin + at]:
                at += 1
            if at == end - begin:
                found = text
        slot = (slot + np.uint64(1)) & most
    return found


@compiled
def name_all(starts: Any, data: Bytes, known: Bytes, begins: Integers, slots: Integers, names: Int32s) -> None:
    """The number of each attribute's name, or the number of names if it is none of them."""
    count = len(begins) - 1
    for at in range(len(names)):
        found = _find(data, starts[at], starts[at + 1], 0, 0, count, known, begins, slots)
        names[at] = found if found >= 0 else count


@inlined
def _column(where: Integers, names: Int32s, there: Bytes, bit: int, at: int) -> int:
    """The column that a value is for, or −1 if there is none, or no value."""
    column = where[names[at]]
    if there[(bit + at) >> 3] >> ((bit + at) & 7) & 1 == 0:
        column = -1
    return column


@inlined
def _keep(codes: Any, repeats: Any, column: int, lane: int, code: int) -> None:
    """Writes an event's code in a column, where a second one is told to be a repetition."""
    kind = codes.dtype.type
    if codes[column, lane] != kind(-1):
        repeats[column] = True
    codes[column, lane] = kind(code)


@compiled
def take_texts(
    lanes: Int32s, names: Int32s, there: Bytes, bit: int, where: Integers, starts: Any, data: Bytes,
    known: Bytes, begins: Integers, slots: Integers,
    firsts: Integers, lasts: Integers, cut: Integers, ordered: Integers, size: Integers, cuts: Int32s,
    codes: Any, repeats: Any,
) -> None:  # fmt: skip
    """Codes of texts: those of literals by hash, of others by halving if the column has an order."""
    for at in range(len(lanes)):
        column = _column(where, names, there, bit, at)
        if column < 0:
            continue
        begin, end, first = starts[at], starts[at + 1], firsts[column]
        text = _find(data, begin, end, column, first, lasts[column], known, begins, slots)
        code = size[column] - 1
        if text >= 0:
            code = cuts[cut[column] + 2 * (text - first) + 1]
        elif ordered[column] != 0:
            low, high = first, lasts[column]
            while low < high:
                middle = (low + high) >> 1
                own, length, other = begins[middle], begins[middle + 1] - begins[middle], end - begin
                same = 0
                while same < min(length, other) and known[own + same] == data[begin + same]:
                    same += 1
                below = length < other
                if same < min(length, other):
                    below = known[own + same] < data[begin + same]
                if below:
                    low = middle + 1
                else:
                    high = middle
            code = cuts[cut[column] + 2 * (low - first)]
        _keep(codes, repeats, column, lanes[at], code)


@inlined
def _place(numbers: Doubles, first: int, end: int, near: Any, above: Any, exact: Any) -> int:
    """Where a number lies among literals that ascend, by halving: at the n-th 2n + 1, before it 2n.

    `near` is the double nearest to it, and the number `above` that, or `exact` that: rounding keeps the order, so only
    where a literal is that double they may differ.
    """
    low, high = first, end
    while low < high:
        middle = (low + high) >> 1
        if numbers[middle] < near or (above and numbers[middle] == near):
            low = middle + 1
        else:
            high = middle
    place = 2 * (low - first)
    if exact and low < end and numbers[low] == near:
        place += 1
    return place


@compiled
def take_integers(
    lanes: Int32s, names: Int32s, there: Bytes, bit: int, where: Integers, values: Any, numbers: Doubles,
    firsts: Integers, lasts: Integers, cut: Integers, ordered: Integers, size: Integers,
    lowest: Integers, span: Integers, table: Integers, cuts: Int32s, whole: Int32s, codes: Any, repeats: Any,
) -> None:  # fmt: skip
    """Codes of integers, exactly: by a table, or by halving the literals."""
    for at in range(len(lanes)):
        column = _column(where, names, there, bit, at)
        if column < 0:
            continue
        value = values[at]
        # Without a sign: a difference that is too large for 64 bits would else be anything.
        away = np.uint64(value) - np.uint64(lowest[column])
        if away < np.uint64(span[column]):
            code = whole[table[column] + np.int64(away)]
        else:
            near = np.float64(value)
            above = near < BEYOND and np.int64(near) < value
            exact = near < BEYOND and np.int64(near) == value
            code = cuts[cut[column] + _place(numbers, firsts[column], lasts[column], near, above, exact)]
        _keep(codes, repeats, column, lanes[at], code)


@compiled
def take_doubles(
    lanes: Int32s, names: Int32s, there: Bytes, bit: int, where: Integers, values: Any, numbers: Doubles,
    firsts: Integers, lasts: Integers, cut: Integers, ordered: Integers, size: Integers,
    lowest: Integers, span: Integers, table: Integers, cuts: Int32s, whole: Int32s, codes: Any, repeats: Any,
) -> None:  # fmt: skip
    """Codes of doubles by halving the literals; NaN has the last one."""
    for at in range(len(lanes)):
        column = _column(where, names, there, bit, at)
        if column < 0:
            continue
        code = size[column] - 1
        if not np.isnan(values[at]):
            code = cuts[cut[column] + _place(numbers, firsts[column], lasts[column], values[at], False, True)]
        _keep(codes, repeats, column, lanes[at], code)


KINDS: tuple[Kind, ...] = ("number", "text", "boolean", "time")
FIELDS: dict[str, Kind] = {
    "integer": "number",
    "double": "number",
    "text": "text",
    "boolean": "boolean",
    "time": "time",
}
"""The fields of ATTRIBUTE, and the kind of column that each gives values of."""

WIDEST = 1 << 16
"""The most places of a column's table of whole numbers."""

NONE = -1
NO_BYTES = np.zeros(1, np.uint8)
ALL_SET = 0xFF


class Texts(NamedTuple):
    """Texts by hash: of text t the bytes `data[starts[t]]` …, and in `slots` the text of a hash, or −1."""

    data: Bytes
    starts: Integers
    slots: Integers


class Columns(NamedTuple):
    """Of each column: where its literals begin and end, where its codes begin, if it has an order, how many codes.

    `span` whole numbers from `lowest` on have their codes at `table` …
    """

    first: Integers
    last: Integers
    cut: Integers
    ordered: Integers
    size: Integers
    lowest: Integers
    span: Integers
    table: Integers


class Coder:
    """Encodes tables of EVENTS as codes of these columns."""

    def __init__(self, columns: Mapping[Key, Classes]) -> None:
        self._all = dict(columns)
        self._slow = [
            number for number, (key, found) in enumerate(columns.items()) if key[1] != "text" and found.exact is None
        ]
        kinds: dict[str, Kind] = {name: "time" if name == "time" else "text" for name in OWN}
        self._own = [(n, name) for n, (name, kind) in enumerate(columns) if kinds.get(name) == kind]
        names = sorted({name for name, _ in columns})
        # One more row than there are names, of an attribute that nobody asks for.
        self._where = np.full((len(KINDS), len(names) + 1), NONE, np.int64)
        for number, (name, kind) in enumerate(columns):
            if number not in self._slow:
                self._where[KINDS.index(kind), names.index(name)] = number
        self._names = _texts(names, np.zeros(len(names), np.int64))
        self._literals, self._numbers, self._columns, self._cuts, self._whole = _tables(columns, self._slow)

    def coded(self, table: pa.Table, codes: np.dtype[Any], padding: int) -> Coded:
        """The events as codes: see `matching.column_tests.coded`, which gives the same."""
        lanes = len(table)
        result = np.full((len(self._all), lanes + padding), missing(codes), codes)
        repeats = np.zeros(len(self._all), np.bool_)
        for number, name in self._own:
            self._own_column(number, name, _whole(table.column(name)), result, repeats)
        self._attributes(_whole(table.column("attributes")), result, repeats)
        repeats[self._slow] = True
        which = np.full(len(self._all), NONE, np.int64)
        if not repeats.any():
            return Coded(result, lanes, which, np.zeros((0, lanes + 1), np.int64), np.zeros(1, codes))
        numbers = np.flatnonzero(repeats)
        keys = list(self._all)
        slowly = coded(table, {keys[number]: self._all[keys[number]] for number in numbers}, codes, padding)
        result[numbers], which[numbers] = slowly.codes, slowly.which
        return Coded(result, lanes, which, slowly.starts, slowly.values)

    def _own_column(self, number: int, name: str, array: Any, result: Any, repeats: Any) -> None:
        """Codes of what is an event's own."""
        lanes = np.arange(len(array), dtype=np.int32)
        where = np.full(1, number, np.int64)
        given = (lanes, np.zeros(len(array), np.int32))
        self._take("time" if name == "time" else "text", array, given, where, result, repeats)

    def _attributes(self, lists: Any, result: Any, repeats: Any) -> None:
        """Codes of all attributes."""
        lengths = lists.value_lengths()
        lengths = (lengths.fill_null(0) if lengths.null_count else lengths).to_numpy()
        lanes = np.repeat(np.arange(len(lists), dtype=np.int32), lengths)
        entries = lists.flatten()
        names = np.empty(len(entries), np.int32)
        _, starts, data = _strings(entries.field("name"))
        name_all(starts, data, *self._names, names)
        for field, kind in FIELDS.items():
            where, values = self._where[KINDS.index(kind)], entries.field(field)
            if values.null_count < len(values) and (where >= 0).any():
                self._take(field, values, (lanes, names), where, result, repeats)

    def _take(
        self, field: str, array: Any, given: tuple[Int32s, Int32s], where: Integers, result: Any, repeats: Any
    ) -> None:
        """Codes of the values of one field."""
        if field == "text":
            there, starts, data = _strings(array)
            texts = (starts, data, *self._literals, *self._columns[:5])
            _run(take_texts, *given, *there, where, *texts, self._cuts, result, repeats)
            return
        array = array.cast(pa.uint8()) if field == "boolean" else array.view(pa.int64()) if field == "time" else array
        there, values = _numbers(array)
        values = values.astype(np.int64) if field == "boolean" else values
        take = take_doubles if field == "double" else take_integers
        numbers = (values, self._numbers, *self._columns, self._cuts, self._whole)
        _run(take, *given, *there, where, *numbers, result, repeats)


def _run(kernel: Any, *given: Any) -> None:
    # Nobody checks so many arguments of so many types but the compiler of the kernels.
    kernel(*given)


def _whole(column: pa.ChunkedArray) -> Any:
    """A column as one array."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        return pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array


def _strings(array: Any) -> tuple[tuple[Bytes, int], Any, Bytes]:
    """Of an array of texts which are there, where each begins, and all bytes."""
    there, starts, data = array.buffers()
    begin = _values(starts, np.int32, array.offset, len(array) + 1)
    return _bits(there, array), begin, _values(data, np.uint8, 0, data.size if data else 0)


def _numbers(array: Any) -> tuple[tuple[Bytes, int], Any]:
    """Of an array of numbers which are there, and the values."""
    there, values = array.buffers()
    return _bits(there, array), _values(values, array.type.to_pandas_dtype(), array.offset, len(array))


def _bits(buffer: Any, array: Any) -> tuple[Bytes, int]:
    """Which values of an array are there, as bits, and the first of them."""
    if buffer is None:
        return _fixed(np.full(len(array) // 8 + 1, ALL_SET, np.uint8)), 0
    return _values(buffer, np.uint8, 0, buffer.size), array.offset


def _values(buffer: Any, kind: Any, first: int, count: int) -> Any:
    """Values of a buffer, or so many zeros if there is none."""
    if buffer is None or not buffer.size:
        return _fixed(np.zeros(max(1, count), kind))
    return np.frombuffer(buffer, kind)[first : first + count]


def _fixed(array: Any) -> Any:
    """An array that nobody may change, as those of Arrow are: to the compiler these are of another type."""
    array.flags.writeable = False
    return array


def _tables(columns: Mapping[Key, Classes], slow: list[int]) -> tuple[Texts, Doubles, Columns, Int32s, Int32s]:
    """All literals that are texts, all that are numbers, the columns, their codes, and their tables."""
    fields = Columns(*(np.zeros(len(columns), np.int64) for _ in Columns._fields))
    literals: list[str] = []
    doubles, cuts, whole = [np.zeros(0)], [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
    owners: list[int] = []
    sizes = np.zeros(3, np.int64)
    for number, ((_, kind), classes) in enumerate(columns.items()):
        if number in slow:
            continue
        count = len(classes.cut) // 2
        fields.ordered[number], fields.size[number] = classes.ordered, classes.size
        fields.cut[number], fields.table[number] = sizes[:2]
        cuts.append(classes.cut)
        fields.first[number] = len(literals) if kind == "text" else sizes[2]
        fields.last[number] = fields.first[number] + count
        if kind == "text":
            literals += classes.literals
            owners += [number] * count
        elif classes.exact is not None:
            doubles.append(classes.exact)
            found = _table(classes.exact, classes)
            if found is not None:
                fields.lowest[number], fields.span[number] = int(classes.exact[0]), len(found)
                whole.append(found)
        sizes[:] = sum(map(len, cuts)), sum(map(len, whole)), sum(map(len, doubles))
    texts = _texts(literals, np.array(owners, np.int64))
    return texts, np.concatenate(doubles), fields, np.concatenate(cuts), np.concatenate([*whole, np.zeros(1, np.int32)])


def _table(literals: Doubles, classes: Classes) -> Int32s | None:
    """The codes of the whole numbers from the first literal to the last, if literals are whole and lie close."""
    if not len(literals) or not (np.abs(literals) <= EXACT).all() or not (literals == np.floor(literals)).all():
        return None
    if literals[-1] - literals[0] >= WIDEST:
        return None
    values = np.arange(int(literals[0]), int(literals[-1]) + 1)
    places = np.searchsorted(literals, values, "left") + np.searchsorted(literals, values, "right")
    return classes.cut[places]


def _texts(texts: list[str], seeds: Integers) -> Texts:
    """Texts by hash; `seeds` tell equal ones of different columns apart."""
    array = pa.array(texts, pa.large_string())
    _, starts, data = array.buffers()
    begin = np.frombuffer(starts, np.int64).copy() if texts else np.zeros(1, np.int64)
    found = Texts(
        np.frombuffer(data, np.uint8).copy() if data and data.size else NO_BYTES,
        begin,
        np.full(_room(len(texts)), NONE, np.int64),
    )
    fill(*found, seeds)
    return found


def _room(count: int) -> int:
    """A power of two that is at least twice as large."""
    return 1 << (2 * count + 1).bit_length()
