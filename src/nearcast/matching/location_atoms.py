"""Location atoms as rows of bits: about an anchor and the event, about entities; the tests of distances behind both.

That is the common kind, "within D of me", and there may be one per receiver. On the globe a product of unit vectors
leaves few candidates, chords decide most of these, and only where bounds on the ellipsoid leave it open a geodesic is
solved: the outcome is that of `nearcast.geo.distance.distance`.

Every side of a term is a set of stays: a place, and the lanes for which it holds. Stays of both sides that are near one
another and overlap are found by the grid, so a batch costs what moved in it and neighbours, not its events times all
members (semantics §4).

Candidates come from a grid; chords decide most of them, and where bounds on the ellipsoid leave it open a geodesic is
solved. The outcome is that of `geo.distance.distance`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from nearcast.filters.evaluate import satisfies
from nearcast.geo.columnar_index import NearPairs, TimedPoints, near_pairs, square_limit
from nearcast.geo.distance import Floats, geodesic, planar, surely_beyond, surely_within, unit_vectors
from nearcast.matching.batch_columns import Numbers, PlaceArrays, Rows, pack, points_of
from nearcast.model.arrays import Flags, Integers, runs
from nearcast.model.event import Place
from nearcast.model.filter import Atom, Count, Distance, Entities, Located, Operator, This, User
from nearcast.state.timeline import Environment, Positions, TermMembers, Timeline

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

    def rows(self, paths: Paths, events: PlaceArrays, width: int) -> tuple[Rows, Rows]:
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

    def __init__(self, anchors: Sequence[User | Place], users: Timeline[str, Place | None]) -> None:
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

    def move_to(self, positions: Positions) -> None:
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

    def sides(self, atoms: DistanceAtoms, events: PlaceArrays) -> tuple[Sides, Flags]:
        """Of each test its sides; of each anchor, shape (anchors, lanes), whether the distance is known."""
        used = np.unique([*self._at, *(place for _, _, place in self._inside)])
        here = self._points.select(used).upright()
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
        self, atoms: DistanceAtoms, events: PlaceArrays, vectors: Floats, sides: Sides, test: Numbers, lane: Numbers
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


_NEAR: dict[Operator, Callable[[Sides], Flags]] = {
    Operator.LT: lambda side: side < 0,
    Operator.LE: lambda side: side <= 0,
    Operator.EQ: lambda side: side == 0,
    Operator.GE: lambda side: side >= 0,
}
_COMPLEMENT = {Operator.GT: Operator.LE, Operator.GE: Operator.LT, Operator.NE: Operator.EQ}
"""Operators that hold far away, and what holds where they are FALSE."""

_NEVER = (Operator.LT, -1.0)


def elsewhere(atom: Atom) -> bool | None:
    """Whether a distance atom is FALSE only near, TRUE elsewhere, and not TRUE only near; None: it has no limit."""
    tests = tests_of(atom)
    if not tests:
        return None
    # No distance is more than what is no number.
    return atom.operator in _COMPLEMENT and (atom.operator is Operator.NE or tests[0][1] == tests[0][1])


def _near_tests(atom: Atom) -> list[tuple[Operator, float]]:
    """The tests of what is near: where the atom is TRUE, or for one that is TRUE elsewhere, where it is FALSE."""
    tests = tests_of(atom)
    sound = [test for test in tests if test[1] == test[1]]
    if not sound or (atom.operator is Operator.BETWEEN and len(sound) < len(tests)):
        return [_NEVER]
    return [(_COMPLEMENT[operator], limit) for operator, limit in sound] if elsewhere(atom) else sound


class NearTests:
    """Distance atoms for which `elsewhere` is not None, compiled: each is one or more tests against a limit."""

    def __init__(self, atoms: Sequence[Atom]) -> None:
        own = [_near_tests(atom) for atom in atoms]
        self._first = np.cumsum([0, *(len(tests) for tests in own)])
        self._joint = np.array([atom.operator is Operator.BETWEEN for atom in atoms], np.bool_)
        operators = list(_NEAR)
        self._operator = np.array([operators.index(each) for tests in own for each, _ in tests], np.int64)
        self._limit = np.array([limit for tests in own for _, limit in tests], np.float64)
        self._within = np.array([surely_within(limit) for limit in self._limit.tolist()], np.float64)
        self._beyond = np.array([surely_beyond(limit) for limit in self._limit.tolist()], np.float64)
        furthest = [max(limit for _, limit in tests) for tests in own]
        self._squares, self._chords = (
            np.array([square_limit(limit, globe) for limit in furthest], np.float64) for globe in (False, True)
        )

    def __len__(self) -> int:
        return len(self._chords)

    def candidates(
        self, atom: Integers, probes: TimedPoints, points: TimedPoints, geographic: bool
    ) -> Iterator[NearPairs]:
        """Pairs of a probe and a point that may be near for the probe's atom; see `vectors_of`."""
        return near_pairs(probes, (self._chords if geographic else self._squares)[atom], points)

    def hold(self, atom: Integers, pairs: NearTestPairs) -> Flags:
        """For which pairs what is near holds for the pair's atom."""
        first = self._first[atom]
        count = self._first[atom + 1] - first
        if (count == 1).all():
            return self._passed(first, pairs)
        passed = self._passed(runs(first, count), pairs.select(np.repeat(np.arange(len(atom)), count)))
        begins = np.cumsum(count) - count
        some, every = np.logical_or.reduceat(passed, begins), np.logical_and.reduceat(passed, begins)
        return np.where(self._joint[atom], every, some)

    def _passed(self, test: Integers, pairs: NearTestPairs) -> Flags:
        sides = pairs.sides(self._limit[test], self._within[test], self._beyond[test])
        operator = self._operator[test]
        passed = np.zeros(len(test), np.bool_)
        for number, holds in enumerate(_NEAR.values()):
            own = operator == number
            passed[own] = holds(sides[own])
        return passed


