"""A receiver's context: readings to classes, these to one context class, matrices to priorities (semantics §3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from nearcast.errors import Fault

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


WITHHELD = -1
"""The priority that means "do not send"."""


def delay_matrix(levels: int) -> Matrix:
    """The delay strategy: P = max(0, N−1−(k+c)); what matters less waits longer, nothing is withheld (table 4-8)."""
    return tuple(tuple(max(0, levels - 1 - (k + c)) for k in range(levels)) for c in range(levels))


def restriction_matrix(levels: int) -> Matrix:
    """The restriction strategy: in context class c only the c+1 highest levels are sent (table 4-9).

    The thesis prints N = 3; its rows read: the highest class always first, the next ones as far as context allows.
    For N = 3: c=0 → (−1, −1, 0), c=1 → (−1, 1, 0), c=2 → (0, 0, 0).
    """
    return tuple(tuple(_restricted(c, k, levels) for k in range(levels)) for c in range(levels))


def _restricted(c: int, k: int, levels: int) -> int:
    if c == levels - 1:
        return 0
    below_top = levels - 1 - k
    return below_top if below_top <= c else WITHHELD


def matrix_fault(matrix: Sequence[Sequence[int]], levels: int) -> Fault | None:
    """What is wrong with a user's matrix, or None: N rows of N priorities, never less urgent as the level rises."""
    if len(matrix) != levels or any(len(row) != levels for row in matrix):
        shape = " and ".join(sorted({str(len(row)) for row in matrix})) or "no"
        return Fault(f"a matrix of {levels} rows of {levels} priorities", f"{len(matrix)} rows of {shape}")
    for c, row in enumerate(matrix):
        wrong = [value for value in row if not WITHHELD <= value < levels]
        if wrong:
            return Fault(f"priorities from -1 to {levels - 1}", f"{wrong[0]} in row {c}")
        # Withheld counts as the longest wait.
        waits = [levels if value == WITHHELD else value for value in row]
        if waits != sorted(waits, reverse=True):
            return Fault("rows that never get less urgent as the relevance rises", f"{list(row)} in row {c}")
    return None
