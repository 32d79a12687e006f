"""From filters to entries and programs, in compiled code, and their layout for the kernels.

An entry is a column, a range of its codes, a form — a filter and a level — and a program. An event that has a code in
the range and passes the program has at least that level. Forms without a cover have one entry that looks at all events.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.matching.access_paths import (
    LEAF,
    NO,
    OPEN,
    CoverTests,
    access_path,
    access_path_room,
    build_trees,
    disjoint,
    draft_room,
    estimate_known,
    tree_room,
)
from nearcast.matching.column_tests import NEARBY, OPAQUE, OUTSIDE, POINTS, RANGE, Coded
from nearcast.matching.kernels import KernelEntries
from nearcast.matching.masks import map_sets
from nearcast.matching.postfix import FALSE, TRUE, AtomLayout, LaidOutAtoms
from nearcast.matching.programs import (
    COLUMN_SHIFT,
    FORM_SHIFT,
    IN_ROW,
    INVERTED,
    INVERTED_PRESENT,
    MEET,
    TEST_SHIFT,
    Program,
    append_test,
    copy_instruction,
    straighten,
    write,
)
from nearcast.matching.simd import PADDING, WIDE_REGISTERS
from nearcast.model.arrays import Int32s, Integers
from nearcast.runtime.jit_cache import compiled

EVERYWHERE, AROUND = -1, -2
"""The columns of an entry that looks at all events, and of one that looks at those near an atom: codes are atoms."""

COLUMN, LOW, HIGH, FORM, FIRST, LAST, STRAIGHT, TAIL = range(8)
"""The fields of an entry: `STRAIGHT` is the number of tests of a program without branches, or −1; `TAIL` how many
instructions behind the program's last only count where names repeat."""

MOST_EXTRAS = 32
MOST_WORK = 50_000
"""Forms whose programs would be larger than this, one per literal of the cover, share one that tests everything."""


class MatchPlan(NamedTuple):
    """Entries (see `COLUMN`), their programs, and forms: (root, level, whether it may give an event twice).

    `literals` are the opaque ones, in the order of their rows.
    """

    entries: Integers
    code: npt.NDArray[np.uint32]
    forms: Integers
    literals: Integers


def plan(reading: AtomLayout, tests: CoverTests, sizes: Integers, absent: int) -> MatchPlan:
    """The plan of all roots of a reading; `sizes` are the columns' numbers of codes, `absent` the code of no value."""
    tokens, starts = np.array(reading.tokens, np.int64), np.array(reading.starts, np.int64)
    classes, owns = np.array([*reading.classes, 0], np.int64), np.array(reading.class_starts, np.int64)
    most = int(np.diff(starts).max(initial=1)) + 1
    tree, draft, room = tree_room(most), draft_room(most), access_path_room(most)
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
    return MatchPlan(entries[: filled[0]], code[: filled[1]], forms[: filled[2]], literals)


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
        size = build_trees(tokens, starts[root], starts[root + 1], classes, owns[root], draft, tree)
        level = -1
        while size > 0:
            following = 1 << 30
            for node in range(size):
                if tree.kind[node] == LEAF and level < tree.level[node] < following:
                    following = tree.level[node]
            if following == 1 << 30:
                break
            level = following
            count = access_path(tree, size, level, tests, room)
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
        if estimate_known(tree, size, turn, tests, room) == NO:
            continue
        extras = 0
        for before in range(turn):
            if tests.kind[room.chosen[before] >> 2] == NEARBY:
                # What is not near has no codes to be tested by: the event is given twice, too.
                forms[filled[2], 2] = 1
            elif not disjoint(room.chosen[before], room.chosen[turn], tests):
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


UNKNOWN = 0.5
"""What share of events an opaque atom is taken to hold for."""

WIDE = 0.05
"""What is near more events than this share is given as a row of bits, not as a list."""


@dataclass(frozen=True, slots=True)
class LayoutSegment:
    """Entries `begin` … `end` − 1 of one column with programs of one kind: so many straight tests, or −1 for trees.

    `needed` are the columns that all entries of this column test.
    """

    column: int
    straight: int
    begin: int
    end: int
    needed: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class PlanLayout:
    """Entries in segments, their programs, points, and of each form its root, its level and whether it takes care.

    A form takes care if a lane may be given by it or its root's other forms more than once.
    """

    segments: list[LayoutSegment]
    entries: KernelEntries
    code: npt.NDArray[np.uint32]
    points: npt.NDArray[Any]
    roots: npt.NDArray[np.int32]
    levels: npt.NDArray[np.int8]
    careful: npt.NDArray[np.bool_]
    literals: Integers

    @property
    def bytes(self) -> int:
        """How much memory it takes."""
        arrays = (*self.entries, self.code, self.points, self.roots, self.levels, self.careful)
        return sum(array.nbytes for array in arrays)


def shares(atoms: LaidOutAtoms, sizes: Integers, sample: Coded | None, near: npt.NDArray[np.float64]) -> CoverTests:
    """The atoms with the share of events for which each is TRUE or FALSE, as a sample has it.

    Without a sample all codes of a column are taken to be as frequent. `near` are the shares of what is near.
    """
    true, false = np.full((2, len(atoms.kind)), UNKNOWN)
    kinds = atoms.kind.copy()
    for truth, held in ((TRUE, true), (FALSE, false)):
        around = np.flatnonzero((atoms.kind == NEARBY) & (atoms.high == truth))
        held[around] = near[atoms.low[around]]
        kinds[around[held[around] > WIDE]] = OPAQUE
    for column, size in enumerate(sizes.tolist()):
        share, there = _spread(column, size, sample)
        below = np.concatenate([[0.0], np.cumsum(share)])
        own = np.flatnonzero(atoms.column == column)
        for kind in (RANGE, OUTSIDE, POINTS):
            which = own[atoms.kind[own] == kind]
            low, high = atoms.low[which], atoms.high[which]
            held = _of_points(share, atoms.points, low, high) if kind == POINTS else below[high] - below[low]
            true[which] = there - held if kind == OUTSIDE else held
            false[which] = held if kind == OUTSIDE else there - held
    return CoverTests(kinds, atoms.column, atoms.low, atoms.high, atoms.points, true, false)


