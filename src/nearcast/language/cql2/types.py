"""The types of CQL2 expressions, and the functions there are: what a definition can be checked for before any event."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Literal

from nearcast.model.expression import AGGREGATES, ARITHMETIC, Array, Box, Call, Constant, Expression, Property, Shape

Type = Literal["any", "number", "text", "boolean", "instant", "interval", "geometry", "array", "property"]
"""`any`: what only an event can tell. `property`: the name of an attribute itself is asked for."""

SCALARS = frozenset({"number", "text", "boolean", "instant"})
"""What comparisons compare, each with its own kind."""

EXAMPLES: dict[Type, str] = {
    "number": "a number",
    "text": "a text",
    "boolean": "a condition",
    "instant": "DATE('2020-01-31') or TIMESTAMP('2020-01-31T12:00:00Z')",
    "interval": "INTERVAL('2020-01-01', '..')",
    "geometry": "a geometry",
    "array": "an array, as ('a', 'b')",
    "property": "an attribute",
}


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes, what it gives, and how it is written."""

    takes: tuple[tuple[Type, ...], ...]
    gives: Type
    form: str


def _pair(names: str, types: tuple[Type, ...], of: str) -> dict[str, Signature]:
    return {name: Signature((types, types), "boolean", f"{name}({of}, {of})") for name in names.split()}


FUNCTIONS: dict[str, Signature] = {
    "CASEI": Signature((("text",),), "text", "CASEI(text)"),
    "ACCENTI": Signature((("text",),), "text", "ACCENTI(text)"),
    **_pair(
        "S_INTERSECTS S_EQUALS S_DISJOINT S_TOUCHES S_WITHIN S_OVERLAPS S_CROSSES S_CONTAINS",
        ("geometry",),
        "geometry",
    ),
    **_pair("T_AFTER T_BEFORE T_DISJOINT T_EQUALS T_INTERSECTS", ("instant", "interval"), "time"),
    **_pair(
        "T_CONTAINS T_DURING T_FINISHEDBY T_FINISHES T_MEETS T_METBY T_OVERLAPPEDBY T_OVERLAPS T_STARTEDBY T_STARTS",
        ("interval",),
        "interval",
    ),
    **_pair("A_EQUALS A_CONTAINS A_CONTAINEDBY A_OVERLAPS", ("array",), "array"),
    "S_DWITHIN": Signature((("geometry",), ("geometry",), ("number",)), "boolean", "S_DWITHIN(a, b, metres)"),
    "CHANGED": Signature((("property",),), "boolean", "CHANGED(attribute)"),
    "PREVIOUS": Signature((("property",),), "any", "PREVIOUS(attribute)"),
}
"""The functions of expressions; DATE, TIMESTAMP, INTERVAL and the location terms have readers of their own."""

OTHERS = ("DATE", "TIMESTAMP", "INTERVAL", "DISTANCE", "COUNT", "USER", "UFORM")


def type_of(expression: Expression) -> Type:
    """The type of an expression as far as it is written."""
    match expression:
        case Property():
            return "any"
        case Constant(value):
            return _type_of_constant(value)
        case Shape() | Box():
            return "geometry"
        case Array():
            return "array"
        case Call(function):
            return _type_of_call(function)


def _type_of_constant(value: object) -> Type:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, date):
        return "instant"
    return "text" if isinstance(value, str) else "number"


def _type_of_call(function: str) -> Type:
    # As a value, a distance is there between the sides of a relation only.
    if function in ARITHMETIC or function in AGGREGATES or function == "DISTANCE":
        return "number"
    if function in ("INTERVAL", "USER"):
        return "interval" if function == "INTERVAL" else "geometry"
    return FUNCTIONS[function].gives if function in FUNCTIONS else "boolean"
