"""Numbers as they are written, and lists of literals behind IN, which are read at once.

A list of a hundred thousand values would cost a token, a node of syntax, a type and a place for each. What is no plain
literal, or may not stand where it stands, is left to those who read one by one, and can say which it is.
"""

from __future__ import annotations

import re

from nearcast.model.values import INTEGER_MAXIMUM, INTEGER_MINIMUM, narrowed

Literal = int | float | str

# Nothing is tried twice: what follows a literal never begins as it might go on.
_LITERAL = r"(?:'[^'\\]*+(?:''[^'\\]*+)*+'|-?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+)"
_ONE = re.compile(_LITERAL)

LITERALS = re.compile(rf"\s*+{_LITERAL}(?:\s*+,\s*+{_LITERAL})*+(?=\s*+\))")
"""Literals without backslashes and blanks in them, with commas between them, before a closing parenthesis."""


def literals_of(written: str) -> tuple[Literal, ...] | None:
    """The literals of a list that `LITERALS` matches; None where a number is beyond 64 bits."""
    values = [_literal(one) for one in _ONE.findall(written)]
    return None if None in values else tuple(values)  # type: ignore[arg-type]


def _literal(written: str) -> Literal | None:
    if written[0] == "'":
        return written[1:-1].replace("''", "'")
    return exact(written[1:], True) if written[0] == "-" else exact(written)


def exact(written: str, negative: bool = False) -> int | float | None:
    """The number that is written, exactly; None beyond 64 bits. Up to 2^53 an integral double is that integer."""
    # Python refuses to read so many digits.
    if len(written) > 4000 and written.isdigit():
        return None
    value: int | float = int(written) if written.isdigit() else float(written)
    value = narrowed(-value if negative else value)
    if isinstance(value, float):
        return value if abs(value) != float("inf") else None
    return value if INTEGER_MINIMUM <= value <= INTEGER_MAXIMUM else None
