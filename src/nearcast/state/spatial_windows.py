"""Which atoms about geometries there are over a batch, in the order in which they are decided, and when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import NamedTuple

import numpy as np

from nearcast.model.arrays import Flags, Integers, Truths
from nearcast.model.filter import Atom

Window = tuple[Atom, int, int]
"""An atom of some filter for the events with after < position ≤ through."""

ALWAYS = (-1, np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class SpatialWindows:
    """The atoms that read geometries, of all filters that are there at some time of a batch, each once, in their order.

    `windows`, shape (n, 3): of an atom, by its number, the positions after which and through which it is there.
    """

    atoms: Sequence[Atom] = ()
    windows: Integers = field(default_factory=lambda: np.zeros((0, 3), np.int64))

    @staticmethod
    def of(ordered: Iterable[Atom]) -> SpatialWindows:
        """Those of filters that do not change, in their order."""
        return SpatialWindows.over([(atom, *ALWAYS) for atom in ordered])

    @staticmethod
    def over(windows: Sequence[Window]) -> SpatialWindows:
        """Windows in the order of their atoms; those of one atom are behind each other."""
        numbers: dict[Atom, int] = {}
        rows = [(numbers.setdefault(atom, len(numbers)), after, through) for atom, after, through in windows]
        return SpatialWindows(tuple(numbers), np.array(rows, np.int64).reshape(-1, 3))

    def at(self, position: int) -> Flags:
        """Which of the atoms are there for an event at a position."""
        found = np.zeros(len(self.atoms), np.bool_)
        number, after, through = self.windows.T
        found[number[(after < position) & (position <= through)]] = True
        return found

    def ends(self) -> Integers:
        """The positions between which the same atoms are there, ascending."""
        return np.unique(self.windows[:, 1:])

    def seen(self, positions: Integers) -> SeenAtoms:
        """Which of the atoms are there for events at these positions, of which there is one at least."""
        asked = np.unique(positions)
        if not self.atoms:
            return SeenAtoms(self, (), (), int(asked[0]), True, asked[:0])
        both = np.concatenate([asked, asked + 1])
        _, first, which = np.unique(np.searchsorted(self.ends(), both), return_index=True, return_inverse=True)
        there = np.array([self.at(int(both[row])) for row in first])
        own, behind = which[: len(asked)], which[len(asked) :]
        moved = np.flatnonzero(own[1:] != behind[:-1])
        moved = moved[(there[own[1:][moved]] != there[behind[:-1][moved]]).any(axis=1)]
        some: Flags = np.asarray(there.any(axis=0))
        always = some.all() and (self.windows[:, 1:] == ALWAYS).all()
        whole = self if always else SpatialWindows.of(compress(self.atoms, some))
        first_seen, last_seen = (tuple(compress(self.atoms, there[one])) for one in (own[0], behind[-1]))
        return SeenAtoms(whole, first_seen, last_seen, int(asked[0]), bool(there[:, some].all()), asked[1:][moved])


class SeenAtoms(NamedTuple):
    """Which atoms some events see, as of their positions.

    `whole` are those that are there for any of them, at all times; `first` those for the first event, at `begin`, and
    `last` those for what comes right behind the last. `steady`: they are all the same. `renewed`: the positions of the
    events for which others are there than right behind the event before.
    """

    whole: SpatialWindows
    first: tuple[Atom, ...]
    last: tuple[Atom, ...]
    begin: int
    steady: bool
    renewed: Integers


@dataclass(frozen=True, slots=True)
class DecidedGeometries:
    """The truths of spatial atoms for some events, given by their sequences, ascending: shape (events, atoms)."""

    sequences: Integers
    numbers: dict[Atom, int]
    truths: Truths
    left: Flags
    """Of which of them some atoms were left undecided, for the work that is allowed was done."""

    def placed(self, sequences: Integers) -> tuple[Integers, Integers]:
        """Which of some events, given by ascending sequences, are among those, and where."""
        at = np.minimum(np.searchsorted(self.sequences, sequences), len(self.sequences) - 1)
        lanes = np.flatnonzero(self.sequences[at] == sequences)
        return lanes, at[lanes]

    def of(self, atom: Atom, rows: Integers) -> Truths | int:
        """The truths of an atom for events at these places; UNKNOWN for one of a filter that is not there any more."""
        number = self.numbers.get(atom)
        return -1 if number is None else self.truths[rows, number]
