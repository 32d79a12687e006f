"""Location atoms about entities, or about users alone, over a whole batch: who was where while, and what that decides.

Every side of a term is a set of stays: a place, and the lanes for which it holds. Stays of both sides that are near one
another and overlap are found by the grid, so a batch costs what moved in it and neighbours, not its events times all
members (SEMANTICS §4).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nearcast.decision.evaluate import satisfies
from nearcast.decision.match.located import Located as There
from nearcast.decision.match.near_tests import Integers, NearTests, PointPairs, elsewhere, vectors_of
from nearcast.decision.match.points import Flags, Points, points_of
from nearcast.decision.timeline import Members, Positions, Surrounding
from nearcast.model.filter import Atom, Count, Distance, Entities, Located, Operator, This
from nearcast.model.place import Place


@dataclass(frozen=True, slots=True)
class Stays:
    """Places, and the lanes from `begin` up to but not including `end` for which each holds."""

    points: Points
    begin: Integers
    end: Integers

    def take(self, which: npt.NDArray[np.intp]) -> Stays:
        """The stays of these numbers."""
        return Stays(self.points.take(which), self.begin[which], self.end[which])

    def of_kind(self, geographic: bool) -> Stays:
        """Those whose place is known and of one kind."""
        return self.take(np.flatnonzero(self.points.known & (self.points.geographic == geographic)))

    def located(self, geographic: bool) -> There:
        """As a grid takes them, all being of one kind."""
        return There(vectors_of(self.points, geographic), self.begin, self.end)


@dataclass(slots=True)
class Walk:
    """A batch as terms about entities look at it; the stays of a side are made once for all terms."""

    around: Surrounding
    positions: Positions
    events: Points
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
        known = self._present(centres.take(np.flatnonzero(centres.points.known))) > 0
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
        return stays.take(where)

    def _members(self, members: Members) -> Stays:
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
        return Stays(places, begin, end).take(there)


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
        held = tests.hold(only[one], PointPairs(a.points.take(one), b.points.take(other), found.square, geographic))
        one, other = one[held], other[held]
        parts.append((one, np.maximum(a.begin[one], b.begin[other]), np.minimum(a.end[one], b.end[other])))
    return _Meetings(*(np.concatenate(part) for part in zip(*parts, strict=True)))
