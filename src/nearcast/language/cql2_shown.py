"""What the parser of CQL2 text gets to see of a filter's tokens, and the shapes that it must not see.

The parser keeps no places and turns every number into a double. So it is shown the number of a token instead of the
token: `a <= 2 AND casei(b) = 'x'` as `"1" <= 3 AND f5("7") = '10'`. Parentheses that group become functions too, as
`f4(…)`, for its tree tells neither where they stood nor `(1)` from `1`.

It is recursive: some thousand parentheses or signs within each other end its process. Those are refused here, and so
is what it reads otherwise than the standard: a comparison of a comparison, NOT within one, IN without parentheses.
"""

from __future__ import annotations

from dataclasses import dataclass

from nearcast.errors import Fault
from nearcast.language.cql2_wkt import begins_geometry, show_geometry
from nearcast.language.marks import Locate
from nearcast.language.syntax import MAX_HEIGHT, too_deep
from nearcast.language.tokens import MAX_DEPTH, Token

CONTINUED = "a comparison, AND, OR or the end of the condition"
OPERAND = "a name, a literal, a function or ("

MAX_CHAIN = 10 * MAX_HEIGHT
"""Operators in one expression; the tree of so many is never lower than `MAX_HEIGHT`, unless written to be so."""

_OPERANDS = frozenset({"text", "quoted", "name", "number", "close"})
_COMPARING = ("LIKE", "IN", "BETWEEN", "IS")
_CONSTANTS = ("TRUE", "FALSE", "NULL")


@dataclass(slots=True)
class _Level:
    """What a pair of parentheses holds so far: NOTs that wait for their end, a comparison, a BETWEEN before its AND."""

    nots: int = 0
    compared: bool = False
    between: bool = False
    chain: int = 0
    listed: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """How the parser sees each token but the last, the end; and where geometries with numbers begin.

    With a fault, the texts are those of the tokens before it.
    """

    texts: list[str]
    geometries: list[int]
    fault: Fault | None = None


def show(tokens: list[Token], locate: Locate) -> Shown:
    """The tokens for the parser, number 1 being the first, up to a shape that it must not see."""
    walk = _Walk(tokens, locate)
    try:
        walk.all()
    except Fault as fault:
        return Shown(walk.texts, walk.geometries, fault)
    return Shown(walk.texts, walk.geometries)


