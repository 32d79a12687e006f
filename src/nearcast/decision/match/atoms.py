"""The rows of the atoms about attributes: literals placed among a batch's values once, then looked up chunk by chunk.

An atom's true row has the lanes where it holds; its comparable row the lanes where some value could be compared, so
that FALSE and UNKNOWN differ (SEMANTICS §2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.decision.match.columns import Codes, Column
from nearcast.decision.match.rows import ALL, ChunkColumn, Numbers, Rows, chunk_column
from nearcast.decision.match.tests import AtomTests, ColumnTests, Key
from nearcast.decision.patterns import like
from nearcast.model.filter import Operator
from nearcast.model.values import Value

EMPTY, FULL = 0, 1
"""The numbers of the two rows that every chunk has."""


@dataclass(frozen=True, slots=True)
class BatchColumn:
    """A column of the batch with its tests' literals placed among its values: the work done once per batch.

    `below`, `upto`: bounds of the ordered literals. `code`: of each equal literal, −1 where the batch has it not.
    `spans`: code bounds of each BETWEEN, shape (spans, 2). `members`: of each pattern the codes that match.
    """

    column: Column
    tests: ColumnTests
    below: Codes
    upto: Codes
    code: Codes
    spans: Codes
    members: Sequence[Codes]


def place(column: Column, tests: ColumnTests) -> BatchColumn:
    """Places the literals of a column's tests among the values of the batch."""
    below, upto = column.bounds(tests.ordered)
    spans = np.zeros((len(tests.spans), 2), np.int64)
    for row, ends in enumerate(tests.spans.values()):
        low, high = column.bounds(ends)
        spans[row] = low[0], high[1]
    return BatchColumn(column, tests, below, upto, _codes(column, tests.equal), spans, _members(column, tests))


def _codes(column: Column, literals: Mapping[Value, int]) -> Codes:
    """The code of each literal: by looking the batch's texts up among the literals, other kinds by their bounds."""
    codes = np.full(len(literals), -1, np.int64)
    if literals and isinstance(column.values, list) and column.values and isinstance(column.values[0], str):
        for code, value in enumerate(column.values):
            number = literals.get(value)
            if number is not None:
                codes[number] = code
    elif literals:
        below, upto = column.bounds(list(literals))
        codes = np.where(upto > below, below, -1)
    return codes


def _members(column: Column, tests: ColumnTests) -> list[Codes]:
    matches = [like(pattern).fullmatch for pattern in tests.patterns.values()]
    return [np.flatnonzero([match(value) is not None for value in column.values]) for match in matches]


