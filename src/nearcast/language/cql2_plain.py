"""Filters of plain conditions, read in one go: attributes beside literals, joined by AND, OR, NOT and parentheses.

Most filters are of this kind, and the way through syntax, which knows the type and place of everything in it, takes
several times as long. A text of any other kind, or of none, is left to that way, which also finds its faults.
"""

from __future__ import annotations

import re

from nearcast.language.cql2_geometry import GEOMETRIES
from nearcast.language.cql2_literals import UNESCAPED
from nearcast.language.cql2_values import LITERAL, LITERALS, literal_of, literals_of
from nearcast.language.marks import Locate
from nearcast.language.sizes import LONG
from nearcast.language.tokens import KEYWORDS, NAME, PART
from nearcast.language.trees import all_of, any_of
from nearcast.model.expression import GEOMETRY
from nearcast.model.filter import Atom, Filter, Literals, Not, Operator
from nearcast.model.values import kinds_of

DEEP = 50
"""Parentheses and NOTs within each other that are followed."""

_RESERVED = frozenset({*KEYWORDS, *GEOMETRIES, *(name.upper() for name in GEOMETRY)})
"""Names that are not always an attribute's."""

_END = rf"(?![{PART}])"
"""Where a word ends."""


def _word(*words: str) -> str:
    """A regular expression of keywords in any case; in letters of ASCII alone, as no other name must be one."""
    return rf"(?ai:{'|'.join(words)}){_END}"


_NOT = rf"{_word('NOT')}\s*+"
_BEFORE = re.compile(rf"\s*+(?:({_word('NOT')})|\()")
_AFTER = re.compile(rf"\s*+(?:{_word('AND', 'OR')}|\)|\Z)")
_ATOM = re.compile(
    rf"""\s*+(?P<name>(?P<quoted>"(?:[^"]|"")++")|{NAME.pattern})\s*+(?:
    (?P<compare><=|>=|<>|=|<|>)\s*+(?:(?P<literal>{LITERAL})|(?P<boolean>{_word("TRUE", "FALSE")}))
    |(?P<negated>{_NOT})?+(?:
        {_word("IN")}\s*+\((?P<values>{LITERALS.pattern})\s*+\)
        |{_word("BETWEEN")}\s*+(?P<low>{LITERAL})\s*+{_word("AND")}\s*+(?P<high>{LITERAL})
        |{_word("LIKE")}\s*+(?P<pattern>{UNESCAPED})
    )
    |{_word("IS")}\s*+(?P<present>{_NOT})?+(?P<null>{_word("NULL")})
    )?+""",
    re.VERBOSE,
)


def read_plain(text: str, locate: Locate) -> Filter | None:
    """The filter of a text, as syntax gives it, if all its conditions are plain; None for any other text."""
    if len(text) > LONG:
        return None
    reading = _Reading(text, locate)
    try:
        return reading.whole()
    except _OtherError:
        return None


class _OtherError(Exception):
    """There is something that is not plain."""


class _Reading:
    """Goes through a text once. Each condition ends with what comes after it: AND, OR, `)`, or nothing."""

    def __init__(self, text: str, locate: Locate) -> None:
        self._text = text
        self._locate = locate
        self._at = 0
        self._after = ""

    def whole(self) -> Filter:
        """The filter of the whole text. Raises `_OtherError`."""
        found = self._any(0)
        if self._after:
            raise _OtherError
        return found

    def _any(self, depth: int) -> Filter:
        found = [self._all(depth)]
        while self._after == "OR":
            found.append(self._all(depth))
        return any_of(found)

    def _all(self, depth: int) -> Filter:
        found = [self._condition(depth)]
        while self._after == "AND":
            found.append(self._condition(depth))
        return all_of(found)

    def _condition(self, depth: int) -> Filter:
        if depth > DEEP:
            raise _OtherError
        before = _BEFORE.match(self._text, self._at)
        if before is None:
            found = self._atom()
        else:
            self._at = before.end()
            if before[1]:
                return Not(self._condition(depth + 1))
            found = self._any(depth + 1)
            if self._after != ")":
                raise _OtherError
        after = _AFTER.match(self._text, self._at)
        if after is None:
            raise _OtherError
        self._at, self._after = after.end(), after[0].strip().upper()
        return found

    def _atom(self) -> Filter:
        found = _ATOM.match(self._text, self._at)
        if found is None:
            raise _OtherError
        self._at = found.end()
        operator, value = _compared(found)
        atom = Atom(_name(found), operator, value, self._locate(found.start("name")))
        return Not(atom) if found["negated"] or found["present"] else atom


def _name(found: re.Match[str]) -> str:
    if found["quoted"]:
        return found["quoted"][1:-1].replace('""', '"')
    name = found["name"]
    if name.upper() in _RESERVED:
        raise _OtherError
    return name


def _compared(found: re.Match[str]) -> tuple[Operator, Literals]:
    """How an attribute is compared, and with what."""
    if found["literal"]:
        return Operator(found["compare"]), _literal(found["literal"])
    if found["boolean"]:
        return Operator(found["compare"]), found["boolean"].upper() == "TRUE"
    if found["values"]:
        values = literals_of(found["values"])
        if values is None:
            raise _OtherError
        return Operator.IN, values
    if found["low"]:
        ends = _literal(found["low"]), _literal(found["high"])
        if len(set(kinds_of(ends))) > 1:
            raise _OtherError
        return Operator.BETWEEN, ends
    if found["pattern"]:
        return Operator.LIKE, _literal(found["pattern"])
    # An attribute alone is one that is true.
    return (Operator.IS_NULL, None) if found["null"] else (Operator.EQ, True)


def _literal(written: str) -> int | float | str:
    value = literal_of(written)
    if value is None:
        raise _OtherError
    return value
