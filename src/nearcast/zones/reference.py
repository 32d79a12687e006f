"""Zones one event at a time: the plain reference (semantics §7), and what explains one entity.

Every watched position is held against every zone. Of each entity its newest report counts; one of an earlier moment
came late and changes nothing, nor does one without a place, nor one in other coordinates than the zones'. An entity
falls silent by the clock of the channel of its newest report, and lasts by that of the one with which it began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from nearcast.filters.evaluate import NO_CONTEXT, truth
from nearcast.filters.spatial_atoms import SpentBudget, spatial_atoms, spent_budget
from nearcast.filters.truth import Truth
from nearcast.model.arrays import Floats, Integers
from nearcast.model.event import Event
from nearcast.model.filter import Filter
from nearcast.model.limits import Limits
from nearcast.model.zone import Zone, ZoneDetection, ZoneLayer
from nearcast.relations.plain_pairs import NONE_OWN, LatestReport, OwnClocks
from nearcast.relations.reports import micros_of, moment_of
from nearcast.relations.transition_events import CAUSED, EXPIRED, OVERDUE
from nearcast.relations.transitions import (
    BEGINS,
    FAILS,
    FALLS_SILENT,
    LEAVES,
    REMOVED,
    UNCHANGED,
    HoldState,
    Lifecycle,
    deadline,
)
from nearcast.state.lateness import NEVER, is_older
from nearcast.state.stream_clocks import SHARED_NAME
from nearcast.zones.presence import lifecycle_of
from nearcast.zones.zone_index import ZoneIndex
from nearcast.zones.zone_transitions import ZoneReason, ZoneTransition

ZONE_REASONS: dict[int, ZoneReason | None] = {
    FAILS: None,
    LEAVES: "left",
    FALLS_SILENT: "silent",
    REMOVED: "removed",
}


@dataclass(slots=True)
class PlainLayer:
    """A layer, and since when who is in which of its zones: by entity and name of the zone."""

    layer: ZoneLayer
    sequence: int
    held: dict[tuple[str, str], HoldState] = field(default_factory=dict)
    clocks: dict[tuple[str, str], str | None] = field(default_factory=dict)
    """By the clock of which channel that lasts."""
    lifecycle: Lifecycle = field(init=False)
    shapes: ZoneIndex = field(init=False)

    def __post_init__(self) -> None:
        self.lifecycle = lifecycle_of(self.layer.rule)
        self.shapes = ZoneIndex(self.layer.rule.coordinates)
        self.shapes.set(self.layer.zones)

    def measured(self, event: Event) -> bool:
        """Whether a report says where it is in the coordinates of the zones."""
        return event.place is not None and event.place.coordinates == self.layer.rule.coordinates

    def inside(self, event: Event, limits: Limits) -> list[str]:
        """The zones that a report's place is in, the first so many of them."""
        assert event.place is not None
        x, y = np.array([event.place.x]), np.array([event.place.y])
        hits = self.shapes.hits(x, y, limits, bounded=False)
        return [self.shapes.zones[number].name for number in hits.zone.tolist()]

    def beyond(self, zone: str, event: Event, limits: Limits) -> Truth:
        """Whether a report's place, which is out of a zone, is so by more than the margin."""
        number, x, y, cut = self._held_against(zone, event, limits)
        found = int(self.shapes.beyond(number, x, y, self.layer.rule.margin, limits, cut)[0])
        return None if found < 0 else bool(found)

    def looked_at(self, zone: str, event: Event, limits: Limits) -> bool:
        """Whether it is known if a report's place is in a zone."""
        return bool(self.shapes.looked_at(*self._held_against(zone, event, limits))[0])

    def unlooked(self, event: Event, limits: Limits) -> int:
        """Of how many zones it is not known if a report's place is in them."""
        assert event.place is not None
        around = self.shapes.around(event.place.x, event.place.y)
        if not len(around):
            return 0
        *_, cut = self._held_against(self.shapes.zones[int(around[0])].name, event, limits)
        return int((around >= cut).sum())

    def _held_against(self, zone: str, event: Event, limits: Limits) -> tuple[Integers, Floats, Floats, Integers]:
        """A zone's number, a report's place, and the number of the first zone that is not looked at for it."""
        assert event.place is not None
        x, y = np.array([event.place.x]), np.array([event.place.y])
        return np.array([self.shapes.numbers[zone]]), x, y, self.shapes.hits(x, y, limits, bounded=False).cut


