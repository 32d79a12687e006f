"""The atoms about attributes of all filters, compiled per column, and their rows in a chunk.

Each atom is one or more tests of columns: an ordering, an equality (IN: one per literal), a pattern. Its truth row is
the union of its tests' rows; its comparable row tells the lanes where some value could be compared, so that FALSE and
UNKNOWN differ (SEMANTICS §2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from nearcast.decision.evaluate import like
from nearcast.decision.match_columns import Codes, Column
from nearcast.decision.match_rows import ALL, ChunkColumn, Numbers, Rows, chunk_column
from nearcast.model.filter import Atom, Operator
from nearcast.model.values import Kind, Value, kind_of

Key = tuple[str, Kind]
KINDS: tuple[Kind, ...] = ("number", "text", "boolean", "time")
ORDERINGS = (Operator.LT, Operator.LE, Operator.GT, Operator.GE)


@dataclass(slots=True)
class ColumnTests:
    """The tests of one column. Numbers in the lists are of atoms and of literals, side by side."""

    ordered: list[Value] = field(default_factory=list)
    orderings: dict[Operator, tuple[list[int], list[int]]] = field(
        default_factory=lambda: {operator: ([], []) for operator in ORDERINGS}
    )
    between: list[int] = field(default_factory=list)
    equal: dict[Value, int] = field(default_factory=dict)
    equals: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    differs: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    patterns: list[int] = field(default_factory=list)

    def add(self, number: int, atom: Atom) -> None:
        """Adds the tests that an atom makes of this column's kind."""
        match atom.operator:
            case Operator.LIKE:
                self.patterns.append(number)
            case Operator.BETWEEN:
                self.between.append(number)
            case Operator.NE:
                self._equality(self.differs, number, atom.value)  # type: ignore[arg-type]
            case operator if operator in ORDERINGS:
                self.orderings[operator][0].append(number)
                self.orderings[operator][1].append(len(self.ordered))
                self.ordered.append(atom.value)  # type: ignore[arg-type]
            case _:
                self._equality(self.equals, number, atom.value)  # type: ignore[arg-type]

    def _equality(self, tests: tuple[list[int], list[int]], number: int, literal: Value) -> None:
        tests[0].append(number)
        tests[1].append(self.equal.setdefault(literal, len(self.equal)))


class AtomTests:
    """All distinct atoms about attributes, by column. Atoms are numbered in the order of their adding."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self.columns: dict[Key, ColumnTests] = {}
        self.by_column: dict[Key, list[int]] = {}
        self.in_lists: list[int] = []
        self.mixed: list[int] = []
        self.presence: list[int] = []

    def add(self, atom: Atom) -> int:
        """Compiles an atom about an attribute; returns its number."""
        number = len(self.atoms)
        self.atoms.append(atom)
        name = str(atom.name)
        if atom.operator is Operator.IS_NULL:
            self.presence.append(number)
            for kind in KINDS:
                self.columns.setdefault((name, kind), ColumnTests())
            return number
        for part in parts_of(atom):
            tests = self.columns.setdefault((name, kind_of_test(part)), ColumnTests())
            tests.add(number, part)
        if atom.operator is Operator.IN:
            self.in_lists.append(number)
        keys = self.keys(number)
        if len(keys) > 1:
            self.mixed.append(number)
        for key in keys:
            self.by_column.setdefault(key, []).append(number)
        return number

    def keys(self, number: int) -> list[Key]:
        """The columns in which an atom can compare: of each kind that its literals have."""
        atom = self.atoms[number]
        if atom.operator is Operator.IS_NULL:
            return [(str(atom.name), kind) for kind in KINDS]
        return list(dict.fromkeys((str(atom.name), kind_of_test(part)) for part in parts_of(atom)))


def parts_of(atom: Atom) -> list[Atom]:
    """The one-kind tests of which an atom is the union; none for a BETWEEN whose ends do not compare."""
    if atom.operator is Operator.IN:
        return [Atom(atom.name, Operator.EQ, literal) for literal in atom.value]  # type: ignore[union-attr]
    if atom.operator is Operator.BETWEEN:
        low, high = atom.value  # type: ignore[misc]
        return [atom] if kind_of(low) == kind_of(high) else []
    return [atom]


def kind_of_test(test: Atom) -> Kind:
    """The kind of values that a one-kind test compares."""
    if test.operator is Operator.LIKE:
        return "text"
    return kind_of(test.value[0] if isinstance(test.value, tuple) else test.value)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class BatchColumn:
    """A column of the batch with its tests' literals placed among its values: the work done once per batch.

    `below`, `upto`: bounds of the ordered literals. `code`: of each equal literal, −1 where the batch has it not.
    `spans`: code bounds of each BETWEEN. `members`: of each pattern the codes that match.
    """

    column: Column
    tests: ColumnTests
    below: Codes
    upto: Codes
    code: Codes
    spans: list[tuple[int, int]]
    members: list[Codes]


def place(column: Column, tests: ColumnTests, atoms: Sequence[Atom]) -> BatchColumn:
    """Places the literals of a column's tests among the values of the batch."""
    below, upto = column.bounds(tests.ordered)
    spans = []
    for number in tests.between:
        low, high = column.bounds(atoms[number].value)  # type: ignore[arg-type]
        spans.append((int(low[0]), int(high[1])))
    return BatchColumn(column, tests, below, upto, _codes(column, tests.equal), spans, _members(column, tests, atoms))


