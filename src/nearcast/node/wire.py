"""Messages as datagrams, JSON of known form and bounded size; and requests that come as events.

A datagram names in `via` the node that sent it this time. That is how a node knows its own voice; whom to limit, it
knows from the transport.

Fields may be added within a version: who does not know them does not read them, and what they say when they are missing
is what was so before. So `age`, how old the values of a response are, and `retracted` came.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import orjson

from nearcast.errors import Fault, Mark
from nearcast.foraging.forager import MOST_VALUES, ForagingNode
from nearcast.foraging.foraging_rules import ForagingRule, remote
from nearcast.language.cql2 import parse
from nearcast.language.definitions.client_documents import number, place_of
from nearcast.model.event import Place
from nearcast.model.filter import Atom, Operator
from nearcast.model.foraging import REQUESTED, Message, MessageId, Request, Response
from nearcast.model.values import INTEGER_MAXIMUM, INTEGER_MINIMUM, Value, time_of, time_text

VERSION = 1

MOST_BYTES = 8_192
MOST_CONDITIONS = MOST_VALUES
"""Of a request, and values of a response."""
MOST_TEXT = 200
"""Characters of a name or a text."""

_WHERE = Mark("datagram")
_OPERATORS = {str(operator): operator for operator in REQUESTED}


def encode(message: Message, via: str) -> bytes:
    """A message as a datagram, sent by the node `via`. Raises `Fault` if it is too large for one."""
    data: dict[str, Any] = {
        "nearcast": VERSION,
        "via": via,
        "id": [message.id.origin, message.id.number],
        "place": placed(message.place),
        "within": message.within,
        "time": message.time,
        "valid": message.valid,
    }
    if isinstance(message, Request):
        data["want"] = [[one.name, str(one.operator), _written(one.literals[0])] for one in message.conditions]
    else:
        data["provider"] = message.provider
        data["have"] = [[name, _written(value)] for name, value in message.values]
        if message.age is not None:
            data["age"] = message.age
        if message.retracted:
            data["retracted"] = True
    carried = len(message.conditions if isinstance(message, Request) else message.values)
    if carried > MOST_CONDITIONS:
        raise Fault(f"a message of at most {MOST_CONDITIONS} conditions or values", f"{carried}", _WHERE)
    written = orjson.dumps(data)
    if len(written) > MOST_BYTES:
        raise Fault(f"a message of at most {MOST_BYTES:,} bytes", f"{len(written):,}", _WHERE, "ask for less at once")
    return written


def placed(place: Place) -> dict[str, float]:
    """A place as JSON: x and y, or lon and lat."""
    names = ("x", "y", "z") if place.coordinates == "planar" else ("lon", "lat", "alt")
    values = (place.x, place.y, place.z)
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def _written(value: Value) -> Any:
    """A value as JSON; a moment as an object, so that it is not taken for a text."""
    return {"time": time_text(value)} if isinstance(value, datetime) else value


def decode(datagram: bytes) -> tuple[Message, str]:
    """The message of a datagram, and who sent it this time. Raises `Fault` for anything that is none."""
    if len(datagram) > MOST_BYTES:
        raise Fault(f"a datagram of at most {MOST_BYTES:,} bytes", f"{len(datagram):,}", _WHERE)
    try:
        data = orjson.loads(datagram)
    # A ValueError; a RecursionError for brackets in brackets.
    except (ValueError, RecursionError):
        raise Fault("a datagram in JSON", repr(datagram[:40]), _WHERE) from None
    if not isinstance(data, dict) or data.get("nearcast") != VERSION:
        raise Fault(f"a message of version {VERSION}", _shown(data), _WHERE, "another program may use this port")
    return _message(data), _text(data.get("via"), "via")


def _message(data: dict[str, Any]) -> Message:
    where, id = _place(data.get("place")), _id(data.get("id"))
    within, time, valid = (_number(data.get(name), name) for name in ("within", "time", "valid"))
    if "want" in data:
        return Request(id, where, within, time, valid, tuple(map(_condition, _listed(data["want"], "want"))))
    values = tuple(map(_pair, _listed(data.get("have"), "have")))
    provider = _text(data.get("provider"), "provider")
    return Response(id, provider, where, within, time, valid, values, _age(data.get("age")), _retracted(data))


def _age(data: Any) -> float | None:
    """How old values are; None from a node that does not say."""
    age = None if data is None else _number(data, "age")
    if age is not None and age < 0:
        raise Fault("age: seconds, 0 or more", _shown(data), _WHERE)
    return age


def _retracted(data: dict[str, Any]) -> bool:
    found = data.get("retracted", False)
    if not isinstance(found, bool):
        raise Fault("retracted: true or false", _shown(found), _WHERE)
    return found


def _place(data: Any) -> Place:
    place = place_of(data, _WHERE) if isinstance(data, dict) else None
    if place is None:
        raise Fault("a place: x and y, or lon and lat", _shown(data), _WHERE)
    return place


def _id(data: Any) -> MessageId:
    match data:
        case [origin, int(number)] if not isinstance(number, bool):
            return MessageId(_text(origin, "the origin"), number)
    raise Fault("an id: origin and number", _shown(data), _WHERE)


def _listed(data: Any, name: str) -> list[Any]:
    if not isinstance(data, list) or not 1 <= len(data) <= MOST_CONDITIONS:
        came = f"{len(data)}" if isinstance(data, list) else _shown(data)
        raise Fault(f"{name}: a list of 1 to {MOST_CONDITIONS}", came, _WHERE)
    return data


def _condition(data: Any) -> Atom:
    match data:
        case [name, str(operator), value] if operator in _OPERATORS:
            return Atom(_text(name, "a class"), Operator(operator), _value(value))
    raise Fault(f"a condition: class, one of {' '.join(_OPERATORS)}, value", _shown(data), _WHERE)


def _pair(data: Any) -> tuple[str, Value]:
    match data:
        case [name, value]:
            return _text(name, "a class"), _value(value)
    raise Fault("a reading: class and value", _shown(data), _WHERE)


def _value(data: Any) -> Value:
    match data:
        case bool():
            return data
        case str() if len(data) <= MOST_TEXT:
            return data
        case int() if INTEGER_MINIMUM <= data <= INTEGER_MAXIMUM:
            return data
        case float() if math.isfinite(data):
            return data
        case {"time": str(text)} if len(data) == 1 and (moment := time_of(text)):
            return moment
    raise Fault("a value: a number, a text, true, false or a time", _shown(data), _WHERE)


def _number(data: Any, name: str) -> float:
    if isinstance(data, bool) or not isinstance(data, (int, float)) or not math.isfinite(data):
        raise Fault(f"{name}: a finite number", _shown(data), _WHERE)
    return float(data)


def _text(data: Any, name: str) -> str:
    if not isinstance(data, str) or not 1 <= len(data) <= MOST_TEXT:
        raise Fault(f"{name}: a text of 1 to {MOST_TEXT} characters", _shown(data), _WHERE)
    return data


def _shown(data: Any) -> str:
    """What came, in few characters: it may be anything."""
    return "nothing" if data is None else "".join(_first(repr(data)))


def _first(text: str) -> Iterator[str]:
    yield text[:60]
    if len(text) > 60:
        yield "…"


def requested(data: Mapping[str, Any], where: Mark, node: ForagingNode, place: Place, now: float) -> Request:
    """The request of an event with `when` (CQL2), `within` (metres) and `valid` (seconds); at the node's place unless
    it names one. Raises `Fault` or `DefinitionError`.
    """
    when = data.get("when")
    if not isinstance(when, str):
        raise Fault("when, a filter as text", repr(when)[:60], where)
    within, valid = (number(data.get(name), name, where) for name in ("within", "valid"))
    bounds = node.manner.bounds
    if not (0 <= within <= bounds.farthest and 0 < valid <= bounds.longest):
        expected = f"within up to {bounds.farthest:g} metres and valid up to {bounds.longest:g} seconds"
        raise Fault(expected, f"{within:g} and {valid:g}", where)
    conditions = remote(ForagingRule("asked", "asked", parse(when, where), within, valid), frozenset())
    if len(conditions) > MOST_CONDITIONS:
        raise Fault(f"a filter of at most {MOST_CONDITIONS} conditions", f"{len(conditions)}", where, "ask in parts")
    return Request(node.next_id(), place_of(data, where) or place, within, now, valid, conditions)
