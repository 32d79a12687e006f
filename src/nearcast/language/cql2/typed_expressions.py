"""From syntax to expressions: literals, attributes, arithmetic and functions, each checked for its types."""

from __future__ import annotations

import re
from collections.abc import Callable

from nearcast.errors import Fault
from nearcast.filters.instants import Interval, as_interval
from nearcast.language.cql2 import geometry
from nearcast.language.cql2.advice import on_function
from nearcast.language.cql2.syntax import CONDITIONS, Syntax
from nearcast.language.cql2.types import EXAMPLES, FUNCTIONS, OTHERS, Type, type_of
from nearcast.language.marks import PlacedFault
from nearcast.language.quantities import LONGEST, UNITS
from nearcast.language.time_advice import day_advice, time_advice
from nearcast.model.expression import (
    AGGREGATES,
    ARITHMETIC,
    PREVIOUS,
    Array,
    Box,
    Call,
    Constant,
    Expression,
    Property,
    Shape,
    day_of,
)
from nearcast.model.values import calculate, narrowed, time_of

SUPPORTED = f"there are {', '.join(sorted((*FUNCTIONS, *OTHERS)))}"
_DATE = "DATE('2020-01-31')"
_TIMESTAMP = "TIMESTAMP('2020-01-31T12:00:00Z')"


LEAST = {"RATE": 2}
"""Readings that an aggregate must have at least, where that is not one."""

MOST_READINGS = 1_000_000


def is_aggregate(syntax: Syntax) -> bool:
    """Whether a call is one of an aggregate; `count` is also a location term."""
    if not syntax.calls(*AGGREGATES):
        return False
    return syntax.value != "COUNT" or (len(syntax.parts) > 1 and _window(syntax.parts[1]) is not None)


def _window(syntax: Syntax) -> str | None:
    """The time over which readings are taken, as a number and its unit; a number alone is one of seconds."""
    written = f"{syntax.value} s" if syntax.kind == "number" else str(syntax.value) if syntax.kind == "text" else ""
    found = _WINDOW.fullmatch(written)
    if not found or not 0 < float(found[1]) * UNITS[found[2]] <= LONGEST:
        return None
    return f"{narrowed(float(found[1]))!r} {found[2]}"


_WINDOW = re.compile(rf"\s*([0-9]+(?:\.[0-9]+)?)\s*({'|'.join(UNITS)})\s*")


def fault(expected: str, syntax: Syntax, advice: str = "") -> Fault:
    """The fault that a node is not what is expected."""
    return Fault(expected, syntax.came, syntax.where, advice)


