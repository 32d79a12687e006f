"""From syntax to filters: conditions and their atoms, and a located fault for what has no meaning here."""

from __future__ import annotations

from datetime import datetime

from nearcast.errors import Fault, Mark
from nearcast.language.cql2.printer import write
from nearcast.language.cql2.syntax import PREDICATES, Syntax
from nearcast.language.cql2.typed_expressions import Expressions, fault, is_aggregate
from nearcast.language.cql2.types import EXAMPLES, SCALARS, Type, type_of
from nearcast.language.trees import all_of, any_of
from nearcast.model.event import Place
from nearcast.model.expression import COMPARISONS, GEOMETRY, TOLD_GEOMETRY, Call, Constant, Expression, Property
from nearcast.model.filter import (
    ME,
    RECEIVER,
    Atom,
    Count,
    Distance,
    Entities,
    Filter,
    Located,
    Not,
    Operator,
    ReceiverReading,
    This,
    User,
)
from nearcast.model.values import Value

_SEVERAL = frozenset({Operator.IN, Operator.BETWEEN})
_LITERALS = frozenset({"number", "text", "boolean", "values"})

FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
PLACES = "user('name'), uform(conditions), this, geom or POINT(lon lat)"


GIVEN: dict[Type, str] = {
    "number": "a number",
    "text": "a text",
    "instant": "a time",
    "interval": "an interval",
    "geometry": "a geometry",
    "array": "an array",
}
"""What an expression that is no condition gives, as a fault names it."""


