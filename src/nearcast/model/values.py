"""Typed values of attributes and literals, and exact arithmetic on them (semantics §1, §2)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

Value = int | float | str | bool | datetime
Kind = Literal["number", "text", "boolean", "time"]

INTEGER_MINIMUM, INTEGER_MAXIMUM = -(2**63), 2**63 - 1

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
"""What moments as numbers are counted from."""

EXACT = 2**53
"""Doubles hold every integer up to here."""

SHORTEST_TIME = 19
"""Characters that a date-time has at least."""

_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:(\d\d)(?:\.\d+)?([Zz]|[+-]\d\d:\d\d)?", re.ASCII)


def kind_of(value: Value) -> Kind:
    """The kind within which `value` compares: integers and doubles are one kind, every other type its own."""
    # Before the numbers: in Python a bool is an integer.
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return "text" if isinstance(value, str) else "time"


def kinds_of(values: Sequence[Value]) -> tuple[Kind, ...]:
    """The kind of each of some values."""
    if len(values) < 2:
        return (kind_of(values[0]),) if values else ()
    # Of a hundred thousand literals most are of one type.
    kinds = {type(value): kind_of(value) for value in {type(value): value for value in values}.values()}
    return tuple([kinds[type(value)] for value in values])


def is_exact(value: object) -> bool:
    """Whether a value is a number that a double holds without loss."""
    # By exact type: in Python a bool is an integer.
    return type(value) is float or (type(value) is int and -EXACT <= value <= EXACT)


def narrowed(value: int | float) -> int | float:
    """The integer that a double up to `EXACT` is, if it is one: 150.0 and 150 are then one literal."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= EXACT else value


def time_text(moment: datetime) -> str:
    """A moment as RFC 3339 text in UTC, with as many digits as it has: `time_of` inverts it."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def microseconds_of(moment: datetime) -> int:
    """A moment as whole microseconds since 1970."""
    return (moment - BEGINNING) // timedelta(microseconds=1)


def moment_at(microseconds: int) -> datetime:
    """The moment so many microseconds after 1970 began."""
    return BEGINNING + timedelta(microseconds=microseconds)


def may_be_time(text: str) -> bool:
    """Whether a text may name a moment, by a look that costs little: every text is asked, and hardly one does."""
    return len(text) >= SHORTEST_TIME and text[4] == "-"


def time_of(text: str) -> datetime | None:
    """The moment that an RFC 3339 date-time names, in UTC to the microsecond; None for any other text.

    JSON has no timestamps: where a text is compared with a timestamp, the text counts as the moment it names. One
    without a zone is taken as UTC, as data sets that have only one zone write it. A leap second is the second after it.
    """
    found = _DATE_TIME.fullmatch(text) if may_be_time(text) else None
    if not found:
        return None
    try:
        if found[1] == "60":
            return _after_leap(text, found)
        moment = datetime.fromisoformat(text.upper())
        zoned = moment if found[2] else moment.replace(tzinfo=UTC)
        return zoned if zoned.tzinfo is UTC else zoned.astimezone(UTC)
    # Of the right form, but a 30th of February; or a moment that in UTC lies beyond the year 9999.
    except (ValueError, OverflowError):
        return None


def _after_leap(text: str, found: re.Match[str]) -> datetime | None:
    """The moment of a leap second, as POSIX counts it; None where there can be none (RFC 3339, 5.7)."""
    before = time_of(f"{text[: found.start(1)]}59{text[found.end(1) :]}")
    after = before + timedelta(seconds=1) if before else None
    return after if after and (after.day, after.hour, after.minute) == (1, 0, 0) else None


def has_zone(text: str) -> bool:
    """Whether a date-time ends with a zone, as RFC 3339 demands."""
    return text[-1:] in "Zz" or text[-6:-5] in ("+", "-")


Number = int | float

EXACT_BITS = 128
"""Powers of integers beyond this are computed as doubles: an exact one could have any size."""


def calculate(operator: str, a: Number, b: Number) -> Number | None:
    """`a operator b`; None for a division by zero and wherever no finite number is the result.

    Integers stay exact up to 64 bits; a result beyond is the nearest double. `/` of integers is exact where it comes
    out even; `DIV` and `%` cut towards zero, so that `a = (a DIV b) * b + a % b`.
    """
    try:
        result = _OPERATIONS[operator](a, b)
        if isinstance(result, int) and not INTEGER_MINIMUM <= result <= INTEGER_MAXIMUM:
            result = float(result)
    except (ArithmeticError, ValueError):
        return None
    # A negative number to a broken power is complex.
    if isinstance(result, complex) or not math.isfinite(result):
        return None
    return result


def _divided(a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int) and a % b == 0:
        return a // b
    return a / b


def _remainder(a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        return -(-a % abs(b)) if a < 0 else a % abs(b)
    return math.fmod(a, b)


def _whole(a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        return (a - _remainder(a, b)) // b
    return math.trunc(a / b)


def _power(a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int) and b >= 0 and (abs(a) <= 1 or a.bit_length() * b <= EXACT_BITS):
        return int(a**b)
    return float(a) ** b


_OPERATIONS: dict[str, Callable[[Number, Number], Number]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divided,
    "%": _remainder,
    "DIV": _whole,
    "^": _power,
}
