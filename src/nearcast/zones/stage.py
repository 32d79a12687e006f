"""The stage between relate and infer: who enters, stays in and leaves zones, as events of its own (semantics §7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import Fault
from nearcast.matching.matcher import FilterMatcher
from nearcast.matching.spatial.geometry_sharing import fixed_spatial, selected_within_budget
from nearcast.model.arrays import Flags, Integers
from nearcast.model.changes import Change, ClockTick, ZoneRemoval, ZoneRuleChange, ZoneShapesChange
from nearcast.model.columns import EVENTS, any_derived
from nearcast.model.limits import Limits
from nearcast.model.sequence import MOST_PARTS
from nearcast.model.zone import ZoneLayer, ZoneRule
from nearcast.relations.candidates import TooManyPairs
from nearcast.relations.entity_table import GEOGRAPHIC, PLANAR, EntityTable
from nearcast.relations.plain import cause_at
from nearcast.relations.reports import ReportTable
from nearcast.relations.transition_tables import CausingEvents
from nearcast.state.derived import Cause, StageInput
from nearcast.state.lateness import FOREVER, NEVER
from nearcast.state.repository import NewestEvents, Repository, without_excess
from nearcast.state.spatial_windows import SpatialWindows
from nearcast.state.stream_clocks import StreamClocks
from nearcast.state.timeline import Excess
from nearcast.zones.presence import LayerPresence, WatchedNow, lifecycle_of
from nearcast.zones.told_zones import NOTHING, ToldZones, joined_zones
from nearcast.zones.zone_tables import zone_tables

STRETCH = 8_192
"""Rows that are evaluated together at most: enough for columns to pay, few enough for little memory."""


class ZoneStage:
    """Zones over the batches of a journal; a `DerivingStage`. Its state is as of the last batch's end.

    It is given every batch, in order, also while there are no zones: it then looks at the changes only. How the journal
    is cut does not change what is told.
    """

    def __init__(self) -> None:
        self._clocks = StreamClocks()
        self._sequence = 0
        self._limits = Limits()
        self._excess: Counter[Excess] = Counter()
        self._step = STRETCH
        self._gone: set[str] = set()
        self._known = EntityTable()
        self._layers: dict[str, LayerPresence] = {}
        self._filters: FilterMatcher | None = None
        self._spatial = SpatialWindows()

    @property
    def defined(self) -> bool:
        """Whether there are layers of zones."""
        return bool(self._layers)

    @property
    def layers(self) -> Sequence[LayerPresence]:
        """The layers, in the order of their definitions."""
        return list(self._layers.values())

    def passes_over(self, stage_input: StageInput) -> bool:
        """See `DerivingStage`."""
        if self._layers or not self._clocks.are_of(stage_input.registry.settings.channels):
            return False
        return not any(isinstance(change, ZONE_CHANGES) for _, change in stage_input.changes)

    def derive(self, stage_input: StageInput) -> Iterator[pa.Table]:
        """What a stretch of the journal causes, ascending by position and part; to be taken to its end.

        Of the changes those of zones count; of the events, those that are not derived. The present state of a new layer
        or zone is told to be of its time.
        """
        self._limits = stage_input.registry.settings.limits
        self._excess = stage_input.excess
        if not self._clocks.are_of(stage_input.registry.settings.channels):
            self._set_channels(stage_input)
        concerning = [one for one in stage_input.changes if isinstance(one[1], (*ZONE_CHANGES, ClockTick))]
        if not self._layers and not concerning:
            return
        events = without_excess(stage_input.events, self._limits.entity_bytes)
        if any_derived(events):
            events = events.filter(pc.equal(events.column("part"), 0))
        newest = NewestReportsThen(stage_input.repository, events)
        done, positions = 0, events.column("position").to_numpy()
        for position, change in concerning:
            until = int(np.searchsorted(positions, position))
            yield from self._stretches(events, done, until)
            done = until
            moment = stage_input.times.get(position)
            cause = Cause(position, moment, moment)
            if isinstance(change, ClockTick):
                yield from zone_tables(self._passed(change), CausingEvents.alone(cause))
                continue
            if not self._layers and isinstance(change, ZoneRuleChange):
                self._known.begin(newest.at(done), self._clocks)
            cause = cause_at(cause, self._clocks.greatest)
            try:
                told = self._change(change, cause, newest, done)
            except Fault as fault:
                stage_input.refusals.append((position, fault))
            else:
                yield from zone_tables(told, CausingEvents.alone(cause))
            if not self._layers:
                self._known, self._gone = EntityTable(), set()
                self._clocks = StreamClocks(stage_input.registry.settings.channels)
        yield from self._stretches(events, done, len(events))

    def _set_channels(self, stage_input: StageInput) -> None:
        """Goes on by the clocks of other channels, as if these had always been so."""
        channels = stage_input.registry.settings.channels
        if not self._layers or not self._clocks.changes_with(channels):
            self._clocks = self._clocks.redefined(channels, EVENTS.empty_table())
            return
        newest = stage_input.repository.newest()
        self._clocks = self._clocks.redefined(channels, newest)
        self._known.set_clocks(newest, self._clocks)
        for layer in self._layers.values():
            layer.set_clocks()

    def _passed(self, tick: ClockTick) -> ToldZones:
        """What is due by a tick."""
        if not self._layers:
            return NOTHING
        told = self._forgotten() if self._gone else NOTHING
        self._clocks.follow_tick(tick)
        return joined_zones([told, self._transitions(ReportTable.passing(self._known, self._clocks))])

    @property
    def clocks(self) -> StreamClocks:
        """The clocks, as far as they are followed: while there are layers."""
        return self._clocks

    def next_due(self, clocks: StreamClocks) -> int:
        """See `DerivingStage`."""
        return min((layer.next_due(clocks) for layer in self._layers.values()), default=FOREVER)

    def forget(self, entities: Collection[str]) -> None:
        """Forgets entities; what ends by that is told with the next event."""
        if self._layers:
            self._gone.update(entities)

    def crowded(self) -> dict[str, int]:
        """How often an entity was in more zones of a layer at once than count, by layer."""
        return {id: layer.crowded for id, layer in self._layers.items() if layer.crowded}

    def _change(self, change: Change, cause: Cause, newest: NewestReportsThen, done: int) -> ToldZones:
        """What a change tells. Raises `Fault`, with nothing changed."""
        match change:
            case ZoneRuleChange(rule):
                return self._define(rule, cause, newest, done)
            case ZoneShapesChange(id):
                layer, after = self._changed(id, change)
                watched = self._watched(layer.rule, newest.at(done))
                return layer.set_zones(after, watched, cause, self._limits)
            case ZoneRemoval(id):
                return self._end(id)
        return NOTHING

    def _define(self, rule: ZoneRule, cause: Cause, newest: NewestReportsThen, done: int) -> ToldZones:
        """Adds a layer, or gives one another rule: what held by the one before ends, and begins anew."""
        before = self._layers.get(rule.id)
        if before is not None and before.rule == rule:
            return NOTHING
        zones = before.layer.zones if before else {}
        layer = LayerPresence(ZoneLayer(rule, zones), self._sequence + 1, self._known)
        watched = self._watched(rule, newest.at(done))
        hits = layer.present(watched, self._limits, before.pairs.length if before else 0)
        ended = self._end(rule.id)
        self._sequence += 1
        self._layers[rule.id], self._filters = layer, None
        return joined_zones([ended, layer.begin_present(hits, watched, cause)])

    def _changed(self, id: str, change: ZoneShapesChange) -> tuple[LayerPresence, ZoneLayer]:
        """A layer, and how it is with other zones. Raises `Fault` where that cannot be."""
        layer = self._layers.get(id)
        if layer is None:
            raise Fault("a layer of zones that is defined", id[:80], None, "define its rule before its zones")
        after = layer.layer.with_zones(change.zones, change.removed, self._limits)
        if after is None:
            limits = self._limits
            expected = f"at most {limits.zones:,} zones of {limits.zones_bytes:,} characters in a layer"
            raise Fault(expected, "more", None, "these change nothing; make several layers")
        return layer, after

    def _end(self, id: str) -> ToldZones:
        layer = self._layers.pop(id, None)
        if layer is None:
            return NOTHING
        if layer.pairs.length > MOST_PARTS:
            self._layers[id] = layer
            expected = f"a layer that at most {MOST_PARTS:,} entities are in when it ends"
            raise Fault(expected, f"{layer.pairs.length:,}", None, "take its zones away one by one")
        self._filters = None
        return layer.end()

    def _watched(self, rule: ZoneRule, newest: pa.Table) -> WatchedNow:
        """Who is watched now, by the newest event of each, and not silent."""
        kind = PLANAR if rule.coordinates == "planar" else GEOGRAPHIC
        live = lifecycle_of(rule).time_to_live
        selected = self._selected(rule, newest) if len(newest) else np.zeros(0, np.bool_)
        columns, number = self._known.columns, self._known.numbered(newest)[selected]
        now = self._clocks.values[columns["clock"]]
        there = columns["seen"][number] & (columns["kind"][number] == kind)
        if live != FOREVER:
            heard = columns["heard"][number]
            there &= (heard == NEVER) | (now[number] <= np.where(heard == NEVER, 0, heard) + live)
        number = number[there]
        return WatchedNow(number, columns["x"][number], columns["y"][number], now[number], columns["clock"][number])

    def _selected(self, rule: ZoneRule, newest: pa.Table) -> Flags:
        """Which events the filter of a rule selects, where it shares the work on geometries with those of others."""
        others = [layer.rule.of for id, layer in self._layers.items() if id != rule.id]
        index, spatial = FilterMatcher((), [rule.of]), fixed_spatial([*others, rule.of])
        return selected_within_budget(index, spatial, newest, self._limits, self._excess)[0]

    def _stretches(self, events: pa.Table, start: int, stop: int) -> Iterator[pa.Table]:
        """What happens from one row of a batch to another."""
        if not self._layers:
            return
        told = self._forgotten() if self._gone and start < stop else NOTHING
        while start < stop:
            step = min(self._step, stop - start)
            reports = ReportTable.of(events.slice(start, step), self._known, self._clocks)
            try:
                found = self._transitions(reports)
            except TooManyPairs:
                self._step = max(1, step // 4)
                continue
            if len(found) or len(told):
                yield from zone_tables(joined_zones([told, found]), CausingEvents.of(reports.table))
            told = NOTHING
            reports.update(self._known)
            self._clocks.set_to(reports.ends)
            start += step
            self._step = min(STRETCH, 2 * self._step)

    def _transitions(self, reports: ReportTable) -> ToldZones:
        """What is told of a stretch. Raises `TooManyPairs`, with nothing changed."""
        if self._filters is None:
            filters = [layer.rule.of for layer in self._layers.values()]
            self._filters, self._spatial = FilterMatcher((), filters), fixed_spatial(filters)
        every = selected_within_budget(self._filters, self._spatial, reports.table, self._limits, self._excess)
        selected: list[Flags] = [flags[reports.row] for flags in every]
        prepared = [
            layer.evaluate(reports, own, self._limits)
            for layer, own in zip(self._layers.values(), selected, strict=True)
        ]
        found = []
        for layer, evaluated in zip(self._layers.values(), prepared, strict=True):
            self._count_excess("zone_work", evaluated.excess, reports)
            self._count_excess("geometry_work", evaluated.unmeasured, reports)
            found.append(layer.transitions(evaluated, reports))
        return joined_zones(found)

    def _count_excess(self, limit: str, rows: Integers, reports: ReportTable) -> None:
        """Counts the reports of which something is not known, as it takes more work than a limit."""
        if len(rows):
            chosen = reports.table.select(["source", "type"]).take(pa.array(rows, pa.int64()))
            columns = (column.to_pylist() for column in chosen.columns)
            self._excess.update((source, type_, limit) for source, type_ in zip(*columns, strict=True))

    def _forgotten(self) -> ToldZones:
        """Forgets what is to be forgotten; what that ends."""
        known, names = self._known, self._gone
        self._gone = set()
        gone = np.zeros(len(known), np.bool_)
        gone[[known.numbers[name] for name in names if name in known.numbers]] = True
        told = joined_zones([layer.forget(gone) for layer in self._layers.values()])
        numbers = known.forget(np.flatnonzero(gone), ~gone)
        for layer in self._layers.values():
            layer.renumber(numbers)
        return told


ZONE_CHANGES = (ZoneRuleChange, ZoneShapesChange, ZoneRemoval)


class NewestReportsThen:
    """The newest event of every entity, so many events of a batch being passed; what was derived is no entity."""

    def __init__(self, before: NewestEvents, events: pa.Table) -> None:
        self._before, self._events = before, events
        self._last: tuple[int, pa.Table] | None = None

    def at(self, done: int) -> pa.Table:
        """As of the row of that number."""
        # Zones come with many changes at one place.
        if self._last is None or self._last[0] != done:
            known = self._before.newest()
            if done:
                repository = Repository(known)
                repository.fold_events(self._events.slice(0, done))
                known = repository.newest()
            self._last = done, known.filter(pc.equal(known.column("part"), 0))
        return self._last[1]


def compile_zone_rule(rule: ZoneRule) -> None:
    """Makes of a rule alone what the stage makes of it, and forgets it; raises what that raises."""
    FilterMatcher((), [rule.of])
