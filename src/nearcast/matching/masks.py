"""Tests of programs: sixty-four lanes become a mask of those that pass, by ranges of codes or by maps of sets.

A map has a bit for each code of a column that has not too many, sixteen bits a word. All its words fit into two
registers of 512 bits, from which as many words as there are lanes are taken at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types

from nearcast.matching.programs import (
    COLUMN_SHIFT,
    FEWEST,
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
from nearcast.matching.simd import (
    PADDING,
    REGISTER,
    WIDE_REGISTERS,
    chosen,
    count,
    everywhere,
    halves,
    inserted,
    loaded,
    lowest,
    same16,
    within64,
)
from nearcast.model.arrays import Int32s, Integers, runs
from nearcast.runtime.jit_cache import compiled, inlined

Codes = npt.NDArray[np.uint16]
Numbers = npt.NDArray[np.uint32]

WORDS = 64
"""Words of a map."""

MOST = 16 * WORDS - 2
"""Codes that a column may have: the bits of the last two words' codes, several values and none, are never set."""


def map_sets(code: Numbers, points: Codes, sizes: Integers) -> Codes:
    """The points of small sets with the maps of the others behind them, to which the tests in `code` then refer."""
    word = code[:, 0]
    sets = ((word & 7) <= JOIN) & ((word >> TEST_SHIFT & 3) == IN_POINTS)
    large = np.flatnonzero(sets & (code[:, 2] >= FEWEST))
    # Only of these, for what is opaque has no column.
    large = large[sizes[word[large] >> COLUMN_SHIFT] <= MOST]
    sets[large] = False
    small = np.flatnonzero(sets)
    # Points that have become a map are nobody's any more.
    lows, spans, place = _in_order(code, small)
    starts = np.cumsum(spans) - spans
    kept = points[runs(lows, spans)]
    code[small, 1] = starts[place]
    kept = np.concatenate([kept, np.zeros(PADDING, np.uint16)])
    lows, spans, place = _in_order(code, large)
    maps = np.zeros(WORDS * len(lows), np.uint16)
    _set_bits(lows, spans, points, maps)
    code[large, 0] |= np.uint32(1 << MAPPED_SHIFT)
    code[large, 1] = len(kept) + WORDS * place
    return np.concatenate([kept, maps])


def _in_order(code: Numbers, tests: Integers) -> tuple[Integers, Integers, Integers]:
    """The first point and the count of each set of some tests, in the order of first use; and which one each test has.

    Programs run from the first to the last, so sets in that order are read from front to end.
    """
    lows, spans = code[tests, 1].astype(np.int64), code[tests, 2].astype(np.int64)
    _, first, which = np.unique(lows << 32 | spans, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return lows[first[order]], spans[first[order]], place[which]


@compiled
def _set_bits(lows: Integers, spans: Integers, points: Codes, maps: Codes) -> None:
    """Sets the bits of each set's points in its map."""
    for which in range(len(lows)):
        for index in range(lows[which], lows[which] + spans[which]):
            maps[WORDS * which + (points[index] >> 4)] |= np.uint16(1 << (points[index] & 15))


@inlined
def in_map(low: Any, code: Any, points: Any) -> Any:
    """Whether a code that the column has is in the set of a map: 0 or 1."""
    return np.uint64(points[low + (np.int64(code) >> 4)]) >> np.uint64(code & 15) & np.uint64(1)


@inlined
def mapped(low: Any, live: Any, points: Any, base: int, codes: Any) -> Any:
    """The lanes, at least of the live ones, whose codes are in the set of the map that begins at point `low`."""
    if WIDE_REGISTERS:
        return mapped64(low, points, base, codes)
    return mapped_singly(low, live, points, base, codes)


@inlined
def mapped_singly(low: Any, live: Any, points: Any, base: int, codes: Any) -> Any:
    """As `mapped`, on any processor: an index may be sent to one that has no such registers."""
    held = np.uint64(0)
    while live != 0:
        bit = lowest(live)
        code = np.int64(codes[np.uint64(base) + np.uint64(bit)])
        # What is beyond the map, no value and several, is looked up in its last word, whose last bits are not set.
        held |= in_map(low, code & 16 * WORDS - 1, points) << np.uint64(bit)
        live &= live - np.uint64(1)
    return held


@inserted
def mapped64(typing: Any, low: Any, points: Any, base: Any, codes: Any) -> Any:
    """As `mapped`, of all lanes at once."""
    signature = types.uint64(types.int64, points, types.int64, codes)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """Of each lane the word that its code's upper bits number, and of that the bit that the lower four number."""
        # Columns with wide codes have no maps.
        if codes.dtype.bitwidth != 16:
            return ir.Constant(ir.IntType(64), 0)
        low, _, base, _ = arguments
        points, lanes = (context.make_array(signature.args[at])(context, builder, arguments[at]).data for at in (1, 3))
        words = [loaded(builder, points, place, REGISTER) for place in halves(builder, low)]
        held = [_held(builder, words, loaded(builder, lanes, place, REGISTER)) for place in halves(builder, base)]
        all64 = ir.Constant(ir.VectorType(ir.IntType(32), 64), list(range(64)))
        return builder.bitcast(builder.shuffle_vector(*held, all64), ir.IntType(64))

    return signature, generate


def _held(builder: Any, words: Any, codes: Any) -> Any:
    """Of thirty-two codes, whether their bits are set."""
    four, fifteen, one, none = (
        everywhere(builder, ir.Constant(ir.IntType(16), value), codes.type) for value in (4, 15, 1, 0)
    )
    found = chosen(builder, words, builder.lshr(codes, four))
    bit = builder.shl(one, builder.and_(codes, fifteen))
    return builder.icmp_unsigned("!=", builder.and_(found, bit), none)


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
def range_simd(operation: int, instruction: Any, lane: int, words: int, events: Any, masks: Any, top: int) -> None:
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
def map_simd(
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
def _in_around(atom: int, live: Any, starts: Int32s, near: Int32s, order: Any) -> Any:
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
