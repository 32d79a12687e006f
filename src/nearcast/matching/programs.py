"""What is still to be tested of an event once a literal of the cover holds: programs of 64-lane tests, compiled.

An instruction is three numbers: what to do, and the low and the span of a range of codes (or the first and the number
of points, the row of an opaque literal, the number of an atom about what is near). A program of an Every of plain tests
has no branches; any other keeps a stack of masks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.matching.access_paths import EVERY, LEAF, OPEN, share_of
from nearcast.matching.column_tests import NEARBY, OPAQUE, OUTSIDE, POINTS
from nearcast.matching.postfix import FALSE, NOT_TRUE, TRUE
from nearcast.matching.simd import WIDE_REGISTERS
from nearcast.model.arrays import Floats, Integers
from nearcast.runtime.jit_cache import compiled

Numbers = npt.NDArray[np.uint32]

LOAD, MEET, JOIN, PUSH, POP_MEET, POP_JOIN, CHECK = range(7)
"""Set the mask, AND or OR it with a test's; push it, pop one and AND or OR it; stop where the mask is empty."""

IN_RANGE, IN_POINTS, IN_ROW, IN_AROUND = range(4)

PLAIN, INVERTED, INVERTED_PRESENT, PLAIN_OR_MISSING = range(4)
"""What a test of one value becomes: itself, its complement, that where there is a value, or that one's complement."""

TEST_SHIFT, FORM_SHIFT, WANTED_SHIFT, OUTSIDE_SHIFT, MAPPED_SHIFT, COLUMN_SHIFT = 3, 5, 7, 9, 10, 11

ROW_EFFORT = 4.0
FEWEST = 12
"""Points from which on a set has a map. From three on a map is faster, but it takes 128 bytes: of a hundred thousand
filters with sets of 3 to 20 points, maps from 3 on would take 125 bytes a filter, from 12 on they take 40."""
MAP_EFFORT = 2.0
"""What a test of a set takes by its map, however large it is; see `matching.masks`."""


class Program(NamedTuple):
    """Room for programs: the instructions, shape (n, 3), and work space."""

    code: Numbers
    rows: Integers
    work: Integers
    waiting: Integers
    parts: Integers
    ranks: Floats
    efforts: Floats
    extra: Integers


@compiled
def instruction_form(kind: int, wanted: int) -> int:
    """What a test of one value becomes for a literal: see `PLAIN` and the following."""
    if kind == OUTSIDE:
        if wanted == TRUE:
            return INVERTED_PRESENT
        if wanted == FALSE:
            return PLAIN
        return PLAIN_OR_MISSING if wanted == NOT_TRUE else INVERTED
    if wanted == TRUE:
        return PLAIN
    if wanted == FALSE:
        return INVERTED_PRESENT
    return INVERTED if wanted == NOT_TRUE else PLAIN_OR_MISSING


@compiled
def append_test(operation: int, literal: int, tests: Any, room: Any, at: int) -> int:
    """Appends the test of a literal."""
    atom, wanted = literal >> 2, literal & 3
    kind = tests.kind[atom]
    if kind == NEARBY and (wanted & 1) == tests.high[atom]:
        form = PLAIN if wanted == tests.high[atom] else INVERTED
        room.code[at, 0] = operation | IN_AROUND << TEST_SHIFT | form << FORM_SHIFT
        room.code[at, 1] = tests.low[atom]
        room.code[at, 2] = 0
        return at + 1
    if kind in (OPAQUE, NEARBY):
        # Rows are given out in the order of first use; which literals they are is told to who makes them.
        if room.rows[literal] < 0:
            room.rows[literal] = room.rows[-1]
            room.rows[-1] += 1
        room.code[at, 0] = operation | IN_ROW << TEST_SHIFT
        room.code[at, 1] = room.rows[literal]
        room.code[at, 2] = 0
        return at + 1
    word = operation | (IN_POINTS if kind == POINTS else IN_RANGE) << TEST_SHIFT
    word |= instruction_form(kind, wanted) << FORM_SHIFT | wanted << WANTED_SHIFT
    word |= (1 if kind == OUTSIDE else 0) << OUTSIDE_SHIFT | tests.column[atom] << COLUMN_SHIFT
    room.code[at, 0] = word
    room.code[at, 1] = tests.low[atom]
    room.code[at, 2] = tests.high[atom] - tests.low[atom]
    return at + 1


@compiled
def _do(operation: int, room: Any, at: int) -> int:
    """Appends what is no test."""
    room.code[at, 0] = operation
    room.code[at, 1] = 0
    room.code[at, 2] = 0
    return at + 1


@compiled
def _only(node: int, tree: Any, cover: Any) -> int:
    """The node, or what is left of it where only one of its parts is open."""
    # What the cover has settled is gone, so whole levels of the tree may have one part left.
    while tree.kind[node] != LEAF:
        found, last = 0, -1
        part = tree.head[node]
        while part >= 0:
            if cover.known[part] == OPEN:
                found += 1
                last = part
            part = tree.next[part]
        if found != 1:
            return node
        node = last
    return node


@compiled
def _open_parts(node: int, tree: Any, cover: Any, room: Any) -> int:
    """Puts a node's open parts into `parts`, like parts joined; returns how many."""
    count, waiting = 0, 1
    room.waiting[0] = node
    while waiting > 0:
        waiting -= 1
        part = tree.head[room.waiting[waiting]]
        while part >= 0:
            if cover.known[part] == OPEN:
                single = _only(part, tree, cover)
                # An Every that came up within an Every is the same Every: flattened it needs no stack.
                if tree.kind[single] == tree.kind[node]:
                    room.waiting[waiting] = single
                    waiting += 1
                else:
                    room.parts[count] = single
                    count += 1
            part = tree.next[part]
    return count


