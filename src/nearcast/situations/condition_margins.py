"""Margins of conditions: by how much a comparison with a number must fail before what holds already ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from nearcast.model.expression import AGGREGATES, Call, Constant, Expression
from nearcast.model.filter import Atom, Count, Operator
from nearcast.model.values import Value
from nearcast.situations.counts.entity_counts import count_of
from nearcast.state.windows import aggregate_of

_DOWN = {Operator.GT: -1, Operator.GE: -1, Operator.LT: 1, Operator.LE: 1}
"""Which way a limit moves so that more satisfy the comparison."""

_TURNED = {">": Operator.LT, ">=": Operator.LE, "<": Operator.GT, "<=": Operator.GE}


def subject_of(atom: Atom) -> str | None:
    """What a condition compares with numbers: a class, or an aggregate or a count as it is written; None: another
    form.
    """
    counted = count_of(atom)
    if isinstance(atom.name, str) or counted is not None:
        ordered = atom.operator in _DOWN or atom.operator is Operator.BETWEEN
        name = atom.name if isinstance(atom.name, str) else f"count({counted.name})" if counted is not None else ""
        return name if ordered and all(map(_is_number, atom.literals)) else None
    if not isinstance(atom.name, Call) or atom.name.function not in (*_TURNED, "BETWEEN"):
        return None
    subjects = [one for one in atom.name.arguments if isinstance(one, Call) and one.function in AGGREGATES]
    limits = [one for one in atom.name.arguments if isinstance(one, Constant) and _is_number(one.value)]
    if len(subjects) != 1 or len(limits) != len(atom.name.arguments) - 1:
        return None
    between = atom.name.function == "BETWEEN"
    return aggregate_of(subjects[0]).text if not between or atom.name.arguments[0] is subjects[0] else None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def widened(atom: Atom, negated: bool, margins: Mapping[str, float]) -> Atom:
    """A condition, or one that is to be false, as what holds already has it; itself where no margin is its own."""
    subject = subject_of(atom)
    margin = margins.get(subject, 0.0) if subject is not None else 0.0
    if not margin:
        return atom
    by = -margin if negated else margin
    if isinstance(atom.name, (str, Count)):
        literals = [moved(one, by * way) for one, way in zip(atom.literals, _ways(atom.operator), strict=True)]
        return replace(atom, value=tuple(literals) if atom.operator is Operator.BETWEEN else literals[0])
    assert isinstance(atom.name, Call), "it has a subject"
    return replace(atom, name=Call(atom.name.function, tuple(_moved_in(atom.name, by))))


def _ways(operator: Operator) -> tuple[int, ...]:
    return (-1, 1) if operator is Operator.BETWEEN else (_DOWN[operator],)


def _moved_in(call: Call, by: float) -> list[Expression]:
    first, *others = call.arguments
    if isinstance(first, Constant):
        # The number stands left: the comparison is turned round.
        return [Constant(moved(first.value, by * _DOWN[_TURNED[call.function]])), *others]
    ways = _ways(Operator(call.function))
    limits = zip(others, ways, strict=True)
    return [first, *(Constant(moved(one.value, by * way)) for one, way in limits if isinstance(one, Constant))]


def moved(limit: object, by: float) -> Value:
    """A limit moved, exact on the decimals that were written."""
    assert isinstance(limit, (int, float)), "it is a number"
    found = Fraction(repr(limit)) + Fraction(repr(by))
    return int(found) if found.denominator == 1 else float(found)
