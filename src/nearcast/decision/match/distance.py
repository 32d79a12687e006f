"""Location atoms between one anchor — a moving user or a fixed point — and the event itself, all of them together.

That is the common kind, "within D of me", and there may be one per receiver. On the globe a product of unit vectors
leaves few candidates, chords decide most of these, and only where bounds on the ellipsoid leave it open a geodesic is
solved: the outcome is that of `nearcast.decision.location.distance`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from nearcast.decision.location import Floats, geodesic, planar, surely_beyond, surely_within, unit_vectors
from nearcast.decision.match.points import Flags, Points, pack, points_of
from nearcast.decision.match.rows import Numbers, Rows
from nearcast.decision.timeline import Positions, Track
from nearcast.model.filter import Atom, Distance, Operator, This, User
from nearcast.model.place import Place

Sides = npt.NDArray[np.int8]
"""Whether a distance is below (−1), at (0) or beyond (1) a test's limit, shape (tests, lanes)."""

T = TypeVar("T", bound=np.generic)

COARSE = 1e-14
"""Room for rounding in squares of chords that are got from products: far above it, 0.6 m as a distance."""

_HOLDS: dict[Operator, Callable[[Sides], Flags]] = {
    Operator.LT: lambda side: side < 0,
    Operator.LE: lambda side: side <= 0,
    Operator.GT: lambda side: side > 0,
    Operator.GE: lambda side: side >= 0,
    Operator.EQ: lambda side: side == 0,
    Operator.NE: lambda side: side != 0,
}


def anchor_of(atom: Atom) -> User | Place | None:
    """The anchor of an atom about its distance to the event; None if the atom is of another kind."""
    term = atom.name
    if not isinstance(term, Distance) or This() not in (term.a, term.b):
        return None
    other = term.b if term.a == This() else term.a
    return other if isinstance(other, (User, Place)) else None


class DistanceAtoms:
    """Atoms between an anchor and the event, compiled: each is one or more tests of a distance against a limit."""

    def __init__(self, atoms: Sequence[Atom]) -> None:
        self.atoms = list(atoms)
        found = [anchor_of(atom) for atom in atoms]
        self.anchors: list[User | Place] = [anchor for anchor in dict.fromkeys(found) if anchor is not None]
        number = {anchor: index for index, anchor in enumerate(self.anchors)}
        self._anchor = np.array([number[anchor] for anchor in found if anchor is not None], np.intp)
        own = [tests_of(atom) for atom in atoms]
        self._testable = np.array([bool(tests) for tests in own], np.bool_)
        self._first = np.cumsum([0, *(len(tests) for tests in own)])
        self._joint = [atom.operator is Operator.BETWEEN for atom in atoms]
        operators = [operator for tests in own for operator, _ in tests]
        self._by_operator = {
            operator: np.flatnonzero([each is operator for each in operators]) for operator in set(operators)
        }
        self.limits = np.array([limit for tests in own for _, limit in tests], np.float64)
        self.test_anchor = np.repeat(self._anchor, [len(tests) for tests in own])
        self.within = np.array([surely_within(limit) for limit in self.limits], np.float64)
        self.beyond = np.array([surely_beyond(limit) for limit in self.limits], np.float64)

    def rows(self, paths: Paths, events: Points, width: int) -> tuple[Rows, Rows]:
        """Truth and comparable rows, shape (atoms, words) each, for the events of the chunk that `paths` is at."""
        sides, known = paths.sides(self, events)
        passed = np.zeros(sides.shape, np.bool_)
        for operator, tests in self._by_operator.items():
            passed[tests] = _HOLDS[operator](sides[tests])
        holds = np.zeros((len(self.atoms), sides.shape[1]), np.bool_)
        single = np.diff(self._first) == 1
        holds[single] = passed[self._first[:-1][single]]
        for atom in np.flatnonzero(~single):
            of_atom = passed[self._first[atom] : self._first[atom + 1]]
            holds[atom] = of_atom.all(axis=0) if self._joint[atom] else of_atom.any(axis=0)
        comparable = known[self._anchor] & self._testable[:, None]
        return pack(holds & comparable, width), pack(comparable, width)


def tests_of(atom: Atom) -> list[tuple[Operator, float]]:
    """The comparisons with one number each that an atom is made of; a literal of another kind makes none."""
    literals = atom.value if isinstance(atom.value, tuple) else (atom.value,)
    numbers = [float(value) for value, kind in zip(literals, atom.kinds, strict=True) if kind == "number"]  # type: ignore[arg-type]
    if atom.operator is Operator.BETWEEN:
        return [(Operator.GE, numbers[0]), (Operator.LE, numbers[1])] if len(numbers) == 2 else []
    return [(Operator.EQ if atom.operator is Operator.IN else atom.operator, number) for number in numbers]


