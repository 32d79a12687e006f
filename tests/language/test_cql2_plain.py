"""Filters of plain conditions are read in one go, and mean what they mean on the way through syntax."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import Fault, Mark
from nearcast.language.cql2_conditions import Conditions
from nearcast.language.cql2_plain import DEEP, read_plain
from nearcast.language.cql2_reading import read_text
from nearcast.language.cql2_text import write
from nearcast.language.marks import starting_at
from nearcast.language.sizes import LONG
from nearcast.model.filter import Filter, Not, atoms
from tests.language.strategies import attribute_atoms, cql2_filters, trees

PIECES = (
    "a",
    "größe",
    "kind-of",
    '"and"',
    '"a ""b"""',
    "this",
    "Geometry",
    "point",
    "ıN",
    "ſ",
    "µ",
    "=",
    "<>",
    "<",
    ">=",
    "!=",
    "3",
    "-3",
    "- 3",
    "+3",
    ".5",
    "5.",
    "1e400",
    "9223372036854775808",
    "9007199254740993",
    "1e",
    "'x'",
    "'it''s'",
    "'a\\n'",
    "''",
    "'",
    "TRUE",
    "false",
    "NULL",
    "AND",
    "or",
    "ANDa",
    "NOT",
    "not",
    "IN",
    "(1, 'x')",
    "(1,)",
    "()",
    "BETWEEN",
    "1 AND 2",
    "'a' and 'b'",
    "1 AND 'b'",
    "LIKE",
    "'n%'",
    "IS",
    "IS NULL",
    "is not null",
    "(",
    ")",
    ",",
    "+",
    "casei(a)",
    "DATE('2020-01-31')",
)
"""Of what texts are made that are filters, or nearly so."""


def through_syntax(text: str) -> Filter:
    """The filter of a text on the way that knows all of the language. Raises `Fault`."""
    return Conditions().condition(read_text(text, starting_at(text, Mark("f", 1, 1)), at_once=True))


def in_one_go(text: str) -> Filter | None:
    """The filter of a text whose conditions are all plain."""
    return read_plain(text, starting_at(text, Mark("f", 1, 1)))


def assert_same(text: str) -> bool:
    """Whether a text is read in one go; if so, as the same filter with the same places."""
    plain = in_one_go(text)
    if plain is None:
        return False
    try:
        whole = through_syntax(text)
    except Fault as fault:
        raise AssertionError(f"{text} is read as {plain}") from fault
    assert whole == plain, text
    assert [one.where for one in atoms(whole)] == [one.where for one in atoms(plain)], text
    return True


@given(cql2_filters | trees(attribute_atoms, (Not,)))
def test_what_is_written_is_read_the_same_both_ways(filter: Filter) -> None:
    """Whatever is in it: what is not plain is left to the other way."""
    assert_same(write(filter))


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=9), st.sampled_from(["", " ", "\n "]))
def test_texts_that_are_nearly_filters_are_never_read_otherwise(pieces: list[str], blank: str) -> None:
    """With and without blanks between them."""
    assert_same(blank.join(pieces))


@given(st.text(st.sampled_from("ab1.'\"()=<>-, \\ınNOTRAD"), max_size=20))
def test_nor_are_any_characters(text: str) -> None:
    """Of those that mean something."""
    assert_same(text)


@pytest.mark.parametrize(
    "text",
    [
        "size > 10",
        "type = 'unit' AND size > 10 AND NOT blocked",
        "(kind = 'a' OR kind = 'b') AND (size BETWEEN 1 AND 9.5 OR size IS NULL)",
        "not (a in (1, 2, 'x') or b not in ('y'))",
        "name LIKE 'north%' AND name NOT LIKE '%west'",
        "a IS NOT NULL AND a NOT BETWEEN -3 AND -1",
        "size>=-3 AND(a='it''s')\n OR active = true",
        "\"alert-level\" <> 'red' AND größe < .5",
        "NOT NOT a",
    ],
)
def test_plain_filters_are_read_in_one_go(text: str) -> None:
    """Such as people write, in any case and with any blanks."""
    assert assert_same(text)


@pytest.mark.parametrize(
    "text",
    [
        "size + 1 > 10",
        "size > other",
        "casei(kind) = 'a'",
        "distance(this, user('ann')) < 10",
        "day = DATE('2020-01-31')",
        "geom IS NULL",
        "name LIKE 'a\\%'",
        "a = NULL",
        "10 < size",
        "a = 9223372036854775808",
        "a = 1 AND",
        "(a = 1",
        "a = 1)",
        "",
    ],
)
def test_any_other_text_is_left_to_the_other_way(text: str) -> None:
    """Whether it is a filter or not."""
    assert in_one_go(text) is None


def test_deep_and_long_texts_are_left_to_the_other_way() -> None:
    """Which has limits for them, and tells where one is passed."""
    assert in_one_go("(" * DEEP + "a" + ")" * DEEP) is not None
    assert in_one_go("(" * (DEEP + 1) + "a" + ")" * (DEEP + 1)) is None
    assert in_one_go("NOT " * 100_000 + "a") is None
    assert in_one_go(" OR ".join(["a = 1"] * LONG)) is None


def test_predicates_with_known_counts_are_read_the_same_both_ways() -> None:
    """Some of them are plain, most are not."""
    lines = Path(__file__).with_name("predicates.jsonl").read_text(encoding="utf-8").splitlines()
    plain = [assert_same(json.loads(line)["text"]) for line in lines]
    assert 10 < sum(plain) < len(plain)
