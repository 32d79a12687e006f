"""Location atoms about an anchor and the event, "within D of me", as the pairs of atoms and events that are near.

Such an atom is TRUE near its anchor, or FALSE there and TRUE elsewhere. Either way only what is near is computed, so a
batch costs its neighbours, not receivers times events. The outcome is that of `nearcast.decision.location.distance`:
chords decide most candidates, and where bounds on the ellipsoid leave it open a geodesic is solved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.decision.location import Floats, geodesic, planar, surely_beyond, surely_within, unit_vectors
from nearcast.decision.match_distance import anchor_of, tests_of
from nearcast.decision.match_grid import Located, neighbours
from nearcast.decision.match_points import Flags, Points, event_points
from nearcast.decision.match_stations import Anchors, Stations
from nearcast.decision.timeline import Positions, Surrounding, Track
from nearcast.model.filter import Atom, Operator
from nearcast.model.place import Place

Integers = npt.NDArray[np.int64]
Sides = npt.NDArray[np.int8]

_NEAR: dict[Operator, Callable[[Sides], Flags]] = {
    Operator.LT: lambda side: side < 0,
    Operator.LE: lambda side: side <= 0,
    Operator.EQ: lambda side: side == 0,
    Operator.GE: lambda side: side >= 0,
}
_COMPLEMENT = {Operator.GT: Operator.LE, Operator.GE: Operator.LT, Operator.NE: Operator.EQ}
"""Operators that hold far away, and what holds where they are FALSE."""

FIRST = 256
"""Events by which shares are estimated."""

LEAST = 0.5
"""Events that an atom is taken to select in a sample without any."""

PAD = 1e-9
"""Relative room for rounding in what is searched around a point."""


@dataclass(frozen=True, slots=True)
class Near:
    """Which events are near by which atom: those of atom a are `lanes[starts[a]]` … `lanes[starts[a + 1] − 1]`."""

    starts: npt.NDArray[np.int32]
    lanes: npt.NDArray[np.int32]

    def within(self, first: int, last: int) -> Near:
        """The same with no more than the lanes from `first` up to but not including `last`."""
        there = (self.lanes >= first) & (self.lanes < last)
        if there.all():
            return self
        counts = np.concatenate([[0], np.cumsum(there)])
        return Near(counts[self.starts].astype(np.int32), self.lanes[there])


class Nearby:
    """What is near, of those among many atoms that are asked for."""

    def __init__(self, atoms: Sequence[Atom]) -> None:
        self._all = list(atoms)
        self._followed = NearbyAtoms(self._all)

    def follow(self, which: Integers) -> None:
        """From now on only these atoms are asked for; `near` numbers them in this order."""
        self._followed = NearbyAtoms([self._all[number] for number in which.tolist()])

    def shares(self, table: pa.Table, around: Surrounding) -> Floats:
        """The share of events that is near each atom, by the first events of a table of EVENTS."""
        self._followed = NearbyAtoms(self._all)
        sample = table.slice(0, FIRST)
        counts = np.diff(self.near(sample, around).starts)
        return np.asarray(np.maximum(counts, LEAST) / max(1, len(sample)), np.float64)

    def near(self, table: pa.Table, around: Surrounding) -> Near:
        """What is near as of each event's position."""
        return self._followed.near(around.users, table.column("position").to_numpy(), event_points(table))


def inner(atom: Atom) -> bool | None:
    """Whether an atom is TRUE only near its anchor; False: it is FALSE only there; None: it is of another kind."""
    tests = tests_of(atom) if anchor_of(atom) is not None else []
    if not tests or any(limit != limit for _, limit in tests):
        return None
    return atom.operator not in _COMPLEMENT


def _near_tests(atom: Atom) -> list[tuple[Operator, float]]:
    """The tests of what is near: where the atom is TRUE, or for one that is TRUE elsewhere, where it is FALSE."""
    tests = tests_of(atom)
    return tests if inner(atom) else [(_COMPLEMENT[operator], limit) for operator, limit in tests]


