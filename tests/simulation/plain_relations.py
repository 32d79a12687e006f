"""All relations over the events of a journal, plainly: those that hear the same at the same time have a reference."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from nearcast.model.changes import Change, ClockTick, RelationChange, RelationRemoval
from nearcast.model.columns import EVENTS, to_events
from nearcast.model.event import Event
from nearcast.model.limits import Limits
from nearcast.relations.lanes.scopes import Lane
from nearcast.state.derived import Cause, StageInput
from nearcast.testing.relations import Reference
from tests.relations.late_reference import LateReference
from tests.simulation.plain_clocks import plain_lane_of

PROMPT: Lane = (None, 0, ())
"""Stands for all relations without lateness, whatever their scopes."""


@dataclass(frozen=True)
class Forgotten:
    """Entities of which nothing is kept any more, from behind an event on."""

    names: frozenset[str]


Step = tuple[Event | Change | Forgotten, Cause]


class PlainRelations:
    """Relations as their plain references tell them; `own` are the channels that have clocks of their own.

    Relations with a lateness are global ones.
    """

    def __init__(self, own: Collection[str]) -> None:
        self._own = own
        self._prompt = Reference(own)
        self._late: dict[Lane, LateReference] = {}
        self._where: dict[str, Lane] = {}
        self._past: list[Step] = []
        self._limits = Limits()

    def forget(self, names: Collection[str], cause: Cause) -> None:
        """Forgets entities; what ends by that is told with the next event."""
        self._prompt.forget(names)
        step = Forgotten(frozenset(names)), cause
        self._past.append(step)
        for late in self._late.values():
            _told(late, step)

    def derive(self, given: StageInput) -> list[Event]:
        """What an event causes, or the changes that a control event makes; in the order in which it is told."""
        told: list[Event] = []
        self._limits = given.registry.settings.limits
        for late in self._late.values():
            late.limit(self._limits)
        for event in (one for one in to_events(given.events) if not one.part):
            step = event, Cause(event.position, event.moment, event.accepted)
            told += self._by_all(step, self._prompt.derive(replace(given, changes=())))
        for position, change in given.changes:
            moment = given.times.get(position)
            told += self._changed(given, (change, Cause(position, moment, moment)))
        return told

    def _by_all(self, step: Step, prompt: list[Event]) -> list[Event]:
        """What is told of something that all hear: global relations before local ones, prompt ones before late ones."""
        self._past.append(step)
        late = [event for lane in sorted(self._late) for event in _told(self._late[lane], step)]
        return [*(one for one in prompt if one.node is None), *late, *(one for one in prompt if one.node is not None)]

    def _changed(self, given: StageInput, step: Step) -> list[Event]:
        change, cause = step
        match change:
            case RelationChange(relation):
                lane = plain_lane_of(relation, given.registry.settings.channels)
                lane = lane if lane[1] else PROMPT
                before = self._where.get(relation.id, lane)
                self._where[relation.id] = lane
                # What ends where it was is told before it begins anew.
                ended = self._by(before, given, (RelationRemoval(relation.id), cause)) if before != lane else []
                return [*ended, *self._by(lane, given, step)]
            case RelationRemoval(id):
                return self._by(self._where.pop(id, PROMPT), given, step)
            case _:
                return self._by_all(step, self._by(PROMPT, given, step))

    def _by(self, lane: Lane, given: StageInput, step: Step) -> list[Event]:
        """What the relations of one lane tell of a change."""
        change, cause = step
        if lane == PROMPT:
            changes = [(cause.position, change)] if not isinstance(change, Event) else []
            return self._prompt.derive(replace(given, changes=changes, events=EVENTS.empty_table()))
        if lane not in self._late:
            late = self._late[lane] = LateReference(lane[1] / 1e6, lane[2], self._own)
            late.limit(self._limits)
            for past in self._past:
                _told(late, past)
        return _told(self._late[lane], step)


def _told(late: LateReference, step: Step) -> list[Event]:
    what, cause = step
    before = len(late.told)
    if isinstance(what, Event):
        late.report(what)
    elif isinstance(what, Forgotten):
        late.forget(what.names)
    elif isinstance(what, ClockTick):
        late.tick(what, cause)
    else:
        late.change(what, cause)
    return late.told[before:]
