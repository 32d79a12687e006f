"""The engine for many filters: entries of rare literals over sorted events, sixty-four events a step.

    filters → flat arrays → plan of entries (once, for the events expected) → codes of a batch → pairs

A filter is looked at only where a literal of its cover holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.matching.column_tests import NARROW, Coded, missing, several
from nearcast.matching.encode import Coder
from nearcast.matching.kernels import (
    ABREAST,
    EmittedNames,
    MultiValuedColumns,
    PairBuffer,
    SortedEvents,
    as_they_are,
    gather,
    run_straight,
    run_trees,
    sort,
)
from nearcast.matching.plan import AROUND, EVERYWHERE, LayoutSegment, PlanLayout, lay_out, plan, shares
from nearcast.matching.postfix import DEEPEST, AtomLayout, FilterGroup, LaidOutAtoms, PostfixFilters, compiled, read
from nearcast.matching.programs import IN_AROUND, JOIN, TEST_SHIFT
from nearcast.matching.proximity import NOTHING_NEAR, NearLanes
from nearcast.matching.simd import PADDING
from nearcast.model.arrays import Flags, Floats, Int32s, Integers, runs
from nearcast.model.filter import Atom

Rows = npt.NDArray[np.uint64]

BLOCK = 16_384
"""Events that are sorted and matched together: their columns stay in the second-level cache."""

SAMPLE = 256
"""Events from which on a batch is taken as a sample of how values are spread."""

NO_ROWS = np.zeros((1, 1), np.uint64)

SELDOM = 0.01
"""The share of events that an atom about what is near is taken to select before events were seen."""


class _Room:
    """Where events are sorted and pairs written. It is used again: fresh memory costs."""

    def __init__(self, size: int, codes: np.dtype[Any]) -> None:
        self.pairs = PairBuffer(np.empty(1 << 16, np.int32), np.empty(1 << 16, np.int32))
        self._others: list[PairBuffer] = []
        self._start = np.empty(size + 3, np.int32)
        self._order = np.empty(0, np.uint16)
        self._codes = np.empty(0, codes)
        self.stack = np.empty(ABREAST * (DEEPEST + 1), np.uint64)

    def taken(self, count: int) -> tuple[Int32s, Int32s]:
        """The pairs written, as views: where they were is written again once nobody has them any more."""
        lanes, names = self.pairs.lanes[:count], self.pairs.names[:count]
        self._others.append(self.pairs)
        free = next((pairs for pairs in self._others if _unused(pairs)), None)
        self._others = [pairs for pairs in self._others if pairs is not free][-2:]
        size = len(self.pairs.lanes)
        self.pairs = free or PairBuffer(np.empty(size, np.int32), np.empty(size, np.int32))
        return lanes, names

    def grow(self, more: int) -> None:
        """Room for at least so many more pairs; what is written stays."""
        size = 2 * len(self.pairs.lanes) + more
        self.pairs = PairBuffer(_longer(self.pairs.lanes, size), _longer(self.pairs.names, size))

    def events(self, stride: int, batch: Coded, complete: Flags, rows: Rows, near: NearLanes) -> SortedEvents:
        """Room for so many lanes of a batch's columns."""
        columns = max(1, len(batch.codes))
        if len(self._order) < stride:
            self._order = np.empty(stride, np.uint16)
        if len(self._codes) < stride * columns:
            self._codes = np.zeros(stride * columns, self._codes.dtype)
        lists = (near.starts, near.lanes)
        return SortedEvents(self._start, self._order, self._codes, stride, complete, rows, *lists, self.stack)


def _unused(pairs: PairBuffer) -> bool:
    """Whether no views of the arrays are about: only the tuple, and the argument of the count, refer to them."""
    return getrefcount(pairs.lanes) == 2 and getrefcount(pairs.names) == 2


def _longer(array: Int32s, size: int) -> Int32s:
    longer = np.empty(size, np.int32)
    longer[: len(array)] = array
    return longer


class _Unplanned(NamedTuple):
    """What planning takes: atoms as tests, the filters over them, the groups by root, and where each root's begin."""

    tests: LaidOutAtoms
    reading: AtomLayout
    groups: Int32s
    starts: Int32s


