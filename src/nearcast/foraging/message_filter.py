"""What a node accepts of what it hears: each message once, near, timely, within bounds and rates.

It is the relay's part: what is taken is passed on, once. Everything else is dropped and counted by its verdict.

A neighbour's bucket bounds what any node near can make this one do, whatever names it invents. Within it each origin
has its own, smaller one: what an honest relay passes on of a flooding node does not use up what it may pass on of the
rest.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush

from nearcast.geo.distance import distance
from nearcast.model.event import Place
from nearcast.model.foraging import Message, MessageId

MOST = 10_000
"""Buckets that are kept; full ones say nothing and go first."""


@dataclass(frozen=True, slots=True)
class MessageRates:
    """Messages per second, and how many at once: from one neighbour, and of one origin through it."""

    neighbour: float = 200.0
    neighbour_burst: float = 400.0
    origin: float = 10.0
    origin_burst: float = 40.0


@dataclass(slots=True)
class TokenBucket:
    """Tokens that come at a rate up to a most; a message takes one."""

    rate: float
    most: float
    tokens: float
    filled: float

    def level(self, now: float) -> float:
        """The tokens there are at a time; a clock that goes back adds none."""
        self.tokens = min(self.most, self.tokens + self.rate * max(0.0, now - self.filled))
        self.filled = max(now, self.filled)
        return self.tokens


class AdmissionControl:
    """Says of each message whether it is within what its neighbour and its origin may send."""

    def __init__(self, rates: MessageRates) -> None:
        self._rates = rates
        self._buckets: dict[tuple[str, ...], TokenBucket] = {}

    def admits(self, neighbour: str, origin: str, now: float) -> bool:
        """Whether one more message may come; takes a token of both if so, of none if not."""
        if len(self._buckets) > MOST:
            self._prune(now)
        rates = self._rates
        both = (
            self._bucket((neighbour,), rates.neighbour, rates.neighbour_burst, now),
            self._bucket((neighbour, origin), rates.origin, rates.origin_burst, now),
        )
        # Both must have one before either gives one: what is refused costs nothing.
        if min(bucket.level(now) for bucket in both) < 1.0:
            return False
        for bucket in both:
            bucket.tokens -= 1.0
        return True

    def _bucket(self, key: tuple[str, ...], rate: float, burst: float, now: float) -> TokenBucket:
        found = self._buckets.get(key)
        if found is None:
            found = self._buckets[key] = TokenBucket(rate, burst, burst, now)
        return found

    def _prune(self, now: float) -> None:
        """Forgets full buckets; if there are too many others, the fullest of them."""
        used = {key: bucket for key, bucket in self._buckets.items() if bucket.level(now) < bucket.most}
        # An empty one holds somebody back: forgetting it would be a pardon.
        emptiest = sorted(used, key=lambda key: used[key].tokens / used[key].most)[: MOST // 2]
        self._buckets = {key: used[key] for key in emptiest}


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
    """How far (metres) and for how long (seconds) a message may be meant; how wrong clocks may be; how many ids to
    remember; rates (None: no limit).
    """

    farthest: float = 10_000.0
    longest: float = 3_600.0
    clocks: float = 60.0
    remembered: int = 100_000
    rates: MessageRates | None = None


class MessageFilter:
    """Decides for each message heard; `counts` has how many met each verdict."""

    def __init__(self, node: str, bounds: MessageBounds = MessageBounds()) -> None:
        self.counts: Counter[MessageVerdict] = Counter()
        self._node, self._bounds = node, bounds
        self._admission = AdmissionControl(bounds.rates) if bounds.rates else None
        self._seen: set[MessageId] = set()
        # Of those in `_seen` until when, soonest first: where they are many, none but what is over is looked at.
        self._ends: list[tuple[float, int, MessageId]] = []

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
            self._seen.add(message.id)
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
        if len(self._seen) >= self._bounds.remembered:
            self.forget(now)
        # To forget an id too early would let its message go round once more: rather refuse new ones.
        fits = len(self._seen) < self._bounds.remembered
        return fits and (self._admission is None or self._admission.admits(sender, message.id.origin, now))

    def forget(self, now: float) -> None:
        """Drops ids whose messages would be refused as stale."""
        while self._ends and self._ends[0][0] <= now:
            self._seen.discard(heappop(self._ends)[-1])
