"""Rules in lanes: those that wait equally long and go by the same clocks are decided together (semantics §11).

A rule goes by the slowest clock of the channels in which readings came that it, or a rule below it, asks for. While all
channels share one clock there is a lane for each lateness. Where a class is read in another channel for the first time,
the rules that ask for it go on in a lane of their own, which begins as a copy of the one that they were in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from nearcast.model.arrays import Integers
from nearcast.model.columns import EVENTS, are_derived
from nearcast.model.ontology import Ontology, below, upwards
from nearcast.model.situation import Situation
from nearcast.model.subscription import Channel
from nearcast.situations.extract import LaneRows, ObservedTable, ReportedReadings
from nearcast.situations.instances import SituationChanged, SituationScene
from nearcast.situations.lifecycle import SituationEngine
from nearcast.situations.readings import NamedAreas
from nearcast.situations.reorder_buffer import ReorderBuffer
from nearcast.situations.rule_plan import SECOND, DefinedRule, RulePlan, counts_of, names_of, plan, standing_on
from nearcast.state.lateness import FOREVER, NEVER, moments_of
from nearcast.state.repository import NewestEvents, entities
from nearcast.state.stream_clocks import SHARED, SHARED_NAME, StreamClocks, slowest_over

ALL_SHARE = frozenset({SHARED_NAME})
"""By what rules go while all channels share one clock."""


class Tells(Protocol):
    """Whether what happens in a lane is told."""

    def __call__(self, found: SituationChanged, lane: ReorderBuffer) -> bool:
        """Whether it is."""


Groups = dict[frozenset[str], dict[str, int]]
"""Rules by the clocks by which they go, each with the position behind which it sees events."""


class RuleLanes:
    """The lanes, in the order in which what they tell at one event is told. `read_by` has, while there are several
    clocks, for each class those of the channels in which readings of it came.
    """

    def __init__(self, scene: Callable[[RulePlan], SituationScene]) -> None:
        self._scene = scene
        self.lanes: list[ReorderBuffer] = []
        self.clocks = StreamClocks()
        self.read_by: dict[str, frozenset[str]] = {}
        self.made = 0
        self.areas = NamedAreas(Ontology())
        self._ontology = Ontology()
        self._defined: dict[str, DefinedRule] = {}
        self._below: Mapping[str, tuple[str, ...]] = {}
        self._reads: Mapping[str, frozenset[str]] = {}

    def define(self, ontology: Ontology, defined: Iterable[DefinedRule]) -> None:
        """Takes in the rules that there are by now; `planned` lets them run."""
        self._ontology, self._defined = ontology, {one.rule.id: one for one in defined}
        rules = [one.rule for one in self._defined.values()]
        self._below = standing_on(rules, ontology)
        self._reads = {} if self.clocks.single else reads_of(rules, ontology)

    def planned(self) -> Iterator[tuple[ReorderBuffer, RulePlan]]:
        """Each lane with the rules that run in it by now. Those that are as they were go on where they are."""
        for lane in list(self.lanes):
            lane.left = dict(lane.told)
            lane.told = {id: after for id, after in lane.told.items() if self._is_defined(id, after)}
            if lane.told:
                self._split(lane)
        running = {id for lane in self.lanes for id in lane.told}
        for id, one in self._defined.items():
            if one.rule.sufficient and id not in running:
                self._lane_for(one.rule).told[id] = one.after
        self.lanes.sort(key=lambda one: (one.lateness, one.number))
        for lane in self.lanes:
            lane.names = self._names(lane)
            yield lane, self.plan_of(lane)

    def _is_defined(self, id: str, after: int) -> bool:
        return id in self._defined and self._defined[id].after == after

    def drop_empty(self) -> None:
        """Forgets lanes in which no rule is any more."""
        self.lanes = [lane for lane in self.lanes if lane.told]

    def plan_of(self, lane: ReorderBuffer) -> RulePlan:
        """The rules of a lane, with all that they stand on, made ready."""
        necessary = [id for id, one in self._defined.items() if not one.rule.sufficient]
        needed = {lower for id in (*lane.told, *necessary) for lower in upwards(self._below, id)}
        found = plan(self._ontology, [one for id, one in self._defined.items() if id in needed])
        found.zones = frozenset() if self.areas.zones is None else self.areas.zones.names
        return found

    def stored(
        self, lateness: int, clocks: Iterable[str], told: Iterable[tuple[str, int]], number: int, time: int
    ) -> ReorderBuffer:
        """A lane as it was stored, without what was known in it."""
        lane = self._made(lateness, frozenset(clocks), number)
        lane.told, lane.time = dict(told), time
        lane.names = self._names(lane)
        self.lanes.append(lane)
        return lane

    def _fresh(self, lateness: int, clocks: frozenset[str]) -> ReorderBuffer:
        self.made += 1
        return self._made(lateness, clocks, self.made)

    def _made(self, lateness: int, clocks: frozenset[str], number: int) -> ReorderBuffer:
        engine = SituationEngine(self._scene(plan(Ontology(), ())))
        return ReorderBuffer(lateness, engine, self.areas, clocks=clocks, number=number)

    def _lane_for(self, rule: Situation) -> ReorderBuffer:
        """Where a rule begins that was not there: with others of its lateness and clocks, above all those below it."""
        lateness, clocks = round(rule.lateness * SECOND), self._clocks_of(rule.id)
        lane = self._joinable(lateness, clocks, set(self._below[rule.id]))
        if lane is None:
            lane = self._fresh(lateness, clocks)
            self.lanes.append(lane)
        return lane

    def _joinable(self, lateness: int, clocks: frozenset[str], lower: set[str]) -> ReorderBuffer | None:
        """A lane that goes by these clocks and does not stand, waiting for one of them."""
        now = self._slowest(clocks)
        found = [one for one in self.lanes if (one.lateness, one.clocks) == (lateness, clocks) and one.time <= now]
        return min(found, key=lambda one: (-len(one.told.keys() & lower), one.number), default=None)

    def _clocks_of(self, id: str) -> frozenset[str]:
        """The clocks by which a rule goes; none, where nothing that it asks for was read."""
        if self.clocks.single:
            return ALL_SHARE
        return frozenset().union(*(self.read_by.get(name, ()) for name in self._reads[id]))

    def _names(self, lane: ReorderBuffer) -> frozenset[str]:
        return frozenset().union(*(self._reads.get(id, ()) for id in lane.told))

    def _numbers(self, clocks: frozenset[str]) -> list[int]:
        if self.clocks.single:
            return [SHARED]
        return [number for number, name in enumerate(self.clocks.names) if name in clocks]

    def _slowest(self, clocks: frozenset[str]) -> int:
        """How far the slowest of some clocks has come; of none, nothing is ahead of it."""
        return max(0, self.clocks.slowest(self._numbers(clocks))) if clocks else 0

    def regroup(self) -> None:
        """Lets rules go by the clocks of the channels in which readings came by now, each going on as it is."""
        for lane in list(self.lanes):
            for one in self._split(lane):
                # The others are known to the lanes in which they go on.
                one.names = self._names(one)
                one.engine.keep(self.plan_of(one))
        self.lanes = sorted((one for one in self.lanes if one.told), key=lambda one: (one.lateness, one.number))

    def _split(self, lane: ReorderBuffer) -> list[ReorderBuffer]:
        """Leaves in a lane what goes by its clocks, and brings others to other lanes; those that have other rules."""
        groups = self._grouped(lane.told)
        if set(groups) == {lane.clocks}:
            return []
        changed = [lane]
        nothing_read = not lane.clocks
        leaving = sorted((clocks for clocks in groups if clocks != lane.clocks), key=sorted)
        if lane.clocks not in groups and not nothing_read:
            # All go by other clocks, and one group stays where it is.
            lane.clocks = leaving.pop(0)
        for clocks in leaving:
            # What no reading came for goes on anywhere.
            target = self._joinable(lane.lateness, clocks, set()) if nothing_read else None
            if target is None:
                target = self._copy(lane, clocks)
            target.told |= groups[clocks]
            target.left |= groups[clocks]
            changed.append(target)
            lane.left = {id: after for id, after in lane.left.items() if id not in groups[clocks]}
        lane.told = groups.get(lane.clocks, {})
        return changed

    def _grouped(self, rules: Mapping[str, int]) -> Groups:
        found: Groups = {}
        for id, after in rules.items():
            found.setdefault(self._clocks_of(id), {})[id] = after
        return found

    def _copy(self, lane: ReorderBuffer, clocks: frozenset[str]) -> ReorderBuffer:
        self.made += 1
        found = lane.copy()
        found.clocks, found.number, found.told, found.left = clocks, self.made, {}, {}
        self.lanes.append(found)
        return found

    def arrivals(self, table: pa.Table, reported: Sequence[ReportedReadings]) -> Iterator[int]:
        """The rows, ascending, of readings of a class in a channel in which none came before. When the next is asked
        for, `read_by` has those of the last one.
        """
        if self.clocks.single:
            return
        numbers, derived = self.clocks.numbers(table).tolist(), are_derived(table).tolist()
        for row, read, _ in reported:
            # What was derived entered in no channel.
            if derived[row]:
                continue
            clock = self.clocks.names[numbers[row]]
            # Of entities those came that count, or may.
            new = [name for name, value in read.items() if value is not False and self._is_new(name, clock)]
            if new:
                self.read_by |= {name: self.read_by.get(name, frozenset()) | {clock} for name in new}
                yield row

    def _is_new(self, name: str, clock: str) -> bool:
        return clock not in self.read_by.get(name, ())

    def observed(self, table: pa.Table, reported: Sequence[ReportedReadings]) -> tuple[ObservedTable, list[LaneRows]]:
        """What a table tells, and what of it each lane hears, with its clock at every row."""
        derived, numbers = are_derived(table), self.clocks.numbers(table)
        series = self._follow_events(table)
        # An event without any time is of the clock.
        own = np.maximum(series[numbers, np.arange(len(numbers))], 0)
        rows = ObservedTable(table, reported, own, self.areas)
        return rows, [self._heard(lane, rows, series, np.where(derived, -1, numbers)) for lane in self.lanes]

    def pass_over(self, table: pa.Table) -> None:
        """Lets the clocks come so far as a table brings them: without rules nothing else goes on."""
        if len(table):
            self.clocks.follow(self.clocks.numbers(table), self._own_moments(table))

    def _follow_events(self, table: pa.Table) -> Integers:
        """The same; how far each is at every row."""
        series = self.clocks.over(self.clocks.numbers(table), self._own_moments(table))
        self.clocks.set_to(series[:, -1])
        return series

    def _own_moments(self, table: pa.Table) -> Integers:
        # What was derived entered in no channel, and moves no clock of one.
        moments = moments_of(table)
        return moments if self.clocks.single else np.where(are_derived(table), NEVER, moments)

    def _heard(self, lane: ReorderBuffer, rows: ObservedTable, series: Integers, numbers: Integers) -> LaneRows:
        own, count = self._numbers(lane.clocks), series.shape[1]
        times = np.maximum(slowest_over(series, own), lane.time) if own else np.full(count, lane.time)
        lane.time = int(times[-1])
        if self.clocks.single:
            return LaneRows(times.tolist(), rows.positions, rows.observed)
        heard, aside = [], set[int]()
        in_own = np.isin(numbers, [*own, -1]).tolist()
        for one in rows.observed:
            read = {name: value for name, value in one.read.items() if name in lane.names} if in_own[one.row] else {}
            if not in_own[one.row]:
                aside.add(one.row)
            if read or one.place is not None:
                heard.append(one if len(read) == len(one.read) else one._replace(read=read))
        return LaneRows(times.tolist(), rows.positions, heard, frozenset(aside))

    def follow(self) -> None:
        """Lets each lane come so far as its clocks are."""
        for lane in self.lanes:
            lane.time = max(lane.time, self._slowest(lane.clocks))

    def next_due(self, clocks: StreamClocks, tells: Tells) -> int:
        """Microseconds until the first of them has something to tell; see `DerivingStage`. `tells` says of what happens
        in a lane whether it is told.
        """
        waits = [FOREVER]
        for lane in self.lanes:
            if lane.clocks:
                now = clocks.slowest(self._numbers(lane.clocks))
                due = lane.told_by(now, partial(tells, lane=lane))
                waits.append(StreamClocks.alone(now).wait(np.array([due] if due is not None else [], np.int64)))
        return min(waits)

    def set_channels(self, channels: Sequence[Channel], repository: NewestEvents) -> None:
        """Goes on by the clocks of other channels, as if these had always been so."""
        if not self.clocks.changes_with(channels):
            self.clocks = self.clocks.redefined(channels, EVENTS.empty_table())
            return
        newest = repository.newest()
        self.clocks = self.clocks.redefined(channels, newest)
        self.define(self._ontology, self._defined.values())
        self.read_by = {} if self.clocks.single else self._known_to_be_read(newest)
        self.regroup()

    def _known_to_be_read(self, newest: pa.Table) -> dict[str, frozenset[str]]:
        """By the channels in which those whose readings are known reported last."""
        names = (self.clocks.names[number] for number in self.clocks.numbers(newest).tolist())
        clock_of = dict(zip(entities(newest).to_pylist(), names, strict=True))
        found: defaultdict[str, set[str]] = defaultdict(set)
        for lane in self.lanes:
            for name, entity in lane.known():
                found[name].add(clock_of.get(entity, SHARED_NAME))
        return {name: frozenset(clocks) for name, clocks in found.items()}


def reads_of(rules: Sequence[Situation], ontology: Ontology) -> dict[str, frozenset[str]]:
    """For each rule, by id, the classes of which readings may make it another, through the rules below it too, and what
    it counts, by how that is written.
    """
    under, above = below(ontology.serving()), ontology.parents()
    direct = {one.id: _named(one, under) for one in rules}
    concluding: defaultdict[str, list[Situation]] = defaultdict(list)
    for one in rules:
        concluding[one.concludes].append(one)

    def necessary(name: str) -> Iterator[frozenset[str]]:
        """What a situation must not contradict."""
        over = (one for higher in upwards(above, name) for one in concluding.get(higher, ()) if not one.sufficient)
        return (direct[one.id] for one in over)

    nexts = {
        name: frozenset().union(*(direct[one.id] for one in concluding.get(name, ())), *necessary(name))
        for name in {*concluding, *(name for found in direct.values() for name in found)}
    }
    return {one.id: _reached(direct[one.id].union(*necessary(one.concludes)), nexts) for one in rules}


def _named(rule: Situation, under: Mapping[str, frozenset[str]]) -> frozenset[str]:
    served = (sub for name in names_of(rule.when) for sub in under.get(name, (name,)))
    return frozenset([*served, *counts_of(rule.when)])


def _reached(names: Iterable[str], nexts: Mapping[str, frozenset[str]]) -> frozenset[str]:
    found, waiting = set(names), list(names)
    while waiting:
        new = nexts.get(waiting.pop(), frozenset()) - found
        found |= new
        waiting += new
    return frozenset(found)
