"""What the events of a journal derive, read plainly: one by one, each held against everybody, without any index."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa

from nearcast.errors import EventError
from nearcast.language.control_events import changes
from nearcast.model.changes import Change, ClockTick, SettingsChange, ZoneRuleChange, ZoneShapesChange
from nearcast.model.columns import are_control, control_events, to_events
from nearcast.model.event import Event
from nearcast.model.subscription import Settings
from nearcast.relations.plain import cause_at
from nearcast.relations.reports import micros_of
from nearcast.relations.transitions import FALLS_SILENT
from nearcast.situations.stage import SituationStage
from nearcast.stages.fold import SETTINGS_TYPE
from nearcast.state.derived import Cause, StageInput, derived_of, merge_derived
from nearcast.state.lateness import NEVER
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository, without_excess
from nearcast.testing.situations import PlainScene
from nearcast.zones.reference import PlainZones
from nearcast.zones.zone_transitions import ZoneTransition
from tests.simulation.plain_clocks import PlainClocks
from tests.simulation.plain_forgetting import PlainLedger
from tests.simulation.plain_relations import PlainRelations
from tests.zones.plain_events import zone_events


class PlainReading:
    """Relations, zones and situations as their plain references tell them, one event of a journal after the other.

    `own` are the channels that have clocks of their own. `forgotten` counts entities that came to be beyond limits.
    """

    def __init__(self, own: Collection[str]) -> None:
        self._registry, self._repository = Registry(), Repository()
        self._relations, self._zones, self._situations = PlainRelations(own), PlainZones(), SituationStage(PlainScene)
        self._situations._lanes.clocks = PlainClocks()  # type: ignore[assignment]
        self._ledger, self._gone = PlainLedger(), set[str]()
        self.forgotten = 0
        self._zones.set_clocks(dict.fromkeys(own, NEVER), NEVER)

    def read(self, events: pa.Table) -> Iterator[pa.Table]:
        """What is derived of each event, as a table."""
        for row, (event, control) in enumerate(zip(to_events(events), are_control(events).to_pylist(), strict=True)):
            found = self._changes(event) if control else []
            table = events.slice(row, 0 if control else 1)
            self._zones.limits = self._registry.settings.limits
            told = self._derived(event, table, found)
            yield derived_of(told)
            self._repository.fold_events(without_excess(table, self._registry.settings.limits.entity_bytes))
            self._forget(told, event)

    def _forget(self, told: pa.Table, event: Event) -> None:
        """Forgets, after an event with what was derived of it, who is beyond the limits then."""
        if gone := self._ledger.fold(told, self._registry.settings.limits):
            self.forgotten += len(gone)
            self._repository.forget(gone)
            self._relations.forget(gone, Cause(event.position, event.moment, event.accepted))
            self._situations.forget(gone)
            self._gone.update(gone)
            if not self._zones.layers:
                self._forget_in_zones()

    def _forget_in_zones(self) -> list[ZoneTransition]:
        """What ends as zones forget those who are to be forgotten, with the next report or tick."""
        plain, gone, told = self._zones, self._gone, list[ZoneTransition]()
        self._gone = set()
        for layer in plain.layers.values():
            for entity, zone in [one for one in layer.held if one[0] in gone]:
                told += plain._evaluated(layer, entity, zone, FALLS_SILENT, NEVER)
        plain.known = {name: one for name, one in plain.known.items() if name not in gone}
        return told

    def _changes(self, event: Event) -> list[Change]:
        try:
            found = changes(event, self._registry.settings)
        except EventError:
            return []
        found = [change for change in found if self._registry.refusal(change) is None]
        for change in found:
            self._registry.apply(change)
        return found

    def _derived(self, event: Event, table: pa.Table, found: list[Change]) -> pa.Table:
        numbered, moments = [(event.position, change) for change in found], {event.position: event.moment}

        def given(table: pa.Table) -> StageInput:
            return StageInput(numbered, moments, table, self._registry, self._repository.as_of_now())

        # A control event that is refused is no report: it lets no time pass.
        refused = not found and not len(table)
        kept = without_excess(table, self._registry.settings.limits.entity_bytes)
        [event] = to_events(kept) or [event]
        table = merge_derived(table, self._relations.derive(given(kept)))
        table = merge_derived(table, [] if refused else self._zoned(event, found))
        if self._situations.passes_over(given(table)):
            return table
        return merge_derived(table, self._situations.derive(given(table)))

    def _zoned(self, event: Event, found: list[Change]) -> list[Event]:
        plain = self._zones
        if not found:
            cause = Cause(event.position, event.time, event.accepted)
            return zone_events([*self._forget_in_zones(), *plain.report(event)], cause)
        told, cause = list[Event](), Cause(event.position, event.moment, event.moment)
        for change in found:
            match change:
                case ZoneRuleChange(rule):
                    told += zone_events(self._rezoned(rule.id, cause), cause_at(cause, self._greatest()))
                case ZoneShapesChange(id) if id in plain.layers:
                    told += zone_events(self._rezoned(id, cause), cause_at(cause, self._greatest()))
                case ClockTick(clock, channels):
                    own = {name: micros_of(one) for name, one in channels.items()}
                    ended = self._forget_in_zones()
                    passed = plain.pass_time(NEVER if clock is None else micros_of(clock), own)
                    told += zone_events([*ended, *passed], cause)
        return told

    def _greatest(self) -> int:
        """How far the clock of zones has come that is furthest: what is defined is of it."""
        return max(self._zones.now, *self._zones.own.values(), NEVER)

    def _rezoned(self, id: str, cause: Cause) -> list[ZoneTransition]:
        layer, plain = self._registry.zones[id], self._zones
        return plain.define(layer, micros_of(cause_at(cause, self._greatest()).moment))


def plainly_derived(events: pa.Table) -> pa.Table:
    """What the events of a journal derive, in their order."""
    return pa.concat_tables([events.slice(0, 0), *PlainReading(own_clocks(events)).read(events)])


def own_clocks(events: pa.Table) -> list[str]:
    """The channels that have clocks of their own by the first settings of a journal, which stay as they are."""
    settings = next((event for event in control_events(events) if event.type == SETTINGS_TYPE), None)
    found = changes(settings, Settings()) if settings else []
    return [
        one.name
        for change in found
        if isinstance(change, SettingsChange)
        for one in change.settings.channels
        if one.clock == "own"
    ]
