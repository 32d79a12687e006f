"""CQL2 text (OGC 21-065r2) into syntax, by precedence: what waits for its right side waits in a list, not in recursion.

So no text is too deep or too long for it, and every fault is about the token at which the text stops making sense.
"""

from __future__ import annotations

from collections.abc import Callable

from nearcast.errors import Fault
from nearcast.language.cql2.advice import on_token
from nearcast.language.cql2.filter_limits import ALONE, MAX_DEPTH, TextLimits
from nearcast.language.cql2.geometry import begins_geometry, read_geometry
from nearcast.language.cql2.literals import PlainLiteral, literals_of, number_of, pattern_of, text_of
from nearcast.language.cql2.syntax import CONDITIONS, Syntax, SyntaxKind, call_of
from nearcast.language.cql2.tokens import KEYWORDS, tokenize
from nearcast.language.marks import Locate
from nearcast.language.quantities import UNITS
from nearcast.model.expression import AGGREGATES, COMPARISONS
from nearcast.model.filter import Atom, Literals, Operator

CONTINUED = "a comparison, AND, OR or the end of the condition"
OPERAND = "a name, a number, a text in quotes, a function or ("

_BARE = "a comparison has a name or a value on each side, as in size > 10"
_NOT_ADVICE = "NOT stands before a condition, as in NOT size = 10, or in size IS NOT NULL"

_BETWEEN, _OPEN, _OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _POWER, _SIGN = range(10)
"""How tight each operator binds what stands beside it; equal ones go from left to right.

The first two wait for a token that ends them.
"""

_VALUES: dict[str, Callable[[str], PlainLiteral | None]] = {
    "number": number_of,
    "text": text_of,
    "TRUE": lambda _: True,
    "FALSE": lambda _: False,
}
"""How the tokens that are literals are read."""

_ENDS = frozenset({"AND", "OR", ")", "end"})
"""Tokens that end a condition."""

_ARITHMETIC = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT, "DIV": _PRODUCT, "^": _POWER}

_OPERATIONS = {operator.value: operator for operator in Operator} | {"!=": Operator.NE}


def read_text(text: str, locate: Locate, at_once: bool = False, limits: TextLimits = ALONE) -> Syntax:
    """The syntax of a CQL2 text; with `at_once` a list of literals is one node, and so is an attribute beside literals.

    Raises `Fault` with the place of the token that cannot stand there, in such a list with that of the list; and for
    what is beyond the `limits`.
    """
    return _Parser(text, locate, at_once, limits).whole()


