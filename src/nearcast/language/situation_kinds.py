"""What conditions of rules compare: classes with each other, by kind and unit.

Readings count in the unit of their class. So what is compared, added or subtracted has one unit, or is a literal, which
is in the unit of what it stands beside; products and quotients have the product or quotient of units.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from nearcast.decision.infer import units
from nearcast.decision.infer.names import range_of, unit_of
from nearcast.errors import Fault
from nearcast.language.cql2_types import EXAMPLES, Type, type_of
from nearcast.model.expression import COMPARISONS, Array, Call, Expression, Property, parts
from nearcast.model.filter import Atom
from nearcast.model.ontology import Ontology

Stated = Literal["open"] | str | None
"""A unit, None where the ontology states none; "open": a literal, or what is not followed up."""

_TEXTS = ("CASEI", "ACCENTI", "LIKE")


@dataclass(frozen=True, slots=True)
class _Kind:
    """What the values of an expression are: their type, their unit, and the classes that they come of, as told."""

    type: Type
    unit: Stated
    told: str


def clashes(atom: Atom, ontology: Ontology) -> Iterator[Fault]:
    """What a computed condition holds against each other though it has another kind or unit."""
    if not isinstance(atom.name, Call):
        return
    for part in parts(atom.name):
        if isinstance(part, Call):
            texts = [_kind(one, ontology) for one in part.arguments] if part.function in _TEXTS else []
            wrong = next((one for one in texts if one.type == "number"), None)
            if wrong is not None:
                yield Fault("a class of texts", _described(wrong), atom.where, f"{part.function} is of texts")
            pairs = ((_kind(a, ontology), _kind(b, ontology)) for a, b in _pairs(part))
            yield from (fault for a, b in pairs if (fault := _clash(a, b, atom)) is not None)


def _pairs(call: Call) -> Iterator[tuple[Expression, Expression]]:
    """The arguments that must be alike."""
    if call.function in (*COMPARISONS, "+", "-"):
        yield call.arguments[0], call.arguments[1]
    elif call.function in ("BETWEEN", "IN"):
        first, *others = call.arguments
        for other in others:
            yield from ((first, one) for one in (other.items if isinstance(other, Array) else (other,)))


def _clash(a: _Kind, b: _Kind, atom: Atom) -> Fault | None:
    if "any" not in (a.type, b.type) and a.type != b.type:
        return Fault(f"{EXAMPLES[a.type]} to compare with {a.told}", _described(b), atom.where)
    if a.unit == "open" or b.unit == "open" or _alike(a.unit, b.unit):
        return None
    if a.unit is None:
        a, b = b, a
    advice = f"give {b.told} that unit in the ontology"
    if a.unit is not None and b.unit is not None:
        convertible = units.conversion(b.unit, a.unit) is not None
        advice += ": readings in others are converted" if convertible else ", or leave this out"
    return Fault(f"a value in {a.unit} beside {a.told}", _described(b), atom.where, advice)


def _alike(a: str | None, b: str | None) -> bool:
    return a == b or units.conversion(a or "dimensionless", b or "dimensionless") == units.SAME


def _described(kind: _Kind) -> str:
    if kind.unit == "open":
        return f"{EXAMPLES[kind.type]}, {kind.told}" if kind.type in EXAMPLES else kind.told
    return f"{kind.told}, in {kind.unit}" if kind.unit is not None else f"{kind.told}, which has no unit"


def _kind(expression: Expression, ontology: Ontology) -> _Kind:
    if isinstance(expression, Property):
        unit = unit_of(ontology, expression.name)
        numeric = unit is not None or range_of(ontology, expression.name) != (None, None)
        return _Kind("number" if numeric else "any", unit, expression.name)
    told = " and ".join(part.name for part in parts(expression) if isinstance(part, Property)) or "a literal"
    if isinstance(expression, Call) and expression.function in ("+", "-", "*", "/", "DIV", "%"):
        left, right = (_kind(one, ontology) for one in expression.arguments)
        return _Kind("number", _combined(expression.function, left.unit, right.unit), told)
    return _Kind(type_of(expression), "open", told)


def _combined(function: str, left: Stated, right: Stated) -> Stated:
    """The unit of what is computed of values in two units."""
    if function in ("+", "-"):
        return right if left == "open" else left
    if function == "%" or right == "open":
        return left
    if left == "open":
        return right if function == "*" else "open"
    found = units.product(left or "dimensionless", right or "dimensionless", over=function != "*")
    return "open" if found is None else found
