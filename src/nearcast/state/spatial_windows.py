"""Which atoms about geometries there are over a batch, in the order in which they are decided, and when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True)
class DecidedGeometries:
    """The truths of spatial atoms for some events, given by their sequences, ascending: shape (events, atoms)."""

    sequences: Integers
    numbers: dict[Atom, int]
    truths: Truths

    def placed(self, sequences: Integers) -> tuple[Integers, Integers]:
        """Which of some events, given by ascending sequences, are among those, and where."""
        at = np.minimum(np.searchsorted(self.sequences, sequences), len(self.sequences) - 1)
        lanes = np.flatnonzero(self.sequences[at] == sequences)
        return lanes, at[lanes]

    def of(self, atom: Atom, rows: Integers) -> Truths | int:
        """The truths of an atom for events at these places; UNKNOWN for one of a filter that is not there any more."""
        number = self.numbers.get(atom)
        return -1 if number is None else self.truths[rows, number]