class _Parser:
    """Goes through the tokens once. An operand is followed by an operator, an operator by an operand; what reads a
    token says whether an operand is complete after it.
    """

    def __init__(self, text: str, locate: Locate, at_once: bool, limits: TextLimits) -> None:
        self._kinds, self._texts, self._starts = self._tokens = tokenize(text, locate, at_once, limits)
        self._locate = locate
        self._at_once = at_once
        self._at = 0
        self._depth = 0
        self._operands: list[Syntax] = []
        # Each what it binds, its token, and how many operands were there before its own. Parentheses wait like
        # operators, and so does a BETWEEN for its AND; the first is the text itself.
        self._waiting: list[tuple[int, int, int]] = [(_OPEN, -1, 0)]

    def whole(self) -> Syntax:
        """The syntax of the whole text. Raises `Fault`."""
        kinds, complete = self._kinds, False
        if len(kinds) == 1:
            raise Fault("a CQL2 filter", "an empty text", self._locate(0), "for example: type = 'unit' AND size > 10")
        while not (complete and kinds[self._at] == "end"):
            if complete:
                complete = _OPERATORS.get(kinds[self._at], _Parser._no_operator)(self)
            else:
                complete = _OPERANDS.get(kinds[self._at], _Parser._no_operand)(self)
        self._close_up()
        if len(self._waiting) > 1:
            raise self._fault("a comma or ) after a condition or value", "a ( needs a ) behind it")
        return self._operands[0]

    # What an operand begins with.

    def _name(self) -> bool:
        at = self._at
        following = self._kinds[at + 1]
        if following in ("(", "name") and begins_geometry(self._tokens, at):
            value, self._at = read_geometry(self._tokens, at, self._locate)
            self._operands.append(Syntax("geometry", value, self._starts[at], self._locate))
            return True
        if following == "(":
            self._at += 1
            return self._enter(at)
        return self._attribute(self._texts[at])

    def _quoted(self) -> bool:
        name = self._texts[self._at][1:-1].replace('""', '"')
        if not name:
            raise self._fault("the name of an attribute")
        return self._attribute(name)

    def _attribute(self, name: str) -> bool:
        """An attribute; if at once, with the literals that it is compared with, where nothing else belongs to them."""
        if not self._at_once or not _OPEN <= self._waiting[-1][0] <= _NOT:
            return self._leaf("property", name)
        at, kinds, texts = self._at, self._kinds, self._texts
        operator, end = kinds[at + 1], at + 3
        value: Literals = None
        if operator == "compare":
            operator, value = texts[at + 1], self._literal(at + 2)
        elif operator == "values":
            operator, value, end = "IN", literals_of(texts[at + 1]), at + 2
        elif operator == "LIKE" and kinds[at + 2] == "text":
            value = pattern_of(texts[at + 2])
        elif operator == "BETWEEN" and kinds[at + 3 : at + 4] == ["AND"]:
            low, high, end = self._literal(at + 2), self._literal(at + 4), at + 5
            value = None if low is None or high is None else (low, high)
        if value is None or kinds[end] not in _ENDS:
            return self._leaf("property", name)
        start, locate = self._starts[at], self._locate
        atom = Atom(name, _OPERATIONS[operator], value, locate(start))
        self._operands.append(Syntax("atom", atom, start, locate, operator, (), 2))
        self._at = end
        return True

    def _literal(self, index: int) -> PlainLiteral | None:
        """The literal that a token is, if it is one that 64 bits hold."""
        read = _VALUES.get(self._kinds[index])
        return read(self._texts[index]) if read else None

    def _text(self) -> bool:
        return self._leaf("text", text_of(self._texts[self._at]))

    def _number(self) -> bool:
        return self._leaf("number", self._exact(""))

    def _boolean(self) -> bool:
        return self._leaf("boolean", self._kinds[self._at] == "TRUE")

    def _null(self) -> bool:
        return self._leaf("null", None)

    def _leaf(self, kind: SyntaxKind, value: PlainLiteral | None) -> bool:
        at = self._at
        self._operands.append(Syntax(kind, value, self._starts[at], self._locate, self._texts[at]))
        self._at = at + 1
        return True

    def _exact(self, sign: str) -> int | float:
        written = sign + self._texts[self._at]
        number = number_of(written)
        if number is None:
            where = self._locate(self._starts[self._at - len(sign)])
            whole = self._texts[self._at].isdigit()
            advice = "integers reach from -2^63 to 2^63 - 1" if whole else "numbers reach to 1.8e308"
            raise Fault("a number within 64 bits", written[:80], where, advice)
        return number

    def _sign(self) -> bool:
        """A sign before a value: that of a number is part of it, and a plus says nothing."""
        at, sign = self._at, self._texts[self._at]
        if sign not in "+-":
            raise self._fault(OPERAND)
        self._at += 1
        if sign == "-" and self._kinds[self._at] == "number":
            number, written = self._exact("-"), "-" + self._texts[self._at]
            self._operands.append(Syntax("number", number, self._starts[at], self._locate, written))
            self._at += 1
            return True
        if sign == "-":
            self._waiting.append((_SIGN, at, len(self._operands)))
        return False

    def _not(self) -> bool:
        if self._waiting[-1][0] > _NOT or self._is_between() or self._kinds[self._at - 1] == "sign":
            raise self._fault(OPERAND)
        self._deepen()
        self._waiting.append((_NOT, self._at, len(self._operands)))
        self._at += 1
        return False

    def _open(self) -> bool:
        return self._enter(self._at)

    def _enter(self, index: int, operands: int = 0) -> bool:
        """Goes behind a parenthesis, which belongs to a token and to so many operands before it."""
        self._deepen()
        self._waiting.append((_OPEN, index, len(self._operands) - operands))
        self._at += 1
        return False

    def _nothing(self) -> bool:
        """A parenthesis that closes where an operand may be: there is none in it."""
        if self._kinds[self._at - 1] != "(" or self._kinds[self._waiting[-1][1]] == "IN":
            raise self._fault(OPERAND)
        return self._leave()

    def _no_operand(self) -> bool:
        kind, text = self._kinds[self._at], self._texts[self._at]
        if kind == "compare" and self._kinds[self._at - 1] == "compare":
            meant = on_token(self._tokens, self._at)
            known = f"comparisons are {', '.join(COMPARISONS)}"
            raise self._fault(OPERAND, f"{meant}; {known}" if meant else known)
        if kind == "compare" or kind == "values" or kind in KEYWORDS:
            word = "IN" if kind == "values" else text.upper()
            advice = _BARE if kind == "compare" else f'if {text} is a name, write it in double quotes: "{text}"'
            raise self._fault(f"something before {word}", on_token(self._tokens, self._at) or advice)
        raise self._fault(OPERAND)

    # What may follow an operand.

    def _joint(self) -> bool:
        kind = self._kinds[self._at]
        binding, waiting = _AND if kind == "AND" else _OR, self._waiting
        if waiting[-1][0] > binding:
            self._reduce(binding + 1)
        before = waiting[-1][0]
        if before == _BETWEEN:
            if kind == "OR":
                raise self._fault("BETWEEN low AND high", "for example: size BETWEEN 1 AND 2")
            waiting.append((_COMPARISON, *waiting.pop()[1:]))
        # More of the same are one.
        elif before != binding:
            waiting.append((binding, self._at, len(self._operands) - 1))
        self._at += 1
        return False

    def _comparison(self) -> bool:
        self._begin_comparison()
        self._waiting.append((_COMPARISON, self._at, len(self._operands) - 1))
        self._at += 1
        return False

    def _between(self) -> bool:
        self._begin_comparison()
        self._waiting.append((_BETWEEN, self._at, len(self._operands) - 1))
        self._at += 1
        return False

    def _in(self) -> bool:
        self._begin_comparison()
        self._at += 1
        if self._kinds[self._at] != "(":
            raise self._fault("( after IN", "for example: type IN ('a', 'b')")
        return self._enter(self._at - 1, operands=1)

    def _values(self) -> bool:
        """An IN with a list of literals that is read at once."""
        self._begin_comparison()
        at, written = self._at, self._texts[self._at]
        values, start = literals_of(written), self._starts[at] + written.index("(") + 1
        if values is None:
            raise Fault("numbers within 64 bits", "others", self._locate(start))
        listed = Syntax("values", values, start, self._locate)
        self._operands.append(self._condition("IN", at, (self._operands.pop(), listed)))
        self._at += 1
        return True

    def _is(self) -> bool:
        self._begin_comparison()
        at = self._at + 1
        negated = self._kinds[at] == "NOT"
        self._at = at + negated
        if self._kinds[self._at] != "NULL":
            raise self._fault("NULL or NOT NULL behind IS", "a value is compared by =, as in size = 10")
        # The token after a NOT is what it negates, here as elsewhere.
        self._operands.append(self._condition("IS NULL", self._at, (self._operands.pop(),)))
        self._at += 1
        return True

    def _negated(self) -> bool:
        if self._kinds[self._at + 1] not in ("IN", "values", "BETWEEN", "LIKE"):
            self._at += 1
            raise self._fault("IN, BETWEEN or LIKE after NOT", _NOT_ADVICE)
        # The fault of a second comparison is about its first word.
        self._begin_comparison()
        self._at += 1
        return _OPERATORS[self._kinds[self._at]](self)

    def _begin_comparison(self) -> None:
        self._reduce(_SUM)
        if self._waiting[-1][0] == _COMPARISON or self._is_between() or self._is_condition():
            came = f"a second one, {self._texts[self._at]}"
            where = self._locate(self._starts[self._at])
            advice = "join several by AND: 1 < size AND size < 10"
            raise Fault("one comparison between AND, OR and parentheses", came, where, advice)

    def _arithmetic(self) -> bool:
        if self._is_condition():
            raise self._fault(CONTINUED)
        at = self._at
        binding = _ARITHMETIC[self._kinds[at] if self._kinds[at] == "DIV" else self._texts[at]]
        self._reduce(binding)
        self._waiting.append((binding, at, len(self._operands) - 1))
        self._at += 1
        return False

    def _comma(self) -> bool:
        self._close_up()
        if len(self._waiting) == 1:
            raise self._fault(CONTINUED)
        self._at += 1
        return False

    def _leave(self) -> bool:
        """A parenthesis that closes: a function, an IN with its list, a group, or a list."""
        self._close_up()
        if len(self._waiting) == 1:
            raise self._fault(CONTINUED, "a ) needs a ( before it")
        _, index, before = self._waiting.pop()
        self._depth -= 1
        parts = tuple(self._operands[before:])
        del self._operands[before:]
        self._operands.append(self._enclosed(index, parts))
        self._at += 1
        return True

    def _enclosed(self, index: int, parts: tuple[Syntax, ...]) -> Syntax:
        if self._kinds[index] == "name":
            return self._call(self._texts[index].upper(), index, parts)
        if self._kinds[index] == "IN":
            return self._condition("IN", index, parts)
        # Around a list, parentheses cannot group: they make a list of one list.
        if len(parts) == 1 and parts[0].kind != "list":
            parts[0].grouped = True
            return parts[0]
        height = 1 + max([part.height for part in parts], default=0)
        return Syntax("list", None, self._starts[index], self._locate, "", parts, height)

    def _unit(self) -> bool:
        """The unit of a time, behind a number in an aggregate: both are one text."""
        binding, index, before = self._waiting[-1]
        number, unit = self._operands[-1], self._texts[self._at]
        over = binding == _OPEN and self._kinds[index] == "name" and self._texts[index].upper() in AGGREGATES
        if not (over and number.kind == "number" and len(self._operands) == before + 2 and unit in UNITS):
            return self._no_operator()
        written = f"{number.written} {unit}"
        self._operands[-1] = Syntax("text", written, number.start, self._locate, written)
        self._at += 1
        return True

    def _no_operator(self) -> bool:
        self._close_up()
        raise self._fault(CONTINUED)

    # What is complete.

    def _close_up(self) -> None:
        """All that waits is complete, up to a parenthesis. Raises `Fault` for a BETWEEN without its AND."""
        self._reduce(_OR)
        if self._is_between():
            raise self._fault("BETWEEN low AND high", "for example: size BETWEEN 1 AND 2")

    def _reduce(self, binding: int) -> None:
        """Completes what waits and binds at least as tight."""
        waiting, operands = self._waiting, self._operands
        while waiting[-1][0] >= binding:
            _, index, before = waiting.pop()
            parts = tuple(operands[before:])
            del operands[before:]
            operands.append(self._completed(self._kinds[index], index, parts))

    def _completed(self, kind: str, index: int, parts: tuple[Syntax, ...]) -> Syntax:
        text = self._texts[index]
        if kind == "compare":
            return self._condition("<>" if text == "!=" else text, index, parts)
        if kind in ("LIKE", "BETWEEN"):
            return self._condition(kind, index, parts)
        if kind == "NOT":
            self._depth -= 1
            return self._call(kind, index, parts)
        if len(parts) == 1:
            minus = Syntax("number", -1, self._starts[index], self._locate, "-1")
            return call_of("*", (minus, *parts), self._starts[index], self._locate, "")
        return call_of(text.upper(), parts, parts[0].start, self._locate, kind if kind in ("AND", "OR") else text)

    def _condition(self, name: str, index: int, parts: tuple[Syntax, ...]) -> Syntax:
        """A comparison, or its negation if a NOT stands before its word."""
        if name == "LIKE":
            _read_pattern(parts[1])
        found = call_of(name, parts, parts[0].start, self._locate, name)
        if self._kinds[index - 1] != "NOT":
            return found
        return call_of("NOT", (found,), found.start, self._locate, "a condition with NOT")

    def _call(self, name: str, index: int, parts: tuple[Syntax, ...]) -> Syntax:
        return call_of(name, parts, self._starts[index], self._locate, self._texts[index])

    def _is_between(self) -> bool:
        """Whether a BETWEEN waits for its AND."""
        return self._waiting[-1][0] == _BETWEEN

    def _is_condition(self) -> bool:
        """Whether the last operand is a condition that is complete, and in no parentheses."""
        last = self._operands[-1]
        return not last.grouped and (last.kind == "atom" or (last.kind == "call" and last.value in CONDITIONS))

    def _deepen(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            expected, came = f"parentheses and NOTs at most {MAX_DEPTH} deep", f"a depth of {self._depth} or more"
            where = self._locate(self._starts[self._at])
            raise Fault(expected, came, where, "write the filter flatter, or split it")

    def _fault(self, expected: str, advice: str = "") -> Fault:
        """What is said of the token at which the parser is."""
        advice = advice or on_token(self._tokens, self._at)
        return Fault(expected, self._texts[self._at], self._locate(self._starts[self._at]), advice)


_Step = Callable[[_Parser], bool]

_OPERANDS: dict[str, _Step] = {
    "name": _Parser._name,
    "quoted": _Parser._quoted,
    "text": _Parser._text,
    "number": _Parser._number,
    "TRUE": _Parser._boolean,
    "FALSE": _Parser._boolean,
    "NULL": _Parser._null,
    "sign": _Parser._sign,
    "NOT": _Parser._not,
    "(": _Parser._open,
    ")": _Parser._nothing,
}
_OPERATORS: dict[str, _Step] = {
    "AND": _Parser._joint,
    "OR": _Parser._joint,
    "compare": _Parser._comparison,
    "LIKE": _Parser._comparison,
    "BETWEEN": _Parser._between,
    "IN": _Parser._in,
    "values": _Parser._values,
    "name": _Parser._unit,
    "IS": _Parser._is,
    "NOT": _Parser._negated,
    "sign": _Parser._arithmetic,
    "DIV": _Parser._arithmetic,
    ",": _Parser._comma,
    ")": _Parser._leave,
}


def _read_pattern(syntax: Syntax) -> None:
    """Reads the text of a pattern as one, within CASEI and ACCENTI or alone."""
    while len(syntax.parts) == 1:
        syntax = syntax.parts[0]
    if syntax.kind == "text":
        syntax.value = pattern_of(syntax.written)
