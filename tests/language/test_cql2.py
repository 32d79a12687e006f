"""CQL2 text to filters and back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given

from nearcast.errors import DefinitionError, Mark
from nearcast.language.cql2 import parse, write
from nearcast.model.event import Place
from nearcast.model.expression import Call, Constant, Property
from nearcast.model.filter import (
    And,
    Atom,
    Count,
    Distance,
    Entities,
    Not,
    Operator,
    Or,
    PlainNot,
    This,
    User,
    atoms,
)
from tests.language.strategies import cql2_filters
from tests.shared import shared

HERE = Mark("f")


def read(text: str) -> object:
    """The filter of a text that stands somewhere."""
    return parse(text, HERE)


@pytest.mark.parametrize(
    ("atom", "text"),
    [
        (Atom("a", Operator.EQ, "it's"), "a = 'it''s'"),
        (Atom("a", Operator.LT, 5), "5 > a"),
        (Atom("a", Operator.GE, 5), "5 <= a"),
        (Atom("a", Operator.NE, -5), "- 5 <> a"),
        (Atom("a", Operator.EQ, 0.5), "a = .5"),
        (Atom("a", Operator.EQ, True), "a = tRUE"),
        (Atom("a", Operator.EQ, True), "a"),
        (Atom("a", Operator.IN, ("x", 1, False)), "a IN ('x', 1, FALSE)"),
        (Atom("a", Operator.BETWEEN, (-1, 2.5)), "a between -1 and 2.5"),
        (Atom("a", Operator.LIKE, "n\\_%"), "a LIKE 'n\\_%'"),
        (Atom("a", Operator.IS_NULL, None), "a IS NULL"),
        (Atom("unit.size", Operator.EQ, 1), "unit.size = 1"),
        (Atom("alert-level", Operator.EQ, 1), '"alert-level" = 1'),
        (Atom('a"b', Operator.EQ, 1), '"a""b" = 1'),
        (Atom("größe", Operator.EQ, 1), "größe = 1"),
        (Atom("名前", Operator.EQ, 1), "名前 = 1"),
        (Atom("हिन्दी", Operator.EQ, 1), "हिन्दी = 1"),
        (Atom("user", Operator.EQ, "x"), "user = 'x'"),
    ],
)
def test_one_atom(atom: Atom, text: str) -> None:
    """Every form of an atom means what it says, whichever side the literal is on and in whatever script."""
    assert atom == read(text)


@pytest.mark.parametrize("text", ["a NOT IN (1)", "a NOT BETWEEN 1 AND 2", "a NOT LIKE 'x'", "a IS NOT NULL"])
def test_negated_forms(text: str) -> None:
    """A negated form is NOT over the one atom."""
    node = read(text)
    assert Not(read(text.replace("NOT ", "").replace("IS IN", "IN"))) == node


def test_timestamp() -> None:
    """A timestamp is a moment in UTC."""
    assert Atom("t", Operator.GT, datetime(2020, 1, 1, 22, tzinfo=UTC)) == read(
        "t > TIMESTAMP('2020-01-02T00:00:00+02:00')"
    )


def test_precedence() -> None:
    """AND binds tighter than OR, NOT tightest, and parentheses change that."""
    a, b, c = (Atom(name, Operator.EQ, 1) for name in "abc")
    assert Or((a, And((Not(b), c)))) == read("a = 1 OR NOT b = 1 AND c = 1")
    assert And((Or((a, b)), c)) == read("(a = 1 OR b = 1) AND c = 1")


def test_nested_joints_are_one() -> None:
    """An AND within an AND is one AND."""
    assert read("a = 1 AND b = 2 AND c = 3") == read("(a = 1 AND b = 2) AND c = 3")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (9007199254740993, "9007199254740993"),
        (9223372036854775807, "9223372036854775807"),
        (-9223372036854775808, "-9223372036854775808"),
        (150, "150.0"),
        (100000, "1e5"),
    ],
)
def test_exact_integers(value: int, text: str) -> None:
    """Integers are exact to 64 bits, and an integral double is an integer."""
    node = read(f"a = {text}")
    assert isinstance(node, Atom)
    assert (value, int) == (node.value, type(node.value))


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        (Distance(User("user1"), This()), "distance(user('user1'), this) <= 150"),
        (Distance(User("user1"), This()), "150 >= DISTANCE(USER('user1'), geom)"),
        (Distance(Entities(Atom("a", Operator.EQ, "H")), This()), "distance(uform(a = 'H'), this) <= 150"),
        (Distance(This(), Place("geographic", 150.5, -33.2)), "S_DWITHIN(this, POINT(150.5 -33.2), 150)"),
        (Count(Entities(None)), "count(uform()) <= 150"),
        (Count(This(), User("u"), 3.5), "count(this, user('u'), 3.5) <= 150"),
    ],
)
def test_location_terms(subject: Distance | Count, text: str) -> None:
    """Distances and counts of users, entities, the event and points."""
    assert Atom(subject, Operator.LE, 150) == read(text)


def test_atoms_know_their_places() -> None:
    """Every atom has the line and column of its first character, counted in the file."""
    node = parse("a = 1 AND (b = 2\n  OR 'x' = c)", Mark("f.yaml", 7, 20))
    assert [(atom.where.line, atom.where.column) for atom in atoms(node) if atom.where] == [(7, 20), (7, 31), (8, 6)]


@pytest.mark.parametrize(
    ("line", "column", "text"),
    [
        (1, 10, "a = 1 AND"),
        (1, 6, "a = 1) AND b = 2"),
        (1, 5, "a = 1e400"),
        (1, 5, "a = 9223372036854775808"),
        (1, 5, "a = 'x"),
        (1, 5, "a = § 1"),
        (1, 5, "a = NULL"),
        (1, 7, "a = 1 = 2"),
        (1, 5, "a = (1, 2)"),
        (1, 1, "user('x') = 1"),
        (1, 1, "distance(this) < 3"),
        (1, 16, "distance(this, 5) < 3"),
        (1, 24, "distance(this, this) = 'a'"),
        (1, 26, "distance(this, this) IN (TRUE)"),
        (1, 10, "distance(POINT(200 1), this) < 3"),
        (1, 19, "count(this, this, -1) = 1"),
        (1, 1, "count(this, this) = 1"),
        (1, 23, "S_DWITHIN(this, this, 'x')"),
        (1, 15, "t = TIMESTAMP('yesterday')"),
        (1, 1, '"" = 1'),
        (1, 1, "and = 1"),
        (1, 1, ""),
    ],
)
def test_faults_have_places(line: int, column: int, text: str) -> None:
    """What is no filter here is one fault, with the line and column of what is wrong."""
    with pytest.raises(DefinitionError) as caught:
        read(text)
    (fault,) = caught.value.faults
    assert fault.where
    assert (line, column) == (fault.where.line, fault.where.column)


@pytest.mark.parametrize("text", ["a = 0..0", 'a"b" = 1', "a = TRUE'x'", "a = 1'x'", 'a = b"c"', "0..0"])
def test_tokens_that_touch_stay_apart(text: str) -> None:
    """Two names or literals in a row are a fault, also without a blank between them."""
    with pytest.raises(DefinitionError, match="a comparison, AND, OR or the end of the condition"):
        read(text)


@pytest.mark.parametrize("text", ["LIKE (a)", "NOT IN (a)", "AND(a, b)", "IS NULL", "a OR OR b"])
def test_words_between_need_a_left_side(text: str) -> None:
    """A keyword is never the name of a function."""
    with pytest.raises(DefinitionError, match="something before"):
        read(text)


def test_hyphens_need_quotes() -> None:
    """A name with a hyphen reads as a subtraction; the fault says how to write it."""
    with pytest.raises(DefinitionError, match=r'write it in double quotes: "alert-level"'):
        read("alert-level = 'x'")


def test_unknown_functions_are_named() -> None:
    """A function that there is not is named, and so is what there is, or what is like it."""
    with pytest.raises(DefinitionError, match=r"f:1:10: .*the function quux; there are ACCENTI.*S_DWITHIN"):
        read("a = 1 OR quux(a, b)")
    with pytest.raises(DefinitionError, match="did you mean S_CROSSES"):
        read("S_CROSES(a, b)")


@pytest.mark.parametrize(
    ("place", "came", "text"),
    [
        (1, "the arithmetic sign /, which gives a number; a condition is a comparison", "price / earnings"),
        (12, "the arithmetic sign \\*, which gives a number; a condition is a comparison", "a = 1 AND (b * 2)"),
        (1, "a negative value, which gives a number", "-a"),
        (1, "the function casei, which gives a text", "casei(name)"),
        (
            1,
            'which gives a number; if alert-level is one name, write it in double quotes: "alert-level"',
            "alert-level",
        ),
    ],
)
def test_what_gives_no_truth_is_no_condition(place: int, came: str, text: str) -> None:
    """The fault says what it gives instead, and that a condition is a comparison; it lists no functions."""
    with pytest.raises(DefinitionError, match=f"f:1:{place}: expected a condition, got .*{came}") as caught:
        read(text)
    assert "ACCENTI" not in str(caught.value)


@pytest.mark.parametrize("text", ["v > 1e999", "v > -1e999", "1e999 < v"])
def test_doubles_have_their_own_bounds(text: str) -> None:
    """A double beyond them is told where doubles end, not where integers do."""
    with pytest.raises(
        DefinitionError, match=r"expected a number within 64 bits, got -?1e999; numbers reach to 1\.8e308"
    ):
        read(text)


def test_times_outside_the_calendar_are_told_so() -> None:
    """A time with its zone is not told to need one."""
    with pytest.raises(DefinitionError, match="in UTC it lies outside the years 1 to 9999"):
        read("time > TIMESTAMP('0001-01-01T00:00:00+14:00')")
    with pytest.raises(DefinitionError, match="there is no day 30 in 2020-02"):
        read("time > TIMESTAMP('2020-02-30T00:00:00Z')")
    with pytest.raises(DefinitionError, match="a time is written year-month-day, T, hour"):
        read("time > TIMESTAMP('yesterday')")


def test_a_day_and_a_moment_are_told_apart() -> None:
    """Who gave one where the other is expected is told how to write it."""
    with pytest.raises(DefinitionError, match=r"; for a moment write TIMESTAMP\('2026-01-31T00:00:00Z'\)$"):
        read("d = DATE('2026-01-31T00:00:00Z')")
    with pytest.raises(DefinitionError, match=r"; for a day write DATE\('2026-01-31'\)$"):
        read("d > TIMESTAMP('2026-01-31')")
    with pytest.raises(DefinitionError, match="there is no month 13"):
        read("d = DATE('2026-13-31')")


@pytest.mark.parametrize(
    ("line", "column", "text"),
    [
        (1, 22, '{"op": "=", "args": [}'),
        (2, 6, '{"op": "=",\n "x" 5}'),
        (1, 2, "{op: x"),
    ],
)
def test_a_slip_in_json_is_told_as_one_of_json(line: int, column: int, text: str) -> None:
    """What begins with a brace is meant as JSON, though YAML would read much of it."""
    with pytest.raises(DefinitionError, match=f"f:{line}:{column}: expected CQL2 JSON, got "):
        read(text)


@pytest.mark.parametrize("text", ["(" * 101 + "a = 1" + ")" * 101, "NOT " * 101 + "a = 1", "uform(" * 101])
def test_depth_has_a_limit(text: str) -> None:
    """Nesting beyond it is refused."""
    with pytest.raises(DefinitionError, match="at most 100 deep"):
        read(text)


def test_depth_up_to_the_limit() -> None:
    """A hundred parentheses are still read, and written and read again."""
    node = read("(NOT " * 50 + "a = 1" + ")" * 50)
    assert node == read(write(node))  # type: ignore[arg-type]


@pytest.mark.parametrize("joint", [" OR ", " AND "])
def test_ten_thousand_atoms(joint: str) -> None:
    """Long chains work."""
    node = read(joint.join(f"a{number} = {number}" for number in range(10_000)))
    assert len(list(atoms(node))) == 10_000  # type: ignore[arg-type]


def test_atoms_have_a_limit() -> None:
    """More atoms than the limit are refused with the number that came."""
    with pytest.raises(DefinitionError, match=r"at most 20,000 atoms in one filter, got 20,001"):
        read(" OR ".join(["a = 1"] * 20_001))


@pytest.mark.parametrize(
    "text",
    ["'a' + " * 50_000 + "'a'", "-" * 50_000 + "1 = a", "a" + " = 1" * 50_000, "a IS NULL" + " IS NULL" * 50_000],
)
def test_long_chains_are_refused(text: str) -> None:
    """However long they are."""
    with pytest.raises(DefinitionError):
        read(text)


@given(cql2_filters)
def test_written_text_reads_as_the_same_filter(node: object) -> None:
    """Writing and reading are inverse, for every filter that CQL2 can say."""
    assert node == read(write(node))  # type: ignore[arg-type]


def test_plain_negation_is_written_as_not() -> None:
    """CQL2 has no plain negation: its text is NOT."""
    assert write(PlainNot(Atom("a", Operator.EQ, 1))) == "NOT a = 1"


def test_a_joint_within_one_atom_keeps_together() -> None:
    """It stands in parentheses where it would come apart; what is read has the same meaning."""
    more = [Call(">", (Property(name), Constant(1))) for name in "ab"]
    either = Atom(Call("OR", tuple(more)), Operator.EQ, True)
    assert "NOT (a > 1 OR b > 1)" == write(Not(either))
    assert "(a > 1 OR b > 1) AND c = 2" == write(And((either, Atom("c", Operator.EQ, 2))))


def test_nan_cannot_be_written() -> None:
    """CQL2 has no word for NaN."""
    with pytest.raises(DefinitionError, match="a finite number, got nan"):
        write(Atom("a", Operator.EQ, float("nan")))


@pytest.mark.data
def test_examples_of_the_standard() -> None:
    """Every example text of the standard is a filter or a located fault, nothing else."""
    read_ones = 0
    for path in sorted(shared("cases", "cql2", "examples", "text").glob("*.txt")):
        try:
            parse(path.read_text(encoding="utf-8"), Mark(path.name, 1, 1))
            read_ones += 1
        except DefinitionError as error:
            assert all(fault.where and fault.where.line and fault.where.column for fault in error.faults), path.name
    assert read_ones >= 35
