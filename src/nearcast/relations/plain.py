"""Relations evaluated plainly: every report is held against everybody (semantics §7).

Truth is in the order of the journal. Of each entity its newest report counts; one whose own time is older than that of
the newest known came late and changes nothing. What is UNKNOWN changes nothing either. The clock is the greatest moment
so far (semantics §11): what is to last, or to lapse, does so when an event brings that time. Where channels have clocks
of their own an entity falls silent by that of its newest report, and a pair lasts by the slower one of both.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from zlib import crc32

from nearcast.filters.spatial_atoms import truth_alone
from nearcast.filters.truth import Truth
from nearcast.geo.columnar_index import may_be_within
from nearcast.geo.distance import distance
from nearcast.model.changes import Change, ClientChange, ClientRemoval
from nearcast.model.event import Event
from nearcast.model.filter import Filter
from nearcast.model.limits import Limits
from nearcast.model.relation import (
    DEPTH,
    RELATION_EVENT,
    SIDES,
    Crowd,
    Detection,
    Gathering,
    ListMembers,
    Matching,
    Named,
    Pair,
    Relation,
    Side,
)
from nearcast.relations.aggregates.entity_windows import known_value
from nearcast.relations.gatherings import MOST_NAMED
from nearcast.relations.geometries.pair_comparisons import UNDECIDED, PairEvaluation, decide, order_of
from nearcast.relations.predicate import (
    MarginPredicate,
    SideAggregate,
    Truths,
    is_symmetric,
    side_aggregates,
)
from nearcast.relations.reports import micros_of, moment_of
from nearcast.relations.sides import SideMembers, sees_derived, sides_of
from nearcast.relations.transition_events import (
    CAUSED,
    EXPIRED,
    OVERDUE,
    Participant,
    Transition,
    transition_events,
)
from nearcast.relations.transitions import (
    BEGINS,
    FALLS_SILENT,
    REASONS,
    REMOVED,
    UNCHANGED,
    HoldState,
    Lifecycle,
    deadline,
    effect_of,
    first_told,
    gathered_until,
)
from nearcast.state.derived import Cause
from nearcast.state.lateness import FOREVER, NEVER
from nearcast.state.stream_clocks import SHARED_NAME
from nearcast.state.timeline import Excess
from nearcast.state.windows import AggregateFinding, IndexedReadingWindows, KeptReading, ReadingWindows

Lists = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Of each client its lists of entities."""

OwnClocks = Mapping[str, int]
"""How far the clocks have come that channels have of their own, by the channels' names, in microseconds since 1970."""

NONE_OWN: OwnClocks = {}
"""Where all channels share one."""


@dataclass(frozen=True, slots=True)
class LatestReport:
    """The newest report of an entity, and from when its silence counts, in microseconds since 1970: its moment, or the
    clock when it came where it has none.
    """

    event: Event
    heard: int

    @property
    def subject(self) -> Participant:
        """Whom, and where."""
        return Participant(self.event.entity, self.event.place)


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
        self._states: dict[str, _State] = {}
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

    def define(self, relation: Relation, sequence: int, cause: Cause) -> list[Transition]:
        """Adds a relation; what it tells of the present."""
        self._states[relation.id] = state = _State(relation, sequence, cause.position)
        self._ask_over_time()
        self.decide_sides()
        return list(state.all(self._comparing([state]), cause))

    def states(self) -> Iterator[tuple[Relation, int, Mapping[tuple[str, str], HoldState], int | None]]:
        """Each relation, the order of its definition, what holds in it, and its room for beginnings."""
        return ((state.relation, state.sequence, state.holding, state.room) for state in self._states.values())

    def restore(
        self, relation: Relation, sequence: int, holding: Mapping[tuple[str, str], HoldState], room: int | None
    ) -> None:
        """Adds a relation that was there before, with what held in it and its room for beginnings."""
        # With what relations tell there are no aggregates, and of others nothing is restored here.
        self._states[relation.id] = _State(relation, sequence, 0, dict(holding), room)

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
        world = self._world()
        told = [
            one
            for state in self._states.values()
            for pair in list(state.holding)
            if not set(names).isdisjoint(pair)
            for one in state.silent(pair, world)
        ]
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

    def _reported(self, states: Collection[_State], entity: str, cause: Cause, moves: bool = True) -> list[Transition]:
        """What an entity's newest report changes in some relations."""
        world = self._comparing(states, entity)
        return [one for state in states for one in state.report(entity, world, cause, moves)]

    def _comparing(self, states: Collection[_State], entity: str | None = None) -> RelationView:
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


