"""Priority matrices: the two of the thesis, and what a matrix of one's own must keep (SEMANTICS §3)."""

from __future__ import annotations

from nearcast.model.context import Matrix


def delay(levels: int) -> Matrix:
    """The delay strategy, the default: P = max(0, N − 1 − (k + c)); everything is sent, the less relevant later."""
    return tuple(tuple(max(0, levels - 1 - (k + c)) for k in range(levels)) for c in range(levels))


def restriction() -> Matrix:
    """The restriction strategy (thesis table 4-9), which is for three levels: what matters little is not sent."""
    return ((-1, -1, 0), (-1, 1, 0), (0, 0, 0))


def disorder(matrix: Matrix, levels: int) -> str | None:
    """What is wrong with a matrix, in words; None if it is one.

    It has a row for each context class and a column for each level, values −1..N−1, and no row gets less urgent as
    the level rises; −1, not sent, is the least urgent.
    """
    if len(matrix) != levels or any(len(row) != levels for row in matrix):
        return f"{len(matrix)} rows of {', '.join(str(len(row)) for row in matrix)} values"
    for c, row in enumerate(matrix):
        for k, priority in enumerate(row):
            if not -1 <= priority < levels:
                return f"{priority} in row {c}"
            if k and (priority if priority >= 0 else levels) > (row[k - 1] if row[k - 1] >= 0 else levels):
                return f"{row[k - 1]} before {priority} in row {c}: less urgent although more relevant"
    return None
