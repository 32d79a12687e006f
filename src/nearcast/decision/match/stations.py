"""Where the anchors of location atoms are over a batch, as arrays: what did not move since the last batch is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import is_not

import numpy as np
import numpy.typing as npt

from nearcast.decision.location import Floats, unit_vectors
from nearcast.decision.match.points import Flags, Points, points_of
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
        self._numbers = {each.name: number for number, each in enumerate(anchors) if isinstance(each, User)}
        self._names = list(self._numbers)
        self._users = np.array(list(self._numbers.values()), np.intp)
        self._points = points_of([each if isinstance(each, Place) else None for each in anchors])
        self._vectors = unit_vectors(self._points.x, self._points.y)
        # Whoever is nowhere is where the arrays have everybody at first.
        self._places: list[Place | None] = [None] * len(self._names)

    def stations(self, users: Track[str, Place | None], first: int, last: int) -> Stations:
        """Where the anchors are for events at the positions `first` … `last`; an anchor may have several stations."""
        self._refresh(users.base)
        moves = sorted(self._moves(users, last), key=lambda move: move[:3])
        number = np.array([anchor for anchor, _, _, _ in moves], np.int64)
        since = np.array([position for _, position, _, _ in moves], np.int64)
        points = points_of([place for _, _, _, place in moves])
        size = len(self._points.x)
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

    def _moves(self, users: Track[str, Place | None], last: int) -> Iterator[tuple[int, int, int, Place | None]]:
        """(anchor, position, number of the change, place) of every change before position `last`."""
        for name, changes in users.changes.items():
            anchor = self._numbers.get(name)
            if anchor is not None:
                for which, (position, place) in enumerate(changes):
                    if position < last:
                        yield anchor, position, which, place

    def _refresh(self, base: dict[str, Place | None]) -> None:
        """Brings the kept arrays to where everybody is at the batch's start."""
        places = list(map(base.get, self._names))
        moved = np.flatnonzero(np.fromiter(map(is_not, self._places, places), np.bool_, len(places)))
        if not len(moved):
            return
        points = points_of([places[number] for number in moved.tolist()])
        which = self._users[moved]
        self._points = self._points.replaced(which, points)
        self._vectors = self._vectors.copy()
        self._vectors[which] = unit_vectors(points.x, points.y)
        self._places = places
