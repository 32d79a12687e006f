"""What a node takes of what it hears: each message once, near enough, timely, within bounds, not too many at once.

It is the relay's part: what is taken is passed on, once. Everything else is dropped and counted by its verdict.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush

from nearcast.decision.foraging.limits import Admission, Rates
from nearcast.decision.location import distance
from nearcast.model.foraging import Message, MessageId
from nearcast.model.place import Place


class Verdict(StrEnum):
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
class Bounds:
    """How far (metres) and for how long (seconds) a message may be meant; how wrong clocks may be; how many ids to
    remember; rates (None: no limit).
    """

    farthest: float = 10_000.0
    longest: float = 3_600.0
    clocks: float = 60.0
    remembered: int = 100_000
    rates: Rates | None = None


class Door:
    """Decides for each message heard; `counts` has how many met each verdict."""

    def __init__(self, node: str, bounds: Bounds = Bounds()) -> None:
        self.counts: Counter[Verdict] = Counter()
        self._node, self._bounds = node, bounds
        self._admission = Admission(bounds.rates) if bounds.rates else None
        self._seen: set[MessageId] = set()
        # Of those in `_seen` until when, soonest first: where they are many, none but what is over is looked at.
        self._ends: list[tuple[float, int, MessageId]] = []

    @property
    def taken(self) -> int:
        """How many messages were taken."""
        return self.counts[Verdict.TAKEN]

    def take(self, message: Message, sender: str, place: Place, now: float) -> bool:
        """Whether a message is to be handled and passed on by a node that is at `place`."""
        verdict = self.verdict(message, sender, place, now)
        self.counts[verdict] += 1
        if verdict is Verdict.TAKEN:
            # A replay that comes later than this is refused as stale.
            self._seen.add(message.id)
            heappush(self._ends, (now + message.valid + 2 * self._bounds.clocks, self.taken, message.id))
        return verdict is Verdict.TAKEN

    def verdict(self, message: Message, sender: str, place: Place, now: float) -> Verdict:
        """What becomes of a message; the cheap questions first."""
        bounds = self._bounds
        # What is dropped here is not remembered: when the node has moved, it may concern it.
        if message.id.origin == self._node:
            return Verdict.OWN
        if message.id in self._seen:
            return Verdict.DUPLICATE
        if not (0 <= message.within <= bounds.farthest and 0 < message.valid <= bounds.longest):
            return Verdict.EXCESSIVE
        if now - message.time >= message.valid + bounds.clocks:
            return Verdict.STALE
        if message.time - now > bounds.clocks:
            return Verdict.EARLY
        # None between kinds of place; and a comparison that NaN cannot pass.
        apart = distance(place, message.place)
        if apart is None or not apart <= message.within or math.isnan(apart):
            return Verdict.AWAY
        return Verdict.TAKEN if self._admitted(message, sender, now) else Verdict.FLOODING

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
