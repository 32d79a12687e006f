"""Receivers who ask for what is within some distance of them: where they are, and the events that are near.

Whether such an atom is TRUE only near its anchor, or FALSE only there: only what is near is computed, so a batch costs
its neighbours, not receivers times events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import is_not

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.geo.columnar_index import TimedPoints
from nearcast.geo.distance import Floats, unit_vectors
from nearcast.matching.batch_columns import PlaceArrays, event_points, points_of
from nearcast.matching.location_atoms import NearTestPairs, NearTests, anchor_of, elsewhere, vectors_of
from nearcast.model.arrays import Flags, Integers, runs
from nearcast.model.event import Place
from nearcast.model.filter import Atom, User
from nearcast.state.timeline import FOREVER, Environment, Positions, Timeline


@dataclass(frozen=True, slots=True)
class AnchorStations:
    """Anchors at places for the positions after `since` up to `through`; `anchor` is the anchor's number."""

    anchor: Integers
    points: PlaceArrays
    vectors: Floats
    since: Integers
    through: Integers

    def select(self, which: npt.NDArray[np.intp] | Flags) -> AnchorStations:
        """The stations of these numbers, or where these flags are set."""
        return AnchorStations(
            self.anchor[which], self.points.select(which), self.vectors[which], self.since[which], self.through[which]
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

    def stations(self, users: Timeline[str, Place | None], first: int, last: int) -> AnchorStations:
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
        found = AnchorStations(
            anchor, self._points.joined(points), vectors, np.concatenate([np.full(size, -1), since]), through
        )
        # A change at a position holds for the events after it.
        there = found.points.known & (found.through >= first)
        return found if there.all() else found.select(np.flatnonzero(there))

    def _moves(self, users: Timeline[str, Place | None], last: int) -> Iterator[tuple[int, int, int, Place | None]]:
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


FIRST = 256
"""Events by which shares are estimated."""

MOST = 1 << 25
"""Pairs that are held at once: where everybody is near everything, events are taken in smaller parts."""

OTHERS = 64
"""Events beside the sample, none of which is taken to be near: a single one shall not say much."""


@dataclass(frozen=True, slots=True)
class NearLanes:
    """Which events are near by which atom: those of atom a are `lanes[starts[a]]` … `lanes[starts[a + 1] − 1]`."""

    starts: npt.NDArray[np.int32]
    lanes: npt.NDArray[np.int32]

    def within(self, first: int, last: int) -> NearLanes:
        """The same of the lanes from `first` up to but not including `last` alone, counted from `first`."""
        there = (self.lanes >= first) & (self.lanes < last)
        if there.all() and not first:
            return self
        counts = np.concatenate([[0], np.cumsum(there)])
        return NearLanes(counts[self.starts].astype(np.int32), self.lanes[there] - np.int32(first))


NOTHING_NEAR = NearLanes(np.zeros(1, np.int32), np.zeros(0, np.int32))
"""Where no atom is asked for."""


class ProximityIndex:
    """What is near, of those among many atoms that are asked for."""

    def __init__(self, atoms: Sequence[Atom]) -> None:
        self._all = list(atoms)
        self._followed = ProximityAtoms(self._all)

    def follow(self, which: Integers) -> None:
        """From now on only these atoms are asked for; `near` numbers them in this order."""
        self._followed = ProximityAtoms([self._all[number] for number in which.tolist()])

    def shares(self, table: pa.Table, around: Environment) -> Floats:
        """The share of events that is near each atom, by the first events of a table of EVENTS."""
        self._followed = ProximityAtoms(self._all)
        sample = table.slice(0, FIRST)
        near = self.near(sample, around)
        if near is None:
            return self.shares(table.slice(0, len(sample) // 2), around)
        return np.asarray((np.diff(near.starts) + 0.5) / (len(sample) + OTHERS), np.float64)

    def near(self, table: pa.Table, around: Environment) -> NearLanes | None:
        """What is near as of each event's position; None if that is too much at once of so many events."""
        if not len(self._followed):
            return NOTHING_NEAR
        return self._followed.near(around.users, table.column("position").to_numpy(), event_points(table))


def inner(atom: Atom) -> bool | None:
    """Whether an atom is TRUE only near its anchor; False: it is FALSE only there; None: it is of another kind."""
    far = elsewhere(atom) if anchor_of(atom) is not None else None
    return None if far is None else not far


class ProximityAtoms:
    """Atoms for which `inner` is not None, compiled."""

    def __init__(self, atoms: Sequence[Atom]) -> None:
        found = [anchor_of(atom) for atom in atoms]
        numbers = {anchor: number for number, anchor in enumerate(dict.fromkeys(found))}
        self._anchors = Anchors([anchor for anchor in numbers if anchor is not None])
        anchor = np.array([numbers[each] for each in found], np.int64)
        # By anchor, so that all atoms of one lie side by side.
        self._by_anchor = np.argsort(anchor, kind="stable")
        self._first_atom = np.searchsorted(anchor[self._by_anchor], np.arange(len(numbers) + 1))
        self._tests = NearTests(atoms)

    def __len__(self) -> int:
        return len(self._tests)

    def near(self, users: Timeline[str, Place | None], positions: Positions, events: PlaceArrays) -> NearLanes | None:
        """What is near: where an atom is TRUE if that is near its anchor, else where it is FALSE; None: too much."""
        atoms, lanes = [np.array([], np.int64)], [np.array([], np.int64)]
        size = 0
        if len(positions) and len(self._tests):
            stations = self._anchors.stations(users, int(positions[0]), int(positions[-1]))
            for geographic in (False, True):
                for atom, lane in self._found(stations, geographic, positions, events):
                    atoms.append(atom)
                    lanes.append(lane)
                    size += len(lane)
                    if size > MOST and len(positions) > 1:
                        return None
        atom, lane = np.concatenate(atoms), np.concatenate(lanes)
        order = np.argsort(atom * max(1, len(positions)) + lane)
        starts = np.searchsorted(atom[order], np.arange(len(self._tests) + 1))
        return NearLanes(starts.astype(np.int32), lane[order].astype(np.int32))

    def _found(
        self, stations: AnchorStations, geographic: bool, positions: Positions, events: PlaceArrays
    ) -> Iterator[tuple[Integers, Integers]]:
        """Atoms and lanes that are near, of one kind of coordinates, part by part."""
        lanes = np.flatnonzero(events.known & (events.geographic == geographic))
        own = np.flatnonzero(stations.points.geographic == geographic)
        if not len(lanes) or not len(own):
            return
        points = TimedPoints(vectors_of(events.select(lanes), geographic), positions[lanes] - 1, positions[lanes])
        atom, station = self._probes(stations.anchor[own])
        station = own[station]
        # Receivers are many and few of them move: their vectors are kept.
        vectors = stations.vectors[station] if geographic else vectors_of(stations.points.select(station), False)
        probes = TimedPoints(vectors, stations.since[station], stations.through[station])
        for found in self._tests.candidates(atom, probes, points, geographic):
            which, lane = atom[found.probe], lanes[found.point]
            places = stations.points.select(station[found.probe])
            held = self._tests.hold(which, NearTestPairs(places, events.select(lane), found.square, geographic))
            yield which[held], lane[held]

    def _probes(self, anchor: Integers) -> tuple[Integers, Integers]:
        """Each station with every atom about its anchor: the atoms, and the stations' numbers among those given."""
        first = self._first_atom[anchor]
        count = self._first_atom[anchor + 1] - first
        return self._by_anchor[runs(first, count)], np.repeat(np.arange(len(anchor)), count)
