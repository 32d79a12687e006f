"""Relations with a lateness: their reports wait until the clock is that much further, and count in the order of their
moments (semantics §11).

What waits is bounded: beyond the limit the report of the earliest moment counts early. What is told has the position of
the event, or tick, by which it was no longer waited for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from copy import copy
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.arrays import Integers
from nearcast.model.changes import Change, ClockTick, RelationChange
from nearcast.model.columns import EVENTS, to_table, without_payloads
from nearcast.model.event import Event
from nearcast.model.limits import Limits
from nearcast.model.subscription import Settings
from nearcast.relations.reports import micros_of
from nearcast.relations.transition_tables import CausingEvents, ReportRows
from nearcast.state.derived import StageInput
from nearcast.state.lateness import NEVER, moments_of
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository
from nearcast.state.stream_clocks import SHARED, StreamClocks, slowest_over

COUNTED = 500
"""Reports of which it is looked ahead what they will tell, at most: for more a tick may tell nothing."""

_NO_REPORT = to_table([Event("", "", "")])
"""What stands in the row of no report."""


class EvaluatedRelations(Protocol):
    """Relations over rows, see `RelationStage`."""

    @property
    def defined(self) -> bool:
        """Whether there are relations."""

    def derive(
        self, stage_input: StageInput, node: str | None = None, rows: ReportRows | None = None
    ) -> Iterator[pa.Table]:
        """What changes and rows cause."""

    def next_due(self, clocks: StreamClocks) -> int:
        """Microseconds until something is told though nothing is reported; see `DerivingStage`."""

    @property
    def limits(self) -> Limits:
        """The limits within which it goes on."""

    def copy(self: S) -> S | None:
        """The same, which goes on by itself; None where copying is too much work."""

    def forget(self, entities: Collection[str]) -> None:
        """Forgets entities."""

    def begin_at(self, clock: int) -> None:
        """Begins with a clock, before the first relation is defined."""


S = TypeVar("S", bound=EvaluatedRelations)


class DelayedRelations(Generic[S]):
    """The relations of one lateness, in microseconds. `early` counts the reports that counted early.

    `names` are those of the clocks by the slowest of which they go, none of them being for the shared one; where some
    channels have clocks of their own, only events that go by these are reports. It begins with its first relation, with
    what is known then, and is as new when it has none any more.
    """

    def __init__(self, lateness: int, stage: S, names: tuple[str, ...] = ()) -> None:
        self.lateness, self.stage, self.names = lateness, stage, names
        self.early = 0
        self._clocks = StreamClocks()
        self._clear()

    def _clear(self) -> None:
        self._clock = self._passed = NEVER
        self._clocks = self._clocks.with_values({})
        self._held = EVENTS.empty_table()
        self._moments = np.zeros(0, np.int64)
        self._counted = Repository()

    @property
    def defined(self) -> bool:
        """Whether there are relations."""
        return self.stage.defined

    def derive(self, stage_input: StageInput, node: str | None = None) -> Iterator[pa.Table]:
        """What a stretch of the journal causes; see `RelationStage.derive`."""
        channels = stage_input.registry.settings.channels
        if not self._clocks.are_of(channels):
            self._clocks = self._clocks.redefined(channels, self._counted.newest())
        events = stage_input.events.filter(pc.equal(stage_input.events.column("part"), 0))
        done, positions = 0, events.column("position").to_numpy()
        for position, change in stage_input.changes:
            until = int(np.searchsorted(positions, position))
            yield from self._reported(stage_input, events.slice(done, until - done), node)
            done = until
            yield from self._changed(stage_input, position, change, events.slice(0, done), node)
        yield from self._reported(stage_input, events.slice(done), node)

    def _changed(
        self, stage_input: StageInput, position: int, change: Change, before: pa.Table, node: str | None
    ) -> Iterator[pa.Table]:
        if isinstance(change, ClockTick):
            if self.defined:
                self._clocks.follow_tick(change)
                yield from self._ticked(stage_input, position, self._slowest(), node)
            return
        if not self.defined and isinstance(change, RelationChange):
            self._begin(stage_input, before)
        own = replace(stage_input, changes=[(position, change)], events=EVENTS.empty_table(), repository=self._counted)
        yield from self.stage.derive(own, node)
        if not self.defined:
            self._clear()

    def _begin(self, stage_input: StageInput, before: pa.Table) -> None:
        """Takes what is known when the first relation is defined, `before` being the events of the batch until then."""
        known = stage_input.repository.newest()
        # What was derived is there too, and no entity of the world; nor is it there yet where it is of this batch.
        self._counted = Repository(known.filter(pc.equal(known.column("part"), 0)))
        self._counted.fold_events(before)
        newest = self._counted.newest()
        self._clocks.follow_events(newest)
        if not self._clocks.single:
            own = np.isin(self._clocks.numbers(newest), self._numbers())
            self._counted = Repository(newest.filter(pa.array(own)))
        self._clock = self._passed = self._slowest()
        self.stage.begin_at(self._clock)

    def _numbers(self) -> Sequence[int]:
        """The clocks by which the relations go."""
        return [number for number, name in enumerate(self._clocks.names) if name in self.names] or [SHARED]

    def _slowest(self) -> int:
        return max(self._clock, self._clocks.slowest(self._numbers()))

    def _reported(self, stage_input: StageInput, events: pa.Table, node: str | None) -> Iterator[pa.Table]:
        """What comes of reports, and of the time that they bring."""
        if not self.defined or not len(events):
            return
        moments, number, own = moments_of(events), self._clocks.numbers(events), self._numbers()
        series = self._clocks.over(number, moments)
        clock = np.maximum(slowest_over(series, own), self._clock)
        self._clocks.set_to(series[:, -1])
        moments = np.where(moments == NEVER, series[number, np.arange(len(number))], moments)
        if not self._clocks.single:
            kept = np.isin(number, own)
            kept_rows = pa.array(kept)
            events, moments, clock = events.filter(kept_rows), moments[kept], clock[kept]
            if not len(events):
                return
        yield from self._released(stage_input, events, moments, clock, CausingEvents.of(events), node)

    def _ticked(self, stage_input: StageInput, position: int, clock: int, node: str | None) -> Iterator[pa.Table]:
        accepted = micros_of(stage_input.times.get(position))
        cause = CausingEvents(*(np.array([one]) for one in (position, accepted, accepted)))
        none = np.zeros(0, np.int64)
        yield from self._released(
            stage_input, EVENTS.empty_table(), none, np.array([max(clock, self._clock)]), cause, node
        )

    def _released(
        self,
        stage_input: StageInput,
        events: pa.Table,
        moments: Integers,
        clock: Integers,
        causes: CausingEvents,
        node: str | None,
    ) -> Iterator[pa.Table]:
        """What is told at some causes, which bring the clock so far; each but a tick is a report."""
        found = self._counting(events, moments, clock, causes, stage_input.registry.settings.limits)
        inputs = replace(stage_input, changes=(), events=EVENTS.empty_table(), repository=self._counted)
        yield from self.stage.derive(inputs, node, found)
        self._counted.fold_events(found.table.filter(pa.array(found.reports)))

    def _counting(
        self, events: pa.Table, moments: Integers, clock: Integers, causes: CausingEvents, limits: Limits
    ) -> ReportRows:
        """The reports that count by some causes, no longer being waited for, and rows in which time passes."""
        waiting = pa.concat_tables([self._held, without_payloads(events), _NO_REPORT])
        moments = np.concatenate([self._moments, moments])
        rows, cause, passing, left = self._walk(moments, clock.tolist(), limits.waiting_reports)
        table = waiting.take(pa.array(rows, pa.int64()))
        at, reports = np.array(cause, np.int64), np.array(passing, np.int64) == NEVER
        own = np.array(rows, np.int64)
        time = np.where(reports, moments[np.minimum(own, len(moments) - 1)] if len(moments) else NEVER, causes.time[at])
        self._clock = int(clock[-1])
        self._held, self._moments = waiting.take(pa.array(left, pa.int64())), moments[left]
        own_causes = CausingEvents(causes.position[at], time, causes.accepted[at])
        return ReportRows(table, own_causes, reports, np.array(passing, np.int64))

    def _walk(
        self, moments: Integers, clock: Sequence[int], most: int
    ) -> tuple[list[int], list[int], list[int], list[int]]:
        """Which reports count in which order, by number, and rows in which time passes, which have the last number.

        Beside them the causes of the rows, and the clocks to which they bring the relations, `NEVER` for reports; and
        the numbers of the reports that wait on, ascending.
        """
        held, first = len(self._held), max(0, len(moments) - len(self._held))
        heap = list(zip(self._moments.tolist(), range(held), strict=True))
        heapify(heap)
        rows, causes, passing = list[int](), list[int](), list[int]()
        for number, now in enumerate(clock):
            if number < first:
                heappush(heap, (int(moments[held + number]), held + number))
            due = now - self.lateness if now != NEVER else NEVER
            while heap and (heap[0][0] <= due or len(heap) > most):
                self.early += heap[0][0] > due
                rows.append(heappop(heap)[1])
                causes.append(number)
                passing.append(NEVER)
            if due > self._passed:
                self._passed = due
                rows.append(len(moments))
                causes.append(number)
                passing.append(due)
        return rows, causes, passing, sorted(number for _, number in heap)

    def next_due(self, clocks: StreamClocks) -> int:
        """Microseconds until something is told though no event comes; see `DerivingStage`.

        Where more than `COUNTED` reports have waited long enough it is not looked what they tell.
        """
        now = clocks.slowest(self._numbers())
        passed = StreamClocks.alone(NEVER if now == NEVER else now - self.lateness)
        counting = passed.wait(self._moments)
        if counting > 0:
            return min(self.stage.next_due(passed), counting)
        ahead = self.stage.copy() if (self._moments <= passed.shared).sum() <= COUNTED else None
        found = None if ahead is None else self._quiet_until(ahead, now, passed)
        return counting if found is None else found

    def _quiet_until(self, stage: S, now: int, passed: StreamClocks) -> int | None:
        """The same where reports have waited long enough, and a copy of the relations tells nothing of them; None where
        it does.
        """
        other = copy(self)
        cause = CausingEvents(*(np.array([one]) for one in (0, NEVER, NEVER)))
        none = np.zeros(0, np.int64)
        rows = other._counting(EVENTS.empty_table(), none, np.array([now]), cause, stage.limits)
        settings = Settings(limits=stage.limits)
        inputs = StageInput((), {}, EVENTS.empty_table(), Registry(settings), self._counted)
        if any(len(table) for table in stage.derive(inputs, None, rows)):
            return None
        return min(stage.next_due(passed), passed.wait(other._moments))

    def forget(self, entities: Collection[str]) -> None:
        """Forgets entities; what ends by that is told with the next event."""
        self.stage.forget(entities)
        self._counted.forget(entities)
