"""From CQL2 text to syntax: places, what parentheses make, what is refused and where, and whatever size and depth."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language.cql2 import parse, parse_node, write, write_json
from nearcast.language.cql2.conditions import Conditions
from nearcast.language.cql2.json_encoding import PLACED
from nearcast.language.cql2.parser import read_text
from nearcast.language.cql2.syntax import Syntax
from nearcast.language.definitions.subscription_documents import subscription_document
from nearcast.language.marks import starting_at
from nearcast.language.nodes import from_data
from nearcast.model.filter import Atom, Filter, Not, Operator, atoms
from nearcast.model.limits import Limits
from nearcast.model.subscription import Settings, Subscription
from tests.language.strategies import attribute_atoms, cql2_filters, trees

WHERE = Mark("f", 3, 5)


def read(text: str) -> Syntax:
    """The syntax of a text that stands at the beginning of a file."""
    return read_text(text, starting_at(text, Mark("f")))


def leaves(syntax: Syntax) -> list[Syntax]:
    """What has no parts, from left to right."""
    return [leaf for part in syntax.parts for leaf in leaves(part)] if syntax.parts else [syntax]


def test_literals_are_exact_and_have_places() -> None:
    """In whatever script and line they stand."""
    text = "größe = 9007199254740993\n AND 名前 IN (-9223372036854775808, 'it''s', null) OR \"1\" < - 1e-7 + .5"
    found = [(leaf.value, leaf.where.line, leaf.where.column) for leaf in leaves(read(text))]
    assert [
        ("größe", 1, 1),
        (9007199254740993, 1, 9),
        ("名前", 2, 6),
        (-9223372036854775808, 2, 13),
        ("it's", 2, 35),
        (None, 2, 44),
        ("1", 2, 53),
        (-1e-7, 2, 59),
        (0.5, 2, 68),
    ] == found


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_of_a_list(numbers: list[float]) -> None:
    """Each is the one that is written, where it is written."""
    text = "a IN (" + ",".join(map(repr, numbers)) + ")"
    found = read(text).parts[1:]
    assert numbers == [part.value for part in found]
    assert [repr(number) for number in numbers] == [
        text[(part.where.column or 1) - 1 :][: len(repr(number))] for part, number in zip(found, numbers, strict=True)
    ]


@pytest.mark.parametrize(
    ("columns", "text"),
    [([1, 5], "NOT NOT a"), ([2], "(NOT a = 1)"), ([1, 6], "NOT (NOT -1 = a)"), ([1], "a NOT IN (1)")],
)
def test_not_stands_where_it_is_written(columns: list[int], text: str) -> None:
    """A NOT before a condition has its own place; that of NOT IN and the like is the value's."""
    found: list[int | None] = []
    syntax = read(text)
    while syntax.calls("NOT"):
        found.append(syntax.where.column)
        syntax = syntax.parts[0]
    assert columns == found


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (3, "f(POINT(1 2))"),
        (4, "f((POINT Z (-1 2 3)))"),
        (18, "f(POLYGON EMPTY, GEOMETRYCOLLECTION(GEOMETRYCOLLECTION(POINT(1 2)), LINESTRING(1 2, 3 4)))"),
        (3, "f(point empty)"),
        (6, "f(1, BBOX(1, 2, - 3, 4))"),
    ],
)
def test_geometries_stand_where_they_are_written(column: int, text: str) -> None:
    """At their keyword."""
    geometry = next(leaf for leaf in reversed(leaves(read(text))) if leaf.kind == "geometry")
    assert column == geometry.where.column


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"type": "Point", "coordinates": [0.1, -2.0]}, "POINT(0.1-2)"),
        ({"type": "Point", "coordinates": [1.0, 2.0]}, "POINT M (1 2 3)"),
        ({"type": "Point", "coordinates": [1.0, 2.0, 3.0]}, "POINT ZM (1 2 3 4)"),
        ({"type": "MultiPoint", "coordinates": [[1.0, 2.0], [3.0, 4.0]]}, "MULTIPOINT((1 2), 3 4)"),
        (
            {"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": [1.0, 2.0, 3.0]}]},
            "GEOMETRYCOLLECTION Z (GEOMETRYCOLLECTION Z (POINT Z (1 2 3)))",
        ),
        ({"type": "GeometryCollection", "geometries": []}, "GEOMETRYCOLLECTION Z EMPTY"),
        ({"bbox": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}, "BBOX(1, 2, 3, 4, 5, 6)"),
    ],
)
def test_geometries(value: object, text: str) -> None:
    """As GeoJSON, with the numbers as they are written, a measure left out."""
    assert value == read(f"f({text})").parts[0].value


