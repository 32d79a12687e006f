"""The atoms about attributes of all filters, compiled: which tests they make of which column.

Each atom is the union of one-kind tests: an ordering, an equality (IN: one per literal), an inequality, a span, a
pattern. Atoms are numbered in the order of their adding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from nearcast.decision.match.rows import Numbers
from nearcast.model.filter import Atom, Operator
from nearcast.model.values import Kind, Value

Key = tuple[str, Kind]
"""A column: an attribute's name, and the kind of the values in it."""

KINDS: tuple[Kind, ...] = ("number", "text", "boolean", "time")
ORDERINGS = (Operator.LT, Operator.LE, Operator.GT, Operator.GE)


@dataclass(frozen=True, slots=True)
class ColumnTests:
    """The tests of one column. `orderings`, `equals`, `lists`, `differs` are (atoms, literals), side by side.

    Literals of orderings count in `ordered`, those of the others in `equal`. `lists` are the equalities of IN atoms,
    by atom. `spans` and `patterns` are by atom. `atoms` are all that compare in this column.
    """

    ordered: Sequence[Value]
    orderings: dict[Operator, tuple[Numbers, Numbers]]
    equal: dict[Value, int]
    equals: tuple[Numbers, Numbers]
    lists: tuple[Numbers, Numbers]
    differs: tuple[Numbers, Numbers]
    spans: dict[int, tuple[Value, Value]]
    patterns: dict[int, str]
    atoms: Numbers


@dataclass(slots=True)
class _Collected:
    """The tests of one column while atoms are being added."""

    by_operator: dict[Operator, list[tuple[int, Value]]] = field(default_factory=dict)
    lists: list[tuple[int, Value]] = field(default_factory=list)
    spans: dict[int, tuple[Value, Value]] = field(default_factory=dict)
    patterns: dict[int, str] = field(default_factory=dict)
    atoms: dict[int, None] = field(default_factory=dict)

    def compiled(self) -> ColumnTests:
        """The tests as arrays, ready to be placed in batches."""
        tests = {operator: self.by_operator.get(operator, []) for operator in (*ORDERINGS, Operator.EQ, Operator.NE)}
        # Ascending, so that they are looked up faster: neighbours lie close together.
        ordered = sorted({literal for operator in ORDERINGS for _, literal in tests[operator]})
        order = {literal: number for number, literal in enumerate(ordered)}
        others = (*tests[Operator.EQ], *self.lists, *tests[Operator.NE])
        equal = {literal: number for number, literal in enumerate(dict.fromkeys(literal for _, literal in others))}
        return ColumnTests(
            ordered,
            {operator: _side_by_side(tests[operator], order) for operator in ORDERINGS},
            equal,
            _side_by_side(tests[Operator.EQ], equal),
            _side_by_side(self.lists, equal),
            _side_by_side(tests[Operator.NE], equal),
            self.spans,
            self.patterns,
            np.array(list(self.atoms), np.intp),
        )


def _side_by_side(tests: Sequence[tuple[int, Value]], literals: dict[Value, int]) -> tuple[Numbers, Numbers]:
    return (
        np.array([number for number, _ in tests], np.intp),
        np.array([literals[literal] for _, literal in tests], np.intp),
    )


class AtomTests:
    """The tests of these atoms, by column; `mixed` atoms compare in several columns, `presence` ones in none.

    Keeps of atoms only what tests take: with all filters it goes to every worker.
    """

    def __init__(self, atoms: Sequence[Atom]) -> None:
        self.size = len(atoms)
        self.mixed: dict[int, list[Key]] = {}
        self.presence: dict[int, list[Key]] = {}
        collected: dict[Key, _Collected] = {}
        for number, atom in enumerate(atoms):
            for key in self._add(number, atom, collected):
                collected[key].atoms[number] = None
        self.columns = {key: tests.compiled() for key, tests in collected.items()}

    def _add(self, number: int, atom: Atom, collected: dict[Key, _Collected]) -> list[Key]:
        """Adds an atom's tests; returns the columns in which it compares."""
        name = str(atom.name)
        if atom.operator is Operator.IS_NULL:
            self.presence[number] = [(name, kind) for kind in KINDS]
            for key in self.presence[number]:
                collected.setdefault(key, _Collected())
            return []
        keys = [(name, kind) for kind in _kinds(atom)]
        for key in keys:
            _collect(collected.setdefault(key, _Collected()), number, atom, key[1])
        if len(keys) > 1:
            self.mixed[number] = keys
        return keys


def _kinds(atom: Atom) -> list[Kind]:
    """The kinds of values that an atom compares; none for a BETWEEN whose ends do not compare."""
    if atom.operator is Operator.LIKE:
        return ["text"]
    kinds = list(dict.fromkeys(atom.kinds))
    return [] if atom.operator is Operator.BETWEEN and len(kinds) > 1 else kinds


def _collect(tests: _Collected, number: int, atom: Atom, kind: Kind) -> None:
    match atom.operator:
        case Operator.LIKE:
            tests.patterns[number] = str(atom.value)
        case Operator.BETWEEN:
            tests.spans[number] = atom.value  # type: ignore[assignment]
        case Operator.IN:
            literals = zip(atom.literals, atom.kinds, strict=True)
            tests.lists.extend([(number, literal) for literal, own in literals if own == kind])
        case _:
            tests.by_operator.setdefault(atom.operator, []).append((number, atom.value))  # type: ignore[arg-type]
