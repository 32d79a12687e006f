"""The thesis' XML files, as they are printed."""

from __future__ import annotations

import pytest

from nearcast.errors import DefinitionError, Mark
from nearcast.language.cql2 import parse
from nearcast.language.thesis import read_roles, read_subscription
from nearcast.model.filter import Atom, Filter, Not, Operator, PlainNot, atoms
from nearcast.model.subscription import ANY_SUBSCRIPTION
from tests.language.printed import listing, marked

HERE = Mark("f.xml", 1, 1)
UNITS = "type = 'unit' AND (affiliation = 'H' OR affiliation = 'F' OR affiliation = 'N')"


def meant(text: str) -> Filter:
    """The filter that a CQL2 text means."""
    return parse(text, HERE)


@pytest.mark.data
@pytest.mark.parametrize("title", ["Listing 6-1", "Listing 1"])
def test_the_printed_subscription(title: str) -> None:
    """Listing 6-1 lacks a closing tag and the paper's listing 1 the operators: both load and mean the same."""
    node = read_subscription(listing(title), HERE)
    chats = "type = 'document' OR type = 'time' OR type = 'overlay' OR type = 'chat'"
    assert meant(f"{chats} OR ({UNITS})") == node


@pytest.mark.data
def test_the_printed_location_aware_subscription() -> None:
    """Listing 7-6 closes two groups too early: its last group belongs into the AND, in the order of its vector."""
    node = read_subscription(listing("Listing 7-6"), HERE)
    chats = "type = 'document' OR type = 'time' OR type = 'overlay' OR type = 'chat.message'"
    near = UNITS.replace("AND", "AND distance(user('user1'), this) <= 150 AND")
    assert meant(f"{chats} OR ({near})") == node
    assert len(list(atoms(node))) == 9


@pytest.mark.data
def test_the_printed_distance() -> None:
    """Listing 6-2 is an atom alone."""
    assert meant("distance(user('user1'), uform(affiliation = 'H')) <= 150") == read_subscription(
        listing("Listing 6-2"), HERE
    )


@pytest.mark.data
def test_the_printed_count() -> None:
    """Listing 6-3 is an atom alone."""
    assert meant("count(uform(affiliation = 'H'), user('user1'), 150) <= 3") == read_subscription(
        listing("Listing 6-3"), HERE
    )


@pytest.mark.data
def test_the_printed_roles() -> None:
    """Listing 7-3: six vectors, the platoon leader's offense the default."""
    roles = read_roles(listing("Listing 7-3"), HERE)
    assert len(roles.vectors) == 6
    assert roles.default == ("platoon leader", "offense")
    vector = (1, 0.3, 0.1, 0.8, 1, 1, 0.8, 0)
    assert {ANY_SUBSCRIPTION: vector} == roles.vectors["team leader", "defense"]


def atom(written: str) -> Atom:
    """The atom whose value is written so."""
    node = read_subscription(f"<ATOM name='a' operator='=' value='{written}'/>", HERE)
    assert isinstance(node, Atom)
    return node


@pytest.mark.parametrize(
    ("value", "written"),
    [(10, "10"), (-1.5, "-1.5"), (1000, "1e3"), (True, "true"), ("010", "010"), ("H", "H"), ("", ""), ("True", "True")],
)
def test_values_are_typed_as_in_json(value: object, written: str) -> None:
    """A JSON number is a number, true and false are booleans, everything else is text."""
    assert Atom("a", Operator.EQ, value) == atom(written)  # type: ignore[arg-type]


def test_the_plain_negation() -> None:
    """NOT is the thesis' own, which also holds where its atom is unknown."""
    node = read_subscription(
        "<LOGICAL_OPERATOR value='NOT'><ATOM name='a' operator='=' value='1'/></LOGICAL_OPERATOR>", HERE
    )
    child = Atom("a", Operator.EQ, 1)
    assert PlainNot(child) == node
    assert Not(child) != node


