"""Where events enter: which of them need not go into the journal, so that every relation notifies as if all did.

An event is held back if nobody but guarded relations may want it, and the guards of all these permit it; the newest one
of each subject is kept. Of each relation the entry node has the *guards in force*: two sets of reports, and as long as
each side's newest report is in its own, the relation is as the pipeline knows it. So:

- What the guards in force permit changes nothing, whether it is held back or not.
- What they do not permit is published, behind what is kept of the other side: then the relation is decided from both
  sides' newest reports. These guards are gone; until there are new ones, both sides publish.
- New guards come from how the pipeline says that the relation stands: as of two published reports. They are taken only
  if all that both sides published here from then on, and what is kept of them, lies in them.

However late word of the pipeline is, a relation begins and ends with the same reports, at the same places. In doubt an
event is published. This needs one entry node for all the subjects of a relation. Late and repeated reports are told by
the event's own time; one that has none is never held back.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from nearcast.model.event import Event
from nearcast.model.relation import Relation
from nearcast.state.registry import Registry
from nearcast.suppression.guarded import Guarded, GuardedState, ProximityRelation, Sides, guarded, proximity_relation
from nearcast.suppression.interest_index import InterestIndex, may_meet
from nearcast.suppression.leases import LeasedGuard
from nearcast.suppression.proximity_rings import ProximityRings

Identity = tuple[str, str]


RECENT = 64
"""Published events that are known of each subject: how a relation stands may be told as of one of them."""

ONE_TIME = 1_000
"""Events of one time that are known of each subject: one that comes again later than after so many counts as new."""


@dataclass(slots=True)
class _PublishedEvent:
    """An event, what was kept until it took its place, and where it is in the journal, once that is known."""

    event: Event
    overtaken: Event | None
    position: int | None = None


@dataclass(slots=True)
class _EntrySubject:
    """What is known of a subject: the newest events published, ascending; the newest one, if it was held back."""

    recent: deque[_PublishedEvent] = field(default_factory=lambda: deque(maxlen=RECENT))
    kept: Event | None = None
    same_time: dict[Identity, bool] = field(default_factory=dict)
    """The events of the newest time, and which of them were held back: one that comes again is no newer one."""

    @property
    def published(self) -> Event | None:
        """The newest event that was published."""
        return self.recent[-1].event if self.recent else None

    def since(self, position: int) -> list[Event] | None:
        """The published event of a position, all published after it, and what is kept; None if it is not known."""
        found = [one.event for one in reversed(self.recent)]
        for number, one in enumerate(reversed(self.recent), 1):
            if one.position == position:
                # Newest first, and turned round: from the one at that position on to the newest.
                return found[number - 1 :: -1] + ([self.kept] if self.kept else [])
        return None

    def publish(self, event: Event) -> Event:
        """Takes an event as published: nothing older is kept."""
        self.recent.append(_PublishedEvent(event, None if self.kept is event else self.kept))
        self.kept = None
        return event

    @property
    def newest(self) -> Event | None:
        """The newest event that counts."""
        return self.kept or self.published


@dataclass(slots=True)
class _GuardedPair:
    """A guarded relation, where its definition is, how it stands last as far as that was heard, the guards in force."""

    relation: Relation
    guarded: Guarded
    since: int
    standing: GuardedState | None = None
    guards: Sides | None = None


class IngestFilter:
    """An entry node. `admit` every event in the order in which they enter; what it gives goes into the journal."""

    def __init__(self) -> None:
        self._subjects: dict[str, _EntrySubject] = defaultdict(_EntrySubject)
        self._pairs: dict[str, _GuardedPair] = {}
        self._of: dict[str, list[_GuardedPair]] = {}
        self._rings: dict[ProximityRelation, ProximityRings] = {}
        self._interest_index = InterestIndex(Registry())
        self._changed: set[str] = set()
        self.leased: set[str] = set()
        """The subjects whose guards are lent: they stay in force until the lease has come back."""
        self.held = 0
        """How many events were held back."""

    @property
    def kept(self) -> int:
        """How many events are kept: the newest of each subject, where that was held back."""
        return sum(subject.kept is not None for subject in self._subjects.values())

    def define(self, registry: Registry, position: int) -> None:
        """Takes the definitions as of a position. Before one changes, what is kept must be published: `release`."""
        self._interest_index.follow_definitions(registry)
        before, self._pairs, self._of = self._pairs, {}, {}
        for relation in registry.relations.values():
            pair = before.get(relation.id)
            if pair is None or pair.relation != relation:
                found = guarded(relation)
                if found is None:
                    continue
                pair = _GuardedPair(relation, found, position)
            self._pairs[relation.id] = pair
            for entity in (pair.guarded.a, pair.guarded.b):
                self._of.setdefault(entity, []).append(pair)
        proximity_relations = map(proximity_relation, registry.relations.values())
        self._rings = {one: self._rings.get(one) or ProximityRings(one) for one in proximity_relations if one}
        if not self._rings:
            named = {entity: subject for entity, subject in self._subjects.items() if entity in self._of}
            self._subjects = defaultdict(_EntrySubject, named)

    def admit(self, event: Event, holding: bool = True) -> list[Event]:
        """Takes an event; what is to be published now, in this order. Not the event itself: it is held back.

        Without `holding` it is published in any case.
        """
        return self._noted(self._taken(event, holding))

    def _noted(self, published: list[Event]) -> list[Event]:
        """Says to whom it matters that events are on their way."""
        for proximity_rings in self._rings.values():
            for event in published:
                subject = self._subjects.get(event.entity)
                proximity_rings.publish(proximity_rings.spot(event), subject is not None and subject.kept is not None)
        return published

    def _taken(self, event: Event, holding: bool) -> list[Event]:
        pairs = self._of.get(event.entity, ())
        around = [(proximity_rings, proximity_rings.spot(event)) for proximity_rings in self._rings.values()]
        if not pairs and not any(proximity_rings.concerns(spot) for proximity_rings, spot in around):
            return [event]
        subject = self._subjects[event.entity]
        identity, key, newest = (event.source, event.id), _key(event), subject.newest
        if newest is not None and key is not None and key == _key(newest) and identity in subject.same_time:
            if not subject.same_time[identity]:
                return [event]
            # Who repeats it was perhaps not answered, as it did not become durable.
            self._changed.add(event.entity)
            return []
        if newest is not None and (key is None or (_key(newest) or key) > key):
            # It is late: so that nobody takes it for the newest, that one goes first.
            return [*self._released(subject), event]
        outside = [pair for pair in pairs if not self._permits(pair, event)]
        left = [(proximity_rings, spot) for proximity_rings, spot in around if not proximity_rings.permits(spot)]
        hold = holding and not outside and not left and event.time is not None and subject.published is not None
        hold = hold and not self._wants(subject, event)
        if newest is None or key != _key(newest):
            subject.same_time = {}
        subject.same_time[identity] = hold
        # A clock that stands still gives one time to whatever comes.
        if len(subject.same_time) > ONE_TIME:
            del subject.same_time[next(iter(subject.same_time))]
        if hold:
            self._keep(subject, event)
            self.held += 1
            return []
        published = [one for pair in outside for one in self._opened(pair, event.entity)]
        for proximity_rings, spot in left:
            published += [
                one for name in proximity_rings.threatened(spot) for one in self._released(self._subjects[name])
            ]
        return [*published, self._publish(subject, event)]

    def _keep(self, subject: _EntrySubject, event: Event) -> None:
        subject.kept = event
        self._changed.add(event.entity)

    def _publish(self, subject: _EntrySubject, event: Event) -> Event:
        if subject.kept is not None:
            self._changed.add(event.entity)
        return subject.publish(event)

    def left_by(self, event: Event) -> set[str]:
        """The other sides of the relations whose guards do not permit an event: what is kept of them goes before it."""
        pairs = [pair for pair in self._of.get(event.entity, ()) if not self._permits(pair, event)]
        return {pair.guarded.other(event.entity) for pair in pairs}

    def lease_for(
        self, entity: str, types: Iterable[str]
    ) -> tuple[frozenset[str], datetime, tuple[LeasedGuard, ...]] | None:
        """What may be lent to the publisher of a subject: types that nobody else wants, the time of the newest event,
        all guards; None while any of that is missing.
        """
        pairs, subject = self._of.get(entity), self._subjects.get(entity)
        if pairs is None or subject is None or subject.published is None or subject.newest is None:
            return None
        for pair in pairs:
            self._renew(pair)
        after = _key(subject.newest)
        free = frozenset(
            one
            for one in types
            if not self._interest_index.wants_of(entity, one)
            and not any(may_meet(met, entity, one) for met in self._rings)
        )
        if not free or after is None or self._interest_index.wants(subject.published):
            return None
        # These rings shrink with what others publish: they are looked at here alone.
        if any(
            proximity_rings.concerns(proximity_rings.spot(subject.published))
            for proximity_rings in self._rings.values()
        ):
            return None
        guards = [
            LeasedGuard(pair.guarded.measure.reads(side), pair.guards[side == "b"])
            for pair in pairs
            if pair.guards is not None
            for side in (pair.guarded.side(entity),)
        ]
        return (free, after, tuple(guards)) if len(guards) == len(pairs) else None

    def _wants(self, subject: _EntrySubject, event: Event) -> bool:
        # Also where it takes the place of an event that is wanted: it ends what that one said.
        before = subject.published
        return self._interest_index.wants(event) or (before is not None and self._interest_index.wants(before))

    def _permits(self, pair: _GuardedPair, event: Event) -> bool:
        self._renew(pair)
        return pair.guards is not None and pair.guarded.permits(pair.guards, event)

    def _renew(self, pair: _GuardedPair) -> None:
        """Takes the guards that follow from how a relation stands, if they are sure to hold."""
        standing = pair.standing
        lent = pair.guards is not None and not self.leased.isdisjoint((pair.guarded.a, pair.guarded.b))
        if standing is None or lent:
            return
        a, b = self._subjects[pair.guarded.a], self._subjects[pair.guarded.b]
        of_a, of_b = a.since(standing.a_position), b.since(standing.b_position)
        if of_a is None or of_b is None:
            return
        pair.standing = None
        found = pair.guarded.guards(of_a[0], of_b[0], standing.holds)
        if found is not None and all(pair.guarded.permits(found, one) for one in (*of_a, *of_b)):
            pair.guards = found

    def _opened(self, pair: _GuardedPair, entity: str) -> list[Event]:
        """Ends a pair's guards in force, as one side leaves its own: what is kept of the other has to be published."""
        pair.guards = None
        return self._released(self._subjects[pair.guarded.other(entity)])

    def _released(self, subject: _EntrySubject) -> list[Event]:
        """What is kept of a subject, to be published."""
        return [] if subject.kept is None else [self._publish(subject, subject.kept)]

    def release(self) -> list[Event]:
        """All that is kept, to be published: before definitions change, or the node ends."""
        return self._noted([one for subject in self._subjects.values() for one in self._released(subject)])

    @property
    def unready(self) -> list[ProximityRings]:
        """Those that have to `load` the newest event of everybody, as of when nothing is on its way from before."""
        return [proximity_rings for proximity_rings in self._rings.values() if not proximity_rings.ready]

    def written(self, events: Iterable[Event], positions: Iterable[int]) -> None:
        """Says where in the journal published events are."""
        for event, position in zip(events, positions, strict=True):
            for proximity_rings in self._rings.values():
                proximity_rings.settle(event, position)
            subject = self._subjects.get(event.entity)
            for one in subject.recent if subject is not None else ():
                if one.event is event:
                    one.position = position

    def lost(self, events: Iterable[Event]) -> None:
        """Says that the journal did not take events which were to be published: what was kept is kept again.

        The others have not been taken, and may come again.
        """
        for event in events:
            subject = self._subjects.get(event.entity)
            if subject is None or subject.published is not event:
                continue
            kept = subject.recent.pop().overtaken
            if subject.same_time.get((event.source, event.id)):
                kept = event
            else:
                subject.same_time.pop((event.source, event.id), None)
            if kept is not None:
                self._keep(subject, kept)

    def changes(self) -> dict[str, Event | None]:
        """Of the subjects of which something else is kept since this was asked last, what is; None for nothing.

        To be made durable together with what was given to be published since then, before anybody is answered.
        """
        found = {entity: self._subjects[entity].kept for entity in self._changed if entity in self._subjects}
        found |= dict.fromkeys(self._changed - found.keys())
        self._changed = set()
        return found

    def unkept(self, entities: Iterable[str]) -> None:
        """Says that what is kept of some subjects did not become durable: it is among the next changes again."""
        self._changed.update(entities)

    def learn(self, guarded_states: Iterable[GuardedState]) -> None:
        """Hears how relations stand."""
        for standing in guarded_states:
            pair = self._pairs.get(standing.relation)
            if pair is not None and standing.position >= pair.since:
                pair.standing = standing


def _key(event: Event) -> datetime | None:
    """By which reports of one subject are newer than others."""
    return event.moment
