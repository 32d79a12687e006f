"""The tokens of CQL2 text, each with the place where it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, cast

from nearcast.errors import Fault
from nearcast.language.cql2_literals import LOOSE, STRICT
from nearcast.language.cql2_values import LITERALS
from nearcast.language.marks import Locate
from nearcast.language.sizes import MAX_ATOMS

MAX_DEPTH = 100
"""Parentheses and NOTs within each other."""

MAX_TOKENS = 500_000
"""Words and signs; literals that are read at once are one."""

Kind = Literal["text", "quoted", "number", "name", "word", "compare", "sign", "open", "close", "comma", "values", "end"]

KEYWORDS = frozenset({"AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "TRUE", "FALSE", "DIV"})

# CQL2's identifierStart and identifierPart (OGC 21-065r2, annex B), so that names of any script may stay unquoted.
START = (
    r":_A-Za-z\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u02FF\u0370-\u037D\u037F-\u1FFE\u200C-\u200D\u2070-\u218F"
    r"\u2C00-\u2FEF\u3001-\uD7FF\uF900-\uFDCF\uFDF0-\uFFFD\U00010000-\U000EFFFF"
)
PART = rf"{START}.0-9\u0300-\u036F\u203F-\u2040\u00B7"
NAME = re.compile(rf"[{START}][{PART}]*+")

_TOKEN = rf"""\s*(?:
    (?P<text>TEXT)
    |(?P<quoted>"(?:[^"]|"")*")
    |(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<name>{NAME.pattern})
    |(?P<compare><=|>=|<>|!=|=|<|>)
    |(?P<sign>[-+*/%^])
    |(?P<open>\()|(?P<close>\))|(?P<comma>,)
    |(?P<end>\Z)
    |(?P<other>.)
    )"""
# Where every text ends is clear if backslashes are read as the standard has them; only if that makes no tokens, one
# before a closing quote may be one of the text.
_STRICT, _LOOSE = (re.compile(_TOKEN.replace("TEXT", text), re.VERBOSE | re.DOTALL) for text in (STRICT, LOOSE))


class Token(NamedTuple):
    """A token: its kind, the text as written, and the offset of its first character.

    `word` is a name or keyword in capitals: keywords and functions are the same in any case.
    """

    kind: Kind
    text: str
    start: int
    word: str = ""

    def is_word(self, *words: str) -> bool:
        """Whether the token is one of these keywords."""
        return self.kind == "word" and self.word in words


def tokenize(text: str, locate: Locate, at_once: bool = False) -> list[Token]:
    """The tokens of a filter's text; the last is its end, at the offset after the last character that is no blank.

    With `at_once`, literals in the parentheses of an IN are one token, `values`. Raises `Fault` for a character that
    begins nothing, and for sizes beyond the limits.
    """
    try:
        tokens = list(_tokens(_STRICT, text, locate, at_once))
    except Fault:
        tokens = list(_tokens(_LOOSE, text, locate, at_once))
    _check_size(tokens, locate)
    return [*tokens, Token("end", "the end of the filter", len(text.rstrip()))]


def _tokens(pattern: re.Pattern[str], text: str, locate: Locate, at_once: bool) -> Iterator[Token]:
    at, after_in = 0, False
    while match := pattern.match(text, at):
        kind, at = match.lastgroup or "end", match.end()
        if kind == "end":
            return
        written, start = match[kind], match.start(kind)
        if kind == "other":
            raise _unknown(written, locate, start)
        word = written.upper() if kind == "name" else ""
        if word in KEYWORDS:
            kind = "word"
        yield Token(cast(Kind, kind), written, start, word)
        if at_once and after_in and kind == "open" and (values := LITERALS.match(text, at)):
            yield Token("values", values[0], at)
            at = values.end()
        after_in = word == "IN"


def _unknown(written: str, locate: Locate, start: int) -> Fault:
    if written in "'\"":
        what = "text" if written == "'" else "name"
        advice = f"a {written} within is written twice"
        return Fault(f"a closing {written}", f"a {what} without an end", locate(start), advice)
    return Fault("a CQL2 filter", f"the character {written!r}", locate(start))


def _check_size(tokens: list[Token], locate: Locate) -> None:
    # Most are far from either limit, which a joint for each token would not reach.
    if len(tokens) < MAX_ATOMS:
        return
    # n atoms need n − 1 joints; the AND of a BETWEEN is none.
    joints = sum(token.is_word("AND", "OR") for token in tokens)
    joints -= sum(token.is_word("BETWEEN") for token in tokens)
    if joints >= MAX_ATOMS:
        raise Fault(f"at most {MAX_ATOMS:,} atoms in one filter", f"{joints + 1:,}", locate(0), "split the filter")
    if len(tokens) > MAX_TOKENS:
        raise Fault(f"at most {MAX_TOKENS:,} words and signs in one filter", f"{len(tokens):,}", locate(0))