class Conditions:
    """Gives conditions their meaning; `inner`: they are those of a location term, about other events; `over_time`: they
    are those of a rule, which has aggregates.
    """

    def __init__(self, inner: bool = False, over_time: bool = False) -> None:
        self._expressions = Expressions(inner, self._expression, over_time)
        self._over_time = over_time

    def condition(self, syntax: Syntax) -> Filter:
        """The filter that is meant where a condition is expected. Raises `Fault`."""
        if syntax.kind == "atom":
            return syntax.value
        if syntax.calls("AND", "OR"):
            join = all_of if syntax.value == "AND" else any_of
            return join([self.condition(part) for part in syntax.parts])
        if syntax.calls("NOT"):
            return Not(self.condition(syntax.parts[0]))
        if syntax.kind == "property":
            return Atom(str(syntax.value), Operator.EQ, True, syntax.where)
        if syntax.kind == "boolean":
            return Atom(Call("TRUE" if syntax.value else "FALSE"), Operator.EQ, True, syntax.where)
        if syntax.calls(*PREDICATES):
            return self._plain(syntax) or self._measured(syntax) or self._atom(self._predicate(syntax), syntax)
        if syntax.calls("S_DWITHIN"):
            found = self._within(syntax)
            if found:
                return found
        expression = self._expressions.expression(syntax)
        if not isinstance(expression, Call) or type_of(expression) not in ("boolean", "any"):
            raise _no_condition(syntax, type_of(expression))
        # A previous value may be a boolean, like an attribute alone.
        if type_of(expression) == "any":
            expression = Call("=", (expression, Constant(True)))
        return self._atom(expression, syntax)

    def _plain(self, syntax: Syntax) -> Atom | None:
        """The atom of an attribute and literals, which compare with it whatever they are; None for any other.

        Most conditions are of this kind, and as expressions they would take several times as long.
        """
        subject, *others = syntax.parts
        operator = Operator(syntax.value)
        if subject.kind != "property" or not others or not _LITERALS.issuperset([other.kind for other in others]):
            return None
        value = others[0].value
        if operator is Operator.LIKE and not isinstance(value, str):
            return None
        if operator in _SEVERAL and others[0].kind != "values":
            value = tuple([other.value for other in others])
        return Atom(subject.value, operator, value, syntax.where)

    def _expression(self, syntax: Syntax) -> Expression:
        """A condition as a value: TRUE, FALSE, or nothing where it is UNKNOWN."""
        if syntax.calls("AND", "OR", "NOT"):
            return Call(str(syntax.value), tuple(self._truth(part) for part in syntax.parts))
        return self._predicate(syntax)

    def _truth(self, syntax: Syntax) -> Expression:
        found = self._expressions.expression(syntax)
        if type_of(found) not in ("boolean", "any"):
            raise _no_condition(syntax, type_of(found))
        return found

    def _predicate(self, syntax: Syntax) -> Call:
        """A comparison, or one of the forms that are one atom each."""
        operator = str(syntax.value)
        if operator == "LIKE":
            return self._like(syntax)
        found = [self._expressions.expression(part) for part in syntax.spread()]
        if operator != "IS NULL":
            self._check_comparable(syntax, found)
        return Call(operator, tuple(found))

    def _like(self, syntax: Syntax) -> Call:
        text, pattern = (self._expressions.expression(part) for part in syntax.parts)
        if type_of(text) not in ("text", "any"):
            raise fault(EXAMPLES["text"], syntax.parts[0], "LIKE compares texts")
        # A pattern is written, so that it is compiled once, not for every event.
        inner = pattern
        while isinstance(inner, Call) and inner.function in ("CASEI", "ACCENTI"):
            inner = inner.arguments[0]
        if not isinstance(inner, Constant) or not isinstance(inner.value, str):
            raise fault("a pattern in single quotes", syntax.parts[1], "for example: name LIKE 'north%'")
        return Call("LIKE", (text, pattern))

    def _check_comparable(self, syntax: Syntax, found: list[Expression]) -> None:
        """Every side must be of a kind that compares, and all of one kind as far as that is known."""
        first = type_of(found[0])
        for part, expression in zip(syntax.spread(), found, strict=True):
            own = type_of(expression)
            if own != "any" and own not in SCALARS:
                advice = {"geometry": "use S_EQUALS", "array": "use A_EQUALS", "interval": "use T_EQUALS"}.get(own, "")
                raise fault("a number, text, time or boolean to compare", part, advice)
            if "any" not in (own, first) and own != first:
                advice = _hyphen_advice(syntax) or "only values of one kind compare"
                raise fault(f"{EXAMPLES[first]} to compare with {syntax.parts[0].came}", part, advice)

    def _atom(self, predicate: Call, syntax: Syntax) -> Atom:
        """The atom of a predicate: of one attribute and literals, the plain one, which matching is fastest at."""
        return _with_literals(predicate, syntax.where) or Atom(predicate, Operator.EQ, True, syntax.where)

    def _measured(self, syntax: Syntax) -> Atom | None:
        """The atom of a comparison with a distance or a count; None if it is about neither."""
        subject, *values = syntax.spread()
        operator = str(syntax.value)
        if any(is_aggregate(part) for part in syntax.parts):
            return None
        if operator in COMPARISONS and values[0].calls("DISTANCE", "COUNT"):
            subject, values, operator = values[0], [subject], FLIPPED.get(operator, operator)
        if not subject.calls("DISTANCE", "COUNT"):
            return None
        what = str(subject.value).lower()
        if operator in ("LIKE", "IS NULL"):
            advice = f"{operator} does not apply to a {what}"
            raise fault(f"a comparison of a {what} with a number", syntax, advice)
        numbers = tuple(self._limit(value, what) for value in values)
        measure = self._distance(subject) if what == "distance" else self._count(subject)
        return Atom(measure, Operator(operator), numbers if operator in ("IN", "BETWEEN") else numbers[0], syntax.where)

    def _limit(self, syntax: Syntax, what: str) -> int | float | ReceiverReading:
        if syntax.kind == "property" and str(syntax.value).startswith(f"{RECEIVER}."):
            return ReceiverReading(str(syntax.value))
        found = self._expressions.number(syntax)
        if found is None:
            raise fault(f"a number to compare the {what} with", syntax, f"for example: {what}(…) <= 150")
        return found

    def _distance(self, syntax: Syntax) -> Distance:
        a, b = self._expressions.arguments(syntax, (2,), "distance(a, b)")
        return Distance(self._located(a), self._located(b))

    def _count(self, syntax: Syntax) -> Count:
        of, *rest = self._expressions.arguments(syntax, (1, 3), "count(a) or count(a, b, metres)")
        around = self._located(rest[0]) if rest else None
        return Count(self._located(of), around, self._metres(rest[1]) if rest else None)

    def _within(self, syntax: Syntax) -> Atom | None:
        """S_DWITHIN(a, b, metres) between positions is distance(a, b) <= metres; None for geometries in general."""
        a, b, metres = self._expressions.arguments(syntax, (3,), "S_DWITHIN(a, b, metres)")
        if not (_is_position(a) and _is_position(b)):
            return None
        return Atom(Distance(self._located(a), self._located(b)), Operator.LE, self._metres(metres), syntax.where)

    def _metres(self, syntax: Syntax) -> int | float:
        found = self._expressions.number(syntax)
        if found is None or found < 0:
            raise fault("a distance in metres, 0 or more", syntax)
        return found

    def _located(self, syntax: Syntax) -> Located:
        """Something with a position: user('name'), uform(conditions), this, geom, or a point."""
        if syntax.kind == "property" and str(syntax.value).lower() in GEOMETRY:
            return This()
        if syntax.kind == "property" and syntax.value == RECEIVER:
            return ME
        if _is_point(syntax):
            self._expressions.expression(syntax)
            return _point(syntax)
        if syntax.calls("USER"):
            return User(self._expressions.user(syntax))
        if syntax.calls("UFORM"):
            conditions = self._expressions.arguments(syntax, (0, 1), "uform(conditions)")
            found = Conditions(inner=True).condition(conditions[0]) if conditions else None
            if not self._over_time:
                return Entities(found)
            return Entities(found, f"uform({'' if found is None else write(found)})")
        advice = f"write user('{syntax.value}') for where a client is" if syntax.kind == "property" else ""
        raise fault(PLACES, syntax, advice)


