"""Events as they are expected, recorded or drawn, and which of them filters select: what precision is measured on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nearcast.filters.evaluate import NO_CONTEXT, atom_truth, satisfies
from nearcast.filters.truth import COMPARE
from nearcast.model.arrays import Flags
from nearcast.model.event import Event
from nearcast.model.filter import And, Atom, Filter, Not, Operator, PlainNot
from nearcast.model.values import Value, is_exact, kind_of

KEPT = 4_096
"""Atoms whose truths are kept; filters share atoms, and clauses that are merged are made of known ones."""


class TrafficSample:
    """A sample of events; every event stands for equally many. Selecting is that of the plain evaluator, by column."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = tuple(events)
        self._columns: dict[str, tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Distinct]] = {}
        self._known: dict[Atom, tuple[Flags, Flags]] = {}

    def __len__(self) -> int:
        return len(self.events)

    def selects(self, filter: Filter) -> Flags:
        """Which events a filter selects, in surroundings of which nothing is known."""
        return self._truth(filter)[0]

    def _truth(self, node: Filter) -> tuple[Flags, Flags]:
        """(where it is TRUE, where it is FALSE)."""
        if isinstance(node, Atom):
            return self._atom(node)
        if isinstance(node, (Not, PlainNot)):
            holds, fails = self._truth(node.child)
            return (fails, holds) if isinstance(node, Not) else (~holds, holds)
        parts = [self._truth(child) for child in node.children]
        both, some = (np.logical_and, np.logical_or) if isinstance(node, And) else (np.logical_or, np.logical_and)
        return both.reduce([part[0] for part in parts]), some.reduce([part[1] for part in parts])

    def _atom(self, atom: Atom) -> tuple[Flags, Flags]:
        if atom not in self._known:
            # Rather start anew than keep an order of use: filters of one time share atoms, those of another do not.
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[atom] = self._values(atom) if isinstance(atom.name, str) else self._each(atom)
        return self._known[atom]

    def _each(self, atom: Atom) -> tuple[Flags, Flags]:
        truths = [atom_truth(atom, event, NO_CONTEXT) for event in self.events]
        return np.array([truth is True for truth in truths], bool), np.array([truth is False for truth in truths], bool)

    def _values(self, atom: Atom) -> tuple[Flags, Flags]:
        """The truths of an atom about an attribute: each different value is looked at once."""
        rows, numbers, values = self._column(str(atom.name))
        if atom.operator is Operator.IS_NULL:
            there = self._any(rows)
            return ~there, there
        # Thousands of events have few different values; numbers go through at once where doubles are exact.
        holding, comparable = _numbers(atom, values) or _singly(atom, values)
        holds = self._any(rows[holding[numbers]])
        return holds, self._any(rows[comparable[numbers]]) & ~holds

    def _any(self, rows: npt.NDArray[np.intp]) -> Flags:
        return np.bincount(rows, minlength=len(self.events)) > 0

    def _column(self, name: str) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Distinct]:
        """(the events that have a value, the value's number) for each value of an attribute; the different values."""
        if name not in self._columns:
            found: dict[tuple[str, Value], int] = {}
            pairs = [
                (row, found.setdefault((kind_of(value), value), len(found)))
                for row, event in enumerate(self.events)
                for value in event.values(name)
            ]
            array = np.array(pairs, np.intp).reshape(-1, 2)
            self._columns[name] = array[:, 0], array[:, 1], Distinct([value for _, value in found])
        return self._columns[name]


class Distinct:
    """The different values of an attribute; `floats` holds them too where all are numbers that doubles hold exactly."""

    def __init__(self, values: list[Value]) -> None:
        self.values = values
        exact = all(is_exact(value) for value in values)
        self.floats = np.array(values, np.float64) if exact and values else None


def _numbers(atom: Atom, values: Distinct) -> tuple[Flags, Flags] | None:
    """(which values satisfy an atom, which compare with it), all at once, where that is exact; else None."""
    compare = COMPARE.get(atom.operator)
    literal = atom.value
    if compare is None or values.floats is None or not isinstance(literal, (int, float)) or not is_exact(literal):
        return None
    return compare(values.floats, literal), np.ones(len(values.floats), bool)


def _singly(atom: Atom, values: Distinct) -> tuple[Flags, Flags]:
    """The same, value by value."""
    truths = [satisfies(atom, value) for value in values.values]
    return np.array([truth is True for truth in truths], bool), np.array([truth is not None for truth in truths], bool)
