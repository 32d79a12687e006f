"""The grammar of CQL2 text (OGC 21-065r2, annex B): from tokens to syntax, by precedence climbing.

From loosest to tightest: OR, AND, NOT, one comparison, + and −, * / % DIV, ^, a sign. Chains are read in loops and
nesting has a limit, so no text is too long or too deep for the stack, and every text is read in one pass.
"""

from __future__ import annotations

from dataclasses import replace

from nearcast.errors import Fault
from nearcast.language.cql2_geometry import GEOMETRIES, Geometries
from nearcast.language.marks import Locate
from nearcast.language.syntax import Syntax
from nearcast.language.tokens import MAX_DEPTH, Token, tokenize
from nearcast.model.values import INTEGER_MAXIMUM, INTEGER_MINIMUM

MAX_HEIGHT = 50
"""Depth of an arithmetic expression; each operator of a chain makes it one deeper."""

OR, AND, NOT, COMPARISON = 1, 2, 3, 4
BINDING = {
    "OR": OR,
    "AND": AND,
    **dict.fromkeys(("LIKE", "IN", "BETWEEN", "IS"), COMPARISON),
    **dict.fromkeys(("+", "-"), 5),
    **dict.fromkeys(("*", "/", "%", "DIV"), 6),
    "^": 7,
}
"""How tight operators bind that stand behind an operand."""

CONTINUED = "a comparison, AND, OR or the end of the condition"


def read_text(text: str, locate: Locate) -> Syntax:
    """The syntax of a CQL2 text. Raises `Fault` with the place of the token that cannot stand there."""
    tokens = tokenize(text, locate)
    if len(tokens) == 1:
        raise Fault("a CQL2 filter", "an empty text", locate(0), "for example: type = 'unit' AND size > 10")
    return _Grammar(tokens, locate).filter()


