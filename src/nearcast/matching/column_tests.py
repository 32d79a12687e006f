"""What atoms ask of columns: each a test of codes, by the classes that all literals of a column make.

Each atom is the union of one-kind tests: an ordering, an equality (IN: one per literal), an inequality, a span, a
pattern. Atoms are numbered in the order of their adding.

A column is an attribute and a kind. Whatever the values, only their order relative to the literals matters; so the
literals are sorted once, and a value's code is its class among them. Every atom then is a range of codes, known before
any event is seen, and matching compares numbers of 16 bits (32 where a column has very many literals) exactly.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.matching.batch_columns import Column, ColumnLiterals, Numbers, encode
from nearcast.model.arrays import Integers, distinct
from nearcast.model.filter import Atom, Operator
from nearcast.model.values import EXACT, Kind, Value

Key = tuple[str, Kind]
"""A column: an attribute's name, and the kind of the values in it."""

KINDS: tuple[Kind, ...] = ("number", "text", "boolean", "time")
ORDERINGS = (Operator.LT, Operator.LE, Operator.GT, Operator.GE)


@dataclass(frozen=True, slots=True)
class ColumnTests:
    """The tests of one column. `orderings`, `equals`, `lists`, `differs` are (atoms, literals), side by side.

    Literals of orderings count in `ordered`, those of the others in `equal`. `lists` are the equalities of IN atoms,
    by atom. `spans` and `patterns` are by atom, `ends` has both ends of each span. `atoms` are all that compare in this
    column.
    """

    ordered: ColumnLiterals
    orderings: dict[Operator, tuple[Numbers, Numbers]]
    equal: dict[Value, int]
    equal_literals: ColumnLiterals
    equals: tuple[Numbers, Numbers]
    lists: tuple[Numbers, Numbers]
    differs: tuple[Numbers, Numbers]
    spans: dict[int, tuple[Value, Value]]
    ends: ColumnLiterals
    patterns: dict[int, str]
    atoms: Numbers


@dataclass(slots=True)
class _Collected:
    """The tests of one column while atoms are being added."""

    by_operator: dict[Operator, list[tuple[int, Value]]] = field(default_factory=dict)
    lists: list[tuple[int, Sequence[Value]]] = field(default_factory=list)
    """Each IN atom with all its literals that compare here."""
    spans: dict[int, tuple[Value, Value]] = field(default_factory=dict)
    patterns: dict[int, str] = field(default_factory=dict)
    atoms: dict[int, None] = field(default_factory=dict)

    def compiled(self) -> ColumnTests:
        """The tests as arrays, ready to be placed in batches."""
        tests = {operator: self.by_operator.get(operator, []) for operator in (*ORDERINGS, Operator.EQ, Operator.NE)}
        # Ascending, so that they are looked up faster: neighbours lie close together.
        ordered = sorted({literal for operator in ORDERINGS for _, literal in tests[operator]})
        order = {literal: number for number, literal in enumerate(ordered)}
        single = [[literal for _, literal in tests[operator]] for operator in (Operator.EQ, Operator.NE)]
        listed = [literals for _, literals in self.lists]
        every = dict.fromkeys(chain(single[0], *listed, single[1]))
        equal = dict(zip(every, range(len(every)), strict=True))
        return ColumnTests(
            ColumnLiterals(ordered),
            {operator: _side_by_side(tests[operator], order) for operator in ORDERINGS},
            equal,
            ColumnLiterals([*equal]),
            _side_by_side(tests[Operator.EQ], equal),
            (
                np.repeat(np.array([number for number, _ in self.lists], np.intp), list(map(len, listed))),
                np.fromiter(map(equal.__getitem__, chain(*listed)), np.intp),
            ),
            _side_by_side(tests[Operator.NE], equal),
            self.spans,
            ColumnLiterals([end for ends in self.spans.values() for end in ends]),
            self.patterns,
            np.array(list(self.atoms), np.intp),
        )


def _side_by_side(tests: Sequence[tuple[int, Value]], literals: dict[Value, int]) -> tuple[Numbers, Numbers]:
    return (
        np.array([number for number, _ in tests], np.intp),
        np.array([literals[literal] for _, literal in tests], np.intp),
    )


class AtomTests:
    """The tests of these atoms, by column; `mixed` atoms compare in several columns, `presence` ones in none.

    Keeps of atoms only what tests take: with all filters it goes to every worker.
    """

    def __init__(self, atoms: Sequence[Atom]) -> None:
        self.size = len(atoms)
        self.mixed: dict[int, list[Key]] = {}
        self.presence: dict[int, list[Key]] = {}
        collected: dict[Key, _Collected] = {}
        for number, atom in enumerate(atoms):
            for key in self._add(number, atom, collected):
                collected[key].atoms[number] = None
        self.columns = {key: tests.compiled() for key, tests in collected.items()}

    def _add(self, number: int, atom: Atom, collected: dict[Key, _Collected]) -> list[Key]:
        """Adds an atom's tests; returns the columns in which it compares."""
        name = str(atom.name)
        if atom.operator is Operator.IS_NULL:
            self.presence[number] = [(name, kind) for kind in KINDS]
            for key in self.presence[number]:
                collected.setdefault(key, _Collected())
            return []
        keys = [(name, kind) for kind in _kinds(atom)]
        for key in keys:
            _collect(collected.setdefault(key, _Collected()), number, atom, key[1])
        if len(keys) > 1:
            self.mixed[number] = keys
        return keys


