"""Where events enter: which of them need not go into the journal, so that every relation is told as if all did.

An event is held back if nobody but guarded relations may want it, and the guards of all these permit it; the newest one
of each subject is kept. Of each relation the entry node has the *guards in force*: two sets of reports, and as long as
each side's newest report is in its own, the relation is as the pipeline knows it. So:

- What the guards in force permit changes nothing, whether it is held back or not.
- What they do not permit is published, behind what is kept of the other side: then the relation is decided from both
  sides' newest reports. These guards are gone; until there are new ones, both sides publish.
- New guards come from how the pipeline says that the relation stands: as of two published reports. They are taken only
  if these two are the newest ones published here, and if the newest reports of both sides, kept or not, lie in them.

However late word of the pipeline is, a relation begins and ends with the same reports, at the same places. In doubt an
event is published. This needs one entry node for all the subjects of a relation. Late and repeated reports are told by
the event's own time; one that has none is never held back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from nearcast.decision.registry import Registry
from nearcast.decision.relate.guarded import Guarded, Sides, guarded
from nearcast.decision.relate.standing import Standing
from nearcast.decision.wanted import Interest
from nearcast.model.event import Event
from nearcast.model.relation import Relation

Identity = tuple[str, str]


@dataclass(slots=True)
class _Subject:
    """What is known of a subject: the newest event published, where in the journal; the newest one held back since."""

    published: Event | None = None
    position: int | None = None
    kept: Event | None = None
    same_time: dict[Identity, bool] = field(default_factory=dict)
    """The events of the newest time, and which of them were held back: one that comes again is no newer one."""

    @property
    def newest(self) -> Event | None:
        """The newest event that counts."""
        return self.kept or self.published


@dataclass(slots=True)
class _Pair:
    """A guarded relation, where its definition is, how it stands last as far as that was heard, the guards in force."""

    relation: Relation
    guarded: Guarded
    since: int
    standing: Standing | None = None
    guards: Sides | None = None


class Entry:
    """An entry node. `take` every event in the order in which they enter; what it gives goes into the journal."""

    def __init__(self) -> None:
        self._subjects: dict[str, _Subject] = defaultdict(_Subject)
        self._pairs: dict[str, _Pair] = {}
        self._of: dict[str, list[_Pair]] = {}
        self._interest = Interest(Registry())
        self.held = 0
        """How many events were held back."""

    @property
    def kept(self) -> int:
        """How many events are kept: the newest of each subject, where that was held back."""
        return sum(subject.kept is not None for subject in self._subjects.values())

    def define(self, registry: Registry, position: int) -> None:
        """Takes the definitions as of a position. Before one changes, what is kept must be published: `release`."""
        self._interest = Interest(registry)
        before, self._pairs, self._of = self._pairs, {}, {}
        for relation in registry.relations.values():
            known = before.get(relation.id)
            found = guarded(relation)
            if found is None:
                continue
            same = known is not None and known.relation == relation
            pair = known if known is not None and same else _Pair(relation, found, position)
            self._pairs[relation.id] = pair
            for entity in (found.a, found.b):
                self._of.setdefault(entity, []).append(pair)
        self._subjects = defaultdict(
            _Subject, {entity: subject for entity, subject in self._subjects.items() if entity in self._of}
        )

    def take(self, event: Event, holding: bool = True) -> list[Event]:
        """Takes an event; what is to be published now, in this order. Not the event itself: it is held back.

        Without `holding` it is published in any case.
        """
        pairs = self._of.get(event.entity)
        if pairs is None:
            return [event]
        subject = self._subjects[event.entity]
        identity, key, newest = (event.source, event.id), _key(event), subject.newest
        if newest is not None and key is not None and key == _key(newest) and identity in subject.same_time:
            return [] if subject.same_time[identity] else [event]
        if newest is not None and (key is None or (_key(newest) or key) > key):
            # It is late: so that nobody takes it for the newest, that one goes first.
            return [*self._released(subject), event]
        outside = [pair for pair in pairs if not self._permits(pair, event)]
        hold = holding and not outside and event.time is not None and subject.published is not None
        hold = hold and not self._wants(subject, event)
        if newest is None or key != _key(newest):
            subject.same_time = {}
        subject.same_time[identity] = hold
        if hold:
            subject.kept = event
            self.held += 1
            return []
        published = [one for pair in outside for one in self._opened(pair, event.entity)]
        subject.published, subject.position, subject.kept = event, None, None
        return [*published, event]

    def _wants(self, subject: _Subject, event: Event) -> bool:
        # Also where it takes the place of an event that is wanted: it ends what that one said.
        before = subject.published
        return self._interest.wants(event) or (before is not None and self._interest.wants(before))

    def _permits(self, pair: _Pair, event: Event) -> bool:
        self._renew(pair)
        return pair.guards is not None and pair.guarded.permits(pair.guards, event)

    def _renew(self, pair: _Pair) -> None:
        """Takes the guards that follow from how a relation stands, if they are sure to hold."""
        standing = pair.standing
        if standing is None:
            return
        a, b = self._subjects[pair.guarded.a], self._subjects[pair.guarded.b]
        if a.published is None or b.published is None or a.newest is None or b.newest is None:
            return
        if (a.position, b.position) != (standing.a_position, standing.b_position):
            return
        pair.standing = None
        found = pair.guarded.guards(a.published, b.published, standing.holds)
        if found is not None and all(pair.guarded.permits(found, one) for one in (a.newest, b.newest)):
            pair.guards = found

    def _opened(self, pair: _Pair, entity: str) -> list[Event]:
        """Ends a pair's guards in force, as one side leaves its own: what is kept of the other has to be published."""
        pair.guards = None
        other = pair.guarded.b if entity == pair.guarded.a else pair.guarded.a
        return self._released(self._subjects[other])

    @staticmethod
    def _released(subject: _Subject) -> list[Event]:
        """What is kept of a subject, to be published."""
        if subject.kept is None:
            return []
        subject.published, subject.position, subject.kept = subject.kept, None, None
        return [subject.published]

    def release(self) -> list[Event]:
        """All that is kept, to be published: before definitions change, or the node ends."""
        return [one for subject in self._subjects.values() for one in self._released(subject)]

    def written(self, events: Iterable[Event], positions: Iterable[int]) -> None:
        """Says where in the journal published events are."""
        for event, position in zip(events, positions, strict=True):
            subject = self._subjects.get(event.entity)
            if subject is not None and subject.published is event:
                subject.position = position

    def lost(self, events: Iterable[Event]) -> None:
        """Says that the journal did not take events which were to be published: what was kept is kept again."""
        for event in events:
            subject = self._subjects.get(event.entity)
            if subject is not None and subject.published is event and subject.same_time.get((event.source, event.id)):
                subject.kept = event

    def learn(self, standings: Iterable[Standing]) -> None:
        """Hears how relations stand."""
        for standing in standings:
            pair = self._pairs.get(standing.relation)
            if pair is not None and standing.position >= pair.since:
                pair.standing = standing


def _key(event: Event) -> datetime | None:
    """By which reports of one subject are newer than others."""
    return event.time or event.accepted
