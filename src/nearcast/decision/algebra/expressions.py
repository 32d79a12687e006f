"""Atoms about expressions, as far as the algebra sees into them.

A call that reads nothing of an event has one truth. `CASEI(name) = CASEI('x')` is a comparison of one expression with
literals: the expression has values as an attribute has, of which no more is known. And of the two ways in which most
relations between two expressions can be written, one is taken for both.
"""

from __future__ import annotations

from datetime import datetime

from nearcast.decision.compute import values_of
from nearcast.decision.evaluate import NOTHING, EventFacts, atom_truth
from nearcast.decision.truths import Truth
from nearcast.model.event import Event
from nearcast.model.expression import ARITHMETIC, COMPARISONS, Call, Constant, Expression, Property, parts
from nearcast.model.filter import Atom, Operator
from nearcast.model.values import kind_of

TEXTS = frozenset({"CASEI", "ACCENTI"})
"""Functions whose values are texts."""

_PLAIN = frozenset({*ARITHMETIC, *TEXTS})
_FORMS = frozenset({*COMPARISONS, "IN", "BETWEEN", "LIKE"})
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CONVERSE = {
    **{one: one for one in ("=", "<>", "T_EQUALS", "T_DISJOINT", "T_INTERSECTS", "A_EQUALS", "A_OVERLAPS")},
    **{f"S_{one}": f"S_{one}" for one in ("INTERSECTS", "DISJOINT", "EQUALS", "TOUCHES", "CROSSES", "OVERLAPS")},
    **{">": "<", ">=": "<=", "S_WITHIN": "S_CONTAINS", "T_AFTER": "T_BEFORE", "T_DURING": "T_CONTAINS"},
    **{"T_METBY": "T_MEETS", "T_STARTEDBY": "T_STARTS", "T_FINISHEDBY": "T_FINISHES"},
    **{"T_OVERLAPPEDBY": "T_OVERLAPS", "A_CONTAINEDBY": "A_CONTAINS"},
}
"""The relation that says the same with its sides changed; of two that are each other's, the one that is not kept."""

_BARE = EventFacts(Event("", "", ""), NOTHING)


def reads_nothing(expression: Expression) -> bool:
    """Whether an expression is the same for all events."""
    return not any(
        isinstance(part, Property) or (isinstance(part, Call) and part.function == "USER") for part in parts(expression)
    )


def constant_truth(atom: Atom) -> Truth:
    """The truth of an atom that reads nothing."""
    return atom_truth(atom, _BARE.event, NOTHING)


def about_one(atom: Atom) -> Atom | None:
    """The atom of an attribute's, or an expression's, values and literals that a comparison is; None if it is none."""
    call = atom.name
    if not isinstance(call, Call) or call.function not in _FORMS:
        return None
    function, (subject, *others) = call.function, call.arguments
    if function in COMPARISONS and reads_nothing(subject):
        subject, others, function = others[0], [subject], _FLIPPED.get(function, function)
    values = [
        value for other in others if reads_nothing(other) for value in values_of(other, _BARE) if _is_literal(value)
    ]
    if not _is_plain(subject) or len(values) < len(others):
        return None
    # Between literals of two kinds a text that names a moment is where an attribute's is not.
    if function == "BETWEEN" and kind_of(values[0]) != kind_of(values[1]):
        return None
    name = subject.name if isinstance(subject, Property) else subject
    several = function in ("IN", "BETWEEN")
    return Atom(name, Operator(function), tuple(values) if several else values[0])  # type: ignore[arg-type]


def _is_literal(value: object) -> bool:
    return isinstance(value, (bool, int, float, str, datetime))


def _is_plain(expression: Expression) -> bool:
    """Whether an expression is of attributes, literals, arithmetic and texts, and of the event itself."""
    return not reads_nothing(expression) and all(
        isinstance(part, (Property, Constant)) or (isinstance(part, Call) and part.function in _PLAIN)
        for part in parts(expression)
    )


def turned(atom: Atom) -> Atom:
    """The atom that stands for this one and for what says the same with its sides changed."""
    call = atom.name
    other = _CONVERSE.get(call.function) if isinstance(call, Call) else None
    if not isinstance(call, Call) or other is None:
        return atom
    changed = Call(other, call.arguments[::-1])
    same = other == call.function and repr(call) <= repr(changed)
    return atom if same else Atom(changed, atom.operator, atom.value)


def read_alone(expression: Expression) -> str | None:
    """The attribute that an expression of texts is about, if it is about one alone."""
    while isinstance(expression, Call) and expression.function in TEXTS:
        expression = expression.arguments[0]
    return expression.name if isinstance(expression, Property) else None
