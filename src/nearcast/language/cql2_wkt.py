"""Geometries in CQL2 text: how the parser gets to see them, and where what is none goes wrong.

The parser takes what is no geometry for a call of a function, `POINT(1)` for one of POINT, and tells no place of what
it cannot convert. So the numbers of each position are counted here. Parentheses that say nothing are not shown to it:
those around the points of a MULTIPOINT, and collections within a collection.
"""

from __future__ import annotations

from nearcast.errors import Fault
from nearcast.language.cql2_geometry import GEOMETRIES
from nearcast.language.marks import Locate
from nearcast.language.tokens import Token

MAX_PARENTHESES = 10

_NUMBERS = {"Z": 3, "M": 3, "ZM": 4}
"""How many a position has that is of more than two dimensions."""


def begins_geometry(tokens: list[Token], index: int) -> bool:
    """Whether a geometry's keyword stands at an index, and what makes it one and no name stands behind it."""
    if tokens[index].word not in GEOMETRIES:
        return False
    following, next_ = tokens[index + 1], tokens[min(index + 2, len(tokens) - 1)]
    dimension = following.word in _NUMBERS and (next_.kind == "open" or next_.word == "EMPTY")
    return following.kind == "open" or dimension or following.word == "EMPTY"


def show_geometry(tokens: list[Token], index: int, locate: Locate) -> list[str]:
    """How the parser sees the tokens of the geometry that begins at an index. Raises `Fault` for what is none."""
    sized = tokens[index + 1].word in _NUMBERS
    if tokens[index + 1 + sized].word == "EMPTY":
        # Shown as a text: the tree of an empty geometry has no number that tells its place.
        return [f"'{index + 1}'", *[""] * (1 + sized)]
    return _Geometry(tokens, index, locate).all()


class _Geometry:
    """Walks the tokens from a geometry's keyword to the parenthesis that closes it."""

    def __init__(self, tokens: list[Token], start: int, locate: Locate) -> None:
        self._tokens = tokens
        self._at = start
        self._locate = locate
        self._open: list[tuple[str, str]] = []
        self._header = ""
        self._run = 0
        self._size = 2
        self._numbers = 0

    def all(self) -> list[str]:
        """Every token as it is shown."""
        found: list[str] = []
        while not found or self._open or self._header:
            found.append(self._shown(self._tokens[self._at]))
            self._at += 1
        return found

    def _shown(self, token: Token) -> str:
        if self._header and token.kind != "open":
            return self._dimension(token)
        if token.kind == "name":
            return self._keyword(token)
        if token.kind == "open":
            return self._enter()
        if token.kind in ("close", "comma"):
            return self._end_position(token)
        if token.kind == "sign" and token.text in "+-" and self._tokens[self._at + 1].kind == "number":
            return ""
        if token.kind == "number":
            return self._number(token)
        raise self._fault(self._expected())

    def _expected(self) -> str:
        """What may stand where something else does."""
        if self._tokens[self._at - 1].kind == "close":
            return "a comma or )"
        return "a geometry" if self._open[-1][0] == "GEOMETRYCOLLECTION" else "a number"

    def _dimension(self, token: Token) -> str:
        """What stands between a keyword and its parenthesis."""
        if token.word in _NUMBERS:
            self._size = _NUMBERS[token.word]
            # As many numbers say the same, but for a measure; and in a collection the parser does not know a Z.
            return token.word if token.word == "M" else ""
        if token.word != "EMPTY" or self._header == "POINT":
            raise self._fault("(")
        self._header = ""
        return token.word

    def _keyword(self, token: Token) -> str:
        before = self._tokens[self._at - 1].kind if self._open else "open"
        inner = bool(self._open)
        if inner and (self._open[-1][0] != "GEOMETRYCOLLECTION" or before not in ("open", "comma")):
            raise self._fault(self._expected())
        if inner and (token.word not in GEOMETRIES or token.word == "BBOX"):
            raise self._fault("a geometry")
        self._header = token.word
        self._size = 1 if token.word == "BBOX" else 2
        return "" if inner and token.word == "GEOMETRYCOLLECTION" else token.word

    def _enter(self) -> str:
        outer = self._open[-1][0] if self._open else ""
        if not self._header and (self._run or self._tokens[self._at - 1].kind == "close"):
            raise self._fault("a comma or )")
        hidden = outer and outer == (self._header or "MULTIPOINT") and outer in ("MULTIPOINT", "GEOMETRYCOLLECTION")
        word = self._header or ("POINT" if outer == "MULTIPOINT" else outer)
        self._open.append((word, "" if hidden else ")"))
        if len(self._open) > MAX_PARENTHESES:
            raise self._fault(f"parentheses of a geometry at most {MAX_PARENTHESES} deep")
        self._header = ""
        return "" if hidden else "("

    def _end_position(self, token: Token) -> str:
        before = self._tokens[self._at - 1]
        word, closing = self._open[-1]
        ended = before.kind == "close" or before.word == "EMPTY"
        if self._run < self._size and not ended:
            raise self._fault(self._expected())
        self._check_numbers()
        if token.kind == "close":
            self._open.pop()
            return closing
        if word == "POINT":
            raise self._fault(")")
        return ","

    def _check_numbers(self) -> None:
        self._numbers = self._numbers or self._run
        if self._run not in (0, self._numbers):
            raise self._fault(f"as many numbers as the first position has, {self._numbers}")
        self._run = 0

    def _number(self, token: Token) -> str:
        word, before = self._open[-1][0], self._tokens[self._at - 1]
        if word == "GEOMETRYCOLLECTION" or before.kind == "close":
            raise self._fault(self._expected())
        self._run += 1
        if self._run > max(self._size, 1 if word == "BBOX" else 4):
            raise self._fault("a comma or )")
        if float(token.text) == float("inf"):
            raise self._fault("a coordinate that is a finite number")
        return f"-{self._at + 1}" if before.kind == "sign" and before.text == "-" else str(self._at + 1)

    def _fault(self, expected: str) -> Fault:
        token = self._tokens[self._at]
        return Fault(expected, token.text, self._locate(token.start))
