"""What there is of every entity, as columns, and which entities are to be forgotten, and when.

What is forgotten depends on the journal alone: after an event by which a limit is passed, and every `SWEEP` positions,
the oldest go, those first whose newest report is farthest back. Of what was derived there may be as many entities more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.model.arrays import Flags, Integers
from nearcast.model.columns import FEW, are_derived
from nearcast.model.limits import Limits
from nearcast.state.lateness import NEVER, counting, moments_of, order_of

ROOM = 64
"""Entities for which there is room at first."""

COLUMNS = {"moment": NEVER, "position": NEVER, "size": 0, "derived": 1}
"""The columns, with what they have of an entity of which there is no report."""

MOMENT, POSITION, SIZE, DERIVED = range(len(COLUMNS))

SWEEP = 1 << 16
"""Positions after which it is looked what may be forgotten, also where no limit was passed."""

KEPT = 9, 10
"""What part is left where a limit is passed: so that it is not passed again with the next event."""

SHARE = 10
"""So often within the age of entities it is looked whether one is too old."""


@dataclass(slots=True)
class LedgerTotals:
    """How many entities there are and what their reports take, of all and of those that are not derived; and the latest
    moment and position of the latter.
    """

    known: int = 0
    bytes: int = 0
    published: int = 0
    published_bytes: int = 0
    moment: int = NEVER
    position: int = 0


class EntityLedger:
    """Entities by number, each with the moment, the position and the size of its newest report, and whether it was
    derived.

    `late` counts the reports that came late; they are not in it.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.late = 0
        self._columns = _empty(ROOM)
        # In which row of the reports that are taken in each comes last.
        self._rows = np.zeros(ROOM, np.int64)
        # Followed, for each batch asks for them, and there may be a million entities.
        self.totals = LedgerTotals()

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, column: str) -> Integers:
        """A column of all entities, by number."""
        return self._columns[_NUMBERS[column], : len(self.numbers)]

    def numbered(self, names: pa.ChunkedArray) -> Integers:
        """The number of each name; a new one gets the next."""
        if len(names) <= FEW:
            return self._numbered(names.to_pylist())
        coded = names.combine_chunks().dictionary_encode()
        if isinstance(coded, pa.ChunkedArray):
            coded = coded.combine_chunks()
        return self._numbered(coded.dictionary.to_pylist())[coded.indices.to_numpy()]

    def _numbered(self, names: Sequence[str]) -> Integers:
        own = [*map(self.numbers.get, names)]
        if None not in own:
            # Nearly always all are known.
            return np.array(own, np.int64)
        own = [self.numbers.setdefault(name, len(self.numbers)) for name in names]
        if len(self.numbers) > len(self._rows):
            more = len(self.numbers) * 2 - len(self._rows)
            self._columns = np.concatenate([self._columns, _empty(more)], axis=1)
            self._rows = np.append(self._rows, np.zeros(more, np.int64))
        return np.array(own, np.int64)

    def counting(self, number: Integers, events: pa.Table) -> Flags:
        """Which of some reports, of entities by number, count."""
        return counting(number, order_of(events), self["moment"])

    def set(self, number: Integers, events: pa.Table, sizes: npt.NDArray[np.int64]) -> None:
        """Takes reports that count, in order."""
        after = np.empty((len(COLUMNS), len(number)), np.int64)
        after[MOMENT], after[POSITION] = moments_of(events), events.column("position").to_numpy()
        after[SIZE], after[DERIVED] = sizes, are_derived(events)
        # Of numbers that come several times NumPy keeps what is assigned last.
        rows = np.arange(len(number))
        self._rows[number] = rows
        last = self._rows[number] == rows
        if not last.all():
            number, after = number[last], after[:, last]
        before = self._columns[:, number]
        self._columns[:, number] = after
        self._follow_totals(before, after)

    def _totals_of(self, own: Integers) -> LedgerTotals:
        """Those of some entities, each named once."""
        own = own[self["position"][own] != NEVER]
        there = own[self["derived"][own] == 0]
        moment, position = self["moment"][there].max(initial=NEVER), self["position"][there].max(initial=0)
        sizes = (int(self["size"][some].sum()) for some in (own, there))
        return LedgerTotals(len(own), next(sizes), len(there), next(sizes), int(moment), int(position))

    def _follow_totals(self, before: Integers, after: Integers) -> None:
        """Goes on with what some entities, each named once, are after their reports, where they were something else."""
        was, are = before[DERIVED] == 0, after[DERIVED] == 0
        lower = after[: POSITION + 1] < before[: POSITION + 1]
        if (was & (~are | lower.any(axis=0))).any():
            # The latest may have been among those that are earlier now.
            self.totals = self._totals_of(np.arange(len(self)))
            return
        totals, published = self.totals, after[:, are]
        totals.known += int(np.count_nonzero(before[POSITION] == NEVER))
        totals.bytes += int(after[SIZE].sum() - before[SIZE].sum())
        totals.published += published.shape[1] - int(np.count_nonzero(was))
        totals.published_bytes += int(published[SIZE].sum() - before[SIZE, was].sum())
        totals.moment = max(totals.moment, int(published[MOMENT].max(initial=NEVER)))
        totals.position = max(totals.position, int(published[POSITION].max(initial=0)))

    @property
    def known(self) -> Flags:
        """Of which entities there is a report."""
        return self["position"] != NEVER

    @property
    def published(self) -> Flags:
        """Which entities are not derived."""
        found: Flags = self["derived"] == 0
        return found

    def has_room(self, events: pa.Table, size: int, limits: Limits, deriving: bool) -> bool:
        """Whether it is sure that nothing has to be forgotten after the next reports, which take so many bytes;
        `deriving`: something may be derived from them.
        """
        totals, position = self.totals, events.column("position")
        first, last = min(totals.position, position[0].as_py()), position[len(position) - 1].as_py()
        # A sweep finds only what is derived: what is published goes with the report by which there is too much.
        swept = last // SWEEP > first // SWEEP and (deriving or totals.known > totals.published)
        return (
            limits.entity_age == math.inf
            and not swept
            and totals.published + len(events) <= limits.entities
            and totals.published_bytes + size <= limits.entities_bytes
        )

    def due(self, number: Integers, events: pa.Table, sizes: Integers, limits: Limits) -> int | None:
        """The first of the next reports, all of which count, after which something may have to be forgotten."""
        totals = self.totals
        heard = np.maximum.accumulate(np.append(totals.moment, moments_of(events)))
        position = np.append(totals.position, events.column("position").to_numpy())
        due = position[1:] // SWEEP > position[:-1] // SWEEP
        order = np.argsort(number, kind="stable")
        entity, size = number[order], sizes[order]
        first = np.append(True, entity[1:] != entity[:-1])[: len(order)]
        known = self["derived"][entity] == 0
        stored = np.where(known, self["size"][entity], 0)
        before = np.where(first, stored, np.append(0, size[:-1])[: len(order)])
        new, more = np.zeros(len(number), np.int64), np.zeros(len(number), np.int64)
        new[order], more[order] = first & ~known, size - before
        due |= totals.published + np.cumsum(new) > limits.entities
        due |= totals.published_bytes + np.cumsum(more) > limits.entities_bytes
        if limits.entity_age < math.inf:
            step = max(1, int(limits.entity_age * 1e6) // SHARE)
            due |= (heard[1:] // step > heard[:-1] // step) & (heard[:-1] != NEVER)
        return int(np.argmax(due)) if due.any() else None

    def oldest(self, limits: Limits) -> list[str]:
        """The entities that are to be forgotten now."""
        gone = np.zeros(len(self), np.bool_)
        if limits.entity_age < math.inf and self.known.any():
            gone |= self["moment"] < self["moment"][self.known].max() - int(limits.entity_age * 1e6)
        for there in (self.published, self.known & ~self.published):
            own = np.flatnonzero(there & ~gone)
            own = own[np.argsort(-self["position"][own], kind="stable")]
            left = len(own) if len(own) <= limits.entities else limits.entities * KEPT[0] // KEPT[1]
            total = np.cumsum(self["size"][own])
            if len(own) and total[-1] > limits.entities_bytes:
                left = min(left, int(np.searchsorted(total, limits.entities_bytes * KEPT[0] // KEPT[1], "right")))
            # The newest of all stays, however large it is.
            gone[own[max(1, left) :]] = True
        names = list(self.numbers)
        return [names[number] for number in np.flatnonzero(gone & self.known).tolist()]

    def forget(self, names: Iterable[str]) -> None:
        """Drops entities; the others are numbered anew."""
        gone = {self.numbers[name] for name in names if name in self.numbers}
        kept = np.ones(len(self), np.bool_)
        kept[list(gone)] = False
        columns = self._columns[:, : len(self)][:, kept]
        self.numbers = {
            name: number
            for number, name in enumerate(name for name, number in self.numbers.items() if number not in gone)
        }
        self._columns = np.concatenate([columns, _empty(ROOM)], axis=1)
        self._rows = np.zeros(self._columns.shape[1], np.int64)
        self.totals = self._totals_of(np.arange(len(self)))


def _empty(room: int) -> Integers:
    """The columns of so many entities of which there is no report; shape (columns, entities)."""
    return np.repeat(np.array([*COLUMNS.values()], np.int64)[:, np.newaxis], room, axis=1)


_NUMBERS = {name: number for number, name in enumerate(COLUMNS)}
