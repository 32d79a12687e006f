"""One relation evaluated plainly, and what is known of everybody at one moment (semantics §7).

A report is held against all that may be of the other side; of each pair is kept what holds.
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
from nearcast.model.event import Event
from nearcast.model.limits import Limits
from nearcast.model.relation import (
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
from nearcast.relations.geometries.pair_comparisons import UNDECIDED, PairEvaluation, order_of
from nearcast.relations.predicate import (
    MarginPredicate,
    SideAggregate,
    Truths,
    is_symmetric,
    side_aggregates,
)
from nearcast.relations.reports import micros_of, moment_of
from nearcast.relations.sides import SideMembers, sees_derived
from nearcast.relations.transition_events import (
    CAUSED,
    EXPIRED,
    OVERDUE,
    Participant,
    Transition,
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
from nearcast.state.windows import AggregateFinding, IndexedReadingWindows, ReadingWindows

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
    gone: Collection[str] = ()
    """Entities that are being forgotten: they are around nobody any more."""

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


@dataclass(slots=True)
class PlainRelation:
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

    def copy(self) -> PlainRelation:
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
        free = [pair for pair in sorted(begins) if partners[pair[pair[0] == entity]] < limits.relation_partners]
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
            if entity == member or entity in world.gone or not self._is_member(about.among, entity, world):
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

    def forgotten(self, world: RelationView) -> Iterator[Transition]:
        """The ends of what holds with those who are gone, and of gatherings for which too few are left."""
        about, before = self.relation.about, replace(world, gone=())
        for pair in list(self.holding):
            ends = not set(world.gone).isdisjoint(pair)
            if isinstance(about, Gathering) and not ends:
                near, left = (len(self._near(pair[0], one, self.relation.margin)) for one in (before, world))
                ends = left < min(near, about.count - 1)
            if ends:
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
