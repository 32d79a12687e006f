"""Situation rules as a node sees them: what it would ask others for, and how near a rule is to firing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nearcast.errors import Fault, Mark
from nearcast.filters.evaluate import RequiredTruth
from nearcast.filters.normal_form import Form, Literal, plain_form
from nearcast.model.filter import Atom, Filter, Operator, atoms
from nearcast.model.foraging import REQUESTED
from nearcast.model.values import Value

OPPOSITE = {
    Operator.LT: Operator.GE,
    Operator.LE: Operator.GT,
    Operator.EQ: Operator.NE,
    Operator.NE: Operator.EQ,
    Operator.GE: Operator.LT,
    Operator.GT: Operator.LE,
}


@dataclass(frozen=True, slots=True)
class ForagingRule:
    """A situation that holds where `when` does, over values measured at most `within` metres away.

    `valid`: seconds for which a request for what is missing holds, so the time between two of them. `threshold`: the
    trigger level from which on it is sent: 0 is always, 1 when all that the node sees itself is satisfied.
    """

    id: str
    situation: str
    when: Filter
    within: float
    valid: float
    threshold: float = 0.0


Above = Callable[[str], tuple[str, ...]]
"""A context class or situation and those above it, whose requests it serves."""


def only(name: str) -> tuple[str, ...]:
    """Without an ontology a class is its own and nobody else's."""
    return (name,)


def told(name: str, value: Value, above: Above, situations: frozenset[str]) -> tuple[str, ...]:
    """Of what a value tells: of its class and those above it; that there is no such situation, of its own class only,
    for what is above may be there by another.
    """
    return (name,) if value is False and name in situations else above(name)


def remote(rule: ForagingRule, supported: frozenset[str]) -> tuple[Atom, ...]:
    """The atomic requests for those conditions of a rule that a node with these classes cannot see itself.

    Raises `Fault` for a condition that no request can express.
    """
    wanted = dict.fromkeys(
        request
        for literal in _literals(plain_form(rule.when))
        if literal.atom.name not in supported
        for request in requests_for(literal.atom, literal.wanted)
    )
    return tuple(wanted)


def _literals(form: Form) -> Iterator[Literal]:
    if isinstance(form, Literal):
        yield form
    else:
        for part in form.parts:
            yield from _literals(part)


def requests_for(atom: Atom, wanted: RequiredTruth) -> Iterator[Atom]:
    """The atomic requests that bring every value with which an atom has the truth wanted of it, and hardly others."""
    if not isinstance(atom.name, str) or wanted not in (RequiredTruth.TRUE, RequiredTruth.FALSE):
        raise _fault(atom)
    # Their negations would be conjunctions, and a request asks for each of its conditions by itself.
    if atom.operator in (Operator.IN, Operator.BETWEEN) and wanted is RequiredTruth.FALSE:
        raise _fault(atom)
    if atom.operator is Operator.IN:
        yield from (Atom(atom.name, Operator.EQ, value) for value in atom.literals)
    elif atom.operator is Operator.BETWEEN:
        # More than is wanted, but nothing that is wanted is missed: the rule itself looks at both ends.
        low, high = atom.literals
        yield Atom(atom.name, Operator.GE, low)
        yield Atom(atom.name, Operator.LE, high)
    else:
        operator = atom.operator if wanted is RequiredTruth.TRUE else OPPOSITE.get(atom.operator)
        yield from _comparison(atom, atom.name, operator)


def _comparison(atom: Atom, name: str, operator: Operator | None) -> Iterator[Atom]:
    value: Value = atom.literals[0] if atom.literals else False
    if operator is Operator.NE and isinstance(value, bool):
        yield Atom(name, Operator.EQ, not value)
    elif operator is Operator.NE:
        # There is no atomic request for "another value"; there are two for all that is below or above.
        yield Atom(name, Operator.LT, value)
        yield Atom(name, Operator.GT, value)
    elif operator in REQUESTED:
        yield Atom(name, operator, value)
    else:
        raise _fault(atom)


def _fault(atom: Atom) -> Fault:
    came = f"{atom.operator} of {atom.name if isinstance(atom.name, str) else type(atom.name).__name__.lower()}"
    advice = "nodes ask each other for values of context classes by <, <=, =, >= and >"
    return Fault("conditions that a request can carry", came, atom.where or Mark("rule"), advice)


def trigger_level(rule: ForagingRule, supported: frozenset[str], holds: Callable[[Atom], bool]) -> float:
    """Satisfied local conditions ÷ local conditions (definition 5); 1 if there are none: nothing stands against it."""
    local = [atom for atom in atoms(rule.when) if atom.name in supported]
    return sum(map(holds, local)) / len(local) if local else 1.0
