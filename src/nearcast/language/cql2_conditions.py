"""From the parser's tree to atoms: what a condition means, and a located fault for what has no meaning here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nearcast.errors import Fault
from nearcast.language.marks import Locate
from nearcast.language.tokens import Token
from nearcast.language.trees import all_of, any_of
from nearcast.model.filter import (
    Atom,
    Count,
    Distance,
    Entities,
    Filter,
    Literals,
    Located,
    Not,
    Operator,
    This,
    User,
)
from nearcast.model.place import Place
from nearcast.model.values import INTEGER_MAXIMUM, INTEGER_MINIMUM, Value, time_of

Tree = Any
"""A node of the parser's JSON: a dict, list, number or text."""

COMPARISONS = {operator.value: operator for operator in list(Operator)[:6]}
FLIPPED = {
    Operator.LT: Operator.GT,
    Operator.LE: Operator.GE,
    Operator.GT: Operator.LT,
    Operator.GE: Operator.LE,
}
SUPPORTED = "supported are distance, count, S_DWITHIN, user, uform, POINT and TIMESTAMP"


class Translation:
    """Translates one parsed text; `tokens` are those whose indices its tree carries."""

    def __init__(self, tokens: list[Token], locate: Locate) -> None:
        self._tokens = tokens
        self._locate = locate

    def condition(self, tree: Tree) -> Filter:
        """The filter that a tree means where a condition is expected."""
        operator = tree.get("op") if isinstance(tree, dict) else None
        if operator == "and":
            return all_of([self.condition(child) for child in tree["args"]])
        if operator == "or":
            return any_of([self.condition(child) for child in tree["args"]])
        if operator == "not":
            return Not(self.condition(tree["args"][0]))
        if operator in COMPARISONS:
            return self._comparison(COMPARISONS[operator], tree)
        if operator in ("in", "between", "like", "isNull"):
            return self._form(operator, tree)
        if isinstance(tree, dict) and "property" in tree:
            return Atom(self._name(tree), Operator.EQ, True, self._locate(self._token(tree).start))
        if self._function(tree) == "S_DWITHIN":
            return self._within(tree)
        raise self._fault("a condition", tree, SUPPORTED if self._function(tree) else "for example: size > 10")

    def _comparison(self, operator: Operator, tree: Tree) -> Filter:
        left, right = tree["args"]
        # A literal may stand left: the comparison turns round, not the atom.
        if self._is_literal(left) and not self._is_literal(right):
            left, right, operator = right, left, FLIPPED.get(operator, operator)
        return self._atom(self._subject(left), operator, self._literal(right), tree, right)

    def _form(self, operator: str, tree: Tree) -> Filter:
        left, *rest = tree["args"]
        subject = self._subject(left)
        if operator == "isNull":
            return self._atom(subject, Operator.IS_NULL, None, tree, left)
        if operator == "like":
            pattern = self._literal(rest[0])
            if not isinstance(pattern, str):
                raise self._fault("a pattern in single quotes", rest[0], "for example: name LIKE 'north%'")
            return self._atom(subject, Operator.LIKE, pattern, tree, rest[0])
        values = rest[0] if operator == "in" else rest
        form = Operator.IN if operator == "in" else Operator.BETWEEN
        return self._atom(subject, form, tuple(self._literal(value) for value in values), tree, values)

    def _atom(
        self, subject: str | Distance | Count, operator: Operator, value: Literals, tree: Tree, right: Tree
    ) -> Atom:
        if not isinstance(subject, str):
            self._check_measure(subject, operator, value, right)
        return Atom(subject, operator, value, self._locate(self._first(tree)))

    def _check_measure(self, subject: Distance | Count, operator: Operator, value: Literals, right: Tree) -> None:
        """A distance or a count compares with numbers only."""
        what = "distance" if isinstance(subject, Distance) else "count"
        if operator in (Operator.LIKE, Operator.IS_NULL):
            raise self._fault(
                f"a comparison of a {what} with a number", right, f"{operator} does not apply to a {what}"
            )
        values = value if isinstance(value, tuple) else (value,)
        if any(isinstance(one, bool) or not isinstance(one, (int, float)) for one in values):
            raise self._fault(f"a number to compare the {what} with", right, f"for example: {what}(…) <= 150")

    def _subject(self, tree: Tree) -> str | Distance | Count:
        """What an atom is about: an attribute or a location term."""
        if isinstance(tree, dict) and "property" in tree:
            return self._name(tree)
        function = self._function(tree)
        if function == "DISTANCE":
            a, b = self._arguments(tree, (2,), "distance(a, b)")
            return Distance(self._located(a), self._located(b))
        if function == "COUNT":
            of, *rest = self._arguments(tree, (1, 3), "count(a) or count(a, b, metres)")
            around = self._located(rest[0]) if rest else None
            return Count(self._located(of), around, self._metres(rest[1]) if rest else None)
        if self._is_literal(tree):
            raise self._fault(
                "an attribute on one side of the comparison", tree, "two literals tell nothing of an event"
            )
        raise self._fault("an attribute, distance(…) or count(…)", tree, SUPPORTED)

    def _within(self, tree: Tree) -> Filter:
        """S_DWITHIN(a, b, metres) is distance(a, b) <= metres."""
        a, b, metres = self._arguments(tree, (3,), "S_DWITHIN(a, b, metres)")
        subject = Distance(self._located(a), self._located(b))
        return Atom(subject, Operator.LE, self._metres(metres), self._locate(self._first(tree)))

    def _located(self, tree: Tree) -> Located:
        """Something with a place: user('name'), uform(conditions), this, geom, or a point."""
        if isinstance(tree, dict) and "property" in tree and self._name(tree).lower() in ("this", "geom"):
            return This()
        if isinstance(tree, dict) and tree.get("type") == "Point":
            return self._point(tree)
        function = self._function(tree)
        if function == "USER":
            (name,) = self._arguments(tree, (1,), "user('name')")
            return User(self._text(name, "a client's id in single quotes"))
        if function == "UFORM":
            conditions = self._arguments(tree, (0, 1), "uform(conditions)")
            return Entities(self.condition(conditions[0]) if conditions else None)
        raise self._fault("user('name'), uform(conditions), this, geom or POINT(lon lat)", tree)

    def _point(self, tree: Tree) -> Place:
        numbers = [float(self._number(value)) for value in tree["coordinates"]]
        if not (-180 <= numbers[0] <= 180 and -90 <= numbers[1] <= 90):
            raise self._fault("POINT(longitude latitude) in degrees", tree, "longitude comes first, at most 180 and 90")
        return Place("geographic", *numbers[:3])

    def _metres(self, tree: Tree) -> float:
        value = self._literal(tree) if self._is_literal(tree) else None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
            raise self._fault("a distance in metres, 0 or more", tree)
        return value

    def _text(self, tree: Tree, expected: str) -> str:
        value = self._literal(tree) if self._is_literal(tree) else None
        if not isinstance(value, str):
            raise self._fault(expected, tree)
        return value

    def _arguments(self, tree: Tree, sizes: tuple[int, ...], form: str) -> list[Tree]:
        arguments: list[Tree] = tree["args"]
        if len(arguments) not in sizes:
            raise self._fault(form, tree, f"it was given {len(arguments)} arguments")
        return arguments

    def _is_literal(self, tree: Tree) -> bool:
        return isinstance(tree, (str, float, int)) or self._function(tree) == "TIMESTAMP"

    def _literal(self, tree: Tree) -> Value:
        """The exact value that a literal was written as."""
        if isinstance(tree, (float, int)):
            return self._number(tree)
        if isinstance(tree, str):
            return self._quoted_or_constant(tree)
        if self._function(tree) == "TIMESTAMP":
            return self._moment(tree)
        if isinstance(tree, dict) and "property" in tree:
            raise self._fault(
                "a literal", tree, "an attribute is compared with a literal; a text stands in single quotes"
            )
        raise self._fault("a number, a text in single quotes, TRUE, FALSE or TIMESTAMP('…')", tree)

    def _quoted_or_constant(self, tree: str) -> Value:
        token = self._tokens[int(tree)]
        if token.kind == "text":
            return token.text[1:-1].replace("''", "'")
        if token.word == "NULL":
            raise self._fault("a literal", tree, "absence is asked for with IS NULL")
        return token.word == "TRUE"

    def _number(self, tree: float) -> int | float:
        """The exact number; the parser has folded its sign, so ±i is the i-th token with that sign."""
        written = self._tokens[round(abs(tree))].text
        value = int(written) if written.isdigit() else float(written)
        value = -value if tree < 0 else value
        # Up to 2^53 an integral double is that integer, so 150.0 and 150 are one atom.
        if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
            value = int(value)
        if value in (float("inf"), float("-inf")) or (
            isinstance(value, int) and not INTEGER_MINIMUM <= value <= INTEGER_MAXIMUM
        ):
            raise self._fault("a number within 64 bits", tree, "integers reach from -2^63 to 2^63 - 1")
        return value

    def _moment(self, tree: Tree) -> Value:
        (text,) = self._arguments(tree, (1,), "TIMESTAMP('2020-01-31T12:00:00Z')")
        moment = time_of(self._text(text, "a date and time in single quotes"))
        if moment is None:
            raise self._fault("a date and time with a zone", text, "for example: TIMESTAMP('2020-01-31T12:00:00Z')")
        return moment

    def _name(self, tree: Tree) -> str:
        token = self._token(tree)
        if token.kind != "name":
            raise Fault(
                "an attribute", f"the word {token.text}", self._locate(token.start), "write it in double quotes"
            )
        quoted = token.text.startswith('"')
        name = token.text[1:-1].replace('""', '"') if quoted else token.text
        if not name:
            raise Fault("the name of an attribute", '""', self._locate(token.start))
        return name

    def _function(self, tree: Tree) -> str | None:
        """The name in capitals, if the tree is a call of a function."""
        operator = tree.get("op", "") if isinstance(tree, dict) else ""
        return self._tokens[int(operator[1:])].word if operator[:1] == "f" and operator[1:].isdigit() else None

    def _token(self, tree: Tree) -> Token:
        key = tree["property"]
        if key.isdigit():
            return self._tokens[int(key)]
        # Keywords are shown as they are, and the parser takes some for names.
        return next(token for token in self._tokens if token.text == key)

    def _first(self, tree: Tree) -> int:
        """The offset at which a tree's text begins."""
        keys: list[int] = []
        _collect(tree, keys.append)
        return self._tokens[min(keys)].start if keys else 0

    def _fault(self, expected: str, tree: Tree, advice: str = "") -> Fault:
        return Fault(expected, self._came(tree), self._locate(self._first(tree)), advice)

    def _came(self, tree: Tree) -> str:
        function = self._function(tree)
        if function:
            return f"the function {function.lower()}" if function != "S_DWITHIN" else "the function S_DWITHIN"
        if isinstance(tree, dict) and "property" in tree:
            return f"the attribute {self._token(tree).text}"
        if isinstance(tree, dict):
            return "a geometry" if "op" not in tree else f"a condition with {tree['op']}"
        if isinstance(tree, list):
            return "a list" if len(tree) != 1 else self._came(tree[0])
        sign = "-" if isinstance(tree, (float, int)) and tree < 0 else ""
        return sign + self._tokens[round(abs(float(tree)))].text


def _collect(tree: Tree, add: Callable[[int], None]) -> None:
    """Gives every token index within a tree to `add`."""
    if isinstance(tree, dict):
        operator = tree.get("op", "")
        if operator[:1] == "f" and operator[1:].isdigit():
            add(int(operator[1:]))
        for key, child in tree.items():
            if key not in ("op", "type"):
                _collect(child, add)
    elif isinstance(tree, list):
        for child in tree:
            _collect(child, add)
    elif isinstance(tree, (int, float)):
        add(round(abs(tree)))
    elif tree.isdigit():
        add(int(tree))
