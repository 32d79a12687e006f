"""The plain reference: every report is held against everybody (semantics §7). Every strategy must tell the same.

Truth is in the order of the journal. Of each entity its newest report counts; one whose own time is older than that of
the newest known came late and changes nothing. What is UNKNOWN changes nothing either. The clock is the greatest moment
so far (semantics §11): what is to last, or to lapse, does so when an event brings that time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import pyarrow as pa

from nearcast.model.changes import Change, ClientChange, ClientRemoval, ClockTick, RelationChange, RelationRemoval
from nearcast.model.columns import to_events
from nearcast.model.event import MAIN, Event
from nearcast.model.relation import (
    Relation,
)
from nearcast.relations.plain import EventwiseRelations, cause_at
from nearcast.relations.plain_pairs import NONE_OWN, OwnClocks
from nearcast.relations.reports import micros_of, moment_of
from nearcast.relations.transition_events import Transition
from nearcast.state.derived import Cause, StageInput
from nearcast.state.lateness import NEVER
from nearcast.state.stream_clocks import SHARED_NAME
from nearcast.testing.situations import PlainReadingWindows


class Reference:
    """Relations over a stream, all of them plainly, for each scope apart; a local one hears nothing of other nodes.

    `own` are the channels that have a clock of their own.
    """

    def __init__(self, own: Collection[str] = ()) -> None:
        self._own = tuple(own)
        self._scopes: dict[str | None, EventwiseRelations] = {None: self._beginning()}
        self._heard: list[Event] | None = None
        self._gone: dict[str | None, set[str]] = {}
        self._sequence = 0

    def _beginning(self) -> EventwiseRelations:
        plain = plain_relations()
        plain.set_clocks(dict.fromkeys(self._own, NEVER), NEVER)
        return plain

    def derive(self, stage_input: StageInput) -> list[Event]:
        """What a stretch of the journal causes, ascending by position and part."""
        if self._heard is None:
            self._heard = _reported(stage_input.repository.newest())
        events = _reported(stage_input.events)
        for plain in self._scopes.values():
            plain.limits, plain.excess = stage_input.registry.settings.limits, stage_input.excess
        steps: list[tuple[int, Change | Event]] = [*stage_input.changes, *((event.position, event) for event in events)]
        told: list[Event] = []
        for position, step in sorted(steps, key=lambda one: one[0]):
            if isinstance(step, Event):
                told += self._report(Cause(position, step.time, step.accepted), step)
            else:
                moment = stage_input.times.get(position)
                told += self._change(Cause(position, moment, moment), step)
        return told

    def forget(self, names: Collection[str]) -> None:
        """Forgets entities; what ends by that is told with the next event."""
        self._heard = [one for one in self._heard or () if one.entity not in names]
        for scope, plain in self._scopes.items():
            if len(plain):
                self._gone.setdefault(scope, set()).update(names)

    def _forgotten(self, scope: str | None) -> list[Transition]:
        """What ends in a scope for it forgets what it is to forget."""
        gone = sorted(self._gone.pop(scope, ()))
        return self._scopes[scope].forget(gone) if gone else []

    def _ordered(self, first: str | None = None) -> list[str | None]:
        """All scopes, the global one before the others; in front of all the one that is named."""
        return sorted(self._scopes, key=lambda scope: (scope != first, scope is not None, scope or ""))

    def _report(self, cause: Cause, event: Event) -> list[Event]:
        assert self._heard is not None, "it is there with the first stretch"
        self._heard.append(event)
        scopes = [scope for scope in self._ordered() if scope in (None, event.node or MAIN)]
        for scope in scopes:
            if not len(self._scopes[scope]):
                self._scopes[scope].pass_time(*_brought(self._scopes[scope], event))
        return [one for scope in scopes if len(self._scopes[scope]) for one in self._told(scope, cause, event)]

    def _told(self, scope: str | None, cause: Cause, event: Event) -> list[Event]:
        plain, ended = self._scopes[scope], self._forgotten(scope)
        now, own = _brought(plain, event)
        told = left_windows(plain, now, cause, own=own)
        return _at(scope, [*told, *plain.told([*ended, *plain.report(event)], cause, len(told) + 1)])

    def _change(self, cause: Cause, change: Change) -> list[Event]:
        for plain in self._scopes.values():
            plain.note_lists(change)
        found: dict[str | None, list[Transition]] = {}
        before: str | None = None
        match change:
            case RelationChange(relation):
                before = next((scope for scope, plain in self._scopes.items() if plain.relation(relation.id)), None)
                self._define(relation, cause, found)
            case RelationRemoval(id):
                found = {scope: plain.end(id) for scope, plain in self._scopes.items()}
            case ClientChange() | ClientRemoval():
                found = {
                    scope: plain.relisted(change.client, _as_of(plain, cause)) for scope, plain in self._scopes.items()
                }
            case ClockTick() as tick:
                return [one for scope in self._ordered() for one in self._ticked(scope, tick, cause)]
        self._gone = {scope: names for scope, names in self._gone.items() if len(self._scopes[scope])}
        # What ends where the relation was is told before it begins anew.
        return [
            event
            for scope in self._ordered(before)
            if found.get(scope)
            for event in _at(scope, self._scopes[scope].told(found[scope], _as_of(self._scopes[scope], cause)))
        ]

    def _ticked(self, scope: str | None, tick: ClockTick, cause: Cause) -> list[Event]:
        plain, clock = self._scopes[scope], NEVER if tick.clock is None else micros_of(tick.clock)
        own = {name: micros_of(one) for name, one in tick.channels.items()}
        ended = self._forgotten(scope)
        told = left_windows(plain, clock, cause, own=own)
        return _at(scope, [*told, *plain.told([*ended, *plain.pass_time(clock, own)], cause, len(told) + 1)])

    def _define(self, relation: Relation, cause: Cause, found: dict[str | None, list[Transition]]) -> None:
        plain = self._scopes.get(relation.node)
        if plain is not None and plain.relation(relation.id) == relation:
            return
        # The only one of a scope that is defined anew goes on by the clocks that there are.
        first = plain is None or not len(plain)
        for scope, other in self._scopes.items():
            found[scope] = other.end(relation.id)
        if plain is None:
            plain = self._scopes[relation.node] = self._beginning()
            plain.lists = dict(self._scopes[None].lists)
            plain.limits, plain.excess = self._scopes[None].limits, self._scopes[None].excess
        if first:
            heard = [one for one in self._heard or () if relation.node in (None, one.node or MAIN)]
            if relation.node is not None:
                # A local one begins by what came to its node, whether or not there were others before.
                plain.set_clocks(dict.fromkeys(self._own, NEVER), NEVER)
            _begin(plain, _newest(heard))
        self._sequence += 1
        found.setdefault(relation.node, []).extend(
            plain.define(relation, self._sequence, _as_of(plain, cause), self._gone.get(relation.node, ()))
        )


def plain_relations() -> EventwiseRelations:
    """Relations one event at a time that keep all readings."""
    return EventwiseRelations(PlainReadingWindows())


def left_windows(
    plain: EventwiseRelations, now: int, cause: Cause, first: int = 1, own: OwnClocks = NONE_OWN
) -> list[Event]:
    """What is told as readings leave windows until the shared clock comes to `now`, and those of channels to `own`;
    each with the moment at which one does.
    """
    told: list[Event] = []
    for moment, found in plain.leave_windows(now, own):
        at = Cause(cause.position, moment_of(moment), cause.accepted)
        told += plain.told(found, at, len(told) + first)
    return told


def _brought(plain: EventwiseRelations, event: Event) -> tuple[int, OwnClocks]:
    """How far a report brings the shared clock, and those of channels."""
    moment, channel = micros_of(event.moment), event.channel or SHARED_NAME
    return (NEVER, {channel: moment}) if channel in plain.own else (moment, NONE_OWN)


def _as_of(plain: EventwiseRelations, cause: Cause) -> Cause:
    """A definition as a cause: it is of the clock that is furthest, where that is earlier."""
    return cause_at(cause, max(plain.now, *plain.own.values(), NEVER))


def _begin(plain: EventwiseRelations, newest: Iterable[Event]) -> None:
    """Takes what is known of all entities; each clock is not behind those that go by it."""
    own, now = dict(plain.own), plain.now
    plain.begin(newest)
    for known in plain.known.values():
        channel = known.event.channel or SHARED_NAME
        if channel in own:
            own[channel] = max(own[channel], known.heard)
        else:
            now = max(now, known.heard)
    plain.set_clocks(own, now)


def _newest(events: Iterable[Event]) -> Iterable[Event]:
    """The newest event of each entity."""
    found: dict[str, Event] = {}
    for event in events:
        known = found.get(event.entity)
        if known is None or None in (event.moment, known.moment) or micros_of(event.moment) >= micros_of(known.moment):
            found[event.entity] = event
    return found.values()


def _reported(events: pa.Table) -> list[Event]:
    return [event for event in to_events(events) if not event.part]


def _at(scope: str | None, events: list[Event]) -> list[Event]:
    return [replace(event, node=scope) for event in events]
