"""What a relation's predicate means: its truth for two entities, how a margin widens it, how far it reaches.

A margin widens every distance; of a predicate without distances, every comparison of numbers that is about both sides.
What is widened is the predicate for staying: a pair that holds ends only where that is FALSE.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from nearcast.filters.expressions import told_geometries, truth_of
from nearcast.filters.spatial_atoms import spatial_atoms
from nearcast.filters.truth import Truth, joined, negated
from nearcast.geo.distance import distance
from nearcast.model.event import Event, Place
from nearcast.model.expression import (
    AGGREGATES,
    ARITHMETIC,
    TOLD_GEOMETRY,
    Call,
    Constant,
    Expression,
    Property,
    parts,
)
from nearcast.model.filter import And, Atom, Filter, Not, Operator, Or, PlainNot, atoms
from nearcast.model.geometry_budget import EventGeometryWork, GeometryWork
from nearcast.model.limits import Limits
from nearcast.model.relation import SIDES
from nearcast.model.values import Value, narrowed
from nearcast.state.windows import Aggregate, aggregates_in, by_name

if TYPE_CHECKING:
    from nearcast.geo import shapes
    from nearcast.state.timeline import Excess

METRES = Call("DISTANCE", (Property("a"), Property("b")))
"""The distance of both sides."""

_METRES = Property("distance(a, b)")

DEFAULT = Limits()

NOTHING: Mapping[str, float] = {}
"""No aggregates that have a value."""

Told = Callable[[str], "shapes.Geometry | None"]
"""Gives the geometry that a text of one of two entities tells."""

WIDENED = ("<", "<=", ">", ">=", "=", "BETWEEN")

FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class DistanceBound:
    """A predicate that is nothing but a distance below a bound: `< metres`, or `<= metres` if it is inclusive."""

    metres: float
    inclusive: bool


class SideAggregate(NamedTuple):
    """An aggregate of a predicate: how that writes it, of which side it is, and what of that entity's attribute."""

    text: str
    side: str
    aggregate: Aggregate


def side_aggregates(filter: Filter) -> tuple[SideAggregate, ...]:
    """The aggregates of a predicate, each once."""
    calls = (atom.name for atom in atoms(filter) if isinstance(atom.name, Call))
    return tuple(dict.fromkeys(_of_side(one) for call in calls for one in aggregates_in(call)))


def aggregates_as_attributes(filter: Filter) -> Filter:
    """A predicate whose aggregates are attributes, by how they are written."""
    return _mapped(filter, lambda call, _: _named(call))


def _of_side(written: Aggregate) -> SideAggregate:
    side, _, name = written.name.partition(".")
    # Of both sides it is one: what an entity's window gives does not rest on the side that the entity is.
    text = f"{written.function}({name}{written.text.removeprefix(f'{written.function}({written.name}')}"
    return SideAggregate(written.text, side, replace(written, name=name, text=text))


class RelationPredicate:
    """A predicate ready to be evaluated. `compares`: whether it compares geometries."""

    def __init__(self, filter: Filter) -> None:
        self._filter = _mapped(filter, lambda call, _: _named(_without_distance(call)))
        self.compares = any(spatial_atoms(self._filter))

    def truth(
        self,
        a: Event,
        b: Event,
        limits: Limits = DEFAULT,
        excess: Counter[Excess] | None = None,
        over_time: Mapping[str, float] = NOTHING,
        together: EventGeometryWork | None = None,
        told: Told | None = None,
    ) -> Truth:
        """Its truth for the newest events of two entities; UNKNOWN where something it needs is not there.

        `over_time` has the aggregates that have a value, by how they are written. Where it comes to a limit that is
        counted in `excess`, for the one of both that tells the larger geometry. What it takes is added to `together`.
        `told` gives their geometries, where what is around these is known.
        """
        work = GeometryWork(limits, told=told)
        found = _truth(self._filter, _Sides(a, b, work, over_time))
        if together is not None:
            together.count(work)
        _count(work, a, b, excess)
        return found

    def possible(
        self, a: Event, b: Event, work: GeometryWork, over_time: Mapping[str, float] = NOTHING
    ) -> frozenset[Truth]:
        """The truths that it may have, as far as no geometries are compared; one where that decides it."""
        return _possible(self._filter, _Sides(a, b, work, over_time))


Truths = tuple[Truth, Truth]
"""The truths of entering and of staying."""


