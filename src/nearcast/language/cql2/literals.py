"""Literals of CQL2 (OGC 21-065r2, 8.2): from what is written to what is meant, and texts back again.

In a text the backslash is the escape character: before a quote, before itself, and in the names of seven control
characters. In a pattern of LIKE it is also what makes `%` and `_` plain, so there an escaped one stays for the pattern
to read. Before any other character it is itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from operator import itemgetter

from nearcast.model.values import INTEGER_MAXIMUM, INTEGER_MINIMUM, narrowed

PlainLiteral = int | float | str

_CONTROLS = {"a": "\a", "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r"}

STRICT = r"'[^'\\]*(?:(?:''|\\.)[^'\\]*)*'"
"""A text in which each backslash takes the next character, a regular expression."""

LOOSE = r"'(?:[^'\\]|''|(?>\\\\|\\'(?=[^'\s),=<>+*/%^-])|\\))*'"
"""The same where a quote may also end the text behind a backslash, as in `LIKE 'a\\'`: if it does not go on there."""

# Nothing is tried twice: what follows a literal never begins as it might go on.
_PLAIN = r"(?:'[^'\\]*+(?:''[^'\\]*+)*+'|-?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+)"
PLAIN_LIST = rf"\(\s*+{_PLAIN}(?:\s*+,\s*+{_PLAIN})*+\s*+\)"
"""Literals in parentheses without backslashes, and without blanks after a sign. Read at once: one by one, a hundred
thousand would cost a token, a node of syntax, a type and a place each.
"""

_ONE = re.compile(_PLAIN)
_STRICT = re.compile(STRICT, re.DOTALL)
_ESCAPED = re.compile(r"''|\\(.)", re.DOTALL)
_LOOSELY_ESCAPED = re.compile(r"''|\\((?!'(?:'|\Z)).)", re.DOTALL)
_PAIRS = re.compile(r"\\(.)|['\\]", re.DOTALL)


def text_of(written: str) -> str:
    """The text that a literal means, quotes around it."""
    if "\\" not in written:
        return written[1:-1].replace("''", "'")
    return _replaced(written, lambda character: character if character in "'\\" else None)


def pattern_of(written: str) -> str:
    """The pattern of LIKE that a literal means, quotes around it."""
    if "\\" not in written:
        return text_of(written)
    return _replaced(written, lambda character: character if character == "'" else None)


def _replaced(written: str, plain: Callable[[str], str | None]) -> str:
    def meant(found: re.Match[str]) -> str:
        """What a doubled quote or a backslash and what follows it stand for."""
        if found[0] == "''":
            return "'"
        return _CONTROLS.get(found[1]) or plain(found[1]) or found[0]

    escaped = _ESCAPED if _STRICT.fullmatch(written) else _LOOSELY_ESCAPED
    return escaped.sub(meant, written[1:-1])


def text_literal(text: str) -> str:
    """A text as a literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def pattern_literal(pattern: str) -> str:
    """A pattern of LIKE as a literal; a backslash before what needs none may be left out."""
    return "'" + _PAIRS.sub(_written, pattern) + "'"


def _written(found: re.Match[str]) -> str:
    if found[1] is None:
        return "''" if found[0] == "'" else "\\\\"
    if found[1] == "'":
        return "''"
    return found[1] if found[1] in _CONTROLS else found[0]


def literals_of(written: str) -> tuple[PlainLiteral, ...] | None:
    """The literals of a list as `PLAIN_LIST` has it; None where a number is beyond 64 bits."""
    # Without backslashes a text is what stands between its quotes, but for those that are doubled.
    doubled = "''" in written
    values = [
        (one[1:-1].replace("''", "'") if doubled else one[1:-1]) if one[0] == "'" else number_of(one)
        # One by one: all at once, of a megabyte, would hold up every other thread meanwhile.
        for one in map(itemgetter(0), _ONE.finditer(written))
    ]
    return None if None in values else tuple(values)  # type: ignore[arg-type]


def count_literals(written: str, most: int) -> int:
    """How many literals a list has, as `PLAIN_LIST` has it, counted up to so many."""
    return sum(1 for _ in islice(_ONE.finditer(written), most))


def number_of(written: str) -> int | float | None:
    """The number that is written, exactly; None beyond 64 bits. Up to 2^53 an integral double is that integer."""
    try:
        value: int | float = int(written)
    # No integer; or more digits than Python reads, and they are too many for a double as well.
    except ValueError:
        value = narrowed(float(written))
    if isinstance(value, float):
        return value if abs(value) != float("inf") else None
    return value if INTEGER_MINIMUM <= value <= INTEGER_MAXIMUM else None
