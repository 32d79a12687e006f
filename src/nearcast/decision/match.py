"""The columnar matcher: which events each group's filter selects, and at which level.

A group is a filter with classes for its atoms; clients with the same filter and the same classes share it, and it is
evaluated once (Agent §6.1.2). For every event the outcome is that of the plain evaluator, `decision.evaluate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.decision.evaluate import Wanted
from nearcast.decision.match_atoms import ChunkAtoms, place
from nearcast.decision.match_columns import encode
from nearcast.decision.match_computed import ComputedAtoms
from nearcast.decision.match_distance import DistanceAtoms, Paths, anchor_of
from nearcast.decision.match_entities import walked_rows
from nearcast.decision.match_graph import Graph
from nearcast.decision.match_points import Points, event_points, pack
from nearcast.decision.match_rows import LANES, Numbers, Rows, bits, words
from nearcast.decision.match_tests import AtomTests
from nearcast.decision.normal_form import Literal, plain_form, threshold_forms
from nearcast.decision.timeline import Positions, Surrounding
from nearcast.model.expression import Call
from nearcast.model.filter import Atom, Entities, Filter, Not, PlainNot, atoms

Group = tuple[Filter, tuple[int, ...]]
"""A filter, and the class of each of its atoms in document order."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """What matched: for each pair the event's lane in the table, the group's number, the level."""

    lanes: npt.NDArray[np.signedinteger]
    groups: npt.NDArray[np.signedinteger]
    levels: npt.NDArray[np.int8]


MANY = 200
"""Groups from which on the engine is used: below, rows of bits do, and nothing has to be compiled."""


class Index:
    """Compiled groups. Groups are numbered in their order; the index itself never changes and may be pickled.

    Many groups are matched by the engine; rows of bits remain for few, for what the engine does not take, and for
    the literals that it knows nothing of. Groups whose filters go too deep for either are `left_out`: they select
    nothing and take nothing else down. `conditions` are filters of location terms whose lanes `selected` gives.
    """

    def __init__(self, groups: Sequence[Group], conditions: Sequence[Filter] = (), many: int = MANY) -> None:
        self._many = _Many(groups) if len(groups) >= many else None
        left: Iterable[int] = self._many.refused if self._many else range(len(groups))
        graph = Graph()
        self._roots: list[tuple[int, int, int]] = []
        self._next: list[int] = []
        self.left_out: list[int] = []
        for number in left:
            filter, classes = groups[number]
            try:
                nodes = [(graph.add(form), level) for level, form in threshold_forms(filter, classes).items()]
            except RecursionError:
                self.left_out.append(number)
                continue
            self._roots += [(node, number, level) for node, level in nodes]
            self._next += [node for node, _ in nodes[1:]] + [-1] * (len(nodes) > 0)
        self._conditions = [graph.add(plain_form(condition)) for condition in conditions]
        literals = [node for node in graph.nodes if isinstance(node, Literal)]
        distinct = list(dict.fromkeys(literal.atom for literal in literals))
        plain = [atom for atom in distinct if isinstance(atom.name, str)]
        self._tests = AtomTests(plain)
        self._location = [atom for atom in distinct if not isinstance(atom.name, (str, Call))]
        self._computed = ComputedAtoms([atom for atom in distinct if isinstance(atom.name, Call)])
        numbers = {atom: number for number, atom in enumerate([*plain, *self._location, *self._computed.atoms])}
        self._measured = np.array([anchor_of(atom) is not None for atom in self._location], np.bool_)
        self._distances = DistanceAtoms([atom for atom in self._location if anchor_of(atom)])
        self._atom = np.array([numbers[literal.atom] for literal in literals], np.intp)
        self._wanted = [np.array([literal.wanted is wanted for literal in literals], np.bool_) for wanted in Wanted]
        self._layers = graph.layers()

    def match(self, table: pa.Table, around: Surrounding) -> Pairs:
        """The pairs of a table of EVENTS, ascending by position, with all groups, in no particular order."""
        found: list[tuple[npt.NDArray[Any], ...]] = list(self._match_chunks(table, around))
        if self._many:
            found.append(self._many.match(table, around))
        lanes, groups, levels = (np.concatenate(parts) for parts in zip(*found, strict=True)) if found else _NO_PAIRS
        return Pairs(lanes, groups, levels)

    def selected(self, table: pa.Table) -> list[npt.NDArray[np.bool_]]:
        """For each condition, which events of the table satisfy it; conditions know no surroundings."""
        return self.held(table, Surrounding())

    def held(self, table: pa.Table, around: Surrounding) -> list[npt.NDArray[np.bool_]]:
        """The same with surroundings, as of each event's position."""
        flags = [np.zeros(len(table), np.bool_) for _ in self._conditions]
        for first, lanes, rows, where in self._chunks(table, around):
            for flag, node in zip(flags, self._conditions, strict=True):
                unpacked = np.unpackbits(rows[where[node]].view(np.uint8), bitorder="little")
                flag[first : first + lanes] = unpacked[:lanes]
        return flags

    def _match_chunks(self, table: pa.Table, around: Surrounding) -> Iterator[tuple[Numbers, Numbers, Numbers]]:
        if not self._roots:
            return
        nodes, groups, levels = (np.array(part, np.int64) for part in zip(*self._roots, strict=True))
        following = np.array(self._next, np.int64)
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

    def _chunks(self, table: pa.Table, around: Surrounding) -> Iterator[tuple[int, int, Rows, Numbers]]:
        """For each chunk its first lane, its number of lanes, and the rows of all nodes."""
        columns = encode(table, self._tests.columns)
        placed = {key: place(column, self._tests.columns[key]) for key, column in columns.items()}
        positions = table.column("position").to_numpy()
        points = event_points(table) if self._location else None
        paths = Paths(self._distances.anchors, around.users)
        for first in range(0, len(table), LANES):
            lanes = min(LANES, len(table) - first)
            chunk = ChunkAtoms(self._tests, placed, first, lanes, words(lanes))
            true, comparable = chunk.true, chunk.comparable
            if points:
                here, there = positions[first : first + lanes], points.lanes(first, first + lanes)
                located = self._locate(chunk, around, paths, here, there)
                true, comparable = np.concatenate([[true, comparable], located], axis=1)
            if self._computed.atoms:
                found = [chunk.append(rows) for rows in self._computed.rows(table.slice(first, lanes), around)]
                own = np.arange(len(self._computed.atoms))
                true, comparable = np.concatenate([[true, comparable], [own + at for at in found]], axis=1)
            rows, literal_rows = self._literals(chunk.rows(), true, comparable)
            yield first, lanes, *self._layers.evaluate(rows, literal_rows)

    def _locate(
        self, chunk: ChunkAtoms, around: Surrounding, paths: Paths, positions: Positions, points: Points
    ) -> npt.NDArray[np.intp]:
        """Adds the location atoms' rows to a chunk's; returns which are their true ones, and which their comparable."""
        found = np.zeros((2, len(self._location)), np.intp)
        width = words(len(positions))
        if self._measured.any():
            paths.advance(positions)
            for which, rows in enumerate(self._distances.rows(paths, points, width)):
                found[which, self._measured] = chunk.append(rows) + np.arange(len(rows))
        for number in np.flatnonzero(~self._measured):
            for which, rows in enumerate(walked_rows(self._location[number], around, positions, points, width)):
                found[which, number] = chunk.append(rows)
        return found

    def _literals(self, rows: Rows, true: Numbers, comparable: Numbers) -> tuple[Rows, Numbers]:
        """The rows with those of literals that want another truth than TRUE, and each literal's row."""
        where = true[self._atom]
        sections = [rows]
        size = len(rows)
        for wanted, chosen in zip(Wanted, self._wanted, strict=True):
            if wanted is Wanted.TRUE or not chosen.any():
                continue
            held, known = rows[true[self._atom[chosen]]], rows[comparable[self._atom[chosen]]]
            sections.append(_wanted_rows(wanted, held, known))
            where[chosen] = np.arange(size, size + len(held))
            size += len(held)
        return np.concatenate(sections), where


