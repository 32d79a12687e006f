"""CQL2 JSON (OGC 21-065r2, 8.3): read into syntax, every node with its place, and written from filters."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date, datetime
from math import isfinite
from typing import Any

import orjson

from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language.cql2.filter_limits import ALONE, MAX_HEIGHT, TextLimits, too_many_atoms, too_many_literals
from nearcast.language.cql2.literals import PlainLiteral, text_literal
from nearcast.language.cql2.syntax import Syntax, SyntaxKind
from nearcast.language.marks import Locate
from nearcast.language.nodes import DocumentNode, from_data, from_yaml
from nearcast.model.event import Place
from nearcast.model.expression import Array, Box, Call, Constant, Expression, Property, Shape
from nearcast.model.filter import (
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
from nearcast.model.values import INTEGER_MAXIMUM, INTEGER_MINIMUM, Value, narrowed, time_text

_READ = {"isNull": "IS NULL"}
_WRITTEN = {
    "IS NULL": "isNull",
    "T_FINISHEDBY": "t_finishedBy",
    "T_METBY": "t_metBy",
    "T_OVERLAPPEDBY": "t_overlappedBy",
    "T_STARTEDBY": "t_startedBy",
    "A_CONTAINEDBY": "a_containedBy",
}
"""Names that are not just the text's in lower case."""

_EXAMPLE = 'for example: {"op": ">", "args": [{"property": "size"}, 10]}'
_KEYS = "op and args, property, date, timestamp, interval, bbox, or a GeoJSON geometry"


PLACED = 16 * 1024
"""Characters of a text within which a fault names its line and column: to find them takes a microsecond a character."""


def read_json(text: str, where: Mark, locate: Locate, at_once: bool = False, limits: TextLimits = ALONE) -> Syntax:
    """The syntax of a CQL2 JSON text; `locate` finds the place of a character of it. See `read_node`."""
    try:
        if len(text) <= PLACED:
            return read_whole(from_yaml(text, where.file), at_once, limits)
    except DefinitionError:
        # YAML knows all of JSON but some escapes; those who use them get places no finer than the text's.
        pass
    try:
        plain = json.loads(text, object_pairs_hook=_each_once) if len(text) > PLACED else orjson.loads(text)
    # What begins with a brace is meant as JSON, whatever YAML would say of it.
    except json.JSONDecodeError as wrong:
        reason = wrong.msg.partition(": line ")[0]
        raise Fault("CQL2 JSON", reason, locate(wrong.pos), "CQL2 text begins with no brace") from None
    except _KeyTwice as twice:
        raise Fault("each key once", f"{twice} again", where) from None
    try:
        return read_whole(from_data(plain, where), at_once, limits)
    except DefinitionError as other:
        raise other.faults[0] from None


class _KeyTwice(ValueError):
    """A key that is there already."""


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counted = Counter(key for key, _ in pairs)
        raise _KeyTwice(max(counted, key=counted.__getitem__))
    return found


def read_whole(node: DocumentNode, at_once: bool = False, limits: TextLimits = ALONE) -> Syntax:
    """The same of a filter's root, which is refused before it is read where it has more than it may have."""
    atoms, literals = _sizes(node)
    if atoms > limits.atoms:
        raise too_many_atoms(limits.atoms, atoms, node.where)
    if literals > limits.literals:
        raise too_many_literals(limits.literals, literals, node.where)
    return read_node(node, at_once=at_once)


def _sizes(root: DocumentNode) -> tuple[int, int]:
    """Atoms, by what joins them, and literals of lists."""
    joints = literals = 0
    waiting = [root]
    while waiting:
        value = waiting.pop().value
        if not isinstance(value, dict) or "op" not in value or "args" not in value:
            continue
        name, args = str(value["op"].value).upper(), value["args"].value
        if not isinstance(args, list):
            continue
        if name in ("AND", "OR"):
            joints += len(args) - 1
        elif name == "IN" and len(args) == 2 and isinstance(args[1].value, list):
            literals += len(args[1].value)
        waiting.extend(args)
    return joints + 1, literals