@compiled
def _effort(literal: int, tests: Any) -> float:
    """What a test takes, in comparisons of sixty-four lanes."""
    kind = tests.kind[literal >> 2]
    if kind in (OPAQUE, NEARBY):
        return ROW_EFFORT
    points = tests.high[literal >> 2] - tests.low[literal >> 2]
    if WIDE_REGISTERS and kind == POINTS and points >= FEWEST:
        return MAP_EFFORT
    return 0.8 * points if kind == POINTS else 1.0


@compiled
def _efforts(tree: Any, size: int, tests: Any, cover: Any, room: Any) -> None:
    """What each open node takes."""
    for node in range(size - 1, -1, -1):
        if tree.kind[node] == LEAF:
            room.efforts[node] = _effort(tree.literal[node], tests)
            continue
        effort = 0.7
        part = tree.head[node]
        while part >= 0:
            if cover.known[part] == OPEN:
                effort += room.efforts[part]
            part = tree.next[part]
        room.efforts[node] = effort


@compiled
def _sort(count: int, top: bool, tree: Any, tests: Any, cover: Any, room: Any) -> None:
    """Orders `parts`: at the top of an Every what rejects most for its effort first, else what needs a stack first."""
    for index in range(count):
        part = room.parts[index]
        if part < 0:
            effort, share, leaf = _effort(-1 - part, tests), share_of(-1 - part, tests), True
        else:
            effort, share, leaf = room.efforts[part], cover.share[part], tree.kind[part] == LEAF
        # Independent tests in the order of effort by what is rejected take the least on the average.
        rank = effort / max(1e-9, 1.0 - share) if top else effort + (1e6 if leaf else 0.0)
        place = index
        while place > 0 and room.ranks[place - 1] > rank:
            room.ranks[place] = room.ranks[place - 1]
            room.parts[place] = room.parts[place - 1]
            place -= 1
        room.ranks[place] = rank
        room.parts[place] = part


@compiled
def _push(count: int, every: bool, top: bool, work: int, tree: Any, room: Any) -> int:
    """Puts the parts on the work stack, the last first; returns its new height."""
    # Backwards, also in each step: of a stack what is put there last is done first.
    for index in range(count - 1, -1, -1):
        part = room.parts[index]
        if top and index + 1 < count:
            room.work[work, 0], room.work[work, 1] = _DO, CHECK
            work += 1
        if part >= 0 and tree.kind[part] != LEAF:
            if index > 0:
                room.work[work, 0], room.work[work, 1] = _DO, POP_MEET if every else POP_JOIN
                work += 1
            room.work[work, 0], room.work[work, 1] = _EXPAND, part
            work += 1
            if index > 0:
                room.work[work, 0], room.work[work, 1] = _DO, PUSH
                work += 1
        else:
            room.work[work, 0] = LOAD if index == 0 else MEET if every else JOIN
            room.work[work, 1] = tree.literal[part] if part >= 0 else -1 - part
            work += 1
    return work


_DO, _EXPAND = 8, 9


@compiled
def write(tree: Any, size: int, tests: Any, cover: Any, extras: int, room: Any, at: int) -> int:
    """Writes the program of what is open at instruction `at`; returns where it ends.

    `extras` literals in `room.extra` must hold too.
    """
    _efforts(tree, size, tests, cover, room)
    count = 0
    if cover.known[0] == OPEN:
        root = _only(0, tree, cover)
        if tree.kind[root] == EVERY:
            count = _open_parts(root, tree, cover, room)
        else:
            room.parts[0], count = root, 1
    for index in range(extras):
        room.parts[count] = -1 - room.extra[index]
        count += 1
    _sort(count, True, tree, tests, cover, room)
    work = _push(count, True, True, 0, tree, room)
    while work > 0:
        work -= 1
        what, which = room.work[work, 0], room.work[work, 1]
        if what == _EXPAND:
            count = _open_parts(which, tree, cover, room)
            _sort(count, False, tree, tests, cover, room)
            work = _push(count, tree.kind[which] == EVERY, False, work, tree, room)
        elif what == _DO:
            at = _do(which, room, at)
        else:
            at = append_test(what, which, tests, room, at)
    return at


@compiled
def copy_instruction(source: Any, at: int, target: Any, place: int) -> int:
    """Copies an instruction; returns the place behind it."""
    for field in range(3):
        target[place, field] = source[at, field]
    return place + 1


@compiled
def straighten(room: Any, first: int, last: int, absent: int) -> int:
    """Rewrites a program of one Every of plain ranges as tests alone; returns how many, −1 if it is of another kind."""
    end = last
    for at in range(first, last):
        word = room.code[at, 0]
        form = word >> FORM_SHIFT & 3
        if (word & 7) == CHECK:
            continue
        if (word & 7) > MEET or (word >> TEST_SHIFT & 3) != IN_RANGE or form == PLAIN_OR_MISSING:
            return -1
        end = copy_instruction(room.code, at, room.code, end)
        # Straight programs know no presence: it becomes one more test, that the code is below the absent one.
        if form == INVERTED_PRESENT:
            room.code[end - 1, 0] = word - (INVERTED_PRESENT - INVERTED << FORM_SHIFT)
            room.code[end, 0] = MEET | word >> COLUMN_SHIFT << COLUMN_SHIFT
            room.code[end, 1], room.code[end, 2] = 0, absent
            end += 1
    # It was built behind the program, since it may become longer while it is read.
    for at in range(last, end):
        first = copy_instruction(room.code, at, room.code, first)
    return end - last
