"""What expressions mean: their values for one event, and the truth of predicates (semantics §2, OGC 21-065r2).

A name may have several values, so an expression has every value that some choice of them gives, and a predicate holds
if it holds for some; it is UNKNOWN if nothing there can be compared. An array is the one value that takes them all.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime
from functools import lru_cache, partial
from itertools import islice, product
from typing import TYPE_CHECKING, Any, Protocol

from nearcast.filters.instants import TEMPORAL, Interval, as_interval, instant_of, order
from nearcast.filters.like_patterns import like
from nearcast.filters.truth import COMPARE, Truth, both, joined, negated, some
from nearcast.model.event import Place
from nearcast.model.expression import (
    ARITHMETIC,
    ARRAYS,
    COMPARISONS,
    GEOMETRY,
    SPATIAL,
    TOLD_GEOMETRY,
    Array,
    Box,
    Call,
    Constant,
    Expression,
    Property,
    Shape,
)
from nearcast.model.values import Value, calculate, kind_of, time_of

if TYPE_CHECKING:
    from nearcast.geo.shapes import Geometry
    from nearcast.model.geometry_budget import GeometryWork

Values = Sequence[Any]
"""Of an expression: values of events, days, `Interval`, `Geometry`, tuples (arrays)."""

ORDERED = (int, float, str)
"""The types of values, booleans among them, that operators compare; besides these there are days and moments."""

MAX_CHOICES = 10_000
"""Choices among the values of repeated names that count: a sender may repeat names as often as it likes."""


class Facts(Protocol):
    """One event and what is known besides it, as expressions read them."""

    @property
    def place(self) -> Place | None:
        """Where the event is."""

    def values(self, name: str) -> Sequence[Value]:
        """Every value of an attribute of the event."""

    def previous(self, name: str) -> Sequence[Value] | None:
        """The same of the entity's previous event; None if there was none."""

    def user(self, name: str) -> Place | None:
        """Where that client was last known to be."""

    @property
    def work(self) -> GeometryWork:
        """What is left of the work that geometries may take."""


def truth_of(call: Call, facts: Facts) -> Truth:
    """The truth of a predicate for an event."""
    function, arguments = call.function, call.arguments
    if function in COMPARISONS:
        left, right = (values_of(argument, facts) for argument in arguments)
        return some(compare(function, a, b) for a, b in _choices(left, right))
    return _PREDICATES[function](function, arguments, facts)


def values_of(expression: Expression, facts: Facts) -> Values:
    """Every value that an expression has for an event; none if something it needs is not there."""
    match expression:
        case Property(name):
            return facts.values(name)
        case Constant(value):
            return (value,)
        case Shape() | Box():
            return (_literal(expression, facts.work),)
        case Array(items):
            # An array with a hole is not known, as an arithmetic expression with one is not.
            found = [values_of(item, facts) for item in items]
            return (tuple(value for values in found for value in values),) if all(found) else ()
    return _call_values(expression, facts)


def _call_values(call: Call, facts: Facts) -> Values:
    function, arguments = call.function, call.arguments
    if function in ARITHMETIC:
        left, right = (_numbers(argument, facts) for argument in arguments)
        results = (calculate(function, a, b) for a, b in _choices(left, right))
        return [result for result in results if result is not None]
    if function in _TEXTS:
        return [_folded(function, text) for text in values_of(arguments[0], facts) if isinstance(text, str)]
    if function == "PREVIOUS":
        return facts.previous(_name(arguments[0])) or ()
    if function == "INTERVAL":
        ends = [_ends(argument, facts) for argument in arguments]
        return [Interval(start, end) for start, end in _choices(*ends)]
    if function == "USER":
        place = facts.user(values_of(arguments[0], facts)[0])
        from nearcast.geo.shapes import at

        return () if place is None else (at(place),)
    truth = truth_of(call, facts)
    return () if truth is None else (truth,)