def test_parentheses_group_or_make_lists() -> None:
    """One value is grouped, any other number is a list, and so is a list within parentheses."""
    one, none, two, nested = read("f((1), (), (1, a), ((1, a)))").parts
    assert (True, "number") == (one.grouped, one.kind)
    assert [("list", 0), ("list", 2), ("list", 1)] == [(each.kind, len(each.parts)) for each in (none, two, nested)]


@pytest.mark.parametrize(
    ("column", "expected", "text"),
    [
        (6, "( after IN", "a IN 5"),
        (6, "( after IN", "a IN f(1)"),
        (8, "a name, a number, a text in quotes, a function or (", "1 = a +"),
        (7, "a name, a number, a text in quotes, a function or (", "a IN ()"),
        (5, "a name, a number, a text in quotes, a function or (", "a = NOT b"),
        (5, "a name, a number, a text in quotes, a function or (", "a + NOT b = 1"),
        (10, "a comparison, AND, OR or the end of the condition", "a IN (b) + c"),
        (13, "one comparison between AND, OR and parentheses", "a + 1 = b   IS NULL"),
        (20, "one comparison between AND, OR and parentheses", "a BETWEEN 1 AND 2  = 3"),
        (5, "one comparison between AND, OR and parentheses", "a=1 NOT IN (1)"),
        (14, "BETWEEN low AND high", "a BETWEEN 1  OR b"),
        (6, "NULL or NOT NULL behind IS", "a IS b"),
        (10, "NULL or NOT NULL behind IS", "a IS NOT b"),
        (4, "a comparison, AND, OR or the end of the condition", '"a"(1) = 2'),
        (6, "a comma or ) after a condition or value", "f(a,b"),
        (9, "a name, a number, a text in quotes, a function or (", "a = f(b,"),
        (7, "a name, a number, a text in quotes, a function or (", "a div NOT b = 1"),
        (3, "a comparison, AND, OR or the end of the condition", "a b = 1 = 2"),
        (8, "a number", "POINT(1)"),
        (10, "a number", "POINT Z(1)"),
        (7, "a number", "POINT(POINT(1 2))"),
        (10, ")", "POINT(1 2, 3 4)"),
        (20, "a geometry", "GEOMETRYCOLLECTION(BBOX(1, 2, 3, 4))"),
        (24, "a comma or )", "MULTIPOINT(1 2, (3 4)  (5 6))"),
        (17, ")", "MULTIPOINT((1 2 , 3 4))"),
        (22, "as many numbers as the first position has, 2", "LINESTRING(1 2, 3 4 5)"),
        (7, "a coordinate that is a finite number", "POINT(1e999 2)"),
        (21, "(", "S_WITHIN(a, POLYGON(0 0, 1 1, 1 0, 0 0))"),
        (18, "(", "S_WITHIN(a, BBOX EMPTY)"),
        (18, "a number", "S_WITHIN(a, BBOX((1, 2, 3, 4)))"),
        (7, "IN, BETWEEN or LIKE after NOT", "a NOT = 3"),
        (13, "BETWEEN low AND high", "a BETWEEN 1 f(2)"),
        (16, "a name, a number, a text in quotes, a function or (", "a BETWEEN 1 AND"),
    ],
)
def test_faults(column: int, expected: str, text: str) -> None:
    """What is expected, at the first token that cannot stand where it does."""
    with pytest.raises(Fault) as caught:
        read(text)
    assert (expected, column) == (caught.value.expected, caught.value.where and caught.value.where.column)


def test_a_minus_may_follow_not() -> None:
    """Whatever the minus is about."""
    assert read("NOT -a = 3").calls("NOT")
    assert read("NOT (-a = 3)").calls("NOT")
    assert read("NOT -1 = a").calls("NOT")