class ChunkAtoms:
    """The atoms' rows in one chunk, kept in sections.

    `true[atom]` is the row of the lanes where the atom holds, `comparable[atom]` that of the lanes where it is not
    UNKNOWN.
    """

    def __init__(self, tests: AtomTests, batch: Mapping[Key, BatchColumn], first: int, lanes: int, width: int) -> None:
        self._width = width
        self._sections: list[Rows] = [np.zeros((1, width), np.uint64), np.full((1, width), ALL)]
        self._size = 2
        self._mixed: dict[int, list[Rows]] = {number: [] for number in tests.mixed}
        self.true: Numbers = np.full(tests.size, EMPTY, np.intp)
        self.comparable: Numbers = np.full(tests.size, EMPTY, np.intp)
        self.columns = {key: chunk_column(placed.column, first, lanes) for key, placed in batch.items()}
        for key, placed in batch.items():
            self._orderings(placed, self.columns[key])
            self._equalities(placed, self.columns[key])
            self._spans(placed, self.columns[key])
            self._patterns(placed, self.columns[key])
            self.comparable[placed.tests.atoms] = self.append(self.columns[key].present)
        self._several_columns(tests)

    def append(self, rows: Rows) -> int:
        """Adds rows to the chunk's; returns the number of the first."""
        section = rows.reshape(-1, self._width)
        self._sections.append(section)
        self._size += len(section)
        return self._size - len(section)

    def rows(self) -> Rows:
        """All rows so far, as one array."""
        return np.concatenate(self._sections)

    def _orderings(self, placed: BatchColumn, column: ChunkColumn) -> None:
        if not len(placed.below):
            return
        below, upto = column.rank(placed.below), column.rank(placed.upto)
        lesser, greater = self.append(column.below()), self.append(column.above())
        starts = {
            Operator.LT: (lesser, below),
            Operator.LE: (lesser, upto),
            Operator.GT: (greater, upto),
            Operator.GE: (greater, below),
        }
        for operator, (numbers, literals) in placed.tests.orderings.items():
            base, ranks = starts[operator]
            self.true[numbers] = base + ranks[literals]

    def _equalities(self, placed: BatchColumn, column: ChunkColumn) -> None:
        if not len(placed.code):
            return
        if not len(column.codes):
            self.true[placed.tests.differs[0]] = self.append(column.present)
            return
        # A literal beyond all values has no rank here; that its code is another tells.
        ranks = np.minimum(column.rank(placed.code), len(column.codes) - 1)
        found = column.codes[ranks] == placed.code
        base = self.append(column.equal)
        numbers, literals = placed.tests.equals
        self.true[numbers] = np.where(found, base + ranks, EMPTY)[literals]
        self._lists(placed, column, ranks, found)
        self._differs(placed, column, ranks, found)

    def _lists(self, placed: BatchColumn, column: ChunkColumn, ranks: Numbers, found: npt.NDArray[np.bool_]) -> None:
        numbers, literals = placed.tests.lists
        hits = np.flatnonzero(found[literals])
        if not len(hits):
            return
        atoms = numbers[hits]
        starts = np.flatnonzero(np.diff(atoms, prepend=-1))
        unions = np.bitwise_or.reduceat(column.equal[ranks[literals[hits]]], starts, axis=0)
        base = self.append(unions)
        self.true[atoms[starts]] = base + np.arange(len(starts))
        for number, union in zip(atoms[starts].tolist(), unions, strict=True) if self._mixed else ():
            if number in self._mixed:
                self._mixed[number].append(union)

    def _differs(self, placed: BatchColumn, column: ChunkColumn, ranks: Numbers, found: npt.NDArray[np.bool_]) -> None:
        """A lane with a value that is not the literal; a NaN differs from everything."""
        numbers, literals = placed.tests.differs
        if not len(numbers):
            return
        others = column.below()[ranks[literals]] | column.above()[ranks[literals] + 1] | column.nan
        base = self.append(np.where(found[literals][:, None], others, column.present))
        self.true[numbers] = base + np.arange(len(numbers))

    def _spans(self, placed: BatchColumn, column: ChunkColumn) -> None:
        if not len(placed.spans):
            return
        below, above = column.below(), column.above()
        for number, (first, last) in zip(placed.tests.spans, column.rank(placed.spans), strict=True):
            self.true[number] = self.append(
                # Of several values of a lane one may be above the low end and another below the high one.
                above[first] & below[last] if column.single else np.bitwise_or.reduce(column.equal[first:last], axis=0)
            )

    def _patterns(self, placed: BatchColumn, column: ChunkColumn) -> None:
        for number, members in zip(placed.tests.patterns, placed.members, strict=True):
            here = np.isin(column.codes, members)
            self.true[number] = self.append(np.bitwise_or.reduce(column.equal[here], axis=0))

    def _several_columns(self, tests: AtomTests) -> None:
        for number, keys in tests.mixed.items():
            self.true[number] = self.append(self._union(self._mixed[number]))
            self.comparable[number] = self.append(self._present(keys))
        for number, keys in tests.presence.items():
            self.true[number], self.comparable[number] = self.append(~self._present(keys)), FULL

    def _present(self, keys: Iterable[Key]) -> Rows:
        return self._union(self.columns[key].present for key in keys if key in self.columns)

    def _union(self, rows: Iterable[Rows]) -> Rows:
        union = np.zeros(self._width, np.uint64)
        for row in rows:
            union |= row
        return union