@dataclass(frozen=True, slots=True)
class NearTestPairs:
    """Pairs of points, and the squares of their distances as chords (or, in the plane, without heights)."""

    a: PlaceArrays
    b: PlaceArrays
    square: Floats
    geographic: bool

    def select(self, index: Integers) -> NearTestPairs:
        """The pairs of these numbers."""
        return NearTestPairs(self.a.select(index), self.b.select(index), self.square[index], self.geographic)

    def sides(self, limit: Floats, within: Floats, beyond: Floats) -> Sides:
        """Whether each distance is below (−1), at (0) or beyond (1) its limit."""
        if not self.geographic:
            rise = np.where(self.a.high & self.b.high, self.a.z - self.b.z, 0.0)
            return sides_of(planar(self.a.x - self.b.x, self.a.y - self.b.y, rise), limit)
        sides = np.where(self.square > beyond, 1, -1).astype(np.int8)
        open_ = np.flatnonzero((self.square > within) & (self.square <= beyond))
        a, b = self.a.select(open_), self.b.select(open_)
        sides[open_] = sides_of(geodesic(a.x, a.y, b.x, b.y), limit[open_])
        return sides


def vectors_of(points: PlaceArrays, geographic: bool) -> Floats:
    """Points of one kind as a grid takes them: on the unit sphere, or without heights, which only add to a distance."""
    if geographic:
        return unit_vectors(points.x, points.y)
    return np.stack([points.x, points.y, np.zeros(len(points.x))], axis=-1)


@dataclass(frozen=True, slots=True)
class Stays:
    """Places, and the lanes from `begin` up to but not including `end` for which each holds."""

    points: PlaceArrays
    begin: Integers
    end: Integers

    def select(self, which: npt.NDArray[np.intp]) -> Stays:
        """The stays of these numbers."""
        return Stays(self.points.select(which), self.begin[which], self.end[which])

    def of_kind(self, geographic: bool) -> Stays:
        """Those whose place is known and of one kind."""
        return self.select(np.flatnonzero(self.points.known & (self.points.geographic == geographic)))

    def located(self, geographic: bool) -> TimedPoints:
        """As a grid takes them, all being of one kind."""
        return TimedPoints(vectors_of(self.points, geographic), self.begin, self.end)


