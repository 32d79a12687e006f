"""Rings of a relation between any entities of two kinds: a subject is silent while nobody around it can be affected.

The entry node knows the newest published event of everybody, so it knows who is within the relation's distance, who is
beyond it, and how far every pair may move before that can change, its *room*: all that is published is evaluated. A
subject's ring is as large as the rooms with all partners around it permit beside their rings, so that

- the rings of any pair together are no larger than its room, and what is kept of a subject lies in its ring;
- nobody farther away than `_far` matters, for no ring is larger than `_largest`.

What a subject publishes is somewhere else than its ring is around. Before it, of all whom it may meet or leave there
what is kept is published; their rings shrink to what room is left. While an event is on its way into the journal, it
counts as well as the one before it: perhaps it is late, or known already, or not taken.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from nearcast.filters.evaluate import NO_CONTEXT, truth
from nearcast.model.event import Event
from nearcast.model.filter import atoms
from nearcast.model.relation import Named, Side
from nearcast.suppression.guarded import ProximityRelation
from nearcast.suppression.subject_spots import IndexedSpot, SubjectSpots, bounds, moved, spot

LEAST = 10.0
"""Metres of the largest ring where a relation has no distance to take it from."""


@dataclass(slots=True)
class _RingSubject:
    """A subject: what it published last and is in the journal, there at `position`; what is on its way there, in order.

    `radius`: its ring around `settled`, None where it has none, and how far what is kept of it has `moved` from there.
    `frozen`: with whom it may still be together though one of both is nowhere now; None: with anybody.
    """

    settled: IndexedSpot | None = None
    position: int = 0
    under_way: list[IndexedSpot] = field(default_factory=list)
    radius: float | None = None
    moved: float = 0.0
    frozen: set[str] | None = field(default_factory=set)

    @property
    def spots(self) -> list[IndexedSpot]:
        """Where it may be, for the pipeline."""
        return [*([self.settled] if self.settled else []), *self.under_way]


class ProximityRings:
    """The subjects of one relation. Nothing is permitted until `load` has told the newest event of everybody."""

    def __init__(self, proximity_relation: ProximityRelation) -> None:
        self.ready = False
        self._meeting = proximity_relation
        self._is_a, self._is_b = _member(proximity_relation.a), _member(proximity_relation.b)
        self._near, self._far = proximity_relation.metres, proximity_relation.metres + proximity_relation.margin
        self._largest = max(proximity_relation.metres, LEAST)
        self._spots = SubjectSpots(max(self._far, 0.0) + 2 * self._largest)
        self._subjects: dict[str, _RingSubject] = {}
        self._doubtful: set[str] = set()

    @property
    def node(self) -> str | None:
        """Where the events enter that count; None: anywhere."""
        return self._meeting.node

    def load(self, events: Iterable[Event]) -> None:
        """Takes the newest event of every entity at `node`, as of some position; what is newer is known already."""
        for event in events:
            self.settle(event, event.position)
        sided = {name: one.settled for name, one in self._subjects.items() if one.settled and any(one.settled.sides)}
        kinds = Counter(spot.kind for spot in sided.values() if spot.kind)
        usual = max(kinds, key=kinds.__getitem__, default=None)
        # With whom the others began before they could not be compared any more, nobody has told.
        self._doubt(name for name, spot in sided.items() if spot.kind is None or spot.kind != usual)
        self.ready = True

    def _doubt(self, names: Iterable[str]) -> None:
        for name in names:
            self._subjects[name].frozen = None
            self._doubtful.add(name)

    def spot(self, event: Event) -> IndexedSpot:
        """What an event says of its subject."""
        is_a = self._is_a(event)
        return spot(event, (is_a, is_a if self._meeting.a == self._meeting.b else self._is_b(event)))

    def concerns(self, now: IndexedSpot) -> bool:
        """Whether a subject is of a side, or was."""
        known = self._subjects.get(now.entity)
        return any(now.sides) or (known is not None and any(any(one.sides) for one in known.spots))

    def permits(self, now: IndexedSpot) -> bool:
        """Whether an event may be held back: then it is what is kept of its subject."""
        known = self._subjects.get(now.entity)
        old = known.settled if known is not None else None
        if known is None or old is None or known.under_way or not self.ready:
            return not self.concerns(now)
        if now.sides != old.sides or _is_older(now, old):
            return False
        if not any(now.sides):
            return True
        way = moved(old, now)
        if way is None:
            return False
        if known.radius is None or way > known.radius:
            known.radius = self._ring(known, old)
        if way > known.radius:
            return False
        known.moved = way
        return True

    def _ring(self, known: _RingSubject, at: IndexedSpot) -> float:
        """How far a subject may be from where it is; of whoever has more than half of a room, the ring shrinks."""
        radius = self._largest
        for near in self._spots.near(at):
            if not at.meets(near):
                continue
            room, other = self._room(at, near), self._subjects[near.entity]
            left = room / 2
            if other.radius is not None:
                other.radius = min(other.radius, max(room / 2, other.moved))
                left = room - other.radius
            radius = min(radius, max(left, known.moved))
        return radius

    def threatened(self, now: IndexedSpot) -> list[str]:
        """Before an event that is not permitted is published: those of whom what is kept has to be published first.

        For the others there is room where the event is; their rings shrink to it.
        """
        known = self._subjects.get(now.entity, _RingSubject())
        before = known.spots
        others = {near.entity: None for one in (*before, now) for near in self._spots.near(one)}
        others |= dict.fromkeys(self._subjects if known.frozen is None else known.frozen | self._doubtful)
        # Sorted, for what is released enters the journal in this order: it must not rest on how a process hashes, nor
        # on how places are found.
        return [name for name in sorted(others) if name != now.entity and self._is_threatened(name, before, now, known)]

    def _is_threatened(self, name: str, before: list[IndexedSpot], now: IndexedSpot, known: _RingSubject) -> bool:
        other = self._subjects[name]
        if other.settled is None or other.under_way:
            # What the journal did not take is kept again, wherever that is.
            return True
        room = self._room(now, other.settled) if now.meets(other.settled) else math.inf
        if other.radius is not None:
            other.radius = max(min(other.radius, room), other.moved)
        if not other.moved:
            return False
        frozen = known.frozen is None or other.frozen is None or name in known.frozen
        return frozen or other.moved > room or self._may_change(before, now, other.settled)

    def _may_change(self, before: list[IndexedSpot], now: IndexedSpot, other: IndexedSpot) -> bool:
        """Whether a pair may begin or end, given where one side may be before, and is now."""
        old = {self._together(one, other) for one in before} or {False}
        return old != {self._together(now, other)} or None in old

    def _together(self, a: IndexedSpot, b: IndexedSpot) -> bool | None:
        """Whether a pair surely holds, or surely does not; None where it depends."""
        if a.kind is None or a.kind != b.kind or not a.meets(b):
            return False
        low, high = bounds(a, b)
        return True if high < self._near else False if low > self._far else None

    def _room(self, a: IndexedSpot, b: IndexedSpot) -> float:
        """How far both sides of a pair together may move before it can begin or end."""
        if a.kind is None or a.kind != b.kind:
            return math.inf
        low, high = bounds(a, b)
        if high < self._near:
            return self._far - high
        return max(0.0, low - self._near if low > self._far else min(low - self._near, self._far - high))

    def publish(self, one: IndexedSpot, kept: bool = False) -> None:
        """Takes an event that is on its way into the journal; `kept`: a repeated one, beside what is kept still."""
        known = self._subjects.setdefault(one.entity, _RingSubject())
        if not kept:
            known.radius, known.moved = None, 0.0
        if all(other.identity != one.identity for other in known.under_way):
            known.under_way.append(one)
            self._add(one)

    def settle(self, event: Event, position: int) -> None:
        """Hears where in the journal a published event is."""
        known, identity = self._subjects.setdefault(event.entity, _RingSubject()), (event.source, event.id)
        number = next((n for n, one in enumerate(known.under_way) if one.identity == identity), None)
        one = self.spot(event) if number is None else known.under_way[number]
        old = known.settled
        if old is not None and (position <= known.position or _is_older(one, old)):
            # It was there before, or came too late to count.
            if number is not None:
                self._spots.remove(known.under_way.pop(number))
            return
        self._freeze(known, old, one)
        done = known.under_way[: 0 if number is None else number + 1]
        for gone in (*done, *([old] if old else [])):
            self._spots.remove(gone)
        known.under_way = known.under_way[len(done) :]
        known.settled, known.position, known.radius = one, position, None
        self._add(one)

    def _freeze(self, known: _RingSubject, old: IndexedSpot | None, now: IndexedSpot) -> None:
        """Notes with whom a subject may be together once it is nowhere, or elsewhere in another way; until both are."""
        if known.frozen is None and now.kind is not None:
            known.frozen = set()
            self._doubtful.discard(now.entity)
            settled = {name: one.settled for name, one in self._subjects.items() if one.settled}
            self._doubt(name for name, one in settled.items() if any(one.sides) and one.kind != now.kind)
        for name in tuple(known.frozen or ()):
            other = self._subjects[name]
            if other.settled is not None and other.settled.kind == now.kind is not None:
                known.frozen = (known.frozen or set()) - {name}
                other.frozen = None if other.frozen is None else other.frozen - {now.entity}
        if old is None or old.kind is None or old.kind == now.kind:
            return
        for near in self._spots.near(old):
            other = self._subjects[near.entity]
            if self._together(old, near) is not False:
                known.frozen = None if known.frozen is None else known.frozen | {near.entity}
                other.frozen = None if other.frozen is None else other.frozen | {now.entity}

    def _add(self, one: IndexedSpot) -> None:
        if any(one.sides):
            self._spots.add(one)


def _member(side: Side) -> Callable[[Event], bool]:
    """Whether an event makes its subject one of a side."""
    if isinstance(side, Named):
        return lambda event: event.entity == side.entity
    filter = side.filter
    if all(atom.name == "type" for atom in atoms(filter)):
        # Most are, and of types there are few.
        of_type = lru_cache(1_000)(lambda type: truth(filter, Event("", type, ""), NO_CONTEXT) is True)
        return lambda event: of_type(event.type)
    return lambda event: truth(filter, event, NO_CONTEXT) is True


def _is_older(one: IndexedSpot, other: IndexedSpot) -> bool:
    return one.key is not None and other.key is not None and one.key < other.key