class NearbyAtoms:
    """Atoms for which `inner` is not None, compiled: each is one or more tests of a distance against a limit."""

    def __init__(self, atoms: Sequence[Atom]) -> None:
        found = [anchor_of(atom) for atom in atoms]
        numbers = {anchor: number for number, anchor in enumerate(dict.fromkeys(found))}
        self._anchors = Anchors([anchor for anchor in numbers if anchor is not None])
        anchor = np.array([numbers[each] for each in found], np.int64)
        # By anchor, so that all atoms of one lie side by side.
        self._by_anchor = np.argsort(anchor, kind="stable")
        self._first_atom = np.searchsorted(anchor[self._by_anchor], np.arange(len(numbers) + 1))
        own = [_near_tests(atom) for atom in atoms]
        self._first_test = np.cumsum([0, *(len(tests) for tests in own)])
        self._joint = np.array([atom.operator is Operator.BETWEEN for atom in atoms], np.bool_)
        operators = list(_NEAR)
        self._operator = np.array([operators.index(each) for tests in own for each, _ in tests], np.int64)
        self._limit = np.array([limit for tests in own for _, limit in tests], np.float64)
        self._within = np.array([surely_within(limit) for limit in self._limit], np.float64)
        self._beyond = np.array([surely_beyond(limit) for limit in self._limit], np.float64)
        furthest = [max(limit for _, limit in tests) for tests in own]
        self._furthest = np.array(furthest, np.float64)

    def __len__(self) -> int:
        return len(self._furthest)

    def near(self, users: Track[str, Place | None], positions: Positions, events: Points) -> Near:
        """What is near: where an atom is TRUE if that is near its anchor, else where it is FALSE."""
        atoms, lanes = [np.array([], np.int64)], [np.array([], np.int64)]
        if len(positions) and len(self):
            stations = self._anchors.stations(users, int(positions[0]), int(positions[-1]))
            for geographic in (False, True):
                for atom, lane in self._found(stations, geographic, positions, events):
                    atoms.append(atom)
                    lanes.append(lane)
        atom, lane = np.concatenate(atoms), np.concatenate(lanes)
        order = np.argsort(atom * max(1, len(positions)) + lane)
        starts = np.searchsorted(atom[order], np.arange(len(self) + 1))
        return Near(starts.astype(np.int32), lane[order].astype(np.int32))

    def _found(
        self, stations: Stations, geographic: bool, positions: Positions, events: Points
    ) -> Iterator[tuple[Integers, Integers]]:
        """Atoms and lanes that are near, of one kind of coordinates, part by part."""
        lanes = np.flatnonzero(events.known & (events.geographic == geographic))
        own = np.flatnonzero(stations.points.geographic == geographic)
        if not len(lanes) or not len(own):
            return
        there = events.take(lanes)
        vectors = unit_vectors(there.x, there.y) if geographic else _flat(there)
        atom, station = self._probes(stations.anchor[own])
        station = own[station]
        centres = stations.vectors[station] if geographic else _flat(stations.points.take(station))
        probes = Located(centres, stations.since[station], stations.through[station])
        reach, limits = _bounds(self._furthest[atom], centres, geographic)
        for found in neighbours(probes, reach, limits, Located(vectors, positions[lanes] - 1, positions[lanes])):
            which, lane = atom[found.probe], lanes[found.point]
            pairs = _Pairs(stations.points.take(station[found.probe]), events.take(lane), found.square, geographic)
            held = self._holds(which, pairs)
            yield which[held], lane[held]

    def _probes(self, anchor: Integers) -> tuple[Integers, Integers]:
        """Each station with every atom about its anchor: the atoms, and the stations' numbers among those given."""
        first = self._first_atom[anchor]
        count = self._first_atom[anchor + 1] - first
        station = np.repeat(np.arange(len(anchor)), count)
        return self._by_anchor[_runs(first, count)], station

    def _holds(self, atom: Integers, pairs: _Pairs) -> Flags:
        """For which pairs what is near holds."""
        first = self._first_test[atom]
        count = self._first_test[atom + 1] - first
        if (count == 1).all():
            return self._passed(first, pairs)
        passed = self._passed(_runs(first, count), pairs.take(np.repeat(np.arange(len(atom)), count)))
        begins = np.cumsum(count) - count
        some, every = np.logical_or.reduceat(passed, begins), np.logical_and.reduceat(passed, begins)
        return np.where(self._joint[atom], every, some)

    def _passed(self, test: Integers, pairs: _Pairs) -> Flags:
        sides = pairs.sides(self._limit[test], self._within[test], self._beyond[test])
        operator = self._operator[test]
        passed = np.zeros(len(test), np.bool_)
        for number, holds in enumerate(_NEAR.values()):
            own = operator == number
            passed[own] = holds(sides[own])
        return passed


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Pairs of points, and the squares of their distances as chords (or, in the plane, without heights)."""

    a: Points
    b: Points
    square: Floats
    geographic: bool

    def take(self, index: Integers) -> _Pairs:
        """The pairs of these numbers."""
        return _Pairs(self.a.take(index), self.b.take(index), self.square[index], self.geographic)

    def sides(self, limit: Floats, within: Floats, beyond: Floats) -> Sides:
        """Whether each distance is below (−1), at (0) or beyond (1) its limit."""
        if not self.geographic:
            rise = np.where(self.a.high & self.b.high, self.a.z - self.b.z, 0.0)
            return _side(planar(self.a.x - self.b.x, self.a.y - self.b.y, rise), limit)
        sides = np.where(self.square > beyond, 1, -1).astype(np.int8)
        open_ = np.flatnonzero((self.square > within) & (self.square <= beyond))
        a, b = self.a.take(open_), self.b.take(open_)
        sides[open_] = _side(geodesic(a.x, a.y, b.x, b.y), limit[open_])
        return sides


def _side(distance: Floats, limit: Floats) -> Sides:
    # Not the sign of a difference: that of two infinities is none.
    return (distance > limit).astype(np.int8) - (distance < limit).astype(np.int8)


def _flat(points: Points) -> Floats:
    """Planar points without their heights, which can only add to a distance."""
    return np.stack([points.x, points.y, np.zeros(len(points.x))], axis=-1)


def _bounds(metres: Floats, centres: Floats, geographic: bool) -> tuple[Floats, Floats]:
    """What no coordinate of a near point is farther away, and what no square of a distance to one exceeds."""
    with np.errstate(over="ignore"):
        if geographic:
            limits = np.array([surely_beyond(each) for each in metres.tolist()])
        else:
            limits = np.square(np.maximum(metres, 0.0) * (1 + PAD))
        reach = np.sqrt(limits) * (1 + PAD) + 1e-15 * np.abs(centres).max(axis=1, initial=1e-100)
    return reach, limits


def _runs(first: Integers, count: Integers) -> Integers:
    """The numbers from each first on, so many each."""
    return np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
