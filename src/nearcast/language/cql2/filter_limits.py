"""How large a filter may be, in whichever form it is written."""

from __future__ import annotations

from collections.abc import Iterator

from nearcast.model.expression import Call, Constant, parts
from nearcast.model.filter import Atom, Count, Distance, Entities, Filter, atoms

MAX_ATOMS = 20_000

MAX_LITERALS = 250_000
"""Values that are written into a filter, those of lists behind IN among them, coordinates of geometries not."""

MAX_TOKENS = 500_000
"""Words and signs of a text; a list of plain literals is one."""

MAX_DEPTH = 100
"""Parentheses and NOTs within each other, or elements, or branches of a tree."""

MAX_HEIGHT = 50
"""Depth of an arithmetic expression; each operator of a chain makes it one deeper. Conditions and functions within
each other may be twice as deep.
"""

LONG = 50_000
"""Characters in which no filter can be that is larger than it may be."""


def too_large(filter: Filter) -> tuple[str, str] | None:
    """What is expected of a filter that is too large, and what came; None if it is not."""
    listed = list(atoms(filter))
    if len(listed) > MAX_ATOMS:
        return f"at most {MAX_ATOMS:,} atoms in one filter", f"{len(listed):,}"
    literals = sum(map(_of_atom, listed))
    if literals > MAX_LITERALS:
        return f"at most {MAX_LITERALS:,} literals in one filter", f"{literals:,}"
    return None


def _of_atom(atom: Atom) -> int:
    if isinstance(atom.name, Call):
        return sum(isinstance(part, Constant) for part in parts(atom.name))
    within = (inner for one in _conditions(atom.name) for inner in atoms(one))
    return len(atom.literals) + sum(map(_of_atom, within))


def _conditions(name: str | Distance | Count) -> Iterator[Filter]:
    """The conditions within a location term."""
    if isinstance(name, str):
        return
    sides = (name.a, name.b) if isinstance(name, Distance) else (name.of, name.around)
    for side in sides:
        if isinstance(side, Entities) and side.conditions is not None:
            yield side.conditions
