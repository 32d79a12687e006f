"""Where the anchors of location atoms are over a batch, as arrays: what did not move since the last batch is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.decision.location import Floats, unit_vectors
from nearcast.decision.match_points import Flags, Points, points_of
from nearcast.decision.timeline import FOREVER, Track
from nearcast.model.filter import User
from nearcast.model.place import Place

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stations:
    """Anchors at places for the positions after `since` up to `through`; `anchor` is the anchor's number."""

    anchor: Integers
    points: Points
    vectors: Floats
    since: Integers
    through: Integers

    def take(self, which: npt.NDArray[np.intp] | Flags) -> Stations:
        """The stations of these numbers, or where these flags are set."""
        return Stations(
            self.anchor[which], self.points.take(which), self.vectors[which], self.since[which], self.through[which]
        )


class Anchors:
    """Users and fixed points, numbered; `stations` follows the users through the batches."""

    def __init__(self, anchors: Sequence[User | Place]) -> None:
        self._fixed = [anchor if isinstance(anchor, Place) else None for anchor in anchors]
        self._names = [anchor.name if isinstance(anchor, User) else None for anchor in anchors]
        self._numbers = {name: number for number, name in enumerate(self._names) if name is not None}
        self._places: list[Place | None] = []
        self._points = points_of([])
        self._vectors = np.empty((0, 3))

    def __getstate__(self) -> dict[str, Any]:
        # What is kept can be made again, and goes to every worker otherwise.
        return {**self.__dict__, "_places": [], "_points": points_of([]), "_vectors": np.empty((0, 3))}

    def stations(self, users: Track[str, Place | None], first: int, last: int) -> Stations:
        """Where the anchors are for events at the positions `first` … `last`; an anchor may have several stations."""
        self._refresh(users.base)
        moves = sorted(self._moves(users, last))
        number = np.array([anchor for anchor, _, _ in moves], np.int64)
        since = np.array([position for _, position, _ in moves], np.int64)
        points = points_of([users.changes[str(self._names[anchor])][which][1] for anchor, _, which in moves])
        size = len(self._names)
        anchor = np.concatenate([np.arange(size), number])
        through = np.full(len(anchor), FOREVER)
        # Moves are by anchor, then position: each lasts until the next one of its anchor.
        following = np.flatnonzero(number[1:] == number[:-1])
        through[size + following] = since[following + 1]
        begins = np.flatnonzero(np.diff(number, prepend=-1))
        through[number[begins]] = since[begins]
        vectors = np.concatenate([self._vectors, unit_vectors(points.x, points.y)])
        found = Stations(
            anchor, self._points.joined(points), vectors, np.concatenate([np.full(size, -1), since]), through
        )
        # A change at a position holds for the events after it.
        there = found.points.known & (found.through >= first)
        return found if there.all() else found.take(np.flatnonzero(there))

    def _moves(self, users: Track[str, Place | None], last: int) -> Iterator[tuple[int, int, int]]:
        """(anchor, position, number of the change) of every change before position `last`."""
        for name, changes in users.changes.items():
            anchor = self._numbers.get(name)
            if anchor is not None:
                for which, (position, _) in enumerate(changes):
                    if position < last:
                        yield anchor, position, which

    def _refresh(self, base: dict[str, Place | None]) -> None:
        """Brings the kept arrays to where everybody is at the batch's start."""
        get = base.get
        places = [fixed if name is None else get(name) for fixed, name in zip(self._fixed, self._names, strict=True)]
        # Whatever is kept is compared by identity: nothing is equal to what was never there.
        before: list[Any] = self._places or [object()] * len(places)
        moved = [number for number, (old, new) in enumerate(zip(before, places, strict=True)) if old is not new]
        if not moved:
            return
        points = points_of([places[number] for number in moved])
        vectors = unit_vectors(points.x, points.y)
        if len(moved) == len(places):
            self._points, self._vectors = points, vectors
        else:
            self._points = self._points.replaced(np.array(moved), points)
            self._vectors = self._vectors.copy()
            self._vectors[moved] = vectors
        self._places = places