class MarginPredicate:
    """The predicate of a relation, for entering and with its margin for staying. Beyond `metres` it need not be looked
    at: it is FALSE for entering, and where it `compares` geometries also for staying.
    """

    def __init__(self, when: Filter, margin: float = 0.0) -> None:
        wider = widened(when, margin)
        self.enter = RelationPredicate(when)
        self.stay = self.enter if wider == when else RelationPredicate(wider)
        self.compares = self.enter.compares
        # Where geometries are compared every pair is looked at that may stay, so that what this takes rests on the two
        # alone, and not on whether they are a pair already.
        self.metres = reach(wider if self.compares else when)

    def truths(
        self,
        a: Event,
        b: Event,
        limits: Limits,
        excess: Counter[Excess] | None = None,
        over_time: Mapping[str, float] = NOTHING,
        together: EventGeometryWork | None = None,
        told: Told | None = None,
    ) -> Truths:
        """Its truths for two entities; see `RelationPredicate`."""
        enter = self.enter.truth(a, b, limits, excess, over_time, together, told)
        if self.stay is self.enter:
            return enter, enter
        return enter, self.stay.truth(a, b, limits, excess, over_time, together, told)

    def seen(
        self,
        a: Event,
        b: Event,
        limits: Limits,
        excess: Counter[Excess],
        over_time: Mapping[str, float] = NOTHING,
        told: Told | None = None,
    ) -> Truths | None:
        """Its truths, where they do not rest on comparing geometries; None where they do.

        What cannot be TRUE, whatever comparing said, is not compared: it is FALSE if that is seen, else UNKNOWN.
        """
        works, found = [], []
        for one in (self.enter,) if self.stay is self.enter else (self.enter, self.stay):
            works.append(GeometryWork(limits, comparing=False, told=told))
            found.append(one.possible(a, b, works[-1], over_time))
            if len(found[-1]) > 1 and True in found[-1]:
                return None
        for work in works:
            _count(work, a, b, excess)
        return _only(found[0]), _only(found[-1])


def _only(possible: frozenset[Truth]) -> Truth:
    return next(iter(possible)) if len(possible) == 1 else None


def _count(work: GeometryWork, a: Event, b: Event, excess: Counter[Excess] | None) -> None:
    if work.beyond and excess is not None:
        count_larger(work.beyond, a, b, excess)


def count_larger(limit: str, a: Event, b: Event, excess: Counter[Excess]) -> None:
    """Counts what came to a limit, for the one of both that tells the larger geometry."""
    larger = max(a, b, key=told_length)
    excess[larger.source, larger.type, limit] += 1


def told_length(event: Event) -> int:
    """Characters of the geometries that an event tells."""
    values = (value for name in TOLD_GEOMETRY for value in event.values(name))
    return sum(len(value) for value in values if isinstance(value, str))


def _truth(node: Filter, facts: _Sides) -> Truth:
    if isinstance(node, Atom):
        assert isinstance(node.name, Call), "every atom of a predicate is computed"
        return truth_of(node.name, facts)
    if isinstance(node, (Not, PlainNot)):
        inner = _truth(node.child, facts)
        return inner is not True if isinstance(node, PlainNot) else negated(inner)
    return joined(isinstance(node, Or), [_truth(child, facts) for child in node.children])


_ANY: frozenset[Truth] = frozenset([True, False, None])


def _possible(node: Filter, facts: _Sides) -> frozenset[Truth]:
    """The truths that a part may have where no geometries are compared."""
    if isinstance(node, Atom):
        facts.work.lacking = False
        truth = _truth(node, facts)
        return _ANY if facts.work.lacking else frozenset([truth])
    if isinstance(node, (Not, PlainNot)):
        inner = _possible(node.child, facts)
        return frozenset(map(_is_other if isinstance(node, PlainNot) else negated, inner))
    decisive = isinstance(node, Or)
    found: frozenset[Truth] = frozenset([not decisive])
    for own in [_possible(child, facts) for child in node.children]:
        found = frozenset(joined(decisive, both) for both in product(found, own))
    return found


def _is_other(truth: Truth) -> Truth:
    return truth is not True