def is_older(event: Event, other: Event) -> bool:
    """Whether an event is of an earlier moment than another: late, where that is the newest of its entity."""
    own, known = event.moment, other.moment
    return own is not None and known is not None and own < known


@dataclass(frozen=True, slots=True)
class RelationView:
    """What is known at one moment."""

    known: Mapping[str, LatestReport]
    now: int
    lists: Lists
    limits: Limits = field(default_factory=Limits)
    excess: Counter[Excess] = field(default_factory=Counter)
    """How many predicates were not decided, of which events, for they came to a limit."""
    windows: ReadingWindows = field(default_factory=IndexedReadingWindows)
    own: OwnClocks = field(default_factory=dict)
    sides: SideMembers = field(default_factory=lambda: SideMembers())
    truths: dict[tuple[str, str, str], Truths] = field(default_factory=dict)
    """Of predicates that compare geometries what was found: by the relation, and the entities of both sides."""

    def is_of(self, side: Side | Crowd, event: Event, alone: bool = False) -> bool:
        """Whether an event is of a side; `alone`: of one that shares the work on geometries with no other."""
        if isinstance(side, Named):
            return event.entity == side.entity
        assert isinstance(side, Matching), "lists are of entities"
        if alone:
            return truth_alone(side.filter, event, limits=self.limits) is True
        return self.sides.selects(side.filter, event, self.limits)

    def clock_name(self, entity: str) -> str:
        """By which clock an entity goes: the name of the channel that has it, `SHARED_NAME` for the shared one."""
        report = self.known.get(entity) if self.own else None
        name = report.event.channel if report else None
        return name if name and name in self.own else SHARED_NAME

    def clock_of(self, entity: str) -> int:
        """How far that has come."""
        return self.own.get(self.clock_name(entity), self.now) if self.own else self.now

    def slower(self, clocks: Iterable[str]) -> int:
        """How far the slower one of some clocks has come."""
        return min((self.own.get(name, self.now) for name in clocks), default=self.now) if self.own else self.now


def _other(pair: tuple[str, str], entity: str) -> str:
    """The entity of a pair that this one is not."""
    return pair[1] if pair[0] == entity else pair[0]


