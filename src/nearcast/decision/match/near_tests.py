"""Tests of distances against limits, as what is near: an atom is TRUE only near, or FALSE only near.

Candidates come from a grid; chords decide most of them, and where bounds on the ellipsoid leave it open a geodesic is
solved. The outcome is that of `nearcast.decision.location.distance`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.decision.integers import runs
from nearcast.decision.location import Floats, geodesic, planar, surely_beyond, surely_within, unit_vectors
from nearcast.decision.match.close import close
from nearcast.decision.match.distance import Sides, sides_of, tests_of
from nearcast.decision.match.located import Found, Located
from nearcast.decision.match.points import Flags, Points
from nearcast.model.filter import Atom, Operator

Integers = npt.NDArray[np.int64]

_NEAR: dict[Operator, Callable[[Sides], Flags]] = {
    Operator.LT: lambda side: side < 0,
    Operator.LE: lambda side: side <= 0,
    Operator.EQ: lambda side: side == 0,
    Operator.GE: lambda side: side >= 0,
}
_COMPLEMENT = {Operator.GT: Operator.LE, Operator.GE: Operator.LT, Operator.NE: Operator.EQ}
"""Operators that hold far away, and what holds where they are FALSE."""

_NEVER = (Operator.LT, -1.0)

PAD = 1e-9
"""Relative room for rounding in what is searched around a point."""


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
        self._furthest = np.array([max(limit for _, limit in tests) for tests in own], np.float64)
        self._chords = np.array([surely_beyond(limit) for limit in self._furthest.tolist()], np.float64)

    def __len__(self) -> int:
        return len(self._furthest)

    def candidates(self, atom: Integers, probes: Located, points: Located, geographic: bool) -> Iterator[Found]:
        """Pairs of a probe and a point that may be near for the probe's atom; see `vectors_of`."""
        with np.errstate(over="ignore"):
            limits = self._chords[atom] if geographic else np.square(np.maximum(self._furthest[atom], 0.0) * (1 + PAD))
        reach = np.sqrt(limits) * (1 + PAD) + 1e-15 * np.abs(probes.vectors).max(axis=1, initial=1e-100)
        return close(probes, reach, limits, points)

    def hold(self, atom: Integers, pairs: PointPairs) -> Flags:
        """For which pairs what is near holds for the pair's atom."""
        first = self._first[atom]
        count = self._first[atom + 1] - first
        if (count == 1).all():
            return self._passed(first, pairs)
        passed = self._passed(runs(first, count), pairs.take(np.repeat(np.arange(len(atom)), count)))
        begins = np.cumsum(count) - count
        some, every = np.logical_or.reduceat(passed, begins), np.logical_and.reduceat(passed, begins)
        return np.where(self._joint[atom], every, some)

    def _passed(self, test: Integers, pairs: PointPairs) -> Flags:
        sides = pairs.sides(self._limit[test], self._within[test], self._beyond[test])
        operator = self._operator[test]
        passed = np.zeros(len(test), np.bool_)
        for number, holds in enumerate(_NEAR.values()):
            own = operator == number
            passed[own] = holds(sides[own])
        return passed


@dataclass(frozen=True, slots=True)
class PointPairs:
    """Pairs of points, and the squares of their distances as chords (or, in the plane, without heights)."""

    a: Points
    b: Points
    square: Floats
    geographic: bool

    def take(self, index: Integers) -> PointPairs:
        """The pairs of these numbers."""
        return PointPairs(self.a.take(index), self.b.take(index), self.square[index], self.geographic)

    def sides(self, limit: Floats, within: Floats, beyond: Floats) -> Sides:
        """Whether each distance is below (−1), at (0) or beyond (1) its limit."""
        if not self.geographic:
            rise = np.where(self.a.high & self.b.high, self.a.z - self.b.z, 0.0)
            return sides_of(planar(self.a.x - self.b.x, self.a.y - self.b.y, rise), limit)
        sides = np.where(self.square > beyond, 1, -1).astype(np.int8)
        open_ = np.flatnonzero((self.square > within) & (self.square <= beyond))
        a, b = self.a.take(open_), self.b.take(open_)
        sides[open_] = sides_of(geodesic(a.x, a.y, b.x, b.y), limit[open_])
        return sides


def vectors_of(points: Points, geographic: bool) -> Floats:
    """Points of one kind as a grid takes them: on the unit sphere, or without heights, which only add to a distance."""
    if geographic:
        return unit_vectors(points.x, points.y)
    return np.stack([points.x, points.y, np.zeros(len(points.x))], axis=-1)
