"""What a node accepts of what it hears: each message once, near, timely, within bounds and rates.

It is the relay's part: what is taken is passed on, once. Everything else is dropped and counted by its verdict.

A neighbour's bucket bounds what any node near can make this one do, whatever names it invents. Within it each origin
has its own, smaller one: what an honest relay passes on of a flooding node does not use up what it may pass on of the
rest. Of what is remembered each neighbour has a share.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heappop, heappush

from nearcast.foraging.neighbour_shares import NeighbourShares
from nearcast.geo.distance import distance
from nearcast.model.event import Place
from nearcast.model.foraging import Message, MessageId
from nearcast.model.rate_limit import RateLimit

MOST = 20_000
"""Buckets of origins that are kept; full ones say nothing and go first."""

MOST_NEIGHBOURS = 10_000
"""Neighbours that are told apart; a new one waits until another is quiet."""

FEWEST_SWEPT = 64
"""Fewer buckets of one neighbour are not looked through for full ones."""


@dataclass(frozen=True, slots=True)
class MessageRates:
    """Messages per second, and how many at once: from one neighbour, and of one origin through it."""

    neighbour: float = 200.0
    neighbour_burst: float = 400.0
    origin: float = 10.0
    origin_burst: float = 40.0


@dataclass(slots=True)
class NeighbourBuckets:
    """A neighbour's bucket, and those of the origins behind it; these are looked through when there are `sweep`."""

    own: RateLimit
    origins: dict[str, RateLimit] = field(default_factory=dict)
    sweep: int = FEWEST_SWEPT


class AdmissionControl:
    """Says of each message whether it is within what its neighbour and its origin may send."""

    def __init__(self, rates: MessageRates) -> None:
        self._rates = rates
        self._neighbours: dict[str, NeighbourBuckets] = {}
        self.shares = NeighbourShares(MOST)

    def admits(self, neighbour: str, origin: str, now: float) -> bool:
        """Whether one more message may come; takes a token of both if so, of none if not."""
        found = self._buckets(neighbour, now)
        # Both must have one before either gives one: what is refused costs nothing, and leaves nothing behind.
        if found is None or not found.own.affords(1, now):
            return False
        bucket = found.origins.get(origin) or self._origin(neighbour, found, origin, now)
        if bucket is None or not bucket.affords(1, now):
            return False
        for each in (found.own, bucket):
            each.spend(1, now)
        return True

    def _buckets(self, neighbour: str, now: float) -> NeighbourBuckets | None:
        """A neighbour's buckets; None where there is no room for one more neighbour that is owed something."""
        found = self._neighbours.get(neighbour)
        if found is None:
            if len(self._neighbours) >= MOST_NEIGHBOURS:
                self._forget_quiet(now)
            if len(self._neighbours) >= MOST_NEIGHBOURS:
                return None
            own = RateLimit(self._rates.neighbour, self._rates.neighbour_burst)
            found = self._neighbours[neighbour] = NeighbourBuckets(own)
        return found

    def _origin(self, neighbour: str, found: NeighbourBuckets, origin: str, now: float) -> RateLimit | None:
        """A new bucket of an origin; None where its neighbour's share is full of such as are not."""
        if len(found.origins) >= found.sweep or not self.shares.admits(neighbour):
            self._sweep(neighbour, found, now)
        if not self.shares.hold(neighbour):
            return None
        return found.origins.setdefault(origin, RateLimit(self._rates.origin, self._rates.origin_burst))

    def _sweep(self, neighbour: str, found: NeighbourBuckets, now: float) -> None:
        """Forgets an origin's full buckets, which say nothing; an empty one holds somebody back."""
        for origin in [origin for origin, bucket in found.origins.items() if bucket.full(now)]:
            del found.origins[origin]
            self.shares.release(neighbour)
        found.sweep = max(FEWEST_SWEPT, 2 * len(found.origins))

    def _forget_quiet(self, now: float) -> None:
        """Forgets neighbours all of whose buckets are full."""
        for neighbour, found in list(self._neighbours.items()):
            self._sweep(neighbour, found, now)
            if not found.origins and found.own.full(now):
                del self._neighbours[neighbour]


