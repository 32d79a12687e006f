"""How large a filter may be, in whichever form it is written.

What everybody waits for, as a filter of that size enters the pipeline, is in `Limits`; here is what it can be set to.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from nearcast.errors import Mark
from nearcast.language.marks import PlacedFault
from nearcast.model.expression import Call, Constant, Shape, parts
from nearcast.model.filter import Atom, Count, Distance, Entities, Filter, Operator, atoms, is_costly, located_sides
from nearcast.model.limits import Limits

MAX_ATOMS = 20_000
"""The most that `filter_atoms` can allow: they take a third of a second to read and to index."""

MAX_LITERALS = 250_000
"""The most that `filter_literals` can allow: they take three quarters of a second."""

MAX_CORNERS = 50_000
"""Corners of the geometries that are written into a filter: to see that they are valid takes a second at worst."""

MAX_PATTERN = 1_000
"""Characters of a pattern of LIKE: what stands between two `%` is looked for at each character of a text."""

MAX_TOKENS = 500_000
"""Words and signs of a text; a list of plain literals is one."""

MAX_DEPTH = 100
"""Parentheses and NOTs within each other, or elements, or branches of a tree."""

MAX_HEIGHT = 50
"""Depth of an arithmetic expression; each operator of a chain makes it one deeper. Conditions and functions within
each other may be twice as deep.
"""


@dataclass(frozen=True, slots=True)
class TextLimits:
    """What is counted while a text is read, so that one of many times as much is not read to its end: its atoms, and
    the literals of its lists.
    """

    atoms: int
    literals: int


ALONE = TextLimits(MAX_ATOMS, sys.maxsize)
"""Of a text that enters no system, as in a script: its lists may be as long as they are."""


def more_than(most: int, of: str, came: int, where: Mark | None, limit: str = "", whole: bool = True) -> PlacedFault:
    """The fault of a filter with more of something than it may have; not `whole`, there may be still more."""
    named = f" (limit {limit})" if limit else ""
    known = f"{came:,}" if whole else f"at least {came:,}"
    return PlacedFault(f"at most {most:,} {of} in one filter{named}", known, where, "split the filter")


def too_many_atoms(most: int, came: int, where: Mark | None, whole: bool = True) -> PlacedFault:
    """The fault of a filter with more atoms than it may have."""
    return more_than(most, "atoms", came, where, "filter_atoms" if most < MAX_ATOMS else "", whole)


def too_many_literals(most: int, came: int, where: Mark | None, whole: bool = True) -> PlacedFault:
    """The fault of a filter with more literals than it may have."""
    return more_than(most, "literals", came, where, "filter_literals", whole)


def text_limits(limits: Limits) -> TextLimits:
    """Those of the texts that enter a system."""
    return TextLimits(min(limits.filter_atoms, MAX_ATOMS), min(limits.filter_literals, MAX_LITERALS))


def too_large(filter: Filter, limits: Limits) -> tuple[str, str] | None:
    """What is expected of a filter that is too large, and what came; None if it is not."""
    listed = list(atoms(filter))
    if len(listed) > limits.filter_atoms:
        return f"at most {limits.filter_atoms:,} atoms in one filter (limit filter_atoms)", f"{len(listed):,}"
    costly = sum(map(is_costly, listed))
    if costly > limits.filter_expressions:
        what = f"at most {limits.filter_expressions:,} expressions, LIKEs and terms about entities in one filter"
        return f"{what} (limit filter_expressions)", f"{costly:,}"
    longest = max((len(pattern) for atom in listed for pattern in _patterns(atom)), default=0)
    if longest > MAX_PATTERN:
        return f"a pattern of at most {MAX_PATTERN:,} characters", f"one of {longest:,}"
    corners = sum(map(_corners, listed))
    if corners > MAX_CORNERS:
        return f"geometries of at most {MAX_CORNERS:,} corners in one filter", f"{corners:,}"
    literals, most = sum(map(_of_atom, listed)), min(limits.filter_literals, MAX_LITERALS)
    if literals > most:
        return f"at most {most:,} literals in one filter (limit filter_literals)", f"{literals:,}"
    return None


def _patterns(atom: Atom) -> Iterator[str]:
    if isinstance(atom.name, Call):
        calls = (part for part in parts(atom.name) if isinstance(part, Call) and part.function == "LIKE")
        for call in calls:
            yield from (str(part.value) for part in parts(call.arguments[1]) if isinstance(part, Constant))
    elif atom.operator is Operator.LIKE:
        yield str(atom.value)


def _corners(atom: Atom) -> int:
    """Corners but for one of each ring or line: as many as there are commas."""
    if not isinstance(atom.name, Call):
        return 0
    return sum(part.text.count(",") for part in parts(atom.name) if isinstance(part, Shape))


def _of_atom(atom: Atom) -> int:
    if isinstance(atom.name, Call):
        return sum(isinstance(part, Constant) for part in parts(atom.name))
    within = (inner for one in _conditions(atom.name) for inner in atoms(one))
    return len(atom.literals) + sum(map(_of_atom, within))


def _conditions(name: str | Distance | Count) -> Iterator[Filter]:
    """The conditions within a location term."""
    if isinstance(name, str):
        return
    for side in located_sides(name):
        if isinstance(side, Entities) and side.conditions is not None:
            yield side.conditions
