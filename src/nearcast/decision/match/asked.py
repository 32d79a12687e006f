"""What the atoms of one column ask, all at once: the classes that literals make, and each atom as a test of codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.decision.integers import distinct
from nearcast.decision.match.codes import Classes
from nearcast.decision.match.tests import Key
from nearcast.model.filter import Atom, Operator
from nearcast.model.values import EXACT

Integers = npt.NDArray[np.int64]

OPAQUE, RANGE, OUTSIDE, POINTS, NEARBY = range(5)
"""What an atom asks: nothing that codes show, a code in a range, one not in it, one of several; or to be near."""

_LT, _LE, _GT, _GE, _EQ, _NE, _BETWEEN, _IN = range(8)

# By its own text, for the hash of an enumeration is slow.
_NUMBER = {
    operator._value_: number
    for number, operator in enumerate(
        (
            Operator.LT, Operator.LE, Operator.GT, Operator.GE,
            Operator.EQ, Operator.NE, Operator.BETWEEN, Operator.IN,
        )
    )
}  # fmt: skip


def key_of(atom: Atom) -> Key | None:
    """The column of an atom; None if codes of one column cannot show its truth."""
    if type(atom.name) is not str or atom.operator._value_ not in _NUMBER:
        return None
    kinds = atom.kinds
    kind = kinds[0]
    if len(kinds) > 1 and kinds.count(kind) < len(kinds):
        return None
    # Only a number may be other than itself: NaN.
    if kind == "number" and any(value != value for value in atom.literals):
        return None
    return atom.name, kind


def operator_of(atom: Atom) -> int:
    """The number of the operator of an atom that has a column, as `Asked` has it."""
    # A list of one literal is a comparison like any other.
    single = type(atom.value) is tuple and len(atom.value) == 1
    return _EQ if single else _NUMBER[atom.operator._value_]


class Asked(NamedTuple):
    """The atoms of one column: of each its operator and how many literals it has, and these one behind the other.

    Literals are numbers: of any in `values`, which has each once.
    """

    operators: Integers
    counts: Integers
    literals: Integers
    values: list[Any]

    def compiled(self) -> tuple[Classes, Integers, Integers]:
        """The classes of the column; of each atom what it asks, its low and high, shape (3, n); and their points."""
        operators, counts, own = self.operators, self.counts, self.literals
        last = np.cumsum(counts) - 1
        first = last - counts + 1
        below = own[first[np.isin(operators, (_LT, _GE, _BETWEEN))]]
        upto = own[last[np.isin(operators, (_LE, _GT, _BETWEEN))]]
        equal = own[np.repeat(np.isin(operators, (_EQ, _NE, _IN)), counts)]
        classes, place = _classes(self.values, below, upto, equal)
        at, above = classes.cut[2 * place[own] + 1], classes.cut[2 * place[own] + 2]
        fields, top = np.empty((3, len(operators)), np.int64), classes.size - 1
        fields[0] = np.where(operators == _NE, OUTSIDE, RANGE)
        fields[1] = np.choose(operators, [0, 0, above[first], at[first], at[first], at[first], at[first], 0])
        fields[2] = np.choose(
            operators, [at[first], above[first], top, top, at[first] + 1, at[first] + 1, above[last], 0]
        )
        # BETWEEN with its bounds the wrong way round holds nowhere.
        fields[1:, fields[1] >= fields[2]] = 0
        return classes, fields, _points(fields, np.repeat(operators == _IN, counts), at, operators, counts)


def _points(
    fields: Integers, listed: npt.NDArray[np.bool_], at: npt.NDArray[np.int32], operators: Integers, counts: Integers
) -> Integers:
    """The codes of lists of literals, those of each list ascending and each once; their bounds go into the fields."""
    which = np.repeat(np.arange(len(operators)), counts)[listed]
    # Codes have 32 bits at most.
    pairs = distinct(which << 32 | at[listed])
    lists = np.flatnonzero(operators == _IN)
    fields[0, lists] = POINTS
    fields[1, lists] = np.searchsorted(pairs, lists << 32)
    fields[2, lists] = np.searchsorted(pairs, lists + 1 << 32)
    return pairs & 0xFFFFFFFF


def _classes(values: list[Any], below: Integers, upto: Integers, equal: Integers) -> tuple[Classes, Integers]:
    """The classes that literals make, each given once, and of each its place among them in order.

    By their numbers: `below` are those at which something ends or begins, `upto` those behind which, `equal` both.
    """
    exact = _exact(values)
    order = sorted(range(len(values)), key=values.__getitem__) if exact is None else np.argsort(exact)
    count = len(values)
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    ordered = len(below) + len(upto) > 0
    if ordered:
        # Only where an atom makes a difference between two classes are they two.
        cuts = np.zeros(2 * count + 1, np.int64)
        cuts[2 * place[np.concatenate([below, equal])] + 1] = 1
        cuts[2 * place[np.concatenate([upto, equal])] + 2] = 1
        cut = np.cumsum(cuts).astype(np.int32)
        size = int(cut[-1]) + 2
    else:
        cut = np.full(2 * count + 1, count, np.int32)
        cut[1::2] = np.arange(count)
        size = count + 1
    if exact is not None:
        return Classes((), ordered, cut, size, exact[order]), place
    return Classes([values[index] for index in order], ordered, cut, size, None), place


def _exact(literals: Sequence[Any]) -> npt.NDArray[np.float64] | None:
    """The literals as an array, if that loses nothing."""
    if not literals or isinstance(literals[0], str):
        return None
    array = np.array(literals, np.float64)
    # Below that a double is every integer; above it some may still be the ones that are meant.
    if (np.abs(array) < EXACT).all() or all(a == b for a, b in zip(array.tolist(), literals, strict=True)):
        return array
    return None
