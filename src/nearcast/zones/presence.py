"""Who is in the zones of one layer, held against a stretch of reports in columns.

A stretch is evaluated in three steps: which zones each watched position is in, what that does to each pair of an entity
and a zone, report by report, and what is told of it. The outcome is that of the plain reference (`reference`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nearcast.errors import Fault
from nearcast.model.arrays import Flags, Floats, Integers, distinct
from nearcast.model.limits import Limits
from nearcast.model.relation import DETECTIONS
from nearcast.model.sequence import MOST_PARTS
from nearcast.model.zone import ZoneLayer, ZoneRule
from nearcast.relations.candidates import TooManyPairs
from nearcast.relations.entity_table import GEOGRAPHIC, NOWHERE, PLANAR, EntityTable, GrowableTable
from nearcast.relations.reports import ReportTable, clock_pair, micros_of, pair_waits
from nearcast.relations.transition_events import CAUSED, EXPIRED
from nearcast.relations.transitions import (
    BEGINS,
    DETECTS,
    FAILS,
    FALLS_SILENT,
    LEAVES,
    UNCHANGED,
    Lifecycle,
    PairEffects,
    PairTransitions,
    deadlines,
    micros,
    pair_transitions,
    tells_exit,
    time_tells,
)
from nearcast.state.derived import Cause
from nearcast.state.lateness import FOREVER, NEVER
from nearcast.state.stream_clocks import SHARED, StreamClocks
from nearcast.zones.told_zones import (
    CHANGED,
    GONE,
    NO_REASON,
    NO_ZONE,
    NOTHING,
    SILENT,
    ToldRows,
    ToldZones,
    joined_zones,
    told_rows,
    told_zones,
    zone_reasons,
)
from nearcast.zones.zone_index import ZoneHits, ZoneIndex

MOST_EVALUATIONS = 250_000
"""Pairs of an entity and a zone that a stretch of several reports looks at, each as often as the entity reports."""


def lifecycle_of(rule: ZoneRule) -> Lifecycle:
    """How long one must be in a zone, and may be silent, and what is told of that."""
    spans = (FOREVER if one is None else micros(one) for one in (rule.lasting, rule.time_to_live))
    return Lifecycle(sum(DETECTS[one] for one in DETECTIONS if one in rule.detect), *spans)


def presence_rows() -> GrowableTable:
    """A table for pairs of an entity and a zone, by number: whether it is in it, since when, and if it was told that
    this lasts, which is due at a time of its `clocks`, those of the report with which it began, as pairs have them.
    """
    return GrowableTable(
        {"rule": np.int8(0), "a": np.int64(0), "zone": np.int64(0), "held": np.False_, "dwell_sent": np.False_}
        | {"started_at": np.int64(NEVER), "due": np.int64(FOREVER), "clocks": np.int16(SHARED)}
    )


@dataclass(frozen=True, slots=True)
class WatchedNow:
    """What is known of watched entities when something is defined: numbers and places, how far the clock of each has
    come, and its number.
    """

    entity: Integers
    x: Floats
    y: Floats
    now: Integers
    clock: Integers

    def select(self, which: Integers) -> WatchedNow:
        """Some of them."""
        places = (self.entity[which], self.x[which], self.y[which])
        return WatchedNow(*places, self.now[which], self.clock[which])


@dataclass(frozen=True, slots=True)
class StretchEffects:
    """What a stretch does to pairs, which are rows of a layer's table; which reports that count are watched; how
    many zones did not count for an entity that was in too many; the rows of reports for which zones were too much work,
    and of those for which the margin was.
    """

    which: Integers
    effects: PairEffects
    watched: Flags
    crowded: int
    excess: Integers
    unmeasured: Integers


class LayerPresence:
    """A layer's rule, its zones, and who is in them: a row for each pair that holds."""

    def __init__(self, layer: ZoneLayer, sequence: int, known: EntityTable) -> None:
        self.layer = layer
        self.sequence = sequence
        self.crowded = 0
        self.pairs = presence_rows()
        self.index = ZoneIndex(layer.rule.coordinates)
        self.index.set(layer.zones)
        self._known = known
        self._lifecycle = lifecycle_of(layer.rule)
        self._kind = GEOGRAPHIC if layer.rule.coordinates == "geographic" else PLANAR
        self._rules = GrowableTable({"detects": np.int8(0), "lasting": np.int64(FOREVER)})
        self._rules.append(detects=self._lifecycle.detects, lasting=self._lifecycle.lasting)

    @property
    def rule(self) -> ZoneRule:
        """Whose positions are watched, and what is told."""
        return self.layer.rule

    def evaluate(self, reports: ReportTable, selected: Flags, limits: Limits) -> StretchEffects:
        """What a stretch does; entities are not updated yet. `selected`: which reports that count the filter selects.

        Raises `TooManyPairs` for a stretch of several rows that looks at too many pairs; it may be given again, then
        or when another layer raises it.
        """
        self._drop()
        placed = reports.columns["kind"] != NOWHERE
        # A report so old that its entity is silent by the clock says of nobody that he is there.
        selected = selected & (reports.now[reports.row] <= self._silent_after(reports.began[reports.row]))
        watched = selected & (reports.columns["kind"] == self._kind)
        probes = np.flatnonzero(watched)
        x, y = (reports.columns[name][probes] for name in ("x", "y"))
        hits = self.index.hits(x, y, limits)
        report, zone = probes[hits.point], hits.zone
        cut = np.full(len(watched), len(self.index))
        cut[probes] = hits.cut
        which = self._concerned(reports, reports.entity[report], zone)
        pair, own = reports.of_entities(self.pairs["a"][which])
        if len(own) > MOST_EVALUATIONS and reports.length > 1:
            raise TooManyPairs
        size = max(1, len(self.index))
        inside = _among(own * size + self.pairs["zone"][which][pair], report * size + zone)
        effect = np.where(placed[own] & ~selected[own], LEAVES, UNCHANGED)
        effect[watched[own] & inside] = BEGINS
        outside = np.flatnonzero(watched[own] & ~inside)
        unmeasured = self._fail(effect, outside, which[pair], own, reports, limits, cut)
        effects = PairEffects(pair, reports.row[own], effect, np.full(len(own), FOREVER))
        excess = reports.row[probes[hits.cut < len(self.index)]]
        return StretchEffects(
            which, self._with_silence(which, effects, reports), watched, hits.crowded, excess, unmeasured
        )

    def transitions(self, found: StretchEffects, reports: ReportTable) -> ToldZones:
        """What a stretch tells that does this."""
        which, effects = found.which, found.effects
        self.crowded += found.crowded
        told = list(self._states(which, effects, found.watched, reports))
        some = effects.select(np.flatnonzero(effects.effect != UNCHANGED))
        for outcome in pair_transitions(self.pairs, which, some, self._rules, reports):
            told.append(self._outcome(outcome, which[outcome.pair], reports))
        named = self._told(told, reports)
        self._drop()
        return named

    def _told(self, rows: Sequence[ToldRows], reports: ReportTable) -> ToldZones:
        return told_zones((self.sequence, self.rule.id), self._known, self.index.zones, reports, rows)

    def _concerned(self, reports: ReportTable, entity: Integers, zone: Integers) -> Integers:
        """The rows of pairs that a stretch may change, by entity, then zone; those that it may begin have rows then."""
        pairs, size = self.pairs, max(1, len(self.index))
        new = distinct(entity * size + zone)
        new = new[~_among(new, pairs["a"] * size + pairs["zone"])]
        pairs.append(len(new), a=new // size, zone=new % size)
        due = pairs["due"] <= reports.slower_end(pairs["clocks"])
        concerned = (reports.counts > 0)[pairs["a"]] | (pairs["held"] & due)
        if self._lifecycle.time_to_live != FOREVER:
            ends = reports.ends
            now = ends[SHARED] if reports.single else ends[reports.base["clock"][pairs["a"]]]
            concerned |= pairs["held"] & (self._silent_after(reports.base["heard"][pairs["a"]]) < now)
        which = np.flatnonzero(concerned)
        return which[np.argsort(pairs["a"][which] * size + pairs["zone"][which], kind="stable")]

    def _silent_after(self, heard: Integers) -> Integers:
        """The time through which who was heard then counts."""
        return deadlines(heard, np.full(len(heard), self._lifecycle.time_to_live))

    def _fail(
        self,
        effect: Integers,
        outside: Integers,
        row: Integers,
        own: Integers,
        reports: ReportTable,
        limits: Limits,
        cut: Integers,
    ) -> Integers:
        """Notes where watched reports are out of their zones; within the margin, and where that is not known, they
        change nothing. The rows of reports for which measuring the margin takes too much work.
        """
        if self.rule.margin:
            # Who was in no zone before needs none: only what may hold is measured.
            outside = outside[self._may_hold(effect, row)[outside]]
        zone, x, y = self.pairs["zone"][row[outside]], *(reports.columns[name][own[outside]] for name in ("x", "y"))
        cut = cut[own[outside]]
        beyond = self.index.beyond(zone, x, y, self.rule.margin, limits, cut)
        effect[outside[beyond == 1]] = FAILS
        unknown = np.flatnonzero(beyond < 0)
        unknown = unknown[self.index.looked_at(zone[unknown], x[unknown], y[unknown], cut[unknown])]
        return distinct(reports.row[own[outside[unknown]]])

    def _may_hold(self, effect: Integers, row: Integers) -> Flags:
        """Of each evaluation whether its pair held when the stretch began, or one of it has begun it by then."""
        begins = effect == BEGINS
        begun, number = np.cumsum(begins), np.arange(len(row))
        first = np.append(True, row[1:] != row[:-1])[: len(row)]
        start = np.maximum.accumulate(np.where(first, number, 0)) if len(row) else number
        found: Flags = self.pairs["held"][row] | (begun > (begun - begins)[start])
        return found

    def _with_silence(self, which: Integers, reported: PairEffects, reports: ReportTable) -> PairEffects:
        """The effects with those of silence, by pair, then row, what lapsed before what the row itself did."""
        if self._lifecycle.time_to_live == FOREVER or not len(which):
            return reported
        silent = self._silence(self.pairs["a"][which], reports)
        both = ((getattr(reported, name), getattr(silent, name)) for name in PairEffects.__slots__)
        effects = PairEffects(*(np.concatenate(parts) for parts in both))
        lapsed = effects.effect == FALLS_SILENT
        return effects.select(np.lexsort((effects.deadline, ~lapsed, effects.row, effects.pair)))

    def _silence(self, entity: Integers, reports: ReportTable) -> PairEffects:
        """Where entities fall silent: at the first row beyond their deadlines, unless a report comes before."""
        pair, report = reports.of_entities(entity)
        row = np.concatenate([np.full(len(entity), -1), reports.row[report]])
        pair = np.concatenate([np.arange(len(entity)), pair])
        heard = np.concatenate([reports.base["heard"][entity], reports.began[reports.row[report]]])
        order = np.lexsort((row, pair))
        pair, row, until = pair[order], row[order], self._silent_after(heard[order])
        clock = reports.clock_of(np.concatenate([entity, reports.known + report])[order])
        # At the row of a report the silence before it lapses first, so that row counts.
        last = np.append(pair[1:] != pair[:-1], True)[: len(pair)]
        end = np.where(last, reports.length, np.append(row[1:], 0)[: len(row)])
        falls = reports.first_row(until, clock, "right")
        some = np.flatnonzero((falls <= end) & (falls < reports.length) & (falls > row))
        return PairEffects(pair[some], falls[some], np.full(len(some), FALLS_SILENT), until[some])

    def _states(
        self, which: Integers, effects: PairEffects, watched: Flags, reports: ReportTable
    ) -> Iterator[ToldRows]:
        """What is told at each watched report: in which zones its entity is, or that it is in none."""
        wanted = [one for one in ("inside", "outside") if one in self.rule.detect]
        if not wanted:
            return
        held, since = self._course(which, effects, reports)
        report_of = np.full(reports.length, -1)
        report_of[reports.row[watched]] = np.flatnonzero(watched)
        report = report_of[effects.row]
        now_in = held & (effects.effect != FALLS_SILENT) & (report >= 0)
        if "inside" in wanted:
            at = np.flatnonzero(now_in)
            own, points = self._pairs_at(which[effects.pair[at]]), reports.known + report[at]
            yield told_rows("inside", own, points, since[at], effects.row[at])
        if "outside" in wanted:
            out = watched.copy()
            out[report[now_in]] = False
            some = np.flatnonzero(out)
            own = reports.entity[some], np.full(len(some), NO_ZONE)
            yield told_rows("outside", own, reports.known + some, np.full(len(some), NEVER), reports.row[some])

    def _pairs_at(self, rows: Integers) -> tuple[Integers, Integers]:
        """Entities and zones of some rows of the pairs, by their numbers."""
        return self.pairs["a"][rows], self.pairs["zone"][rows]

    def _course(self, which: Integers, effects: PairEffects, reports: ReportTable) -> tuple[Flags, Integers]:
        """Whether each pair holds after each effect, and since when, by the time of the event."""
        number = np.arange(len(effects.pair))
        first = np.append(True, effects.pair[1:] != effects.pair[:-1])[: len(number)]
        start = np.maximum.accumulate(np.where(first, number, 0)) if len(number) else number
        begins = effects.effect == BEGINS
        last = np.maximum.accumulate(np.where(effects.effect != UNCHANGED, number, -1)) if len(number) else number
        rows = which[effects.pair]
        held = np.where(last >= start, begins[np.maximum(last, 0)], self.pairs["held"][rows])
        before = np.where(first, self.pairs["held"][rows], np.append(False, held)[: len(held)])
        begun = np.maximum.accumulate(np.where(held & ~before, number, -1)) if len(number) else number
        moment = reports.moment[effects.row]
        since = np.where(begun >= start, moment[np.maximum(begun, 0)], self.pairs["started_at"][rows])
        return held, since

    def _outcome(self, outcome: PairTransitions, rows: Integers, reports: ReportTable) -> ToldRows:
        """What an outcome tells, of these rows of the pairs."""
        # What lapses does so before the event that brings the time: entities are told where they were until then.
        before = np.where(outcome.phase == EXPIRED, 1, 0)
        points = reports.as_of(self.pairs["a"][rows], outcome.row - before)
        reasons = zone_reasons(outcome.effect) if outcome.detect == "exit" else NO_REASON
        own, since = self._pairs_at(rows), outcome.started_at
        return told_rows(outcome.detect, own, points, since, outcome.row, outcome.phase, reasons, outcome.time)

    def next_due(self, clocks: StreamClocks) -> int:
        """Microseconds until something is told though nothing is reported; see `DerivingStage.next_due`."""
        pairs, columns = self.pairs, self._known.columns
        rows = np.flatnonzero(pairs["held"])
        due, entity = pairs["due"][rows], pairs["a"][rows]
        silent_after = self._silent_after(columns["heard"][entity])
        detects = np.full(len(rows), self._lifecycle.detects, np.int8)
        lasts, ends = time_tells(detects, due, pairs["dwell_sent"][rows], silent_after)
        silent = clocks.wait(silent_after[ends], None if clocks.single else columns["clock"][entity[ends]])
        # Through its deadline an entity is not silent.
        ending = silent if silent == FOREVER else silent + 1
        return min(pair_waits(clocks, due[lasts], pairs["clocks"][rows][lasts]), ending)

    def set_clocks(self) -> None:
        """Lets everything go by the clocks by which its entities go now, those being others."""
        clock = self._known.columns["clock"][self.pairs["a"]]
        self.pairs["clocks"][:] = clock_pair(clock, clock)

    def _drop(self) -> None:
        """Forgets pairs that do not hold."""
        # A copy: the column itself is moved up on the way.
        held = self.pairs["held"].copy()
        if not held.all():
            self.pairs.keep(held)

    def set_zones(self, layer: ZoneLayer, watched: WatchedNow, cause: Cause, limits: Limits) -> ToldZones:
        """Takes a layer of the same rule with other zones; what that tells of who is in them. Raises `Fault`, with
        nothing changed, where it is more than one event may cause.
        """
        saved = self.layer, self.index, self.pairs
        self.pairs = self.pairs.chosen(np.arange(self.pairs.length))
        try:
            told = self._rezoned(layer, watched, cause, limits)
            check_room(len(told))
        except (TooManyPairs, Fault):
            self.layer, self.index, self.pairs = saved
            check_room(MOST_PARTS + 1)
            raise
        return told

    def _rezoned(self, layer: ZoneLayer, watched: WatchedNow, cause: Cause, limits: Limits) -> ToldZones:
        before = self.index.zones
        same = {zone.name for zone in before if zone.geometry == _geometry(layer, zone.name)}
        gone = np.array([zone.name not in layer.zones for zone in before], np.bool_)
        ended = self._ended(np.flatnonzero(gone[self.pairs["zone"]]), GONE)
        self.layer = layer
        self.index = self.index.with_zones(layer.zones)
        numbers = np.array([self.index.numbers.get(zone.name, -1) for zone in before], np.int64)
        self.pairs["zone"][:] = numbers[self.pairs["zone"]] if len(before) else 0
        fresh = np.array([zone.name not in same for zone in self.index.zones], np.bool_)
        watched = self._concerned_by(fresh, watched)
        hits = self._hits(watched, limits)
        changed = self._unheld(hits, fresh, watched, limits)
        return joined_zones([ended, changed, self.begin(hits, fresh, watched, cause)])

    def _concerned_by(self, fresh: Flags, watched: WatchedNow) -> WatchedNow:
        """Those who are in the boxes of zones that are others now, or count as in one of them.

        Nothing is told of others; so of a layer that comes in many changes each looks at few.
        """
        own = np.zeros(len(self._known), np.bool_)
        own[self.pairs["a"][fresh[self.pairs["zone"]]]] = True
        near = self.index.in_boxes(fresh, watched.x, watched.y) if fresh.any() else np.zeros(0, np.int64)
        own[watched.entity[near]] = True
        return watched.select(np.flatnonzero(own[watched.entity]))

    def _hits(self, watched: WatchedNow, limits: Limits) -> ZoneHits:
        return self.index.hits(watched.x, watched.y, limits, bounded=False)

    def _unheld(self, hits: ZoneHits, fresh: Flags, watched: WatchedNow, limits: Limits) -> ToldZones:
        """The ends of what does not hold in zones that are others now, as far as it is known where its entity is."""
        if not fresh.any() or not self.pairs.length:
            return NOTHING
        at = np.full(len(self._known), -1)
        at[watched.entity] = np.arange(len(watched.entity))
        size = max(1, len(self.index))
        point, zone = at[self.pairs["a"]], self.pairs["zone"]
        out = fresh[zone] & (point >= 0) & ~_among(point * size + zone, hits.point * size + hits.zone)
        rows = np.flatnonzero(out)
        x, y = (column[point[rows]] for column in (watched.x, watched.y))
        beyond = self.index.beyond(zone[rows], x, y, self.rule.margin, limits, hits.cut[point[rows]])
        return self._ended(rows[beyond == 1], CHANGED)

    def present(self, watched: WatchedNow, limits: Limits, ended: int) -> ZoneHits:
        """Who is in which zone when the layer is defined. Raises `Fault` where that, and what ends, is more than one
        event may cause.
        """
        try:
            hits = self._hits(watched, limits)
        except TooManyPairs:
            check_room(MOST_PARTS + 1)
            raise
        check_room(len(hits.point) + ended)
        return hits

    def begin_present(self, hits: ZoneHits, watched: WatchedNow, cause: Cause) -> ToldZones:
        """Begins what holds when the layer is defined."""
        return self.begin(hits, np.ones(len(self.index), np.bool_), watched, cause)

    def begin(self, hits: ZoneHits, fresh: Flags, watched: WatchedNow, cause: Cause) -> ToldZones:
        """Begins what is so now in some zones, and holds not yet."""
        point, zone = (column[fresh[hits.zone]] for column in (hits.point, hits.zone))
        entity, size = watched.entity[point], max(1, len(self.index))
        new = ~_among(entity * size + zone, self.pairs["a"] * size + self.pairs["zone"])
        entity, zone, now = entity[new], zone[new], watched.now[point[new]]
        clock = watched.clock[point[new]]
        due = deadlines(now, np.full(len(now), self._lifecycle.lasting))
        since = np.where(now == NEVER, micros_of(cause.moment), np.minimum(micros_of(cause.moment), now))
        columns = {"a": entity, "zone": zone, "started_at": since, "due": due, "clocks": clock_pair(clock, clock)}
        first = self.pairs.append(len(entity), held=True, **columns)
        if "enter" not in self.rule.detect:
            return NOTHING
        since = self.pairs["started_at"][first:]
        return self._told_now(told_rows("enter", (entity, zone), entity, since, present=True))

    def end(self) -> ToldZones:
        """The ends of everything that holds."""
        return self._ended(np.arange(self.pairs.length), GONE)

    def forget(self, gone: Flags) -> ToldZones:
        """Ends what holds with some entities, by number, as if they had fallen silent."""
        return self._ended(np.flatnonzero(gone[self.pairs["a"]]), SILENT)

    def renumber(self, numbers: Integers) -> None:
        """Gives every entity its new number."""
        self.pairs["a"][:] = numbers[self.pairs["a"]]

    def _ended(self, rows: Integers, reason: int) -> ToldZones:
        """Ends what holds in some rows."""
        sent, detects = self.pairs["dwell_sent"][rows], self._lifecycle.detects
        some = rows[np.where(sent, tells_exit(detects, True), tells_exit(detects, False))]
        phase = EXPIRED if reason == SILENT else CAUSED
        own, since = self._pairs_at(some), self.pairs["started_at"][some]
        told = self._told_now(told_rows("exit", own, own[0], since, phase=phase, reason=reason))
        self.pairs["held"][rows] = False
        self._drop()
        return told

    def _told_now(self, rows: ToldRows) -> ToldZones:
        """What is told of entities where they are now: their points are their numbers."""
        return self._told([rows], ReportTable.nothing(self._known)) if len(rows.row) else NOTHING

    def holding(self) -> Collection[tuple[str, str]]:
        """Who is in which zone, by names."""
        rows = zip(self.pairs["a"].tolist(), self.pairs["zone"].tolist(), strict=True)
        return {(self._known.names[entity], self.index.zones[zone].name) for entity, zone in rows}


def check_room(count: int) -> None:
    """Raises `Fault` where so many things would be told of one change."""
    if count > MOST_PARTS:
        advice = "define fewer zones over each other, or change them one by one"
        raise Fault(f"zones of which one change tells {MOST_PARTS:,} things at most", "more", None, advice)


def _geometry(layer: ZoneLayer, name: str) -> str | None:
    return layer.zones[name].geometry if name in layer.zones else None


def _among(keys: Integers, known: Integers) -> Flags:
    """Which keys are among those known."""
    if not len(known) or not len(keys):
        return np.zeros(len(keys), np.bool_)
    known = np.sort(known)
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    found: Flags = known[at] == keys
    return found