@dataclass(slots=True)
class _State:
    """One relation, and what holds in it; of a gathering the keys are (member, '')."""

    relation: Relation
    sequence: int
    after: int
    """The position of its definition."""
    holding: dict[tuple[str, str], HoldState] = field(default_factory=dict)
    room: int | None = None
    """For how many beginnings there is room; None: for as many as ever."""
    clocks: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """By which clocks those pairs last that hold, where one of them is a channel's own."""
    unordered: bool = field(init=False)
    derived: bool = field(init=False)
    named: bool = field(init=False)
    lifecycle: Lifecycle = field(init=False)
    aggregates: tuple[SideAggregate, ...] = field(init=False)
    predicate: MarginPredicate | None = field(init=False)

    def __post_init__(self) -> None:
        about = self.relation.about
        self.unordered = isinstance(about, Pair) and about.a == about.b and is_symmetric(about.when)
        self.derived = sees_derived(self.relation)
        self.named = isinstance(about, Pair) and isinstance(about.a, Named) and isinstance(about.b, Named)
        self.lifecycle = Lifecycle.of(self.relation)
        self.aggregates = side_aggregates(about.when) if isinstance(about, Pair) else ()
        self.predicate = MarginPredicate(about.when, self.relation.margin) if isinstance(about, Pair) else None

    def copy(self) -> _State:
        """The same relation, which goes on by itself."""
        found = copy(self)
        found.holding, found.clocks = dict(self.holding), dict(self.clocks)
        return found

    @property
    def crowd(self) -> Crowd | None:
        """The crowd of a gathering."""
        about = self.relation.about
        return about.among if isinstance(about, Gathering) else None

    def found(self, one: SideAggregate, entity: str, world: RelationView) -> AggregateFinding:
        """What an aggregate is of an entity."""
        return self._found_at(one, entity, world, world.clock_of(entity))

    def _found_at(self, one: SideAggregate, entity: str, world: RelationView, moment: int) -> AggregateFinding:
        return world.windows.find((entity, one.aggregate.name), one.aggregate, moment, self.after)

    def changes(self, entity: str, moment: int, world: RelationView) -> bool:
        """Whether some aggregate of an entity has another value at a moment than just before it."""
        return any(
            known_value(self._found_at(one, entity, world, moment - 1))
            != known_value(self._found_at(one, entity, world, moment))
            for one in self.aggregates
        )

    def set_clocks(self, world: RelationView) -> None:
        """Lets pairs last by the clocks by which their entities go now."""
        self.clocks = {pair: self._clocks(pair, world) for pair in self.holding} if world.own else {}

    def _clocks(self, pair: tuple[str, str], world: RelationView) -> tuple[str, str]:
        # Of a gathering's member there is no other.
        a, b = (world.clock_name(one) if pair[1] else SHARED_NAME for one in pair)
        return a, b

    def report(self, entity: str, world: RelationView, cause: Cause, moves: bool = True) -> Iterator[Transition]:
        """What an entity's new report changes; not one that `moves` it, but that its aggregates have other values."""
        if isinstance(self.relation.about, Gathering):
            yield from self._evaluate_all([(one, "") for one in world.known], world, cause, False)
            return
        if moves:
            self._bring_room(world.known[entity].event, world)
        pairs = [pair for other in world.known for pair in ((entity, other), (other, entity)) if other != entity]
        begins, unseen = [], self._unseen(entity, world)
        for pair in self._own(pairs, False):
            effect = self._effect(pair, world)
            if effect == BEGINS and pair not in self.holding:
                if pair not in unseen:
                    begins.append(pair)
            else:
                yield from self._evaluated(pair, effect, world, cause)
        for pair in self._admitted(begins, entity, world.limits):
            yield from self._evaluated(pair, BEGINS, world, cause)

    def _admitted(self, begins: Sequence[tuple[str, str]], entity: str, limits: Limits) -> list[tuple[str, str]]:
        """Of the pairs that a report of an entity would begin those that do: see `admission`."""
        partners = Counter(name for pair in self.holding for name in pair)
        free = [pair for pair in sorted(begins) if partners[_other(pair, entity)] < limits.relation_partners]
        left = max(0, limits.relation_partners - partners[entity] - len(free))
        rest = [pair for pair in sorted(begins) if pair not in free][:left]
        found = [*free, *rest][: max(0, limits.relation_pairs - len(self.holding))]
        if self.named:
            return found
        room = limits.relation_burst if self.room is None else self.room
        self._set_room(room - len(found[:room]), limits)
        return found[:room]

    def _unseen(self, entity: str, world: RelationView) -> set[tuple[str, str]]:
        """The pairs with an entity at which its report does not look, as more are near it: see `Looks`."""
        about, most = self.relation.about, world.limits.relation_looks
        if len(world.known) <= most or not isinstance(about, Pair) or not self.predicate:
            return set()
        if not math.isfinite(metres := self.predicate.metres):
            return set()
        found = set[tuple[str, str]]()
        own = world.known[entity].event
        for mine, other in ((about.a, about.b), (about.b, about.a)):
            if not world.is_of(mine, own, self.derived):
                continue
            near = [
                name
                for name, one in world.known.items()
                if name != entity
                and (self.derived or one.event.type != RELATION_EVENT)
                and world.is_of(other, one.event, self.derived)
                and may_be_within(own.place, one.event.place, metres)
            ]
            for name in sorted(near, key=lambda name: (crc32(name.encode()), name))[most:]:
                pair = (entity, name) if mine is about.a else (name, entity)
                found |= {pair, pair[::-1]} if self.unordered else {pair}
        return found

    def _bring_room(self, event: Event, world: RelationView) -> None:
        """A report of a side brings room for beginnings."""
        about = self.relation.about
        sides = (about.a, about.b) if isinstance(about, Pair) and self.room is not None else ()
        if self.room is not None and any(world.is_of(side, event, self.derived) for side in sides):
            self._set_room(self.room + world.limits.relation_begins, world.limits)

    def _set_room(self, room: int, limits: Limits) -> None:
        self.room = room if room < limits.relation_burst else None

    def all(self, world: RelationView, cause: Cause) -> Iterator[Transition]:
        """What holds already, and what does no longer, when something else than a report changes."""
        pairs = [(a, b) for a in world.known for b in ("", *world.known) if a != b]
        yield from self._evaluate_all(sorted({*pairs, *self.holding}), world, cause, True)

    def _evaluate_all(
        self, pairs: Iterable[tuple[str, str]], world: RelationView, cause: Cause, present: bool
    ) -> Iterator[Transition]:
        gathering, limits = isinstance(self.relation.about, Gathering), world.limits
        for pair in self._own(pairs, gathering):
            effect = self._effect(pair, world)
            if effect == BEGINS and pair not in self.holding and not gathering:
                partners = Counter(name for held in self.holding for name in held)
                full = min(partners[name] for name in pair) >= limits.relation_partners
                if full or len(self.holding) >= limits.relation_pairs:
                    continue
            yield from self._evaluated(pair, effect, world, cause, present)

    def _own(self, pairs: Iterable[tuple[str, str]], gathering: bool) -> Iterator[tuple[str, str]]:
        """Those of some pairs that the relation can be about, each once."""
        for pair in dict.fromkeys(pairs):
            if (pair[1] == "") == gathering and not (self.unordered and pair[0] > pair[1]):
                yield pair

    def _effect(self, pair: tuple[str, str], world: RelationView) -> int:
        return effect_of(
            pair in self.holding, self._are_members(pair, world), lambda staying: self._truth(pair, world, staying)
        )

    def _evaluated(
        self, pair: tuple[str, str], effect: int, world: RelationView, cause: Cause | None, present: bool = False
    ) -> Iterator[Transition]:
        before, since = self.holding.get(pair), micros_of(cause.moment if cause else None)
        now = self._now(pair, world)
        # What there is already when it is asked for lasts from then on, by the clock.
        began = now if present or since == NEVER else since
        since = min(since, now) if present and now != NEVER else since
        after, detect = self.lifecycle.evaluated(before, effect, began, since)
        state = before or after
        if detect and state:
            yield self._tell(detect, pair, state, effect, world, present)
        if after and not before:
            due = after.due
            after, told = self.lifecycle.lasted(after, now)
            for each in told:
                yield self._tell(each, pair, after, UNCHANGED, world, time=due, phase=OVERDUE)
            if world.own:
                self.clocks[pair] = self._clocks(pair, world)
        self._hold(pair, after)

    def _now(self, pair: tuple[str, str], world: RelationView) -> int:
        """How far the clock has come by which a pair lasts."""
        return world.slower(self.clocks.get(pair) or self._clocks(pair, world)) if world.own else world.now

    def _hold(self, pair: tuple[str, str], state: HoldState | None) -> None:
        if state is None:
            self.holding.pop(pair, None)
            self.clocks.pop(pair, None)
        else:
            self.holding[pair] = state

    def _are_members(self, pair: tuple[str, str], world: RelationView) -> bool:
        about = self.relation.about
        if isinstance(about, Gathering):
            return self._is_member(about.among, pair[0], world)
        return self._is_member(about.a, pair[0], world) and self._is_member(about.b, pair[1], world)

    def _is_member(self, side: Side | Crowd, entity: str, world: RelationView) -> bool:
        known = world.known.get(entity)
        if known is None or self._is_silent(known, world):
            return False
        if known.event.type == RELATION_EVENT and not (self.derived and self._is_of_others(known.event)):
            return False
        match side:
            case Named(name):
                return name == entity
            case ListMembers(client, list):
                return entity in world.lists.get(client, {}).get(list, ())
            case _:
                return world.is_of(side, known.event, self.derived or self.crowd is not None)

    def _is_of_others(self, event: Event) -> bool:
        """No relation is about what it tells itself."""
        return self.relation.id not in event.values("relation")

    def _is_silent(self, known: LatestReport, world: RelationView) -> bool:
        return self._deadline(known) < world.clock_of(known.event.entity)

    def _deadline(self, known: LatestReport) -> int:
        return deadline(known.heard, self.lifecycle.time_to_live)

    def _truth(self, pair: tuple[str, str], world: RelationView, staying: bool) -> Truth:
        about = self.relation.about
        if self.predicate and self.predicate.compares:
            return world.truths[self.relation.id, *pair][staying]
        if self.predicate:
            a, b = (world.known[entity].event for entity in pair)
            over_time, own = self._over_time(pair, world), self.predicate
            return (own.stay if staying else own.enter).truth(a, b, world.limits, world.excess, over_time)
        assert isinstance(about, Gathering), "what has no predicate has none"
        if world.known[pair[0]].event.place is None:
            return None
        return len(self._near(pair[0], world, self.relation.margin if staying else 0.0)) >= about.count - 1

    def _over_time(self, pair: tuple[str, str], world: RelationView) -> dict[str, float]:
        """The aggregates of the predicate that have a value for two entities, by how they are written."""
        found = {one.text: known_value(self.found(one, pair[SIDES.index(one.side)], world)) for one in self.aggregates}
        return {text: value for text, value in found.items() if value is not None}

    def comparisons(self, world: RelationView, entity: str | None) -> Iterator[PairEvaluation]:
        """The evaluations of pairs by a predicate that compares geometries, as far as these are not compared: of the
        pairs of an entity that reports, else of all, each as if its side a had reported.
        """
        if not self.predicate or not self.predicate.compares:
            return
        names = world.known if entity is None else (entity,)
        pairs = [(name, other) for name in names for other in world.known if name != other]
        pairs += [] if entity is None else [(other, entity) for _, other in pairs]
        unseen = set() if entity is None else self._unseen(entity, world)
        for pair in self._own(pairs, False):
            if not self._are_members(pair, world):
                continue
            a, b = (world.known[name].event for name in pair)
            first, over_time = entity in (None, pair[0]), self._over_time(pair, world)
            seen = self.predicate.seen(a, b, world.limits, world.excess, over_time)
            yield PairEvaluation(
                event=pair[0] if entity is None else entity,
                order=order_of(b if first else a, self.sequence, first),
                relation=self.relation.id,
                predicate=self.predicate,
                a=a,
                b=b,
                over_time=over_time,
                truths=seen or UNDECIDED,
                # At whom the report does not look, with that it is not compared.
                decided=seen is not None or pair in unseen,
            )

    def _near(self, member: str, world: RelationView, margin: float) -> list[tuple[float, LatestReport]]:
        """The other members of a gathering within its distance of one, by name, and how far they are."""
        about = self.relation.about
        assert isinstance(about, Gathering), "pairs have no others"
        centre = world.known[member].event.place
        found = []
        for entity in sorted(world.known):
            other = world.known[entity]
            if entity == member or not self._is_member(about.among, entity, world):
                continue
            metres = distance(centre, other.event.place) if centre and other.event.place else None
            if metres is not None and metres <= about.within + margin:
                found.append((metres, other))
        return found

    def expired(self, world: RelationView) -> Iterator[Transition]:
        """What has lasted long enough by the clock, and whose entities have been silent for too long."""
        for pair, held in list(self.holding.items()):
            silent = self._silent_after(pair, world)
            after, told = self.lifecycle.lapsed(held, silent, self._now(pair, world))
            for detect in told:
                time = held.due if detect == "dwell" or silent is None else silent
                yield self._tell(detect, pair, held, FALLS_SILENT, world, time=time, phase=EXPIRED)
            self._hold(pair, after)

    def _silent_after(self, pair: tuple[str, str], world: RelationView) -> int | None:
        """The clock through which silence let something hold, where that is over by it."""
        if not world.own or not pair[1]:
            silent = self._silence(pair, world)
            return silent if silent < world.now else None
        over = [self._deadline(world.known[entity]) for entity in pair if self._is_silent(world.known[entity], world)]
        return min(over, default=None)

    def next_due(self, world: RelationView) -> int:
        """The clock at which something is told though nothing is reported."""
        detects, mortal = self.lifecycle.detects, self.lifecycle.time_to_live != FOREVER
        held = self.holding.items()
        found = (first_told(detects, state, self._silence(pair, world) if mortal else FOREVER) for pair, state in held)
        return min(found, default=FOREVER)

    def _silence(self, pair: tuple[str, str], world: RelationView) -> int:
        """The clock through which silence lets something hold."""
        about = self.relation.about
        own = min(self._deadline(world.known[entity]) for entity in pair if entity)
        if isinstance(about, Pair):
            return own
        # Without a time nobody is silent: each counts through its deadline, also where that is past.
        early = replace(world, now=NEVER)
        others = (self._deadline(other) for _, other in self._near(pair[0], early, self.relation.margin))
        return gathered_until(own, others, about.count)

    def silent(self, pair: tuple[str, str], world: RelationView) -> Iterator[Transition]:
        """The end of something that holds, as one of it is not heard any more."""
        for told in self._evaluated(pair, FALLS_SILENT, world, None):
            yield replace(told, phase=EXPIRED)

    def removed(self, world: RelationView) -> list[Transition]:
        """The ends of everything that holds."""
        return [one for pair in list(self.holding) for one in self._evaluated(pair, REMOVED, world, None)]

    def _tell(
        self,
        detect: Detection,
        pair: tuple[str, str],
        state: HoldState,
        effect: int,
        world: RelationView,
        present: bool = False,
        time: int = NEVER,
        phase: int = CAUSED,
    ) -> Transition:
        since, a = moment_of(state.started_at), world.known[pair[0]].subject
        head = (phase, self.sequence, self.relation.id, detect, a)
        reason = REASONS[effect] if detect == "exit" else None
        if isinstance(self.relation.about, Pair):
            b = world.known[pair[1]].subject
            metres = distance(a.place, b.place) if a.place and b.place else None
            return Transition(*head, (b,), metres, since, reason, present, time=moment_of(time))
        near = self._near(pair[0], world, 0.0 if detect == "enter" else self.relation.margin)
        farthest = max((metres for metres, _ in near), default=None)
        around = tuple(one.subject for _, one in near[:MOST_NAMED])
        return Transition(*head, around, farthest, since, reason, present, len(near) + 1, moment_of(time))
