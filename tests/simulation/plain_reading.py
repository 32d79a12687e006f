"""What the events of a journal derive, read plainly: one by one, each held against everybody, without any index."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from nearcast.errors import EventError
from nearcast.language.control_events import changes
from nearcast.model.changes import Change, ClockTick, ZoneRuleChange, ZoneShapesChange
from nearcast.model.columns import are_control, to_events
from nearcast.model.event import Event
from nearcast.relations.plain import cause_at
from nearcast.relations.reports import micros_of
from nearcast.situations.stage import SituationStage
from nearcast.state.derived import Cause, StageInput, derived_of, merge_derived
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository
from nearcast.testing.relations import Reference
from nearcast.testing.situations import PlainScene
from nearcast.zones.reference import PlainZones
from nearcast.zones.zone_transitions import ZoneTransition
from tests.zones.plain_events import zone_events


class PlainReading:
    """Relations, zones and situations as their plain references tell them, one event of a journal after the other."""

    def __init__(self) -> None:
        self._registry, self._repository = Registry(), Repository()
        self._relations, self._zones, self._situations = Reference(), PlainZones(), SituationStage(PlainScene)

    def read(self, events: pa.Table) -> Iterator[pa.Table]:
        """What is derived of each event, as a table."""
        for row, (event, control) in enumerate(zip(to_events(events), are_control(events).to_pylist(), strict=True)):
            found = self._changes(event) if control else []
            table = events.slice(row, 0 if control else 1)
            yield derived_of(self._derived(event, table, found))
            self._repository.fold_events(table)

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

        table = merge_derived(table, self._relations.derive(given(table)))
        table = merge_derived(table, self._zoned(event, found))
        if self._situations.passes_over(given(table)):
            return table
        return merge_derived(table, self._situations.derive(given(table)))

    def _zoned(self, event: Event, found: list[Change]) -> list[Event]:
        plain = self._zones
        if not found:
            cause = Cause(event.position, event.time, event.accepted)
            return zone_events(plain.report(event), cause) if plain.layers else []
        told, cause = list[Event](), Cause(event.position, event.moment, event.moment)
        for change in found:
            match change:
                case ZoneRuleChange(rule):
                    if not plain.layers:
                        plain.begin(to_events(self._repository.newest()))
                    told += zone_events(self._rezoned(rule.id, cause), cause_at(cause, plain.now))
                case ZoneShapesChange(id) if id in plain.layers:
                    told += zone_events(self._rezoned(id, cause), cause_at(cause, plain.now))
                case ClockTick(clock) if plain.layers and clock is not None:
                    told += zone_events(plain.pass_time(micros_of(clock)), cause)
        return told

    def _rezoned(self, id: str, cause: Cause) -> list[ZoneTransition]:
        layer, plain = self._registry.zones[id], self._zones
        return plain.define(layer, micros_of(cause_at(cause, plain.now).moment))


def plainly_derived(events: pa.Table) -> pa.Table:
    """What the events of a journal derive, in their order."""
    return pa.concat_tables([events.slice(0, 0), *PlainReading().read(events)])
