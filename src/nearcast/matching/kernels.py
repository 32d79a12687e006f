"""The compiled loops of matching: events sorted by a column, entries run over their ranges, pairs of parts made one.

What is emitted are pairs (lane, form) in the order of the entries, which is that of the columns. Where names repeat
(`repeated` is not None), lanes with several values in a column are marked in it and looked at one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.matching.bitset import MatchedPairs
from nearcast.matching.masks import ALL, combined, lanes_before, map_simd, mended, range_simd, tested
from nearcast.matching.programs import (
    CHECK,
    COLUMN_SHIFT,
    FORM_SHIFT,
    IN_RANGE,
    INVERTED_PRESENT,
    JOIN,
    MAPPED_SHIFT,
    POP_MEET,
    PUSH,
    TEST_SHIFT,
)
from nearcast.matching.simd import BESIDE, WIDE_REGISTERS, emit, within64
from nearcast.model.arrays import Int32s, Integers
from nearcast.runtime.jit_cache import compiled, inlined

Levels = npt.NDArray[np.int8]


def numbered(found: Sequence[tuple[MatchedPairs, Int32s]]) -> MatchedPairs:
    """Each part's pairs with its numbers for groups, less those below zero; the arrays of a single part are reused."""
    parts = [(_arrays(pairs), numbers) for pairs, numbers in found]
    [(lanes, groups, levels), _], *others = parts
    if others:
        # Memory that nobody had before costs more than all that is written to it here: it is taken once.
        size = sum(len(own) for (own, *_), _ in parts)
        lanes, groups, levels = np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.int8)
    count = 0
    for arrays, numbers in parts:
        count = append(*arrays, numbers, lanes, groups, levels, count)
    return MatchedPairs(lanes[:count], groups[:count], levels[:count])


def _arrays(pairs: MatchedPairs) -> tuple[Int32s, Int32s, Levels]:
    # Also to be written: one level for all pairs may be one byte that is shown as many, which nobody may write.
    kinds = (pairs.lanes, np.int32), (pairs.groups, np.int32), (pairs.levels, np.int8)
    lanes, groups, levels = (np.require(column, kind, ["C", "W"]) for column, kind in kinds)
    return lanes, groups, levels


@compiled
def append(
    lanes: Int32s, groups: Int32s, levels: Levels, numbers: Int32s,
    own_lanes: Int32s, own_groups: Int32s, own_levels: Levels, at: int,
) -> int:  # fmt: skip
    """Writes pairs behind others, or over themselves; returns where they end."""
    for pair in range(len(groups)):
        number = numbers[groups[pair]]
        own_lanes[at] = lanes[pair]
        own_groups[at] = number
        own_levels[at] = levels[pair]
        at += 1 if number >= 0 else 0
    return at


ABREAST = 8
"""Masks of sixty-four lanes that a program is run for at once."""


class KernelEntries(NamedTuple):
    """Entries side by side: see `matching.plan`."""

    low: Int32s
    high: Int32s
    form: Int32s
    first: Int32s
    last: Int32s
    tail: Int32s


class EmittedNames(NamedTuple):
    """What is emitted for a form: `names[first[form]]` and the `extra[form]` names behind it."""

    names: Int32s
    first: Int32s
    extra: Int32s


class PairBuffer(NamedTuple):
    """Room for pairs, side by side."""

    lanes: Int32s
    names: Int32s


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
            mask = lanes_before(lane, high)
            for instruction in range(program, last):
                word = code[instruction, 0]
                base = np.int64(word >> COLUMN_SHIFT) * events.stride + lane
                held = within64(events.codes, base, kind(code[instruction, 1]), kind(code[instruction, 2]))
                # No bits or all of them: a complement without a branch.
                held ^= np.uint64(0) - np.uint64(word >> FORM_SHIFT & 1)
                if repeated is not None:
                    held = mended(held, mask, code[instruction], points, lane, events, first, repeated)
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
    """Runs entries whose programs keep a stack of masks, `ABREAST` at a time; returns as `run_straight` does."""
    masks = events.stack
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
        if high - low <= 64:
            mask = _run_alone(program, last, code, points, low, high, events, first, repeated)
            if mask != 0:
                for which in range(own, own + extra + 1):
                    at = emit(mask, events.order, low, first, names.names[which], pairs, at)
            continue
        for lane in range(low, high, 64 * ABREAST):
            words = min(ABREAST, (high - lane + 63) >> 6)
            _run_simd(program, last, code, points, lane, words, high, events, first, repeated, masks)
            for word in range(words):
                mask = masks[word]
                if mask != 0:
                    for which in range(own, own + extra + 1):
                        at = emit(mask, events.order, lane + 64 * word, first, names.names[which], pairs, at)
    return end, at


@inlined
def _run_alone(
    program: int, last: int, code: Any, points: Any, lane: int, high: int, events: Any, first: int, repeated: Any
) -> Any:
    """The lanes from `lane` on, at most sixty-four, that pass a program."""
    kind, codes, stack = events.codes.dtype.type, events.codes, events.stack
    # `there` stays what it is, as complements and JOIN set bits of lanes that are not there.
    there = lanes_before(lane, high)
    mask, depth = there, 0
    for instruction in range(program, last):
        word = code[instruction, 0]
        operation = word & 7
        if operation <= JOIN:
            # What most tests are stands here, in the fewest instructions.
            if word >> TEST_SHIFT & 11 == IN_RANGE:
                base = np.int64(word >> COLUMN_SHIFT) * events.stride + lane
                held = within64(codes, base, kind(code[instruction, 1]), kind(code[instruction, 2]))
                held ^= np.uint64(0) - np.uint64(word >> FORM_SHIFT & 1)
            else:
                held = tested(mask, there, code[instruction], points, lane, events, first)
            if repeated is not None:
                held = mended(held, there, code[instruction], points, lane, events, first, repeated)
            mask = combined(operation, mask, held)
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
    return mask & there