def _codes(column: Column, literals: Mapping[Value, int]) -> Codes:
    """The code of each literal: by looking the batch's texts up among the literals, other kinds by their bounds."""
    codes = np.full(len(literals), -1, np.int64)
    if not literals:
        return codes
    if isinstance(column.values, list) and column.values and isinstance(column.values[0], str):
        for code, value in enumerate(column.values):
            number = literals.get(value)
            if number is not None:
                codes[number] = code
        return codes
    below, upto = column.bounds(list(literals))
    return np.where(upto > below, below, -1)


def _members(column: Column, tests: ColumnTests, atoms: Sequence[Atom]) -> list[Codes]:
    found = []
    for number in tests.patterns:
        matches = like(str(atoms[number].value)).fullmatch
        found.append(np.flatnonzero([matches(value) is not None for value in column.values]))
    return found


class ChunkAtoms:
    """The atoms' rows in one chunk, kept in sections.

    `true[atom]` is the row of the lanes where the atom holds, `comparable[atom]` that of the lanes where it is not
    UNKNOWN. Row 0 is empty, row 1 full.
    """

    def __init__(self, tests: AtomTests, batch: Mapping[Key, BatchColumn], first: int, lanes: int, width: int) -> None:
        self._sections: list[Rows] = [np.zeros((1, width), np.uint64), np.full((1, width), ALL)]
        self._size = 2
        self.true: Numbers = np.zeros(len(tests.atoms), np.intp)
        self.comparable: Numbers = np.zeros(len(tests.atoms), np.intp)
        self.columns = {key: chunk_column(placed.column, first, lanes) for key, placed in batch.items()}
        self._width = width
        lists: dict[int, list[Rows]] = {number: [] for number in tests.in_lists}
        for key, placed in batch.items():
            self._orderings(placed, self.columns[key])
            self._equalities(placed, self.columns[key], lists)
            self._rest(placed, self.columns[key])
        for number, found in lists.items():
            self.true[number] = self.append(self._union(found)) if found else 0
        for key in batch:
            self.comparable[tests.by_column.get(key, [])] = self.append(self.columns[key].present)
        for number in tests.mixed:
            self.comparable[number] = self.append(self._present(tests.keys(number)))
        for number in tests.presence:
            self.true[number], self.comparable[number] = self.append(~self._present(tests.keys(number))), 1

    def append(self, rows: Rows) -> int:
        """Adds rows to the chunk's; returns the number of the first."""
        section = rows.reshape(-1, self._width)
        self._sections.append(section)
        self._size += len(section)
        return self._size - len(section)

    def rows(self) -> Rows:
        """All rows so far, as one array."""
        return np.concatenate(self._sections)

    def _present(self, keys: Iterable[Key]) -> Rows:
        return self._union([self.columns[key].present for key in keys if key in self.columns])

    def _union(self, rows: list[Rows]) -> Rows:
        union = np.zeros(self._width, np.uint64)
        for row in rows:
            union |= row
        return union

    def _orderings(self, placed: BatchColumn, column: ChunkColumn) -> None:
        if not placed.tests.ordered:
            return
        below, upto = column.rank(placed.below), column.rank(placed.upto)
        lesser, greater = self.append(column.below), self.append(column.above)
        starts = {
            Operator.LT: (lesser, below),
            Operator.LE: (lesser, upto),
            Operator.GT: (greater, upto),
            Operator.GE: (greater, below),
        }
        for operator, (numbers, literals) in placed.tests.orderings.items():
            base, ranks = starts[operator]
            self.true[numbers] = base + ranks[literals]

    def _equalities(self, placed: BatchColumn, column: ChunkColumn, lists: dict[int, list[Rows]]) -> None:
        tests = placed.tests
        if not tests.equal:
            return
        ranks = np.minimum(column.rank(placed.code), max(len(column.codes) - 1, 0))
        found = (column.codes[ranks] == placed.code) if len(column.codes) else np.zeros(len(ranks), np.bool_)
        base = self.append(column.equal)
        row = np.where(found, base + ranks, 0)
        numbers, literals = tests.equals
        self.true[numbers] = row[literals]
        for number, literal in zip(*tests.equals, strict=True):
            if number in lists and found[literal]:
                lists[number].append(column.equal[ranks[literal]])
        for number, literal in zip(*tests.differs, strict=True):
            self.true[number] = self.append(_other_than(column, int(ranks[literal]) if found[literal] else None))

    def _rest(self, placed: BatchColumn, column: ChunkColumn) -> None:
        for number, (low, high) in zip(placed.tests.between, placed.spans, strict=True):
            first, last = column.rank(np.array([low, high]))
            self.true[number] = self.append(self._span(column, int(first), int(last)))
        for number, members in zip(placed.tests.patterns, placed.members, strict=True):
            here = np.isin(column.codes, members)
            self.true[number] = self.append(np.bitwise_or.reduce(column.equal[here], axis=0))

    def _span(self, column: ChunkColumn, first: int, last: int) -> Rows:
        if column.single:
            return column.above[first] & column.below[last]
        return np.bitwise_or.reduce(column.equal[first:last], axis=0)


def _other_than(column: ChunkColumn, rank: int | None) -> Rows:
    """Lanes with a value that is not this one; a NaN differs from everything."""
    if rank is None:
        return column.present
    others: Rows = column.below[rank] | column.above[rank + 1] | column.nan
    return others
