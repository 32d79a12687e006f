"""What two entities went through, as far as one relation is about it: their reports alone are followed once more."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush

import pyarrow as pa

from nearcast.explain.step_clocks import StepClocks
from nearcast.model.changes import (
    Change,
    ClientChange,
    ClientRemoval,
    ClockTick,
    RelationChange,
    RelationRemoval,
    SettingsChange,
)
from nearcast.model.event import Event
from nearcast.model.filter import Filter
from nearcast.model.relation import Matching, Pair, Relation
from nearcast.model.subscription import Channel
from nearcast.relations.lanes.scopes import Lane, lane_of
from nearcast.relations.plain import EventwiseRelations, cause_at
from nearcast.relations.plain_pairs import LatestReport
from nearcast.relations.reports import moment_of
from nearcast.relations.sides import sees_derived, sides_of
from nearcast.relations.transition_events import Transition
from nearcast.state.derived import Cause
from nearcast.state.lateness import NEVER, is_older
from nearcast.state.stream_clocks import SHARED_NAME, StreamClocks

TOLD = 5
"""Of what was told of the two the last ones are kept."""


@dataclass(frozen=True, slots=True)
class PairStep:
    """What happened at a position: a change, a report of one of the two, or only that an event brought a time: its
    moment, in microseconds since 1970, its entry node and its channel.

    `newest` gives the newest events of all entities then at an entry node, or at any: new clocks begin with these.
    """

    position: int
    moment: int
    node: str
    happened: Change | Event | None = None
    channel: str | None = None
    newest: Callable[[str | None], pa.Table] | None = None


class PairPast:
    """The two entities' past, as far as one relation is about it.

    Relations that hear the same at the same time go on together, in a lane. It begins with what is known when the first
    of them is defined, and ends with the last.
    """

    def __init__(self, id: str, last: Relation | None) -> None:
        """`last`: as the relation is defined in the end."""
        self.id, self.others = id, dict[str, Relation]()
        self._last, self._node = last, last.node if last else None
        self._lane: Lane | None = None
        self.relations = self._beginning()
        self.position = 0
        # As all has it that came at the node, and as this lane has it.
        self._clocks, self._lane_clocks = StepClocks(), StepClocks()
        self._clock = NEVER
        self._heard: dict[str, LatestReport] = {}
        self._waiting: list[tuple[int, int, Event]] = []
        self.told: deque[tuple[int, Transition]] = deque(maxlen=TOLD)
        self.other_nodes: dict[str, str] = {}

    def _beginning(self) -> EventwiseRelations:
        """Relations as a lane begins with them."""
        found = EventwiseRelations()
        # Only one of them is followed, but the filters of all share the work on geometries.
        found.sides.others = self._filters_of_others
        return found

    def _filters_of_others(self) -> Iterator[Filter]:
        pairs = (one for one in self.others.values() if isinstance(one.about, Pair) and not sees_derived(one))
        for relation in pairs:
            if self._lane is not None and self._lane_of(relation) == self._lane:
                yield from (side.filter for side in sides_of(relation) if isinstance(side, Matching))

    @property
    def relation(self) -> Relation | None:
        """The relation as it is defined now."""
        return self.relations.relation(self.id)

    def follow(self, step: PairStep) -> None:
        """Takes the next step."""
        self.position = step.position
        match step.happened:
            case Event() | None if self._node is None or step.node == self._node:
                self._report(step)
            case Event() as event:
                self.other_nodes[event.entity] = step.node
            case ClockTick() as tick:
                # Of no node: it comes to all.
                for clocks in (self._clocks, self._lane_clocks):
                    clocks.follow_tick(tick)
                self._pass()
            case RelationChange(relation) if relation.id == self.id:
                self._define(relation, step)
            case RelationRemoval(self.id):
                self._note(self.relations.end(self.id))
                self._go_to(self._lane_of_others(), step)
            case RelationChange(relation):
                self.others[relation.id] = relation
                self._go_on(step)
            case RelationRemoval(id):
                self.others.pop(id, None)
                self._go_on(step)
            case ClientChange() | ClientRemoval() as change:
                self.relations.note_lists(change)
            case SettingsChange(settings):
                self.relations.limits = settings.limits
                self._set_channels(settings.channels, step)
        if isinstance(step.happened, RelationChange | RelationRemoval | SettingsChange):
            # What a filter of another relation decided counts for an equal one of this, however much later that comes.
            self.relations.decide_sides()

    def _report(self, step: PairStep) -> None:
        """An event came, perhaps a report of one of the two."""
        for clocks in (self._clocks, self._lane_clocks):
            clocks.follow_event(step.channel, step.moment)
        event = step.happened
        if not isinstance(event, Event):
            self._pass()
            return
        if self._awaits(event):
            moment = self._lane_clocks.of(event.channel) if event.moment is None else step.moment
            heappush(self._waiting, (moment, step.position, event))
        self._pass()
        known = self._heard.get(event.entity)
        if known is None or not is_older(event, known.event):
            heard = self._clocks.of(event.channel) if event.moment is None else step.moment
            self._heard[event.entity] = LatestReport(event, heard)
        if self._lane is not None and not self._lateness:
            self._note(self.relations.report(event))

    @property
    def _lateness(self) -> int:
        """For how long the lane awaits late reports, in microseconds."""
        return self._lane[1] if self._lane else 0

    def _names(self) -> Collection[str]:
        """The clocks by the slowest of which the lane goes, if it awaits late reports."""
        return (self._lane and self._lane[2]) or (SHARED_NAME,)

    def _awaits(self, event: Event) -> bool:
        return bool(self._lateness) and self._lane_clocks.name_of(event.channel) in self._names()

    def _pass(self) -> None:
        """Lets the clocks come to where they are; what is awaited until then counts."""
        late = self._lateness
        if self._lane is None:
            return
        if not late:
            self._note(self.relations.pass_time(self._lane_clocks.shared, self._lane_clocks.own))
            return
        self._clock = max(self._clock, self._lane_clocks.slowest(self._names()))
        while self._waiting and self._waiting[0][0] + late <= self._clock:
            self._note(self.relations.report(heappop(self._waiting)[-1]))
        self._note(self.relations.pass_time(self._clock - late if self._clock != NEVER else NEVER))

    def _define(self, relation: Relation, step: PairStep) -> None:
        if self.relation == relation:
            return
        self._note(self.relations.end(self.id))
        self._go_to(self._lane_of(relation), step)
        moment = moment_of(step.moment)
        now = self.relations.now if self._lateness else self._lane_clocks.greatest
        self._note(self.relations.define(relation, 0, cause_at(Cause(step.position, moment, moment), now)))

    def _lane_of(self, relation: Relation) -> Lane:
        return lane_of(relation, StreamClocks(self._clocks.channels))

    def _lane_of_others(self) -> Lane | None:
        """The lane in which the relation is in the end, while there is another one in it."""
        own = None if self._last is None else self._lane_of(self._last)
        return own if any(self._lane_of(one) == own for one in self.others.values()) else None

    def _go_on(self, step: PairStep) -> None:
        """Other relations came, or went: while this one is not there they have its lane."""
        if self.relation is None:
            self._go_to(self._lane_of_others(), step)

    def _go_to(self, lane: Lane | None, step: PairStep) -> None:
        """Goes on in a lane, which begins if it is not the one that there is."""
        if lane == self._lane:
            return
        self._lane, self._waiting, before = lane, [], self.relations
        self.relations = self._beginning()
        self.relations.limits, self.relations.lists = before.limits, before.lists
        # The relations of all nodes that await nothing follow the clocks also while there are none.
        following = lane is None or lane[:2] == (None, 0)
        channels, newest = self._clocks.channels, self._newest(step)
        self._lane_clocks = self._clocks.copy() if following else StepClocks.of_newest(channels, newest)
        if self._lateness:
            self._clock = self.relations.now = self._lane_clocks.slowest(self._names())
            self.relations.known = {name: one for name, one in self._heard.items() if self._awaits(one.event)}
        else:
            self.relations.known = dict(self._heard)
            self.relations.set_clocks(self._lane_clocks.own, self._lane_clocks.shared)

    def _set_channels(self, channels: Sequence[Channel], step: PairStep) -> None:
        """Goes on by the clocks of other channels."""
        changed = [one.redefine(channels, self._newest(step)) for one in (self._clocks, self._lane_clocks)]
        relation = self.relation
        if not any(changed) or self._lane is None:
            return
        if not self._lateness:
            self.relations.set_clocks(self._lane_clocks.own, self._lane_clocks.shared)
        elif relation is None:
            self._go_on(step)
        elif self._lane_of(relation) != self._lane:
            # Where it goes by other clocks it begins anew.
            self._note(self.relations.end(self.id))
            self._define(relation, step)

    def _newest(self, step: PairStep) -> Callable[[], pa.Table] | None:
        """Gives the newest events of all entities at the node."""
        return None if step.newest is None else partial(step.newest, self._node)

    def _note(self, told: Iterable[Transition]) -> None:
        self.told.extend((self.position, one) for one in told)
