"""The tests of programs: sixty-four lanes become a mask of those that pass, by any kind of test."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.decision.match.kept import compiled, inlined
from nearcast.decision.match.lanes import count, lowest, same16, within64
from nearcast.decision.match.programs import (
    COLUMN_SHIFT,
    FORM_SHIFT,
    IN_AROUND,
    IN_POINTS,
    IN_RANGE,
    INVERTED_PRESENT,
    JOIN,
    LOAD,
    MAPPED_SHIFT,
    MEET,
    OUTSIDE_SHIFT,
    TEST_SHIFT,
    WANTED_SHIFT,
)
from nearcast.decision.match.sets import in_map, mapped

Short = npt.NDArray[np.int32]

ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@inlined
def lanes_before(lane: int, high: int) -> Any:
    """The lanes of sixty-four that are before the range's end: those behind belong to other values of the column."""
    return ALL >> np.uint64(64 - (high - lane)) if high - lane < 64 else ALL


@inlined
def combined(operation: int, mask: Any, held: Any) -> Any:
    """What a mask becomes by a test's."""
    if operation == LOAD:
        return held
    return mask & held if operation == MEET else mask | held


@inlined
def range_abreast(operation: int, instruction: Any, lane: int, words: int, events: Any, masks: Any, top: int) -> None:
    """Tests by a range of codes, where nothing is missing: what most tests are."""
    kind, codes = events.codes.dtype.type, events.codes
    word, low, span = instruction[0], kind(instruction[1]), kind(instruction[2])
    base = np.int64(word >> COLUMN_SHIFT) * events.stride + lane
    inverted = _inverted(word)
    if operation == LOAD:
        for which in range(words):
            masks[top + which] = within64(codes, base + 64 * which, low, span) ^ inverted
    elif operation == MEET:
        for which in range(words):
            masks[top + which] &= within64(codes, base + 64 * which, low, span) ^ inverted
    else:
        for which in range(words):
            masks[top + which] |= within64(codes, base + 64 * which, low, span) ^ inverted


@inlined
def map_abreast(
    operation: int, instruction: Any, points: Any, lane: int, words: int, events: Any, masks: Any, top: int
) -> None:
    """Tests by a map, where nothing is missing."""
    word, low = instruction[0], np.int64(instruction[1])
    base = np.int64(word >> COLUMN_SHIFT) * events.stride + lane
    inverted = _inverted(word)
    for which in range(words):
        held = mapped(low, ALL, points, base + 64 * which, events.codes) ^ inverted
        masks[top + which] = combined(operation, masks[top + which], held)


@inlined
def _inverted(word: Any) -> Any:
    """All bits if a test is of what a range or a set has not, else none: complements without a branch."""
    return np.uint64(0) - np.uint64(((word >> FORM_SHIFT & 3) + 1) >> 1 & 1)


@inlined
def tested(mask: Any, there: Any, instruction: Any, points: Any, lane: int, events: Any, first: int) -> Any:
    """The lanes that pass a test of any kind."""
    kind, codes = events.codes.dtype.type, events.codes
    word, bound, span = instruction[0], instruction[1], instruction[2]
    operation, test = word & 7, word >> TEST_SHIFT & 3
    base = np.int64(word >> COLUMN_SHIFT) * events.stride + lane
    # Tests that go lane by lane are spared the lanes that they can no longer change.
    live = there
    if operation == MEET:
        live = there & mask
    elif operation == JOIN:
        live = there & ~mask
    if word >> MAPPED_SHIFT & 1:
        held = mapped(np.int64(bound), live, points, base, codes)
    elif test == IN_RANGE:
        held = within64(codes, base, kind(bound), kind(span))
    elif test == IN_POINTS:
        held = _among(bound, span, live, points, base, codes)
    elif test == IN_AROUND:
        held = _in_around(bound, live, events.near_starts, events.near, events.order[lane:])
    else:
        held = _in_row(events.rows[bound], live, events.order[lane:], first)
    held ^= _inverted(word)
    form = word >> FORM_SHIFT & 3
    if form >= INVERTED_PRESENT and not events.complete[word >> COLUMN_SHIFT]:
        present = within64(codes, base, kind(0), kind(-1))
        held = held & present if form == INVERTED_PRESENT else held | ~present
    return held


