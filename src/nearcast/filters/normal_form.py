"""The normal form of a filter: negation pushed to the atoms, like parts flattened and shared (semantics §2, §3).

A literal is an atom and the truth wanted of it, so that matching needs no third value. A filter whose atoms have
classes becomes one plain form per threshold k, "the level is at least k": its literals of a lower class are false. So
the greatest level is found without evaluating any tree for levels, and equal parts of all forms are evaluated once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nearcast.filters.evaluate import UNDER_NOT, UNDER_PLAIN_NOT, RequiredTruth, without_absent
from nearcast.model.filter import And, Atom, Filter, Not, PlainNot


@dataclass(frozen=True, slots=True)
class Literal:
    """An atom and the truth wanted of it."""

    atom: Atom
    wanted: RequiredTruth


@dataclass(frozen=True, slots=True)
class Every:
    """Holds where all parts hold."""

    parts: tuple[Form, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """Holds where one part holds."""

    parts: tuple[Form, ...]


Form = Literal | Every | Some


@dataclass(frozen=True, slots=True)
class _Graded:
    """A literal with the class of its atom: what lies between a filter and its threshold forms."""

    literal: Literal
    own: int


def threshold_forms(node: Filter, classes: Sequence[int]) -> dict[int, Form]:
    """For each level k that an event may have: the form that holds where the level is at least k, k ascending.

    `classes` are the atoms' classes in document order (−1: not there). Empty if no atom is there.
    """
    present = without_absent(node, iter(classes))
    if present is None:
        return {}
    graded = _graded(present[0], iter(present[1]), RequiredTruth.TRUE)
    forms = {level: _at_least(graded, level) for level in sorted(set(present[1]))}
    return {level: form for level, form in forms.items() if form is not None}


def plain_form(node: Filter) -> Form:
    """The form that holds where a filter is TRUE."""
    return next(iter(threshold_forms(node, [0] * _count(node)).values()))


def _count(node: Filter) -> int:
    if isinstance(node, Atom):
        return 1
    if isinstance(node, (Not, PlainNot)):
        return _count(node.child)
    return sum(_count(child) for child in node.children)


@dataclass(frozen=True, slots=True)
class _Joined:
    """Parts of which all must hold (`joint`), or one."""

    joint: bool
    parts: list[_Graded | _Joined]


def _graded(node: Filter, classes: Iterator[int], wanted: RequiredTruth) -> _Graded | _Joined:
    if isinstance(node, Atom):
        return _Graded(Literal(node, wanted), next(classes))
    if isinstance(node, Not):
        return _graded(node.child, classes, UNDER_NOT[wanted])
    if isinstance(node, PlainNot):
        return _graded(node.child, classes, UNDER_PLAIN_NOT[wanted])
    return _Joined(isinstance(node, And) == wanted.joint, [_graded(child, classes, wanted) for child in node.children])


def _at_least(graded: _Graded | _Joined, level: int) -> Form | None:
    """The form of a graded tree in which literals below `level` are false; None where nothing can hold."""
    if isinstance(graded, _Graded):
        return graded.literal if graded.own >= level else None
    kept = [_at_least(part, level) for part in graded.parts]
    there = [form for form in kept if form is not None]
    if not there or (graded.joint and len(there) < len(kept)):
        return None
    return join(Every if graded.joint else Some, there)


def join(kind: type[Every] | type[Some], parts: list[Form]) -> Form:
    """Parts under one connective: nested parts of the same kind flattened, equal ones kept once."""
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, kind) else (part,))]
    once = tuple(dict.fromkeys(flat))
    return once[0] if len(once) == 1 else kind(once)
