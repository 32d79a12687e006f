"""Relations evaluated plainly: every report is held against everybody (semantics §7).

Truth is in the order of the journal. Of each entity its newest report counts; one whose own time is older than that of
the newest known came late and changes nothing. What is UNKNOWN changes nothing either. The clock is the greatest moment
so far (semantics §11): what is to last, or to lapse, does so when an event brings that time. Where channels have clocks
of their own an entity falls silent by that of its newest report, and a pair lasts by the slower one of both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace

from nearcast.model.changes import Change, ClientChange, ClientRemoval
from nearcast.model.event import Event
from nearcast.model.filter import Filter
from nearcast.model.limits import Limits
from nearcast.model.relation import (
    DEPTH,
    RELATION_EVENT,
    ListMembers,
    Matching,
    Relation,
)
from nearcast.relations.geometries.pair_comparisons import decide
from nearcast.relations.plain_pairs import (
    NONE_OWN,
    LatestReport,
    OwnClocks,
    PlainRelation,
    RelationView,
)
from nearcast.relations.predicate import (
    SideAggregate,
)
from nearcast.relations.reports import micros_of, moment_of
from nearcast.relations.sides import SideMembers, sides_of
from nearcast.relations.transition_events import (
    Transition,
    transition_events,
)
from nearcast.relations.transitions import (
    HoldState,
)
from nearcast.state.derived import Cause
from nearcast.state.lateness import FOREVER, NEVER, is_older
from nearcast.state.stream_clocks import SHARED_NAME
from nearcast.state.timeline import Excess
from nearcast.state.windows import AggregateFinding, IndexedReadingWindows, KeptReading, ReadingWindows


class EventwiseRelations:
    """Relations one event at a time: what the reference does, and what the stage does with relations it has no columns
    for. `known` are the newest reports, by entity, `windows` what they told over the times that predicates ask for.

    `now` is how far the shared clock has come, `own` those of channels that have one of their own: pairs go by them,
    gatherings by the shared one.
    """

    def __init__(self, windows: ReadingWindows | None = None) -> None:
        self.now = NEVER
        self.own: dict[str, int] = {}
        self.windows = IndexedReadingWindows() if windows is None else windows
        self.known: dict[str, LatestReport] = {}
        self.lists: dict[str, Mapping[str, tuple[str, ...]]] = {}
        self.limits = Limits()
        self.excess: Counter[Excess] = Counter()
        self.sides = SideMembers()
        self._states: dict[str, PlainRelation] = {}
        self._spans: dict[str, set[int]] = {}

    def __len__(self) -> int:
        return len(self._states)

    @property
    def kept(self) -> int:
        """Of how many entities and pairs something is kept."""
        return len(self.known) + sum(len(state.holding) for state in self._states.values())

    def copy(self) -> EventwiseRelations:
        """The same relations, which go on by themselves, where they ask for nothing over times; what comes to a limit
        is counted apart.
        """
        assert not self._spans, "of what relations tell there is nothing over times"
        found = copy(self)
        found.known, found.own, found.excess = dict(self.known), dict(self.own), Counter()
        found.sides = self.sides.copy()
        found._states = {id: state.copy() for id, state in self._states.items()}
        return found

    def begin(self, events: Iterable[Event]) -> None:
        """Takes what is known of all entities when the first relation is defined: the newest event of each."""
        self.known = {event.entity: LatestReport(event, micros_of(event.moment)) for event in events}
        self.now = max([self.now, *(one.heard for one in self.known.values())])

    def as_of(self, cause: Cause) -> Cause:
        """A definition as a cause: it is of the clock, where that is earlier."""
        return cause_at(cause, self.now)

    def define(self, relation: Relation, sequence: int, cause: Cause, gone: Collection[str] = ()) -> list[Transition]:
        """Adds a relation; what it tells of the present, in which those who are `gone`, to be forgotten with the next
        event, are no more.
        """
        self._states[relation.id] = state = PlainRelation(relation, sequence, cause.position)
        self._ask_over_time()
        self.decide_sides()
        present = {name: one for name, one in self.known.items() if name not in gone}
        return list(state.all(replace(self._comparing([state]), known=present), cause))

    def states(self) -> Iterator[tuple[Relation, int, Mapping[tuple[str, str], HoldState], int | None]]:
        """Each relation, the order of its definition, what holds in it, and its room for beginnings."""
        return ((state.relation, state.sequence, state.holding, state.room) for state in self._states.values())

    def restore(
        self, relation: Relation, sequence: int, holding: Mapping[tuple[str, str], HoldState], room: int | None
    ) -> None:
        """Adds a relation that was there before, with what held in it and its room for beginnings."""
        # With what relations tell there are no aggregates, and of others nothing is restored here.
        self._states[relation.id] = PlainRelation(relation, sequence, 0, dict(holding), room)

    def ids(self) -> list[str]:
        """The relations that there are."""
        return list(self._states)

    def relation(self, id: str) -> Relation | None:
        """The relation of this id."""
        return self._states[id].relation if id in self._states else None

    def end(self, id: str) -> list[Transition]:
        """Removes a relation; the ends of what held in it."""
        state = self._states.pop(id, None)
        found = [] if state is None else state.removed(self._world())
        self._ask_over_time()
        self.sides.keep(self._shared())
        if not any(one.derived for one in self._states.values()):
            # What relations told is known only while some relation asks for it.
            self.known = {name: one for name, one in self.known.items() if one.event.type != RELATION_EVENT}
        return found

    def forget(self, names: Collection[str]) -> list[Transition]:
        """Forgets entities as if they had fallen silent; what that ends."""
        world = replace(self._world(), gone=frozenset(names))
        told = [one for state in self._states.values() for one in state.forgotten(world)]
        for name in names:
            self.known.pop(name, None)
        self.sides.forget(names)
        self.windows.forget(names)
        return told

    def note_lists(self, change: Change) -> None:
        """Takes a client's lists."""
        if isinstance(change, ClientChange) and change.lists is not None:
            self.lists[change.client] = {**self.lists.get(change.client, {}), **change.lists}
        elif isinstance(change, ClientRemoval):
            self.lists.pop(change.client, None)

    def relisted(self, client: str, cause: Cause) -> list[Transition]:
        """What the new lists of a client change."""
        world = self._world()
        crowds = [
            one for one in self._states.values() if isinstance(one.crowd, ListMembers) and one.crowd.client == client
        ]
        return [told for state in crowds for told in state.all(world, cause)]

    def _world(self) -> RelationView:
        own = (self.limits, self.excess, self.windows, self.own, self.sides)
        return RelationView(self.known, self.now, self.lists, *own)

    def _shared(self) -> list[Filter]:
        """The filters of the sides of pairs, of which all share the work on geometries."""
        pairs = (state for state in self._states.values() if state.crowd is None and not state.derived)
        sides = (side for state in pairs for side in sides_of(state.relation))
        return [side.filter for side in sides if isinstance(side, Matching)]

    def decide_sides(self) -> None:
        """Decides of all that are known whether they are of the sides that there are now, if that is not decided."""
        self.sides.keep(self._shared())
        for one in self.known.values():
            self.sides.decide(one.event, self.limits)

    def aggregate(self, id: str, entity: str, one: SideAggregate) -> AggregateFinding:
        """What an aggregate of a relation's predicate is of an entity now."""
        return self._states[id].found(one, entity, self._world())

    def held(self, id: str, pair: tuple[str, str]) -> HoldState | None:
        """Since when a relation holds between two, by the order of its sides; None where it does not."""
        return self._states[id].holding.get(pair) if id in self._states else None

    def clock_of(self, entity: str) -> int:
        """How far the clock has come by which an entity goes; the shared one where it was not heard of."""
        return self._world().clock_of(entity)

    def set_clocks(self, own: OwnClocks, now: int) -> None:
        """Goes on by other clocks: entities by those of their newest reports, pairs by both."""
        self.own, self.now = dict(own), now
        for state in self._states.values():
            state.set_clocks(self._world())

    def pass_time(self, now: int, own: OwnClocks = NONE_OWN) -> list[Transition]:
        """What changes as the shared clock comes to `now`, and those that channels have of their own to `own`."""
        found = [one for _, told in self.leave_windows(now, own) for one in told]
        self._go_on({SHARED_NAME: now, **own})
        return found + [one for state in self._states.values() for one in state.expired(self._world())]

    def _go_on(self, clocks: OwnClocks) -> None:
        self.now = max(self.now, clocks.get(SHARED_NAME, NEVER))
        if self.own:
            self.own = {name: max(value, clocks.get(name, NEVER)) for name, value in self.own.items()}

    def leave_windows(self, now: int, own: OwnClocks = NONE_OWN) -> Iterator[tuple[int, list[Transition]]]:
        """What changes as readings leave windows until the clocks come so far, all of them at one pace: for each
        moment, and entity of which some aggregate has another value then, what is told with that moment.
        """
        start = {SHARED_NAME: self.now, **self.own}
        end = {name: max(value, now if name == SHARED_NAME else own.get(name, NEVER)) for name, value in start.items()}
        while self._spans and (leaving := self._next_leaving(start, end)):
            wait = min(own_wait for _, own_wait in leaving.values())
            self._go_on({name: min(end[name], at + wait) if at != NEVER else NEVER for name, at in start.items()})
            for entity in sorted(name for name, (_, own_wait) in leaving.items() if own_wait == wait):
                moment = leaving[entity][0]
                changed = [one for one in self._states.values() if one.changes(entity, moment, self._world())]
                if changed:
                    found = [one for state in self._states.values() for one in state.expired(self._world())]
                    found += self._reported(changed, entity, Cause(0, moment_of(moment), None), moves=False)
                    yield moment, found

    def _ask_over_time(self) -> None:
        """Keeps from now on what the relations that there are now ask of times."""
        asked = [one.aggregate for state in self._states.values() for one in state.aggregates]
        spans = {name: {one.span for one in asked if one.name == name} for name in (one.name for one in asked)}
        if spans or self._spans:
            self._spans = spans
            self.windows.prepare({name: max(own) for name, own in spans.items()})

    def _next_leaving(self, start: OwnClocks, end: OwnClocks) -> Mapping[str, tuple[int, int]]:
        """Of each entity of which a reading leaves a window before its clock comes to its end: the moment of the next
        one, and how long after the start that is.
        """
        asked = [(name, span) for name, spans in self._spans.items() for span in spans]
        found, world = {}, self._world()
        for entity in self.known:
            clock, now = world.clock_name(entity), world.clock_of(entity)
            moment = min((self.windows.leaves((entity, name), span, now) for name, span in asked), default=FOREVER)
            if moment <= end[clock] and start[clock] != NEVER:
                found[entity] = moment, moment - start[clock]
        return found

    def next_due(self) -> int:
        """How far `now` must come for something to be told though nothing is reported; `FOREVER` where nothing is."""
        return min((state.next_due(self._world()) for state in self._states.values()), default=FOREVER)

    def report(self, event: Event, now: int | None = None) -> list[Transition]:
        """What a report changes, and the time that it brings: its moment, where that is not said to be another."""
        now = micros_of(event.moment) if now is None else now
        channel = event.channel or SHARED_NAME
        found = self.pass_time(NEVER, {channel: now}) if channel in self.own else self.pass_time(now)
        cause = Cause(event.position, event.time, event.accepted)
        if self._moves(event):
            found += self._reported(self._states.values(), event.entity, cause)
        return found

    def _reported(
        self, states: Collection[PlainRelation], entity: str, cause: Cause, moves: bool = True
    ) -> list[Transition]:
        """What an entity's newest report changes in some relations."""
        world = self._comparing(states, entity)
        return [one for state in states for one in state.report(entity, world, cause, moves)]

    def _comparing(self, states: Collection[PlainRelation], entity: str | None = None) -> RelationView:
        """What is known now, with what the predicates of some relations say that compare geometries: of the pairs of an
        entity that reports, or of all.
        """
        world = self._world()
        # Those that see what relations tell have the work that is allowed by themselves.
        sharing = [[state for state in states if not state.derived], *([one] for one in states if one.derived)]
        for own in sharing:
            evaluations = [one for state in own for one in state.comparisons(world, entity)]
            decide([one for one in evaluations if not one.decided], self.limits, self.excess)
            world.truths.update(((one.relation, one.a.entity, one.b.entity), one.truths) for one in evaluations)
        return world

    def _moves(self, event: Event) -> bool:
        """Whether a report moves its entity: not if it is older than the newest one known."""
        old = self.known.get(event.entity)
        # Of what relations tell the last is the newest, whatever moment it is of.
        if old is not None and not event.part and is_older(event, old.event):
            return False
        now = self.own.get(event.channel or SHARED_NAME, self.now)
        heard = now if event.moment is None else micros_of(event.moment)
        self.known[event.entity] = LatestReport(event, heard)
        self.sides.decide(event, self.limits)
        self.windows.limits = self.limits
        for name in self._spans:
            values = list(event.values(name))
            # What is of no moment is in no window.
            if values and heard != NEVER:
                kept = KeptReading(heard, event.position, values[-1])
                self.windows.put_reading((event.entity, name), kept, now)
        return True

    def told(self, found: Sequence[Transition], cause: Cause, first: int = 1) -> list[Event]:
        """The events that tell it, and those that these cause, in the order of their parts, from `first` on."""
        told = transition_events(found, cause, first)
        depths = [1] * len(told)
        curious = [state for state in self._states.values() if state.derived]
        for event in told:
            depth = depths[event.part - first]
            if curious and depth < DEPTH and self._moves(event):
                more = self._reported(curious, event.entity, cause)
                told += transition_events(more, cause, len(told) + first)
                depths += [depth + 1] * len(more)
        return told


def cause_at(cause: Cause, clock: int) -> Cause:
    """A definition as a cause: of the clock, where that is earlier than the definition's own moment."""
    moment = micros_of(cause.moment)
    known = [one for one in (clock, moment) if one != NEVER]
    return replace(cause, time=moment_of(min(known, default=NEVER)))
