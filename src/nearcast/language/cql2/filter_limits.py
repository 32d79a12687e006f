"""How large a filter may be, in whichever form it is written."""

from __future__ import annotations

from collections.abc import Iterator

from nearcast.model.expression import Call, Constant, Shape, parts
from nearcast.model.filter import Atom, Count, Distance, Entities, Filter, Located, Operator, atoms

MAX_ATOMS = 20_000

MAX_LITERALS = 250_000
"""Values that are written into a filter, those of lists behind IN among them, coordinates of geometries not."""

MAX_COSTLY = 1_000
"""Atoms of one filter that are not found by an index, so that each batch of events pays for each of them: expressions,
LIKE, terms about entities. A thousand take some 50 milliseconds of a batch for which everybody waits.
"""

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

LONG = 1_000
"""Characters in which no filter can be that is larger than it may be."""


def too_large(filter: Filter) -> tuple[str, str] | None:
    """What is expected of a filter that is too large, and what came; None if it is not."""
    listed = list(atoms(filter))
    if len(listed) > MAX_ATOMS:
        return f"at most {MAX_ATOMS:,} atoms in one filter", f"{len(listed):,}"
    costly = sum(map(_is_costly, listed))
    if costly > MAX_COSTLY:
        return f"at most {MAX_COSTLY:,} expressions, LIKEs and terms about entities in one filter", f"{costly:,}"
    longest = max((len(pattern) for atom in listed for pattern in _patterns(atom)), default=0)
    if longest > MAX_PATTERN:
        return f"a pattern of at most {MAX_PATTERN:,} characters", f"one of {longest:,}"
    corners = sum(map(_corners, listed))
    if corners > MAX_CORNERS:
        return f"geometries of at most {MAX_CORNERS:,} corners in one filter", f"{corners:,}"
    literals = sum(map(_of_atom, listed))
    if literals > MAX_LITERALS:
        return f"at most {MAX_LITERALS:,} literals in one filter", f"{literals:,}"
    return None


def _is_costly(atom: Atom) -> bool:
    if isinstance(atom.name, str):
        return atom.operator is Operator.LIKE
    return isinstance(atom.name, Call) or any(isinstance(side, Entities) for side in _sides(atom.name))


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
    for side in _sides(name):
        if isinstance(side, Entities) and side.conditions is not None:
            yield side.conditions


def _sides(name: Distance | Count) -> tuple[Located | None, ...]:
    return (name.a, name.b) if isinstance(name, Distance) else (name.of, name.around)
