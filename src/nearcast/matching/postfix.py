"""Filters as flat arrays, each distinct atom once, and the layout of these atoms, with which compiling plans begins.

A filter is its tokens in postfix order: an atom's number, or a connective with how many parts it has. Python walks each
tree once and does nothing else, so a hundred thousand filters are read in about a second.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.matching.atom_table import QUESTION_SHIFT, REST, AtomTable
from nearcast.matching.column_tests import NEARBY, POINTS, Classes, Key
from nearcast.matching.proximity import inner
from nearcast.model.arrays import Int32s, Integers, runs
from nearcast.model.filter import And, Atom, Filter, Not, Or, PlainNot
from nearcast.runtime.background import give_way

AND, OR, NOT, PLAIN_NOT = range(4)
"""A token of a connective is −1 − (number of parts · 4 + one of these)."""

TRUE, FALSE, NOT_TRUE, NOT_FALSE = range(4)
"""The truths that a literal may want of its atom."""

_CONNECTIVE = {And: AND, Or: OR, Not: NOT, PlainNot: PLAIN_NOT}

DEEPEST = 60
"""Connectives within each other that a filter may have: so many masks a program may keep waiting."""

GIVING_WAY = 16
"""Groups that a patient reader reads between giving way: a quarter of a millisecond."""

FilterGroup = tuple[Filter, tuple[int, ...]]


class PostfixFilters(NamedTuple):
    """Groups read into arrays: `packed` tokens with the numbers of a vocabulary, `classes`, where each root's begin.

    Packed, the number of an atom has its question shifted by `shift` only, so 32 bits do for nearly all. `roots` has
    the root of each group, −1 where its tree is too deep to walk; equal groups may have one.
    """

    atom_table: AtomTable
    packed: npt.NDArray[Any]
    shift: int
    starts: Int32s
    classes: npt.NDArray[np.int16]
    class_starts: Int32s
    roots: Int32s

    @property
    def tokens(self) -> Integers:
        """The tokens with the numbers as the vocabulary has them."""
        return shifted(self.packed.astype(np.int64), self.shift, QUESTION_SHIFT)


def packed(tokens: Integers) -> tuple[npt.NDArray[Any], int]:
    """Tokens in as few bits as they take, and by how many of these questions are shifted."""
    numbers = tokens[tokens >= 0]
    shift = int((numbers & REST).max(initial=0)).bit_length()
    packed = shifted(tokens, QUESTION_SHIFT, shift)
    low, high = packed.min(initial=0), packed.max(initial=0)
    wide = low < np.iinfo(np.int32).min or high > np.iinfo(np.int32).max
    return packed if wide else packed.astype(np.int32), shift


def shifted(tokens: Integers, old: int, new: int) -> Integers:
    """Tokens whose questions are shifted by so many bits instead."""
    moved = tokens >> old << new | tokens & (1 << old) - 1
    return np.where(tokens < 0, tokens, moved)


def read(groups: Sequence[FilterGroup], atom_table: AtomTable | None = None, patient: bool = False) -> PostfixFilters:
    """Reads groups; equal ones share a root. Who is `patient` gives way to other threads again and again."""
    found = _Found(atom_table or AtomTable())
    for first in range(0, len(groups), GIVING_WAY):
        with found.atom_table.lock:
            for group in groups[first : first + GIVING_WAY]:
                found.add_group(group)
            found.atom_table.publish()
        if patient:
            # A batch asks for Python's lock a hundred times.
            give_way()
    found.atom_table.told += len(groups)
    return found.flat()


def try_reading(group: FilterGroup, atom_table: AtomTable) -> None:
    """Raises what `read` raises on a group; too deep a tree is no error there."""
    with atom_table.lock:
        _Found(atom_table).add_group(group)


class _Found:
    """What is found while groups are read."""

    def __init__(self, atom_table: AtomTable) -> None:
        self.atom_table = atom_table
        self._tokens = array("q")
        self._classes = array("h")
        self._starts, self._class_starts = array("q", [0]), array("q", [0])
        self._roots = array("q")
        self._known: dict[bytes, int] = {}

    def add_group(self, group: FilterGroup) -> None:
        """Reads a group, unless its tree is too deep."""
        filter, classes = group
        tokens: list[int] = []
        try:
            _walk(filter, DEEPEST, tokens, self.atom_table)
        except RecursionError:
            self._roots.append(-1)
            return
        own = array("q", tokens)
        root = self._known.setdefault(own.tobytes() + array("h", classes).tobytes(), len(self._known))
        if root == len(self._starts) - 1:
            self._tokens += own
            self._classes.extend(classes)
            self._starts.append(len(self._tokens))
            self._class_starts.append(len(self._classes))
        self._roots.append(root)

    def flat(self) -> PostfixFilters:
        """All as arrays."""
        starts, class_starts, roots = (
            np.array(one, np.int32) for one in (self._starts, self._class_starts, self._roots)
        )
        tokens, classes = np.array(self._tokens, np.int64), np.array(self._classes, np.int16)
        return PostfixFilters(self.atom_table, *packed(tokens), starts, classes, class_starts, roots)


def _walk(node: Filter, deeper: int, tokens: list[int], atom_table: AtomTable) -> None:
    kind = type(node)
    if not deeper:
        raise RecursionError
    if kind is Atom:
        tokens.append(atom_table.number(node))  # type: ignore[arg-type]
    elif kind is Not or kind is PlainNot:
        _walk(node.child, deeper - 1, tokens, atom_table)  # type: ignore[union-attr]
        tokens.append(-5 - _CONNECTIVE[kind])
    else:
        children = node.children  # type: ignore[union-attr]
        for child in children:
            # Most are atoms, and to call for each costs as much as to find its number.
            if type(child) is Atom and deeper > 1:
                tokens.append(atom_table.number(child))
            else:
                _walk(child, deeper - 1, tokens, atom_table)
        tokens.append(-1 - (len(children) * 4 + _CONNECTIVE[kind]))


def together(parts: Sequence[tuple[PostfixFilters, npt.NDArray[np.bool_]]]) -> PostfixFilters:
    """Of each part, all of one vocabulary, the groups that are wanted of it, as one; each has a root of its own."""
    chosen = [flat.roots[wanted] for flat, wanted in parts]
    roots = np.concatenate(chosen)
    numbers = np.where(roots < 0, -1, np.cumsum(roots >= 0) - 1)
    kept = [own[own >= 0] for own in chosen]
    flats = [flat for flat, _ in parts]
    tokens, starts = _rows([(flat.tokens, flat.starts, own) for flat, own in zip(flats, kept, strict=True)])
    classes, owns = _rows([(flat.classes, flat.class_starts, own) for flat, own in zip(flats, kept, strict=True)])
    return PostfixFilters(flats[0].atom_table, *packed(tokens), starts, classes, owns, numbers.astype(np.int32))


def _rows(parts: Sequence[tuple[npt.NDArray[Any], Int32s, Int32s]]) -> tuple[npt.NDArray[Any], Int32s]:
    """These rows of each part's values, one behind the other, and where they begin."""
    values, lengths = [], [np.zeros(1, np.int32)]
    for own, starts, rows in parts:
        counts = starts[rows + 1] - starts[rows]
        values.append(own[runs(starts[rows], counts)])
        lengths.append(counts)
    return np.concatenate(values), np.cumsum(np.concatenate(lengths)).astype(np.int32)


