"""The rows of a stretch with those at which windows change between them: time passes from one change to the next.

What leaves its window as an event, or a tick, brings the time does so at a moment of its own, before that event; of one
moment the entities come by name, each at a row of its own. What follows at such a row has its moment, and the position
of the event that brought the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from nearcast.model.arrays import Integers
from nearcast.model.columns import to_table, without_payloads
from nearcast.model.event import Event
from nearcast.model.values import Value
from nearcast.relations.aggregates.entity_windows import EntityWindows
from nearcast.relations.reports import ReportTable, Values, WindowChanges
from nearcast.relations.transition_tables import CausingEvents, ReportRows
from nearcast.state.lateness import NEVER
from nearcast.state.previous_values import values_of
from nearcast.state.stream_clocks import StreamClocks

TOGETHER = 8_192
"""Rows that are given together, about: what changes at one moment always is."""

NONE = frozenset[int]()

_NO_REPORT = to_table([Event("", "", "")])
"""What stands in the rows of a tick."""


def windowed_rows(windows: EntityWindows, rows: ReportRows, clocks: StreamClocks) -> Iterator[ReportRows]:
    """The rows of a stretch with those of changes; `clocks` are those before it.

    What is given is to be folded before more is taken: entities are known as of the rows that were given.
    """
    for start in range(0, len(rows), TOGETHER):
        own = rows.slice(start, TOGETHER)
        reports = ReportTable.of(own.table, windows.known, clocks, own.reports, own.clock)
        walk = _Walk(windows, own, reports, clocks.numbers(own.table).tolist())
        yield from walk.rows()


def passing_rows(
    windows: EntityWindows, cause: CausingEvents, before: StreamClocks, after: StreamClocks
) -> Iterator[ReportRows]:
    """The rows of a tick, which brings the clocks from where they were before it to after it, all at one pace."""
    found = _PassingRows(cause)
    start, end = before.values, after.values
    known = np.flatnonzero(start != NEVER).tolist()
    while True:
        dues = {one: windows.next_leaving(one) for one in known}
        waits = {one: due - int(start[one]) for one, due in dues.items() if due <= int(end[one])}
        if not waits:
            break
        wait = max(0, min(waits.values()))
        now = np.where(start == NEVER, NEVER, np.minimum(end, np.where(start == NEVER, 0, start) + wait))
        left = [(entity, one) for one, due in waits.items() if due <= wait for entity in windows.leave(one, dues[one])]
        found.add_changes(windows, sorted(left), now)
        if len(found.changes) >= TOGETHER:
            yield found.taken()
    found.add_end(end)
    yield found.taken()


@dataclass(slots=True)
class _Changes:
    """What `WindowChanges` has, row by row."""

    values: list[Values | None] = field(default_factory=list)
    entity: list[int] = field(default_factory=list)
    touched: list[frozenset[int]] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    clock: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.values)

    def add(self, entity: int, clock: int, touched: frozenset[int], values: Values | None) -> None:
        """Adds a row."""
        self.values.append(values)
        self.entity.append(entity)
        self.touched.append(touched)
        self.clock.append(clock)

    def close(self, count: int) -> None:
        """The last so many rows are of one moment."""
        self.last += [len(self.values) - 1] * count

    def columns(self) -> WindowChanges:
        """As columns."""
        return WindowChanges(self.values, np.array(self.entity, np.int64), self.touched, np.array(self.last, np.int64))


@dataclass(slots=True)
class _PassingRows:
    """Rows in which only time passes, all of one cause, with how far each clock has come."""

    cause: CausingEvents
    changes: _Changes = field(default_factory=_Changes)
    series: list[Integers] = field(default_factory=list)

    def add_changes(self, windows: EntityWindows, left: Sequence[tuple[str, int]], now: Integers) -> None:
        """Adds a row for each entity that has other aggregates at a moment, by its clock."""
        changed = [(entity, clock, windows.change(entity, int(now[clock]))) for entity, clock in left]
        count = 0
        for entity, clock, touched in changed:
            if touched:
                number = windows.known.number(entity)
                self.changes.add(number, int(now[clock]), touched, windows.values[entity])
                self.series.append(now)
                count += 1
        self.changes.close(count)

    def add_end(self, end: Integers) -> None:
        """Adds the row that brings the clocks to their end."""
        self.changes.add(-1, int(end.max()), NONE, None)
        self.changes.close(1)
        self.series.append(end)

    def taken(self) -> ReportRows:
        """What was added since the last time."""
        changes, count = self.changes.columns(), len(self.changes)
        clock = np.array(self.changes.clock, np.int64)
        position, time, accepted = (
            np.repeat(one, count) for one in (self.cause.position, self.cause.time, self.cause.accepted)
        )
        causes = CausingEvents(position, np.where(changes.entity >= 0, clock, time), accepted)
        table = pa.concat_tables([_NO_REPORT] * count)
        series = np.stack(self.series, axis=1)
        self.changes, self.series = _Changes(), []
        return ReportRows(table, causes, np.zeros(count, np.bool_), clock, changes, series)


@dataclass(slots=True)
class _Walk:
    """Goes through a stretch; `at` has of each row that is given the one of the stretch that it is of."""

    windows: EntityWindows
    own: ReportRows
    reports: ReportTable
    clock: Sequence[int]
    at: list[int] = field(default_factory=list)
    found: _Changes = field(default_factory=_Changes)

    def rows(self) -> Iterator[ReportRows]:
        """All rows, with those of changes."""
        windows, reports = self.windows, self.reports
        told = _told_values(reports, windows.attributes)
        counts = dict(zip(reports.row.tolist(), reports.entity.tolist(), strict=True))
        clock, now, slowest = self.clock, reports.now.tolist(), _slowest(reports).tolist()
        began, names = reports.began.tolist(), windows.known.names
        position = reports.table.column("position").to_pylist()
        for row in range(reports.length):
            while (due := windows.next_leaving(clock[row])) <= now[row]:
                self._leave(row, clock[row], due)
                if len(self.found) >= TOGETHER:
                    yield self._taken()
            number = counts.get(row)
            if number is not None:
                name = names[number]
                beyond = windows.put_report(
                    name, clock[row], told.get(row, {}), began[row], position[row], now[row], slowest[row]
                )
                self._count(beyond, row)
            self._add(row, -1, NEVER, NONE, None if number is None else windows.values.get(name))
            self.found.close(1)
        if len(self.found):
            yield self._taken()

    def _leave(self, row: int, clock: int, due: int) -> None:
        """What changes at a moment before a row."""
        changed = [(entity, self.windows.change(entity, due)) for entity in self.windows.leave(clock, due)]
        count = 0
        for entity, touched in changed:
            if touched:
                number = self.windows.known.number(entity)
                self._add(row, number, due, touched, self.windows.values[entity])
                count += 1
        self.found.close(count)

    def _add(self, row: int, entity: int, clock: int, touched: frozenset[int], values: Values | None) -> None:
        self.at.append(row)
        self.found.add(entity, clock, touched, values)

    def _count(self, beyond: set[str], row: int) -> None:
        for limit in beyond:
            source, type_ = (str(self.reports.table.column(name)[row].as_py()) for name in ("source", "type"))
            self.windows.excess[source, type_, limit] += 1

    def _taken(self) -> ReportRows:
        """What was gone through since the last time."""
        changes, at = self.found.columns(), np.array(self.at, np.int64)
        repeated = changes.entity >= 0
        reported = self.reports.reported[at] & ~repeated
        passing = np.full(len(at), NEVER) if self.own.clock is None else self.own.clock[at]
        clock = np.where(repeated, np.array(self.found.clock, np.int64), passing)
        own, table = self.own.causes, self.own.table
        if repeated.any() or len(at) < len(table):
            table = without_payloads(table).take(pa.array(at))
        time = np.where(repeated, clock, own.time[at])
        causes = CausingEvents(own.position[at], time, own.accepted[at])
        self.at, self.found = [], _Changes()
        return ReportRows(table, causes, reported, clock, changes)


def _slowest(reports: ReportTable) -> Integers:
    """How far the slowest clock has come at each row, of those that are set."""
    return reports.slowest(range(len(reports.clocks)), NEVER)


def _told_values(reports: ReportTable, attributes: Sequence[str]) -> Mapping[int, Mapping[str, Value]]:
    """Of each row the values of attributes that it tells; of several the last counts."""
    found: dict[int, dict[str, Value]] = {}
    for name, rows in values_of(reports.table, attributes).items():
        for row, values in enumerate(rows):
            if values:
                found.setdefault(row, {})[name] = values[-1]
    return found
