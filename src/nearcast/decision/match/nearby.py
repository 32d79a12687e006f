"""Location atoms about an anchor and the event, "within D of me", as the pairs of atoms and events that are near.

Whether such an atom is TRUE only near its anchor, or FALSE only there: only what is near is computed, so a batch costs
its neighbours, not receivers times events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.decision.integers import runs
from nearcast.decision.location import Floats
from nearcast.decision.match.distance import anchor_of
from nearcast.decision.match.located import Located
from nearcast.decision.match.near_tests import Integers, NearTests, PointPairs, elsewhere, vectors_of
from nearcast.decision.match.points import Points, event_points
from nearcast.decision.match.stations import Anchors, Stations
from nearcast.decision.timeline import Positions, Surrounding, Track
from nearcast.model.filter import Atom
from nearcast.model.place import Place

FIRST = 256
"""Events by which shares are estimated."""

MOST = 1 << 25
"""Pairs that are held at once: where everybody is near everything, events are taken in smaller parts."""

OTHERS = 64
"""Events beside the sample, none of which is taken to be near: a single one shall not say much."""


@dataclass(frozen=True, slots=True)
class Near:
    """Which events are near by which atom: those of atom a are `lanes[starts[a]]` … `lanes[starts[a + 1] − 1]`."""

    starts: npt.NDArray[np.int32]
    lanes: npt.NDArray[np.int32]

    def within(self, first: int, last: int) -> Near:
        """The same of the lanes from `first` up to but not including `last` alone, counted from `first`."""
        there = (self.lanes >= first) & (self.lanes < last)
        if there.all() and not first:
            return self
        counts = np.concatenate([[0], np.cumsum(there)])
        return Near(counts[self.starts].astype(np.int32), self.lanes[there] - np.int32(first))


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
        near = self.near(sample, around)
        if near is None:
            return self.shares(table.slice(0, len(sample) // 2), around)
        return np.asarray((np.diff(near.starts) + 0.5) / (len(sample) + OTHERS), np.float64)

    def near(self, table: pa.Table, around: Surrounding) -> Near | None:
        """What is near as of each event's position; None if that is too much at once of so many events."""
        return self._followed.near(around.users, table.column("position").to_numpy(), event_points(table))


def inner(atom: Atom) -> bool | None:
    """Whether an atom is TRUE only near its anchor; False: it is FALSE only there; None: it is of another kind."""
    far = elsewhere(atom) if anchor_of(atom) is not None else None
    return None if far is None else not far


class NearbyAtoms:
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

    def near(self, users: Track[str, Place | None], positions: Positions, events: Points) -> Near | None:
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
        return Near(starts.astype(np.int32), lane[order].astype(np.int32))

    def _found(
        self, stations: Stations, geographic: bool, positions: Positions, events: Points
    ) -> Iterator[tuple[Integers, Integers]]:
        """Atoms and lanes that are near, of one kind of coordinates, part by part."""
        lanes = np.flatnonzero(events.known & (events.geographic == geographic))
        own = np.flatnonzero(stations.points.geographic == geographic)
        if not len(lanes) or not len(own):
            return
        points = Located(vectors_of(events.take(lanes), geographic), positions[lanes] - 1, positions[lanes])
        atom, station = self._probes(stations.anchor[own])
        station = own[station]
        # Receivers are many and few of them move: their vectors are kept.
        vectors = stations.vectors[station] if geographic else vectors_of(stations.points.take(station), False)
        probes = Located(vectors, stations.since[station], stations.through[station])
        for found in self._tests.candidates(atom, probes, points, geographic):
            which, lane = atom[found.probe], lanes[found.point]
            places = stations.points.take(station[found.probe])
            held = self._tests.hold(which, PointPairs(places, events.take(lane), found.square, geographic))
            yield which[held], lane[held]

    def _probes(self, anchor: Integers) -> tuple[Integers, Integers]:
        """Each station with every atom about its anchor: the atoms, and the stations' numbers among those given."""
        first = self._first_atom[anchor]
        count = self._first_atom[anchor + 1] - first
        return self._by_anchor[runs(first, count)], np.repeat(np.arange(len(anchor)), count)
