"""Random filters and events for property tests: few names and values, so that they meet.

Strategies are made once, here: one that is made as an example is drawn costs more than what is drawn of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import cycle, islice, product

from hypothesis import strategies as st

from nearcast.filters.instants import TEMPORAL
from nearcast.geo.shapes import SPATIAL
from nearcast.model.event import Event, Place
from nearcast.model.expression import (
    ARITHMETIC,
    ARRAYS,
    COMPARISONS,
    Array,
    Box,
    Call,
    Constant,
    Expression,
    Property,
    Shape,
)
from nearcast.model.filter import And, Atom, Count, Distance, Entities, Filter, Not, Operator, Or, PlainNot, This, User
from nearcast.model.values import Value

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAMES = ("type", "source", "subject", "time", "size", "tag", "naïve name", "flag")
USERS = ("ann", "bob", "nobody")


def evenly(*groups: Sequence[Value]) -> st.SearchStrategy[Value]:
    """A value of one of these groups, each about as likely as the others: one choice, where `one_of` makes three."""
    size = max(map(len, groups))
    return st.sampled_from([value for group in groups for value in islice(cycle(group), size)])


NUMBERS = (0.5, -0.0, 2.0, 1e300, 2**53, 2**53 + 1, -(2**63), 2**63 - 1, float(2**53), 1 / 3)
TEXTS = ("", "a", "b", "ab", "Ab", "é", "z", "💧", "2026-01-01T12:00:00Z", "a%b", "a\nb")
TIMES = tuple(NOON + timedelta(hours=hours) for hours in (0, 1, -1, 2, -2))
LITERALS = ((0, 1, -1, 2, -2, 3, -3), NUMBERS, TEXTS, (False, True), TIMES)

texts, literals = st.sampled_from(TEXTS), evenly(*LITERALS)
values = evenly(*LITERALS, (float("nan"),))

DEGREES = (-180.0, -179.9999, 0.0, 0.0009, 151.2, 179.9999, 180.0)
LATITUDES = (-90.0, -89.9999, -33.8, 0.0, 0.0005, 90.0)
METRES = (-100.0, -1.0, 0.0, 3.0, 4.0, 150.0)
HEIGHTS = (*[None] * len(METRES), *METRES)
PLANAR = tuple(Place("planar", *at) for at in product(METRES, METRES, HEIGHTS))
GEOGRAPHIC = tuple(Place("geographic", *at) for at in product(DEGREES, LATITUDES, HEIGHTS))

points = st.sampled_from([Place("geographic", *at) for at in product(DEGREES, LATITUDES)])
places = st.one_of(st.sampled_from(PLANAR), st.sampled_from(GEOGRAPHIC))
limits = st.one_of(st.sampled_from([-1, 0, 5.0, 100, 111.3, 150, 20_000, 2e7, 3e7]), st.floats(0, 2.1e7))


names, operators = st.sampled_from(NAMES), st.sampled_from(list(Operator))
like_patterns = st.sampled_from(["%", "a%", "_b", "%b", "a\\%b", "é", "a_b"])
literal_lists = st.lists(literals, min_size=1, max_size=4).map(tuple)


@st.composite
def attribute_atoms(draw: st.DrawFn) -> Atom:
    """An atom about an attribute, of any operator."""
    name, operator = draw(names), draw(operators)
    match operator:
        case Operator.IS_NULL:
            return Atom(name, operator, None)
        case Operator.LIKE:
            return Atom(name, operator, draw(like_patterns))
        case Operator.IN:
            return Atom(name, operator, draw(literal_lists))
        case Operator.BETWEEN:
            return Atom(name, operator, (draw(literals), draw(literals)))
    return Atom(name, operator, draw(literals))


def trees(leaves: st.SearchStrategy[Atom]) -> st.SearchStrategy[Filter]:
    """Filters over these atoms."""
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: And(tuple(parts))),
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: Or(tuple(parts))),
            inner.map(Not),
            inner.map(PlainNot),
        ),
        max_leaves=6,
    )


user_terms = st.sampled_from(USERS).map(User)
located = st.one_of(user_terms, st.just(This()), points, st.one_of(st.none(), attribute_atoms()).map(Entities))
location_terms = st.one_of(
    st.builds(Distance, user_terms, st.just(This())),
    st.builds(Distance, located, located),
    st.builds(Count, located),
    st.builds(Count, located, located, limits.filter(lambda limit: limit >= 0)),
)
location_operators = st.sampled_from([*list(Operator)[:6], Operator.IN, Operator.BETWEEN])
limit_lists = st.lists(limits, min_size=1, max_size=3).map(tuple)
limits_or_counts = st.one_of(limits, st.integers(0, 3))


@st.composite
def location_atoms(draw: st.DrawFn) -> Atom:
    """An atom about a distance or a count."""
    term, operator = draw(location_terms), draw(location_operators)
    if operator is Operator.IN:
        return Atom(term, operator, draw(limit_lists))
    if operator is Operator.BETWEEN:
        return Atom(term, operator, (draw(limits), draw(limits)))
    return Atom(term, operator, draw(limits_or_counts))


SHAPES = ("geom", "geometry", "area", "this")
shapes = st.sampled_from(
    [
        '{"type":"LineString","coordinates":[[0,0],[1,1]]}',
        '{"type":"Polygon","coordinates":[[[0,0],[2,0],[2,2],[0,2],[0,0]]]}',
        '{"type":"MultiPoint","coordinates":[[1,1],[179.9999,0]]}',
        '{"type":"Polygon","coordinates":[[[0,0],[1,1],[1,0],[0,1],[0,0]]]}',
        '{"type":"Polygon","coordinates":[[[0,0]]]}',
        '{"type":"nonsense"}',
    ]
)
days = st.sampled_from([date(2026, 1, 1), date(2025, 12, 31), date(2026, 1, 2)])
properties = st.sampled_from([*NAMES, "day"]).map(Property)
previous = properties.map(lambda name: Call("PREVIOUS", (name,)))
operands = st.one_of(properties, previous, st.builds(Constant, st.one_of(literals, days)))


def calls(functions: Sequence[str], *arguments: st.SearchStrategy[Expression]) -> st.SearchStrategy[Call]:
    """Calls of one of these functions of such arguments."""
    return st.builds(Call, st.sampled_from(functions), st.tuples(*arguments))


scalars = st.recursive(
    operands,
    lambda inner: st.one_of(calls(ARITHMETIC, inner, inner), calls(["CASEI", "ACCENTI"], inner)),
    max_leaves=3,
)
spatial = st.one_of(
    st.sampled_from(SHAPES).map(Property),
    st.sampled_from(USERS).map(lambda name: Call("USER", (Constant(name),))),
    st.sampled_from(["POINT (1 1)", "LINESTRING (0 2, 2 0)", "POLYGON ((0 0, 2 0, 2 2, 0 2, 0 0))"]).map(Shape),
    st.sampled_from([(0.0, 0.0, 1.0, 1.0), (179.0, -1.0, -179.0, 1.0)]).map(Box),
)
ends = st.one_of(operands, st.just(Constant(None)))
temporal = st.one_of(operands, calls(["INTERVAL"], ends, ends))
lists = st.one_of(properties, previous, st.lists(operands, max_size=3).map(lambda items: Array(tuple(items))))
patterns = st.sampled_from(["%", "a%", "%B%", "é"]).map(Constant)
predicates = st.one_of(
    calls(COMPARISONS, scalars, scalars),
    calls(["BETWEEN"], scalars, scalars, scalars),
    calls(["IN"], scalars, scalars, scalars),
    calls(["LIKE"], scalars, st.one_of(patterns, calls(["CASEI"], patterns))),
    calls(["IS NULL"], st.one_of(scalars, spatial)),
    calls([*SPATIAL], spatial, spatial),
    calls(["S_DWITHIN"], spatial, spatial, st.one_of(scalars, st.builds(Constant, limits))),
    calls([*TEMPORAL], temporal, temporal),
    calls([*ARRAYS], lists, lists),
    calls(["CHANGED"], properties),
    calls(["TRUE", "FALSE"]),
)


connectives = st.sampled_from(["", "", "", "NOT", "AND", "OR"])


@st.composite
def computed_atoms(draw: st.DrawFn) -> Atom:
    """An atom about an expression, now and then one that holds conditions within."""
    function = draw(connectives)
    first = draw(predicates)
    rest = () if function == "NOT" else (draw(predicates),)
    return Atom(Call(function, (first, *rest)) if function else first, Operator.EQ, True)


filters = trees(st.one_of(attribute_atoms(), attribute_atoms(), location_atoms(), computed_atoms()))


heads = st.sampled_from([*product(TEXTS, ("a", "b", "unit"), ("a", "s"))])
subjects_and_times = st.sampled_from([*product((None, "a", "b", "e1", "e2"), (*[None] * len(TIMES), *TIMES))])
event_places = st.one_of(st.none(), places)
shaped = st.tuples(st.sampled_from(SHAPES[:3]), shapes)
dated = st.tuples(st.just("day"), days.map(date.isoformat))


def _attributes(*own: str) -> st.SearchStrategy[tuple[tuple[str, Value], ...]]:
    told = st.tuples(st.sampled_from([*NAMES[4:], *own]), values)
    return st.lists(st.one_of(told, told, shaped, dated), max_size=5).map(tuple)


attribute_lists = {
    (subject, time): _attributes(*["subject"] * subject, *["time"] * time)
    for subject in (False, True)
    for time in (False, True)
}
"""By whether an event has no subject of its own, and no time: then its attributes may be named so."""


@st.composite
def events(draw: st.DrawFn) -> Event:
    """An event with missing, repeated and mixed attributes."""
    (id, type, source), (subject, time) = draw(heads), draw(subjects_and_times)
    attributes = draw(attribute_lists[subject is None, time is None])
    return Event(id, type, source, subject, time, draw(event_places), attributes)