@pytest.mark.parametrize("text", ["a == 1", "a => 1", "a <> = 1"])
def test_comparisons_that_there_are_not(text: str) -> None:
    """The fault says which ones there are."""
    with pytest.raises(Fault, match="; comparisons are =, <>, <, <=, >, >="):
        read(text)


def test_keywords_are_of_ascii() -> None:
    """A dotless i makes no IN."""
    assert Atom("ıN", Operator.EQ, 3) == parse("ıN = 3", WHERE)


def deeper(frames: int, text: str) -> Filter:
    """The filter of a text, read by someone who already is so deep in calls."""
    return deeper(frames - 1, text) if frames else parse(text, WHERE)


@pytest.mark.parametrize(
    "text",
    [
        "(" + " + ".join(["a"] * 400) + ") * " + "(" * 99 + "a" + " + a" * 400 + ")" * 99 + " = 1",
        "a = 1 AND b = (" * 98 + "TRUE" + ")" * 98,
        "a OR b AND c = d + e * f ^ (" * 99 + "1" + ")" * 99,
        "a OR b AND NOT (" * 50 + "c" + ")" * 50,
        "a IN (" + ", ".join(["(1)"] * 50_000) + ")",
        "NOT a = 1 OR b = 2 AND " * 9_000 + "c",
        ("(" + "a + " * 490) * 100 + "a" + ")" * 100 + " > 1",
        "A_EQUALS(a, " + "(1, " * 98 + "1" + ")" * 99,
        "distance(uform(" * 50 + "a" + "), this) < 3" * 50,
        "-" * 50_000 + "1 = a",
        "GEOMETRYCOLLECTION(" * 50_000,
        "\\'" * 30_000,
        "'" + "\\'a" * 30_000,
    ],
    ids=range(13),
)
def test_large_shapes_are_filters_or_faults(text: str) -> None:
    """However they are nested, and wherever one stands when they are read."""
    try:
        deeper(300, text)
    except DefinitionError as error:
        assert is_within(text, error)


def is_within(text: str, error: DefinitionError) -> bool:
    """Whether the one fault has a place in a text, or right behind it."""
    [fault] = error.faults
    assert fault.where and fault.where.line and fault.where.column
    line, lines = fault.where.line - 3, text.split("\n")
    first = 5 if line == 0 else 1
    return 0 <= line < len(lines) and first <= fault.where.column <= first + len(lines[line])


BROKEN = (
    *(
        "a",
        "größe",
        "kind-of",
        '"and"',
        "this",
        "point",
        "ıN",
        "µ",
        "=",
        "<>",
        ">=",
        "!=",
        "3",
        "- 3",
        "+3",
        ".5",
        "5.",
    ),
    *("1e400", "9223372036854775808", "'x'", "'it''s'", "'a\\n'", "'", "TRUE", "NULL", "AND", "or", "NOT", "IN", "()"),
    *("(1, 'x')", "(1,)", "BETWEEN", "1 AND 2", "LIKE", "'n%'", "IS", "is not null", "(", ")", ",", "+", "^", "div"),
    *("casei(a)", "DATE('2020-01-31')", "POINT(1 2)", "BBOX(", "POLYGON((", "1 2", "EMPTY", "Z", "GEOMETRYCOLLECTION("),
    *("uform(", "distance(", "A_EQUALS("),
)
"""Of what texts are made that are filters, or nearly so."""

texts = st.builds(str.join, st.sampled_from(["", " ", "\n "]), st.lists(st.sampled_from(BROKEN), max_size=9))
few = st.text(st.sampled_from("ab1.'\"()=<>-, \\ınNOTRAD"), max_size=20)


@settings(max_examples=300)
@given(texts | few)
def test_any_text_is_a_filter_or_a_fault_within_it(text: str) -> None:
    """And a filter is read again from what it is written as, as text and as JSON."""
    try:
        filter = parse(text, WHERE)
    except DefinitionError as error:
        assert is_within(text, error)
        return
    assert filter == parse(write(filter), WHERE)
    assert filter == parse_node(from_data(write_json(filter), WHERE))


@given(cql2_filters | trees(attribute_atoms, (Not,)))
def test_text_and_json_of_a_filter_are_the_same_filter(filter: Filter) -> None:
    """Whatever is in it."""
    assert filter == parse(write(filter), WHERE) == parse_node(from_data(write_json(filter), WHERE))


