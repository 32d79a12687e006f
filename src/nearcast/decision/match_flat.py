"""Filters read into flat arrays, each distinct atom once: what the compiled part of compiling begins with.

A filter is its tokens in postfix order: an atom's number, or a connective with how many parts it has. Python walks each
tree once and does nothing else, so a hundred thousand filters are read in about a second.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.decision.match_asked import NEARBY, OPAQUE, POINTS, Asked, key_of
from nearcast.decision.match_codes import Classes
from nearcast.decision.match_nearby import inner
from nearcast.decision.match_tests import Key
from nearcast.model.filter import And, Atom, Filter, Not, Or, PlainNot

Short = npt.NDArray[np.int32]

AND, OR, NOT, PLAIN_NOT = range(4)
"""A token of a connective is −1 − (number of parts · 4 + one of these)."""

TRUE, FALSE, NOT_TRUE, NOT_FALSE = range(4)
"""The truths that a literal may want of its atom."""

_CONNECTIVE = {And: AND, Or: OR, Not: NOT, PlainNot: PLAIN_NOT}

DEEPEST = 60
"""Connectives within each other that a filter may have: so many masks a program may keep waiting."""

Group = tuple[Filter, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Atoms:
    """Atoms as tests of codes, side by side: `kind`, `column`, and `low`, `high`, bounds of codes or into `points`.

    Of one about what is near `low` is its number among these, and `high` the truth that it has only near.
    """

    kind: Short
    column: Short
    low: Short
    high: Short
    points: Short


class Reading:
    """Filters as they are read, and the atoms and literals found in them."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self.tokens: Any = []
        self.classes: Any = []
        self.starts: Any = [0]
        self.class_starts: Any = [0]
        self.groups: list[int] = []
        self.root_of_group: list[int] = []
        self.refused: list[int] = []
        self.nearby: list[Atom] = []
        self.others: dict[int, Atom] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        self._roots: dict[tuple[object, ...], int] = {}

    def read(self, groups: Sequence[Group]) -> None:
        """Reads groups; those that are equal to an earlier one share its root, a tree too deep to walk is refused."""
        for number, (filter, classes) in enumerate(groups):
            start = self.starts[-1]
            try:
                self._walk(filter, DEEPEST)
            except RecursionError:
                del self.tokens[start:]
                self.refused.append(number)
                continue
            key = (*self.tokens[start:], *classes)
            root = self._roots.setdefault(key, len(self._roots))
            if root == len(self.starts) - 1:
                self.classes += classes
                self.starts.append(len(self.tokens))
                self.class_starts.append(len(self.classes))
            else:
                del self.tokens[start:]
            self.groups.append(number)
            self.root_of_group.append(root)

    def pack(self, atoms: Atoms) -> None:
        """Once all is read and compiled: arrays in the place of lists, and nothing that only reading needs.

        Of the atoms those that codes do not show stay.
        """
        without_codes = np.flatnonzero(np.isin(atoms.kind, (OPAQUE, NEARBY)))
        self.others = {number: self.atoms[number] for number in without_codes.tolist()}
        self.atoms = []
        self.tokens, self.starts = np.array(self.tokens, np.int32), np.array(self.starts, np.int32)
        self.classes, self.class_starts = np.array(self.classes, np.int16), np.array(self.class_starts, np.int32)
        self.groups, self.root_of_group, self._numbers, self._roots = [], [], {}, {}

    def _walk(self, node: Filter, deeper: int) -> None:
        kind = type(node)
        if not deeper:
            raise RecursionError
        if kind is Atom:
            self.tokens.append(self._atom(node))  # type: ignore[arg-type]
        elif kind is Not or kind is PlainNot:
            self._walk(node.child, deeper - 1)  # type: ignore[union-attr]
            self.tokens.append(-5 - _CONNECTIVE[kind])
        else:
            children = node.children  # type: ignore[union-attr]
            for child in children:
                self._walk(child, deeper - 1)
            self.tokens.append(-1 - (len(children) * 4 + _CONNECTIVE[kind]))

    def _atom(self, atom: Atom) -> int:
        # The operator by its own text, for the hash of an enumeration is slow.
        key = (atom.name, atom.operator._value_, atom.value, atom.kinds)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.atoms)
            self.atoms.append(atom)
        return number

    def compiled(self) -> tuple[dict[Key, Classes], Atoms]:
        """The columns with the classes of their values, and the atoms as tests of these."""
        asked: dict[Key, Asked] = defaultdict(Asked)
        fields = np.zeros((4, len(self.atoms)), np.int64)
        for number, atom in enumerate(self.atoms):
            key = key_of(atom)
            if key is not None:
                asked[key].add(number, atom)
            elif (near := inner(atom)) is not None:
                fields[:, number] = NEARBY, -1, len(self.nearby), TRUE if near else FALSE
                self.nearby.append(atom)
        columns: dict[Key, Classes] = {}
        points = [np.array([], np.int32)]
        size = 0
        for column, (key, one) in enumerate(asked.items()):
            columns[key], own, listed = one.compiled(key[1])
            own[1:, own[0] == POINTS] += size
            fields[0, one.atoms], fields[1, one.atoms], fields[2:, one.atoms] = own[0], column, own[1:]
            points.append(listed.astype(np.int32))
            size += len(listed)
        kinds, places, lows, highs = fields.astype(np.int32)
        return columns, Atoms(kinds, places, lows, highs, np.concatenate(points))
