"""What the sides of a relation must have for its predicate: the attributes that it names, of kinds that compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from nearcast.errors import Fault, Mark
from nearcast.language import cql2
from nearcast.language.cql2_text import expression as written
from nearcast.language.cql2_types import Type, type_of
from nearcast.model.expression import ARITHMETIC, COMPARISONS, Call, Expression, Property, parts
from nearcast.model.filter import And, Atom, Filter, Operator, atoms
from nearcast.model.relation import SIDES, Matching, Pair, Side
from nearcast.model.values import Kind, kind_of

Known = Type | Literal["absent"]

_TYPES: dict[Kind, Type] = {"number": "number", "text": "text", "boolean": "boolean", "time": "instant"}

_OWN: dict[str, Known] = {"id": "text", "type": "text", "source": "text", "subject": "text", "time": "instant"}

_WORDS = {"number": "a number", "text": "a text", "boolean": "true or false", "instant": "a time"}


def side_faults(pair: Pair) -> Iterator[Fault]:
    """What cannot be: a predicate over an attribute that its side lacks, or over two kinds that do not compare."""
    types = {name: _types_of(side) for name, side in zip(SIDES, (pair.a, pair.b), strict=True)}
    for atom in atoms(pair.when):
        assert isinstance(atom.name, Call), "every atom of a predicate is computed"
        for part in parts(atom.name):
            if isinstance(part, Property) and _known(part, types) == "absent":
                side, _, name = part.name.partition(".")
                came = f"{part.name}, which no entity of side {side} has"
                yield Fault(f"an attribute that {side} can have", came, atom.where, f"its filter says {name} IS NULL")
            elif isinstance(part, Call):
                yield from _clashes(part, types, atom.where)


def filter_faults(filter: Filter) -> Iterator[Fault]:
    """Atoms that a side cannot have: location terms, and whatever needs more than the entity's newest event."""
    for atom in atoms(filter):
        calls = parts(atom.name) if isinstance(atom.name, Call) else ()
        beyond = any(isinstance(part, Call) and part.function in ("USER", "PREVIOUS", "CHANGED") for part in calls)
        if beyond or not isinstance(atom.name, (str, Call)):
            advice = "a side is any entity whose newest event satisfies the filter"
            yield Fault("a condition on one event alone", cql2.write(atom), atom.where, advice)


def _types_of(side: Side) -> Mapping[str, Known]:
    """What is known of a side's attributes: the types of those that its filter demands."""
    found: dict[str, Known] = dict(_OWN)
    if isinstance(side, Matching):
        demands = side.filter.children if isinstance(side.filter, And) else (side.filter,)
        for atom in demands:
            if isinstance(atom, Atom) and isinstance(atom.name, str) and atom.name not in _OWN:
                found[atom.name] = _type_demanded(atom)
    return found


def _type_demanded(atom: Atom) -> Known:
    if atom.operator is Operator.IS_NULL:
        return "absent"
    types = {_TYPES[kind_of(value)] for value in atom.literals}
    return types.pop() if len(types) == 1 else "any"


def _known(expression: Expression, types: Mapping[str, Mapping[str, Known]]) -> Known:
    if not isinstance(expression, Property):
        return type_of(expression)
    side, _, name = expression.name.partition(".")
    return types[side].get(name, "any")


def _clashes(call: Call, types: Mapping[str, Mapping[str, Known]], where: Mark | None) -> Iterator[Fault]:
    """A number beside a text, say: such a comparison is UNKNOWN for whatever comes."""
    known = [(argument, _known(argument, types)) for argument in call.arguments]
    told = [(argument, own) for argument, own in known if own in _WORDS]
    if call.function in (*COMPARISONS, "BETWEEN", "IN") and told:
        first, kind = told[0]
        for argument, own in told[1:]:
            # A text may name a moment.
            if own != kind and {own, kind} != {"text", "instant"}:
                came = f"{written(first)}, {_WORDS[kind]}, and {written(argument)}, {_WORDS[own]}"
                yield Fault("two values that compare", came, where, "each side's filter says of which kind they are")
    if call.function in ARITHMETIC:
        for argument, own in told:
            if own != "number":
                yield Fault("numbers to calculate with", f"{written(argument)}, {_WORDS[own]}", where)