@given(cql2_filters | trees(attribute_atoms, (Not,)))
def test_conditions_that_are_read_at_once_mean_the_same(filter: Filter) -> None:
    """With the same places."""
    found = parse(write(filter), WHERE)
    expected = one_by_one(write(filter))
    assert (expected, [one.where for one in atoms(expected)]) == (found, [one.where for one in atoms(found)])


def one_by_one(text: str) -> Filter:
    """The filter of a text of which every literal was read by itself."""
    return Conditions().condition(read_text(text, starting_at(text, WHERE)))


WRITTEN = ["'a'", "''", "''''", "'it''s, (so)'", r"'\n'", "1", "-2", "- 3", "+4", "2.50", "1e3", "1e999", "TRUE"]


@given(
    st.sampled_from(["a", "CASEI(a)", "a + 1", "distance(this, this)", "b = 1 OR NOT a NOT"]),
    st.lists(st.sampled_from(WRITTEN), min_size=1, max_size=4).map(", ".join),
)
def test_a_list_that_is_read_at_once_means_the_same(left: str, values: str) -> None:
    """Whatever literals are in it and whatever stands before it, also where it is a fault."""
    text = f"{left} IN ({values})"
    try:
        expected: Filter | Fault = one_by_one(text)
    except Fault as fault:
        expected = fault
    try:
        assert expected == parse(text, WHERE)
    except DefinitionError as error:
        assert [expected] == error.faults


def test_a_wrong_literal_of_a_long_list_is_told_with_its_place() -> None:
    """Though the list is read at once."""
    before = "'b', " * 1_000
    with pytest.raises(DefinitionError, match=r"f:1:5014: expected a text.*, got 3"):
        parse(f"CASEI(a) IN ({before}3)", Mark("f"))
    with pytest.raises(DefinitionError, match=r"f:1:5007: expected a number within 64 bits, got 99999999999999999999"):
        parse(f"a IN ({before}99999999999999999999)", Mark("f"))


def _defined(filter: object, **limits: int) -> Subscription:
    settings = Settings(limits=Limits(**limits))  # type: ignore[arg-type]
    return subscription_document({"id": "s", "client": "c", "filter": filter}, Mark("f"), settings)


def test_a_list_of_all_ships_of_a_day_is_below_the_limit() -> None:
    """Off the United States there are 10,631, each with a number of nine digits."""
    [atom] = atoms(_defined(f"mmsi IN {tuple(range(303_000_000, 303_010_631))}").filter)
    assert 10_631 == len(atom.literals)


def test_literals_have_a_limit() -> None:
    """The same in text and in JSON; who sets a higher one has more, up to what is ever taken."""
    larger = {"filter_literals": 300_000}
    for most, limits in ((12_000, dict[str, int]()), (5, {"filter_literals": 5}), (250_000, larger)):
        values = list(range(most + 1))
        for filter in (f"a IN {tuple(values)}", {"op": "in", "args": [{"property": "a"}, values]}):
            with pytest.raises(DefinitionError, match=rf"at most {most:,} literals in one filter .*, got {most + 1:,}"):
                _defined(filter, **limits)
        assert _defined(f"a IN {tuple(values[:-1])}", **limits)


def test_what_is_many_times_too_large_is_not_read_to_its_end() -> None:
    """A text, a list, a tree: what is told is how much of it was seen, and the rest is not even looked at."""
    atoms_alone = " OR ".join(["a = 1"] * 100_000) + " this is no CQL2 )"
    lists = " OR ".join(f"a IN {tuple(range(5_000))}" for _ in range(100))
    for filter, of, seen in (
        (atoms_alone, "1,000 atoms", "1,025"),
        (f"a IN {tuple(range(100_000))} this is no CQL2 )", "12,000 literals", "24,000"),
        (lists, "12,000 literals", "15,000"),
        ({"any": [*["a = 1 OR b = 2"] * 600, "this is no CQL2 )"]}, "1,000 atoms", "1,002"),
    ):
        with pytest.raises(DefinitionError, match=rf"at most {of} in one filter \(.*\), got at least {seen}") as raised:
            _defined(filter)
        assert len(raised.value.faults) == 1


