"""Where entities are, as columns: what was known of each when a stretch of the journal begins, and its reports in it.

A *point* is one thing that was known of an entity: point e is entity number e as the stretch begins, point N + i what
the i-th report of the stretch says that counted, where there are N entities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.model.arrays import Flags, Integers, placed, runs
from nearcast.model.columns import EVENTS
from nearcast.model.event import Place
from nearcast.model.values import microseconds_of, moment_at
from nearcast.relations.entity_table import COORDINATES, NOWHERE, PLACE, EntityTable, GrowableTable, placed_columns
from nearcast.state.lateness import FOREVER, NEVER, counting, moments_of
from nearcast.state.stream_clocks import SHARED, StreamClocks, slowest_over

Column = npt.NDArray[Any]

Values = Mapping[int, float]
"""The aggregates of an entity that have a value, by number; see `aggregates.entity_windows`."""

NO_VALUES: Values = {}


@dataclass(frozen=True, slots=True)
class WindowChanges:
    """What windows over a time say of the rows of a table.

    `values` are those of the entity that a row is of, None where it changes none of them. At some rows nothing is
    reported, and only the window of an `entity`, by number, changes, else −1: with that the relations `touched`, by
    their rules' numbers, are evaluated. `last` is the last row at which windows change at the same moment.
    """

    values: Sequence[Values | None]
    entity: Integers
    touched: Sequence[frozenset[int]]
    last: Integers

    def slice(self, start: int, count: int) -> WindowChanges:
        """Some of them."""
        own = slice(start, start + count)
        return WindowChanges(self.values[own], self.entity[own], self.touched[own], self.last[own] - start)

    def cut(self, row: int) -> int:
        """The first row, from one on, with which a stretch may begin: none parts what changes at one moment."""
        while 0 < row < len(self.last) and self.last[row - 1] >= row:
            row = int(self.last[row - 1]) + 1
        return row


@dataclass(slots=True)
class ReportTable:
    """A stretch of the journal: all its rows bring time, and those that count move their entities.

    `clocks`, shape (clocks, rows), has how far each clock has come. Of rows: `now`, the clock of the row's channel,
    `moment`, the event's own, `began`, from when durations that begin with it are counted (the moment, or the clock
    where it has none), and `reported`, whether it is a report: else only time passes. Of the reports that count,
    ascending: `row`, `entity`, `key`, and the `columns` of places, and of the clocks where there are several.

    Where a window over a time changes, its entity's newest report is there once more: `origin` is the point that it
    repeats, of others their own, and `changes` says what of it is another. Without windows both are None.
    """

    table: pa.Table
    base: GrowableTable
    clocks: Integers
    now: Integers
    moment: Integers
    began: Integers
    reported: Flags
    row: Integers
    entity: Integers
    key: Integers
    columns: dict[str, Column]
    _order: Integers
    _keys: Integers
    _first: Integers
    origin: Integers | None = None
    changes: WindowChanges | None = None
    _whole: dict[str, Column] = field(default_factory=dict)

    @staticmethod
    def of(
        table: pa.Table,
        known: EntityTable,
        clocks: StreamClocks,
        reported: Flags | None = None,
        clock: Integers | None = None,
        changes: WindowChanges | None = None,
        series: Integers | None = None,
    ) -> ReportTable:
        """The reports of a table of EVENTS, ascending by position; `clocks` are those before it.

        Where not all rows are `reported`, the others bring the clock of their channel to what `clock` has for them; or
        `series` has how far each clock has come.
        """
        number, moment = known.numbered(table), moments_of(table)
        if reported is None or clock is None:
            reported, clock = np.ones(len(number), np.bool_), moment
        else:
            moment = np.where(reported, moment, NEVER)
            clock = np.maximum(moment, clock)
        own = None if clocks.single else clocks.numbers(table)
        if series is None:
            series = clocks.over(own if own is not None else number, clock)
        now = series[SHARED] if own is None else series[own, np.arange(len(own))]
        row = np.flatnonzero(reported)
        row = row[counting(number[row], moment[row], known.columns["key"])]
        columns = placed_columns(table)
        if own is not None:
            columns["clock"] = own
        if changes is not None:
            # What begins as a window changes does so then.
            moment = np.where(changes.entity >= 0, clock, moment)
            number = np.where(changes.entity >= 0, changes.entity, number)
            row = np.union1d(row, np.flatnonzero(changes.entity >= 0))
        entity = number[row]
        order = np.argsort(entity, kind="stable")
        first = np.concatenate([[0], np.cumsum(np.bincount(entity, minlength=len(known)))])
        found = ReportTable(
            table=table,
            base=known.columns,
            clocks=series,
            now=now,
            moment=moment,
            began=np.where(moment == NEVER, now, moment),
            reported=reported,
            row=row,
            entity=entity,
            key=moment[row],
            columns={name: column[row] for name, column in columns.items()},
            _order=order,
            _keys=entity[order] * len(number) + row[order],
            _first=first,
            changes=changes,
        )
        if changes is not None:
            found._repeat(changes.entity[row] >= 0)
        return found

    def _repeat(self, repeats: Flags) -> None:
        """Lets some reports say what was known of their entities before them."""
        own = self._order
        told = np.where(repeats[own], -1, np.arange(len(own)))
        last = np.maximum.accumulate(told) if len(told) else told
        inside = last >= self._first[self.entity[own]]
        self.origin = np.empty(len(own), np.int64)
        self.origin[own] = np.where(inside, self.known + own[np.where(inside, last, 0)], self.entity[own])
        self.columns["heard"] = self.began[self.row]
        at = np.flatnonzero(repeats)
        for name in self.columns:
            self.columns[name][at] = self.column(name, self.origin[at])

    @staticmethod
    def nothing(known: EntityTable) -> ReportTable:
        """A stretch in which nothing is reported."""
        return ReportTable.of(EVENTS.empty_table(), known, StreamClocks())

    @staticmethod
    def passing(known: EntityTable, clocks: StreamClocks) -> ReportTable:
        """A stretch of one row in which nothing is reported, and which brings the clocks to where these are."""
        reports = ReportTable.nothing(known)
        reports.clocks, now = clocks.values[:, np.newaxis], clocks.shared
        reports.now, reports.moment, reports.began = np.array([now]), np.array([NEVER]), np.array([now])
        reports.reported, reports.columns["clock"] = np.zeros(1, np.bool_), reports.row
        return reports

    @property
    def repeats(self) -> Flags | None:
        """Which reports are repeated as a window changes; None: none is."""
        return None if self.origin is None else self.origin != self.known + np.arange(len(self.origin))

    def told(self, reports: Integers) -> Integers:
        """Those of some reports that are not repeated."""
        again = self.repeats
        return reports if again is None else reports[~again[reports]]

    def origins(self, points: Integers) -> Integers:
        """Of each point the one whose event it has."""
        if self.origin is None:
            return points
        found = points.copy()
        inside = points >= self.known
        found[inside] = self.origin[points[inside] - self.known]
        return found

    def evaluating(self, rule: npt.NDArray[np.integer], reports: Integers) -> Flags:
        """Which reports make their entity's pairs of a rule, by number, be evaluated: a repeated one those of the rules
        whose aggregates have another value.
        """
        again, found = self.repeats, np.ones(len(reports), np.bool_)
        if again is None or self.changes is None:
            return found
        for at in np.flatnonzero(again[reports]).tolist():
            found[at] = int(rule[at]) in self.changes.touched[int(self.row[reports[at]])]
        return found

    def then(self, row: Integers) -> Integers:
        """Of each row the last one of its moment: what others are as windows change together."""
        return row if self.changes is None else self.changes.last[row]

    @property
    def parts(self) -> int:
        """Into how many stretches it may be cut."""
        last = None if self.changes is None else self.changes.last
        return self.length if last is None else int((last == np.arange(self.length)).sum())

    @property
    def length(self) -> int:
        """How many rows there are."""
        return len(self.now)

    @property
    def known(self) -> int:
        """How many entities there are."""
        return self.base.length

    @property
    def counts(self) -> Integers:
        """How many reports count of each entity."""
        return np.diff(self._first)

    @property
    def single(self) -> bool:
        """Whether there is one clock for all."""
        return len(self.clocks) == 1

    @property
    def ends(self) -> Integers:
        """How far each clock has come in the end, by its number."""
        return self.clocks[:, -1] if self.length else np.full(len(self.clocks), NEVER)

    def slowest(self, numbers: Sequence[int], since: int) -> Integers:
        """The slowest of some clocks at each row; it does not fall below `since`."""
        return slowest_over(self.clocks, numbers, since)

    def clock_of(self, points: Integers) -> Integers | None:
        """By which clock what is known at each point goes; None where there is one for all."""
        return None if self.single else self.column("clock", points)

    def clock_at(self, points: Integers, row: Integers) -> Integers:
        """How far the clock by which each point goes has come at a row."""
        own = self.clock_of(points)
        return self.now[row] if own is None else self.clocks[own, row]

    def first_row(self, due: Integers, clock: Integers | None, side: Literal["left", "right"] = "left") -> Integers:
        """The first row at which each of some clocks has come to a time, or on the right side, past it."""
        if clock is None or self.single:
            return np.searchsorted(self.clocks[SHARED], due, side)
        found = np.zeros(len(due), np.int64)
        for number in np.unique(clock).tolist():
            own = clock == number
            found[own] = np.searchsorted(self.clocks[number], due[own], side)
        return found

    def first_row_of_both(self, due: Integers, both: Column) -> Integers:
        """The first row at which both clocks of each of some pairs have come to a time; `both` are of `clock_pair`."""
        if self.single:
            return np.searchsorted(self.clocks[SHARED], due, "left")
        a, b = clock_sides(both)
        return np.maximum(self.first_row(due, a), self.first_row(due, b))

    def slower_end(self, both: Column) -> Integers:
        """How far the slower clock of each of some pairs has come in the end."""
        ends = self.ends
        if self.single:
            return np.broadcast_to(ends, len(both))
        a, b = clock_sides(both)
        return np.minimum(ends[a], ends[b])

    def last_of_each(self) -> Integers:
        """Of each entity with reports the number of its last one."""
        return self._order[self._first[1:][self.counts > 0] - 1]

    def last_told_of_each(self) -> Integers:
        """The same of those that are not repeated."""
        if self.origin is None:
            return self.last_of_each()
        told = np.flatnonzero(self.origin == self.known + np.arange(len(self.origin)))
        # Ascending: what is written for an entity last, stays.
        last = np.zeros(self.known, np.int64)
        last[self.entity[told]] = told
        return last[np.flatnonzero(np.bincount(self.entity[told], minlength=self.known))]

    def update(self, known: EntityTable) -> None:
        """Brings what is known of entities to the end of the stretch."""
        last = self.last_told_of_each()
        row = self.row[last]
        columns = {name: column[last] for name, column in self.columns.items() if name != "heard"}
        known.set_newest(self.entity[last], columns, self.table.take(pa.array(row)), self.key[last], self.began[row])

    def of_entities(self, number: Integers) -> tuple[Integers, Integers]:
        """All reports of each of some entities: (index into `number`, report), by index, then by row."""
        counts = self.counts[number]
        which = np.repeat(np.arange(len(number)), counts)
        return which, self._order[runs(self._first[number], counts)] if len(which) else which

    def rows_of_points(self) -> tuple[Integers, Integers]:
        """Of each point the row behind which it is what is known of its entity, and the last row at which it is."""
        since = np.concatenate([np.full(self.known, -1), self.row])
        through = np.full(len(since), self.length)
        entity, row = self.entity[self._order], self.row[self._order]
        first = np.append(True, entity[1:] != entity[:-1])[: len(entity)]
        before = np.where(first, entity, self.known + np.append(0, self._order[:-1])[: len(entity)])
        through[before] = row - 1
        return since, through

    def as_of(self, number: Integers, row: Integers) -> Integers:
        """The point at which each entity was once the event of that row had come; row −1 is before the first."""
        # Row −1 of an entity is the key of the last row of the one before, which the next line rules out.
        found = np.searchsorted(self._keys, number * self.length + row, "right") - 1
        inside = found >= self._first[number]
        return (
            np.where(inside, self.known + self._order[np.where(inside, found, 0)], number) if len(self.row) else number
        )

    def column(self, name: str, points: Integers) -> Column:
        """A column of what is known at some points: of `PLACE`, or `heard`."""
        base = self.base[name]
        reported = self.columns[name] if name in self.columns else self.began[self.row]
        if len(points) > self.known + len(self.row):
            # Both as one, made once: of so many points each is looked up in half a dozen columns.
            whole = self._whole.get(name)
            if whole is None or len(whole) != self.known + len(self.row):
                whole = self._whole[name] = np.concatenate([base, reported])
            return whole[points]
        # Points of reports lie beyond this column: whatever is read for them is replaced.
        found = base[np.minimum(points, self.known - 1)]
        inside = points >= self.known
        found[inside] = reported[points[inside] - self.known]
        return found

    def seen(self, points: Integers) -> Flags:
        """Whether something is known at a point: of an entity that is only named, nothing is."""
        return (points >= self.known) | self.base["seen"][np.minimum(points, self.known - 1)]

    def places(self, points: Integers) -> list[Place | None]:
        """Where some points are."""
        columns = [self.column(name, points).tolist() for name in PLACE[:4]]
        return [
            None if kind == NOWHERE else Place(COORDINATES[kind], x, y, None if z != z else z)
            for kind, x, y, z in zip(*columns, strict=True)
        ]


def names_in_order(names: Sequence[str], numbers: Integers) -> tuple[list[str], Integers]:
    """The names of entities by number, each once and ascending, and of each number the place of its name."""
    own, at = placed(numbers)
    found = [names[number] for number in own.tolist()]
    order = sorted(range(len(found)), key=found.__getitem__)
    rank = np.empty(len(found), np.int64)
    rank[order] = np.arange(len(found))
    return [found[index] for index in order], rank[at]


_SIDES = 128
"""More than there are clocks: both of a pair's are one number."""


def clock_pair(a: Column, b: Column) -> Integers:
    """The clocks of both sides of pairs as one number each; of things with one side that is both."""
    return a.astype(np.int64) * _SIDES + b


def clock_sides(both: Column) -> tuple[Integers, Integers]:
    """The clocks of both sides, from one number."""
    return both.astype(np.int64) // _SIDES, both.astype(np.int64) % _SIDES


def pair_waits(clocks: StreamClocks, due: Integers, both: Column) -> int:
    """Microseconds until the first of some pairs is due, by the slower of its clocks; see `StreamClocks.wait`."""
    if clocks.single:
        return clocks.wait(due)
    a, b = clock_sides(both)
    return int(np.maximum(clocks.waits(due, a), clocks.waits(due, b)).min(initial=FOREVER))


def moment_of(micros: int) -> datetime | None:
    """A time from its microseconds."""
    return None if micros == NEVER else moment_at(micros)


def micros_of(moment: datetime | None) -> int:
    """A time in microseconds."""
    return NEVER if moment is None else microseconds_of(moment)