class MessageVerdict(StrEnum):
    """What becomes of a message."""

    TAKEN = "taken"
    OWN = "own, come back"
    DUPLICATE = "duplicate"
    STALE = "too old, or from a clock that is behind"
    EARLY = "from the future: a clock that is ahead"
    AWAY = "does not concern this place"
    EXCESSIVE = "asks too far or for too long"
    FLOODING = "more than its sender may send"


@dataclass(frozen=True, slots=True)
class MessageBounds:
    """How far (metres) and for how long (seconds) a message may be meant; how much clocks may differ; how many ids to
    remember, of which each neighbour has a share; rates (None: no limit).
    """

    farthest: float = 10_000.0
    longest: float = 3_600.0
    clocks: float = 60.0
    remembered: int = 200_000
    rates: MessageRates | None = None


class MessageFilter:
    """Decides for each message heard; `counts` has how many met each verdict."""

    def __init__(self, node: str, bounds: MessageBounds = MessageBounds()) -> None:
        self.counts: Counter[MessageVerdict] = Counter()
        self._node, self._bounds = node, bounds
        self._admission = AdmissionControl(bounds.rates) if bounds.rates else None
        self._seen: dict[MessageId, str] = {}
        # Of those in `_seen` until when, soonest first: where they are many, none but what is over is looked at.
        self._ends: list[tuple[float, int, MessageId]] = []
        self.shares = NeighbourShares(bounds.remembered)

    @property
    def taken(self) -> int:
        """How many messages were taken."""
        return self.counts[MessageVerdict.TAKEN]

    def accepts(self, message: Message, sender: str, place: Place, now: float) -> bool:
        """Whether a message is to be handled and passed on by a node that is at `place`."""
        verdict = self.verdict(message, sender, place, now)
        self.counts[verdict] += 1
        if verdict is MessageVerdict.TAKEN:
            # A replay that comes later than this is refused as stale.
            self._seen[message.id] = sender
            self.shares.hold(sender)
            heappush(self._ends, (now + message.valid + 2 * self._bounds.clocks, self.taken, message.id))
        return verdict is MessageVerdict.TAKEN

    def verdict(self, message: Message, sender: str, place: Place, now: float) -> MessageVerdict:
        """What becomes of a message; the cheap questions first."""
        bounds = self._bounds
        # What is dropped here is not remembered: when the node has moved, it may concern it.
        if message.id.origin == self._node:
            return MessageVerdict.OWN
        if message.id in self._seen:
            return MessageVerdict.DUPLICATE
        if not (0 <= message.within <= bounds.farthest and 0 < message.valid <= bounds.longest):
            return MessageVerdict.EXCESSIVE
        if now - message.time >= message.valid + bounds.clocks:
            return MessageVerdict.STALE
        if message.time - now > bounds.clocks:
            return MessageVerdict.EARLY
        # None between kinds of place; and a comparison that NaN cannot pass.
        apart = distance(place, message.place)
        if apart is None or not apart <= message.within or math.isnan(apart):
            return MessageVerdict.AWAY
        return MessageVerdict.TAKEN if self._admitted(message, sender, now) else MessageVerdict.FLOODING

    def _admitted(self, message: Message, sender: str, now: float) -> bool:
        if not self.shares.admits(sender):
            self.forget(now)
        # To forget an id too early would let its message go round once more: rather refuse new ones, of who sent many.
        fits = self.shares.admits(sender)
        self.shares.refused += not fits
        return fits and (self._admission is None or self._admission.admits(sender, message.id.origin, now))

    def forget(self, now: float) -> None:
        """Drops ids whose messages would be refused as stale."""
        while self._ends and self._ends[0][0] <= now:
            self.shares.release(self._seen.pop(heappop(self._ends)[-1]))
