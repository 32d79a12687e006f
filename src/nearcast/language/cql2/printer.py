"""Filters back to CQL2 text: what is written parses to an equal filter."""

from __future__ import annotations

import math
from datetime import date, datetime

from nearcast.errors import DefinitionError, Fault
from nearcast.language.cql2.geometry import GEOMETRIES
from nearcast.language.cql2.literals import pattern_literal, text_literal
from nearcast.language.cql2.tokens import KEYWORDS, NAME
from nearcast.model.event import Place
from nearcast.model.expression import AGGREGATES, COMPARISONS, Array, Box, Call, Constant, Expression, Property, Shape
from nearcast.model.filter import (
    ME,
    RECEIVER,
    And,
    Atom,
    Count,
    Distance,
    Entities,
    Filter,
    Located,
    Not,
    Operator,
    Or,
    PlainNot,
    ReceiverReading,
    User,
)
from nearcast.model.values import Value, time_text


def write(filter: Filter) -> str:
    """The CQL2 text of a filter. `parse` gives an equal filter, but for one form that CQL2 has not: the thesis' plain
    negation is written `NOT …` too, which does not hold where its child is unknown. Patterns lose needless backslashes.

    Raises `DefinitionError` for what CQL2 cannot say: NaN, infinities, a planar point.
    """
    if isinstance(filter, Atom):
        return _atom(filter)
    if isinstance(filter, (Not, PlainNot)):
        return f"NOT ({write(filter.child)})" if _joins(filter.child) else f"NOT {write(filter.child)}"
    if isinstance(filter, Or):
        return " OR ".join(f"({write(child)})" if isinstance(child, Or) else write(child) for child in filter.children)
    return " AND ".join(f"({write(child)})" if _joins(child) else write(child) for child in filter.children)


def _joins(filter: Filter) -> bool:
    """Whether AND or OR is what binds last, also within one atom."""
    joining = isinstance(filter, Atom) and isinstance(filter.name, Call) and filter.name.function in ("AND", "OR")
    return joining or isinstance(filter, (And, Or))


def _atom(atom: Atom) -> str:
    if isinstance(atom.name, Call):
        return _call(atom.name, 0)
    subject = name(atom.name) if isinstance(atom.name, str) else _measure(atom.name)
    if atom.operator is Operator.IS_NULL or atom.value is None:
        return f"{subject} IS NULL"
    if isinstance(atom.value, tuple):
        values = [literal(value) for value in atom.value]
        return f"{subject} IN ({', '.join(values)})" if atom.operator is Operator.IN else _between(subject, values)
    if atom.operator is Operator.LIKE:
        return f"{subject} LIKE {pattern_literal(str(atom.value))}"
    return f"{subject} {atom.operator} {literal(atom.value)}"


def _between(subject: str, values: list[str]) -> str:
    return f"{subject} BETWEEN {values[0]} AND {values[1]}"


def _measure(term: Distance | Count) -> str:
    if isinstance(term, Distance):
        return f"distance({_located(term.a)}, {_located(term.b)})"
    if term.around is None or term.within is None:
        return f"count({_located(term.of)})"
    return f"count({_located(term.of)}, {_located(term.around)}, {literal(term.within)})"


def _located(located: Located) -> str:
    if located == ME:
        return RECEIVER
    if isinstance(located, User):
        return f"user({literal(located.name)})"
    if isinstance(located, Entities):
        return f"uform({write(located.conditions) if located.conditions is not None else ''})"
    if isinstance(located, Place):
        return _point(located)
    return "this"


def _point(place: Place) -> str:
    if place.coordinates == "planar":
        raise DefinitionError(Fault("a point in degrees", f"the planar point {place.x}, {place.y}"))
    numbers = (place.x, place.y) if place.z is None else (place.x, place.y, place.z)
    return f"POINT({' '.join(literal(number) for number in numbers)})"


def name(text: str) -> str:
    """An attribute's name, in double quotes where CQL2 needs them."""
    plain = NAME.fullmatch(text) and text.upper() not in KEYWORDS and text.upper() not in GEOMETRIES
    return text if plain else '"' + text.replace('"', '""') + '"'