@dataclass(frozen=True, slots=True)
class _Sides:
    """Two entities' newest events, as expressions read them; the work on geometries is that of the whole predicate."""

    a: Event
    b: Event
    work: GeometryWork
    over_time: Mapping[str, float]

    @property
    def place(self) -> Place | None:
        """Nothing is at one place here."""
        return None

    def values(self, name: str) -> Sequence[Value]:
        """Every value of an attribute of a side; of a side alone, the geometry that it tells, else where it is."""
        if name == _METRES.name:
            metres = distance(self.a.place, self.b.place) if self.a.place and self.b.place else None
            return () if metres is None else (metres,)
        side, _, attribute = name.partition(".")
        if side not in SIDES:
            # By how it is written an aggregate is an attribute of no side.
            return (self.over_time[name],) if name in self.over_time else ()
        event = self.a if side == "a" else self.b
        if attribute and attribute not in TOLD_GEOMETRY:
            return tuple(event.values(attribute))
        return tuple(_geometries(event, bool(attribute), self.work))  # type: ignore[arg-type]

    def previous(self, name: str) -> Sequence[Value] | None:
        """Relations know newest events alone."""
        return None

    def user(self, name: str) -> Place | None:
        """Relations know no users."""
        return None


def _geometries(event: Event, told: bool, work: GeometryWork) -> list[shapes.Geometry]:
    """The geometry that an event tells, if that is asked for, else the point where it is."""
    from nearcast.geo import shapes

    values = [value for name in TOLD_GEOMETRY for value in event.values(name)] if told else []
    there = list(told_geometries((value for value in values if isinstance(value, str)), work))
    return there or ([shapes.at(event.place)] if event.place else [])


def _named(call: Call) -> Call:
    """The call with its aggregates as attributes, by how they are written."""
    found = by_name(call)
    assert isinstance(found, Call), "an atom of a predicate is no aggregate alone"
    return found


def _without_distance(call: Call) -> Call:
    """The call with the distance as an attribute: what computes expressions knows none between two events."""
    return Call(call.function, tuple(_METRES if one == METRES else _inner(one) for one in call.arguments))


def _inner(expression: Expression) -> Expression:
    return _without_distance(expression) if isinstance(expression, Call) else expression


def _mapped(node: Filter, change: Callable[[Call, bool], Call], positive: bool = True) -> Filter:
    """A predicate with every atom's call changed, given also whether an even number of NOTs is around it."""
    if isinstance(node, Atom):
        assert isinstance(node.name, Call), "every atom of a predicate is computed"
        return Atom(change(node.name, positive), Operator.EQ, True, node.where)
    if isinstance(node, (Not, PlainNot)):
        return type(node)(_mapped(node.child, change, not positive))
    return type(node)(tuple(_mapped(child, change, positive) for child in node.children))


def widened(filter: Filter, margin: float) -> Filter:
    """The predicate for staying: by how much its numbers may pass their bounds before what holds ends."""
    if not margin:
        return filter
    measured = _is_measured(filter)

    def wider(call: Call, positive: bool) -> Call:
        """The comparison with the margin's room, where it applies."""
        # Under a NOT the whole holds longer where the part holds shorter.
        return _wider(call, margin if positive else -margin) if _applies(call, measured) else call

    return _mapped(filter, wider)


def takes_margin(filter: Filter) -> bool:
    """Whether there is something that a margin widens."""
    measured = _is_measured(filter)
    return any(isinstance(atom.name, Call) and _applies(atom.name, measured) for atom in atoms(filter))


def _is_measured(filter: Filter) -> bool:
    """Whether some comparison is of a distance."""
    return any(isinstance(atom.name, Call) and METRES in atom.name.arguments for atom in atoms(filter))


def _applies(call: Call, measured: bool) -> bool:
    if call.function not in WIDENED or (measured and METRES not in call.arguments):
        return False
    if any(isinstance(one, Constant) and not _is_number(one.value) for one in call.arguments):
        return False
    if measured:
        return True
    # Texts may be equal too, and have no room: only what is surely a number is.
    told = call.function != "=" or any(isinstance(one, Constant) or _is_calculated(one) for one in call.arguments)
    return told and sides_of(call) == set(SIDES)


def _is_calculated(expression: Expression) -> bool:
    return isinstance(expression, Call) and expression.function in (*ARITHMETIC, *AGGREGATES)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _wider(call: Call, margin: float) -> Call:
    """A comparison that fails only where its numbers pass the bound by more than the margin; negative: narrower."""
    function, arguments = call.function, call.arguments
    match function:
        case "<" | "<=":
            return Call(function, (arguments[0], _plus(arguments[1], margin)))
        case ">" | ">=":
            return Call(function, (arguments[0], _plus(arguments[1], -margin)))
        case "=":
            return Call("BETWEEN", (arguments[0], _plus(arguments[1], -margin), _plus(arguments[1], margin)))
    value, low, high = arguments
    return Call("BETWEEN", (value, _plus(low, -margin), _plus(high, margin)))