def read_node(node: DocumentNode, height: int = 1, at_once: bool = False) -> Syntax:
    """The syntax of a node of CQL2 JSON; with `at_once` a list of literals behind `in` is one node. Raises `Fault`."""
    value = node.value
    if height > 2 * MAX_HEIGHT:
        raise Fault(f"a filter at most {2 * MAX_HEIGHT} deep", "a deeper one", node.where)
    if isinstance(value, dict):
        return _object(node, value, height, at_once)
    if isinstance(value, list):
        parts = tuple(read_node(item, height + 1, at_once) for item in value)
        return _syntax("list", None, node, parts=parts)
    if value is None:
        return _syntax("null", None, node, "null")
    if isinstance(value, bool):
        return _syntax("boolean", value, node, str(value).lower())
    if isinstance(value, str):
        return _syntax("text", value, node, text_literal(value))
    return _syntax("number", _exact(value, node), node, str(value))


def _syntax(
    kind: SyntaxKind, value: Any, node: DocumentNode, written: str = "", parts: tuple[Syntax, ...] = ()
) -> Syntax:
    return Syntax(kind, value, 0, lambda offset: node.where, written, parts)


def _exact(value: int | float, node: DocumentNode) -> int | float:
    # As in text: 150.0 and 150 are one atom.
    value = narrowed(value)
    if value != value or value in (float("inf"), float("-inf")):
        raise Fault("a finite number", str(value), node.where, "numbers reach to 1.8e308")
    if isinstance(value, int) and not INTEGER_MINIMUM <= value <= INTEGER_MAXIMUM:
        advice = "integers reach from -2^63 to 2^63 - 1"
        raise Fault("a number within 64 bits", str(value)[:80], node.where, advice)
    return value


def _object(node: DocumentNode, value: dict[str, DocumentNode], height: int, at_once: bool) -> Syntax:
    if "op" in value:
        return _call(node, value, height, at_once)
    if "property" in value:
        name = _text(value["property"], "the name of an attribute")
        return _syntax("property", name, node, name)
    for word in ("date", "timestamp"):
        if word in value:
            return _syntax("call", word.upper(), node, word, (read_node(value[word], height + 1),))
    if "interval" in value:
        ends = tuple(read_node(item, height + 1) for item in _items(value["interval"], "interval"))
        return _syntax("call", "INTERVAL", node, "interval", ends)
    if "bbox" in value and "type" not in value:
        bounds = [read_node(item).value for item in _items(value["bbox"], "bbox")]
        if len(bounds) not in (4, 6):
            raise Fault("bbox, 4 or 6 numbers", f"{len(bounds)}", node.where)
        return _syntax("geometry", {"bbox": bounds}, node)
    if "type" in value:
        return _syntax("geometry", node.plain(), node)
    raise Fault(f"CQL2 JSON: {_KEYS}", ", ".join(value)[:80] or "an empty object", node.where, _EXAMPLE)


def _call(node: DocumentNode, value: dict[str, DocumentNode], height: int, at_once: bool) -> Syntax:
    written = _text(value["op"], "op, the name of an operator or function")
    if "args" not in value:
        raise Fault("args, a list", "none", node.where, _EXAMPLE)
    name = _READ.get(written, written.upper())
    args = value["args"]
    listed = _items(args, "args")
    # JSON has a list within the arguments, text has parentheses: the syntax has neither.
    if name == "IN" and len(listed) == 2:
        values = _items(listed[1], "the values of in")
        literals = _literals(values) if at_once else None
        if literals:
            subject = read_node(listed[0], height + 1, at_once)
            return _syntax("call", name, node, written, (subject, _syntax("values", literals, values[0])))
        listed = [listed[0], *values]
    parts = tuple(read_node(item, height + 1, at_once) for item in listed)
    least, most = _SIZES.get(name, (0, len(parts)))
    if not least <= len(parts) <= most:
        raise Fault(f"{least} arguments of {written}", str(len(parts)), args.where, _EXAMPLE)
    return _syntax("call", name, node, written, parts)


def _literals(values: list[DocumentNode]) -> tuple[PlainLiteral, ...] | None:
    """The values of an `in` if all are texts and plain numbers."""
    found: list[PlainLiteral] = []
    for node in values:
        value = node.value
        # By exact type: in Python a bool is an integer.
        if type(value) is str or (type(value) is int and INTEGER_MINIMUM <= value <= INTEGER_MAXIMUM):
            found.append(value)
        elif type(value) is float and isfinite(value):
            found.append(narrowed(value))
        else:
            return None
    return tuple(found)