class _Many:
    """Groups matched by the engine, with an index of the literals that the engine must be told of."""

    def __init__(self, groups: Sequence[Group]) -> None:
        # Compiled code takes a second to import, and few need it.
        from nearcast.decision.match_engine import Engine
        from nearcast.decision.match_nearby import Nearby

        self._engine = Engine(groups)
        self.refused = self._engine.refused
        self._literals = Index(())
        self._nearby = Nearby(self._engine.nearby)

    def match(
        self, table: pa.Table, around: Surrounding
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int8]]:
        """Lanes, groups and levels of the pairs."""
        batch = self._engine.encode(table)
        if not self._engine.planned(batch.lanes):
            self._engine.prepare(batch, self._nearby.shares(table, around))
            self._literals = Index((), [_as_wanted(atom, wanted) for atom, wanted in self._engine.literals])
            self._nearby.follow(self._engine.around)
        near = self._nearby.near(table, around)
        if not self._engine.literals:
            return self._engine.pairs(batch, near=near)
        held = self._literals.held(table, around)
        flags = np.array(held, np.bool_).reshape(len(held), batch.lanes)
        return self._engine.pairs(batch, pack(flags, words(batch.lanes) or 1), near)


def _as_wanted(atom: Atom, wanted: int) -> Filter:
    """A filter that is TRUE where an atom has the truth that is wanted of it."""
    return (atom, Not(atom), PlainNot(atom), PlainNot(Not(atom)))[wanted]


_NO_PAIRS = (np.array([], np.int64), np.array([], np.int64), np.array([], np.int8))


def _wanted_rows(wanted: Wanted, held: Rows, known: Rows) -> Rows:
    if wanted is Wanted.FALSE:
        return known & ~held
    return ~held if wanted is Wanted.NOT_TRUE else ~(known & ~held)


def _set_bits(rows: Rows) -> tuple[Numbers, Numbers]:
    """The (row, lane) of every bit that is set, by row."""
    flat, width = rows.reshape(-1), rows.shape[1]
    word = np.flatnonzero(flat != 0)
    unpacked = np.unpackbits(flat[word].view(np.uint8), bitorder="little")
    found = np.flatnonzero(unpacked.view(np.bool_))
    bit = word[found >> 6] * 64 + (found & 63)
    return bit // (width * 64), bit % (width * 64)


def location_conditions(filter: Filter) -> list[Entities]:
    """The `uform(…)` references in a filter's location terms."""
    found = []
    for atom in atoms(filter):
        if not isinstance(atom.name, str):
            found += [side for side in _sides_of(atom) if isinstance(side, Entities)]
    return found


def _sides_of(atom: Atom) -> list[object]:
    term = atom.name
    return [getattr(term, side) for side in ("a", "b", "of", "around") if hasattr(term, side)]
