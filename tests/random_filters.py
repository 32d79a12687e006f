"""Random filters and events for property tests: few names and values, so that they meet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

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

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAMES = ("type", "source", "subject", "time", "size", "tag", "naïve name", "flag")
USERS = ("ann", "bob", "nobody")

numbers = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([0.5, -0.0, 2.0, 1e300, 2**53, 2**53 + 1, -(2**63), 2**63 - 1, float(2**53), 1 / 3]),
)
texts = st.sampled_from(["", "a", "b", "ab", "Ab", "é", "z", "💧", "2026-01-01T12:00:00Z", "a%b", "a\nb"])
times = st.integers(-2, 2).map(lambda hours: NOON + timedelta(hours=hours))
literals = st.one_of(numbers, texts, st.booleans(), times)
values = st.one_of(literals, st.just(float("nan")))

degrees = st.sampled_from([-180.0, -179.9999, 0.0, 0.0009, 151.2, 179.9999, 180.0])
latitudes = st.sampled_from([-90.0, -89.9999, -33.8, 0.0, 0.0005, 90.0])
metres = st.sampled_from([-100.0, -1.0, 0.0, 3.0, 4.0, 150.0])
heights = st.one_of(st.none(), metres)
points = st.builds(Place, st.just("geographic"), degrees, latitudes)
places = st.one_of(
    st.builds(Place, st.just("planar"), metres, metres, heights),
    st.builds(Place, st.just("geographic"), degrees, latitudes, heights),
)
limits = st.one_of(st.sampled_from([-1, 0, 5.0, 100, 111.3, 150, 20_000, 2e7, 3e7]), st.floats(0, 2.1e7))


@st.composite
def attribute_atoms(draw: st.DrawFn) -> Atom:
    """An atom about an attribute, of any operator."""
    name, operator = draw(st.sampled_from(NAMES)), draw(st.sampled_from(list(Operator)))
    match operator:
        case Operator.IS_NULL:
            return Atom(name, operator, None)
        case Operator.LIKE:
            return Atom(name, operator, draw(st.sampled_from(["%", "a%", "_b", "%b", "a\\%b", "é", "a_b"])))
        case Operator.IN:
            return Atom(name, operator, tuple(draw(st.lists(literals, min_size=1, max_size=4))))
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


@st.composite
def location_atoms(draw: st.DrawFn) -> Atom:
    """An atom about a distance or a count."""
    located = st.one_of(
        st.sampled_from(USERS).map(User),
        st.just(This()),
        points,
        st.one_of(st.none(), attribute_atoms()).map(Entities),
    )
    term = draw(
        st.one_of(
            st.builds(Distance, st.sampled_from(USERS).map(User), st.just(This())),
            st.builds(Distance, located, located),
            st.builds(Count, located),
            st.builds(Count, located, located, limits.filter(lambda limit: limit >= 0)),
        )
    )
    operator = draw(st.sampled_from([*list(Operator)[:6], Operator.IN, Operator.BETWEEN]))
    if operator is Operator.IN:
        return Atom(term, operator, tuple(draw(st.lists(limits, min_size=1, max_size=3))))
    if operator is Operator.BETWEEN:
        return Atom(term, operator, (draw(limits), draw(limits)))
    return Atom(term, operator, draw(st.one_of(limits, st.integers(0, 3))))


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


@st.composite
def calls(draw: st.DrawFn, functions: Sequence[str], *arguments: st.SearchStrategy[Expression]) -> Call:
    """Calls of one of these functions of such arguments."""
    return Call(draw(st.sampled_from(functions)), tuple(draw(argument) for argument in arguments))


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


@st.composite
def computed_atoms(draw: st.DrawFn) -> Atom:
    """An atom about an expression, now and then one that holds conditions within."""
    function = draw(st.sampled_from(["", "", "", "NOT", "AND", "OR"]))
    first = draw(predicates)
    rest = () if function == "NOT" else (draw(predicates),)
    return Atom(Call(function, (first, *rest)) if function else first, Operator.EQ, True)


filters = trees(st.one_of(attribute_atoms(), attribute_atoms(), location_atoms(), computed_atoms()))


@st.composite
def events(draw: st.DrawFn) -> Event:
    """An event with missing, repeated and mixed attributes."""
    subject, time = draw(st.sampled_from([None, "a", "b", "e1", "e2"])), draw(st.one_of(st.none(), times))
    own = [name for name, value in (("subject", subject), ("time", time)) if value is None]
    told = st.tuples(st.sampled_from([*NAMES[4:], *own]), values)
    shaped = st.tuples(st.sampled_from(SHAPES[:3]), shapes)
    dated = st.tuples(st.just("day"), days.map(date.isoformat))
    return Event(
        id=draw(texts),
        type=draw(st.sampled_from(["a", "b", "unit"])),
        source=draw(st.sampled_from(["a", "s"])),
        subject=subject,
        time=time,
        place=draw(st.one_of(st.none(), places)),
        attributes=tuple(draw(st.lists(st.one_of(told, told, shaped, dated), max_size=5))),
    )