def sides_of(distance: Floats, limit: Floats) -> Sides:
    """Whether each distance is below (−1), at (0) or beyond (1) its limit."""
    # Not the sign of a difference: that of two infinities is none.
    return (distance > limit).astype(np.int8) - (distance < limit).astype(np.int8)


@dataclass(frozen=True, slots=True)
class _Move:
    """An anchor is at a place (a number into the paths' places) for events after a position."""

    position: int
    anchor: int
    place: int


class Paths:
    """Where the anchors are, chunk after chunk of a batch in ascending order."""

    def __init__(self, anchors: Sequence[User | Place], users: Track[str, Place | None]) -> None:
        places: list[Place | None] = [
            anchor if isinstance(anchor, Place) else users.base.get(anchor.name) for anchor in anchors
        ]
        self._at = np.arange(len(anchors))
        moves = []
        for number, anchor in enumerate(anchors):
            changes = users.changes.get(anchor.name, ()) if isinstance(anchor, User) else ()
            for position, place in changes:
                moves.append(_Move(position, number, len(places)))
                places.append(place)
        self._moves = sorted(moves, key=lambda move: move.position)
        self._points = points_of(places)
        self._vectors = unit_vectors(self._points.x, self._points.y)
        self._done = 0
        self._inside: list[tuple[int, int, int]] = []

    def advance(self, positions: Positions) -> None:
        """Goes on to the chunk of these positions."""
        for _, anchor, place in self._inside:
            self._at[anchor] = place
        self._inside = []
        for move in self._until(int(positions[0])):
            self._at[move.anchor] = move.place
        for move in self._until(int(positions[-1])):
            start = int(np.searchsorted(positions, move.position, "right"))
            self._inside.append((start, move.anchor, move.place))

    def _until(self, position: int) -> Iterator[_Move]:
        """The moves before a position that were not taken yet."""
        while self._done < len(self._moves) and self._moves[self._done].position < position:
            self._done += 1
            yield self._moves[self._done - 1]

    def sides(self, atoms: DistanceAtoms, events: Points) -> tuple[Sides, Flags]:
        """Of each test its sides; of each anchor, shape (anchors, lanes), whether the distance is known."""
        used = np.unique([*self._at, *(place for _, _, place in self._inside)])
        here = self._points.take(used).upright()
        known = here.known & events.known & (here.geographic == events.geographic)
        sides = np.ones((len(atoms.limits), len(events.x)), np.int8)
        if (known & ~here.geographic).any():
            rise = np.where(here.high & events.high, here.z - events.z, 0.0)
            apart = planar(here.x - events.x, here.y - events.y, rise)
            sides = sides_of(self._along(used, apart, atoms.test_anchor), atoms.limits[:, None])
        on_earth = known & here.geographic
        if on_earth.any():
            vectors = unit_vectors(events.x, events.y)
            # Squares of chords, rounded coarsely: good enough to tell what is out of the question.
            squares = np.where(on_earth, 2 - 2 * (self._vectors[used] @ vectors.T), np.inf)
            near = self._along(used, squares, atoms.test_anchor) <= (atoms.beyond + COARSE)[:, None]
            earthly = self._along(used, on_earth, atoms.test_anchor)
            sides[earthly] = 1
            self._decide(atoms, events, vectors, sides, *np.nonzero(near))
        return sides, self._along(used, known, np.arange(len(self._at)))

    def _along(self, used: Numbers, by_place: npt.NDArray[T], anchors: Numbers) -> npt.NDArray[T]:
        """Values by (place in `used`, lane) as values by (anchor of `anchors`, lane), following the anchors."""
        rows = by_place[np.searchsorted(used, self._at[anchors])]
        for lane, anchor, place in self._inside:
            rows[anchors == anchor, lane:] = by_place[np.searchsorted(used, place), lane:]
        return rows

    def _decide(
        self, atoms: DistanceAtoms, events: Points, vectors: Floats, sides: Sides, test: Numbers, lane: Numbers
    ) -> None:
        """Decides candidates: by their chords, and where these leave it open, by geodesics."""
        anchor = atoms.test_anchor[test]
        place = self._at[anchor]
        for start, moved, there in self._inside:
            place[(anchor == moved) & (lane >= start)] = there
        apart = self._vectors[place] - vectors[lane]
        squares = (apart * apart).sum(axis=1)
        sides[test, lane] = np.where(squares > atoms.beyond[test], 1, -1)
        open_ = (squares > atoms.within[test]) & (squares <= atoms.beyond[test])
        test, lane, place = test[open_], lane[open_], place[open_]
        exact = geodesic(self._points.x[place], self._points.y[place], events.x[lane], events.y[lane])
        sides[test, lane] = sides_of(exact, atoms.limits[test])
