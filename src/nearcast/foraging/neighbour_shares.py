"""Shares of what a node remembers, so that no neighbour fills it: each may hold as much as is still free.

One neighbour alone gets half of a table, two that take all they can a third each, and so on: there is always room left
for one that holds nothing yet. Nothing is evicted.
"""

from __future__ import annotations

from collections import Counter


class NeighbourShares:
    """How many of at most `most` entries each neighbour holds: those that it brought first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.refused = 0
        self._held: Counter[str] = Counter()
        self._all = 0

    def __len__(self) -> int:
        return self._all

    def admits(self, neighbour: str) -> bool:
        """Whether a neighbour may hold one entry more."""
        return self._held[neighbour] < self.most - self._all

    def hold(self, neighbour: str) -> bool:
        """Notes an entry more of a neighbour, if it may hold that; if not, that is counted in `refused`."""
        admitted = self.admits(neighbour)
        if admitted:
            self._held[neighbour] += 1
            self._all += 1
        self.refused += not admitted
        return admitted

    def release(self, neighbour: str) -> None:
        """Notes that an entry of a neighbour is gone. Who holds none is not remembered."""
        self._all -= 1
        self._held[neighbour] -= 1
        if not self._held[neighbour]:
            del self._held[neighbour]

    def clear(self) -> None:
        """Notes that all entries are gone."""
        self._held.clear()
        self._all = 0
