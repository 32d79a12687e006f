"""Nobody may flood: token buckets per neighbour, and per origin within it, so that one cannot starve the others.

A neighbour's bucket bounds what any node near can make this one do, whatever names it invents. Within it each origin
has its own, smaller one: what an honest relay passes on of a flooding node does not use up what it may pass on of the
rest.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST = 10_000
"""Buckets that are kept; full ones say nothing and go first."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages per second, and how many at once: from one neighbour, and of one origin through it."""

    neighbour: float = 200.0
    neighbour_burst: float = 400.0
    origin: float = 10.0
    origin_burst: float = 40.0


@dataclass(slots=True)
class Bucket:
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


class Admission:
    """Says of each message whether it is within what its neighbour and its origin may send."""

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._buckets: dict[tuple[str, ...], Bucket] = {}

    def admits(self, neighbour: str, origin: str, now: float) -> bool:
        """Whether one more message may come; takes a token of both if so, of none if not."""
        if len(self._buckets) > MOST:
            self._prune(now)
        rates = self._rates
        both = (
            self._bucket((neighbour,), rates.neighbour, rates.neighbour_burst, now),
            self._bucket((neighbour, origin), rates.origin, rates.origin_burst, now),
        )
        if min(bucket.level(now) for bucket in both) < 1.0:
            return False
        for bucket in both:
            bucket.tokens -= 1.0
        return True

    def _bucket(self, key: tuple[str, ...], rate: float, burst: float, now: float) -> Bucket:
        found = self._buckets.get(key)
        if found is None:
            found = self._buckets[key] = Bucket(rate, burst, burst, now)
        return found

    def _prune(self, now: float) -> None:
        """Forgets full buckets; if there are too many others, the fullest of them."""
        used = {key: bucket for key, bucket in self._buckets.items() if bucket.level(now) < bucket.most}
        emptiest = sorted(used, key=lambda key: used[key].tokens / used[key].most)[: MOST // 2]
        self._buckets = {key: used[key] for key in emptiest}