@inlined
def _in_row(row: Any, live: Any, order: Any, first: int) -> Any:
    """The live lanes whose bits are set in the row of an opaque literal."""
    held = np.uint64(0)
    while live != 0:
        bit = lowest(live)
        own = first + np.int64(order[bit])
        held |= (row[own >> 6] >> np.uint64(own & 63) & np.uint64(1)) << np.uint64(bit)
        live &= live - np.uint64(1)
    return held


@inlined
def _in_around(atom: int, live: Any, starts: Short, near: Short, order: Any) -> Any:
    """The live lanes that are near an atom: each is looked up among those that are, which are few."""
    held = np.uint64(0)
    end = starts[atom + 1]
    while live != 0 and starts[atom] < end:
        bit = lowest(live)
        low, high = starts[atom], end
        while low < high:
            middle = (low + high) >> 1
            if near[middle] < order[bit]:
                low = middle + 1
            else:
                high = middle
        held |= np.uint64(low < end and near[low] == order[bit]) << np.uint64(bit)
        live &= live - np.uint64(1)
    return held


@inlined
def _among(low: int, span: int, live: Any, points: Any, base: int, codes: Any) -> Any:
    """The lanes whose codes are among `span` points: lane by lane where few are live, else point by point."""
    kind = codes.dtype.type
    held = np.uint64(0)
    # Sixty-four lanes beside one point take a quarter of what one lane beside sixteen points does, measured.
    if 4 * count(live) * ((span + 15) >> 4) < span:
        # Sixteen points are looked at at once; those behind the last are of another atom and do not count.
        behind = np.uint64(0xFFFF) >> np.uint64(-span & 15)
        last = low + ((span - 1) & ~15)
        while live != 0:
            bit = lowest(live)
            code = codes[np.uint64(base) + np.uint64(bit)]
            found = same16(points, last, code) & behind
            for point in range(low, last, 16):
                found |= same16(points, point, code)
            held |= np.uint64(found != 0) << np.uint64(bit)
            live &= live - np.uint64(1)
    else:
        for point in range(low, low + span):
            held |= within64(codes, base, points[point], kind(1))
    return held


@compiled
def mended(
    held: Any, live: Any, instruction: Any, points: Any, lane: int, events: Any, first: int, repeated: Any
) -> Any:
    """The same with the live lanes that have several values in the column: some value must satisfy the test."""
    kind = events.codes.dtype.type
    word, low, span = instruction[0], instruction[1], instruction[2]
    column, test = np.int64(word >> COLUMN_SHIFT), word >> TEST_SHIFT & 3
    which = repeated.which[column]
    if test > IN_POINTS or which < 0:
        return held
    # The mark stands in place of the code of a lane with several values: what the test said of it means nothing.
    marked = live & within64(events.codes, column * events.stride + lane, kind(repeated.mark), kind(1))
    held &= ~marked
    outside, wanted = word >> OUTSIDE_SHIFT & 1, word >> WANTED_SHIFT & 3
    while marked != 0:
        bit = lowest(marked)
        own = first + np.int64(events.order[lane + bit])
        found = False
        for index in range(repeated.starts[which, own], repeated.starts[which, own + 1]):
            code = repeated.values[index]
            inside = False
            if test == IN_RANGE:
                inside = low <= code < low + span
            elif word >> MAPPED_SHIFT & 1:
                inside = in_map(np.int64(low), code, points) == 1
            else:
                for point in range(low, low + span):
                    inside |= points[point] == code
            found |= inside != (outside == 1)
        # TRUE and not FALSE want some value, FALSE and not TRUE want none.
        if found == (wanted == 0 or wanted == 3):
            held |= np.uint64(1) << np.uint64(bit)
        marked &= marked - np.uint64(1)
    return held
