"""Expressions: what an atom may compute of an event, beside the comparison of one attribute with one literal.

An expression is a tree of values — attributes, literals, geometries, arrays — and of calls, by the names that CQL2 has
for them: operators (`+`, `=`, `IN`, `IS NULL`, `AND`) and functions (`CASEI`, `S_INTERSECTS`, `T_AFTER`) alike. Equal
expressions are equal values, so what works with filters may treat them as opaque.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime

from nearcast.model.values import Value

TOLD_GEOMETRY = ("geom", "geometry")
"""Attributes under which an event may tell its own geometry."""

GEOMETRY = frozenset({*TOLD_GEOMETRY, "this"})
"""Names of the event's own geometry, in lower case: what it tells as such, else the point where it is."""

PREVIOUS = frozenset({"PREVIOUS", "CHANGED"})
"""Functions of an attribute of the entity's previous event."""

AGGREGATES = ("AVG", "MAX", "MIN", "SUM", "COUNT", "RATE")
"""Functions of the readings of a class over a time, in rules of situations: the class, the time as in `5 min`, and how
many readings there must be at least.
"""

COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
ARITHMETIC = ("+", "-", "*", "/", "%", "^", "DIV")
SPATIAL = (
    *("S_INTERSECTS", "S_EQUALS", "S_DISJOINT", "S_TOUCHES"),
    *("S_WITHIN", "S_OVERLAPS", "S_CROSSES", "S_CONTAINS"),
)
ARRAYS = ("A_EQUALS", "A_CONTAINS", "A_CONTAINEDBY", "A_OVERLAPS")


@dataclass(frozen=True, slots=True)
class Property:
    """Every value of an attribute of the event."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal; a date is a day without a zone, None the open end (`'..'`) of an interval.

    `kind` is the literal's type and counts for equality, for Python holds 1, 1.0 and True to be equal.
    """

    value: Value | date | None
    kind: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", type(self.value).__name__)


@dataclass(frozen=True, slots=True)
class Shape:
    """A geometry written into the filter, as well-known text."""

    text: str


@dataclass(frozen=True, slots=True)
class Box:
    """A bounding box: west, south, east, north, with heights west, south, bottom, east, north, top.

    West of more than east: the box crosses the antimeridian.
    """

    bounds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """A list of expressions as one value."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function, by its CQL2 name in capitals, of its arguments."""

    function: str
    arguments: tuple[Expression, ...] = ()


Expression = Property | Constant | Shape | Box | Array | Call


def parts(expression: Expression) -> Iterator[Expression]:
    """An expression and every one within it, in the order of the text."""
    yield expression
    for part in _inner(expression):
        yield from parts(part)


def _inner(expression: Expression) -> tuple[Expression, ...]:
    if isinstance(expression, Array):
        return expression.items
    return expression.arguments if isinstance(expression, Call) else ()


def attributes(expression: Expression) -> tuple[str, ...]:
    """The names of the event's own attributes that an expression reads, each once."""
    return tuple(dict.fromkeys(part.name for part in _own(expression) if isinstance(part, Property)))


def _own(expression: Expression) -> Iterator[Expression]:
    """The parts that are about the event itself, not about its predecessor; CHANGED is about both."""
    if isinstance(expression, Call) and expression.function == "PREVIOUS":
        return
    yield expression
    for part in _inner(expression):
        yield from _own(part)


_WHOLE = frozenset(
    {
        *COMPARISONS,
        *ARITHMETIC,
        *SPATIAL,
        *ARRAYS,
        "BETWEEN",
        "LIKE",
        "NOT",
        "S_DWITHIN",
        "CASEI",
        "ACCENTI",
        "INTERVAL",
    }
)
"""Operators and functions that have no value, and no truth, where one of their arguments has none."""


def needed(expression: Expression) -> Iterator[str]:
    """Attributes without which an expression is UNKNOWN, or has no value; there may be more."""
    match expression:
        case Property(name):
            # The event's own geometry is the point where it is, if it tells none.
            yield from () if name.lower() in GEOMETRY else (name,)
        case Array(items):
            for item in items:
                yield from needed(item)
        case Call(function, arguments) if function in _WHOLE or function.startswith("T_"):
            for argument in arguments:
                yield from needed(argument)
        case Call("IN", (value, *_)):
            yield from needed(value)


def remembered(expression: Expression) -> tuple[str, ...]:
    """The names of the attributes of the entity's previous event that an expression reads, each once."""
    calls = [part for part in parts(expression) if isinstance(part, Call) and part.function in PREVIOUS]
    return tuple(dict.fromkeys(one.name for call in calls for one in call.arguments if isinstance(one, Property)))


def users(expression: Expression) -> tuple[str, ...]:
    """The names of the users whose positions an expression reads, each once."""
    calls = [part for part in parts(expression) if isinstance(part, Call) and part.function == "USER"]
    names = [one.value for call in calls for one in call.arguments if isinstance(one, Constant)]
    return tuple(dict.fromkeys(str(name) for name in names))


def day_of(text: str) -> date | None:
    """The day that a text `2020-01-31` names; None for any other text."""
    # Python reads more than RFC 3339 has, weeks and other digits among it.
    if len(text) != 10 or text[4] != "-" or text[7] != "-" or not text.replace("-", "").isascii():
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def day(moment: datetime | date) -> date:
    """The day of a moment in UTC; a day is itself."""
    return moment.date() if isinstance(moment, datetime) else moment
