"""The engine for many filters: entries of rare literals over sorted events, sixty-four events a step.

    filters → flat arrays → plan of entries (once, for the events expected) → codes of a batch → pairs

A filter is looked at only where a literal of its cover holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.decision.match_codes import NARROW, Coded, coded, missing, several
from nearcast.decision.match_flat import Group, Reading
from nearcast.decision.match_kernels import Events, Repeated, as_they_are, run_straight, run_trees, sort
from nearcast.decision.match_lanes import PADDING
from nearcast.decision.match_layout import Layout, Segment, lay_out, shares
from nearcast.decision.match_plan import EVERYWHERE, plan
from nearcast.model.filter import Atom

Integers = npt.NDArray[np.int64]
Short = npt.NDArray[np.int32]
Rows = npt.NDArray[np.uint64]

BLOCK = 16_384
"""Events that are sorted and matched together: their columns stay in the second-level cache."""

SAMPLE = 256
"""Events from which on a batch is taken as a sample of how values are spread."""

NO_ROWS = np.zeros((1, 1), np.uint64)


@dataclass(slots=True)
class _Room:
    """Where pairs are written: it grows, and is used again."""

    lanes: Short
    forms: Short

    def grow(self, more: int) -> None:
        """At least so much longer, what is written stays."""
        size = 2 * len(self.lanes) + more
        for name in _Room.__slots__:
            old = getattr(self, name)
            new = np.empty(size, np.int32)
            new[: len(old)] = old
            setattr(self, name, new)


class Engine:
    """Filters compiled for matching. What it is given as `rows` are those of its `literals`, by lane of the batch.

    A plan is made for events spread as in a sample: the first batch that is large enough.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        reading = Reading()
        reading.read(groups)
        self.columns, self._tests = reading.compiled()
        self._sizes = np.array([classes.size for classes in self.columns.values()], np.int64)
        self._codes: np.dtype[Any] = np.dtype(np.uint32 if self._sizes.max(initial=0) > NARROW else np.uint16)
        self._reading = reading
        self.refused = list(reading.refused)
        roots = np.array(reading.root_of_group, np.int64)
        self._groups = np.array(reading.groups, np.int64)[np.argsort(roots, kind="stable")]
        self._starts = np.searchsorted(np.sort(roots), np.arange(len(reading.starts)))
        self._sampled = -1
        self._layout: Layout | None = None
        self._rooms: list[_Room] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rooms": []}

    @property
    def layout(self) -> Layout:
        """The plan as the kernels take it."""
        if self._layout is None:
            self.prepare(None)
        assert self._layout is not None
        return self._layout

    @property
    def literals(self) -> list[tuple[Atom, int]]:
        """The atoms, and the truths wanted of them, whose rows must be given."""
        atoms = self._reading.atoms
        return [(atoms[literal >> 2], literal & 3) for literal in self.layout.literals.tolist()]

    def encode(self, table: pa.Table) -> Coded:
        """A table of EVENTS as codes."""
        return coded(table, self.columns, self._codes, PADDING)

    def prepare(self, sample: Coded | None) -> bool:
        """Plans for events like these, unless it is planned already for as good a sample; whether it did."""
        lanes = sample.lanes if sample is not None else 0
        if self._layout is not None and (self._sampled >= SAMPLE or lanes < SAMPLE):
            return False
        tests = shares(self._tests, self._sizes, sample if lanes >= SAMPLE else None)
        made = plan(self._reading, tests, self._sizes, missing(self._codes))
        self._layout = lay_out(made, len(self._sizes), self._tests.points, self._codes)
        self._sampled = lanes
        return True

    def pairs(self, batch: Coded, rows: Rows = NO_ROWS) -> tuple[Integers, Integers, npt.NDArray[np.int8]]:
        """Lanes, groups and levels of what matches, in no particular order."""
        layout = self.layout
        room = self._rooms.pop() if self._rooms else _Room(*np.empty((2, 1 << 16), np.int32))
        at = 0
        repeats = (batch.which >= 0).any()
        repeated = Repeated(batch.which, batch.starts, batch.values, several(self._codes)) if repeats else None
        for first in range(0, batch.lanes, BLOCK):
            at = self._block(batch, first, min(BLOCK, batch.lanes - first), rows, repeated, room, at)
        lanes, forms = room.lanes[:at].astype(np.int64), room.forms[:at].copy()
        self._rooms.append(room)
        roots, levels = layout.roots[forms], layout.levels[forms]
        kept = _greatest(lanes, roots, levels, np.ones(at, np.bool_) if repeats else layout.careful[forms])
        if kept is not None:
            lanes, roots, levels = lanes[kept], roots[kept], levels[kept]
        return self._of_groups(lanes, roots, levels)

    def _block(
        self, batch: Coded, first: int, lanes: int, rows: Rows, repeated: Repeated | None, room: _Room, at: int
    ) -> int:
        """Adds the pairs of one block; returns where they end."""
        stride = lanes + PADDING + (len(batch.values) if repeated else 0)
        events = Events(
            np.empty(int(self._sizes.max(initial=0)) + 3, np.int32),
            np.empty(stride, np.int32),
            np.zeros(max(1, len(self._sizes)) * stride, self._codes),
            stride,
            rows,
        )
        column = None
        for segment in self.layout.segments:
            if segment.column != column:
                column = segment.column
                if column == EVERYWHERE:
                    as_they_are(batch.codes, first, lanes, segment.needed, events)
                else:
                    size = int(self._sizes[column])
                    sort(batch.codes, column, first, lanes, size, segment.needed, events, repeated)
            at = self._run(segment, events, first, repeated, room, at)
        return at

    def _run(
        self, segment: Segment, events: Events, first: int, repeated: Repeated | None, room: _Room, at: int
    ) -> int:
        layout, entry = self.layout, segment.begin
        while True:
            common = (layout.entries, entry, segment.end, layout.code, layout.points, events, first, repeated)
            if segment.straight >= 0:
                entry, at = run_straight(segment.straight, *common, room.lanes, room.forms, at)
            else:
                entry, at = run_trees(*common, room.lanes, room.forms, at)
            if entry == segment.end:
                return at
            room.grow(events.stride)

    def _of_groups(
        self, lanes: Integers, roots: Short, levels: npt.NDArray[np.int8]
    ) -> tuple[Integers, Integers, npt.NDArray[np.int8]]:
        """The same for each group of a root."""
        if len(self._groups) == len(self._starts) - 1:
            return lanes, self._groups[roots], levels
        first = self._starts[roots]
        count = self._starts[roots + 1] - first
        pair = np.repeat(np.arange(len(roots)), count)
        member = np.arange(len(pair)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
        return lanes[pair], self._groups[member], levels[pair]


def _greatest(
    lanes: Integers, roots: Short, levels: npt.NDArray[np.int8], careful: npt.NDArray[np.bool_]
) -> npt.NDArray[np.intp] | None:
    """Which pairs to keep, so that each (lane, root) has its greatest level once; None: all."""
    which = np.flatnonzero(careful)
    if not len(which):
        return None
    which = which[np.lexsort((levels[which], roots[which], lanes[which]))]
    new = (np.diff(lanes[which]) != 0) | (np.diff(roots[which]) != 0)
    return np.concatenate([np.flatnonzero(~careful), which[np.concatenate([new, [True]])]])
