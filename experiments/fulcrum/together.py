"""Subjects that share rings, all at once: what one publishes goes to all its partners, and may make them publish."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from experiments.fulcrum.engine import Track, outside
from nearcast.suppression.strategies.guards import Anywhere, Guard, Ring, TakenReport
from nearcast.suppression.strategies.seam import PairKnowledge, SideName, Strategy, ThresholdPredicate, guards
from nearcast.testing.entry_node import learnt

Pair = tuple[int, int]
"""Two subjects by number, the smaller one, which is side a, first."""


@dataclass
class Shared:
    """What was sent: how many reports each subject published, and the changes of each pair."""

    published: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    changes: dict[Pair, list[tuple[int, bool]]] = field(default_factory=lambda: defaultdict(list))


class Together:
    """The run of a strategy that shares rings over the tracks of all subjects."""

    def __init__(
        self, strategy: Strategy, bound: ThresholdPredicate, tracks: dict[int, Track], pairs: Iterable[Pair]
    ) -> None:
        self._strategy, self._bound, self._tracks = strategy, bound, tracks
        self._known: dict[Pair, PairKnowledge] = {pair: PairKnowledge() for pair in pairs}
        self._guards: dict[Pair, tuple[PairKnowledge, tuple[Guard, Guard]]] = {}
        self._partners: dict[int, list[int]] = defaultdict(list)
        for a, b in self._known:
            self._partners[a].append(b)
            self._partners[b].append(a)
        self._newest: dict[int, int] = {}
        self._due: list[tuple[int, int, int, int]] = []
        self._radius: dict[int, float] = {}
        self._version: dict[int, int] = defaultdict(int)
        self._found = Shared()

    def run(self) -> Shared:
        """All of it."""
        for subject in self._partners:
            self._schedule(subject, 0)
        while self._due:
            order, subject, at, version = heappop(self._due)
            if version != self._version[subject]:
                continue
            ring = self._smallest(subject)
            if ring is not None and not ring.permits(self._tracks[subject].report(at)):
                self._leave(subject, at, order)
            else:
                self._radius.pop(subject)
                self._schedule(subject, at + 1)
        return self._found

    def _leave(self, subject: int, at: int, order: int) -> None:
        """A report leaves its subject's ring: it is published, and what that makes others publish too."""
        report, publishing = self._tracks[subject].report(at), {subject}
        before = {pair: self._known[pair] for pair in self._pairs(subject)}
        self._publish(subject, at, report)
        waiting = []
        for partner in self._partners[subject]:
            pair = _pair(subject, partner)
            self._known[pair] = self._evaluated(before[pair], self._known[pair])
            changed = self._known[pair].holds != before[pair].holds
            waiting.append((partner, pair, changed))
        while waiting:
            other, pair, changed = waiting.pop()
            if self._tells(other, pair, order, changed):
                publishing.add(other)
                newest = self._tracks[other].newest(order)
                self._publish(other, newest, self._tracks[other].report(newest))
                waiting += [(third, _pair(other, third), False) for third in self._partners[other] if third != subject]
        for pair, known in before.items():
            # With what was published meanwhile it may be another change, or none.
            now = self._evaluated(known, self._known[pair])
            if now.holds != known.holds:
                self._found.changes[pair].append((order, now.holds))
            self._known[pair] = now
        for one in publishing:
            self._radius.pop(one, None)
        for one in publishing.union(*(self._partners[one] for one in publishing)):
            self._schedule(one, self._tracks[one].newest(order) + 1)

    def _publish(self, subject: int, at: int, report: TakenReport) -> None:
        self._newest[subject] = at
        self._found.published[subject] += 1
        for pair in self._pairs(subject):
            self._known[pair] = learnt(self._known[pair], _side(subject, pair), report)

    def _evaluated(self, before: PairKnowledge, known: PairKnowledge) -> PairKnowledge:
        a, b = known.a and known.a.value, known.b and known.b.value
        holds = self._bound.holds(a, b, before.holds)
        return known if holds == known.holds else PairKnowledge(known.a, known.b, holds)

    def _tells(self, subject: int, pair: Pair, order: int, changed: bool) -> bool:
        """Whether a subject's newest report lies outside the ring of a pair, or a change of it needs it."""
        newest = self._tracks[subject].newest(order)
        if newest < 0 or newest == self._newest.get(subject):
            return False
        known, side = self._known[pair], _side(subject, pair)
        current, published = self._tracks[subject].report(newest), known.of(side)
        if not self._guard(subject, pair).permits(current):
            return True
        return changed and (published is None or published.value != current.value)

    def _schedule(self, subject: int, start: int) -> None:
        """When the subject's next report lies outside one of its rings: the smallest, for all have one centre."""
        ring = self._smallest(subject)
        if ring is None:
            return
        before = self._radius.get(subject, -1.0)
        self._radius[subject] = ring.radius if isinstance(ring, Ring) else -1.0
        # A ring that has only become larger is left no sooner: that is seen when it is due.
        if 0 <= before <= self._radius[subject]:
            return
        track = self._tracks[subject]
        self._version[subject] += 1
        at = outside(ring, track, start)
        if at is not None:
            heappush(self._due, (int(track.orders[at]), subject, at, self._version[subject]))

    def _smallest(self, subject: int) -> Guard | None:
        """The one of a subject's guards that permits least, as all rings have one centre; None if all permit all."""
        found: Guard | None = None
        for pair in self._pairs(subject):
            guard = self._guard(subject, pair)
            if isinstance(guard, Anywhere):
                continue
            if not isinstance(guard, Ring):
                return guard
            if not isinstance(found, Ring) or guard.radius < found.radius:
                found = guard
        return found

    def _guard(self, subject: int, pair: Pair) -> Guard:
        """The guard of a subject in a pair; asked far more often than what is known of the pair changes."""
        known = self._known[pair]
        if pair not in self._guards or self._guards[pair][0] is not known:
            self._guards[pair] = (known, guards(self._strategy, known, self._bound))
        return self._guards[pair][1][subject == pair[1]]

    def _pairs(self, subject: int) -> Iterable[Pair]:
        return (_pair(subject, partner) for partner in self._partners[subject])


def _pair(one: int, other: int) -> Pair:
    return (one, other) if one < other else (other, one)


def _side(subject: int, pair: Pair) -> SideName:
    return "a" if subject == pair[0] else "b"
