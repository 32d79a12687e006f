"""A receiver's context: readings to classes, these to one context class, matrices to priorities (SEMANTICS §3)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

Matrix = tuple[tuple[int, ...], ...]
"""matrix[c][k]: the priority of an event of level k for a client in context class c; −1 means "do not send"."""


@dataclass(frozen=True, slots=True)
class Awareness:
    """One awareness module: turns a reading into a class by intervals.

    `bounds` are the N−1 inclusive upper bounds, ascending: readings up to bounds[0] are class 0, above the last N−1.
    """

    reading: str
    bounds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ContextSpace:
    """Maps the vector of the modules' classes to one context class, 0 the worst.

    `table` holds a class for every vector, in row-major order of the modules; None: the minimum of the modules. A
    module without a reading is left out of the minimum and counts as its best class in a table.
    """

    modules: tuple[Awareness, ...] = ()
    table: tuple[int, ...] | None = None


def equal_intervals(maximum: float, levels: int) -> tuple[float, ...]:
    """The default bounds of a module: N equal intervals up to the stated maximum, upper bounds inclusive.

    Exact on the decimal that was written: a third of 0.3 is 0.1.
    """
    exact = Fraction(repr(maximum))
    return tuple(float(exact * (index + 1) / levels) for index in range(levels - 1))
