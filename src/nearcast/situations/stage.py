"""The stage infer: events go in by tables, situations and what actions call for come out as derived events.

What comes out depends on the events and definitions alone, not on how events are cut into tables.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import merge
from operator import itemgetter

import numpy as np
import pyarrow as pa

from nearcast.errors import Fault
from nearcast.model.changes import (
    ActionChange,
    ActionRemoval,
    Change,
    ClockTick,
    SettingsChange,
    SituationChange,
    SituationRemoval,
    ZoneRemoval,
    ZoneRuleChange,
    ZoneShapesChange,
)
from nearcast.model.event import Event
from nearcast.model.limits import Limits
from nearcast.model.ontology import Ontology, below
from nearcast.model.situation import Action, Situation
from nearcast.model.subscription import Settings
from nearcast.situations.diagnosis import RuleFinding, find
from nearcast.situations.events import action_events, lone_situation, situation_data, situation_event
from nearcast.situations.extract import CountedEvents, ReadingExtractor, ReportedReadings
from nearcast.situations.instances import SituationChanged, SituationScene
from nearcast.situations.lifecycle import REMOVED
from nearcast.situations.readings import NamedAreas
from nearcast.situations.reorder_buffer import Found, ReorderBuffer
from nearcast.situations.rule_lanes import RuleLanes
from nearcast.situations.rule_plan import (
    DefinedRule,
    RulePlan,
    counts_of,
    names_of,
    rule_cycle,
    unit_of,
)
from nearcast.situations.store import SituationStore
from nearcast.situations.zones_around import ZoneAreas
from nearcast.state.derived import Cause, StageInput
from nearcast.state.registry import Registry
from nearcast.state.stream_clocks import StreamClocks
from nearcast.state.timeline import Excess

log = logging.getLogger(__name__)

BEYOND = "more than are kept for aggregates over a time"
"""Why readings are left out of windows."""

UNCOUNTED = "more entities than are counted"
"""Why entities are left out of counts."""


class SituationStage:
    """Situations as of a position of the journal: rules, readings, what is running. Its state can be pickled.

    `scene` makes the scenes that situations run in. `refused` counts readings that are none, by class and reason, and
    rules that stand on themselves; `provided` are the classes that readings came of, `version` counts changed rules.
    """

    def __init__(self, scene: Callable[[RulePlan], SituationScene] = SituationStore) -> None:
        self.refused: Counter[tuple[str, str]] = Counter()
        self.provided: set[str] = set()
        self.version = 0
        self._ontology = Ontology()
        self._rules: dict[str, DefinedRule] = {}
        self._actions: dict[str, Action] = {}
        self._hidden_after: dict[str, int] = {}
        self._lanes = RuleLanes(scene)
        self._layers = Registry()
        self._rezoned = False
        self._zones = ZoneAreas(())
        self._limits = Limits()
        self._excess: Counter[Excess] = Counter()
        self._change_times: Mapping[int, datetime | None] = {}
        self._number = (0, 0)
        self._stale: int | None = None
        self._prepare()

    def passes_over(self, stage_input: StageInput) -> bool:
        """See `DerivingStage`."""
        if self._lanes.lanes or self._stale is not None:
            return False
        if any(isinstance(change, CONCERNING) for _, change in stage_input.changes):
            return False
        if not self._lanes.clocks.are_of(stage_input.registry.settings.channels):
            return False
        self._lanes.pass_over(stage_input.events)
        return True

    def derive(self, stage_input: StageInput) -> list[Event]:
        """Folds events and the changes between them; gives the derived events.

        An event is decided under the changes before its position. Derived events have the position of what caused
        them, and come in the order in which they are caused.
        """
        found: list[Event] = []
        events, self._change_times = stage_input.events, stage_input.times
        self._limits = self._zones.limits = stage_input.registry.settings.limits
        self._layers.settings = stage_input.registry.settings
        channels = stage_input.registry.settings.channels
        if not self._lanes.clocks.are_of(channels):
            if self._stale is not None:
                found += self._replan(self._stale)
            self._lanes.set_channels(channels, stage_input.repository)
        for lane in self._lanes.lanes:
            self._limit(lane)
        positions = events.column("position").to_numpy()
        done = 0
        for position, change in stage_input.changes:
            if isinstance(change, CONCERNING) and not self._is_refused(position, stage_input):
                cut = int(np.searchsorted(positions, position))
                found += self._fold(events.slice(done, cut - done))
                done = cut
                found += self._apply(position, change)
        found += self._fold(events.slice(done))
        stage_input.excess.update(self._excess)
        self._excess.clear()
        for lane in self._lanes.lanes:
            conditions = lane.engine.scene.conditions
            stage_input.excess.update(conditions.excess)
            conditions.excess.clear()
        return found

    def _is_refused(self, position: int, stage_input: StageInput) -> bool:
        """Whether an earlier stage left out a change, as zones do where they would tell too much."""
        return any(one == position for one, _ in stage_input.refusals)

    @property
    def clocks(self) -> StreamClocks:
        """See `DerivingStage`."""
        return self._lanes.clocks

    @property
    def early(self) -> int:
        """How many reports did not wait for the lateness of rules or for a slower clock, as too many did."""
        return sum(lane.early for lane in self._lanes.lanes)

    def next_due(self, clocks: StreamClocks) -> int:
        """See `DerivingStage`."""
        return self._lanes.next_due(clocks, self._tells)

    def forget(self, entities: Collection[str]) -> None:
        """Drops where some entities are, and their readings, but for those that a situation rests on."""
        for lane in self._lanes.lanes:
            for entity in entities:
                lane.places.pop(entity, None)
            lane.engine.forget(entities)

    def unprovided(self) -> dict[str, tuple[str, ...]]:
        """For each rule the classes that it names and of which no reading has come so far."""
        served = below(self._ontology.serving())
        concluded = {one.rule.concludes for one in self._rules.values()}
        found = {}
        for id, one in self._rules.items():
            names = names_of(one.rule.when)
            lacking = [name for name in names if not served.get(name, frozenset()) & (self.provided | concluded)]
            if lacking:
                found[id] = tuple(lacking)
        return found

    def find(self, rule: str, event: Event) -> RuleFinding:
        """What a rule finds around an event that was the last to be folded. Raises `Fault` for an unknown rule."""
        lane = next((one for one in self._lanes.lanes if rule in one.told), None)
        if lane is None or rule not in self._rules:
            known = ", ".join(id for id, one in self._rules.items() if one.rule.sufficient) or "there is none"
            raise Fault("a rule that concludes situations, as of the event", rule, advice=f"known then: {known}")
        found = lane.engine.plan.by_id[rule]
        centre, unusable = lane.centre(event.entity, event.place), self._extraction.unusable(event)
        uncounted = self._counted.undecided(event, self._limits)
        return find(lane.engine.scene, found, centre, lane.engine.now, unusable, uncounted)

    def _fold(self, table: pa.Table) -> Iterator[Event]:
        if not len(table):
            return
        if self._stale is not None:
            yield from self._replan(self._stale)
        reported = list(self._extraction.reported(table)) if self._lanes.lanes else []
        self.provided.update(name for one in reported for name in one.read)
        if self._counted.names and self._lanes.lanes:
            reported = self._counted.joined(table, reported, self._limits, self._excess)
        done = first = 0
        for row in self._lanes.arrivals(table, reported):
            # Until then rules went by the clocks by which they went.
            until = bisect_left(reported, row, first, key=itemgetter(0))
            yield from self._fold_rows(table.slice(done, row - done), reported[first:until], done)
            self._lanes.regroup()
            done, first = row, until
        yield from self._fold_rows(table.slice(done), reported[first:], done)

    def _fold_rows(self, table: pa.Table, reported: Sequence[ReportedReadings], start: int) -> Iterator[Event]:
        """A part of a table that begins at a row, in which rules go by the same clocks."""
        if not len(table):
            return
        if not self._lanes.lanes:
            self._lanes.pass_over(table)
            return
        own = [one._replace(row=one.row - start) for one in reported] if start else reported
        rows, heard = self._lanes.observed(table, own)
        lanes = self._lanes.lanes
        folded = (
            _numbered(number, lane.fold(own)) for number, (lane, own) in enumerate(zip(lanes, heard, strict=True))
        )
        # In the order of rows, and of lanes in each.
        for row, number, situation_change in merge(*folded, key=_place):
            yield from self._tell(situation_change, lanes[number], rows.cause(row))
        for lane in lanes:
            self._count_beyond(lane)

    def _count_beyond(self, lane: ReorderBuffer) -> None:
        """Counts the readings that were left out of windows, which had too many, and entities left out of counts."""
        windows = lane.engine.scene.windows
        for name, count in windows.beyond.items():
            self.refused[name, BEYOND] += count
        windows.beyond.clear()
        counts = lane.engine.scene.counts
        for name, count in counts.beyond.items():
            self.refused[name[:MOST_SHOWN], UNCOUNTED] += count
        counts.beyond.clear()

    def _pass(self, position: int, tick: ClockTick) -> Iterator[Event]:
        """Lets the clocks come so far as a tick says."""
        if self._stale is not None:
            yield from self._replan(self._stale)
        self._lanes.clocks.follow_tick(tick)
        self._lanes.follow()
        moment = self._change_times.get(position)
        for lane in self._lanes.lanes:
            for situation_change in lane.pass_time(lane.time, position):
                yield from self._tell(situation_change, lane, Cause(position, moment, moment))

    def _tell(self, found: SituationChanged, lane: ReorderBuffer, cause: Cause) -> Iterator[Event]:
        data = situation_data(found, self._areas, self._units)
        if found.hidden:
            actions = [self._actions[found.rule.removeprefix(HIDDEN)]]
        elif found.rule not in (lane.left if found.reason == REMOVED else lane.told):
            # Decided here too because a rule of this lane stands on it; told of where it belongs.
            return
        else:
            yield situation_event(found, data, self._next_number(cause), cause)
            actions = [one for one in self._actions.values() if found.concludes in self._called_by.get(one.id, ())]
        for action in actions:
            yield from action_events(action, found, data, self._next_number(cause, len(action.effects)), cause)

    def _tells(self, found: SituationChanged, lane: ReorderBuffer) -> bool:
        """Whether something is told of what happens in a lane as time passes."""
        if found.hidden:
            return found.phase in self._actions[found.rule.removeprefix(HIDDEN)].phases
        return found.rule in lane.told

    def _next_number(self, cause: Cause, count: int = 1) -> int:
        position, number = self._number
        first = number + 1 if position == cause.position else 1
        self._number = (cause.position, first + count - 1)
        return first

    def _apply(self, position: int, change: Change) -> Iterator[Event]:
        if isinstance(change, ClockTick):
            yield from self._pass(position, change)
            return
        match change:
            case SettingsChange(settings):
                if settings.ontology == self._ontology:
                    return
                self._ontology = settings.ontology
                # With other classes everything begins anew.
                self._rules = {id: DefinedRule(one.rule, position) for id, one in self._rules.items()}
            case SituationChange(rule):
                if not self._define(rule, position):
                    return
            case SituationRemoval(id):
                self._rules.pop(id, None)
            case ZoneRuleChange() | ZoneShapesChange() | ZoneRemoval():
                if not self._rezone(change):
                    return
            case ActionChange(action):
                if self._actions.pop(action.id, None) != action:
                    self._hidden_after.pop(HIDDEN + action.id, None)
                # What else calls for an action than situations is seen where it is run.
                if action.trigger is None:
                    self._actions[action.id] = action
            case ActionRemoval(id):
                self._actions.pop(id, None)
                self._hidden_after.pop(HIDDEN + id, None)
        self.version += 1
        # Of many rules at a start each would have all the others made ready anew, for nothing.
        self._stale = position
        if any(lane.engine.scene.any for lane in self._lanes.lanes):
            yield from self._replan(position)

    def _rezone(self, change: ZoneChange) -> bool:
        """Takes in other zones; whether rules look into them."""
        self._layers.apply(change)
        id = change.rule.id if isinstance(change, ZoneRuleChange) else change.layer
        self._rezoned = self._rezoned or id in self._looked_into()
        return id in self._looked_into()

    def _looked_into(self) -> set[str]:
        """The layers of zones into which rules look."""
        return {one.rule.layer for one in self._rules.values() if one.rule.layer is not None}

    def _define(self, rule: Situation, position: int) -> bool:
        others = {id: one for id, one in self._rules.items() if id != rule.id}
        way = None
        situations = {one.name for one in self._ontology.situations}
        if not situations.isdisjoint(names_of(rule.when)) or not all(one.rule.sufficient for one in others.values()):
            way = rule_cycle([*(one.rule for one in others.values()), rule], self._ontology)
        if way:
            self.refused[rule.id, "stands on itself"] += 1
            log.warning("situation rule not taken id=%s: its class depends on itself: %s", rule.id, " → ".join(way))
            return False
        self._rules = {**others, rule.id: DefinedRule(rule, position)}
        return True

    def _replan(self, position: int) -> Iterator[Event]:
        """Makes the rules ready anew, each buffer its own."""
        looked_into, rezoned = self._zones.layers, self._rezoned
        self._stale, self._rezoned = None, False
        self._prepare()
        rezoned = rezoned or looked_into != self._zones.layers
        hidden = {one.rule.id: one for one in self._hidden(position)}
        self._lanes.define(self._ontology, [*self._rules.values(), *hidden.values()])
        cause = Cause(position, self._change_times.get(position), None)
        for lane, found in self._lanes.planned():
            self._limit(lane)
            lane.areas = self._areas
            if rezoned:
                lane.rezone(self._areas)
            situation_changes = lane.engine.replan(found, position, self._areas if rezoned else None)
            for situation_change in situation_changes:
                if not situation_change.hidden or situation_change.rule in hidden:
                    yield from self._tell(situation_change, lane, cause)
        self._lanes.drop_empty()

    def _limit(self, lane: ReorderBuffer) -> None:
        """Lets the limits of the settings hold in a lane."""
        scene = lane.engine.scene
        scene.windows.limits = scene.counts.limits = self._limits
        scene.conditions.limit(self._limits)

    def _hidden(self, position: int) -> Iterator[DefinedRule]:
        """The rules of actions that several situations together call for."""
        under = below(self._ontology.serving())
        for action in self._actions.values():
            if lone_situation(action) is None:
                names = {sub for name in names_of(action.when) for sub in under.get(name, (name,))}
                lower = [one.rule for one in self._rules.values() if one.rule.concludes in names]
                within = action.within
                if within is None:
                    within = max((one.within or 0.0 for one in lower), default=0.0)
                lateness = max((one.lateness for one in lower), default=0.0)
                id = HIDDEN + action.id
                after = self._hidden_after.setdefault(id, position)
                yield DefinedRule(Situation(id, "", action.when, within, lateness=lateness), after, True)

    def _prepare(self) -> None:
        """What is made of the ontology and the rules together."""
        under = below(self._ontology.serving())
        lone = {id: lone_situation(action) for id, action in self._actions.items()}
        asked = [one.rule.when for one in self._rules.values()]
        # Several situations are asked for as by a rule: readings may tell of them too.
        asked += [action.when for id, action in self._actions.items() if lone[id] is None]
        named = {name for when in asked for name in names_of(when)}
        counts = (counts_of(one.rule.when) for one in self._rules.values())
        self._counted = CountedEvents({name: one.conditions for found in counts for name, one in found.items()})
        served = {sub for name in named for sub in under.get(name, ())}
        self._extraction = ReadingExtractor(self._ontology, served, bool(self._counted.names))
        self._extraction.refused = self.refused
        layers = [self._layers.zones[id] for id in sorted(self._looked_into()) if id in self._layers.zones]
        self._zones = ZoneAreas(layers, self._zones)
        self._zones.limits = self._limits
        self._areas = self._lanes.areas = NamedAreas(self._ontology, self._zones)
        units = ((one.name, unit_of(self._ontology, one.name)) for one in self._ontology.classes)
        self._units = {name: unit for name, unit in units if unit is not None}
        self._called_by = {id: under.get(name, frozenset()) for id, name in lone.items() if name is not None}


def compile_rules(change: SituationChange | ActionChange | SettingsChange, ontology: Ontology) -> None:
    """Makes ready what a change defines, alone with its ontology, and forgets it; raises what that raises."""
    stage = SituationStage()
    held = change if isinstance(change, SettingsChange) else SettingsChange(Settings(ontology=ontology))
    for one in (held, change) if change is not held else (held,):
        list(stage._apply(1, one))
    list(stage._replan(1))


ZoneChange = ZoneRuleChange | ZoneShapesChange | ZoneRemoval

CONCERNING = SettingsChange | SituationChange | SituationRemoval | ActionChange | ActionRemoval | ClockTick | ZoneChange
"""The changes that the stage hears of."""

MOST_SHOWN = 100
"""Characters of what is counted that stand where it is left out."""

HIDDEN = "action "
"""Before the id of an action, the id of the rule that several situations together are."""


def _numbered(number: int, found: Found) -> Iterator[tuple[int, int, SituationChanged]]:
    return ((row, number, situation_change) for row, situation_change in found)


def _place(one: tuple[int, int, SituationChanged]) -> tuple[int, int]:
    return one[0], one[1]