@dataclass(slots=True)
class Walk:
    """A batch as terms about entities look at it; the stays of a side are made once for all terms."""

    around: Environment
    positions: Positions
    events: PlaceArrays
    _stays: dict[Located, Stays] = field(default_factory=dict)

    def truths(self, atom: Atom) -> tuple[Flags, Flags]:
        """For each lane whether the atom is TRUE, and whether it is not UNKNOWN."""
        if isinstance(atom.name, Distance):
            return self._measured(atom, atom.name)
        assert isinstance(atom.name, Count)
        return self._counted(atom, atom.name)

    def _measured(self, atom: Atom, term: Distance) -> tuple[Flags, Flags]:
        """A distance holds if it holds for some pair of stays: those near are counted, and how many there are."""
        far = elsewhere(atom)
        known, near = np.zeros((2, len(self.positions)), np.int64)
        a, b = self._side(term.a), self._side(term.b)
        for geographic in (False, True) if far is not None else ():
            one, other = a.of_kind(geographic), b.of_kind(geographic)
            known += self._present(one) * self._present(other)
            meetings = _meetings(NearTests([atom]), one, other, geographic)
            near += self._sum(meetings.begin, meetings.end)
        return (known > near if far else near > 0), known > 0

    def _counted(self, atom: Atom, term: Count) -> tuple[Flags, Flags]:
        of = self._side(term.of)
        if term.around is None or term.within is None:
            return self._compared(atom, self._present(of), np.ones(len(self.positions), np.bool_))
        centres = self._side(term.around)
        tests = NearTests([Atom(Distance(This(), This()), Operator.LE, term.within)])
        count = np.zeros(len(self.positions), np.int64)
        for geographic in (False, True):
            one, other = of.of_kind(geographic), centres.of_kind(geographic)
            meetings = _meetings(tests, one, other, geographic).joined()
            count += self._sum(meetings.begin, meetings.end)
        known = self._present(centres.select(np.flatnonzero(centres.points.known))) > 0
        return self._compared(atom, count, known)

    def _compared(self, atom: Atom, count: Integers, known: Flags) -> tuple[Flags, Flags]:
        """A count against the atom's literal; few counts differ."""
        distinct, which = np.unique(count, return_inverse=True)
        truths = [satisfies(atom, number) for number in distinct.tolist()]
        holds = np.array([truth is True for truth in truths], np.bool_)[which]
        comparable = np.array([truth is not None for truth in truths], np.bool_)[which]
        return holds & known, comparable & known

    def _present(self, stays: Stays) -> Integers:
        """How many of the stays hold in each lane."""
        return self._sum(stays.begin, stays.end)

    def _sum(self, begin: Integers, end: Integers) -> Integers:
        size = len(self.positions)
        return np.cumsum(np.bincount(begin, minlength=size + 1) - np.bincount(end, minlength=size + 1))[:size]

    def _side(self, side: Located) -> Stays:
        if side not in self._stays:
            self._stays[side] = self._made(side)
        return self._stays[side]

    def _made(self, side: Located) -> Stays:
        size = len(self.positions)
        if isinstance(side, This):
            lanes = np.arange(size)
            return Stays(self.events, lanes, lanes + 1)
        if isinstance(side, Place):
            return Stays(points_of([side]), np.zeros(1, np.int64), np.full(1, size))
        if isinstance(side, Entities):
            return self._members(self.around.entities[side])
        moves = self.around.users.segments(side.name, self.positions)
        begin = np.array([first for first, _ in moves], np.int64)
        # Where a user is not known there is no stay: an entity that is nowhere counts, a user does not.
        where = np.flatnonzero([place is not None for _, place in moves])
        stays = Stays(points_of([place for _, place in moves]), begin, np.append(begin[1:], size))
        return stays.select(where)

    def _members(self, members: TermMembers) -> Stays:
        """The stays of a term's members: from each change of one to its next, or to the end."""
        joined = [(entity, -1, member) for entity, member in members.base.items()]
        changes = [(entity, position, member) for position, entity, member in members.changes]
        numbers: dict[str, int] = {}
        own = np.array([numbers.setdefault(entity, len(numbers)) for entity, _, _ in (*joined, *changes)], np.int64)
        at = np.array([position for _, position, _ in (*joined, *changes)], np.int64)
        begin = np.searchsorted(self.positions, at, "right")
        order = np.argsort(own, kind="stable")
        end = np.full(len(own), len(self.positions))
        same = own[order][1:] == own[order][:-1]
        end[order[:-1][same]] = begin[order[1:][same]]
        found = [member for _, _, member in (*joined, *changes)]
        there = np.flatnonzero(np.array([member is not None for member in found], np.bool_) & (begin < end))
        places = points_of([member.place if member else None for member in found])
        return Stays(places, begin, end).select(there)


@dataclass(frozen=True, slots=True)
class _Meetings:
    """Which stay of the first side meets one of the other, and in which lanes."""

    stay: Integers
    begin: Integers
    end: Integers

    def joined(self) -> _Meetings:
        """The same without lanes in which a stay meets several: each counts once."""
        order = np.lexsort((self.begin, self.stay))
        stay, begin, end = self.stay[order], self.begin[order], self.end[order]
        if not len(stay):
            return self
        # Per stay, how far what began earlier goes: offsets keep the running maximum from going on to the next stay.
        offset = stay * (int(end.max()) + 1)
        before = np.maximum.accumulate(end + offset) - offset
        begin[1:] = np.where(stay[1:] == stay[:-1], np.maximum(begin[1:], before[:-1]), begin[1:])
        return _Meetings(stay, begin, np.maximum(begin, end))


def _meetings(tests: NearTests, a: Stays, b: Stays, geographic: bool) -> _Meetings:
    """The stays that overlap and pass the tests of one atom."""
    parts = [(np.array([], np.int64),) * 3]
    only = np.zeros(len(a.begin), np.int64)
    for found in tests.candidates(only, a.located(geographic), b.located(geographic), geographic):
        one, other = found.probe.astype(np.int64), found.point.astype(np.int64)
        held = tests.hold(
            only[one], NearTestPairs(a.points.select(one), b.points.select(other), found.square, geographic)
        )
        one, other = one[held], other[held]
        parts.append((one, np.maximum(a.begin[one], b.begin[other]), np.minimum(a.end[one], b.end[other])))
    return _Meetings(*(np.concatenate(part) for part in zip(*parts, strict=True)))