def test_several_conditions_of_a_uform() -> None:
    """Conditions are separated by semicolons or commas, and all must hold."""
    text = (
        "<ATOM name='count' operator='&gt;' value='1'>"
        "<PARAMETER name='uform' properties='affiliation=H; size&gt;=5,kind=tank'/></ATOM>"
    )
    assert meant("count(uform(affiliation = 'H' AND size >= 5 AND kind = 'tank')) > 1") == read_subscription(text, HERE)


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("one of =", "<ATOM name='a' operator='¦~' value='1'/>"),
        ("the attribute value in ATOM", "¦<ATOM name='a' operator='='/>"),
        ("the attributes name, operator, value", "<ATOM name='a' value='1' op='¦='/>"),
        ("AND, OR or NOT", "\n<LOGICAL_OPERATOR value='¦XOR'><ATOM name='a' value='1'/></LOGICAL_OPERATOR>"),
        ("an ATOM within LOGICAL_OPERATOR", "\n¦<LOGICAL_OPERATOR value='OR'/>"),
        ("one LOGICAL_OPERATOR or ATOM in SUBSCRIPTION", "¦<SUBSCRIPTION/>"),
        ("elements only", "<SUBSCRIPTION>¦text</SUBSCRIPTION>"),
        ("well-formed XML", "<ATOM a='¦<'/>"),
        ("well-formed XML", "¦"),
        ("a number to compare the distance with", "<ATOM name='distance' operator='=' value='¦x'/>"),
        ("a number within 64 bits", "<ATOM name='a' operator='=' value='¦1e999'/>"),
        ("one PARAMETER to count", "¦<ATOM name='count' operator='=' value='1'/>"),
        ("user, uform, this or distance", "<ATOM name='count' value='1'>\n<PARAMETER name='¦those'/></ATOM>"),
        ("conditions such as", "<ATOM name='count' value='1'><PARAMETER name='uform' properties='a=1;¦b'/></ATOM>"),
    ],
)
def test_faults_have_places(expected: str, text: str) -> None:
    """What is wrong in an XML file is told with line and column."""
    text, line, column = marked(text)
    with pytest.raises(DefinitionError) as caught:
        read_subscription(text, HERE)
    (fault,) = (one for one in caught.value.faults if one.expected.startswith(expected))
    assert Mark("f.xml", line, column) == fault.where


def test_entities_are_refused() -> None:
    """A document type may do harm and is refused."""
    with pytest.raises(DefinitionError, match="without document type"):
        read_subscription("<!DOCTYPE a [<!ENTITY b 'c'>]><SUBSCRIPTION>&b;</SUBSCRIPTION>", HERE)


def test_depth_has_a_limit() -> None:
    """Deep nesting is refused."""
    with pytest.raises(DefinitionError, match="at most 100 deep"):
        read_subscription("<LOGICAL_OPERATOR value='OR'>" * 101, HERE)


def test_each_fault_of_roles() -> None:
    """Every wrong value of a vector is told with its place and the number of its atom."""
    vector = "<RELEVANCE value='1 2 x NaN' default='maybe'/>"
    text = f"<RELEVANCE><ROLE name='a'><TASK name='b'>\n{vector}</TASK></ROLE></RELEVANCE>"
    with pytest.raises(DefinitionError) as caught:
        read_roles(text, HERE)
    places = [(fault.where.line, fault.where.column) for fault in caught.value.faults if fault.where]
    assert places == [(2, 21), (2, 23), (2, 25), (2, 39)]
    assert caught.value.faults[0].expected == "a relevance in [0, 1] for atom 2"


def test_names_of_relevance() -> None:
    """LOW, MEDIUM and HIGH stand for thirds, where there are three levels."""
    text = "<RELEVANCE><ROLE name='a'><TASK name='b'><RELEVANCE value='HIGH MEDIUM L'/></TASK></ROLE></RELEVANCE>"
    assert read_roles(text, HERE).vectors["a", "b"] == {ANY_SUBSCRIPTION: (1, 2 / 3, 1 / 3)}
    with pytest.raises(DefinitionError, match="for three levels"):
        read_roles(text, HERE, levels=4)
