"""A rate limit by a token bucket: so much per second, and a burst of it at once; what is beyond it has to wait."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class RateLimit:
    """`rate` tokens per second come in, up to `burst`. Times are seconds, of any one clock.

    What costs more than the burst is let through when the bucket is full, and is owed.
    """

    rate: float
    burst: float
    _tokens: float | None = None
    _filled: float = 0.0

    def spend(self, cost: float, now: float) -> bool:
        """Whether there are the tokens that something costs; they are gone then."""
        if not self.affords(cost, now):
            return False
        self._tokens = self._fill(now) - cost
        return True

    def affords(self, cost: float, now: float) -> bool:
        """Whether there are the tokens that something costs."""
        return self._fill(now) >= min(cost, self.burst)

    def owe(self, cost: float, now: float) -> None:
        """Spends what something cost, whether or not there were the tokens."""
        self._tokens = self._fill(now) - cost

    def owes_nothing(self, now: float) -> bool:
        """Whether all that was spent had its tokens by now."""
        return self._fill(now) >= 0

    def full(self, now: float) -> bool:
        """Whether nothing was spent for so long that the whole burst is there."""
        return self._fill(now) == self.burst

    def _fill(self, now: float) -> float:
        before = self.burst if self._tokens is None else self._tokens
        # A clock that was set back gives nothing, and takes nothing away.
        self._tokens = min(before + max(now - self._filled, 0.0) * self.rate, self.burst)
        self._filled = now
        return self._tokens