class PlainZones:
    """Layers of zones over events, one by one; `known` are the newest reports, by entity. `now` is how far the shared
    clock has come, `own` those of channels that have one of their own. `filters` gives those that share the work on
    the geometries of an event: those of all layers that there are now.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.now = NEVER
        self.own: dict[str, int] = {}
        self.known: dict[str, LatestReport] = {}
        self.layers: dict[str, PlainLayer] = {}
        self.limits = limits or Limits()
        self.filters: Callable[[], Iterable[Filter]] = lambda: [one.layer.rule.of for one in self.layers.values()]
        self._sequence = 0

    def begin(self, events: Iterable[Event]) -> None:
        """Takes what is known of all entities when the first layer is defined: the newest event of each."""
        self.known = {event.entity: LatestReport(event, micros_of(event.moment)) for event in events}
        self.now = max((one.heard for one in self.known.values()), default=NEVER)

    def report(self, event: Event) -> list[ZoneTransition]:
        """What a report changes, and the time that it brings."""
        moment, channel = micros_of(event.moment), event.channel or SHARED_NAME
        found = self.pass_time(NEVER, {channel: moment}) if channel in self.own else self.pass_time(moment)
        known = self.known.get(event.entity)
        if known is not None and is_older(event, known.event):
            return found
        self.known[event.entity] = LatestReport(event, self._clock(event.channel) if moment == NEVER else moment)
        for layer in self.layers.values():
            found += self._reported(layer, event, moment)
        return found

    def budget(self, event: Event) -> SpentBudget:
        """How far the work goes that is allowed for the geometries of an event."""
        return spent_budget(chain.from_iterable(map(spatial_atoms, self.filters())), event, NO_CONTEXT, self.limits)

    def watches(self, layer: PlainLayer, event: Event) -> bool:
        """Whether a report is of somebody whom a layer watches."""
        of = layer.layer.rule.of
        undecided = self.budget(event).undecided if any(spatial_atoms(of)) else ()
        return truth(of, event, NO_CONTEXT, self.limits, undecided) is True

    def _clock(self, channel: str | None) -> int:
        """How far the clock has come by which the events of a channel go."""
        return self.own.get(channel or SHARED_NAME, self.now)

    def clock_of(self, entity: str) -> int:
        """How far the clock has come by which an entity goes; the shared one where it was not heard of."""
        known = self.known.get(entity)
        return self._clock(known.event.channel if known else None)

    def set_clocks(self, own: OwnClocks, now: int) -> None:
        """Goes on by other clocks, as those of the channels of entities' newest reports are now."""
        self.own, self.now = dict(own), now
        for layer in self.layers.values():
            layer.clocks = {pair: self.known[pair[0]].event.channel for pair in layer.held}

    def pass_time(self, now: int, own: OwnClocks = NONE_OWN) -> list[ZoneTransition]:
        """What changes as the shared clock comes to `now`, and those that channels have of their own to `own`."""
        self.now = max(self.now, now)
        self.own = {name: max(value, own.get(name, NEVER)) for name, value in self.own.items()}
        return [one for layer in self.layers.values() for one in self._expired(layer)]

    def silent_after(self, layer: PlainLayer, entity: str) -> int:
        """The clock through which an entity counts without a report."""
        return deadline(self.known[entity].heard, layer.lifecycle.time_to_live)

    def _expired(self, layer: PlainLayer) -> Iterator[ZoneTransition]:
        for (entity, zone), held in list(layer.held.items()):
            silent = self.silent_after(layer, entity)
            now, lasting = self.clock_of(entity), self._clock(layer.clocks.get((entity, zone)))
            after, told = layer.lifecycle.lapsed(held, silent if silent < now else None, lasting)
            for detect in told:
                time = held.due if detect == "dwell" else silent
                transition = self._tell(layer, detect, entity, zone, held, FALLS_SILENT)
                yield replace(transition, time=moment_of(time))
            _hold(layer, entity, zone, after)

    def _reported(self, layer: PlainLayer, event: Event, moment: int) -> Iterator[ZoneTransition]:
        if event.place is None:
            return
        watched = self.watches(layer, event) and self.silent_after(layer, event.entity) >= self.clock_of(event.entity)
        measured = watched and layer.measured(event)
        inside = layer.inside(event, self.limits) if measured else []
        for zone in [*inside, *(zone for one, zone in layer.held if one == event.entity and zone not in inside)]:
            if zone in inside:
                effect = BEGINS
            elif not watched:
                effect = LEAVES
            else:
                effect = FAILS if measured and layer.beyond(zone, event, self.limits) is True else UNCHANGED
            yield from self._evaluated(layer, event.entity, zone, effect, moment)
        if measured:
            yield from self._states(layer, event)

    def _states(self, layer: PlainLayer, event: Event) -> Iterator[ZoneTransition]:
        own = [(zone, state) for (entity, zone), state in layer.held.items() if entity == event.entity]
        if "inside" in layer.layer.rule.detect:
            for zone, state in own:
                yield self._tell(layer, "inside", event.entity, zone, state, UNCHANGED)
        if "outside" in layer.layer.rule.detect and not own:
            id, place = layer.layer.id, event.place
            yield ZoneTransition(CAUSED, layer.sequence, id, "outside", event.entity, None, place, None)

    def _evaluated(
        self, layer: PlainLayer, entity: str, zone: str, effect: int, moment: int, present: bool = False
    ) -> Iterator[ZoneTransition]:
        before, now = layer.held.get((entity, zone)), self.clock_of(entity)
        began = now if present or moment == NEVER else moment
        moment = min(moment, now) if present and NEVER not in (moment, now) else moment
        after, detect = layer.lifecycle.evaluated(before, effect, began, moment)
        state = before or after
        if detect and state:
            yield self._tell(layer, detect, entity, zone, state, effect, present)
        if after and not before:
            due = after.due
            layer.clocks[entity, zone] = self.known[entity].event.channel
            after, told = layer.lifecycle.lasted(after, now)
            for one in told:
                transition = self._tell(layer, one, entity, zone, after, UNCHANGED)
                yield replace(transition, time=moment_of(due), phase=OVERDUE)
        _hold(layer, entity, zone, after)

    def _tell(
        self,
        layer: PlainLayer,
        detect: ZoneDetection,
        entity: str,
        zone: str,
        state: HoldState,
        effect: int,
        present: bool = False,
        reason: ZoneReason | None = None,
    ) -> ZoneTransition:
        why = (reason or ZONE_REASONS[effect]) if detect == "exit" else None
        area, place = layer.layer.zones[zone], self.known[entity].event.place
        phase = EXPIRED if effect == FALLS_SILENT else CAUSED
        head = (phase, layer.sequence, layer.layer.id, detect, entity, area, place, moment_of(state.started_at))
        return ZoneTransition(*head, why, present)

    def define(self, layer: ZoneLayer, moment: int) -> list[ZoneTransition]:
        """Adds a layer, or replaces one of the same id; what that tells of the present."""
        before = self.layers.get(layer.id)
        if before is not None and before.layer.rule == layer.rule:
            return self._rezoned(before, layer, moment)
        ended = self.end(layer.id)
        self._sequence += 1
        self.layers[layer.id] = own = PlainLayer(layer, self._sequence)
        return [*ended, *self._present(own, layer.zones, moment)]

    def end(self, id: str) -> list[ZoneTransition]:
        """Removes a layer; the ends of what held in it."""
        layer = self.layers.pop(id, None)
        if layer is None:
            return []
        return [one for pair in list(layer.held) for one in self._evaluated(layer, *pair, REMOVED, NEVER)]

    def _rezoned(self, own: PlainLayer, layer: ZoneLayer, moment: int) -> list[ZoneTransition]:
        told: list[ZoneTransition] = []
        for entity, zone in list(own.held):
            if zone not in layer.zones:
                told += self._evaluated(own, entity, zone, REMOVED, NEVER)
        before, own.layer = own.layer.zones, layer
        own.shapes.set(layer.zones)
        fresh = {
            name: zone
            for name, zone in layer.zones.items()
            if name not in before or before[name].geometry != zone.geometry
        }
        for entity, zone in list(own.held):
            event = self.known[entity].event
            known = zone in fresh and self._is_watched(own, entity) and zone not in own.inside(event, self.limits)
            if known and own.beyond(zone, event, self.limits) is True:
                state = own.held[entity, zone]
                _hold(own, entity, zone, None)
                if own.lifecycle.evaluated(state, REMOVED, NEVER, NEVER)[1]:
                    told.append(self._tell(own, "exit", entity, zone, state, FAILS, reason="changed"))
        return [*told, *self._present(own, fresh, moment)]

    def _is_watched(self, layer: PlainLayer, entity: str) -> bool:
        event = self.known[entity].event
        alive = self.silent_after(layer, entity) >= self.clock_of(entity)
        return alive and layer.measured(event) and self.watches(layer, event)

    def _present(self, layer: PlainLayer, zones: Mapping[str, Zone], moment: int) -> Iterator[ZoneTransition]:
        for entity, known in self.known.items():
            inside = layer.inside(known.event, self.limits) if self._is_watched(layer, entity) else []
            for zone in inside:
                if zone in zones and (entity, zone) not in layer.held:
                    yield from self._evaluated(layer, entity, zone, BEGINS, moment, present=True)


def _hold(layer: PlainLayer, entity: str, zone: str, state: HoldState | None) -> None:
    if state is None:
        layer.held.pop((entity, zone), None)
        layer.clocks.pop((entity, zone), None)
    else:
        layer.held[entity, zone] = state
