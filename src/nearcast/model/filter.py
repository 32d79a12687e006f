"""Filters: trees of And, Or, Not over atoms, and the location terms an atom may be about (semantics §2, §4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from sys import intern
from typing import Any

from nearcast.errors import Mark
from nearcast.model.event import Place
from nearcast.model.expression import Call
from nearcast.model.values import Kind, Value, kinds_of


class Operator(StrEnum):
    """How an atom compares: six comparisons, and four forms that are one atom each."""

    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    IN = "IN"
    BETWEEN = "BETWEEN"
    LIKE = "LIKE"
    IS_NULL = "IS NULL"


@dataclass(frozen=True, slots=True)
class User:
    """`user('name')`: where that client was last known to be; without a name `me`, the receiver itself."""

    name: str


RECEIVER = "me"
"""How a filter names its receiver; `me.NAME` is a reading of it."""

ME = User("")
"""The receiver itself, wherever it is written out for one."""


class ReceiverReading(str):
    """`me.NAME` in place of a literal: a number that is the receiver's own."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Entities:
    """`uform(conditions)`: the entities whose newest event before this one satisfies the conditions; None: all.

    `text` is how it is written, where that is asked for: in rules, which count entities by it.
    """

    conditions: Filter | None
    text: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class This:
    """`this`: the event being matched."""


Located = User | Entities | This | Place
"""What a distance is measured from or to; a `Place` is a point written into the filter."""


@dataclass(frozen=True, slots=True)
class Distance:
    """`distance(a, b)` in metres; with several entities on a side, it holds if it holds for some pair."""

    a: Located
    b: Located


@dataclass(frozen=True, slots=True)
class Count:
    """`count(of)`, or `count(of, around, within)`: how many of `of` there are, within that many metres of `around`."""

    of: Located
    around: Located | None = None
    within: float | None = None


Literals = Value | tuple[Value, ...] | None


SHORT = 64
"""Literals of lists whose kinds are kept as one object: there are as many such lists as filters, but few lengths."""


@lru_cache(maxsize=10_000)
def _same(kinds: tuple[Kind, ...]) -> tuple[Kind, ...]:
    """Equal kinds as one object."""
    return kinds


def _interned(one: Any) -> Any:
    """Equal texts as one object: filters have few names and literals, and many of each."""
    if type(one) is str:
        return intern(one)
    # Not by calls alone: a list may have thousands.
    return (
        tuple([intern(each) if type(each) is str else _interned(each) for each in one]) if type(one) is tuple else one
    )


@dataclass(frozen=True, slots=True)
class Atom:
    """(name, operator, value): one comparison of an attribute, a location term or what is computed.

    Whatever is more than one attribute beside literals is a `Call` that is to be TRUE: `(call, =, True)`.
    `value` is one literal; a tuple for IN; (low, high) for BETWEEN, both inclusive; the pattern (`%`, `_`, backslash
    escapes) for LIKE; None for IS NULL. `where` is where it was written and does not count for equality; `kinds` are
    the kinds of its literals and do, for Python holds 1 and True to be equal.
    """

    name: str | Distance | Count | Call
    operator: Operator
    value: Literals
    where: Mark | None = field(default=None, compare=False, repr=False)
    kinds: tuple[Kind, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # A frozen value lets its fields be set in no other way.
        kinds = kinds_of(self.literals)
        object.__setattr__(self, "kinds", _same(kinds) if len(kinds) <= SHORT else kinds)
        object.__setattr__(self, "name", _interned(self.name))
        object.__setattr__(self, "value", _interned(self.value))

    @property
    def literals(self) -> tuple[Value, ...]:
        """Every literal of `value`."""
        if isinstance(self.value, tuple):
            return self.value
        return () if self.value is None else (self.value,)


@dataclass(frozen=True, slots=True)
class And:
    """Holds if all children hold."""

    children: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Holds if some child holds."""

    children: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Three-valued negation, as in SQL and CQL2: NOT UNKNOWN is UNKNOWN."""

    child: Filter


@dataclass(frozen=True, slots=True)
class PlainNot:
    """The thesis' negation, of its XML form: holds wherever the child does not, also where that is UNKNOWN."""

    child: Filter


Filter = Atom | And | Or | Not | PlainNot


def atoms(node: Filter) -> Iterator[Atom]:
    """The atoms of a filter in document order, each occurrence; conditions inside location terms are not among them."""
    if isinstance(node, Atom):
        yield node
    elif isinstance(node, (Not, PlainNot)):
        yield from atoms(node.child)
    else:
        for child in node.children:
            # Most children are atoms, and each generator costs more than what it gives.
            if isinstance(child, Atom):
                yield child
            else:
                yield from atoms(child)


def is_costly(atom: Atom) -> bool:
    """Whether no index finds an atom, so that each batch pays for it: an expression, a LIKE, a term about entities."""
    if isinstance(atom.name, str):
        return atom.operator is Operator.LIKE
    return isinstance(atom.name, Call) or any(isinstance(side, Entities) for side in located_sides(atom.name))


def located_sides(term: Distance | Count) -> tuple[Located | None, ...]:
    """What a location term is about."""
    return (term.a, term.b) if isinstance(term, Distance) else (term.of, term.around)
