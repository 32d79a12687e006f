"""Relations evaluated plainly: every report is held against everybody (SEMANTICS §7).

Truth is in the order of the journal. Of each entity its newest report counts; one whose own time is older than that of
the newest known came late and changes nothing. What is UNKNOWN changes nothing either. The time of the stream is the
greatest time of acceptance so far: what is to last, or to lapse, does so when an event brings that time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from nearcast.filters.evaluate import NO_CONTEXT, truth
from nearcast.geo.distance import distance
from nearcast.model.changes import Change, ClientChange, ClientRemoval
from nearcast.model.event import Event
from nearcast.model.relation import (
    DEPTH,
    RELATION_EVENT,
    Buddies,
    Crowd,
    Detection,
    Gathering,
    Named,
    Pair,
    Relation,
    Side,
)
from nearcast.relations.predicate import RelationPredicate, is_symmetric, widened
from nearcast.relations.sides import sees_derived
from nearcast.relations.transitions import CAUSED, LAPSED, Reason, Subject, Told, events_of
from nearcast.state.derived import Cause

Lists = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Of each client its lists of entities."""


@dataclass(frozen=True, slots=True)
class NewestReport:
    """The newest report of an entity, and the stream's time when it came."""

    event: Event
    heard: datetime | None

    @property
    def subject(self) -> Subject:
        """Whom, and where."""
        return Subject(self.event.entity, self.event.place)


@dataclass(slots=True)
class HeldRelation:
    """Something that holds: since when, and the stream's time at which it has lasted; None: told, or never."""

    since: datetime | None
    due: datetime | None
    dwelt: bool = False


class Plain:
    """Relations one event at a time: what the reference does, and what the stage does with relations it has no columns
    for. `known` are the newest reports, by entity.
    """

    def __init__(self) -> None:
        self.now: datetime | None = None
        self.known: dict[str, NewestReport] = {}
        self.lists: dict[str, Mapping[str, tuple[str, ...]]] = {}
        self._states: dict[str, _State] = {}

    def __len__(self) -> int:
        return len(self._states)

    def begin(self, events: Iterable[Event]) -> None:
        """Takes what is known of all entities when the first relation is defined: the newest event of each."""
        self.known = {event.entity: NewestReport(event, event.accepted or event.time) for event in events}
        self.now = max((one.heard for one in self.known.values() if one.heard), default=None)

    def define(self, relation: Relation, sequence: int, cause: Cause) -> list[Told]:
        """Adds a relation; what it tells of the present."""
        self._states[relation.id] = state = _State(relation, sequence)
        return list(state.all(self._world(), cause))

    def ids(self) -> list[str]:
        """The relations that there are."""
        return list(self._states)

    def relation(self, id: str) -> Relation | None:
        """The relation of this id."""
        return self._states[id].relation if id in self._states else None

    def end(self, id: str) -> list[Told]:
        """Removes a relation; the ends of what held in it."""
        state = self._states.pop(id, None)
        found = [] if state is None else state.removed(self._world())
        if not any(one.derived for one in self._states.values()):
            # What relations told is known only while some relation asks for it.
            self.known = {name: one for name, one in self.known.items() if one.event.type != RELATION_EVENT}
        return found

    def note_lists(self, change: Change) -> None:
        """Takes a client's lists."""
        if isinstance(change, ClientChange) and change.lists is not None:
            self.lists[change.client] = {**self.lists.get(change.client, {}), **change.lists}
        elif isinstance(change, ClientRemoval):
            self.lists.pop(change.client, None)

    def relisted(self, client: str, cause: Cause) -> list[Told]:
        """What the new lists of a client change."""
        world = self._world()
        crowds = [one for one in self._states.values() if isinstance(one.crowd, Buddies) and one.crowd.client == client]
        return [told for state in crowds for told in state.all(world, cause)]

    def _world(self) -> ReferenceWorld:
        return ReferenceWorld(self.known, self.now, self.lists)

    def report(self, event: Event) -> list[Told]:
        """What a report changes, and the time that it brings."""
        stamp = event.accepted or event.time
        self.now = max((one for one in (self.now, stamp) if one), default=None)
        cause = Cause(event.position, event.time, event.accepted)
        found = [one for state in self._states.values() for one in state.lapsed(self._world())]
        if self._take(event):
            for state in self._states.values():
                found += state.report(event.entity, self._world(), cause)
        return found

    def _take(self, event: Event) -> bool:
        """Whether a report moves its entity: not if it is older than the newest one known."""
        old = self.known.get(event.entity)
        if old is not None and _is_older(event, old.event):
            return False
        self.known[event.entity] = NewestReport(event, self.now)
        return True

    def told(self, found: Sequence[Told], cause: Cause) -> list[Event]:
        """The events that tell it, and those that these cause, in the order of their parts."""
        told = events_of(found, cause, 1)
        depths = [1] * len(told)
        curious = [state for state in self._states.values() if state.derived]
        for event in told:
            depth = depths[event.part - 1]
            if curious and depth < DEPTH and self._take(event):
                more = [one for state in curious for one in state.report(event.entity, self._world(), cause)]
                told += events_of(more, cause, len(told) + 1)
                depths += [depth + 1] * len(more)
        return told