def _kinds(atom: Atom) -> list[Kind]:
    """The kinds of values that an atom compares; none for a BETWEEN whose ends do not compare."""
    if atom.operator is Operator.LIKE:
        return ["text"]
    kinds = list(dict.fromkeys(atom.kinds))
    return [] if atom.operator is Operator.BETWEEN and len(kinds) > 1 else kinds


def _collect(tests: _Collected, number: int, atom: Atom, kind: Kind) -> None:
    match atom.operator:
        case Operator.LIKE:
            tests.patterns[number] = str(atom.value)
        case Operator.BETWEEN:
            tests.spans[number] = atom.value  # type: ignore[assignment]
        case Operator.IN:
            literals: Sequence[Value] = atom.literals
            if len(set(atom.kinds)) > 1:
                literals = [literal for literal, own in zip(literals, atom.kinds, strict=True) if own == kind]
            tests.lists.append((number, literals))
        case _:
            tests.by_operator.setdefault(atom.operator, []).append((number, atom.value))  # type: ignore[arg-type]


Codes = npt.NDArray[Any]
"""Codes by column and lane, of 16 or 32 bits without sign, shape (columns, stride)."""

NARROW = 2**16 - 16
"""The most classes of a column whose codes take 16 bits."""


@cache
def missing(codes: np.dtype[Any]) -> int:
    """The code of a lane without a value in the column."""
    return int(np.iinfo(codes).max)


def several(codes: np.dtype[Any]) -> int:
    """The code of a lane with more than one value in the column."""
    return missing(codes) - 1


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of one column's values: codes of what lies below, at, and between its literals, which ascend.

    The literals are those in `exact` if doubles hold them all, else `literals`; the other is empty, or None.
    `cut[2 i]` is the code of what lies between literals i − 1 and i, `cut[2 i + 1]` that of literal i. `size` is the
    number of codes; the last is that of NaN and, where nothing asks for order, of every value that is no literal.
    """

    literals: Sequence[Any]
    ordered: bool
    cut: npt.NDArray[np.int32]
    size: int
    exact: npt.NDArray[np.float64] | None

    def of(self, values: Sequence[Any] | npt.NDArray[Any]) -> Integers:
        """The codes of distinct values in order, and behind them that of NaN."""
        codes = np.full(len(values) + 1, self.size - 1, np.int64)
        if self.exact is not None and isinstance(values, np.ndarray):
            known = self.exact.astype(values.dtype) if values.dtype == np.int64 else self.exact
            places = np.searchsorted(known, values, "left") + np.searchsorted(known, values, "right")
            codes[:-1] = self.cut[places]
        else:
            # Not as doubles of NumPy's, which other numbers are rounded to before they are compared.
            literals = self.literals if self.exact is None else self.exact.tolist()
            given = values if isinstance(values, list) else np.asarray(values).tolist()
            codes[:-1] = self.cut[[self._place(literals, value) for value in given]]
        return codes

    def _place(self, literals: Sequence[Any], value: Any) -> int:
        """Twice the number of literals below a value, and one more if it is a literal itself."""
        number = bisect_left(literals, value)
        if number < len(literals) and literals[number] == value:
            return 2 * number + 1
        return 2 * number if self.ordered else 0


@dataclass(frozen=True, slots=True)
class Coded:
    """A batch as codes: `codes[c, lane]`. Of the columns in which a lane has several values, `starts` and `values`.

    Lane l has in such a column, the s-th of them, the codes `values[starts[s, l]]` … `values[starts[s, l + 1] − 1]`;
    `which[c]` is s, or −1.
    """

    codes: Codes
    lanes: int
    which: Integers
    starts: Integers
    values: Codes

    @property
    def complete(self) -> npt.NDArray[np.bool_]:
        """The columns in which every lane has a value."""
        return np.asarray((self.codes[:, : self.lanes] != missing(self.codes.dtype)).all(axis=1))


def coded(table: pa.Table, columns: Mapping[Key, Classes], codes: np.dtype[Any], padding: int) -> Coded:
    """The events of a table of EVENTS as codes of these columns."""
    lanes = len(table)
    result = np.full((len(columns), lanes + padding), missing(codes), codes)
    which = np.full(len(columns), -1, np.int64)
    starts: list[Integers] = []
    values: list[Codes] = []
    size = 0
    found = encode(table, columns)
    for number, (key, classes) in enumerate(columns.items()):
        column = found.get(key)
        if column is None:
            continue
        own = classes.of(column.values).astype(codes)[column.codes]
        result[number, column.lanes] = own
        if (np.diff(column.lanes) == 0).any():
            which[number] = len(starts)
            starts.append(size + _repeats(column, lanes, result[number], several(codes)))
            values.append(own)
            size += len(own)
    return Coded(
        result,
        lanes,
        which,
        np.array(starts, np.int64).reshape(len(starts), lanes + 1),
        np.concatenate([*values, np.zeros(1, codes)]).astype(codes),
    )


def _repeats(column: Column, lanes: int, codes: Codes, mark: int) -> Integers:
    """Marks the lanes with more than one value; returns where each lane's values begin."""
    per_lane = np.bincount(column.lanes, minlength=lanes)
    codes[:lanes][per_lane > 1] = mark
    return np.concatenate([[0], np.cumsum(per_lane)]).astype(np.int64)


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
    """The number of the operator of an atom that has a column, as `ColumnPredicates` has it."""
    # A list of one literal is a comparison like any other.
    single = type(atom.value) is tuple and len(atom.value) == 1
    return _EQ if single else _NUMBER[atom.operator._value_]


class ColumnPredicates(NamedTuple):
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
