"""The tokens of CQL2 text: what the parser loses (places, exact integers) and what it must not see (dangerous shapes).

The parser of the package `cql2` turns every number into a double, keeps no places, and is recursive: some hundred
kilobytes of nested or chained text end its process. So the text is cut into tokens first, shapes it cannot bear or
nearcast does not evaluate are refused here, and the parser gets a text in which every name, number, text and function
carries the index of its token (`"1" <= 2 AND f3("4") …`). Its tree then leads back to the exact literal and place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast

from nearcast.errors import Fault, Mark
from nearcast.language.marks import Locate

MAX_DEPTH = 100
"""Parentheses and NOTs within each other. The parser itself dies at some thousand."""

MAX_ATOMS = 20_000
MAX_TOKENS = 500_000

Kind = Literal[
    "text", "name", "function", "geometry", "number", "constant", "word", "sign", "compare", "open", "close", "comma"
]

_SIGNS = frozenset({"sign", "compare", "open", "close", "comma"})

_OPERANDS = frozenset({"text", "name", "number", "constant", "close"})
_INFIX = frozenset({"AND", "OR", "IN", "BETWEEN", "LIKE", "IS"})

KEYWORDS = frozenset({"AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "TRUE", "FALSE", "DIV"})
GEOMETRIES = frozenset(
    ["POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION", "BBOX"]
)
DIMENSIONS = frozenset({"Z", "M", "ZM"})

# CQL2's identifierStart and identifierPart (OGC 21-065r2, annex B), so that names of any script may stay unquoted.
START = (
    r":_A-Za-z\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u02FF\u0370-\u037D\u037F-\u1FFE\u200C-\u200D\u2070-\u218F"
    r"\u2C00-\u2FEF\u3001-\uD7FF\uF900-\uFDCF\uFDF0-\uFFFD\U00010000-\U000EFFFF"
)
NAME = re.compile(rf"[{START}][{START}.0-9\u0300-\u036F\u203F-\u2040\u00B7]*")

_TOKEN = re.compile(
    rf"""\s*(?:
    (?P<text>'(?:[^']|'')*')
    |(?P<quoted>"(?:[^"]|"")*")
    |(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<name>{NAME.pattern})
    |(?P<compare><=|>=|<>|!=|=|<|>)
    |(?P<sign>[-+])
    |(?P<open>\()|(?P<close>\))|(?P<comma>,)
    |(?P<arithmetic>[*/%^])
    |(?P<end>\Z)
    |(?P<other>.)
    )""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A token: its kind, the text as written, the offset of its first character, and how the parser gets to see it."""

    kind: Kind
    text: str
    start: int
    shown: str

    @property
    def word(self) -> str:
        """The token in capitals: keywords and functions are the same in any case."""
        return self.text.upper()


def tokenize(text: str, locate: Locate) -> list[Token]:
    """The tokens of a filter's text, of bearable shape; index 0 is a filler, so that an index is never −0.

    Raises `Fault` for a character that begins nothing, arithmetic, a comparison of a comparison, and for sizes and
    depths beyond the limits.
    """
    tokens = [Token("word", "", 0, "")]
    spans = list(_spans(text, locate))
    tokens += (_token(spans, index) for index in range(len(spans)))
    _check_size(tokens, locate)
    _Shape(locate).check(tokens)
    return tokens


def shown(tokens: list[Token], text: str) -> tuple[str, list[int]]:
    """The text for the parser, and the offset in it at which each token begins; lines stay as they are."""
    pieces: list[str] = []
    starts: list[int] = []
    length = done = 0
    before: Token | None = None
    for token in tokens:
        blank = text[done : token.start]
        # Tokens that touch, as in `0..0`, would grow together once they are indices.
        if not blank and before and {before.kind, token.kind}.isdisjoint(_SIGNS):
            blank = " "
        before = token
        starts.append(length + len(blank))
        pieces += (blank, token.shown)
        length += len(blank) + len(token.shown)
        done = token.start + len(token.text)
    return "".join(pieces), starts


def _spans(text: str, locate: Locate) -> Iterator[tuple[str, str, int]]:
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "end"
        if kind == "end":
            return
        written, start = match[kind], match.start(kind)
        if kind == "arithmetic":
            raise arithmetic(written, locate(start))
        if kind == "other":
            raise _unknown(written, locate(start))
        yield kind, written, start


def _unknown(written: str, where: Mark) -> Fault:
    if written in "'\"":
        what = "text" if written == "'" else "name"
        return Fault(f"a closing {written}", f"a {what} without an end", where, f"a {written} within is written twice")
    return Fault("a CQL2 filter", f"the character {written!r}", where)


def arithmetic(written: str, where: Mark, advice: str = "") -> Fault:
    """The fault of a sign between two operands."""
    advice = advice or "compare an attribute with a literal: arithmetic is not evaluated"
    return Fault("a comparison or the end of the condition", f"the arithmetic sign {written}", where, advice)


def _token(spans: list[tuple[str, str, int]], index: int) -> Token:
    """The token of a span; what follows decides whether a name is a function or a geometry."""
    kind, written, start = spans[index]
    following = [spans[index + step][1].upper() if index + step < len(spans) else "" for step in (1, 2)]
    key = index + 1
    if kind in _SIGNS:
        return Token(cast(Kind, kind), written, start, written)
    if kind == "number":
        return Token("number", written, start, str(key))
    if kind == "text":
        return Token("text", written, start, f"'{key}'")
    if kind == "quoted":
        return Token("name", written, start, f'"{key}"')
    word = written.upper()
    # NULL is a literal but for IS NULL; shown as a text it keeps its place, and so do TRUE and FALSE.
    before = spans[index - 1][1].upper() if index else ""
    if word in ("TRUE", "FALSE") or (word == "NULL" and not _after_is(spans, index)):
        return Token("constant", written, start, f"'{key}'")
    if word in KEYWORDS:
        return Token("word", written, start, written)
    if word in GEOMETRIES and (following[0] == "(" or (following[0] in DIMENSIONS and following[1] == "(")):
        return Token("geometry", written, start, written)
    if word in DIMENSIONS and before in GEOMETRIES and following[0] == "(":
        return Token("word", written, start, written)
    if following[0] == "(":
        return Token("function", written, start, f"f{key}")
    return Token("name", written, start, f'"{key}"')


def _after_is(spans: list[tuple[str, str, int]], index: int) -> bool:
    """Whether IS or IS NOT stands before a span."""
    words = [written.upper() for _, written, _ in spans[max(index - 2, 0) : index]]
    return words[-1:] == ["IS"] or words == ["IS", "NOT"]


def _check_size(tokens: list[Token], locate: Locate) -> None:
    # n atoms need n − 1 joints; the AND of a BETWEEN is none.
    joints = sum(token.kind == "word" and token.word in ("AND", "OR") for token in tokens)
    joints -= sum(token.kind == "word" and token.word == "BETWEEN" for token in tokens)
    if joints >= MAX_ATOMS:
        raise Fault(f"at most {MAX_ATOMS:,} atoms in one filter", f"{joints + 1:,}", locate(0), "split the filter")
    if len(tokens) > MAX_TOKENS:
        raise Fault(f"at most {MAX_TOKENS:,} words and signs in one filter", f"{len(tokens):,}", locate(0))


@dataclass(slots=True)
class _Level:
    """What a pair of parentheses holds so far: NOTs waiting for their end, whether a comparison stands, geometry."""

    nots: int = 0
    compared: bool = False
    geometry: bool = False


class _Shape:
    """Walks the tokens once and refuses depth, chains of comparisons and arithmetic before the parser meets them."""

    def __init__(self, locate: Locate) -> None:
        self._locate = locate
        self._levels = [_Level()]
        self._depth = 0

    def check(self, tokens: list[Token]) -> None:
        """Raises `Fault` at the first token that makes a shape the parser must not see."""
        for index in range(1, len(tokens)):
            token = tokens[index]
            if token.kind == "word" and token.word in _INFIX:
                self._check_left(tokens, index)
            if token.kind == "open":
                self._enter(tokens, index)
            elif token.kind == "close":
                self._leave(token)
            elif token.kind == "sign":
                self._sign(tokens, index)
            elif token.kind == "compare" or (token.word in ("IN", "BETWEEN", "LIKE", "IS") and token.kind == "word"):
                self._compare(token)
            # A new condition begins: the NOTs before the last one end with it.
            elif token.kind == "comma" or (token.kind == "word" and token.word in ("AND", "OR")):
                self._depth -= self._levels[-1].nots
                self._levels[-1].nots, self._levels[-1].compared = 0, False
            elif token.kind == "word" and token.word == "DIV":
                raise arithmetic(token.text, self._locate(token.start))
            elif token.kind == "word" and token.word == "NOT" and not self._levels[-1].compared:
                self._levels[-1].nots += 1
                self._deepen(token)

    def _check_left(self, tokens: list[Token], index: int) -> None:
        """A word such as LIKE needs something on its left; the parser would take `LIKE (…)` for a function."""
        negated = tokens[index - 1].kind == "word" and tokens[index - 1].word == "NOT"
        before = tokens[max(index - 2, 0)] if negated else tokens[index - 1]
        if before.kind not in _OPERANDS and not (before.kind == "word" and before.word == "NULL"):
            token = tokens[index]
            advice = f'if {token.text} is a name, write it in double quotes: "{token.text}"'
            raise Fault(f"something before {token.word}", _came(tokens, index), self._locate(token.start), advice)

    def _enter(self, tokens: list[Token], index: int) -> None:
        before = tokens[index - 1]
        # In `POINT Z (1 -2 3)` signs stand between numbers and are no subtractions.
        dimension = before.kind == "word" and before.word in DIMENSIONS
        self._levels.append(_Level(geometry=before.kind == "geometry" or dimension or self._levels[-1].geometry))
        self._deepen(tokens[index])

    def _deepen(self, token: Token) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Fault(
                f"parentheses and NOTs at most {MAX_DEPTH} deep",
                f"a depth of {self._depth} or more",
                self._locate(token.start),
                "write the filter flatter, or split it",
            )

    def _leave(self, token: Token) -> None:
        if len(self._levels) == 1:
            raise Fault("an opening ( before", "a ) without one", self._locate(token.start))
        self._depth -= 1 + self._levels.pop().nots

    def _sign(self, tokens: list[Token], index: int) -> None:
        token, before = tokens[index], tokens[index - 1]
        operand = before.kind in _OPERANDS
        if operand and not self._levels[-1].geometry:
            raise arithmetic(token.text, self._locate(token.start), _hyphen_advice(tokens, index))
        if index + 1 == len(tokens) or tokens[index + 1].kind != "number":
            raise Fault(f"a number after {token.text}", _came(tokens, index + 1), self._locate(token.start))

    def _compare(self, token: Token) -> None:
        if self._levels[-1].compared:
            raise Fault(
                "one comparison between AND, OR and parentheses",
                f"a second one, {token.text}",
                self._locate(token.start),
            )
        self._levels[-1].compared = True


def _hyphen_advice(tokens: list[Token], index: int) -> str:
    """`alert-level` reads as a subtraction of two names: almost always it is one name that needs quotes."""
    last = tokens[index + 1] if index + 1 < len(tokens) else tokens[index]
    if tokens[index - 1].kind != "name" or last.kind not in ("name", "number"):
        return ""
    name = f"{tokens[index - 1].text}{tokens[index].text}{last.text}".replace('"', "")
    return f'if {name} is one name, write it in double quotes: "{name}"'


def _came(tokens: list[Token], index: int) -> str:
    return tokens[index].text if index < len(tokens) else "the end of the filter"