def _choices(*sides: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    return islice(product(*sides), MAX_CHOICES)


def compare(operator: str, a: Any, b: Any) -> Truth:
    """`a operator b` of two values of one kind, else None. A text that names a moment is that where it meets a time,
    one that names a day where it meets a day; a day and a moment compare by day.
    """
    # A datetime is a date to Python: this takes both, and texts only where one of them stands beside.
    if isinstance(a, date) or isinstance(b, date):
        left, right = _beside(a, b), _beside(b, a)
        return None if left is None or right is None else COMPARE[operator](order(left, right), 0)
    # Geometries, intervals and arrays have relations of their own.
    if not isinstance(a, ORDERED) or not isinstance(b, ORDERED):
        return None
    return COMPARE[operator](a, b) if kind_of(a) == kind_of(b) else None


def _beside(value: Any, other: Any) -> datetime | date | None:
    # As in an atom of one attribute: a text that names a day names no moment.
    return time_of(value) if isinstance(value, str) and isinstance(other, datetime) else instant_of(value)


def _numbers(expression: Expression, facts: Facts) -> list[int | float]:
    found = values_of(expression, facts)
    return [value for value in found if isinstance(value, (int, float)) and not isinstance(value, bool)]


def _ends(expression: Expression, facts: Facts) -> list[datetime | date | None]:
    """The ends of an interval that an expression gives; None is an open one."""
    if expression == Constant(None):
        return [None]
    found = [instant_of(value) for value in values_of(expression, facts)]
    return [instant for instant in found if instant is not None]


def _without_accents(text: str) -> str:
    """A text without its accents: decomposed, combining marks dropped, composed again. Japanese sound marks stay."""
    kept = (mark for mark in unicodedata.normalize("NFD", text) if mark in "\u3099\u309a" or not _accent(mark))
    return unicodedata.normalize("NFC", "".join(kept))


def _accent(mark: str) -> bool:
    return unicodedata.combining(mark) != 0


def _without_case(text: str) -> str:
    """A text with its case folded, in one of the forms that are canonically the same."""
    # Folding knows letters, not letters with loose marks: decomposed first, both forms fold alike.
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())


_TEXTS: dict[str, Callable[[str], str]] = {"CASEI": _without_case, "ACCENTI": _without_accents}

KEPT = 200
"""Characters of a text whose outcome is kept: long ones would fill the memory, and seldom come again."""


@lru_cache(maxsize=8192)
def _kept(function: str, text: str) -> str:
    return _TEXTS[function](text)


def _folded(function: str, text: str) -> str:
    return _kept(function, text) if len(text) <= KEPT else _TEXTS[function](text)


def _name(expression: Expression) -> str:
    assert isinstance(expression, Property), "definitions are checked"
    return expression.name


def _literal(expression: Shape | Box, work: GeometryWork) -> Geometry:
    from nearcast.geo.told_geometry import around_written

    found = around_written(expression, work.limits.geometry_work)
    # Who wrote it may write as many corners as a filter may have; only what cannot be compared counts.
    if not found.readable:
        work.spend(found.cost)
    return found


def told_geometries(values: Iterable[Any], work: GeometryWork) -> Iterator[Geometry]:
    """The geometries among values, texts of GeoJSON read as such, as far as the work for that goes."""
    from nearcast.geo.shapes import Geometry, told

    for value in values:
        if work.beyond:
            return
        found = value
        if isinstance(value, str):
            found = work.told(value) if work.told else told(value, work.limits.geometry_work)
        if isinstance(found, Geometry):
            if isinstance(value, str):
                work.read(value, found.corners, found.cost)
            yield found


def _geometries(expression: Expression, facts: Facts) -> list[Geometry]:
    """The geometries that an expression has; the event's own is what it tells as such, else the point where it is."""
    from nearcast.geo.shapes import at

    # Who writes a filter need not know under which of its names an event tells its geometry.
    own = isinstance(expression, Property) and expression.name.lower() in GEOMETRY
    names = dict.fromkeys([_name(expression), *TOLD_GEOMETRY]) if own else ()
    listed = [value for name in names for value in facts.values(name)] if own else values_of(expression, facts)
    there = list(told_geometries(listed, facts.work))
    return [at(facts.place)] if own and not there and facts.place else there


def _array(expression: Expression, facts: Facts) -> Values | None:
    """An expression as an array: all values of a name together."""
    found = values_of(expression, facts)
    if isinstance(expression, Property) or (isinstance(expression, Call) and expression.function == "PREVIOUS"):
        return found or None
    return next(iter(found), None)