class CompiledEngine:
    """Filters compiled for matching. What it is given as `rows` are those of its `literals`, by lane of the batch.

    A plan is made for events spread as in a sample: the first batch that is large enough. Codes have 16 bits if no
    column has more than `narrow` of them, else 32. What is `NearLanes` is told of the atoms `nearby`; the plan's
    entries need it of those in `around`. `flat` is what reading the groups gave, if they were read already.
    """

    def __init__(self, groups: Sequence[FilterGroup], narrow: int = NARROW, flat: PostfixFilters | None = None) -> None:
        flat = flat or read(groups)
        self.columns, tests, reading = compiled(flat)
        self._sizes = np.array([classes.size for classes in self.columns.values()], np.int64)
        self.wide = bool(self._sizes.max(initial=0) > narrow)
        self.codes: np.dtype[Any] = np.dtype(np.uint32 if self.wide else np.uint16)
        self._coder = Coder(self.columns)
        self.refused: list[int] = np.flatnonzero(flat.roots < 0).tolist()
        self.nearby = reading.nearby
        self._others = reading.others
        self.around: Integers = np.array([], np.int64)
        order = np.argsort(flat.roots, kind="stable")[len(self.refused) :].astype(np.int32)
        starts = np.searchsorted(flat.roots[order], np.arange(len(flat.starts))).astype(np.int32)
        self._unplanned: _Unplanned | None = _Unplanned(tests, reading, order, starts)
        self.sampled = -1
        self._layout: PlanLayout | None = None
        self._rooms: list[_Room] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rooms": []}

    @property
    def layout(self) -> PlanLayout:
        """The plan as the kernels take it."""
        if self._layout is None:
            self.prepare(None)
        assert self._layout is not None
        return self._layout

    @property
    def literals(self) -> list[tuple[Atom, int]]:
        """The atoms, and the truths wanted of them, whose rows must be given."""
        return [(self._others[literal >> 2], literal & 3) for literal in self.layout.literals.tolist()]

    def encode(self, table: pa.Table) -> Coded:
        """A table of EVENTS as codes."""
        return self._coder.coded(table, self.codes, PADDING)

    def no_rows(self, batch: Coded) -> Rows:
        """Rows by which no literal holds."""
        return np.zeros((max(1, len(self.literals)), batch.lanes // 64 + 1), np.uint64)

    def planned(self, lanes: int) -> bool:
        """Whether it is planned already, and as well as a sample of so many events would do it."""
        return self._unplanned is None or (self._layout is not None and lanes < SAMPLE)

    def prepare(self, sample: Coded | None, near: Floats | None = None) -> bool:
        """Plans for events like these, unless it is planned already for as good a sample; whether it did.

        `near` has for each atom of `nearby` the share of the sample that is near it.
        """
        lanes = sample.lanes if sample is not None else 0
        if self.planned(lanes):
            return False
        assert self._unplanned is not None
        tests, reading, order, starts = self._unplanned
        near = np.full(len(self.nearby), SELDOM) if near is None else near
        spread = shares(tests, self._sizes, sample if lanes >= SAMPLE else None, near)
        made = plan(reading, spread, self._sizes, missing(self.codes))
        self._layout = lay_out(made, self._sizes, tests.points, self.codes)
        self.sampled = lanes
        self._look_around()
        if lanes >= SAMPLE:
            # Nothing is planned better, so what planning takes is not kept: it may be half of all.
            self._unplanned = None
        roots, every = self._layout.roots, np.arange(len(self._layout.roots), dtype=np.int32)
        counts = starts[roots + 1] - starts[roots]
        groups = order[runs(starts[roots], counts)]
        self._names = EmittedNames(groups, (np.cumsum(counts) - counts).astype(np.int32), (counts - 1).astype(np.int32))
        self._forms = EmittedNames(every, every, np.zeros_like(every))
        self._levels = np.zeros(order.max(initial=0) + 1, np.int8)
        self._levels[groups] = np.repeat(self._layout.levels, counts)
        return True

    def _look_around(self) -> None:
        """Numbers the atoms that entries and tests look around by their place in `around`."""
        layout = self.layout
        own = [np.arange(part.begin, part.end) for part in layout.segments if part.column == AROUND]
        entries = np.concatenate([np.array([], np.int64), *own])
        word = layout.code[:, 0]
        tests = np.flatnonzero(((word & 7) <= JOIN) & ((word >> TEST_SHIFT & 3) == IN_AROUND))
        low, high = layout.entries.low, layout.entries.high
        self.around = np.union1d(low[entries], layout.code[tests, 1]).astype(np.int64)
        low[entries] = np.searchsorted(self.around, low[entries])
        high[entries] = low[entries] + 1
        layout.code[tests, 1] = np.searchsorted(self.around, layout.code[tests, 1])

    def pairs(
        self, batch: Coded, rows: Rows = NO_ROWS, near: NearLanes = NOTHING_NEAR
    ) -> tuple[Int32s, Int32s, npt.NDArray[np.int8]]:
        """Lanes, groups and levels of what matches, in no particular order."""
        layout = self.layout
        room = self._rooms.pop() if self._rooms else _Room(int(self._sizes.max(initial=0)), self.codes)
        at = 0
        repeats = bool((batch.which >= 0).any())
        repeated = MultiValuedColumns(batch.which, batch.starts, batch.values, several(self.codes)) if repeats else None
        # Where a pair may come twice, pairs of forms are sorted out before they become pairs of groups.
        by_form = repeats or bool(layout.careful.any())
        names, complete = self._forms if by_form else self._names, batch.complete
        for first in range(0, batch.lanes, BLOCK):
            last = min(first + BLOCK, batch.lanes)
            own = near.within(first, last)
            at = self._block(batch, complete, first, last - first, rows, own, repeated, names, room, at)
        lanes, found = room.taken(at)
        self._rooms.append(room)
        if by_form:
            return self._greatest(lanes, found, repeats)
        levels = layout.levels
        if len(levels) and levels.min() == levels.max():
            # One level for all, whatever their number: filled out it would be a tenth of all that is written.
            return lanes, found, np.broadcast_to(levels[:1], at)
        return lanes, found, self._levels[found]

    def _greatest(self, lanes: Int32s, forms: Int32s, every: bool) -> tuple[Int32s, Int32s, npt.NDArray[np.int8]]:
        """Pairs of forms as pairs of groups, each with its greatest level."""
        layout = self.layout
        kept = _kept(lanes, forms, layout, every)
        lanes, forms = lanes[kept], forms[kept]
        count = self._names.extra[forms] + 1
        pair = np.repeat(np.arange(len(forms)), count)
        groups = self._names.names[runs(self._names.first[forms], count)]
        return lanes[pair], groups, layout.levels[forms[pair]]

    def _block(
        self, batch: Coded, complete: Flags, first: int, lanes: int, rows: Rows, near: NearLanes,
        repeated: MultiValuedColumns | None, names: EmittedNames, room: _Room, at: int,
    ) -> int:  # fmt: skip
        """Adds the pairs of one block; returns where they end."""
        stride = lanes + PADDING + (len(batch.values) if repeated else 0)
        column = None
        for segment in self.layout.segments:
            if segment.column != column:
                column = segment.column
                if column == AROUND:
                    events = _around(near, batch, complete, rows, room.stack)
                    gather(batch.codes, near.lanes, first, segment.needed, events)
                else:
                    events = room.events(stride, batch, complete, rows, near)
                if column == EVERYWHERE:
                    as_they_are(batch.codes, first, lanes, segment.needed, events)
                elif column != AROUND:
                    size = int(self._sizes[column])
                    sort(batch.codes, column, first, lanes, size, segment.needed, events, repeated)
            at = self._run(segment, events, first, repeated, names, room, at)
        return at

    def _run(
        self,
        segment: LayoutSegment,
        events: SortedEvents,
        first: int,
        repeated: MultiValuedColumns | None,
        names: EmittedNames,
        room: _Room,
        at: int,
    ) -> int:
        layout, entry = self.layout, segment.begin
        while True:
            common = (layout.entries, entry, segment.end, layout.code, layout.points, events, first, repeated)
            if segment.straight >= 0:
                entry, at = run_straight(segment.straight, *common, names, room.pairs, at)
            else:
                entry, at = run_trees(*common, names, room.pairs, at)
            if entry == segment.end:
                return at
            form = layout.entries.form[entry]
            room.grow(events.stride * int(names.extra[form] + 1))


def _around(near: NearLanes, batch: Coded, complete: Flags, rows: Rows, stack: Rows) -> SortedEvents:
    """Room for events by the atoms that they are near, each as often as it is."""
    stride = len(near.lanes) + PADDING
    codes = np.empty(stride * max(1, len(batch.codes)), batch.codes.dtype)
    order = np.empty(stride, np.uint16)
    return SortedEvents(near.starts, order, codes, stride, complete, rows, near.starts, near.lanes, stack)


def _kept(lanes: Int32s, forms: Int32s, layout: PlanLayout, every: bool) -> npt.NDArray[np.intp]:
    """The pairs by which each (lane, root) has its greatest level once."""
    careful = np.ones(len(forms), np.bool_) if every else layout.careful[forms]
    which = np.flatnonzero(careful)
    own, roots, levels = lanes[which], layout.roots[forms[which]], layout.levels[forms[which]]
    order = np.lexsort((levels, roots, own))
    last = np.ones(len(order), np.bool_)
    last[:-1] = (np.diff(own[order]) != 0) | (np.diff(roots[order]) != 0)
    return np.concatenate([np.flatnonzero(~careful), which[order[last]]])
