"""From filters to entries, in compiled code: which events to look at for each form, and what to test of these.

An entry is a column, a range of its codes, a form — a filter and a level — and a program. An event that has a code in
the range and passes the program has at least that level. Forms without a cover have one entry that looks at all events.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.decision.match.asked import NEARBY, OUTSIDE, POINTS
from nearcast.decision.match.cover import NO, OPEN, Tests, apart, cover, cover_room, know
from nearcast.decision.match.flat import FALSE
from nearcast.decision.match.kept import compiled
from nearcast.decision.match.programs import (
    FORM_SHIFT,
    INVERTED,
    INVERTED_PRESENT,
    MEET,
    Program,
    append_test,
    straighten,
    write,
)
from nearcast.decision.match.reading import Reading
from nearcast.decision.match.trees import LEAF, draft_room, plant, tree_room

Integers = npt.NDArray[np.int64]

EVERYWHERE, AROUND = -1, -2
"""The columns of an entry that looks at all events, and of one that looks at those near an atom: codes are atoms."""

COLUMN, LOW, HIGH, FORM, FIRST, LAST, STRAIGHT, TAIL = range(8)
"""The fields of an entry: `STRAIGHT` is the number of tests of a program without branches, or −1; `TAIL` how many
instructions behind the program's last only count where names repeat."""

MOST_EXTRAS = 32
MOST_WORK = 50_000
"""Forms whose programs would be larger than this, one per literal of the cover, share one that tests everything."""


class Plan(NamedTuple):
    """Entries (see `COLUMN`), their programs, and forms: (root, level, whether it may give an event twice).

    `literals` are the opaque ones, in the order of their rows.
    """

    entries: Integers
    code: npt.NDArray[np.uint32]
    forms: Integers
    literals: Integers


def plan(reading: Reading, tests: Tests, sizes: Integers, absent: int) -> Plan:
    """The plan of all roots of a reading; `sizes` are the columns' numbers of codes, `absent` the code of no value."""
    tokens, starts = np.array(reading.tokens, np.int64), np.array(reading.starts, np.int64)
    classes, owns = np.array([*reading.classes, 0], np.int64), np.array(reading.class_starts, np.int64)
    most = int(np.diff(starts).max(initial=1)) + 1
    tree, draft, room = tree_room(most), draft_room(most), cover_room(most)
    rows = np.full(4 * len(tests.kind) + 1, -1, np.int64)
    rows[-1] = 0
    filled = np.zeros(3, np.int64)
    entries, forms = np.zeros((1024, 8), np.int64), np.zeros((1024, 3), np.int64)
    code = np.zeros((4096, 3), np.uint32)
    done = 0
    while True:
        program = _program_room(code, rows, most)
        done = _plan(
            done, tokens, starts, classes, owns, tests, sizes, absent, tree, draft, room, program,
            entries, forms, filled,
        )  # fmt: skip
        if done == len(starts) - 1:
            break
        entries, forms, code = (np.concatenate([array, np.zeros_like(array)]) for array in (entries, forms, code))
    used = np.flatnonzero(rows[:-1] >= 0)
    literals = used[np.argsort(rows[used])]
    return Plan(entries[: filled[0]], code[: filled[1]], forms[: filled[2]], literals)


def _program_room(code: npt.NDArray[np.uint32], rows: Integers, most: int) -> Program:
    size = most + MOST_EXTRAS
    return Program(
        code,
        rows,
        np.zeros((4 * size + 8, 2), np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, np.float64),
        np.zeros(size, np.float64),
        np.zeros(MOST_EXTRAS, np.int64),
    )


@compiled
def _plan(
    first: int, tokens: Integers, starts: Integers, classes: Integers, owns: Integers, tests: Any, sizes: Integers,
    absent: int, tree: Any, draft: Any, room: Any, program: Any, entries: Integers, forms: Integers, filled: Integers,
) -> int:  # fmt: skip
    """Plans roots from `first` on; returns the first that found too little room."""
    for root in range(first, len(starts) - 1):
        entered, written, formed = filled[0], filled[1], filled[2]
        size = plant(tokens, starts[root], starts[root + 1], classes, owns[root], draft, tree)
        level = -1
        while size > 0:
            following = 1 << 30
            for node in range(size):
                if tree.kind[node] == LEAF and level < tree.level[node] < following:
                    following = tree.level[node]
            if following == 1 << 30:
                break
            level = following
            count = cover(tree, size, level, tests, room)
            if count < 0:
                continue
            shared = count == 0 or count * size > MOST_WORK
            left = min(len(program.code) - filled[1], len(entries) - filled[0])
            if filled[2] == len(forms) or _needed(count, size, shared, tests, room) > left:
                filled[0], filled[1], filled[2] = entered, written, formed
                return root
            forms[filled[2], 0], forms[filled[2], 1], forms[filled[2], 2] = root, level, 0
            if shared:
                _shared(count, size, tests, sizes, tree, room, program, entries, forms, filled)
            else:
                _split(count, size, tests, sizes, absent, tree, room, program, entries, forms, filled)
            filled[2] += 1
    return len(starts) - 1


