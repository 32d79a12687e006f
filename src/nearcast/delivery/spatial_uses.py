"""The atoms about geometries of all filters that are there, followed through the batches, in their order."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from nearcast.filters.spatial_atoms import OrderKey, order_key
from nearcast.model.filter import Atom
from nearcast.state.spatial_windows import SpatialWindows, Window
from nearcast.state.timeline import FOREVER


class _UsedAtom(NamedTuple):
    """An atom of some filter, and what it is ordered by."""

    key: OrderKey
    atom: Atom


KEY = attrgetter("key")


class SpatialUses:
    """How many filters have each atom; in a batch, from when to when there are any."""

    def __init__(self) -> None:
        self._uses: Counter[Atom] = Counter()
        self._ordered: list[_UsedAtom] = []
        self._since: dict[Atom, int] = {}
        self._ended: list[Window] = []
        self._shown: SpatialWindows | None = None

    def begin_batch(self) -> None:
        """Forgets what ended in the last batch."""
        if self._ended or self._since:
            self._shown = None
        self._ended, self._since = [], {}

    def begin(self, position: int, found: Iterable[Atom]) -> None:
        """From a position on there is a filter with these atoms."""
        for atom in found:
            self._uses[atom] += 1
            if self._uses[atom] == 1:
                insort(self._ordered, _UsedAtom(order_key(atom), atom), key=KEY)
                self._since[atom] = position
                self._shown = None

    def end(self, position: int, found: Iterable[Atom]) -> None:
        """A filter with these atoms ends: the last event that it is there for is at a position."""
        for atom in found:
            self._uses[atom] -= 1
            if not self._uses[atom]:
                del self._uses[atom]
                key = order_key(atom)
                at = bisect_left(self._ordered, key, key=KEY)
                del self._ordered[at]
                self._ended.append((atom, self._since.pop(atom, -1), position))
                self._shown = None

    def windows(self) -> SpatialWindows:
        """All that there are, and those that ended in the batch."""
        if self._shown is None:
            current = [(one.key, (one.atom, self._since.get(one.atom, -1), FOREVER)) for one in self._ordered]
            ended = [(order_key(window[0]), window) for window in self._ended]
            ordered = sorted([*current, *ended], key=lambda pair: pair[0]) if ended else current
            self._shown = SpatialWindows.over([window for _, window in ordered])
        return self._shown
