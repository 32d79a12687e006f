"""All forms of all filters as one graph of shared parts, evaluated over a chunk layer by layer.

Equal parts are one node, however many filters have them, so each is evaluated once. A layer holds the nodes whose parts
all lie in lower layers; its nodes with the same connective and number of parts are computed together, as one operation
on whole arrays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nearcast.decision.match.rows import Numbers, Rows
from nearcast.decision.normal_form import Every, Form, Literal, Some

WIDE = 8
"""Nodes of more parts than this are reduced segment by segment instead of column by column."""


@dataclass(frozen=True, slots=True)
class Node:
    """An inner node: its connective and the numbers of its parts, ascending."""

    kind: type[Every] | type[Some]
    parts: tuple[int, ...]


class Graph:
    """Nodes numbered in the order of their adding: parts before wholes. `literal` gives each literal's number."""

    def __init__(self) -> None:
        self.nodes: list[Literal | Node] = []
        self._numbers: dict[Literal | Node, int] = {}
        self._heights: list[int] = []

    def add(self, form: Form) -> int:
        """Adds a form and returns its node; a form that is there already is not added again."""
        if isinstance(form, Literal):
            return self._number(form, 0)
        parts = tuple(sorted({self.add(part) for part in form.parts}))
        if len(parts) == 1:
            return parts[0]
        return self._number(Node(type(form), parts), 1 + max(self._heights[part] for part in parts))

    def _number(self, node: Literal | Node, height: int) -> int:
        number = self._numbers.setdefault(node, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(node)
            self._heights.append(height)
        return number

    def layers(self) -> Layers:
        """The graph as it stands, ready to be evaluated."""
        literals = [number for number, node in enumerate(self.nodes) if isinstance(node, Literal)]
        batches: dict[tuple[int, str, int], list[int]] = defaultdict(list)
        for number, node in enumerate(self.nodes):
            if isinstance(node, Node):
                arity = len(node.parts) if len(node.parts) <= WIDE else WIDE + 1
                batches[self._heights[number], node.kind.__name__, arity].append(number)
        steps = [
            Step(Every.__name__ == kind, np.array(numbers), [self._parts(number) for number in numbers])
            for (_, kind, _), numbers in sorted(batches.items())
        ]
        return Layers(len(self.nodes), np.array(literals, np.intp), steps)

    def _parts(self, number: int) -> tuple[int, ...]:
        node = self.nodes[number]
        return node.parts if isinstance(node, Node) else ()


class Step:
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
class Layers:
    """A graph ready to be evaluated: how many nodes, which are literals, and the steps in their order."""

    size: int
    literals: Numbers
    steps: list[Step]

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