def _plus(expression: Expression, margin: float) -> Expression:
    if isinstance(expression, Constant):
        return Constant(narrowed(expression.value + margin))  # type: ignore[operator]
    return Call("+", (expression, Constant(narrowed(margin))))


def sides_of(expression: Expression) -> set[str]:
    """The sides that an expression is about."""
    return {part.name.partition(".")[0] for part in parts(expression) if isinstance(part, Property)}


def names_of(filter: Filter, side: str) -> list[str]:
    """The attributes of one side that a predicate reads, each once; '' is where the side is."""
    found = (part.name.partition(".") for part in _properties(filter))
    return list(dict.fromkeys(name for own, _, name in found if own == side))


def _properties(filter: Filter) -> Iterator[Property]:
    for atom in atoms(filter):
        assert isinstance(atom.name, Call), "every atom of a predicate is computed"
        yield from (part for part in parts(atom.name) if isinstance(part, Property))


def bound_of(filter: Filter) -> DistanceBound | None:
    """The bound of a predicate that is a distance below it; None for any other."""
    call = filter.name if isinstance(filter, Atom) else None
    if not isinstance(call, Call) or len(call.arguments) != 2:
        return None
    function, (first, second) = call.function, call.arguments
    if second == METRES:
        function, first, second = FLIPPED.get(function, ""), second, first
    if function not in ("<", "<=") or first != METRES or not isinstance(second, Constant):
        return None
    return DistanceBound(float(second.value), function == "<=") if _is_number(second.value) else None  # type: ignore[arg-type]


def reach(filter: Filter) -> float:
    """Metres beyond which a predicate is FALSE, whatever else there is; infinite if there is no such distance."""
    if isinstance(filter, Atom):
        return _reach_of_atom(filter)
    if isinstance(filter, (Not, PlainNot)):
        return math.inf
    found = [reach(child) for child in filter.children]
    return min(found) if isinstance(filter, And) else max(found)


def _reach_of_atom(atom: Atom) -> float:
    bound = bound_of(atom)
    if bound is not None:
        return bound.metres
    call = atom.name
    assert isinstance(call, Call), "every atom of a predicate is computed"
    if METRES not in call.arguments or call.function not in ("=", "BETWEEN", "IN"):
        return math.inf
    # There is a farthest limit only where all limits are numbers.
    values = [one.value for one in call.arguments if isinstance(one, Constant) and _is_number(one.value)]
    others = [one for one in call.arguments if one != METRES]
    if call.arguments[0] != METRES and call.function != "=":
        return math.inf
    return max(float(value) for value in values) if len(values) == len(others) else math.inf  # type: ignore[arg-type]


def is_symmetric(filter: Filter) -> bool:
    """Whether a predicate is sure to be as true of (b, a) as of (a, b)."""
    return _form(filter, False) == _form(filter, True)


def _form(node: Filter, turned: bool) -> object:
    """A predicate so that what commutes has one form; `turned`: with its sides exchanged."""
    if isinstance(node, Atom):
        assert isinstance(node.name, Call), "every atom of a predicate is computed"
        return _shape(node.name, turned)
    if isinstance(node, (Not, PlainNot)):
        return type(node).__name__, _form(node.child, turned)
    return type(node).__name__, frozenset(_form(child, turned) for child in node.children)


_TURNED = {"a": "b", "b": "a"}

_COMMUTING = frozenset(
    {"=", "<>", "DISTANCE", "AND", "OR", "A_EQUALS", "A_OVERLAPS", "T_EQUALS", "T_DISJOINT", "T_INTERSECTS"}
    | {"S_INTERSECTS", "S_EQUALS", "S_DISJOINT", "S_TOUCHES", "S_OVERLAPS", "S_CROSSES"}
)


def _shape(expression: Expression, turned: bool) -> object:
    match expression:
        case Property(name):
            side, dot, attribute = name.partition(".")
            return ("property", (_TURNED[side] if turned else side) + dot + attribute)
        case Call(function, arguments):
            inner = [_shape(argument, turned) for argument in arguments]
            if function in (">", ">="):
                function, inner = FLIPPED[function], inner[::-1]
            if function == "S_DWITHIN":
                return function, frozenset(inner[:2]), inner[2]
            return function, frozenset(inner) if function in _COMMUTING else tuple(inner)
    return expression