@compiled
def _needed(count: int, size: int, shared: bool, tests: Any, room: Any) -> int:
    """The most instructions or entries that a form may take."""
    programs = 1 if shared else count
    needed = programs * 3 * (3 * size + 2 * min(count, MOST_EXTRAS) + 8)
    ranges = 2
    for turn in range(count):
        atom = room.chosen[turn] >> 2
        ranges += 2 + (tests.high[atom] - tests.low[atom] if tests.kind[atom] == POINTS else 0)
    return max(needed, ranges)


@compiled
def _shared(
    count: int, size: int, tests: Any, sizes: Integers, tree: Any, room: Any, program: Any,
    entries: Integers, forms: Integers, filled: Integers,
) -> None:  # fmt: skip
    """One program of the whole form, for all events or for those that some literal of the cover selects."""
    for node in range(size):
        room.known[node] = OPEN if room.alive[node] else NO
    first = filled[1]
    last = write(tree, size, tests, room, 0, program, first)
    filled[1] = last
    if count == 0:
        _enter(EVERYWHERE, 0, 1, filled[2], first, last, -1, 0, entries, filled)
    for turn in range(count):
        _enter_all(room.chosen[turn], tests, sizes, filled[2], first, last, -1, 0, entries, filled)
    forms[filled[2], 2] = 1 if count > 1 else 0


@compiled
def _split(
    count: int, size: int, tests: Any, sizes: Integers, absent: int, tree: Any, room: Any, program: Any,
    entries: Integers, forms: Integers, filled: Integers,
) -> None:  # fmt: skip
    """For each literal of the cover its own program: what is left of the form where it holds, none before it."""
    for turn in range(count):
        if know(tree, size, turn, tests, room) == NO:
            continue
        extras = 0
        for before in range(turn):
            if tests.kind[room.chosen[before] >> 2] == NEARBY:
                # What is not near has no codes to be tested by: the event is given twice, too.
                forms[filled[2], 2] = 1
            elif not apart(room.chosen[before], room.chosen[turn], tests):
                if extras < MOST_EXTRAS:
                    program.extra[extras] = room.chosen[before] ^ 2
                extras += 1
        if extras > MOST_EXTRAS:
            # Too many: the event is given twice instead, and what is double is dropped in the end.
            extras, forms[filled[2], 2] = 0, 1
        first = filled[1]
        last = write(tree, size, tests, room, extras, program, first)
        plain = straighten(program, first, last, absent)
        if plain >= 0:
            last = first + plain
        tail = 0
        if (room.chosen[turn] & 3) == FALSE and tests.kind[room.chosen[turn] >> 2] != NEARBY:
            # Among several values one is in the range, and yet the atom may be TRUE by another.
            tail = append_test(MEET, room.chosen[turn], tests, program, last) - last
            if program.code[last, 0] >> FORM_SHIFT & 3 == INVERTED_PRESENT:
                # What stands in the range is there, and straight tests know only the plain complement.
                program.code[last, 0] -= INVERTED_PRESENT - INVERTED << FORM_SHIFT
        filled[1] = last + tail
        _enter_all(room.chosen[turn], tests, sizes, filled[2], first, last, plain, tail, entries, filled)


@compiled
def _enter_all(
    literal: int, tests: Any, sizes: Integers, form: int, first: int, last: int, plain: int, tail: int,
    entries: Integers, filled: Integers,
) -> None:  # fmt: skip
    """Adds an entry for each range of codes with which a literal of a cover may hold."""
    atom = literal >> 2
    column, low, high = tests.column[atom], tests.low[atom], tests.high[atom]
    if tests.kind[atom] == NEARBY:
        _enter(AROUND, low, low + 1, form, first, last, plain, tail, entries, filled)
    elif tests.kind[atom] == POINTS:
        index = low
        while index < high:
            start = tests.points[index]
            end = start + 1
            index += 1
            while index < high and tests.points[index] == end:
                end += 1
                index += 1
            _enter(column, start, end, form, first, last, plain, tail, entries, filled)
    elif (literal & 3) == FALSE and tests.kind[atom] != OUTSIDE:
        if low > 0:
            _enter(column, 0, low, form, first, last, plain, tail, entries, filled)
        if high < sizes[column]:
            _enter(column, high, sizes[column], form, first, last, plain, tail, entries, filled)
    elif low < high:
        _enter(column, low, high, form, first, last, plain, tail, entries, filled)


@compiled
def _enter(
    column: int, low: int, high: int, form: int, first: int, last: int, plain: int, tail: int,
    entries: Integers, filled: Integers,
) -> None:  # fmt: skip
    """Adds one entry."""
    entry = entries[filled[0]]
    entry[COLUMN], entry[LOW], entry[HIGH], entry[FORM] = column, low, high, form
    entry[FIRST], entry[LAST], entry[STRAIGHT], entry[TAIL] = first, last, plain, tail
    filled[0] += 1