class _Walk:
    """Walks the tokens once."""

    def __init__(self, tokens: list[Token], locate: Locate) -> None:
        self.texts: list[str] = []
        self.geometries: list[int] = []
        self._tokens = tokens
        self._locate = locate
        self._levels = [_Level()]
        self._depth = 0
        self._signs = 0
        self._list_end = -1
        self._show = {
            "number": lambda index: f"-{index + 1}" if self._negative(index - 1) else str(index + 1),
            "text": lambda index: f"'{index + 1}'",
            "values": lambda index: f"'{index + 1}'",
            "quoted": lambda index: f'"{index + 1}"',
            "name": lambda index: f"f{index + 1}" if tokens[index + 1].kind == "open" else f'"{index + 1}"',
            "word": self._word,
            "compare": self._compare,
            "sign": self._sign,
            "open": self._open,
            "close": self._close,
            "comma": self._comma,
        }

    def all(self) -> None:
        """Every token as it is shown. Raises `Fault` for a shape that the parser must not see."""
        while len(self.texts) < len(self._tokens) - 1:
            index = len(self.texts)
            token = self._tokens[index]
            if token.kind == "name" and begins_geometry(self._tokens, index):
                self.texts += show_geometry(self._tokens, index, self._locate)
                self.geometries.append(index)
            else:
                self.texts.append(self._show[token.kind](index))
            if token.kind != "sign":
                self._signs = 0

    def _word(self, index: int) -> str:
        token = self._tokens[index]
        if token.word == "NULL" and self._before(index, "IS", "NOT") and not self._prefix(index - 1):
            return "NULL"
        if token.word in _CONSTANTS:
            return f"'{index + 1}'"
        if token.word == "NOT":
            return self._not(index)
        self._check_left(index)
        if token.word == "DIV":
            self._chained(index)
        elif token.word in _COMPARING:
            if self._first(index) == index:
                self._check_first(index)
            self._begin_comparison(index)
        elif token.word == "AND" and self._levels[-1].between:
            self._levels[-1].between = False
            self._levels[-1].chain = 0
        else:
            self._begin_condition()
        return token.word

    def _not(self, index: int) -> str:
        """A NOT before a condition; or the one of NOT IN and the like, which makes nothing deeper."""
        if not self._prefix(index):
            if not self._before(index, "IS"):
                self._check_first(index)
            return "NOT"
        operand = self._is_operand(index - 1)
        arithmetic = index > 0 and (self._tokens[index - 1].kind == "sign" or self._before(index, "DIV"))
        if not operand and (self._levels[-1].compared or arithmetic):
            raise self._fault(OPERAND, index)
        if not operand:
            self._levels[-1].nots += 1
            self._deepen(index)
        return "NOT"

    def _prefix(self, index: int) -> bool:
        """Whether a NOT stands before a condition, as far as the tokens beside it tell."""
        if not self._tokens[index].is_word("NOT"):
            return False
        return not self._tokens[index + 1].is_word("LIKE", "IN", "BETWEEN") and not self._before(index, "IS")

    def _before(self, index: int, *words: str) -> bool:
        return index > 0 and self._tokens[index - 1].is_word(*words)

    def _is_operand(self, index: int) -> bool:
        token = self._tokens[index] if index >= 0 else None
        return token is not None and (token.kind in _OPERANDS or token.is_word(*_CONSTANTS))

    def _check_left(self, index: int) -> None:
        """A word such as LIKE needs something on its left; the parser would take `LIKE (…)` for a function."""
        if not self._is_operand(self._first(index) - 1):
            token = self._tokens[index]
            advice = f'if {token.text} is a name, write it in double quotes: "{token.text}"'
            raise self._fault(f"something before {token.word}", index, advice if token.kind == "word" else "")

    def _first(self, index: int) -> int:
        """The index of the word that a comparison begins with: its NOT, if it has one."""
        negated = self._tokens[index].is_word("LIKE", "IN", "BETWEEN") and self._before(index, "NOT")
        return index - 1 if negated else index

    def _begin_comparison(self, index: int) -> None:
        token, level = self._tokens[index], self._levels[-1]
        level.compared, level.between, level.chain = True, token.is_word("BETWEEN"), 0
        if token.is_word("IN") and self._tokens[index + 1].kind != "open":
            raise self._fault("( after IN", index + 1)

    def _check_first(self, index: int) -> None:
        if self._levels[-1].compared:
            token = self._tokens[index]
            came = f"a second one, {token.text}"
            raise Fault("one comparison between AND, OR and parentheses", came, self._locate(token.start))

    def _begin_condition(self) -> None:
        """The NOTs before the last condition end with it."""
        level = self._levels[-1]
        self._depth -= level.nots
        level.nots, level.compared, level.between, level.chain = 0, False, False, 0

    def _compare(self, index: int) -> str:
        if index == 0 or self._tokens[index - 1].kind in ("open", "word"):
            self._check_left(index)
        if self._is_operand(index - 1):
            self._check_first(index)
            self._begin_comparison(index)
        return self._tokens[index].text

    def _sign(self, index: int) -> str:
        token = self._tokens[index]
        if self._is_operand(index - 1):
            self._chained(index)
            return token.text
        self._signs += 1
        self._check_depth(self._depth + self._signs, index)
        # The parser knows + before numbers only; a minus is shown with its number, so that both are one literal.
        return "" if token.text == "+" or self._negative(index) else token.text

    def _negative(self, index: int) -> bool:
        """Whether a minus is that of the number behind it."""
        if self._tokens[index + 1].kind != "number" or index < 0 or self._tokens[index].text != "-":
            return False
        return not self._is_operand(index - 1)

    def _chained(self, index: int) -> None:
        # The parser would take `a IN (b) + c` for `a IN (b + c)`.
        if self._list_end == index - 1:
            raise self._fault(CONTINUED, index)
        self._levels[-1].chain += 1
        if self._levels[-1].chain > MAX_CHAIN:
            raise too_deep(self._locate(self._tokens[index].start))

    def _open(self, index: int) -> str:
        listed = self._before(index, "IN")
        self._levels.append(_Level(listed=listed))
        self._deepen(index)
        called = index > 0 and self._tokens[index - 1].kind == "name"
        return "(" if listed or called else f"f{index + 1}("

    def _close(self, index: int) -> str:
        if len(self._levels) == 1:
            raise self._fault(CONTINUED, index, "a ) needs a ( before it")
        level = self._levels.pop()
        self._depth -= 1 + level.nots
        if level.listed:
            self._list_end = index
        return ")"

    def _comma(self, _index: int) -> str:
        self._begin_condition()
        return ","

    def _deepen(self, index: int) -> None:
        self._depth += 1
        self._check_depth(self._depth, index)

    def _check_depth(self, depth: int, index: int) -> None:
        if depth > MAX_DEPTH:
            expected, came = f"parentheses and NOTs at most {MAX_DEPTH} deep", f"a depth of {depth} or more"
            where = self._locate(self._tokens[index].start)
            raise Fault(expected, came, where, "write the filter flatter, or split it")

    def _fault(self, expected: str, index: int, advice: str = "") -> Fault:
        return Fault(expected, self._tokens[index].text, self._locate(self._tokens[index].start), advice)
