"""CQL2 beyond one attribute and literals: expressions, functions, geometries, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nearcast.errors import DefinitionError, Mark
from nearcast.filters.evaluate import NO_CONTEXT, truth
from nearcast.language.cql2 import parse, parse_node, write, write_json
from nearcast.language.nodes import from_data
from nearcast.model.event import Event, Place
from nearcast.model.expression import Array, Box, Call, Constant, Expression, Property, Shape
from nearcast.model.filter import And, Atom, Distance, Filter, Not, Operator, This
from tests import random_filters as random
from tests.shared import found

HERE = Mark("f")
A, B = Property("a"), Property("b")
FIRST, OPEN = date(2020, 1, 1), Constant(None)


def read(text: str) -> Filter:
    return parse(text, HERE)


def atom(function: str, *arguments: Expression) -> Atom:
    return Atom(Call(function, arguments), Operator.EQ, True)


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (atom("<", A, B), "a < b"),
        (atom("=", Constant(1), Constant(1)), "1 = 1"),
        (atom("=", A, Constant(FIRST)), "a = DATE('2020-01-01')"),
        (atom("=", Call("CASEI", (A,)), Call("CASEI", (Constant("x"),))), "casei(a) = CASEI('x')"),
        (atom("IN", A, Constant(1), B), "a IN (1, b)"),
        (atom("BETWEEN", A, B, Constant(5)), "a BETWEEN b AND 5"),
        (atom("LIKE", A, Call("ACCENTI", (Constant("é%"),))), "a LIKE accenti('é%')"),
        (atom("LIKE", Constant("ab"), Constant("a_")), "'ab' LIKE 'a_'"),
        (atom("IS NULL", Call("+", (A, B))), "a + b IS NULL"),
        (atom("IS NULL", Call(">", (A, B))), "(a > b) IS NULL"),
        (atom("IS NULL", Property("geometry")), "geometry IS NULL"),
        (atom("=", Call("S_TOUCHES", (A, B)), Constant(True)), "S_TOUCHES(a, b) = TRUE"),
        (atom("A_EQUALS", A, Array((Constant("x"), Constant(1), Array((B, A))))), "A_EQUALS(a, ('x', 1, (b, a)))"),
        (atom("A_CONTAINS", A, Array((Constant(1),))), "A_CONTAINS(a, (1))"),
        (atom("A_OVERLAPS", A, Array(())), "a_overlaps(a, ())"),
        (atom("T_STARTS", A, Call("INTERVAL", (Constant(FIRST), OPEN))), "T_STARTS(a, INTERVAL('2020-01-01', '..'))"),
        (atom("T_MEETS", Call("INTERVAL", (A, B)), A), "T_MEETS(INTERVAL(a, b), a)"),
        (atom("S_WITHIN", A, Box((-1.0, 2.0, 3.0, 4.5))), "S_WITHIN(a, BBOX(-1, 2, +3, 4.5))"),
        (atom("S_EQUALS", A, Shape("POINT (1.0 2.0 3.0)")), "S_EQUALS(a, POINT Z (1 2 3))"),
        (atom("S_EQUALS", A, Shape("MULTIPOINT ((1.0 2.0), (3.0 4.0))")), "S_EQUALS(a, MULTIPOINT(1 2, (3 4)))"),
        (atom("S_EQUALS", A, Shape("POLYGON EMPTY")), "S_EQUALS(a, POLYGON EMPTY)"),
        (atom("S_DWITHIN", A, Call("USER", (Constant("u"),)), B), "S_DWITHIN(a, user('u'), b)"),
        (Atom(Distance(This(), Place("geographic", 1.0, 2.0)), Operator.LE, 50), "S_DWITHIN(this, POINT(1 2), 5 * 10)"),
        (atom("CHANGED", A), "CHANGED(a)"),
        (atom(">", A, Call("PREVIOUS", (A,))), "a > PREVIOUS(a)"),
        (atom("=", Call("PREVIOUS", (A,)), Constant(True)), "previous(a)"),
        (atom("TRUE"), "TRUE"),
        (Not(atom("FALSE")), "NOT false"),
    ],
)  # fmt: skip
def test_an_atom_of_expressions(expected: Filter, text: str) -> None:
    """Every form means what it says, and is written and read again as text and as JSON."""
    node = read(text)
    assert expected == node
    assert expected == read(write(node))
    assert expected == parse_node(from_data(write_json(node), HERE))


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (Call("-", (Call("-", (A, B)), A)), "a - b - a"),
        (Call("-", (A, Call("-", (B, A)))), "a - (b - a)"),
        (Call("+", (A, Call("*", (B, A)))), "a + b * a"),
        (Call("*", (Call("+", (A, B)), A)), "(a + b) * a"),
        (Call("^", (Call("^", (A, B)), A)), "a ^ b ^ a"),
        (Call("DIV", (Call("%", (A, B)), A)), "a % b div a"),
        (Call("^", (Call("*", (Constant(-1), A)), Constant(2))), "-a ^ 2"),
        (Call("-", (A, Constant(-1))), "a - -1"),
        (Call("+", (A, Constant(7))), "a + (1 + 2 * 3)"),
        (Call("+", (A, Call("/", (Constant(1), Constant(0))))), "a + 1 / 0"),
    ],
)
def test_precedence_of_arithmetic(expected: Call, text: str) -> None:
    """Tighter operators first, equal ones from left to right, what only literals make is computed."""
    assert atom("<", expected, B) == read(f"{text} < b")
    assert atom("<", expected, B) == read(write(read(f"{text} < b")))


@pytest.mark.parametrize(
    ("value", "text"),
    [(1_000_000, "4000000/4"), (3.5, "7 / 2"), (-3, "-7 div 2"), (-1, "-7 % 2"), (2**53 + 1, "2 ^ 53 + 1")],
)
def test_arithmetic_of_literals_makes_a_literal(value: float, text: str) -> None:
    """So an atom stays one of an attribute and a literal."""
    assert Atom("a", Operator.LT, value) == read(f"a < {text}")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("it's", "'it''s'"),
        ("it's", r"'it\'s'"),
        ("rock 'n' roll", r"'rock \'n\' roll'"),
        ("a\\", r"'a\'"),
        ("a\\", r"'a\\'"),
        ("\\'b", r"'\''b'"),
        ("\\'b", r"'\\''b'"),
        ("a\\%", r"'a\%'"),
        ("\a\b\t\n\v\f\r", r"'\a\b\t\n\v\f\r'"),
        ("a\nb", "'a\nb'"),
        ("C:\\new", r"'C:\\new'"),
        ("C:\\dir", r"'C:\dir'"),
        ("\\\n", r"'\\\n'"),
    ],
)
def test_escapes_within_a_text(value: str, text: str) -> None:
    """A quote is written twice or behind a backslash, control characters have names; one before the end is plain."""
    both = And((Atom("a", Operator.EQ, value), Atom("b", Operator.EQ, "x")))
    assert both == read(f"a = {text} AND b = 'x'")
    assert both == read(write(both))


@pytest.mark.parametrize(
    ("matching", "other", "text"),
    [
        ("100%", "100 km", r"'100\%'"),
        ("a_b", "axb", r"'a\_b'"),
        ("C:\\new", "C:new", r"'C:\\new'"),
        ("C:\\new\\x", "C:new", r"'C:\\new\\%'"),
        ("a\nb", "anb", r"'a\nb'"),
        ("it's", "it_s", r"'it\'_'"),
        ("a\\", "a", r"'a\'"),
        ("\t", "t", r"CASEI(ACCENTI('\t'))"),
    ],
)
def test_escapes_within_a_pattern(matching: str, other: str, text: str) -> None:
    """A backslash is plain if it is written twice, and makes % and _ plain; else as within a text."""
    for filter in (read(f"a LIKE {text}"), read(write(read(f"a LIKE {text}")))):
        kept = [truth(filter, Event("e", "t", "s", attributes=(("a", one),)), NO_CONTEXT) for one in (matching, other)]
        assert [True, False] == kept


@pytest.mark.parametrize(
    ("line", "column", "text"),
    [
        (1, 1, "Foo(a) = 1"),
        (1, 9, "TRUE OR S_INTERSECT(a, b)"),
        (1, 1, "S_INTERSECTS(a)"),
        (1, 1, "T_AFTER(a, b, c)"),
        (1, 1, "CASEI() = 'x'"),
        (1, 17, "S_INTERSECTS(a, 5)"),
        (2, 2, "S_INTERSECTS(a,\n 'POINT(1 2)')"),
        (1, 7, "CASEI(5) = 'x'"),
        (1, 5, "a + 'x' = 1"),
        (1, 5, "1 = 'x'"),
        (1, 12, "CASEI(a) = 5"),
        (1, 5, "a = POINT(1 2)"),
        (1, 5, "a < (1, 2)"),
        (1, 13, "T_DURING(a, DATE('2020-01-01'))"),
        (1, 12, "T_AFTER(a, '2020-01-01')"),
        (1, 10, "a = DATE('2020-02-30')"),
        (1, 33, "T_AFTER(a,INTERVAL('2020-01-02','2020-01-01'))"),
        (1, 20, "T_AFTER(a,INTERVAL('soon','..'))"),
        (1, 10, "PREVIOUS(a + 1) = 2"),
        (1, 23, "count(uform(a = 1 AND CHANGED(b))) > 1"),
        (1, 8, "a LIKE b"),
        (1, 1, "5 LIKE 'x'"),
        (1, 1, "a + 1"),
        (1, 1, "CASEI(a)"),
        (1, 4, "a +"),
        (1, 11, "(a + b * 2"),
        (1, 17, "S_INTERSECTS(a, POLYGON((0 0, 1 1, 1 0)))"),
        (1, 25, "S_INTERSECTS(a, POINT(1 b))"),
        (1, 24, "S_INTERSECTS(a, POINT(1))"),
        (1, 29, "S_INTERSECTS(a, BBOX(1, 2, 3))"),
        (1, 29, "distance(this, user('u')) < a"),
        (1, 11, "S_DWITHIN(uform(), geom, 5)"),
        (1, 11, "a < b + c < d"),
    ],
)
def test_faults_have_places(line: int, column: int, text: str) -> None:
    """Unknown functions, wrong numbers of arguments and clashes of types are one fault each, where they stand."""
    with pytest.raises(DefinitionError) as caught:
        read(text)
    (fault,) = caught.value.faults
    assert fault.where
    assert (line, column) == (fault.where.line, fault.where.column), str(fault)


def test_faults_of_json_have_places() -> None:
    """Line and column in the JSON text."""
    text = '{"op": "and", "args": [\n  {"property": "a"},\n  {"op": "nope", "args": []}]}'
    with pytest.raises(DefinitionError, match=r"f:3:3: expected a function there is, got the function nope"):
        read(text)


def test_json_of_the_standard() -> None:
    """The forms that only JSON has."""
    data = {"op": "t_metBy", "args": [{"interval": ["..", {"property": "a"}]}, {"timestamp": "2020-01-01T00:00:00Z"}]}
    moment = Constant(datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(DefinitionError, match="expected INTERVAL"):
        read(json.dumps(data))
    data["args"][1] = {"interval": ["2020-01-01T00:00:00Z", ".."]}  # type: ignore[index]
    expected = atom("T_METBY", Call("INTERVAL", (Constant(None), A)), Call("INTERVAL", (moment, Constant(None))))
    assert expected == read(json.dumps(data))


def test_depth_of_expressions_has_a_limit() -> None:
    """A chain of operators is as deep as it is long."""
    assert isinstance(read(" + ".join(["a"] * 40) + " > 1"), Atom)
    with pytest.raises(DefinitionError, match="an expression at most 50 deep"):
        read(" + ".join(["a"] * 60) + " > 1")
    with pytest.raises(DefinitionError, match="parentheses of a geometry at most 10 deep"):
        read("S_EQUALS(a, " + "GEOMETRYCOLLECTION(" * 50 + "POINT(1 2)" + ")" * 51)


@given(random.computed_atoms() | random.trees(random.computed_atoms()))
def test_written_expressions_read_as_the_same(node: Any) -> None:
    """Of every filter that can be read, text and JSON read as the same filter."""
    try:
        node = read(write(node))
    except DefinitionError:
        assume(False)
    assert node == read(write(node))
    assert node == parse_node(from_data(write_json(node), HERE))


def examples() -> Iterator[Any]:
    folder = found("cases", "cql2", "examples", "text")
    for path in sorted(folder.glob("*.txt")) if folder else ():
        yield pytest.param(path.read_text(encoding="utf-8"), id=path.stem)


EXAMPLES = list(examples()) or [pytest.param("", marks=pytest.mark.skip("the shared data are not there"))]
INVENTED = {
    "avg": "a condition on one event alone",
    "Buffer": "a function there is",
    "Foo": "a function there is",
    "Bar": "a function there is",
}
"""Functions that the standard's examples invent, and what is expected there: means over a time are of rules."""


@pytest.mark.parametrize("text", EXAMPLES)
def test_examples_of_the_standard(text: str) -> None:
    """Each is a filter, the same once it is written; those with invented functions are refused for these."""
    used = [name for name in INVENTED if f"{name}(" in text]
    if used:
        with pytest.raises(DefinitionError, match=f"expected {INVENTED[used[-1]]}, got the function {used[-1]}"):
            read(text)
        return
    assert read(text) == read(write(read(text)))
    assert read(text) == parse_node(from_data(write_json(read(text)), HERE))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["a", "..", "2020-01-01", "Point"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["op", "args", "property", "date", "interval", "bbox", "type", "coordinates", "geometries"]
            ),
            inner | st.sampled_from(["and", "in", "=", "s_equals", "isNull", "+", "distance", "casei", "t_after"]),
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_a_filter_or_a_fault(data: Any) -> None:
    """Never another exception."""
    try:
        assert parse_node(from_data({"op": "and", "args": [data, True]}, HERE))
    except DefinitionError as error:
        assert error.faults
