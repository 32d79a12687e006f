"""Arithmetic on integers and doubles: exact where integers are, and without a result where there is no finite one."""

from __future__ import annotations

import math
from collections.abc import Callable

from nearcast.model.values import INTEGER_MAXIMUM, INTEGER_MINIMUM

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