def _of_points(share: npt.NDArray[np.float64], points: Int32s, low: Int32s, high: Int32s) -> npt.NDArray[np.float64]:
    """The shares of lists of points from `low` to before `high`, which for one column lie side by side."""
    first, last = low.min(initial=len(points)), high.max(initial=0)
    sums = np.concatenate([[0.0], np.cumsum(share[points[first:last]])])
    return np.asarray(sums[high - first] - sums[low - first])


def _spread(column: int, size: int, sample: Coded | None) -> tuple[npt.NDArray[np.float64], float]:
    """The share of events with each code of a column, and with any."""
    if sample is None or not sample.lanes:
        return np.full(size, 1.0 / size), 1.0
    codes = sample.codes[column, : sample.lanes]
    counts = np.bincount(codes[codes < size], minlength=size).astype(np.float64)
    there = float((codes != np.iinfo(codes.dtype).max).mean())
    which = int(sample.which[column])
    if which >= 0:
        own = sample.values[sample.starts[which, 0] : sample.starts[which, -1]]
        counts = np.bincount(own, minlength=size).astype(np.float64)
    # A code that the sample has not may come all the same.
    counts += 0.5 / size
    return counts / sample.lanes, there


def lay_out(plan: MatchPlan, sizes: Integers, points: npt.NDArray[np.int32], codes: np.dtype[Any]) -> PlanLayout:
    """The layout of a plan over columns with so many codes."""
    fields = plan.entries.T
    order = np.lexsort((fields[LOW], fields[STRAIGHT], fields[COLUMN]))
    entries = np.ascontiguousarray(plan.entries[order])
    code = np.empty_like(plan.code)
    where = np.full(len(plan.code) + 1, -1, np.int64)
    # Two rows more, found from the end: for what looks everywhere, and for what looks around atoms.
    used = np.zeros((len(sizes) + 2, len(sizes)), np.bool_)
    size = _move(entries, plan.code, code, where, used)
    forms = _in_order_of_entries(entries, plan.forms)
    by_field = [entries[:, field].astype(np.int32) for field in (LOW, HIGH, FORM, FIRST, LAST, TAIL)]
    keys = entries[:, COLUMN] * (1 << 32) + entries[:, STRAIGHT]
    starts = [*np.flatnonzero(np.diff(keys, prepend=-(1 << 40))).tolist(), len(entries)]
    segments = [
        LayoutSegment(
            int(entries[begin, COLUMN]),
            int(entries[begin, STRAIGHT]),
            begin,
            end,
            np.flatnonzero(used[entries[begin, COLUMN]]).astype(np.int32),
        )
        for begin, end in itertools.pairwise(starts)
    ]
    code = code[:size].copy()
    places = np.concatenate([points, np.zeros(PADDING, np.int32)]).astype(codes)
    # Without such registers a look a lane takes longer than to compare all lanes with each point.
    if WIDE_REGISTERS and codes == np.uint16:
        places = map_sets(code, places, sizes)
    roots, levels, twice = forms.T
    forms_of_root = np.bincount(roots, minlength=1)
    return PlanLayout(
        segments,
        KernelEntries(*by_field),
        code,
        places,
        roots.astype(np.int32),
        levels.astype(np.int8),
        (twice > 0) | (forms_of_root[roots] > 1),
        plan.literals,
    )


def _in_order_of_entries(entries: Integers, forms: Integers) -> Integers:
    """The forms as the entries come to them, which are given their new numbers."""
    # Entries are run one after the other. So what is known of their forms is read in the order in which it lies, where
    # a million filters would else wait for memory at each.
    seen = np.full(len(forms), len(entries))
    seen[entries[::-1, FORM]] = np.arange(len(entries))[::-1]
    order = np.argsort(seen, kind="stable")
    number = np.empty(len(forms), np.int64)
    number[order] = np.arange(len(forms))
    entries[:, FORM] = number[entries[:, FORM]]
    return forms[order]


@compiled
def _move(entries: Integers, old: Any, new: Any, where: Integers, used: Any) -> int:
    """Copies programs in the order of their entries, each once, and notes which columns each column's entries test."""
    size = 0
    for index in range(len(entries)):
        entry = entries[index]
        first, length = entry[FIRST], entry[LAST] - entry[FIRST]
        if length + entry[TAIL] == 0:
            entry[FIRST] = entry[LAST] = 0
            continue
        if where[first] < 0:
            where[first] = size
            for at in range(first, first + length + entry[TAIL]):
                size = copy_instruction(old, at, new, size)
        entry[FIRST] = where[first]
        entry[LAST] = where[first] + length
        for at in range(entry[FIRST], entry[LAST] + entry[TAIL]):
            word = new[at, 0]
            if (word & 7) <= 2 and (word >> TEST_SHIFT & 3) != IN_ROW:
                used[entry[COLUMN], word >> COLUMN_SHIFT] = True
    return size