def test_commas_of_texts_are_no_literals() -> None:
    """Lists whose texts have more commas than a filter may have literals are taken."""
    listed = ", ".join(f"'{number},,,'" for number in range(4))
    filter = _defined(f"a IN ({listed}) OR b IN ({listed})", filter_literals=8).filter
    assert [len(atom.literals) for atom in atoms(filter)] == [4, 4]
    with pytest.raises(DefinitionError, match=r"at most 7 literals in one filter \(limit filter_literals\), got 8"):
        _defined(f"a IN ({listed}) OR b IN ({listed})", filter_literals=7)


def test_long_json_means_what_short_json_means() -> None:
    """What is too long for places within it is the same filter, and its faults are as good but for the place."""
    values = [f"k{number}" for number in range(5_000)]
    document = {"op": "in", "args": [{"property": "kind"}, values]}
    long, parsed = json.dumps(document), parse_node(from_data(document, Mark("f")))
    assert len(long) > PLACED and parse(long, Mark("f")) == parsed
    for wrong, fault in (
        (long[:-1] + ', "op": "="}', "expected each key once, got op again"),
        (long[:-1], "expected CQL2 JSON, got Expecting ',' delimiter"),
        (long.replace('"k4999"', "NaN"), "expected a finite number, got nan"),
    ):
        with pytest.raises(DefinitionError, match=fault):
            parse(wrong, Mark("f"))


def test_atoms_have_a_limit_that_can_be_set() -> None:
    """In a text, in a tree, and in JSON."""
    for most, limits in ((1_000, dict[str, int]()), (3, {"filter_atoms": 3})):
        each = [f"a{number} = {number}" for number in range(most + 1)]
        in_json = {"op": "or", "args": [{"op": "=", "args": [{"property": f"a{n}"}, n]} for n in range(most + 1)]}
        for filter in (" OR ".join(each), {"any": each}, in_json):
            with pytest.raises(DefinitionError, match=rf"at most {most:,} atoms in one filter .*, got {most + 1:,}"):
                _defined(filter, **limits)
        assert _defined(" OR ".join(each[:-1]), **limits)
        assert _defined({"any": each[:-1]}, **limits)


@pytest.mark.parametrize("condition", ["a + {0} > b", "a LIKE '%{0}'", "count(uform(a = {0})) > 1"])
def test_what_no_index_finds_has_a_limit(condition: str) -> None:
    """Each batch of events would pay for each of them: two hundred are taken, one more is not."""
    for most, limits in ((200, dict[str, int]()), (2, {"filter_expressions": 2})):
        each = [condition.format(number) for number in range(most + 1)]
        assert _defined(" OR ".join(each[:-1]), **limits)
        came = rf"at most {most} expressions, LIKEs and terms .* \(limit filter_expressions\), got {most + 1}"
        with pytest.raises(DefinitionError, match=came):
            _defined(" OR ".join(each), **limits)


@pytest.mark.parametrize("condition", ["a LIKE '{0}'", "CASEI(a) LIKE CASEI('{0}')", "a LIKE '{0}' AND b + 1 > 2"])
def test_patterns_have_a_limit(condition: str) -> None:
    """Of characters: each may be looked for at each character of a text."""
    assert subscription_document({"id": "s", "client": "c", "filter": condition.format("a" * 1_000)}, Mark("f"))
    with pytest.raises(DefinitionError, match=r"a pattern of at most 1,000 characters, got one of 1,001"):
        subscription_document({"id": "s", "client": "c", "filter": condition.format("a" * 1_001)}, Mark("f"))


def test_geometries_of_a_filter_have_a_limit() -> None:
    """Of corners together, and of how often edges lie beside each other."""
    long = ", ".join(f"{number % 170} {number % 80}" for number in range(50_002))
    document = {"id": "s", "client": "c", "filter": f"S_INTERSECTS(geom, MULTIPOINT({long}))"}
    with pytest.raises(DefinitionError, match=r"geometries of at most 50,000 corners in one filter, got 50,001"):
        subscription_document(document, Mark("f"))
    comb = ", ".join(f"{number / 9_999 + number % 2} {number % 2}" for number in range(9_999))
    with pytest.raises(DefinitionError, match="edges lie beside each other"):
        parse(f"S_INTERSECTS(geom, POLYGON((0 -1, {comb}, 200 -1, 0 -1)))", Mark("f"))