@dataclass(frozen=True, slots=True)
class LaidOutAtoms:
    """Atoms as tests of codes, side by side: `kind`, `column`, and `low`, `high`, bounds of codes or into `points`.

    Of one about what is near `low` is its number among these, and `high` the truth that it has only near.
    """

    kind: Int32s
    column: Int32s
    low: Int32s
    high: Int32s
    points: Int32s


class AtomLayout(NamedTuple):
    """Flat filters whose atoms are numbered among themselves; `nearby` are those about what is near.

    `others` are the atoms that codes do not show, by number.
    """

    tokens: Int32s
    starts: Int32s
    classes: npt.NDArray[np.int16]
    class_starts: Int32s
    nearby: list[Atom]
    others: dict[int, Atom]


def compiled(flat: PostfixFilters) -> tuple[dict[Key, Classes], LaidOutAtoms, AtomLayout]:
    """The columns with the classes of their values, the atoms as tests of these, and the filters over these atoms."""
    # Connectives are negative, so they come first.
    given = flat.tokens
    numbers, ranks = np.unique(given, return_inverse=True)
    least = int(np.searchsorted(numbers, 0))
    tokens: Int32s = np.where(given < 0, given, ranks - least).astype(np.int32)
    numbers = numbers[least:]
    nearby: list[Atom] = []
    fields = np.zeros((4, len(numbers)), np.int64)
    others = dict(enumerate(flat.atom_table.opaque(numbers)))
    for number, atom in others.items():
        near = inner(atom)
        if near is not None:
            fields[:, number] = NEARBY, -1, len(nearby), TRUE if near else FALSE
            nearby.append(atom)
    columns: dict[Key, Classes] = {}
    points = [np.array([], np.int32)]
    size = 0
    for column, (key, (which, asked)) in enumerate(flat.atom_table.asked(numbers).items()):
        columns[key], own, listed = asked.compiled()
        own[1:, own[0] == POINTS] += size
        fields[0, which], fields[1, which], fields[2:, which] = own[0], column, own[1:]
        points.append(listed.astype(np.int32))
        size += len(listed)
    kinds, places, lows, highs = fields.astype(np.int32)
    atoms = LaidOutAtoms(kinds, places, lows, highs, np.concatenate(points))
    return columns, atoms, AtomLayout(tokens, flat.starts, flat.classes, flat.class_starts, nearby, others)
