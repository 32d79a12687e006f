"""Units of measure: whether there is one of a name, and how a reading in one becomes one in another."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pint

_NAME = r"[^\W\d][\w°%Ω]*|[°%Ω][\w°%Ω]*"
_POWER = r"(?:(?:\^|\*\*)-?[1-9])?"
_WRITTEN = re.compile(rf"(?:{_NAME}){_POWER}(?: ?[*/ ] ?(?:{_NAME}){_POWER})*")
LONGEST = 60
"""Senders write units, too, and the library computes what it is given: no tower of powers may come to it."""


@lru_cache(maxsize=4096)
def conversion(given: str, wanted: str) -> tuple[float, float] | None:
    """The (scale, shift) with which a reading in `given`, times scale plus shift, is one in `wanted`; None: there is
    no such conversion, or one of them is no unit.
    """
    if given == wanted:
        return 1.0, 0.0
    if not (is_unit(given) and is_unit(wanted)):
        return None
    # Where the libraries of units differ in what they raise: whatever it is, there is no conversion.
    try:
        zero, one, two = (float(_registry().Quantity(value, given).to(wanted).magnitude) for value in (0.0, 1.0, 2.0))
    except Exception:
        return None
    scale, shift = one - zero, zero
    # Decibels and the like are no straight line.
    return (scale, shift) if abs(two - one - scale) <= 1e-9 * max(1.0, abs(scale)) else None


@lru_cache(maxsize=4096)
def is_unit(name: str) -> bool:
    """Whether a text names a unit."""
    if len(name) > LONGEST or not _WRITTEN.fullmatch(name):
        return False
    try:
        _registry().parse_units(name)
    except Exception:
        return False
    return True


@lru_cache(maxsize=4096)
def product(a: str, b: str, over: bool = False) -> str | None:
    """The unit of values in `a` times values in `b`, or over them; None: one is no unit, or it is too long to write."""
    if not (is_unit(a) and is_unit(b)):
        return None
    left, right = _registry().parse_units(a), _registry().parse_units(b)
    written = f"{left / right if over else left * right:C}"
    return written if is_unit(written) else None


@cache
def names() -> tuple[str, ...]:
    """The names of all units, for a guess of what was meant."""
    return tuple(sorted(_registry()))


@cache
def _registry() -> pint.UnitRegistry[float]:
    # Reading all units takes a third of a second: who has none does not wait for it.
    import pint

    return pint.UnitRegistry()
