"""The kernels of matching: events sorted by a column, entries run over the events in their ranges, 64 lanes a step.

What is emitted are pairs (lane, form) in the order of the entries, which is that of the columns. Where names repeat
(`repeated` is not None), lanes with several values in a column are marked in it and looked at one by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.decision.match_flat import DEEPEST
from nearcast.decision.match_lanes import compiled, count, lowest, within64
from nearcast.decision.match_programs import (
    COLUMN_SHIFT,
    FORM_SHIFT,
    IN_POINTS,
    IN_RANGE,
    INVERTED_PRESENT,
    JOIN,
    LOAD,
    MEET,
    OUTSIDE_SHIFT,
    PLAIN_OR_MISSING,
    POP_JOIN,
    POP_MEET,
    PUSH,
    TEST_SHIFT,
    WANTED_SHIFT,
)

Integers = npt.NDArray[np.int64]
Short = npt.NDArray[np.int32]

ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


class Repeated(NamedTuple):
    """The columns in which lanes have several values: see `match_codes.Coded`; `mark` is the code of such a lane."""

    which: Integers
    starts: Integers
    values: Any
    mark: int


class Events(NamedTuple):
    """A block of events sorted by a column: lane `order[r]` is r-th, those with code v are `start[v]` … `start[v + 1]`.

    `codes` are the columns in this order, one behind the other, `stride` apart. `rows` are those of opaque literals,
    by lane.
    """

    start: Short
    order: Short
    codes: Any
    stride: int
    rows: npt.NDArray[np.uint64]


class Entries(NamedTuple):
    """Entries side by side: see `match_plan`."""

    low: Short
    high: Short
    form: Short
    first: Short
    last: Short
    tail: Short


@compiled
def sort(codes: Any, column: int, first: int, lanes: int, size: int, needed: Short, events: Any, repeated: Any) -> int:
    """Sorts the lanes from `first` on by a column's codes below `size`, and the needed columns with them.

    Returns how many there are: lanes without a value are left out, lanes with several stand under each.
    """
    start, order, own = events.start, events.order, codes[column]
    for code in range(size + 2):
        start[code] = 0
    for lane in range(first, first + lanes):
        if own[lane] < size:
            start[own[lane] + 1] += 1
    if repeated is not None:
        _count_repeated(column, first, lanes, start, repeated)
    for code in range(size + 1):
        start[code + 1] += start[code]
    total = start[size]
    # Each count moves on as its lanes are placed, and is then what the next one was: all are shifted back by one.
    for lane in range(first, first + lanes):
        code = own[lane]
        if code < size:
            order[start[code]] = lane - first
            start[code] += 1
    if repeated is not None:
        _place_repeated(column, first, lanes, start, order, repeated)
    for code in range(size, 0, -1):
        start[code] = start[code - 1]
    start[0] = 0
    for which in needed:
        base, source = which * events.stride, codes[which]
        for rank in range(total):
            events.codes[base + rank] = source[first + order[rank]]
    return total


@compiled
def _count_repeated(column: int, first: int, lanes: int, start: Short, repeated: Any) -> None:
    which = repeated.which[column]
    if which >= 0:
        for lane in range(first, first + lanes):
            begin, end = repeated.starts[which, lane], repeated.starts[which, lane + 1]
            if end - begin > 1:
                for index in range(begin, end):
                    start[repeated.values[index] + 1] += 1


@compiled
def _place_repeated(column: int, first: int, lanes: int, start: Short, order: Short, repeated: Any) -> None:
    which = repeated.which[column]
    if which >= 0:
        for lane in range(first, first + lanes):
            begin, end = repeated.starts[which, lane], repeated.starts[which, lane + 1]
            if end - begin > 1:
                for index in range(begin, end):
                    order[start[repeated.values[index]]] = lane - first
                    start[repeated.values[index]] += 1


@compiled
def as_they_are(codes: Any, first: int, lanes: int, needed: Short, events: Any) -> None:
    """The lanes from `first` on in their own order, for entries that look at all events."""
    for lane in range(lanes):
        events.order[lane] = lane
    for which in needed:
        base, source = which * events.stride, codes[which]
        for lane in range(lanes):
            events.codes[base + lane] = source[first + lane]
    events.start[0], events.start[1] = 0, lanes


@compiled
def run_straight(
    tests: int, entries: Any, begin: int, end: int, code: Any, points: Any, events: Any, first: int, repeated: Any,
    lanes: Short, forms: Short, at: int,
) -> tuple[int, int]:  # fmt: skip
    """Runs entries whose programs are so many tests, all of which must hold.

    Returns the first entry that found too little room for its pairs, and where pairs end.
    """
    kind = events.codes.dtype.type
    for entry in range(begin, end):
        low, high = events.start[entries.low[entry]], events.start[entries.high[entry]]
        if low == high:
            continue
        if at + (high - low) > len(lanes):
            return entry, at
        form, program = entries.form[entry], entries.first[entry]
        last = program + tests
        if repeated is not None:
            last += entries.tail[entry]
        for lane in range(low, high, 64):
            mask = ALL
            if high - lane < 64:
                mask = ALL >> np.uint64(64 - (high - lane))
            for instruction in range(program, last):
                word = code[instruction, 0]
                base = np.int64(word >> COLUMN_SHIFT) * events.stride + lane
                held = within64(events.codes, base, kind(code[instruction, 1]), kind(code[instruction, 2]))
                held ^= np.uint64(0) - np.uint64(word >> FORM_SHIFT & 1)
                if repeated is not None:
                    held = _mended(held, mask, code[instruction], points, lane, events, first, repeated)
                mask &= held
            while mask != 0:
                lanes[at] = first + events.order[lane + lowest(mask)]
                forms[at] = form
                at += 1
                mask &= mask - np.uint64(1)
    return end, at


@compiled
def run_trees(
    entries: Any, begin: int, end: int, code: Any, points: Any, events: Any, first: int, repeated: Any,
    lanes: Short, forms: Short, at: int,
) -> tuple[int, int]:  # fmt: skip
    """Runs entries whose programs keep a stack of masks; returns as `run_straight` does."""
    stack = np.empty(DEEPEST, np.uint64)
    for entry in range(begin, end):
        low, high = events.start[entries.low[entry]], events.start[entries.high[entry]]
        if low == high:
            continue
        if at + (high - low) > len(lanes):
            return entry, at
        form, program, last = entries.form[entry], entries.first[entry], entries.last[entry]
        if repeated is not None:
            last += entries.tail[entry]
        for lane in range(low, high, 64):
            all_ = ALL
            if high - lane < 64:
                all_ = ALL >> np.uint64(64 - (high - lane))
            mask, depth = all_, 0
            for instruction in range(program, last):
                word = code[instruction, 0]
                operation = word & 7
                if operation <= JOIN:
                    live = all_
                    if operation == MEET:
                        live &= mask
                    elif operation == JOIN:
                        live &= ~mask
                    held = _held(code[instruction], live, points, lane, events, first)
                    if repeated is not None:
                        held = _mended(held, live, code[instruction], points, lane, events, first, repeated)
                    if operation == LOAD:
                        mask = held
                    elif operation == MEET:
                        mask &= held
                    else:
                        mask |= held
                elif operation == PUSH:
                    stack[depth] = mask
                    depth += 1
                elif operation == POP_MEET:
                    depth -= 1
                    mask &= stack[depth]
                elif operation == POP_JOIN:
                    depth -= 1
                    mask |= stack[depth]
                elif mask & all_ == 0:
                    break
            mask &= all_
            while mask != 0:
                lanes[at] = first + events.order[lane + lowest(mask)]
                forms[at] = form
                at += 1
                mask &= mask - np.uint64(1)
    return end, at


@compiled
def _held(instruction: Any, live: Any, points: Any, lane: int, events: Any, first: int) -> Any:
    """The lanes for which a test holds; of those that are not live nothing is said."""
    kind = events.codes.dtype.type
    word, low, span = instruction[0], instruction[1], instruction[2]
    base = np.int64(word >> COLUMN_SHIFT) * events.stride + lane
    test = word >> TEST_SHIFT & 3
    if test == IN_RANGE:
        held = within64(events.codes, base, kind(low), kind(span))
    elif test == IN_POINTS:
        held = _among(low, span, live, points, base, events)
    else:
        held = np.uint64(0)
        while live != 0:
            bit = lowest(live)
            own = first + events.order[lane + bit]
            held |= (events.rows[low, own >> 6] >> np.uint64(own & 63) & np.uint64(1)) << np.uint64(bit)
            live &= live - np.uint64(1)
        return held
    form = word >> FORM_SHIFT & 3
    if form >= INVERTED_PRESENT:
        absent = ~within64(events.codes, base, kind(0), kind(-1))
        return held | absent if form == PLAIN_OR_MISSING else ~(held | absent)
    return held ^ (np.uint64(0) - np.uint64(form))


@compiled
def _among(low: int, span: int, live: Any, points: Any, base: int, events: Any) -> Any:
    """The lanes whose codes are among `span` points: lane by lane where few are live, else point by point."""
    kind = events.codes.dtype.type
    held = np.uint64(0)
    if count(live) * (1 + (span >> 6)) < span:
        while live != 0:
            bit = lowest(live)
            code = events.codes[base + bit]
            for point in range(low, low + span, 64):
                found = within64(points, point, code, kind(1))
                if low + span - point < 64:
                    found &= (np.uint64(1) << np.uint64(low + span - point)) - np.uint64(1)
                if found != 0:
                    held |= np.uint64(1) << np.uint64(bit)
            live &= live - np.uint64(1)
    else:
        for point in range(low, low + span):
            held |= within64(events.codes, base, points[point], kind(1))
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
    marked = live & within64(events.codes, column * events.stride + lane, kind(repeated.mark), kind(1))
    held &= ~marked
    outside, wanted = word >> OUTSIDE_SHIFT & 1, word >> WANTED_SHIFT & 3
    while marked != 0:
        bit = lowest(marked)
        own = first + events.order[lane + bit]
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
