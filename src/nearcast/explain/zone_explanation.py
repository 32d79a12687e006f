"""Why an entity is in a zone, or is not: its reports alone are gone through once more.

Pure, as `explanation`: reports, definitions and the stream's time come in as steps, in the order of the journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from nearcast.errors import Fault
from nearcast.explain.pair_past import PairStep
from nearcast.explain.step_clocks import StepClocks
from nearcast.filters.evaluate import NO_CONTEXT, atom_truths
from nearcast.filters.spatial_atoms import spatial_atoms
from nearcast.filters.truth import Truth
from nearcast.model.changes import Change, ClockTick, SettingsChange, ZoneRemoval, ZoneRuleChange, ZoneShapesChange
from nearcast.model.event import Event
from nearcast.model.filter import Atom
from nearcast.model.limits import Limits
from nearcast.model.zone import ZoneRule
from nearcast.relations.reports import moment_of
from nearcast.state.lateness import FOREVER, NEVER
from nearcast.state.registry import Registry
from nearcast.zones.reference import PlainLayer, PlainZones
from nearcast.zones.zone_transitions import ZoneTransition

LAST_TOLD = 5
"""Of what was told of the entity the last ones are kept."""

NO_MOST = 1 << 62
"""As `zones_at_once`: as if an entity might be in any number of zones."""


@dataclass(frozen=True, slots=True)
class ZoneStanding:
    """A zone: whether the entity counts as in it, since the time of which event, and when it has lasted (None: no
    `for`, or told); whether its newest place is in it, and whether it is out of it by more than the margin; what is to
    be said of that, and why one of these is UNKNOWN, is the `remark`.
    """

    zone: str
    holds: bool
    since: datetime | None
    due: datetime | None
    dwelt: bool
    inside: Truth
    beyond: Truth
    remark: str = ""


@dataclass(frozen=True, slots=True)
class ZoneFinding:
    """Where an entity is among the zones of a layer as of a position; `time` is the stream's then.

    `report` is its newest one, `watched` whether the filter selects it, with the truth of each atom; `silent_since` is
    when its time to live was over, None where it is not. `reasons` say why it is in no zone, or not in that asked for.
    `uncounted`: how many zones its place is in beyond those that count; `unlooked`: of how many it is not known.
    """

    rule: ZoneRule
    zones: int
    position: int
    time: datetime | None
    entity: str
    report: Event | None
    watched: bool
    conditions: tuple[tuple[Atom, Truth], ...]
    silent_since: datetime | None
    standings: tuple[ZoneStanding, ...]
    told: tuple[tuple[int, ZoneTransition], ...]
    reasons: tuple[str, ...]
    uncounted: int = 0
    unlooked: int = 0


def explain_zones(
    layer: str, entity: str, zone: str | None, registry: Registry, steps: Iterable[PairStep]
) -> ZoneFinding:
    """What steps lead to for an entity and a layer, or one zone of it; `registry` is what there was before them.

    Raises `Fault` where the layer or the zone is not there then.
    """
    past = _ZonePast(layer, registry)
    for step in steps:
        past.follow(step)
    found = past.plain.layers.get(layer)
    if found is None:
        there = ", ".join(sorted(past.registry.zones)) or "none"
        raise Fault("a layer of zones that there was then", layer, None, f"there were {there}")
    if zone is not None and zone not in found.layer.zones:
        raise Fault(f"a zone that {layer} had then", zone, None, f"it had {len(found.layer.zones):,}")
    return past.finding(found, entity, zone)


class _ZonePast:
    """An entity's past, as far as one layer is about it."""

    def __init__(self, layer: str, registry: Registry) -> None:
        self.registry = registry
        self.plain = PlainZones(registry.settings.limits)
        self._layer = layer
        self._position = 0
        self._layers = bool(registry.zones)
        self._clocks = StepClocks(registry.settings.channels)
        self.plain.set_clocks(self._clocks.own, self._clocks.shared)
        # Followed is one layer alone, but the filters of all share the work on geometries.
        self.plain.filters = lambda: [one.rule.of for one in registry.zones.values()]
        self._told: deque[tuple[int, ZoneTransition]] = deque(maxlen=LAST_TOLD)
        if layer in registry.zones:
            self.plain.define(registry.zones[layer], NEVER)

    def follow(self, step: PairStep) -> None:
        """Takes the next step."""
        self._position = step.position
        match step.happened:
            case Event() | None:
                self._clocks.follow_event(step.channel, step.moment)
                self._pass()
                self._note(self.plain.report(step.happened) if step.happened else ())
            case ClockTick() as tick:
                self._clocks.follow_tick(tick)
                self._pass()
            case _:
                self._change(step, step.happened)

    def _pass(self) -> None:
        self._note(self.plain.pass_time(self._clocks.shared, self._clocks.own))

    def _change(self, step: PairStep, change: Change) -> None:
        # The reader of the steps has folded it into the registry.
        first, self._layers = not self._layers, bool(self.registry.zones)
        newest = None if step.newest is None else partial(step.newest, None)
        if first and self._layers:
            # While there are no layers nothing hears of ticks.
            self._clocks = StepClocks.of_newest(self._clocks.channels, newest)
            self.plain.set_clocks(self._clocks.own, self._clocks.shared)
        now = min(step.moment, self._clocks.greatest) if step.moment != NEVER else self._clocks.greatest
        match change:
            case SettingsChange(settings):
                self.plain.limits = settings.limits
                if self._clocks.redefine(settings.channels, newest):
                    self.plain.set_clocks(self._clocks.own, self._clocks.shared)
            case ZoneRuleChange() | ZoneShapesChange():
                id = change.rule.id if isinstance(change, ZoneRuleChange) else change.layer
                if id == self._layer and id in self.registry.zones:
                    self._note(self.plain.define(self.registry.zones[id], now))
            case ZoneRemoval(id) if id == self._layer:
                self._note(self.plain.end(id))

    def _note(self, told: Iterable[ZoneTransition]) -> None:
        self._told.extend((self._position, one) for one in told if one.detect not in ("inside", "outside"))

    def finding(self, layer: PlainLayer, entity: str, zone: str | None) -> ZoneFinding:
        """What is so now."""
        known, now = self.plain.known.get(entity), self.plain.clock_of(entity)
        event = known.event if known else None
        ends = self.plain.silent_after(layer, entity) if known else FOREVER
        of, limits = layer.layer.rule.of, self.plain.limits
        budget = self.plain.budget(event) if event and any(spatial_atoms(of)) else None
        conditions = atom_truths(of, event, NO_CONTEXT, limits, budget.undecided if budget else ()) if event else ()
        standings = tuple(self._standings(layer, entity, event, zone))
        watched = event is not None and self.plain.watches(layer, event)
        silent = moment_of(ends) if ends < now else None
        held = any(one.holds for one in standings)
        return ZoneFinding(
            rule=layer.layer.rule,
            zones=len(layer.layer.zones),
            position=self._position,
            time=None if now == NEVER else moment_of(now),
            entity=entity,
            report=event,
            watched=watched,
            conditions=tuple(conditions),
            silent_since=silent,
            standings=standings,
            told=tuple(self._told),
            reasons=() if held else tuple(self._reasons(layer, event, watched, silent, standings, zone)),
            uncounted=self._uncounted(layer, event),
            unlooked=layer.unlooked(event, self.plain.limits) if event is not None and layer.measured(event) else 0,
        )

    def _uncounted(self, layer: PlainLayer, event: Event | None) -> int:
        """How many zones its place is in beyond those that count."""
        if event is None or not layer.measured(event):
            return 0
        return max(0, len(self._all_inside(layer, event)) - self.plain.limits.zones_at_once)

    def _all_inside(self, layer: PlainLayer, event: Event) -> list[str]:
        """The zones that its place is in, also those that do not count."""
        return layer.inside(event, replace(self.plain.limits, zones_at_once=NO_MOST))

    def _standings(
        self, layer: PlainLayer, entity: str, event: Event | None, zone: str | None
    ) -> Iterator[ZoneStanding]:
        """Of the zone asked for, else of each that the entity counts as in, or whose area its place is in."""
        measured = event is not None and layer.measured(event)
        inside = layer.inside(event, self.plain.limits) if event is not None and measured else []
        held = [name for one, name in layer.held if one == entity]
        for name in [zone] if zone is not None else list(dict.fromkeys([*held, *inside])):
            state = layer.held.get((entity, name))
            within, beyond, remark = self._place(layer, event, name, inside)
            yield ZoneStanding(
                zone=name,
                holds=state is not None,
                since=None if state is None or state.started_at == NEVER else moment_of(state.started_at),
                due=None if state is None or state.due == FOREVER else moment_of(state.due),
                dwelt=state is not None and state.dwell_sent,
                inside=within,
                beyond=beyond,
                remark=remark,
            )

    def _place(
        self, layer: PlainLayer, event: Event | None, zone: str, inside: Collection[str]
    ) -> tuple[Truth, Truth, str]:
        """Whether its newest place is in a zone, whether it is out of it by more than the margin, and a remark."""
        limits, rule = self.plain.limits, layer.layer.rule
        if event is None:
            return None, None, "it was not heard of"
        if event.place is None:
            return None, None, "its newest report has no place"
        if not layer.measured(event):
            return None, None, f"its newest place is {event.place.coordinates}"
        if zone in inside:
            return True, False, ""
        if not layer.looked_at(zone, event, limits):
            return None, None, f"whether its place is in it is UNKNOWN: {_too_much(limits)}"
        if zone in self._all_inside(layer, event):
            return True, False, f"its place is in it, but in {limits.zones_at_once:,} before it (limit zones_at_once)"
        beyond = layer.beyond(zone, event, limits)
        if beyond is None:
            most = f"{limits.geometry_work:,} units of work (limit geometry_work)"
            remark = (
                f"out of it; whether within the margin {rule.margin:g} m is UNKNOWN: measuring takes more than {most}"
            )
        elif beyond:
            remark = "its place is out of it"
        else:
            remark = f"out of it, within the margin {rule.margin:g} m"
        return False, beyond, remark

    def _reasons(
        self,
        layer: PlainLayer,
        event: Event | None,
        watched: bool,
        silent: datetime | None,
        standings: tuple[ZoneStanding, ...],
        zone: str | None,
    ) -> Iterator[str]:
        """Why it is in none, or not in the one asked for."""
        rule = layer.layer.rule
        if event is None:
            yield "it was not heard of"
        elif event.place is None:
            yield "its newest report has no place"
        elif not watched:
            beyond = [self.plain.budget(event).reason(atom) for atom in spatial_atoms(rule.of)]
            reason = next((f": {one}" for one in beyond if one), "")
            yield f"the filter does not select its newest report{reason}"
        elif not layer.measured(event):
            yield f"its place is {event.place.coordinates}, the zones are {rule.coordinates}"
        elif silent is not None:
            yield f"it was silent for longer than time_to_live, {rule.time_to_live:g} s"
        elif any(one.inside and not one.remark for one in standings):
            yield "its place is in it, but it has not reported since"
        elif zone is not None and not layer.looked_at(zone, event, self.plain.limits):
            yield f"whether its place is in it is UNKNOWN: {_too_much(self.plain.limits)}"
        elif zone is not None and zone in self._all_inside(layer, event):
            most = self.plain.limits.zones_at_once
            yield f"its place is in it, but in {most:,} zones that were defined before (limit zones_at_once)"
        elif zone is None and layer.unlooked(event, self.plain.limits):
            yield "its place is outside of every zone that was looked at"
        else:
            yield f"its place is outside of {'it' if zone is not None else 'every zone'}"


def _too_much(limits: Limits) -> str:
    return f"zones before it are {limits.zone_work:,} units of work (limit zone_work)"