@inlined
def _run_simd(
    program: int, last: int, code: Any, points: Any, lane: int, words: int, high: int, events: Any, first: int,
    repeated: Any, masks: Any,
) -> None:  # fmt: skip
    """Runs a program for so many masks: to look up what to do takes longer than to do it for one."""
    final, top = lanes_before(lane + 64 * (words - 1), high), 0
    for which in range(words):
        masks[which] = ALL
    for instruction in range(program, last):
        word = code[instruction, 0]
        operation = word & 7
        if operation <= JOIN:
            # A column without a gap needs no test of presence.
            plain = word >> FORM_SHIFT & 3 < INVERTED_PRESENT or events.complete[word >> COLUMN_SHIFT]
            if repeated is None and plain and word >> TEST_SHIFT & 3 == IN_RANGE:
                range_simd(operation, code[instruction], lane, words, events, masks, top)
            elif WIDE_REGISTERS and repeated is None and plain and word >> MAPPED_SHIFT & 1:
                map_simd(operation, code[instruction], points, lane, words, events, masks, top)
            else:
                for which in range(words):
                    here, mask = lane + 64 * which, masks[top + which]
                    there = final if which == words - 1 else ALL
                    held = tested(mask, there, code[instruction], points, here, events, first)
                    if repeated is not None:
                        held = mended(held, there, code[instruction], points, here, events, first, repeated)
                    masks[top + which] = combined(operation, mask, held)
        elif operation == CHECK:
            left = masks[words - 1] & final
            for which in range(words - 1):
                left |= masks[which]
            if left == 0:
                break
        elif operation == PUSH:
            # What follows is a LOAD, so that nothing need be copied.
            top += ABREAST
        else:
            top -= ABREAST
            for which in range(top, top + words):
                above = masks[which + ABREAST]
                masks[which] = masks[which] & above if operation == POP_MEET else masks[which] | above
    masks[words - 1] &= final


class MultiValuedColumns(NamedTuple):
    """The columns in which lanes have several values, as `Coded` has them; `mark` is the code of such a lane."""

    which: Integers
    starts: Integers
    values: Any
    mark: int


class SortedEvents(NamedTuple):
    """A block of events sorted by a column: lane `order[r]` is r-th, those with code v are `start[v]` … `start[v + 1]`.

    `codes` are the columns in this order, one behind the other, `stride` apart. `rows` are those of opaque literals,
    by lane of the batch, `near` the block's lanes near atom a from `near_starts[a]` on. `complete` are the columns in
    which every lane has a value. `stack` is work space.
    """

    start: Int32s
    order: npt.NDArray[np.uint16]
    codes: Any
    stride: int
    complete: npt.NDArray[np.bool_]
    rows: npt.NDArray[np.uint64]
    near_starts: Int32s
    near: Int32s
    stack: npt.NDArray[np.uint64]


@compiled
def sort(codes: Any, column: int, first: int, lanes: int, size: int, needed: Int32s, events: Any, repeated: Any) -> int:
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
        source, target = codes[which, first:], events.codes[which * events.stride :]
        for rank in range(total):
            target[rank] = source[order[rank]]
    return total


@compiled
def _count_repeated(column: int, first: int, lanes: int, start: Int32s, repeated: Any) -> None:
    which = repeated.which[column]
    if which >= 0:
        for lane in range(first, first + lanes):
            begin, end = repeated.starts[which, lane], repeated.starts[which, lane + 1]
            if end - begin > 1:
                for index in range(begin, end):
                    start[repeated.values[index] + 1] += 1


@compiled
def _place_repeated(column: int, first: int, lanes: int, start: Int32s, order: Int32s, repeated: Any) -> None:
    which = repeated.which[column]
    if which >= 0:
        for lane in range(first, first + lanes):
            begin, end = repeated.starts[which, lane], repeated.starts[which, lane + 1]
            if end - begin > 1:
                for index in range(begin, end):
                    order[start[repeated.values[index]]] = lane - first
                    start[repeated.values[index]] += 1


@compiled
def gather(codes: Any, lanes: Int32s, first: int, needed: Int32s, events: Any) -> None:
    """These lanes in this order, however often each: `events.start` says already where which of them are."""
    for rank in range(len(lanes)):
        events.order[rank] = lanes[rank]
    for which in needed:
        base, source = which * events.stride, codes[which]
        for rank in range(len(lanes)):
            events.codes[base + rank] = source[first + lanes[rank]]


@compiled
def as_they_are(codes: Any, first: int, lanes: int, needed: Int32s, events: Any) -> None:
    """The lanes from `first` on in their own order, for entries that look at all events."""
    for lane in range(lanes):
        events.order[lane] = lane
    for which in needed:
        base, source = which * events.stride, codes[which]
        for lane in range(lanes):
            events.codes[base + lane] = source[first + lane]
    events.start[0], events.start[1] = 0, lanes
