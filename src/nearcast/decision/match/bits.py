"""Groups matched by rows of bits: one operation per node of the filters' common graph, for 1,024 events at once.

Every node is evaluated in every batch, but nothing has to be compiled, and any atom may be in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.decision.evaluate import Wanted
from nearcast.decision.match.atoms import ChunkAtoms, place
from nearcast.decision.match.columns import encode
from nearcast.decision.match.computed import ComputedAtoms
from nearcast.decision.match.distance import DistanceAtoms, Paths, anchor_of
from nearcast.decision.match.entities import Walk
from nearcast.decision.match.graph import Graph
from nearcast.decision.match.points import Points, event_points, pack
from nearcast.decision.match.rows import LANES, Numbers, Rows, bits, words
from nearcast.decision.match.tests import AtomTests
from nearcast.decision.normal_form import Literal, plain_form, threshold_forms
from nearcast.decision.timeline import Positions, Surrounding
from nearcast.model.expression import Call
from nearcast.model.filter import Filter

Group = tuple[Filter, tuple[int, ...]]
"""A filter, and the class of each of its atoms in document order."""

TOGETHER = 2_048
"""Distances from anchors that are computed together: so many numbers for each of a chunk's lanes."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """What matched: for each pair the event's lane in the table, the group's number, the level."""

    lanes: npt.NDArray[np.signedinteger]
    groups: npt.NDArray[np.signedinteger]
    levels: npt.NDArray[np.int8]


class BitIndex:
    """Compiled groups. Groups are numbered in their order; the index itself never changes and may be pickled.

    Groups whose filters go too deep are `left_out`: they select nothing and take nothing else down. `conditions` are
    filters whose lanes `selected` and `held` give.
    """

    def __init__(self, groups: Sequence[Group], conditions: Sequence[Filter] = ()) -> None:
        graph = Graph()
        self._roots: list[tuple[int, int, int]] = []
        self._next: list[int] = []
        self.left_out: list[int] = []
        for number, (filter, classes) in enumerate(groups):
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
        measured = [atom for atom in self._location if anchor_of(atom)]
        self._distances = [DistanceAtoms(measured[at : at + TOGETHER]) for at in range(0, len(measured), TOGETHER)]
        self._atom = np.array([numbers[literal.atom] for literal in literals], np.intp)
        self._wanted = [np.array([literal.wanted is wanted for literal in literals], np.bool_) for wanted in Wanted]
        self._layers = graph.layers()

    def match(self, table: pa.Table, around: Surrounding) -> Pairs:
        """The pairs of a table of EVENTS, ascending by position, with all groups: by lane, then group."""
        found = list(self._match_chunks(table, around))
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
        paths = [Paths(distances.anchors, around.users) for distances in self._distances]
        walk = Walk(around, positions, points) if points else None
        walked = [walk.truths(self._location[number]) for number in np.flatnonzero(~self._measured)] if walk else []
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
                found = [chunk.append(rows) for rows in self._computed.rows(table.slice(first, lanes), around)]
                own = np.arange(len(self._computed.atoms))
                true, comparable = np.concatenate([[true, comparable], [own + at for at in found]], axis=1)
            rows, literal_rows = self._literals(chunk.rows(), true, comparable)
            yield first, lanes, *self._layers.evaluate(rows, literal_rows)

    def _locate(
        self, chunk: ChunkAtoms, paths: Sequence[Paths], positions: Positions, points: Points, aside: Sequence[Rows]
    ) -> npt.NDArray[np.intp]:
        """Adds the location atoms' rows to a chunk's; returns which are their true ones, and which their comparable.

        `aside` has both of each atom that is about more than an anchor and the event.
        """
        found = np.zeros((2, len(self._location)), np.intp)
        width = words(len(positions))
        own = np.flatnonzero(self._measured)
        for number, (distances, path) in enumerate(zip(self._distances, paths, strict=True)):
            path.advance(positions)
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
        for wanted, chosen in zip(Wanted, self._wanted, strict=True):
            if wanted is Wanted.TRUE or not chosen.any():
                continue
            held, known = rows[true[self._atom[chosen]]], rows[comparable[self._atom[chosen]]]
            sections.append(_wanted_rows(wanted, held, known))
            where[chosen] = np.arange(size, size + len(held))
            size += len(held)
        return np.concatenate(sections), where


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
