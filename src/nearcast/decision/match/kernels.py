"""The kernels of matching: events sorted by a column, entries run over the events in their ranges, 64 lanes a mask.

What is emitted are pairs (lane, form) in the order of the entries, which is that of the columns. Where names repeat
(`repeated` is not None), lanes with several values in a column are marked in it and looked at one by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.decision.match.emit import BESIDE, WIDE_REGISTERS, emit
from nearcast.decision.match.kept import compiled, inlined
from nearcast.decision.match.lanes import within64
from nearcast.decision.match.masks import ALL, combined, lanes_before, map_abreast, mended, range_abreast, tested
from nearcast.decision.match.programs import (
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

Short = npt.NDArray[np.int32]

ABREAST = 8
"""Masks of sixty-four lanes that a program is run for at once."""


class Entries(NamedTuple):
    """Entries side by side: see `match.plan`."""

    low: Short
    high: Short
    form: Short
    first: Short
    last: Short
    tail: Short


class Names(NamedTuple):
    """What is emitted for a form: `names[first[form]]` and the `extra[form]` names behind it."""

    names: Short
    first: Short
    extra: Short


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
            _run_abreast(program, last, code, points, lane, words, high, events, first, repeated, masks)
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
def _run_abreast(
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
                range_abreast(operation, code[instruction], lane, words, events, masks, top)
            elif WIDE_REGISTERS and repeated is None and plain and word >> MAPPED_SHIFT & 1:
                map_abreast(operation, code[instruction], points, lane, words, events, masks, top)
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