def _is_older(event: Event, other: Event) -> bool:
    own, known = event.time or event.accepted, other.time or other.accepted
    return own is not None and known is not None and own < known


@dataclass(frozen=True, slots=True)
class ReferenceWorld:
    """What is known at one moment."""

    known: Mapping[str, NewestReport]
    now: datetime | None
    lists: Lists


@dataclass(slots=True)
class _State:
    """One relation, and what holds in it; of a gathering the keys are (member, '')."""

    relation: Relation
    sequence: int
    holding: dict[tuple[str, str], HeldRelation] = field(default_factory=dict)
    unordered: bool = field(init=False)
    derived: bool = field(init=False)
    predicates: dict[float, RelationPredicate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        about = self.relation.about
        self.unordered = isinstance(about, Pair) and about.a == about.b and is_symmetric(about.when)
        self.derived = sees_derived(self.relation)

    @property
    def crowd(self) -> Crowd | None:
        """The crowd of a gathering."""
        about = self.relation.about
        return about.among if isinstance(about, Gathering) else None

    def report(self, entity: str, world: ReferenceWorld, cause: Cause) -> Iterator[Told]:
        """What an entity's new report changes."""
        if isinstance(self.relation.about, Gathering):
            yield from self._settle_all([(one, "") for one in world.known], world, cause, False)
            return
        pairs = [pair for other in world.known for pair in ((entity, other), (other, entity)) if other != entity]
        yield from self._settle_all(pairs, world, cause, False)

    def all(self, world: ReferenceWorld, cause: Cause) -> Iterator[Told]:
        """What holds already, and what does no longer, when something else than a report changes."""
        pairs = [(a, b) for a in world.known for b in ("", *world.known) if a != b]
        yield from self._settle_all([*pairs, *self.holding], world, cause, True)

    def _settle_all(
        self, pairs: Iterable[tuple[str, str]], world: ReferenceWorld, cause: Cause, present: bool
    ) -> Iterator[Told]:
        gathering = isinstance(self.relation.about, Gathering)
        for pair in dict.fromkeys(pairs):
            if (pair[1] == "") == gathering and not (self.unordered and pair[0] > pair[1]):
                yield from self._settle(pair, world, cause, present)

    def _settle(self, pair: tuple[str, str], world: ReferenceWorld, cause: Cause, present: bool) -> Iterator[Told]:
        held = self.holding.get(pair)
        if held is None:
            if self._are_members(pair, world) and self._truth(pair, world, 0.0) is True:
                yield from self._entered(pair, world, cause, present)
        elif not self._are_members(pair, world):
            yield from self._exited(pair, world, CAUSED, "left")
        elif self._truth(pair, world, self.relation.margin) is False:
            yield from self._exited(pair, world, CAUSED, None)

    def _are_members(self, pair: tuple[str, str], world: ReferenceWorld) -> bool:
        about = self.relation.about
        if isinstance(about, Gathering):
            return self._is_member(about.among, pair[0], world)
        return self._is_member(about.a, pair[0], world) and self._is_member(about.b, pair[1], world)

    def _is_member(self, side: Side | Crowd, entity: str, world: ReferenceWorld) -> bool:
        known = world.known.get(entity)
        if known is None or self._is_silent(known, world):
            return False
        if known.event.type == RELATION_EVENT and not (self.derived and self._is_of_others(known.event)):
            return False
        match side:
            case Named(name):
                return name == entity
            case Buddies(client, list):
                return entity in world.lists.get(client, {}).get(list, ())
            case _:
                return truth(side.filter, known.event, NO_CONTEXT) is True

    def _is_of_others(self, event: Event) -> bool:
        """No relation is about what it tells itself."""
        return self.relation.id not in event.values("relation")

    def _is_silent(self, known: NewestReport, world: ReferenceWorld) -> bool:
        deadline = self._deadline(known)
        return deadline is not None and world.now is not None and deadline < world.now

    def _deadline(self, known: NewestReport) -> datetime | None:
        if self.relation.time_to_live is None or known.heard is None:
            return None
        return known.heard + timedelta(seconds=self.relation.time_to_live)

    def _truth(self, pair: tuple[str, str], world: ReferenceWorld, margin: float) -> bool | None:
        about = self.relation.about
        if isinstance(about, Pair):
            a, b = (world.known[entity].event for entity in pair)
            return self._predicate(margin).truth(a, b)
        if world.known[pair[0]].event.place is None:
            return None
        return len(self._near(pair[0], world, margin)) >= about.count - 1

    def _predicate(self, margin: float) -> RelationPredicate:
        """The predicate for entering, or for staying."""
        about = self.relation.about
        if margin not in self.predicates and isinstance(about, Pair):
            self.predicates[margin] = RelationPredicate(widened(about.when, margin))
        return self.predicates[margin]

    def _near(self, member: str, world: ReferenceWorld, margin: float) -> list[tuple[float, NewestReport]]:
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

    def _entered(self, pair: tuple[str, str], world: ReferenceWorld, cause: Cause, present: bool) -> Iterator[Told]:
        lasting = self.relation.lasting
        due = None if lasting is None or world.now is None else world.now + timedelta(seconds=lasting)
        self.holding[pair] = HeldRelation(cause.moment, due)
        if "enter" in self.relation.detect:
            yield self._tell("enter", pair, world, CAUSED, None, present)

    def _exited(
        self, pair: tuple[str, str], world: ReferenceWorld, phase: int, reason: Reason | None
    ) -> Iterator[Told]:
        if self._tells_exit(self.holding[pair]):
            yield self._tell("exit", pair, world, phase, reason)
        del self.holding[pair]

    def _tells_exit(self, held: HeldRelation) -> bool:
        """Where it is told that something lasted, but not that it began, its end is told only if it did last."""
        detect = self.relation.detect
        return "exit" in detect and (held.dwelt or "enter" in detect or "dwell" not in detect)

    def lapsed(self, world: ReferenceWorld) -> Iterator[Told]:
        """What has lasted long enough by the stream's time, and whose entities have been silent for too long."""
        for pair, held in list(self.holding.items()):
            ends = self._silence(pair, world)
            until = min((one for one in (ends, world.now) if one is not None), default=None)
            if held.due is not None and until is not None and held.due <= until:
                held.due, held.dwelt = None, True
                yield self._tell("dwell", pair, world, LAPSED)
            if ends is not None and world.now is not None and ends < world.now:
                yield from self._exited(pair, world, LAPSED, "silent")

    def _silence(self, pair: tuple[str, str], world: ReferenceWorld) -> datetime | None:
        """The stream's time through which silence lets something hold; None: for ever."""
        about = self.relation.about
        own = [self._deadline(world.known[entity]) for entity in pair if entity]
        if isinstance(about, Gathering):
            # As members fall silent the gathering shrinks, and fails with the first that is one too many. Without a
            # time nobody is silent: each counts through its deadline, also where that is past.
            early = ReferenceWorld(world.known, None, world.lists)
            others = [self._deadline(other) for _, other in self._near(pair[0], early, self.relation.margin)]
            others.sort(key=lambda one: (one is None, one or datetime.min), reverse=True)
            own += others[: about.count - 1][-1:]
        return min((one for one in own if one is not None), default=None)

    def removed(self, world: ReferenceWorld) -> list[Told]:
        """The ends of everything that holds."""
        return [one for pair in list(self.holding) for one in self._exited(pair, world, CAUSED, "removed")]

    def _tell(
        self,
        detect: Detection,
        pair: tuple[str, str],
        world: ReferenceWorld,
        phase: int,
        reason: Reason | None = None,
        present: bool = False,
    ) -> Told:
        since, a = self.holding[pair].since, world.known[pair[0]].subject
        head = (phase, self.sequence, self.relation.id, detect, a)
        if isinstance(self.relation.about, Pair):
            b = world.known[pair[1]].subject
            metres = distance(a.place, b.place) if a.place and b.place else None
            return Told(*head, (b,), metres, since, reason, present)
        near = self._near(pair[0], world, 0.0 if detect == "enter" else self.relation.margin)
        farthest = max((metres for metres, _ in near), default=None)
        return Told(*head, tuple(one.subject for _, one in near), farthest, since, reason, present, len(near) + 1)