def _between(function: str, arguments: tuple[Expression, ...], facts: Facts) -> Truth:
    value, low, high = (values_of(argument, facts) for argument in arguments)
    return some(both(compare(">=", a, b), compare("<=", a, c)) for a, b, c in _choices(value, low, high))


def _in(function: str, arguments: tuple[Expression, ...], facts: Facts) -> Truth:
    value, *options = (values_of(argument, facts) for argument in arguments)
    listed = [option for found in options for option in found]
    return some(compare("=", a, b) for a, b in _choices(value, listed))


def _like(function: str, arguments: tuple[Expression, ...], facts: Facts) -> Truth:
    texts, patterns = (values_of(argument, facts) for argument in arguments)
    pairs = _choices(texts, patterns)
    return some(like(pattern).fullmatch(text) is not None if isinstance(text, str) else None for text, pattern in pairs)


def _is_null(function: str, arguments: tuple[Expression, ...], facts: Facts) -> Truth:
    found = values_of(arguments[0], facts)
    # An event's own geometry is there too where only its place is told.
    return not (found or _geometries(arguments[0], facts))


def _not(function: str, arguments: tuple[Expression, ...], facts: Facts) -> Truth:
    return negated(_truth(arguments[0], facts))


def _joined(decisive: bool, function: str, arguments: tuple[Expression, ...], facts: Facts) -> Truth:
    return joined(decisive, [_truth(argument, facts) for argument in arguments])


def _truth(expression: Expression, facts: Facts) -> Truth:
    return some(value if isinstance(value, bool) else None for value in values_of(expression, facts))


def _spatial(function: str, arguments: tuple[Expression, ...], facts: Facts) -> Truth:
    from nearcast.geo.shapes import related

    sides = [_geometries(argument, facts) for argument in arguments]
    return _known(facts.work, (related(function, a, b, facts.work) for a, b in _choices(*sides)))


def _known(work: GeometryWork, truths: Iterable[Truth]) -> Truth:
    """TRUE if one is, though the work for others be too much; FALSE only if there was enough for all."""
    found = some(truths)
    return None if work.beyond and not found else found


def _near(function: str, arguments: tuple[Expression, ...], facts: Facts) -> Truth:
    from nearcast.geo.shapes import near

    a, b = (_geometries(argument, facts) for argument in arguments[:2])
    limits = _numbers(arguments[2], facts)
    return _known(facts.work, (near(left, right, metres, facts.work) for left, right, metres in _choices(a, b, limits)))


def _temporal(function: str, arguments: tuple[Expression, ...], facts: Facts) -> Truth:
    sides = [[as_interval(value) for value in values_of(argument, facts)] for argument in arguments]
    relation = TEMPORAL[function]
    return some(relation(a, b) if a and b else None for a, b in _choices(*sides))


def _array_relation(function: str, arguments: tuple[Expression, ...], facts: Facts) -> Truth:
    from nearcast.filters.array_operators import related

    a, b = (_array(argument, facts) for argument in arguments)
    return None if a is None or b is None or facts.work.beyond else related(function, a, b)


def _changed(function: str, arguments: tuple[Expression, ...], facts: Facts) -> Truth:
    """Whether an attribute's values are others than in the previous event; UNKNOWN if there was none."""
    name = _name(arguments[0])
    before, now = facts.previous(name), facts.values(name)
    return None if before is None else [_comparable(one) for one in before] != [_comparable(one) for one in now]


def _comparable(value: Value) -> tuple[str, Value]:
    """A value so that like kinds compare, and a NaN is no change to a NaN."""
    return kind_of(value), "NaN" if isinstance(value, float) and value != value else value


Predicate = Callable[[str, tuple[Expression, ...], Facts], Truth]

_PREDICATES: dict[str, Predicate] = {
    "TRUE": lambda function, arguments, facts: True,
    "FALSE": lambda function, arguments, facts: False,
    "AND": partial(_joined, False),
    "OR": partial(_joined, True),
    "NOT": _not,
    "BETWEEN": _between,
    "IN": _in,
    "LIKE": _like,
    "IS NULL": _is_null,
    "S_DWITHIN": _near,
    "CHANGED": _changed,
    **dict.fromkeys(SPATIAL, _spatial),
    **dict.fromkeys(TEMPORAL, _temporal),
    **dict.fromkeys(ARRAYS, _array_relation),
}
