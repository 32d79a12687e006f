"""The tokens of CQL2 text, each with the place where it stands."""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from typing import NamedTuple

from nearcast.errors import Fault
from nearcast.language.cql2.characters import on_character
from nearcast.language.cql2.filter_limits import MAX_ATOMS, MAX_TOKENS
from nearcast.language.cql2.literals import LOOSE, PLAIN_LIST, STRICT
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


def tokenize(text: str, locate: Locate, at_once: bool = False, atoms: int = MAX_ATOMS) -> Tokens:
    """The tokens of a filter's text; the end is at the offset after the last character that is no blank.

    With `at_once`, an IN and plain literals in parentheses are one token, `values`. Raises `Fault` for a character that
    begins nothing, for more than so many atoms, and for sizes beyond the limits.
    """
    tokens = _tokens(_pattern(STRICT, at_once), text)
    # Where every text ends is clear if backslashes are read as the standard has them; only if that makes no tokens,
    # one before a closing quote may be one of the text.
    if tokens.kinds[-1:] == ["other"]:
        tokens = _tokens(_pattern(LOOSE, at_once), text)
    if tokens.kinds[-1:] == ["other"]:
        raise _unknown(tokens, locate)
    _check_size(tokens.kinds, locate, min(atoms, MAX_ATOMS))
    tokens.kinds.append("end")
    tokens.texts.append("the end of the filter")
    tokens.starts.append(len(text.rstrip()))
    return tokens


@cache
def _pattern(text: str, at_once: bool) -> re.Pattern[str]:
    """The pattern of a token, with that of a text, and of lists that are read at once or not."""
    whole = (_LIST if at_once else "") + _TOKEN.replace("TEXT", text)
    return re.compile(whole, re.VERBOSE | re.DOTALL)


def _tokens(pattern: re.Pattern[str], text: str) -> Tokens:
    """The tokens up to one that begins nothing: there may be many more such, each sought to the end of the text."""
    tokens = kinds, texts, starts = Tokens([], [], [])
    for found in pattern.finditer(text):
        written = found[0]
        kind = _KINDS.get(written) or found.lastgroup or ""
        kinds.append(kind)
        texts.append(written)
        starts.append(found.start())
        if kind == "other":
            break
    return tokens


def _unknown(tokens: Tokens, locate: Locate) -> Fault:
    written, where = tokens.texts[-1], locate(tokens.starts[-1])
    if written in "'\"":
        what = "text" if written == "'" else "name"
        return Fault(f"a closing {written}", f"a {what} without an end", where, f"a {written} within is written twice")
    return Fault("a CQL2 filter", f"the character {written!r}", where, on_character(written))


def _check_size(kinds: list[str], locate: Locate, most: int) -> None:
    # Most are far from either limit, which a joint for each token would not reach.
    if len(kinds) < most:
        return
    # n atoms need n − 1 joints; the AND of a BETWEEN is none.
    joints = kinds.count("AND") + kinds.count("OR") - kinds.count("BETWEEN")
    if joints >= most:
        limit = " (limit filter_atoms)" if most < MAX_ATOMS else ""
        raise Fault(f"at most {most:,} atoms in one filter{limit}", f"{joints + 1:,}", locate(0), "split the filter")
    if len(kinds) > MAX_TOKENS:
        raise Fault(f"at most {MAX_TOKENS:,} words and signs in one filter", f"{len(kinds):,}", locate(0))
