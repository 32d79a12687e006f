"""What a filter says of its receiver, `me` and `me.NAME`, written out for one client: one filter serves a fleet.

What is about the event alone stays the same condition for all of them, and is evaluated once; what is about the
receiver becomes a condition with its own name and numbers, of which there may be many (see `matching.proximity`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from nearcast.model.expression import COMPARISONS, Array, Call, Constant, Expression, Property, parts
from nearcast.model.filter import (
    ME,
    RECEIVER,
    And,
    Atom,
    Count,
    Distance,
    Filter,
    Located,
    Not,
    Operator,
    Or,
    PlainNot,
    ReceiverReading,
    User,
    atoms,
)
from nearcast.model.values import narrowed

FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def asked_of_receiver(filter: Filter) -> tuple[bool, frozenset[str]]:
    """Whether a filter is about its receiver, and the readings of it that it asks for."""
    found = [name for atom in atoms(filter) for name in _asked(atom)]
    return bool(found), frozenset(name.removeprefix(f"{RECEIVER}.") for name in found if name != RECEIVER)


def for_receiver(filter: Filter, client: str, readings: Mapping[str, float]) -> Filter:
    """The filter as it is for one client with these readings. A reading that is not known leaves UNKNOWN what asks it.

    Its atoms are as many, in the same order.
    """
    if isinstance(filter, Atom):
        return _atom(filter, client, readings) if any(_asked(filter)) else filter
    if isinstance(filter, (Not, PlainNot)):
        return type(filter)(for_receiver(filter.child, client, readings))
    assert isinstance(filter, (And, Or))
    return type(filter)(tuple(for_receiver(child, client, readings) for child in filter.children))


def _asked(atom: Atom) -> Iterator[str]:
    """What an atom asks of the receiver: `me`, `me.NAME`."""
    yield from (str(value) for value in atom.literals if isinstance(value, ReceiverReading))
    match atom.name:
        case Distance(a, b):
            yield from (RECEIVER for one in (a, b) if one == ME)
        case Count(of, around):
            yield from (RECEIVER for one in (of, around) if one == ME)
        case Call():
            names = (part.name for part in parts(atom.name) if isinstance(part, Property))
            yield from (name for name in names if name == RECEIVER or name.startswith(f"{RECEIVER}."))


def _atom(atom: Atom, client: str, readings: Mapping[str, float]) -> Atom:
    if isinstance(atom.name, Call):
        return _plain(Atom(_call(atom.name, client, readings), atom.operator, atom.value, atom.where))
    name = atom.name
    if isinstance(name, Distance):
        name = Distance(_located(name.a, client), _located(name.b, client))
    elif isinstance(name, Count):
        name = replace(name, of=_located(name.of, client), around=name.around and _located(name.around, client))
    values = tuple(_limit(value, readings) if isinstance(value, ReceiverReading) else value for value in atom.literals)
    return Atom(name, atom.operator, values if isinstance(atom.value, tuple) else values[0], atom.where)


def _located(located: Located, client: str) -> Located:
    return User(client) if located == ME else located


def _limit(reading: ReceiverReading, readings: Mapping[str, float]) -> float | str:
    """The number; where it is not known the reading itself, a text, which compares with no number."""
    number = readings.get(reading.removeprefix(f"{RECEIVER}."))
    return reading if number is None else narrowed(number)


def _call(call: Call, client: str, readings: Mapping[str, float]) -> Call:
    return Call(call.function, tuple(_expression(one, client, readings) for one in call.arguments))


def _expression(expression: Expression, client: str, readings: Mapping[str, float]) -> Expression:
    match expression:
        case Property(name) if name == RECEIVER:
            return Call("USER", (Constant(client),))
        case Property(name) if name.startswith(f"{RECEIVER}."):
            number = readings.get(name.removeprefix(f"{RECEIVER}."))
            return expression if number is None else Constant(narrowed(number))
        case Call():
            return _call(expression, client, readings)
        case Array(items):
            return Array(tuple(_expression(one, client, readings) for one in items))
    return expression


def _plain(atom: Atom) -> Atom:
    """The plain atom, which matching is fastest at, where an attribute is compared with a number by now."""
    call = atom.name
    if not isinstance(call, Call) or call.function not in COMPARISONS or len(call.arguments) != 2:
        return atom
    first, second = call.arguments
    function = call.function
    if isinstance(first, Constant):
        first, second, function = second, first, FLIPPED.get(function, function)
    if (
        not isinstance(first, Property)
        or not isinstance(second, Constant)
        or not isinstance(second.value, (int, float))
    ):
        return atom
    return Atom(first.name, Operator(function), second.value, atom.where)