_MANY = 1_000_000
_SIZES = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "LIKE", "+", "-", "*", "/", "%", "^", "DIV"), (2, 2)),
    **dict.fromkeys(("AND", "OR", "IN"), (2, _MANY)),
    **dict.fromkeys(("NOT", "IS NULL"), (1, 1)),
    "BETWEEN": (3, 3),
}
"""How many arguments operators have at least and at most, an IN's value and list taken as one."""


def _text(node: DocumentNode, expected: str) -> str:
    if not isinstance(node.value, str) or not node.value:
        raise Fault(expected, str(node), node.where)
    return node.value


def _items(node: DocumentNode, what: str) -> list[DocumentNode]:
    if not isinstance(node.value, list):
        raise Fault(f"{what}, a list", str(node), node.where, _EXAMPLE)
    return node.value


def write_json(filter: Filter) -> Any:
    """The CQL2 JSON of a filter, JSON-able. `parse_node` inverts it, but for the thesis' negation, written as `not`."""
    if isinstance(filter, Atom):
        return _atom(filter)
    if isinstance(filter, (Not, PlainNot)):
        return _op("not", [write_json(filter.child)])
    assert isinstance(filter, (And, Or))
    children = [write_json(child) for child in filter.children]
    return children[0] if len(children) == 1 else _op("or" if isinstance(filter, Or) else "and", children)


def _op(name: str, args: list[Any]) -> dict[str, Any]:
    return {"op": name, "args": args}


def _atom(atom: Atom) -> Any:
    if isinstance(atom.name, Call):
        return expression_data(atom.name)
    subject = {"property": atom.name} if isinstance(atom.name, str) else _measure(atom.name)
    if atom.operator is Operator.IS_NULL or atom.value is None:
        return _op("isNull", [subject])
    if isinstance(atom.value, tuple):
        values = [_value(value) for value in atom.value]
        return _op("in", [subject, values]) if atom.operator is Operator.IN else _op("between", [subject, *values])
    return _op(atom.operator.value.lower(), [subject, _value(atom.value)])


def _value(value: Value | date | None) -> Any:
    if isinstance(value, ReceiverReading):
        return {"property": str(value)}
    if isinstance(value, datetime):
        return {"timestamp": time_text(value)}
    return {"date": value.isoformat()} if isinstance(value, date) else value


def _measure(term: Distance | Count) -> Any:
    if isinstance(term, Distance):
        return _op("distance", [_located(term.a), _located(term.b)])
    rest = [] if term.around is None or term.within is None else [_located(term.around), term.within]
    return _op("count", [_located(term.of), *rest])


def _located(located: Located) -> Any:
    match located:
        case User(""):
            return {"property": RECEIVER}
        case User(name):
            return _op("user", [name])
        case Entities(conditions):
            return _op("uform", [] if conditions is None else [write_json(conditions)])
        case Place():
            heights = () if located.z is None else (located.z,)
            return {"type": "Point", "coordinates": [located.x, located.y, *heights]}
    return {"property": "this"}


def expression_data(expression: Expression) -> Any:
    """The CQL2 JSON of an expression."""
    match expression:
        case Property(name):
            return {"property": name}
        case Constant(value):
            return _value(value)
        case Shape(text):
            import shapely

            return orjson.loads(shapely.to_geojson(shapely.from_wkt(text)))
        case Box(bounds):
            return {"bbox": list(bounds)}
        case Array(items):
            return [expression_data(item) for item in items]
    return _call_data(expression)


def _call_data(call: Call) -> Any:
    args = [expression_data(argument) for argument in call.arguments]
    if call.function in ("TRUE", "FALSE"):
        return call.function == "TRUE"
    if call.function == "INTERVAL":
        return {"interval": [_end(argument) for argument in call.arguments]}
    if call.function == "IN":
        args = [args[0], args[1:]]
    return _op(_WRITTEN.get(call.function, call.function.lower()), args)


def _end(expression: Expression) -> Any:
    """An end of an interval: a day or moment stands there as text."""
    if not isinstance(expression, Constant):
        return expression_data(expression)
    if expression.value is None:
        return ".."
    written = _value(expression.value)
    return next(iter(written.values())) if isinstance(written, dict) else written
