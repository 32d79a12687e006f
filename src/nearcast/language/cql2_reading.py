"""CQL2 text (OGC 21-065r2) into syntax: the parser's tree, and from its numbers back to tokens, literals and places."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nearcast.errors import Fault, Mark
from nearcast.language.cql2_geometry import GEOMETRIES
from nearcast.language.cql2_literals import pattern_of, text_of
from nearcast.language.cql2_parser import parsed
from nearcast.language.cql2_shown import show
from nearcast.language.cql2_values import exact, literals_of
from nearcast.language.marks import Locate
from nearcast.language.syntax import MAX_HEIGHT, Syntax, too_deep
from nearcast.language.tokens import Token, tokenize

_ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "^", "div"})


def read_text(text: str, locate: Locate, at_once: bool = False) -> Syntax:
    """The syntax of a CQL2 text; with `at_once` a list of literals is one node. Raises `Fault` with the place of the
    token that cannot stand there, in such a list with that of the list.
    """
    tokens = tokenize(text, locate, at_once)
    if len(tokens) == 1:
        raise Fault("a CQL2 filter", "an empty text", locate(0), "for example: type = 'unit' AND size > 10")
    shown = show(tokens, locate)
    return _Reading(tokens, shown.geometries, locate).read(parsed(tokens, shown, locate))


class _Reading:
    """Gives the parser's tree back its tokens; number 1 in it is the first, so that none is ever −0."""

    def __init__(self, tokens: list[Token], geometries: Sequence[int], locate: Locate) -> None:
        self._tokens = tokens
        self._geometries = geometries
        self._locate = locate

    def read(self, tree: Any, height: int = 0, pattern: bool = False) -> Syntax:
        """The syntax of a tree, `height` arithmetic operators below the top; `pattern`: its texts are one of LIKE."""
        if isinstance(tree, str):
            return self._text(int(tree) - 1, pattern)
        if isinstance(tree, (int, float)):
            return self._number(tree)
        if "property" in tree:
            return self._property(int(tree["property"]) - 1)
        if "op" not in tree:
            return self._geometry(tree)
        operator: str = tree["op"]
        if operator in _ARITHMETIC:
            return self._operation(tree, height)
        args = tree["args"]
        if operator == "in":
            args = [args[0], *args[1]]
        patterns = (False, True) if operator == "like" else (pattern,) * len(args)
        parts = tuple([self.read(arg, height, own) for arg, own in zip(args, patterns, strict=True)])
        if operator[0] == "f":
            return self._call(int(operator[1:]) - 1, parts)
        return self._condition(tree, parts)

    def _condition(self, tree: dict[str, Any], parts: tuple[Syntax, ...]) -> Syntax:
        name = "IS NULL" if tree["op"] == "isNull" else tree["op"].upper()
        start = self._start(tree) if name == "NOT" else -1
        if start >= 0 and self._tokens[start].is_word("NOT"):
            return Syntax("call", name, self._where(start), name, parts)
        came = name if name in ("AND", "OR") else f"a condition with {name}"
        return Syntax("call", name, parts[0].where, came, parts)

    def _call(self, index: int, parts: tuple[Syntax, ...]) -> Syntax:
        """A function; or parentheses, which group one value, and make a list of any other number."""
        token, where = self._tokens[index], self._where(index)
        if token.kind == "name":
            return Syntax("call", token.word, where, f"the function {token.text}", parts)
        # Around a list, parentheses cannot group: they make a list of one list.
        if len(parts) == 1 and parts[0].kind != "list":
            return replace(parts[0], grouped=True)
        return Syntax("list", None, where, "a list" if parts else "an empty list", parts)

    def _operation(self, tree: dict[str, Any], height: int) -> Syntax:
        left, right = tree["args"]
        if height >= MAX_HEIGHT:
            raise too_deep(self._where(self._start(tree)))
        if left == -1.0:
            # A number of a token with a sign is −2 at least: this is the parser's own, for a sign before no number.
            return self._negative(right, height)
        parts = (self.read(left, height + 1), self.read(right, height + 1))
        came = f"the arithmetic sign {tree['op']}"
        syntax = Syntax("call", tree["op"].upper(), parts[0].where, came, parts)
        if syntax.height > MAX_HEIGHT:
            raise too_deep(syntax.where)
        return syntax

    def _negative(self, tree: Any, height: int) -> Syntax:
        where = self._where(self._start(tree) - 1)
        parts = (Syntax("number", -1, where, "-1"), self.read(tree, height + 1))
        return Syntax("call", "*", where, "a negative value", parts)

    def _text(self, index: int, pattern: bool) -> Syntax:
        """What the parser was shown as a text: texts, TRUE, FALSE, NULL, and empty geometries."""
        token, where = self._tokens[index], self._where(index)
        if token.kind == "values":
            return self._values(token, where)
        if token.is_word("TRUE", "FALSE"):
            return Syntax("boolean", token.word == "TRUE", where, token.text)
        if token.is_word("NULL"):
            return Syntax("null", None, where, token.text)
        if token.kind == "name":
            type_ = GEOMETRIES[token.word]
            members = "geometries" if type_ == "GeometryCollection" else "coordinates"
            return Syntax("geometry", {"type": type_, members: []}, where, "a geometry")
        return Syntax("text", (pattern_of if pattern else text_of)(token.text), where, token.text)

    def _values(self, token: Token, where: Mark) -> Syntax:
        values = literals_of(token.text)
        if values is None:
            raise Fault("numbers within 64 bits", "others", where)
        return Syntax("values", values, where, "a list of literals")

    def _property(self, index: int) -> Syntax:
        token, where = self._tokens[index], self._where(index)
        name = token.text[1:-1].replace('""', '"') if token.kind == "quoted" else token.text
        if not name:
            raise Fault("the name of an attribute", '""', where)
        return Syntax("property", name, where, f"the attribute {token.text}")

    def _number(self, value: float) -> Syntax:
        """A number with its sign, exactly."""
        token, where = self._tokens[int(abs(value)) - 1], self._where(self._start(value))
        written = f"-{token.text}" if value < 0 else token.text
        number = exact(token.text, value < 0)
        if number is None:
            whole = token.text.isdigit()
            advice = "integers reach from -2^63 to 2^63 - 1" if whole else "numbers reach to 1.8e308"
            raise Fault("a number within 64 bits", written[:80], where, advice)
        return Syntax("number", number, where, written)

    def _geometry(self, tree: dict[str, Any]) -> Syntax:
        value = self._coordinates(tree)
        if len(value.get("bbox", "four")) not in (4, 6):
            end = self._tokens[int(abs(tree["bbox"][-1])) + 1]
            expected = "BBOX(west, south, east, north) or with heights: 4 or 6 numbers"
            raise Fault(expected, end.text, self._locate(end.start))
        return Syntax("geometry", value, self._where(self._start(tree)), "a geometry")

    def _coordinates(self, tree: Any) -> Any:
        """GeoJSON with the numbers that are written."""
        if isinstance(tree, dict):
            return {key: self._coordinates(value) for key, value in tree.items()}
        if isinstance(tree, (list, tuple)):
            return [self._coordinates(value) for value in tree]
        if isinstance(tree, str):
            return tree
        number = float(self._tokens[int(abs(tree)) - 1].text)
        return -number if tree < 0 else number

    def _start(self, tree: Any) -> int:
        """The index of the first token of a tree; of a group, that of its parenthesis."""
        while isinstance(tree, dict) and "op" in tree and tree["op"][0] != "f":
            left = tree["args"][0]
            if tree["op"] == "not":
                start = self._start(left)
                return start - 1 if start and self._tokens[start - 1].is_word("NOT") else start
            if left == -1.0:
                return self._start(tree["args"][1]) - 1
            tree = left
        if isinstance(tree, (int, float)):
            return self._start_of_number(tree)
        if isinstance(tree, str):
            return int(tree) - 1
        if "op" in tree:
            return int(tree["op"][1:]) - 1
        return int(tree["property"]) - 1 if "property" in tree else self._start_of_geometry(tree)

    def _start_of_number(self, value: float) -> int:
        index = int(abs(value)) - 1
        while value < 0 and self._tokens[index].text != "-":
            index -= 1
        return index

    def _start_of_geometry(self, tree: dict[str, Any]) -> int:
        """That of the keyword, the last one before the geometry's first number."""
        inner: Any = tree
        while isinstance(inner, (dict, list, tuple)):
            values = list(inner.values()) if isinstance(inner, dict) else inner
            inner = next(value for value in values if not isinstance(value, str))
        return self._geometries[bisect_right(self._geometries, int(abs(inner)) - 1) - 1]

    def _where(self, index: int) -> Mark:
        return self._locate(self._tokens[index].start)
