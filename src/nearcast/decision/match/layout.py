"""A plan laid out for the kernels: entries by column and kind of program, programs in the order of their entries."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.decision.match.asked import NEARBY, OPAQUE, OUTSIDE, POINTS, RANGE
from nearcast.decision.match.codes import Coded
from nearcast.decision.match.cover import Tests
from nearcast.decision.match.emit import WIDE_REGISTERS
from nearcast.decision.match.flat import FALSE, TRUE
from nearcast.decision.match.kept import compiled
from nearcast.decision.match.kernels import Entries
from nearcast.decision.match.lanes import PADDING
from nearcast.decision.match.plan import COLUMN, FIRST, FORM, HIGH, LAST, LOW, STRAIGHT, TAIL, Plan
from nearcast.decision.match.programs import COLUMN_SHIFT, IN_ROW, TEST_SHIFT, copy_instruction
from nearcast.decision.match.reading import Atoms
from nearcast.decision.match.sets import map_sets

Integers = npt.NDArray[np.int64]
Short = npt.NDArray[np.int32]

UNKNOWN = 0.5
"""What share of events an opaque atom is taken to hold for."""

WIDE = 0.05
"""What is near more events than this share is given as a row of bits, not as a list."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Entries `begin` … `end` − 1 of one column with programs of one kind: so many straight tests, or −1 for trees.

    `needed` are the columns that all entries of this column test.
    """

    column: int
    straight: int
    begin: int
    end: int
    needed: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Layout:
    """Entries in segments, their programs, points, and of each form its root, its level and whether it takes care.

    A form takes care if a lane may be given by it or its root's other forms more than once.
    """

    segments: list[Segment]
    entries: Entries
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


def shares(atoms: Atoms, sizes: Integers, sample: Coded | None, near: npt.NDArray[np.float64]) -> Tests:
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
    return Tests(kinds, atoms.column, atoms.low, atoms.high, atoms.points, true, false)


def _of_points(share: npt.NDArray[np.float64], points: Short, low: Short, high: Short) -> npt.NDArray[np.float64]:
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


def lay_out(plan: Plan, sizes: Integers, points: npt.NDArray[np.int32], codes: np.dtype[Any]) -> Layout:
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
        Segment(
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
    return Layout(
        segments,
        Entries(*by_field),
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
