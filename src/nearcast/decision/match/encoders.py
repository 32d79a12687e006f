"""The kernels of encoding: names, texts and numbers in Arrow's buffers, each as the code it has.

They take arrays and no tuples of them, and what they call becomes a part of them: to hand over many arrays costs more
than to look up one value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.decision.match.kept import compiled, inlined

Integers = npt.NDArray[np.int64]
Short = npt.NDArray[np.int32]
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
def name_all(starts: Any, data: Bytes, known: Bytes, begins: Integers, slots: Integers, names: Short) -> None:
    """The number of each attribute's name, or the number of names if it is none of them."""
    count = len(begins) - 1
    for at in range(len(names)):
        found = _find(data, starts[at], starts[at + 1], 0, 0, count, known, begins, slots)
        names[at] = found if found >= 0 else count


@inlined
def _is_there(there: Bytes, bit: int, at: int) -> bool:
    """Whether a bit is set."""
    return there[(bit + at) >> 3] >> ((bit + at) & 7) & 1 != 0


@compiled
def take_texts(
    lanes: Short, names: Short, there: Bytes, bit: int, where: Integers, starts: Any, data: Bytes,
    known: Bytes, begins: Integers, slots: Integers,
    firsts: Integers, lasts: Integers, cut: Integers, ordered: Integers, size: Integers, cuts: Short,
    codes: Any, repeats: Any,
) -> None:  # fmt: skip
    """Codes of texts: those of literals by hash, of others by halving if the column has an order."""
    kind = codes.dtype.type
    for at in range(len(lanes)):
        column = where[names[at]]
        if column < 0 or not _is_there(there, bit, at):
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
        if codes[column, lanes[at]] != kind(-1):
            repeats[column] = True
        codes[column, lanes[at]] = kind(code)


@compiled
def take_integers(
    lanes: Short, names: Short, there: Bytes, bit: int, where: Integers, values: Any, numbers: Doubles,
    firsts: Integers, lasts: Integers, cut: Integers, ordered: Integers, size: Integers,
    lowest: Integers, span: Integers, table: Integers, cuts: Short, whole: Short, codes: Any, repeats: Any,
) -> None:  # fmt: skip
    """Codes of integers, exactly: by a table, or by halving the literals."""
    kind = codes.dtype.type
    for at in range(len(lanes)):
        column = where[names[at]]
        if column < 0 or not _is_there(there, bit, at):
            continue
        value = values[at]
        # Without a sign: a difference that is too large for 64 bits would else be anything.
        away = np.uint64(value) - np.uint64(lowest[column])
        if away < np.uint64(span[column]):
            code = whole[table[column] + np.int64(away)]
        else:
            near, first, end = np.float64(value), firsts[column], lasts[column]
            low, high = first, end
            while low < high:
                middle = (low + high) >> 1
                below = numbers[middle] < near
                if numbers[middle] == near:
                    # Rounding keeps the order, so only where the doubles are equal may the integers differ.
                    below = near < BEYOND and np.int64(near) < value
                if below:
                    low = middle + 1
                else:
                    high = middle
            place = 2 * (low - first)
            if low < end and numbers[low] == near and near < BEYOND and np.int64(near) == value:
                place += 1
            code = cuts[cut[column] + place]
        if codes[column, lanes[at]] != kind(-1):
            repeats[column] = True
        codes[column, lanes[at]] = kind(code)


@compiled
def take_doubles(
    lanes: Short, names: Short, there: Bytes, bit: int, where: Integers, values: Any, numbers: Doubles,
    firsts: Integers, lasts: Integers, cut: Integers, ordered: Integers, size: Integers,
    lowest: Integers, span: Integers, table: Integers, cuts: Short, whole: Short, codes: Any, repeats: Any,
) -> None:  # fmt: skip
    """Codes of doubles by halving the literals; NaN has the last one."""
    kind = codes.dtype.type
    for at in range(len(lanes)):
        column = where[names[at]]
        if column < 0 or not _is_there(there, bit, at):
            continue
        value, first, end = values[at], firsts[column], lasts[column]
        code = size[column] - 1
        if not np.isnan(value):
            low, high = first, end
            while low < high:
                middle = (low + high) >> 1
                if numbers[middle] < value:
                    low = middle + 1
                else:
                    high = middle
            place = 2 * (low - first)
            if low < end and numbers[low] == value:
                place += 1
            code = cuts[cut[column] + place]
        if codes[column, lanes[at]] != kind(-1):
            repeats[column] = True
        codes[column, lanes[at]] = kind(code)
