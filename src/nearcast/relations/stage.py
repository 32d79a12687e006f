"""The second stage, relate: what happens between entities, as events of its own; for each lane there is one of it
(`lanes`, semantics §7).

Relations between pairs are evaluated in columns, over stretches in which no definition changes; gatherings report by
report, and relations about what relations tell event by event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import Fault
from nearcast.model.changes import (
    Change,
    ClientChange,
    ClientRemoval,
    ClockTick,
    RelationChange,
    RelationRemoval,
)
from nearcast.model.columns import EVENTS, any_derived, to_events
from nearcast.model.event import Event
from nearcast.model.limits import Limits
from nearcast.model.relation import Gathering, Relation
from nearcast.model.sequence import MOST_PARTS
from nearcast.relations.aggregates.entity_windows import EntityWindows
from nearcast.relations.aggregates.windowed_rows import passing_rows, windowed_rows
from nearcast.relations.candidates import TooManyPairs
from nearcast.relations.entity_table import EntityTable
from nearcast.relations.gatherings import GatheringStates
from nearcast.relations.pairs import PairRelations
from nearcast.relations.plain import EventwiseRelations, cause_at
from nearcast.relations.plain_pairs import LatestReport
from nearcast.relations.reports import ReportTable
from nearcast.relations.shards import SHARDS
from nearcast.relations.sides import sees_derived
from nearcast.relations.told_pairs import AtRow, ToldPairs, joined_told
from nearcast.relations.transition_events import Transition
from nearcast.relations.transition_tables import CausingEvents, ReportRows, transition_tables
from nearcast.state.derived import Cause, StageInput, in_tables
from nearcast.state.lateness import FOREVER
from nearcast.state.repository import NewestEvents, Repository
from nearcast.state.stream_clocks import StreamClocks
from nearcast.state.timeline import Excess

Newest = Callable[[], pa.Table]
"""Gives the newest event of every entity, where it is asked for."""

STRETCH = 8_192
"""Rows that are evaluated together at most: enough for columns to pay, few enough for little memory."""


@dataclass(slots=True)
class _Told:
    """What is told at the rows of a stretch: of pairs in columns, other things one by one."""

    pairs: list[ToldPairs] = field(default_factory=list)
    others: list[AtRow] = field(default_factory=list)

    def join(self, told: ToldPairs | Iterable[Transition], row: int = 0) -> _Told:
        """Adds what is told at one row."""
        if isinstance(told, ToldPairs):
            self.pairs += [told] if len(told) else []
        else:
            self.others += ((row, one) for one in told)
        return self

    def alone(self) -> dict[int, list[Transition]]:
        """Everything one by one, by row."""
        found: dict[int, list[Transition]] = {}
        for row, one in chain(self.others, *(pairs.transitions() for pairs in self.pairs)):
            found.setdefault(row, []).append(one)
        return found


LOOKED = 500
"""Readings that leave their windows of which it is looked ahead whether something is told, at most: for more a tick may
be written that tells nothing.
"""

COPIED = 20_000
"""Entities, pairs that hold and readings, together, of which a copy is made to look ahead: some 20 ms. Where there are
more a tick may be written that tells nothing.
"""


class RelationStage:
    """Relations over the batches of a journal, all of which see the same reports; see `Scopes`.

    It is given every batch, in order, also while there are no relations: it then looks at the changes only. The whole
    object may be pickled; its state is as of the last batch's end. How the journal is cut does not change what is told.
    """

    def __init__(self, shards: int = SHARDS) -> None:
        self._clocks = StreamClocks()
        # Those of all channels, in a scope that goes by them as they are.
        self._by_channel = True
        self._sequence = 0
        self._limits = Limits()
        self._step = STRETCH
        # The last position at which something was told, and how much of it.
        self._numbered = (-1, 0)
        self._gone: set[str] = set()
        self._lists: dict[str, Mapping[str, tuple[str, ...]]] = {}
        self._relations: dict[str, Relation] = {}
        self._known = EntityTable()
        self._pairing = PairRelations(self._known, shards)
        self._crowds = GatheringStates(self._known)
        self._plain = EventwiseRelations()
        self._windows = EntityWindows(self._known)

    def beside(self, by_channel: bool = True) -> RelationStage:
        """One without relations that knows the same lists; not `by_channel`: with one clock, however many there are."""
        other = RelationStage(len(self._pairing.shards))
        other._by_channel = by_channel
        other._lists = dict(self._lists)
        return other

    @property
    def defined(self) -> bool:
        """Whether there are relations."""
        return bool(self._relations)

    @property
    def limits(self) -> Limits:
        """The limits within which it goes on."""
        return self._limits

    def begin_at(self, clock: int) -> None:
        """Begins with a clock at which the first relation is defined, of one that does not go `by_channel`."""
        # Not where another one left it that was before.
        self._clocks = StreamClocks.alone(clock)

    @property
    def relations(self) -> Sequence[Relation]:
        """The relations, in the order of their definitions."""
        return list(self._relations.values())

    @property
    def pairing(self) -> PairRelations:
        """The relations between pairs."""
        return self._pairing

    def passes_over(self, stage_input: StageInput) -> bool:
        """See `DerivingStage`."""
        if self._relations or any(_is_heard(change) for _, change in stage_input.changes):
            return False
        if not self._clocks.are_of(stage_input.registry.settings.channels):
            return False
        # The clock goes on for what is defined later.
        self._clocks.follow_events(stage_input.events)
        return True

    def derive(
        self, stage_input: StageInput, node: str | None = None, rows: ReportRows | None = None
    ) -> Iterator[pa.Table]:
        """What a stretch of the journal causes, ascending by position and part; to be taken to its end. `node`: where
        the relations are local. `rows`: what is reported, where that is not the events as they are.

        Of the changes those of relations and clients count; of the events, those that are not derived themselves. The
        repository is read when a relation is defined. The present state of a new relation is told to be of its time.
        """
        events, self._limits = stage_input.events, stage_input.registry.settings.limits
        self._limit(stage_input.excess)
        if self._by_channel and not self._clocks.are_of(stage_input.registry.settings.channels):
            self._set_channels(stage_input)
        if self._relations and any_derived(events):
            events = events.filter(pc.equal(events.column("part"), 0))
        if not self._relations and not any(self._concerns(change) for _, change in stage_input.changes):
            # The clock goes on for what is defined later.
            for _, change in stage_input.changes:
                self._note_lists(change)
            self._clocks.follow_events(events if rows is None else rows.table)
            return
        rows = rows or ReportRows.of(events)
        done, positions = 0, rows.causes.position
        for position, change in stage_input.changes:
            if not self._concerns(change):
                self._note_lists(change)
                continue
            until = int(np.searchsorted(positions, position))
            yield from self._stretches(rows, done, until, node)
            done = until
            moment = stage_input.times.get(position)
            if isinstance(change, ClockTick):
                yield from self._pass(change, Cause(position, moment, moment), node)
                continue
            newest = partial(self._newest, stage_input.repository, events, done)
            if not self._relations:
                if node is not None:
                    # A local one begins by what came to its node, whether or not there were others before.
                    self._clocks = self._clocks.with_values({})
                self._begin(change, newest)
            cause = cause_at(Cause(position, moment, moment), self._clocks.greatest)
            try:
                found = self._change(change, cause, newest)
            except Fault as fault:
                stage_input.refusals.append((position, fault))
            else:
                # Of a flood of definitions most tell nothing.
                if found.pairs or found.others:
                    yield from self._told(found, CausingEvents.alone(cause), node)
            if not self._relations:
                self._reset()
                self._limit(stage_input.excess)
        yield from self._stretches(rows, done, len(rows), node)

    def _set_channels(self, stage_input: StageInput) -> None:
        """Goes on by the clocks of other channels, as if these had always been so."""
        channels, before = stage_input.registry.settings.channels, self._clocks.names
        newest = stage_input.repository.newest() if self._clocks.changes_with(channels) else EVENTS.empty_table()
        self._clocks = self._clocks.redefined(channels, newest)
        if self._relations and self._clocks.names != before:
            self._known.set_clocks(newest, self._clocks)
            self._pairing.set_clocks()
            self._windows.refresh(self._clocks)
            self._pairing.ask_over_time(self._windows.asked, self._windows.values)

    def _limit(self, excess: Counter[Excess]) -> None:
        """Goes on within the limits that are set, and counts there what comes to one."""
        self._pairing.limit(self._limits)
        self._crowds.limits = self._plain.limits = self._limits
        self._pairing.excess = self._crowds.excess = self._plain.excess = excess
        self._windows.limit(self._limits, excess)

    @property
    def size(self) -> int:
        """Bytes of what is kept of pairs: their state, and their relations as columns."""
        return self._pairing.size

    def _concerns(self, change: Change) -> bool:
        """Whether a change does anything to relations; lists are noted also where nobody asks for them."""
        match change:
            case RelationChange(relation):
                return self._relations.get(relation.id) != relation
            case RelationRemoval(id):
                return id in self._relations
            case ClientChange(lists=lists):
                return lists is not None and len(self._crowds.by_id) > 0
            case ClientRemoval():
                return len(self._crowds.by_id) > 0
            case ClockTick():
                return True
        return False

    def _pass(self, tick: ClockTick, cause: Cause, node: str | None) -> Iterator[pa.Table]:
        """What is due by a tick."""
        # Who is forgotten goes before time passes: what falls silent by that does so at its own time.
        told = self._forgotten() if self._relations else _Told()
        if self._relations and self._windows.attributes:
            before = self._clocks.copy()
            self._clocks.follow_tick(tick)
            rows = passing_rows(self._windows, CausingEvents.alone(cause), before, self._clocks)
            yield from self._evaluated(rows, told, node)
            return
        self._clocks.follow_tick(tick)
        if self._relations:
            found = self._transitions(ReportTable.passing(self._known, self._clocks))
            if len(self._plain):
                found.join(self._plain.pass_time(self._clocks.slowest()))
            found = _Told([*told.pairs, *found.pairs], [*told.others, *found.others])
            yield from self._told(found, CausingEvents.alone(cause), node)

    @property
    def clocks(self) -> StreamClocks:
        """See `DerivingStage`."""
        return self._clocks

    def next_due(self, clocks: StreamClocks) -> int:
        """See `DerivingStage`. Where more than `LOOKED` readings leave their windows it is not looked what is told."""
        if not self._relations:
            return FOREVER
        first = self._first_due(clocks)
        if self._windows.next_due(clocks) > 0 or self._windows.leaving(clocks) > LOOKED:
            return first
        ahead = self.copy()
        if ahead is None:
            return first
        # Readings leave their windows one by one, and mostly nothing is told of that.
        told = any(len(table) for table in ahead._pass(clocks.tick(), Cause(0, None, None), None))
        return first if told else ahead._first_due(clocks)

    def _first_due(self, clocks: StreamClocks) -> int:
        """The same, as if something were told whenever a reading leaves its window."""
        plain = StreamClocks.alone(clocks.slowest()).wait(np.array([self._plain.next_due()]))
        windows = self._windows.next_due(clocks)
        return min(self._pairing.next_due(clocks), self._crowds.next_due(clocks), plain, windows)

    def copy(self) -> RelationStage | None:
        """The same relations, which go on by themselves: to look ahead. None where copying them is too much work."""
        kept = len(self._known) + self._windows.readings.total + self._pairing.held + self._plain.kept
        if kept > COPIED:
            return None
        found = copy(self)
        found._plain = self._plain.copy()
        found._clocks, found._known, found._gone = self._clocks.copy(), self._known.copy(), set(self._gone)
        found._pairing, found._crowds = self._pairing.copy(found._known), self._crowds.copy(found._known)
        found._windows = self._windows.copy(found._known)
        return found

    def _begin(self, change: Change, newest: Newest) -> None:
        """Takes what is known of all entities as the first relation is defined."""
        if isinstance(change, RelationChange):
            self._known.begin(newest(), self._clocks if self._by_channel else self._clocks.copy())

    def _change(self, change: Change, cause: Cause, newest: Newest) -> _Told:
        match change:
            case RelationChange(relation):
                begins = min(self._pairing.begins(relation, newest, self._clocks), self._limits.relation_pairs)
                self._check_room(relation.id, begins)
                told = self._end(relation.id).join(self._define(relation, cause, newest))
                self._ask_over_time()
                return told
            case RelationRemoval(id):
                self._check_room(id, 0)
                told = self._end(id)
                self._ask_over_time()
                return told
            case ClientChange() | ClientRemoval():
                self._note_lists(change)
                return _Told().join(self._crowds.relisted(change.client, self._lists, self._clocks, cause))
        return _Told()

    def _ask_over_time(self) -> None:
        """Goes on with what the relations that there are now ask of times."""
        asking = self._pairing.rules.over_time.values()
        # Most relations ask for nothing of the kind: that one of them comes or goes changes nothing here.
        if {rule.number for rule in asking} == self._windows.asked.keys():
            return
        self._windows.prepare(asking, self._clocks)
        self._pairing.ask_over_time(self._windows.asked, self._windows.values)

    def _check_room(self, id: str, begins: int) -> None:
        """Raises `Fault` where the end of a relation, and what begins, would be more than one event may cause.

        Before anything is changed: what is refused changes nothing.
        """
        count = self._pairing.ends(id) + begins
        if count > MOST_PARTS:
            advice = "ask for fewer pairs: by its filters, by its distance, or by what it detects"
            raise Fault(f"a relation that tells of {MOST_PARTS:,} pairs at once at most", f"{count:,}", None, advice)

    def _note_lists(self, change: Change) -> None:
        match change:
            case ClientChange(client, lists=lists) if lists is not None:
                self._lists[client] = {**self._lists.get(client, {}), **lists}
            case ClientRemoval(client):
                self._lists.pop(client, None)

    def _define(self, relation: Relation, cause: Cause, newest: Newest) -> ToldPairs | list[Transition]:
        self._sequence += 1
        self._relations[relation.id] = relation
        if isinstance(relation.about, Gathering) and not sees_derived(relation):
            return self._crowds.define(relation, self._sequence, newest, self._lists, self._clocks, cause)
        if not sees_derived(relation):
            return self._pairing.define(relation, self._sequence, newest, self._clocks, cause)
        if not len(self._plain):
            self._begin_plain(newest())
        return self._plain.define(relation, self._sequence, cause, self._gone)

    def _begin_plain(self, newest: pa.Table) -> None:
        heard = self._known.columns["heard"]
        self._plain.now = self._clocks.slowest()
        self._plain.known = {
            event.entity: LatestReport(event, int(heard[self._known.number(event.entity)]))
            for event in to_events(newest)
        }

    def _end(self, id: str) -> _Told:
        if self._relations.pop(id, None) is None:
            return _Told()
        found = _Told().join(self._pairing.end(id)).join([*self._crowds.end(id), *self._plain.end(id)])
        if not len(self._plain):
            self._plain.known = {}
        return found

    def _reset(self) -> None:
        """Without relations nothing is kept; the first new one begins with what the repository has."""
        self._known, self._gone = EntityTable(), set()
        self._pairing, self._crowds = (
            PairRelations(self._known, len(self._pairing.shards)),
            GatheringStates(self._known),
        )
        self._windows = EntityWindows(self._known)

    def _newest(self, before: NewestEvents, events: pa.Table, done: int) -> pa.Table:
        """The newest event of every entity, so many events of a batch being passed."""
        known = before.newest()
        if done:
            repository = Repository(known)
            repository.fold_events(events.slice(0, done))
            known = repository.newest()
        # What was derived is there too, and no entity of the world.
        return known.filter(pc.equal(known.column("part"), 0))

    def _stretches(self, rows: ReportRows, start: int, stop: int, node: str | None) -> Iterator[pa.Table]:
        """What happens from one row of a batch to another."""
        if start == stop:
            return
        if not self._relations:
            # The clock goes on for what is defined later.
            self._clocks.follow_events(rows.table.slice(start, stop - start))
            return
        told = self._forgotten() if self._gone else _Told()
        own = rows.slice(start, stop - start)
        yield from self._evaluated(
            windowed_rows(self._windows, own, self._clocks) if self._windows.attributes else (own,), told, node
        )

    def _evaluated(self, parts: Iterable[ReportRows], told: _Told, node: str | None) -> Iterator[pa.Table]:
        """What happens over rows, and what was `told` before them; each part is made when the one before is over."""
        for rows in parts:
            start = 0
            while start < len(rows):
                stop = start + min(self._step, len(rows) - start)
                stop = stop if rows.changes is None else rows.changes.cut(stop)
                own = rows.slice(start, stop - start)
                reports = ReportTable.of(
                    own.table, self._known, self._clocks, own.reports, own.clock, own.changes, own.series
                )
                try:
                    found = self._transitions(reports)
                except TooManyPairs:
                    self._step = max(1, min((stop - start) // 2, self._pairing.fitting(stop - start)))
                    continue
                found = _Told([*told.pairs, *found.pairs], [*told.others, *found.others])
                told = _Told()
                yield from self._told(found, own.causes, node, reports)
                reports.update(self._known)
                self._clocks.set_to(reports.ends)
                self._step = min(STRETCH, 2 * self._step, self._pairing.fitting(stop - start))
                start = stop

    def forget(self, entities: Collection[str]) -> None:
        """Forgets entities; what ends by that is told with the next event."""
        if self._relations:
            self._gone.update(entities)

    def _forgotten(self) -> _Told:
        """Forgets what is to be forgotten; what that ends."""
        gone, self._gone = sorted(self._gone), set()
        # Only the first is of everything that is known; crowds and plain relations go by names.
        told = [*self._crowds.forget(gone, self._clocks), *self._plain.forget(gone)]
        self._windows.forget(gone)
        return _Told().join(self._pairing.forget(gone)).join(told)

    def _transitions(self, reports: ReportTable) -> _Told:
        """What is told at each row."""
        return _Told(self._pairing.transitions(reports), list(self._crowds.transitions(reports, self._clocks)))

    def _told(
        self, found: _Told, causes: CausingEvents, node: str | None, reports: ReportTable | None = None
    ) -> Iterator[pa.Table]:
        """The events that tell what was found at the rows of some causes, which are reports or else a change."""
        if not len(self._plain):
            tables = transition_tables(joined_told(found.pairs), found.others, causes, node, self._numbered)
        else:
            events = self._plainly(found.alone(), causes, reports)
            tables = in_tables(events if node is None else (replace(event, node=node) for event in events))
        for table in tables:
            self._numbered = int(table.column("position")[-1].as_py()), int(table.column("part")[-1].as_py())
            yield table

    def _plainly(
        self, found: dict[int, list[Transition]], causes: CausingEvents, reports: ReportTable | None
    ) -> Iterator[Event]:
        """What is told beside relations about what relations tell, which are evaluated event by event."""
        events = [] if reports is None else to_events(reports.table)
        (position, part), own = self._numbered, list[Transition]()
        times = reports.slowest(range(len(reports.clocks)), self._plain.now) if reports is not None else ()
        for row in range(len(causes)):
            if reports is not None:
                now, reported = int(times[row]), reports.reported[row]
                own = self._plain.report(events[row], now) if reported else self._plain.pass_time(now)
            cause = causes.at(row)
            part = part if cause.position == position else 0
            told = self._plain.told([*found.pop(row, ()), *own], cause, part + 1)
            position, part = cause.position, part + len(told)
            yield from told


def _is_heard(change: Change) -> bool:
    """Whether a change is noted also where there are no relations."""
    match change:
        case ClientChange(lists=lists):
            return lists is not None
        case RelationChange() | RelationRemoval() | ClientRemoval() | ClockTick():
            return True
    return False
