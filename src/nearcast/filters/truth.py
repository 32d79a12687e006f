"""Three truths, as SQL and CQL2 have them: TRUE, FALSE, and UNKNOWN, which is None. And how values compare."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable
from typing import Any

Truth = bool | None

COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""What each comparison does with two values of one kind, or with whole columns of them."""


def some(truths: Iterable[Truth]) -> Truth:
    """TRUE if one is, FALSE if one is known, else UNKNOWN: it is enough that some of a name's values compare."""
    result: Truth = None
    for truth in truths:
        if truth:
            return True
        result = result if truth is None else False
    return result


def joined(decisive: bool, truths: Collection[Truth]) -> Truth:
    """AND, where FALSE is `decisive`, or OR, where TRUE is: what is not decided by one is UNKNOWN if one of them is."""
    if decisive in truths:
        return decisive
    return None if None in truths else not decisive


def both(a: Truth, b: Truth) -> Truth:
    """Of the two ends of a BETWEEN: UNKNOWN where either does not compare, though the other be FALSE."""
    return None if a is None or b is None else a and b


def negated(truth: Truth) -> Truth:
    """NOT: of UNKNOWN it is UNKNOWN."""
    return None if truth is None else not truth