def literal(value: Value | date) -> str:
    """A literal as CQL2 writes it."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, ReceiverReading):
        return name(value)
    if isinstance(value, str):
        return text_literal(value)
    if isinstance(value, datetime):
        return f"TIMESTAMP('{time_text(value)}')"
    if isinstance(value, date):
        return f"DATE('{value.isoformat()}')"
    if not math.isfinite(value):
        raise DefinitionError(Fault("a finite number", str(value)))
    return repr(value)


BINDING = {
    "OR": 1,
    "AND": 2,
    "NOT": 3,
    **dict.fromkeys((*COMPARISONS, "IN", "BETWEEN", "LIKE", "IS NULL"), 4),
    **dict.fromkeys(("+", "-"), 5),
    **dict.fromkeys(("*", "/", "%", "DIV"), 6),
    "^": 7,
}
"""How tight operators bind: what binds less stands in parentheses."""


def expression(node: Expression, binding: int = 0) -> str:
    """The CQL2 text of an expression where operators up to `binding` stand in parentheses."""
    match node:
        case Property(written):
            return name(written)
        case Constant(value):
            return "'..'" if value is None else literal(value)
        case Shape(text):
            return text
        case Box(bounds):
            return f"BBOX({', '.join(literal(number) for number in bounds)})"
        case Array(items):
            return f"({', '.join(expression(item) for item in items)})"
    return _call(node, binding)


def _call(call: Call, binding: int) -> str:
    own = BINDING.get(call.function)
    if own is None:
        return _function(call)
    written = _operator(call, own)
    return f"({written})" if own <= binding else written


def _function(call: Call) -> str:
    if call.function in ("TRUE", "FALSE"):
        return call.function
    if call.function in AGGREGATES:
        subject, *rest = call.arguments
        return f"{call.function}({', '.join([expression(subject), *(_plain(one) for one in rest)])})"
    if call.function == "INTERVAL":
        return f"INTERVAL({', '.join(_end(argument) for argument in call.arguments)})"
    # The location terms are ours, and written small.
    written = call.function.lower() if call.function in ("USER", "DISTANCE") else call.function
    return f"{written}({', '.join(expression(argument) for argument in call.arguments)})"


def _plain(node: Expression) -> str:
    """A time over which readings are taken, or a number."""
    return str(node.value) if isinstance(node, Constant) else expression(node)


def _pattern(node: Expression) -> str:
    """A pattern of LIKE, within CASEI and ACCENTI or alone."""
    if isinstance(node, Call):
        return f"{node.function}({_pattern(node.arguments[0])})"
    assert isinstance(node, Constant), "definitions are checked"
    return pattern_literal(str(node.value))


def _end(node: Expression) -> str:
    """An end of an interval, where a day or moment stands as text."""
    if isinstance(node, Constant) and isinstance(node.value, date):
        return literal(node.value).partition("(")[2].removesuffix(")")
    return expression(node)


def _operator(call: Call, own: int) -> str:
    """An operator between or around its arguments; chains of equal binding go from left to right."""
    function, arguments = call.function, call.arguments
    # Arithmetic goes from left to right, so its left side needs no parentheses at equal binding; comparisons do not.
    first = expression(arguments[0], own if own <= 4 else own - 1)
    match function:
        case "NOT":
            return f"NOT {expression(arguments[0], own - 1)}"
        case "IS NULL":
            return f"{first} IS NULL"
        case "IN":
            return f"{first} IN ({', '.join(expression(argument) for argument in arguments[1:])})"
        case "BETWEEN":
            return f"{first} BETWEEN {expression(arguments[1], own)} AND {expression(arguments[2], own)}"
        case "LIKE":
            return f"{first} LIKE {_pattern(arguments[1])}"
        case "AND" | "OR":
            return f" {function} ".join(expression(argument, own) for argument in arguments)
    return f"{first} {function.lower() if function == 'DIV' else function} {expression(arguments[1], own)}"
