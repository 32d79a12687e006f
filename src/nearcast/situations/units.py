"""Units of measure: whether there is one of a name, and how a reading in one becomes one in another."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pint

_NAME = r"[^\W\d][\w°%Ω]*|[°%Ω][\w°%Ω]*"
_POWER = r"(?:(?:\^|\*\*)-?[1-9])?"
_WRITTEN = re.compile(rf"(?:{_NAME}){_POWER}(?: ?[*/ ] ?(?:{_NAME}){_POWER})*")
SAME = Fraction(1), Fraction(0)
"""The conversion that changes nothing."""

LONGEST = 60
"""Senders write units, too, and the library computes what it is given: no tower of powers may come to it."""


@lru_cache(maxsize=4096)
def conversion(given: str, wanted: str) -> tuple[Fraction, Fraction] | None:
    """The (scale, shift) with which a reading in `given`, times scale plus shift, is one in `wanted`; None: there is
    no such conversion, or one of them is no unit.
    """
    if given == wanted:
        return SAME
    if not (is_unit(given) and is_unit(wanted)):
        return None
    # Where the libraries of units differ in what they raise: whatever it is, there is no conversion.
    for number in (Fraction, float):
        try:
            quantity = _registry(number).Quantity
            zero, one, two = (Fraction(quantity(number(value), given).to(wanted).magnitude) for value in (0, 1, 2))
        except Exception:
            continue
        scale = one - zero
        # Decibels and the like are no straight line.
        return (scale, zero) if abs(two - one - scale) <= max(Fraction(1), abs(scale)) / 10**9 else None
    return None


def converted(value: float, by: tuple[Fraction, Fraction]) -> float:
    """A reading in another unit, rounded once: 212 degrees Fahrenheit are 100 degrees Celsius, and no less."""
    scale, shift = by
    try:
        return float(Fraction(value) * scale + shift)
    except OverflowError:
        # Infinity stays what it is; and a unit a sender wrote may be beyond all numbers, so that its readings are.
        return math.inf if (value > 0) == (scale > 0) else -math.inf
    except ValueError:
        return math.nan


@lru_cache(maxsize=4096)
def is_unit(name: str) -> bool:
    """Whether a text names a unit."""
    if len(name) > LONGEST or not _WRITTEN.fullmatch(name):
        return False
    try:
        _registry(float).parse_units(name)
    except Exception:
        return False
    return True


@lru_cache(maxsize=4096)
def product(a: str, b: str, over: bool = False) -> str | None:
    """The unit of values in `a` times values in `b`, or over them; None: one is no unit, or it is too long to write."""
    if not (is_unit(a) and is_unit(b)):
        return None
    left, right = _registry(float).parse_units(a), _registry(float).parse_units(b)
    written = f"{left / right if over else left * right:C}"
    return written if is_unit(written) else None


@cache
def names() -> tuple[str, ...]:
    """The names of all units, for a guess of what was meant."""
    return tuple(sorted(_registry(float)))


@cache
def _registry(number: type) -> pint.UnitRegistry[Any]:
    """All units, their factors being such numbers."""
    # Reading all units takes a third of a second: who has none does not wait for it.
    import pint

    return pint.UnitRegistry(non_int_type=number)
