"""What a predicate over two sides measures, where it is one comparison of one reading: what strategies rest on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from nearcast.model.event import Event, Place
from nearcast.model.expression import Call, Constant, Expression, Property
from nearcast.model.filter import Atom
from nearcast.model.relation import Pair, Relation
from nearcast.model.values import is_exact
from nearcast.relations.predicate import FLIPPED, METRES
from nearcast.suppression.strategies.dimensions import DIMENSIONS, Dimension
from nearcast.suppression.strategies.seam import ThresholdPredicate

Compared = Literal["<", "<=", ">", ">="]

_CALCULATED = {"-": "signed difference", "/": "ratio"}

UNREADABLE = object()
"""The value of an event that has several, or one that is no exact number: no strategy can say anything of it."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A predicate as a bound, and what of each side's events it reads: an attribute, or '' for where they are.

    `first` is the side whose value the bound's dimension takes first, as in `b.x / a.x < 3`.
    """

    bound: ThresholdPredicate
    a: str = ""
    b: str = ""
    first: Literal["a", "b"] = "a"

    def value(self, side: Literal["a", "b"], event: Event) -> Any:
        """What an event of a side says: None if nothing, `UNREADABLE` if nothing that a strategy understands."""
        return value_of(self.reads(side), event)

    def reads(self, side: Literal["a", "b"]) -> str:
        """The attribute that is read of a side's events; '': where they are."""
        return self.a if side == "a" else self.b

    def bound_for(self, a: Any, b: Any) -> ThresholdPredicate:
        """The bound for two values: metres are planar or geodesic, by the places that there are."""
        globe = any(isinstance(one, Place) and one.coordinates == "geographic" for one in (a, b))
        return replace(self.bound, dimension=DIMENSIONS["geodesic"]) if globe and not self.a else self.bound


def value_of(name: str, event: Event) -> Any:
    """What an event says of an attribute, or of where it is ('')."""
    if not name:
        return event.place
    found = list(event.values(name))
    if not found:
        return None
    return found[0] if len(found) == 1 and is_exact(found[0]) else UNREADABLE


def measure_of(relation: Relation) -> Measure | None:
    """What a relation measures; None if its predicate is no comparison of one reading with a number."""
    about = relation.about
    call = about.when.name if isinstance(about, Pair) and isinstance(about.when, Atom) else None
    if not isinstance(call, Call) or call.function not in FLIPPED or len(call.arguments) != 2:
        return None
    function, (left, right) = call.function, call.arguments
    if isinstance(left, Constant):
        function, left, right = FLIPPED[function], right, left
    limit = _number(right)
    if limit is not None and left == METRES:
        return Measure(_bound("planar", limit, function, relation.margin))
    if limit is not None and isinstance(left, Call) and left.function in _CALCULATED:
        return _measure(left.arguments, _bound(_CALCULATED[left.function], limit, function, relation.margin))
    # With a margin the bound would be widened in another order of rounding than the predicate.
    if not relation.margin:
        return _measure((left, right), _bound("signed difference", 0.0, function, 0.0))
    return None


def _measure(read: tuple[Expression, ...], bound: ThresholdPredicate) -> Measure | None:
    """The measure of two attributes, one of each side."""
    names = [one.name.partition(".") for one in read if isinstance(one, Property)]
    sides = {side: name for side, _, name in names if name}
    if len(names) != 2 or set(sides) != {"a", "b"}:
        return None
    return Measure(bound, sides["a"], sides["b"], "a" if names[0][0] == "a" else "b")


def _bound(dimension: str, limit: float, function: str, margin: float) -> ThresholdPredicate:
    found: Dimension = DIMENSIONS[dimension]
    return ThresholdPredicate(found, limit, cast(Compared, function), margin)


def _number(expression: Expression) -> float | None:
    value = expression.value if isinstance(expression, Constant) else None
    return float(value) if is_exact(value) and math.isfinite(value) else None  # type: ignore[arg-type]
