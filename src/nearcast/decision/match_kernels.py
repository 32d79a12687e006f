"""The kernels of matching: events sorted by a column, entries run over the events in their ranges, 64 lanes a step.

What is emitted are pairs (lane, form) in the order of the entries, which is that of the columns. Where names repeat
(`repeated` is not None), lanes with several values in a column are marked in it and looked at one by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.decision.match_emit import BESIDE, emit
from nearcast.decision.match_kept import compiled, inlined
from nearcast.decision.match_lanes import count, lowest, same16, within64
from nearcast.decision.match_programs import (
    CHECK,
    COLUMN_SHIFT,
    FORM_SHIFT,
    IN_AROUND,
    IN_POINTS,
    IN_RANGE,
    INVERTED_PRESENT,
    JOIN,
    LOAD,
    MEET,
    OUTSIDE_SHIFT,
    POP_MEET,
    PUSH,
    TEST_SHIFT,
    WANTED_SHIFT,
)

Integers = npt.NDArray[np.int64]
Short = npt.NDArray[np.int32]

ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


class Entries(NamedTuple):
    """Entries side by side: see `match_plan`."""

    low: Short
    high: Short
    form: Short
    first: Short
    last: Short
    tail: Short


class Names(NamedTuple):
    """What is emitted for a form: `names[first[form]]` and the `extra[form]` names behind it."""

    names: Short
    first: Integers
    extra: Integers


class Pairs(NamedTuple):
    """Room for pairs, side by side."""

    lanes: Short
    names: Short


@compiled
def run_straight(
    tests: int, entries: Any, begin: int, end: int, code: Any, points: Any, events: Any, first: int, repeated: Any,
    names: Any, pairs: Any, at: int,
) -> tuple[int, int]:  # fmt: skip
    """Runs entries whose programs are so many tests, all of which must hold.

    Returns the first entry that found too little room for its pairs, and where pairs end.
    """
    # Bounds are made of the codes' own kind: compared as wider numbers, fewer lanes would fit into a step.
    kind = events.codes.dtype.type
    for entry in range(begin, end):
        low, high = events.start[entries.low[entry]], events.start[entries.high[entry]]
        if low == high:
            continue
        form, program = entries.form[entry], entries.first[entry]
        own, extra = names.first[form], names.extra[form]
        # Room for the worst case is asked for once an entry, so that nothing is checked per pair.
        if at + (high - low) * (extra + 1) > len(pairs.lanes) - BESIDE:
            return entry, at
        last = program + tests
        if repeated is not None:
            last += entries.tail[entry]
        for lane in range(low, high, 64):
            # Lanes behind the range belong to other values of the column, and are masked out first.
            mask = ALL
            if high - lane < 64:
                mask = ALL >> np.uint64(64 - (high - lane))
            for instruction in range(program, last):
                word = code[instruction, 0]
                base = np.int64(word >> COLUMN_SHIFT) * events.stride + lane
                held = within64(events.codes, base, kind(code[instruction, 1]), kind(code[instruction, 2]))
                # 0 − bit is no bits or all of them: complements without a branch.
                held ^= np.uint64(0) - np.uint64(word >> FORM_SHIFT & 1)
                if repeated is not None:
                    held = _mended(held, mask, code[instruction], points, lane, events, first, repeated)
                mask &= held
            if mask != 0:
                for which in range(own, own + extra + 1):
                    at = emit(mask, events.order, lane, first, names.names[which], pairs, at)
    return end, at


@compiled
def run_trees(
    entries: Any, begin: int, end: int, code: Any, points: Any, events: Any, first: int, repeated: Any,
    names: Any, pairs: Any, at: int,
) -> tuple[int, int]:  # fmt: skip
    """Runs entries whose programs keep a stack of masks; returns as `run_straight` does."""
    kind, codes = events.codes.dtype.type, events.codes
    stack = events.stack
    for entry in range(begin, end):
        low, high = events.start[entries.low[entry]], events.start[entries.high[entry]]
        if low == high:
            continue
        form, program, last = entries.form[entry], entries.first[entry], entries.last[entry]
        own, extra = names.first[form], names.extra[form]
        if at + (high - low) * (extra + 1) > len(pairs.lanes) - BESIDE:
            return entry, at
        if repeated is not None:
            last += entries.tail[entry]
        for lane in range(low, high, 64):
            # `there` stays what it is, as complements and JOIN set bits of lanes that are not there.
            there = ALL
            if high - lane < 64:
                there = ALL >> np.uint64(64 - (high - lane))
            mask, depth = there, 0
            for instruction in range(program, last):
                word, bound, span = code[instruction, 0], code[instruction, 1], code[instruction, 2]
                operation = word & 7
                if operation <= JOIN:
                    base = np.int64(word >> COLUMN_SHIFT) * events.stride + lane
                    # What most tests are stands here; the rest is called.
                    if word >> TEST_SHIFT & 11 == IN_RANGE:
                        held = within64(codes, base, kind(bound), kind(span))
                        held ^= np.uint64(0) - np.uint64(word >> FORM_SHIFT & 1)
                    else:
                        # Tests that go lane by lane are spared the lanes that they can no longer change.
                        live = there
                        if operation == MEET:
                            live = there & mask
                        elif operation == JOIN:
                            live = there & ~mask
                        if word >> TEST_SHIFT & 3 == IN_POINTS:
                            held = _among(bound, span, live, points, base, codes)
                        elif word >> TEST_SHIFT & 3 == IN_RANGE:
                            held = within64(codes, base, kind(bound), kind(span))
                        elif word >> TEST_SHIFT & 3 == IN_AROUND:
                            held = _in_around(bound, live, events.near_starts, events.near, events.order[lane:])
                        else:
                            held = _in_row(events.rows[bound], live, events.order[lane:], first)
                        form = word >> FORM_SHIFT & 3
                        held ^= np.uint64(0) - np.uint64((form + 1) >> 1 & 1)
                        # A column without a gap needs no test of presence.
                        if form >= INVERTED_PRESENT and not events.complete[word >> COLUMN_SHIFT]:
                            present = within64(codes, base, kind(0), kind(-1))
                            held = held & present if form == INVERTED_PRESENT else held | ~present
                    if repeated is not None:
                        held = _mended(held, there, code[instruction], points, lane, events, first, repeated)
                    if operation == LOAD:
                        mask = held
                    elif operation == MEET:
                        mask &= held
                    else:
                        mask |= held
                elif operation == CHECK:
                    # Only at the top of an Every: within, an empty mask on the stack may yet be joined.
                    if mask & there == 0:
                        break
                elif operation == PUSH:
                    stack[depth] = mask
                    depth += 1
                else:
                    depth -= 1
                    mask = mask & stack[depth] if operation == POP_MEET else mask | stack[depth]
            mask &= there
            if mask != 0:
                for which in range(own, own + extra + 1):
                    at = emit(mask, events.order, lane, first, names.names[which], pairs, at)
    return end, at


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
def _mended(
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
            else:
                for point in range(low, low + span):
                    inside |= points[point] == code
            found |= inside != (outside == 1)
        # TRUE and not FALSE want some value, FALSE and not TRUE want none.
        if found == (wanted == 0 or wanted == 3):
            held |= np.uint64(1) << np.uint64(bit)
        marked &= marked - np.uint64(1)
    return held
