"""Numbers as they are written, and lists of literals behind IN, which are read at once.

A list of a hundred thousand values would cost a token, a node of syntax, a type and a place for each. What is no plain
literal, or may not stand where it stands, is left to those who read one by one, and can say which it is.
"""

from __future__ import annotations

import re

from nearcast.language.cql2_literals import UNESCAPED
from nearcast.model.values import INTEGER_MAXIMUM, INTEGER_MINIMUM, narrowed

Literal = int | float | str

# Nothing is tried twice: what follows a literal never begins as it might go on.
LITERAL = rf"(?:{UNESCAPED}|-?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+)"
"""A literal without backslashes and blanks in it, a regular expression."""

_ONE = re.compile(LITERAL)

LITERALS = re.compile(rf"\s*+{LITERAL}(?:\s*+,\s*+{LITERAL})*+(?=\s*+\))")
"""Such literals with commas between them, before a closing parenthesis."""


def literals_of(written: str) -> tuple[Literal, ...] | None:
    """The literals of a list that `LITERALS` matches; None where a number is beyond 64 bits."""
    values = [literal_of(one) for one in _ONE.findall(written)]
    return None if None in values else tuple(values)  # type: ignore[arg-type]


def literal_of(written: str) -> Literal | None:
    """The literal that `LITERAL` matches; None for a number beyond 64 bits."""
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