class Expressions:
    """Gives expressions their meaning; `inner`: they are about other events than the one being matched.

    `condition` gives a condition within an expression its meaning; `over_time`: there are aggregates.
    """

    aggregated = "class"
    """What an aggregate is of, as its form names it."""

    def __init__(self, inner: bool, condition: Callable[[Syntax], Expression], over_time: bool = False) -> None:
        self._inner, self._over_time = inner, over_time
        self._condition = condition

    def expression(self, syntax: Syntax) -> Expression:
        """The expression that is meant. Raises `Fault`."""
        match syntax.kind:
            case "property":
                return Property(str(syntax.value))
            case "number" | "text" | "boolean":
                return Constant(syntax.value)
            case "list":
                return Array(tuple(self.expression(part) for part in syntax.parts))
            case "geometry":
                return _geometry(syntax)
            case "atom":
                atom = syntax.value
                return Call(atom.operator.value, (Property(atom.name), *map(Constant, atom.literals)))
            case "null":
                raise fault("a literal", syntax, "absence is asked for with IS NULL")
        return self._call(syntax)

    def _call(self, syntax: Syntax) -> Expression:
        function = str(syntax.value)
        if function in CONDITIONS:
            return self._condition(syntax)
        if function in ARITHMETIC:
            return self._arithmetic(syntax)
        if function in ("DATE", "TIMESTAMP"):
            return self._instant(syntax)
        if function == "INTERVAL":
            return self._interval(syntax)
        if function == "USER":
            return Call("USER", (Constant(self.user(syntax)),))
        if function in FUNCTIONS:
            return self._function(syntax)
        if is_aggregate(syntax):
            return self._aggregate(syntax)
        raise _unknown(syntax)

    def _aggregate(self, syntax: Syntax) -> Call:
        function, name = str(syntax.value), self.aggregated
        form = f"{function}({name}, 5 min), or with how many readings there must be, {function}({name}, 5 min, 3)"
        if not self._over_time:
            advice = "over a time there are the rules of situations and the predicates of relations"
            raise fault("a condition on one event alone", syntax, advice)
        subject, window, *more = self.arguments(syntax, (2, 3), form)
        measured = self._subject(subject, f"for example: {form}")
        written = _window(window)
        if written is None:
            raise fault(f"a time above 0: a number and one of {', '.join(UNITS)}", window, f"for example: {form}")
        least = self.number(more[0]) if more else LEAST.get(function, 1)
        if not isinstance(least, int) or not LEAST.get(function, 1) <= least <= MOST_READINGS:
            raise fault(f"a whole number of readings, {LEAST.get(function, 1)} or more", more[0])
        found = measured, Constant(written)
        return Call(function, found if least == LEAST.get(function, 1) else (*found, Constant(least)))

    def _subject(self, syntax: Syntax, advice: str) -> Property:
        """What an aggregate is of."""
        if syntax.kind != "property":
            raise fault("a class of readings", syntax, advice)
        return Property(str(syntax.value))

    def arguments(self, syntax: Syntax, sizes: tuple[int, ...], form: str) -> tuple[Syntax, ...]:
        """The arguments of a call that must have so many."""
        if len(syntax.parts) not in sizes:
            count = len(syntax.parts)
            raise fault(form, syntax, f"it was given {count or 'no'} argument{'' if count == 1 else 's'}")
        return syntax.parts

    def number(self, syntax: Syntax) -> int | float | None:
        """The number that an expression of literals is; None for any other."""
        found = self.expression(syntax)
        value = found.value if isinstance(found, Constant) else None
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def user(self, syntax: Syntax) -> str:
        """The client's id in `user('id')`."""
        (name,) = self.arguments(syntax, (1,), "user('name')")
        if name.kind != "text":
            raise fault(
                "a client's id in single quotes", name, f"write user('{name.value}')" if name.kind == "property" else ""
            )
        return str(name.value)

    def _function(self, syntax: Syntax) -> Expression:
        signature = FUNCTIONS[str(syntax.value)]
        parts = self.arguments(syntax, (len(signature.takes),), signature.form)
        if self._inner and syntax.value in PREVIOUS:
            raise fault("conditions about one event", syntax, "the conditions of uform(…) know no previous event")
        found = tuple(self._argument(part, takes) for part, takes in zip(parts, signature.takes, strict=True))
        return Call(str(syntax.value), found)

    def _argument(self, syntax: Syntax, takes: tuple[Type, ...]) -> Expression:
        if takes == ("property",):
            if syntax.kind != "property":
                raise fault(EXAMPLES["property"], syntax, "a name, without single quotes: CHANGED(size)")
            return Property(str(syntax.value))
        if syntax.calls("UFORM", "DISTANCE", "COUNT") and not is_aggregate(syntax):
            raise fault(" or ".join(EXAMPLES[one] for one in takes), syntax)
        found = self.expression(syntax)
        # Parentheses around one value group it; where an array is expected they make one.
        if takes == ("array",) and syntax.grouped and not isinstance(found, (Array, Property)):
            return Array((found,))
        own = type_of(found)
        if own != "any" and own not in takes:
            raise fault(
                " or ".join(EXAMPLES[one] for one in takes),
                syntax,
                _QUOTED.get(takes[0], "") if own == "text" else _given(own),
            )
        return found

    def _arithmetic(self, syntax: Syntax) -> Expression:
        a, b = (self._argument(part, ("number",)) for part in syntax.parts)
        if isinstance(a, Constant) and isinstance(b, Constant):
            # Computed once for all events; what has no result stays, and is never known.
            result = calculate(str(syntax.value), a.value, b.value)  # type: ignore[arg-type]
            if result is not None:
                return Constant(narrowed(result))
        return Call(str(syntax.value), (a, b))

    def _instant(self, syntax: Syntax) -> Constant:
        is_day = syntax.value == "DATE"
        (part,) = self.arguments(syntax, (1,), _DATE if is_day else _TIMESTAMP)
        written = str(part.value) if part.kind == "text" else ""
        found = day_of(written) if is_day else time_of(written)
        if found is None:
            advice = (
                _advice_on(written, is_day)
                if part.kind == "text"
                else f"for example: {_DATE if is_day else _TIMESTAMP}"
            )
            raise fault(f"a {'day' if is_day else 'date and time with a zone'} in single quotes", part, advice)
        return Constant(found)

    def _interval(self, syntax: Syntax) -> Call:
        ends = self.arguments(syntax, (2,), "INTERVAL(start, end)")
        start, end = (self._end(part) for part in ends)
        match start, end:
            case Constant(first), Constant(last) if as_interval(Interval(first, last)) is None:  # type: ignore[arg-type]
                raise fault("an interval that ends after it starts", ends[1], "the earlier time comes first")
        return Call("INTERVAL", (start, end))

    def _end(self, syntax: Syntax) -> Expression:
        if syntax.kind == "text":
            written = str(syntax.value)
            found = None if written == ".." else day_of(written) or time_of(written)
            if found is None and written != "..":
                raise fault("a day, a date and time, or '..'", syntax, "for example: INTERVAL('2020-01-31', '..')")
            return Constant(found)
        return self._argument(syntax, ("instant",))


def _advice_on(written: str, is_day: bool) -> str:
    """What to do about a text that names no day, or no moment."""
    if is_day:
        return f"for a moment write TIMESTAMP('{written}')" if time_of(written) else day_advice(written)
    return f"for a day write DATE('{written}')" if day_of(written) else time_advice(written)


_QUOTED: dict[Type, str] = {
    "geometry": "it is written without quotes and SRID, as POINT(11.5 48.1)",
    "instant": "a text is a time within DATE(…) or TIMESTAMP(…) only",
    "interval": "write INTERVAL(start, end)",
    "array": "also one of a single value stands in parentheses: ('a')",
    "number": "a number stands without quotes",
}
"""What to do about a text where something else is expected."""


def _given(own: Type) -> str:
    return f"it is {EXAMPLES[own]}" if own in ("number", "boolean", "geometry", "array") else ""


def _geometry(syntax: Syntax) -> Shape | Box:
    try:
        return geometry.literal(syntax.value)
    except ValueError as error:
        advice = "a ring ends where it begins" if "closed linestring" in str(error) else ""
        raise PlacedFault("a geometry", str(error), syntax.where, advice) from None


def _unknown(syntax: Syntax) -> Fault:
    name = str(syntax.value)
    if name in OTHERS:
        if name in ("DISTANCE", "COUNT"):
            advice = f"say how it compares, as in {name.lower()}(…) <= 150"
            return fault(f"{name.lower()} in a comparison", syntax, advice)
        return fault(f"{name.lower()} in a location term", syntax, "as in distance(user('a'), this) <= 150")
    return fault("a function there is", syntax, on_function(name) or SUPPORTED)
