"""How fast a node's neighbourhood changes, and how often it should therefore ask again (the paper's open point).

Asking again serves one purpose: to reach providers that have come since. So the time between two requests is that in
which a given share of the neighbours has changed, within bounds around the rule's own.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Adapting:
    """Ask again when `share` of the neighbours has changed, at soonest `least` and at latest `most` times the rule's
    own interval after the last time; neighbours not heard for `window` are gone.
    """

    share: float = 0.5
    least: float = 0.25
    most: float = 4.0
    window: float = 5.0


MOST = 10_000
"""Neighbours that are told apart: more there are not, but for who invents them."""

SMOOTHING = 0.5
"""How much of the estimate the newest window is."""


class Neighbours:
    """Who was heard in this window and in the one before, and the share that changes per unit of time."""

    def __init__(self, adapting: Adapting) -> None:
        self._adapting = adapting
        self._began: float | None = None
        self._before: set[str] = set()
        self._heard: set[str] = set()
        self.turnover: float | None = None

    def heard(self, sender: str, now: float) -> None:
        """Notes that a neighbour sent something."""
        self._turn(now)
        if len(self._heard) < MOST:
            self._heard.add(sender)

    def interval(self, own: float, now: float) -> float:
        """The time until a rule's next request, where its own interval is `own`."""
        self._turn(now)
        adapting = self._adapting
        if self.turnover is None:
            return own
        wanted = adapting.share / self.turnover if self.turnover > 0 else adapting.most * own
        return min(max(wanted, adapting.least * own), adapting.most * own)

    def _turn(self, now: float) -> None:
        """Compares a window that is over with the one before it."""
        if self._began is None:
            self._began = now
        while now - self._began >= self._adapting.window:
            both = self._heard | self._before
            # Of an empty window before, everybody would be new: that is a beginning, not a change.
            if both and self._before:
                change = len(self._heard ^ self._before) / len(both) / self._adapting.window
                before = change if self.turnover is None else self.turnover
                self.turnover = SMOOTHING * change + (1 - SMOOTHING) * before
            self._before, self._heard = self._heard, set()
            # After a long silence there is nothing to compare, window by window, that would say more.
            silent = not self._before
            self._began = now if silent else self._began + self._adapting.window
