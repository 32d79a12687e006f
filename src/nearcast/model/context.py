"""A receiver's context: readings to classes, these to one context class, matrices to priorities (semantics §3)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from nearcast.errors import Fault

Matrix = tuple[tuple[int, ...], ...]
"""matrix[c][k]: the priority of an event of level k for a client in context class c; −1 means "do not send"."""


@dataclass(frozen=True, slots=True)
class Awareness:
    """One awareness module: turns a reading into a class by intervals.

    `bounds` are the N−1 inclusive upper bounds, ascending: readings up to bounds[0] are class 0, above the last N−1.
    A class is left only where a reading is beyond its bound by `margin`, in the reading's unit or, if that is
    `relative`, in percent of the bound, and has been so for `lasting` seconds by the readings' times. A reading holds
    for `valid` seconds after its moment, and is unknown then; None: until there is another.
    """

    reading: str
    bounds: tuple[float, ...]
    margin: float = 0.0
    relative: bool = False
    lasting: float = 0.0
    valid: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the class rests on earlier readings too."""
        return self.margin > 0 or self.lasting > 0

    def class_of(self, reading: float) -> int:
        """The class of one reading alone: how many of the inclusive upper bounds lie below it."""
        return bisect_left(self.bounds, reading)


@lru_cache(maxsize=1024)
def widened(module: Awareness) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The bounds above which readings must be to rise over them, and down to which to fall below them.

    Exact on the decimals that were written.
    """
    margin = Fraction(repr(module.margin))
    exact = [Fraction(repr(bound)) for bound in module.bounds]
    margins = [bound * margin / 100 if module.relative else margin for bound in exact]
    pairs = list(zip(exact, margins, strict=True))
    return tuple(float(a + b) for a, b in pairs), tuple(float(a - b) for a, b in pairs)


@dataclass(frozen=True, slots=True)
class HeldClass:
    """The class that a client is in by one reading, where a module holds classes.

    `moment`: of the newest reading that counted, microseconds since 1970. `toward`: for each bound between the class
    and that of the newest reading, the nearest first, since when readings have been beyond it; they are `rising`, or
    falling.
    """

    context_class: int
    moment: int = 0
    rising: bool = False
    toward: tuple[int, ...] = ()

    def fits(self, module: Awareness) -> bool:
        """Whether it is a class of this module, and leads to one."""
        leads_to = self.context_class + (len(self.toward) if self.rising else -len(self.toward))
        return all(0 <= one <= len(module.bounds) for one in (self.context_class, leads_to))


def held_after(module: Awareness, held: HeldClass | None, reading: float, moment: int) -> HeldClass:
    """The class after one more reading; None: it is the first. One that is older than the newest moves nothing."""
    if held is None:
        return HeldClass(module.class_of(reading), moment)
    if moment < held.moment:
        return held
    above, down_to = widened(module)
    # Between the two bounds of a border either class stays.
    wanted = min(max(held.context_class, bisect_left(above, reading)), bisect_left(down_to, reading))
    rising, distance = wanted > held.context_class, abs(wanted - held.context_class)
    since = held.toward[:distance] if rising == held.rising else ()
    since += (moment,) * (distance - len(since))
    crossed = sum(moment - one >= round(module.lasting * 1_000_000) for one in since)
    found = held.context_class + (crossed if rising else -crossed)
    return HeldClass(found, moment, rising and crossed < distance, since[crossed:])


@dataclass(frozen=True, slots=True)
class ContextSpace:
    """Maps the vector of the modules' classes to one context class, 0 the worst.

    `table` holds a class for every vector, in row-major order of the modules; None: the minimum of the modules. A
    module without a reading is left out of the minimum and counts as its best class in a table.
    """

    modules: tuple[Awareness, ...] = ()
    table: tuple[int, ...] | None = None

    def validities(self) -> dict[str, float]:
        """For how many seconds readings hold, by reading; those that hold until there is another are not in it."""
        return {one.reading: one.valid for one in self.modules if one.valid is not None}


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
