"""On comparisons, intervals, sets, prefixes and presence the algebra decides exactly what an SMT solver decides.

The solver knows nothing of value sets: it is given events of a few values per name, and the three-valued truth tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.algebra.comparison import compare
from nearcast.algebra.constraints import Premises
from nearcast.model.filter import And, Atom, Filter, Not, Operator, PlainNot, atoms
from nearcast.model.values import Value, kind_of
from tests.random_filters import trees

NUMBER, TEXT, BOOLEAN, NAN = range(4)

numbers = st.one_of(st.integers(-2, 2), st.sampled_from([0.5, -1.5]))
texts = st.sampled_from(["", "a", "ab", "abc", "b"])
literals = st.one_of(numbers, numbers, texts, st.booleans())


@st.composite
def decidable_atoms(draw: st.DrawFn) -> Atom:
    name, operator = draw(st.sampled_from(["x", "y", "type"])), draw(st.sampled_from(list(Operator)))
    match operator:
        case Operator.IS_NULL:
            return Atom(name, operator, None)
        case Operator.LIKE:
            return Atom(name, operator, draw(texts) + "%")
        case Operator.IN:
            return Atom(name, operator, tuple(draw(st.lists(literals, min_size=1, max_size=3))))
        case Operator.BETWEEN:
            return Atom(name, operator, draw(st.one_of(st.tuples(numbers, numbers), st.tuples(texts, texts))))
    return Atom(name, operator, draw(literals))


small = trees(decidable_atoms())


@dataclass
class Slot:
    """One value that an event may have, of any kind."""

    there: z3.BoolRef
    kind: z3.ArithRef
    number: z3.ArithRef
    text: z3.SeqRef
    flag: z3.BoolRef

    def sound(self) -> z3.BoolRef:
        return z3.And(self.kind >= 0, self.kind <= NAN)

    def comparable(self, literal: Value) -> z3.BoolRef:
        kind = kind_of(literal)
        if kind == "number":
            return z3.Or(self.kind == NUMBER, self.kind == NAN)
        return self.kind == (TEXT if kind == "text" else BOOLEAN)

    def satisfies(self, operator: Operator, literal: Value) -> z3.BoolRef:
        kind = kind_of(literal)
        if kind == "boolean":
            mine, its = z3.If(self.flag, 1, 0), z3.IntVal(int(literal))  # type: ignore[arg-type]
        elif kind == "number":
            mine, its = self.number, z3.RealVal(str(literal))
        else:
            mine, its = self.text, z3.StringVal(literal)
        holds = {
            Operator.EQ: mine == its,
            Operator.NE: mine != its,
            Operator.LT: mine < its,
            Operator.LE: mine <= its,
            Operator.GT: its < mine,
            Operator.GE: its <= mine,
        }[operator]
        if kind == "number":
            holds = z3.If(self.kind == NAN, operator is Operator.NE, holds)
        return z3.And(self.comparable(literal), holds)


Truth = tuple[z3.BoolRef, z3.BoolRef]
"""(is TRUE, is FALSE)."""


def atom_truth(atom: Atom, slots: list[Slot]) -> Truth:
    if atom.operator is Operator.IS_NULL:
        there = z3.Or([slot.there for slot in slots])
        return z3.Not(there), there
    pairs = [one_value(atom, slot) for slot in slots]
    holds = z3.Or([z3.And(slot.there, sat) for slot, (sat, _) in zip(slots, pairs, strict=True)])
    comparable = z3.Or([z3.And(slot.there, known) for slot, (_, known) in zip(slots, pairs, strict=True)])
    return holds, z3.And(comparable, z3.Not(holds))


def one_value(atom: Atom, slot: Slot) -> Truth:
    """(satisfies, is comparable)."""
    match atom.operator, atom.value:
        case Operator.LIKE, str(pattern):
            text = slot.kind == TEXT
            return z3.And(text, z3.PrefixOf(z3.StringVal(pattern[:-1]), slot.text)), text
        case Operator.IN, tuple(values):
            holds = z3.Or([slot.satisfies(Operator.EQ, value) for value in values])
            return holds, z3.Or([slot.comparable(value) for value in values])
        case Operator.BETWEEN, (low, high):
            holds = z3.And(slot.satisfies(Operator.GE, low), slot.satisfies(Operator.LE, high))
            return holds, z3.And(slot.comparable(low), slot.comparable(high))
    assert atom.value is not None and not isinstance(atom.value, tuple)
    return slot.satisfies(atom.operator, atom.value), slot.comparable(atom.value)


def truth(node: Filter, slots: dict[str, list[Slot]]) -> Truth:
    if isinstance(node, Atom):
        assert isinstance(node.name, str)
        return atom_truth(node, slots[node.name])
    if isinstance(node, (Not, PlainNot)):
        holds, fails = truth(node.child, slots)
        return (fails, holds) if isinstance(node, Not) else (z3.Not(holds), holds)
    parts = [truth(child, slots) for child in node.children]
    both, some = (z3.And, z3.Or) if isinstance(node, And) else (z3.Or, z3.And)
    return both([part[0] for part in parts]), some([part[1] for part in parts])


def solver(count: int, single: bool) -> tuple[z3.Solver, dict[str, list[Slot]]]:
    """Events with up to `count` values of a name (one, if `single`); the type is one text."""
    slots = {
        name: [
            Slot(
                z3.Bool(f"{name}{i} there"),
                z3.Int(f"{name}{i} kind"),
                z3.Real(f"{name}{i} number"),
                z3.String(f"{name}{i} text"),
                z3.Bool(f"{name}{i} flag"),
            )
            for i in range(1 if single or name == "type" else count)
        ]
        for name in ("x", "y", "type")
    }
    found = z3.Solver()
    found.set("timeout", 5_000)
    found.add([slot.sound() for some in slots.values() for slot in some])
    found.add(slots["type"][0].there, slots["type"][0].kind == TEXT)
    return found, slots


@settings(max_examples=10, deadline=None)
@given(small, small, st.booleans())
def test_it_decides_as_an_smt_solver_does(first: Filter, second: Filter, single: bool) -> None:
    """Covering both ways and having something in common: never unknown, and never another answer."""
    assert_as_solved(first, second, single)


@pytest.mark.long
@settings(max_examples=50, deadline=None)
@given(small, small, st.booleans())
def test_it_decides_as_an_smt_solver_does_on_many(first: Filter, second: Filter, single: bool) -> None:
    """As before. It is the solver that takes long."""
    assert_as_solved(first, second, single)


def assert_as_solved(first: Filter, second: Filter, single: bool) -> None:
    count = sum(1 for _ in (*atoms(first), *atoms(second)))
    found = compare(first, second, Premises(single=single))
    prover, slots = solver(count, single)
    a, b = truth(first, slots)[0], truth(second, slots)[0]
    for answer, question in (
        (found.within, z3.And(a, z3.Not(b))),
        (found.covers, z3.And(b, z3.Not(a))),
        (None if found.meet is None else not found.meet, z3.And(a, b)),
    ):
        verdict = prover.check(question)
        if verdict != z3.unknown:
            assert (verdict == z3.unsat) is answer
