"""The tokens of CQL2 text, each with the place where it stands."""

from __future__ import annotations

import re
from functools import cache
from itertools import islice, product
from typing import NamedTuple

from nearcast.errors import Fault
from nearcast.language.cql2.characters import on_character
from nearcast.language.cql2.filter_limits import (
    ALONE,
    MAX_TOKENS,
    TextLimits,
    more_than,
    too_many_atoms,
    too_many_literals,
)
from nearcast.language.cql2.literals import LOOSE, PLAIN_LIST, STRICT, count_literals
from nearcast.language.marks import Locate

KEYWORDS = frozenset({"AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "TRUE", "FALSE", "DIV"})

# CQL2's identifierStart and identifierPart (OGC 21-065r2, annex B), so that names of any script may stay unquoted.
_START = (
    r":_A-Za-z\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u02FF\u0370-\u037D\u037F-\u1FFE\u200C-\u200D\u2070-\u218F"
    r"\u2C00-\u2FEF\u3001-\uD7FF\uF900-\uFDCF\uFDF0-\uFFFD\U00010000-\U000EFFFF"
)
_PART = rf"{_START}.0-9\u0300-\u036F\u203F-\u2040\u00B7"
NAME = re.compile(rf"[{_START}][{_PART}]*+")

_LIST = rf"(?P<values>(?ai:IN)\s*+{PLAIN_LIST})|"
_TOKEN = rf"""
    (?P<name>{NAME.pattern})
    |(?P<compare><=|>=|<>|!=|=|<|>)
    |(?P<text>TEXT)
    |(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<mark>[(),])
    |(?P<quoted>"(?:[^"]|"")*")
    |(?P<sign>[-+*/%^])
    |(?P<other>\S)"""

# Keywords are the same in any case, of letters of ASCII alone: no other name must be one.
_KINDS = {"".join(some): word for word in KEYWORDS for some in product(*zip(word, word.lower(), strict=True))}
_KINDS |= {mark: mark for mark in "(),"}


class Tokens(NamedTuple):
    """The tokens of a text: what each is, as it is written, and the offset of its first character; the last is the end.

    The kind of a keyword is the keyword in capitals, that of a parenthesis or comma is itself; that of any other is the
    name of its group in the pattern above.
    """

    kinds: list[str]
    texts: list[str]
    starts: list[int]


STRETCH = 4_096
"""Tokens after which it is looked whether there are too many: what is a hundred times too long is not read whole."""


def tokenize(text: str, locate: Locate, at_once: bool = False, limits: TextLimits = ALONE) -> Tokens:
    """The tokens of a filter's text; the end is at the offset after the last character that is no blank.

    With `at_once`, an IN and plain literals in parentheses are one token, `values`. Raises `Fault` for a character that
    begins nothing, and `PlacedFault` for more than the limits.
    """
    tokens = _tokens(_pattern(STRICT, at_once), text, locate, limits)
    # Where every text ends is clear if backslashes are read as the standard has them; only if that makes no tokens,
    # one before a closing quote may be one of the text.
    if tokens.kinds[-1:] == ["other"]:
        tokens = _tokens(_pattern(LOOSE, at_once), text, locate, limits)
    if tokens.kinds[-1:] == ["other"]:
        raise _unknown(tokens, locate)
    tokens.kinds.append("end")
    tokens.texts.append("the end of the filter")
    tokens.starts.append(len(text.rstrip()))
    return tokens


@cache
def _pattern(text: str, at_once: bool) -> re.Pattern[str]:
    """The pattern of a token, with that of a text, and of lists that are read at once or not."""
    whole = (_LIST if at_once else "") + _TOKEN.replace("TEXT", text)
    return re.compile(whole, re.VERBOSE | re.DOTALL)


def _tokens(pattern: re.Pattern[str], text: str, locate: Locate, limits: TextLimits) -> Tokens:
    """The tokens up to one that begins nothing: there may be many more such, each sought to the end of the text."""
    tokens = kinds, texts, starts = Tokens([], [], [])
    sizes, matches = _Sizes(limits, locate), pattern.finditer(text)
    while stretch := list(islice(matches, STRETCH)):
        before = len(kinds)
        for found in stretch:
            written = found[0]
            kind = _KINDS.get(written) or found.lastgroup or ""
            kinds.append(kind)
            texts.append(written)
            starts.append(found.start())
            if kind == "other":
                return tokens
        sizes.add_stretch(kinds[before:], texts[before:], whole=len(stretch) < STRETCH)
    return tokens


class _Sizes:
    """How large a text is that is read stretch by stretch."""

    def __init__(self, limits: TextLimits, locate: Locate) -> None:
        self._limits, self._locate = limits, locate
        self._tokens = self._joints = self._literals = self._counted = 0
        self._uncounted: list[str] = []

    def add_stretch(self, kinds: list[str], texts: list[str], whole: bool) -> None:
        """Counts what comes next, behind which there is nothing if it is `whole`. Raises `PlacedFault`."""
        self._tokens += len(kinds)
        # n atoms need n − 1 joints; the AND of a BETWEEN is none.
        self._joints += kinds.count("AND") + kinds.count("OR") - kinds.count("BETWEEN")
        atoms = self._limits.atoms
        if self._joints >= atoms:
            raise too_many_atoms(atoms, self._joints + 1, self._locate(0), whole)
        if self._tokens > MAX_TOKENS:
            raise more_than(MAX_TOKENS, "words and signs", self._tokens, self._locate(0), whole=whole)
        lists = [text for kind, text in zip(kinds, texts, strict=True) if kind == "values"] if "values" in kinds else []
        for number, written in enumerate(lists, 1):
            self._add_list(written, whole and number == len(lists))

    def _add_list(self, written: str, whole: bool) -> None:
        most = self._limits.literals
        self._literals += written.count(",") + 1
        self._uncounted.append(written)
        if self._literals <= most:
            return
        # A comma may also stand in a text.
        for one in self._uncounted:
            self._counted += count_literals(one, 2 * most)
        self._literals, self._uncounted = self._counted, []
        if self._literals > most:
            whole = whole and self._literals < 2 * most
            raise too_many_literals(most, self._literals, self._locate(0), whole)


def _unknown(tokens: Tokens, locate: Locate) -> Fault:
    written, where = tokens.texts[-1], locate(tokens.starts[-1])
    if written in "'\"":
        what = "text" if written == "'" else "name"
        return Fault(f"a closing {written}", f"a {what} without an end", where, f"a {written} within is written twice")
    return Fault("a CQL2 filter", f"the character {written!r}", where, on_character(written))
