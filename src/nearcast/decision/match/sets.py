"""Sets of codes as maps of bits: a set of any size is one look a lane, or a few instructions for sixty-four lanes.

A map has a bit for each code of a column that has not too many, sixteen bits a word. All its words fit into two
registers of 512 bits, from which as many words as there are lanes are taken at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types

from nearcast.decision.integers import runs
from nearcast.decision.match.emit import REGISTER, WIDE_REGISTERS, chosen, halves
from nearcast.decision.match.kept import compiled, inlined
from nearcast.decision.match.lanes import PADDING, everywhere, inserted, loaded, lowest
from nearcast.decision.match.programs import COLUMN_SHIFT, FEWEST, IN_POINTS, JOIN, MAPPED_SHIFT, TEST_SHIFT

Codes = npt.NDArray[np.uint16]
Numbers = npt.NDArray[np.uint32]
Integers = npt.NDArray[np.int64]

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
