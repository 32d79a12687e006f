"""Filters read into flat arrays, each distinct atom once: what the compiled part of compiling begins with.

A filter is its tokens in postfix order: an atom's number, or a connective with how many parts it has. Python walks each
tree once and does nothing else, so a hundred thousand filters are read in about a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.decision.match_codes import Classes, Literals, classes_of
from nearcast.decision.match_nearby import inner
from nearcast.decision.match_tests import Key
from nearcast.model.filter import And, Atom, Filter, Not, Operator, Or, PlainNot
from nearcast.model.values import Value

Integers = npt.NDArray[np.int64]

AND, OR, NOT, PLAIN_NOT = range(4)
"""A token of a connective is −1 − (number of parts · 4 + one of these)."""

OPAQUE, RANGE, OUTSIDE, POINTS, NEARBY = range(5)
"""What an atom asks: nothing that codes show, a code in a range, one not in it, one of several; or to be near."""

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

    kind: Integers
    column: Integers
    low: Integers
    high: Integers
    points: Integers


class Reading:
    """Filters as they are read, and the atoms and literals found in them."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self.tokens: list[int] = []
        self.classes: list[int] = []
        self.starts: list[int] = [0]
        self.class_starts: list[int] = [0]
        self.groups: list[int] = []
        self.root_of_group: list[int] = []
        self.refused: list[int] = []
        self.nearby: list[Atom] = []
        self._numbers: dict[tuple[object, ...], int] = {}
        self._roots: dict[tuple[object, ...], int] = {}
        self._literals: dict[Key, Literals] = {}

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
        key = (atom.name, atom.operator, atom.value, atom.kinds)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.atoms)
            self.atoms.append(atom)
        return number

    def compiled(self) -> tuple[dict[Key, Classes], Atoms]:
        """The columns with the classes of their values, and the atoms as tests of these."""
        found = [self._test(atom) for atom in self.atoms]
        made = {key: classes_of(literals) for key, literals in self._literals.items()}
        numbers = {key: number for number, key in enumerate(made)}
        table = np.zeros((4, len(found)), np.int64)
        points: list[int] = []
        for index, (test, atom) in enumerate(zip(found, self.atoms, strict=True)):
            if test is None:
                near = inner(atom)
                if near is not None:
                    table[:, index] = (NEARBY, -1, len(self.nearby), TRUE if near else FALSE)
                    self.nearby.append(atom)
                continue
            key, literals = test
            classes, place = made[key]
            table[:, index] = (RANGE, numbers[key], 0, 0)
            if atom.operator is Operator.IN and len(literals) > 1:
                own = sorted({int(classes.cut[2 * place[literal] + 1]) for literal in literals})
                table[0, index], table[2, index] = POINTS, len(points)
                points += own
                table[3, index] = len(points)
            else:
                table[0, index] = OUTSIDE if atom.operator is Operator.NE else RANGE
                table[2:, index] = _bounds(atom.operator, classes, [int(place[literal]) for literal in literals])
        return {key: classes for key, (classes, _) in made.items()}, Atoms(
            table[0], table[1], table[2], table[3], np.array(points, np.int64)
        )

    def _test(self, atom: Atom) -> tuple[Key, list[int]] | None:
        """An atom's column and the numbers of its literals; None if codes of one column cannot show its truth."""
        if not isinstance(atom.name, str) or atom.operator in (Operator.LIKE, Operator.IS_NULL):
            return None
        values: tuple[Value, ...] = atom.value if isinstance(atom.value, tuple) else (atom.value,)  # type: ignore[assignment]
        if len(set(atom.kinds)) != 1 or any(value != value for value in values):
            return None
        key = (atom.name, atom.kinds[0])
        literals = self._literals.setdefault(key, Literals())
        found = [literals.number(value) for value in values]
        if atom.operator in _BELOW:
            literals.below.add(found[0])
        if atom.operator in _UPTO:
            literals.upto.add(found[-1])
        if atom.operator in _EQUAL:
            literals.equal.update(found)
        return key, found


_BELOW = (Operator.LT, Operator.GE, Operator.BETWEEN)
_UPTO = (Operator.LE, Operator.GT, Operator.BETWEEN)
_EQUAL = (Operator.EQ, Operator.NE, Operator.IN)


def _bounds(operator: Operator, classes: Classes, places: list[int]) -> tuple[int, int]:
    """The codes from … up to but not including … that an atom asks for, or for `<>` those that it does not."""
    cut, top = classes.cut, classes.size - 1
    first, last = 2 * places[0], 2 * places[-1]
    match operator:
        case Operator.LT:
            return 0, int(cut[first + 1])
        case Operator.LE:
            return 0, int(cut[first + 2])
        case Operator.GT:
            return int(cut[first + 2]), top
        case Operator.GE:
            return int(cut[first + 1]), top
        case Operator.BETWEEN:
            low, high = int(cut[first + 1]), int(cut[last + 2])
            return (low, high) if low < high else (0, 0)
    return int(cut[first + 1]), int(cut[first + 1]) + 1