def _is_position(syntax: Syntax) -> bool:
    if syntax.kind == "property":
        return str(syntax.value).lower() in ("this", RECEIVER)
    return _is_point(syntax) or syntax.calls("USER", "UFORM")


def _is_point(syntax: Syntax) -> bool:
    return syntax.kind == "geometry" and isinstance(syntax.value, dict) and syntax.value.get("type") == "Point"


def _point(syntax: Syntax) -> Place:
    numbers: list[float] = list(syntax.value["coordinates"]) if isinstance(syntax.value, dict) else []
    if not (len(numbers) >= 2 and -180 <= numbers[0] <= 180 and -90 <= numbers[1] <= 90):
        came = f"POINT({' '.join(f'{number:g}' for number in numbers)})" if numbers else syntax.came
        advice = "longitude comes first, at most 180 and 90"
        raise Fault("POINT(longitude latitude) in degrees", came, syntax.where, advice)
    return Place("geographic", *(float(number) for number in numbers[:3]))


def _hyphen_advice(syntax: Syntax) -> str:
    """`alert-level = 'red'` reads as a subtraction of two names: almost always it is one name that needs quotes."""
    return _one_name(syntax.parts[0])


def _one_name(syntax: Syntax) -> str:
    if not syntax.calls("-") or any(part.kind not in ("property", "number") for part in syntax.parts):
        return ""
    name = f"{syntax.parts[0].value}-{syntax.parts[1].value}"
    return f'if {name} is one name, write it in double quotes: "{name}"'


def _no_condition(syntax: Syntax, given: Type) -> Fault:
    """What is said of an expression that stands where a condition is expected."""
    if syntax.kind in ("text", "number"):
        advice = "beside AND and OR stand whole comparisons: type = 'a' OR type = 'b', or type IN ('a', 'b')"
        return fault("a condition", syntax, advice)
    if syntax.kind != "call" or given not in GIVEN:
        return fault("a condition", syntax, "for example: size > 10")
    advice = _one_name(syntax) or "a condition is a comparison: say how it compares, as in size * 2 > 10"
    return Fault("a condition", f"{syntax.came}, which gives {GIVEN[given]}", syntax.where, advice)


def _with_literals(predicate: Call, where: Mark) -> Atom | None:
    """The atom (name, operator, value) that a predicate is, if it is one."""
    function = predicate.function
    if function not in PREDICATES:
        return None
    first, rest = predicate.arguments[0], predicate.arguments[1:]
    if function in COMPARISONS and isinstance(first, Constant):
        # A literal may stand left: the comparison turns round, not the atom.
        first, rest, function = rest[0], (first,), FLIPPED.get(function, function)
    if not isinstance(first, Property):
        return None
    if function == "IS NULL":
        return None if first.name in TOLD_GEOMETRY else Atom(first.name, Operator.IS_NULL, None, where)
    values = [value for value in map(_value, rest) if value is not None]
    if len(values) < len(rest):
        return None
    several = function in ("IN", "BETWEEN")
    return Atom(first.name, Operator(function), tuple(values) if several else values[0], where)


def _value(expression: Expression) -> Value | None:
    """The literal of an atom that an expression is; a day is none, for events have days as texts only."""
    found = expression.value if isinstance(expression, Constant) else None
    return found if isinstance(found, (bool, int, float, str, datetime)) else None
