"""Groups matched by rows of bits: one operation per node of the common graph of all filters, for 1,024 events at once.

Every node is evaluated in every batch, but nothing has to be compiled, and any atom may be in it.

Equal parts are one node, however many filters have them, so each is evaluated once. A layer holds the nodes whose parts
all lie in lower layers; its nodes with the same connective and number of parts are computed together, as one operation
on whole arrays.

An atom's true row has the lanes where it holds; its comparable row the lanes where some value could be compared, so
that FALSE and UNKNOWN differ (semantics §2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.filters.evaluate import RequiredTruth
from nearcast.filters.like_patterns import like
from nearcast.filters.normal_form import Every, Form, Literal, Some, plain_form, threshold_forms
from nearcast.matching.batch_columns import (
    ALL,
    LANES,
    ChunkColumn,
    Codes,
    Column,
    Numbers,
    PlaceArrays,
    Rows,
    bits,
    chunk_column,
    encode,
    event_points,
    pack,
    words,
)
from nearcast.matching.column_tests import AtomTests, ColumnTests, Key
from nearcast.matching.computed_atoms import ComputedAtoms, packed_truths
from nearcast.matching.location_atoms import DistanceAtoms, Paths, Walk, anchor_of
from nearcast.model.expression import Call
from nearcast.model.filter import Filter, Operator
from nearcast.state.timeline import Environment, Positions

WIDE = 8
"""Nodes of more parts than this are reduced segment by segment instead of column by column."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """An inner node: its connective and the numbers of its parts, ascending."""

    kind: type[Every] | type[Some]
    parts: tuple[int, ...]


class FilterGraph:
    """Nodes numbered in the order of their adding: parts before wholes. `literal` gives each literal's number."""

    def __init__(self) -> None:
        self.nodes: list[Literal | GraphNode] = []
        self._numbers: dict[Literal | GraphNode, int] = {}
        self._heights: list[int] = []

    def add_form(self, form: Form) -> int:
        """Adds a form and returns its node; a form that is there already is not added again."""
        if isinstance(form, Literal):
            return self._number(form, 0)
        parts = tuple(sorted({self.add_form(part) for part in form.parts}))
        if len(parts) == 1:
            return parts[0]
        return self._number(GraphNode(type(form), parts), 1 + max(self._heights[part] for part in parts))

    def _number(self, node: Literal | GraphNode, height: int) -> int:
        number = self._numbers.setdefault(node, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(node)
            self._heights.append(height)
        return number

    def layers(self) -> GraphLayers:
        """The graph as it stands, ready to be evaluated."""
        literals = [number for number, node in enumerate(self.nodes) if isinstance(node, Literal)]
        batches: dict[tuple[int, str, int], list[int]] = defaultdict(list)
        for number, node in enumerate(self.nodes):
            if isinstance(node, GraphNode):
                arity = len(node.parts) if len(node.parts) <= WIDE else WIDE + 1
                batches[self._heights[number], node.kind.__name__, arity].append(number)
        steps = [
            GraphStep(Every.__name__ == kind, np.array(numbers), [self._parts(number) for number in numbers])
            for (_, kind, _), numbers in sorted(batches.items())
        ]
        return GraphLayers(len(self.nodes), np.array(literals, np.intp), steps)

    def _parts(self, number: int) -> tuple[int, ...]:
        node = self.nodes[number]
        return node.parts if isinstance(node, GraphNode) else ()


class GraphStep:
    """Nodes of one layer, connective and (unless wide) number of parts."""

    def __init__(self, every: bool, numbers: Numbers, parts: list[tuple[int, ...]]) -> None:
        self.numbers = numbers
        self._operation: Callable[..., Rows] = np.bitwise_and if every else np.bitwise_or
        self._reduce = (np.bitwise_and if every else np.bitwise_or).reduceat
        lengths = {len(part) for part in parts}
        self._table = np.array(parts, np.intp).T if len(lengths) == 1 and max(lengths) <= WIDE else None
        self._flat = np.array([number for part in parts for number in part], np.intp)
        self._starts = np.cumsum([0, *(len(part) for part in parts[:-1])])

    def compute(self, rows: Rows, where: Numbers) -> Rows:
        """The nodes' rows, from those of their parts."""
        if self._table is None:
            return self._reduce(rows[where[self._flat]], self._starts, axis=0)
        result = rows[where[self._table[0]]]
        for part in self._table[1:]:
            self._operation(result, rows[where[part]], out=result)
        return result


@dataclass(frozen=True, slots=True)
class GraphLayers:
    """A graph ready to be evaluated: how many nodes, which are literals, and the steps in their order."""

    size: int
    literals: Numbers
    steps: list[GraphStep]

    def evaluate(self, rows: Rows, literal_rows: Numbers) -> tuple[Rows, Numbers]:
        """All rows after evaluation, and for each node which row is its own.

        `rows`, shape (r, words), holds the literals' rows; `literal_rows[i]` is that of literal i.
        """
        inner = sum(len(step.numbers) for step in self.steps)
        size = len(rows)
        together = np.empty((size + inner, rows.shape[1]), np.uint64)
        together[:size] = rows
        where = np.zeros(self.size, np.intp)
        where[self.literals] = literal_rows
        for step in self.steps:
            end = size + len(step.numbers)
            together[size:end] = step.compute(together, where)
            where[step.numbers] = np.arange(size, end)
            size = end
        return together, where


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
    spans = np.zeros((0, 2), np.int64)
    if tests.spans:
        lows, highs = column.bounds(tests.ends)
        spans = np.stack((lows[::2], highs[1::2]), axis=1)
    return BatchColumn(column, tests, below, upto, _codes(column, tests), spans, _members(column, tests))


def _codes(column: Column, tests: ColumnTests) -> Codes:
    """The code of each literal: by looking the batch's texts up among the literals, other kinds by their bounds."""
    literals = tests.equal
    codes = np.full(len(literals), -1, np.int64)
    if literals and isinstance(column.values, list) and column.values and isinstance(column.values[0], str):
        for code, value in enumerate(column.values):
            number = literals.get(value)
            if number is not None:
                codes[number] = code
    elif literals:
        below, upto = column.bounds(tests.equal_literals)
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


FilterGroup = tuple[Filter, tuple[int, ...]]
"""A filter, and the class of each of its atoms in document order."""

TOGETHER = 2_048
"""Distances from anchors that are computed together: so many numbers for each of a chunk's lanes."""


@dataclass(frozen=True, slots=True)
class MatchedPairs:
    """What matched: for each pair the event's lane in the table, the group's number, the level."""

    lanes: npt.NDArray[np.signedinteger]
    groups: npt.NDArray[np.signedinteger]
    levels: npt.NDArray[np.int8]


class BitsetMatcher:
    """Compiled groups. Groups are numbered in their order; the index itself never changes and may be pickled.

    Groups whose filters go too deep are `left_out`: they select nothing and take nothing else down. `conditions` are
    filters whose lanes `selected` and `held` give.
    """

    def __init__(self, groups: Sequence[FilterGroup], conditions: Sequence[Filter] = ()) -> None:
        graph = FilterGraph()
        roots: list[tuple[int, int, int]] = []
        following: list[int] = []
        self.left_out: list[int] = []
        for number, (filter, classes) in enumerate(groups):
            try:
                nodes = [(graph.add_form(form), level) for level, form in threshold_forms(filter, classes).items()]
            except RecursionError:
                self.left_out.append(number)
                continue
            roots += [(node, number, level) for node, level in nodes]
            following += [node for node, _ in nodes[1:]] + [-1] * (len(nodes) > 0)
        self._conditions = [graph.add_form(plain_form(condition)) for condition in conditions]
        literals = [node for node in graph.nodes if isinstance(node, Literal)]
        distinct = list(dict.fromkeys(literal.atom for literal in literals))
        plain = [atom for atom in distinct if isinstance(atom.name, str)]
        self._tests = AtomTests(plain)
        self._location = [atom for atom in distinct if not isinstance(atom.name, (str, Call))]
        self._computed = ComputedAtoms([atom for atom in distinct if isinstance(atom.name, Call)])
        numbers = {atom: number for number, atom in enumerate([*plain, *self._location, *self._computed.atoms])}
        self._measured = np.array([anchor_of(atom) is not None for atom in self._location], np.bool_)
        measured = [atom for atom in self._location if anchor_of(atom)]
        self._distances = [DistanceAtoms(measured[at : at + TOGETHER]) for at in range(0, len(measured), TOGETHER)]
        self._atom = np.array([numbers[literal.atom] for literal in literals], np.intp)
        self._wanted = [
            np.array([literal.wanted is wanted for literal in literals], np.bool_) for wanted in RequiredTruth
        ]
        self._layers = graph.layers()
        self._roots = np.array(roots, np.int64).reshape(-1, 3)
        self._next = np.array(following, np.int64)

    def match(self, table: pa.Table, around: Environment) -> MatchedPairs:
        """The pairs of a table of EVENTS, ascending by position, with all groups: by lane, then group."""
        found = list(self._match_chunks(table, around))
        lanes, groups, levels = (np.concatenate(parts) for parts in zip(*found, strict=True)) if found else _NO_PAIRS
        return MatchedPairs(lanes, groups, levels)

    def selected(self, table: pa.Table) -> list[npt.NDArray[np.bool_]]:
        """For each condition, which events of the table satisfy it; conditions know no surroundings."""
        return self.held(table, Environment())

    def held(self, table: pa.Table, around: Environment) -> list[npt.NDArray[np.bool_]]:
        """The same with surroundings, as of each event's position."""
        flags = [np.zeros(len(table), np.bool_) for _ in self._conditions]
        for first, lanes, rows, where in self._chunks(table, around):
            for flag, node in zip(flags, self._conditions, strict=True):
                unpacked = np.unpackbits(rows[where[node]].view(np.uint8), bitorder="little")
                flag[first : first + lanes] = unpacked[:lanes]
        return flags

    def _match_chunks(self, table: pa.Table, around: Environment) -> Iterator[tuple[Numbers, Numbers, Numbers]]:
        if not len(self._roots):
            return
        (nodes, groups, levels), following = self._roots.T, self._next
        for first, lanes, rows, where in self._chunks(table, around):
            held = rows[where[nodes]]
            # A pair has its greatest level only: where the next threshold holds too, this one is not it.
            graded = following >= 0
            held[graded] &= ~rows[where[following[graded]]]
            held &= bits(np.arange(lanes), held.shape[1])
            root, lane = _set_bits(held)
            # By lane; within a lane the order stays that of the roots, which is that of the groups.
            order = np.argsort(lane.astype(np.uint16), kind="stable")
            root, lane = root[order], lane[order]
            yield lane + first, groups[root], levels[root].astype(np.int8)

    def _chunks(self, table: pa.Table, around: Environment) -> Iterator[tuple[int, int, Rows, Numbers]]:
        """For each chunk its first lane, its number of lanes, and the rows of all nodes."""
        columns = encode(table, self._tests.columns)
        placed = {key: place(column, self._tests.columns[key]) for key, column in columns.items()}
        positions = table.column("position").to_numpy()
        points = event_points(table) if self._location else None
        paths = [Paths(distances.anchors, around.users) for distances in self._distances]
        walk = Walk(around, positions, points) if points else None
        walked = [walk.truths(self._location[number]) for number in np.flatnonzero(~self._measured)] if walk else []
        shared = self._computed.truths_by_place(table, around) if self._computed.atoms and len(table) > LANES else None
        for first in range(0, len(table), LANES):
            lanes = min(LANES, len(table) - first)
            chunk = ChunkAtoms(self._tests, placed, first, lanes, words(lanes))
            true, comparable = chunk.true, chunk.comparable
            if points:
                here, there = positions[first : first + lanes], points.lanes(first, first + lanes)
                aside = [pack(np.array(truths)[:, first : first + lanes], words(lanes)) for truths in walked]
                located = self._locate(chunk, paths, here, there, aside)
                true, comparable = np.concatenate([[true, comparable], located], axis=1)
            if self._computed.atoms:
                if shared is None:
                    computed = self._computed.rows(table.slice(first, lanes), around)
                else:
                    computed = packed_truths(shared[:, first : first + lanes])
                found = [chunk.append(rows) for rows in computed]
                own = np.arange(len(self._computed.atoms))
                true, comparable = np.concatenate([[true, comparable], [own + at for at in found]], axis=1)
            rows, literal_rows = self._literals(chunk.rows(), true, comparable)
            yield first, lanes, *self._layers.evaluate(rows, literal_rows)

    def _locate(
        self,
        chunk: ChunkAtoms,
        paths: Sequence[Paths],
        positions: Positions,
        points: PlaceArrays,
        aside: Sequence[Rows],
    ) -> npt.NDArray[np.intp]:
        """Adds the location atoms' rows to a chunk's; returns which are their true ones, and which their comparable.

        `aside` has both of each atom that is about more than an anchor and the event.
        """
        found = np.zeros((2, len(self._location)), np.intp)
        width = words(len(positions))
        own = np.flatnonzero(self._measured)
        for number, (distances, path) in enumerate(zip(self._distances, paths, strict=True)):
            path.move_to(positions)
            for which, rows in enumerate(distances.rows(path, points, width)):
                atoms = own[number * TOGETHER :][: len(rows)]
                found[which, atoms] = chunk.append(rows) + np.arange(len(rows))
        for other, rows in zip(np.flatnonzero(~self._measured), aside, strict=True):
            found[:, other] = chunk.append(rows) + np.arange(2)
        return found

    def _literals(self, rows: Rows, true: Numbers, comparable: Numbers) -> tuple[Rows, Numbers]:
        """The rows with those of literals that want another truth than TRUE, and each literal's row."""
        where = true[self._atom]
        sections = [rows]
        size = len(rows)
        for wanted, chosen in zip(RequiredTruth, self._wanted, strict=True):
            if wanted is RequiredTruth.TRUE or not chosen.any():
                continue
            held, known = rows[true[self._atom[chosen]]], rows[comparable[self._atom[chosen]]]
            sections.append(_wanted_rows(wanted, held, known))
            where[chosen] = np.arange(size, size + len(held))
            size += len(held)
        return np.concatenate(sections), where


_NO_PAIRS = (np.array([], np.int64), np.array([], np.int64), np.array([], np.int8))


def _wanted_rows(wanted: RequiredTruth, held: Rows, known: Rows) -> Rows:
    if wanted is RequiredTruth.FALSE:
        return known & ~held
    return ~held if wanted is RequiredTruth.NOT_TRUE else ~(known & ~held)


def _set_bits(rows: Rows) -> tuple[Numbers, Numbers]:
    """The (row, lane) of every bit that is set, by row."""
    flat, width = rows.reshape(-1), rows.shape[1]
    word = np.flatnonzero(flat != 0)
    unpacked = np.unpackbits(flat[word].view(np.uint8), bitorder="little")
    found = np.flatnonzero(unpacked.view(np.bool_))
    bit = word[found >> 6] * 64 + (found & 63)
    return bit // (width * 64), bit % (width * 64)