class _Grammar:
    """Reads tokens from left to right; `_at` is the next one."""

    def __init__(self, tokens: list[Token], locate: Locate) -> None:
        self._tokens = tokens
        self._locate = locate
        self._at = 0
        self._depth = 0
        self._geometries = Geometries(self._take, self._next, self.fault)

    def filter(self) -> Syntax:
        """All of the text."""
        syntax = self._expression(OR)
        if self._next().kind != "end":
            advice = "" if self._next().kind != "close" else "a ) needs a ( before it"
            raise self.fault(CONTINUED, advice)
        return syntax

    def _expression(self, binding: int) -> Syntax:
        """An operand with all operators behind it that bind at least as tight."""
        left = self._negation() if binding <= NOT and self._next().is_word("NOT") else self._operand()
        while (own := self._binding()) >= binding:
            if own in (OR, AND):
                left = self._chain(left, own)
            elif own == COMPARISON:
                left = self._compared(left)
            else:
                left = self._operation(left, own)
        return left

    def _binding(self) -> int:
        """How tight the next token binds, as an operator; 0 if it is none."""
        token = self._next()
        if token.kind in ("sign", "word"):
            own = BINDING.get(token.word, 0)
            negated = token.is_word("NOT") and self._tokens[self._at + 1].is_word("LIKE", "IN", "BETWEEN")
            return COMPARISON if negated else own
        return COMPARISON if token.kind == "compare" else 0

    def _chain(self, left: Syntax, own: int) -> Syntax:
        # In a loop, not by recursion: a filter may join thousands of conditions.
        word, found = self._next().word, [left]
        while self._next().is_word(word):
            self._take()
            found.append(self._expression(own + 1))
        return Syntax("call", word, left.where, word, tuple(found))

    def _negation(self) -> Syntax:
        negations: list[Token] = []
        while self._next().is_word("NOT"):
            negations.append(self._take())
            self._deepen(negations[-1])
        syntax = self._expression(COMPARISON)
        for token in reversed(negations):
            syntax = Syntax("call", "NOT", self._locate(token.start), "NOT", (syntax,))
            self._depth -= 1
        return syntax

    def _operation(self, left: Syntax, own: int) -> Syntax:
        token = self._take()
        came = f"the arithmetic sign {token.text}"
        syntax = Syntax("call", token.word, left.where, came, (left, self._expression(own + 1)))
        if syntax.height > MAX_HEIGHT:
            expected, came = f"an expression at most {MAX_HEIGHT} deep", f"a depth of {syntax.height} or more"
            raise Fault(expected, came, self._locate(token.start))
        return syntax

    def _compared(self, left: Syntax) -> Syntax:
        """The one comparison that stands behind an expression."""
        token = self._take()
        negated = token.is_word("NOT")
        word = self._take().word if negated else token.word
        if token.kind == "compare":
            syntax = self._call("<>" if token.text == "!=" else token.text, left, self._expression(COMPARISON + 1))
        elif word == "IS":
            negated, syntax = self._presence(left)
        elif word == "LIKE":
            syntax = self._call("LIKE", left, self._expression(COMPARISON + 1))
        else:
            syntax = self._listed(left) if word == "IN" else self._between(left)
        if self._binding() == COMPARISON:
            came = f"a second one, {self._next().text}"
            raise Fault("one comparison between AND, OR and parentheses", came, self._locate(self._next().start))
        return self._call("NOT", syntax) if negated else syntax

    def _call(self, name: str, *parts: Syntax) -> Syntax:
        return Syntax("call", name, parts[0].where, f"a condition with {name}", parts)

    def _presence(self, left: Syntax) -> tuple[bool, Syntax]:
        negated = self._next().is_word("NOT")
        if negated:
            self._take()
        self._expect("NULL", self._next().is_word("NULL"))
        return negated, self._call("IS NULL", left)

    def _between(self, left: Syntax) -> Syntax:
        low = self._expression(COMPARISON + 1)
        self._expect("BETWEEN low AND high", self._next().is_word("AND"))
        return self._call("BETWEEN", left, low, self._expression(COMPARISON + 1))

    def _listed(self, left: Syntax) -> Syntax:
        self._deepen(self._expect("( after IN", self._next().kind == "open"))
        return self._call("IN", left, *self._until_closed("a value"))

    def _operand(self) -> Syntax:
        """What operators stand between, with its signs."""
        signs: list[Token] = []
        while self._next().kind == "sign" and self._next().text in "+-":
            signs.append(self._take())
            self._deepen(signs[-1])
        # A sign belongs to the number behind it: −2^63 is an integer, 2^63 is none.
        number = self._next().kind == "number"
        syntax = self._number(self._take(), signs[-1] if signs else None) if number else self._primary()
        self._depth -= len(signs)
        for token in reversed(signs[:-1] if number else signs):
            if token.text == "-":
                where = self._locate(token.start)
                parts = (Syntax("number", -1, where, "-1"), syntax)
                syntax = Syntax("call", "*", where, "a negative value", parts)
        return syntax

    def _primary(self) -> Syntax:
        token = self._next()
        if token.kind == "open":
            return self._parentheses()
        if token.kind == "word":
            return self._constant()
        if token.kind == "text":
            return Syntax("text", _without_escapes(self._take().text[1:-1]), self._locate(token.start), token.text)
        if token.kind == "quoted":
            return self._property(self._take(), token.text[1:-1].replace('""', '"'))
        if token.kind == "name":
            if token.word in GEOMETRIES and self._geometry_follows():
                return self._geometry()
            return self._function() if self._tokens[self._at + 1].kind == "open" else self._property(self._take())
        raise self.fault(self._missing())

    def _missing(self) -> str:
        """What is missing before the next token, which begins no operand."""
        comparison = self._next().kind == "compare" or self._next().is_word("AND", "OR", "LIKE", "IN", "BETWEEN", "IS")
        before = self._tokens[self._at - 1] if self._at else None
        if comparison and (before is None or before.kind == "open" or before.kind == "word"):
            return f"something before {self._next().word}"
        return "a name, a literal, a function or ("

    def _constant(self) -> Syntax:
        token = self._next()
        where = self._locate(token.start)
        if token.is_word("TRUE", "FALSE"):
            return Syntax("boolean", self._take().word == "TRUE", where, token.text)
        if token.is_word("NULL"):
            return Syntax("null", None, self._locate(self._take().start), token.text)
        following = self._tokens[self._at + 1]
        negated = token.is_word("NOT") and following.is_word("LIKE", "IN", "BETWEEN")
        word = following if negated else token
        advice = f'if {word.text} is a name, write it in double quotes: "{word.text}"'
        raise Fault(f"something before {word.word}", token.text, where, advice)

    def _property(self, token: Token, unquoted: str | None = None) -> Syntax:
        name = token.text if unquoted is None else unquoted
        where = self._locate(token.start)
        if not name:
            raise Fault("the name of an attribute", '""', where)
        return Syntax("property", name, where, f"the attribute {token.text}")

    def _number(self, token: Token, sign: Token | None = None) -> Syntax:
        """A number with its sign, exactly."""
        where = self._locate((sign or token).start)
        written = (sign.text if sign else "") + token.text
        number = exact(token.text, bool(sign and sign.text == "-"))
        if number is None:
            advice = "integers reach from -2^63 to 2^63 - 1"
            raise Fault("a number within 64 bits", written, where, advice)
        return Syntax("number", number, where, written)

    def _function(self) -> Syntax:
        token = self._take()
        self._deepen(self._take())
        arguments = () if self._closes() else self._until_closed("an argument")
        return Syntax("call", token.word, self._locate(token.start), f"the function {token.text}", arguments)

    def _geometry_follows(self) -> bool:
        following, next_ = self._tokens[self._at + 1], self._tokens[min(self._at + 2, len(self._tokens) - 1)]
        dimension = following.word in ("Z", "M", "ZM") and (next_.kind == "open" or next_.word == "EMPTY")
        return following.kind == "open" or dimension or following.word == "EMPTY"

    def _geometry(self) -> Syntax:
        where = self._locate(self._next().start)
        return Syntax("geometry", self._geometries.read(), where, "a geometry")

    def _parentheses(self) -> Syntax:
        """A group, or an array: what it is shows after the first comma or at the end."""
        opening = self._take()
        self._deepen(opening)
        where = self._locate(opening.start)
        if self._closes():
            return Syntax("list", None, where, "an empty list")
        parts = self._until_closed("a condition or value")
        # Around a list, parentheses cannot group: they make a list of one list.
        if len(parts) == 1 and parts[0].kind != "list":
            return replace(parts[0], grouped=True)
        return Syntax("list", None, where, "a list", parts)

    def _closes(self) -> bool:
        if self._next().kind != "close":
            return False
        self._take()
        self._depth -= 1
        return True

    def _until_closed(self, what: str) -> tuple[Syntax, ...]:
        """One or more expressions with commas between them, up to the closing parenthesis."""
        found = [self._expression(OR)]
        while self._next().kind == "comma":
            self._take()
            found.append(self._expression(OR))
        if not self._closes():
            raise self.fault(f"a comma or ) after {what}" if self._next().kind == "end" else CONTINUED)
        return tuple(found)

    def _deepen(self, token: Token) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            expected, came = f"parentheses and NOTs at most {MAX_DEPTH} deep", f"a depth of {self._depth} or more"
            raise Fault(expected, came, self._locate(token.start), "write the filter flatter, or split it")

    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, what: str, there: bool) -> Token:
        if not there:
            raise self.fault(what)
        return self._take()

    def fault(self, expected: str, advice: str = "") -> Fault:
        """The fault that the next token is not what is expected."""
        return Fault(expected, self._next().text, self._locate(self._next().start), advice)


def exact(written: str, negative: bool = False) -> int | float | None:
    """The number that is written, exactly; None beyond 64 bits. Up to 2^53 an integral double is that integer."""
    # Python refuses to read so many digits.
    if len(written) > 4000 and written.isdigit():
        return None
    value: int | float = int(written) if written.isdigit() else float(written)
    value = -value if negative else value
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        value = int(value)
    if isinstance(value, float):
        return value if abs(value) != float("inf") else None
    return value if INTEGER_MINIMUM <= value <= INTEGER_MAXIMUM else None


def _without_escapes(text: str) -> str:
    """A text with its escaped quotes as they are meant: `''`, and a backslash with a single quote."""
    pieces = text.split("''")
    return "'".join(piece.replace("\\'", "'") for piece in pieces)
