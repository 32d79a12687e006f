"""Whom a relation can be about: whether its sides are among the events that relations themselves cause."""

from __future__ import annotations

from collections.abc import Iterator

from nearcast.model.event import CONTROL_PREFIX
from nearcast.model.filter import Atom, Operator, atoms
from nearcast.model.relation import Crowd, ListMembers, Matching, Named, Pair, Relation, Side


def sees_derived(relation: Relation) -> bool:
    """Whether a relation sees the events that relations cause: some side must ask for them by name.

    A filter asks for them with a condition on `type` that names one beginning with `nearcast.`; without that, a filter
    such as `distance < 10` would make a relation of whatever another one tells.
    """
    return any(_asks(side) for side in sides_of(relation))


def sides_of(relation: Relation) -> Iterator[Side | Crowd]:
    """The sides of a relation's pair, or its crowd."""
    about = relation.about
    if isinstance(about, Pair):
        yield from (about.a, about.b)
    else:
        yield about.among


def _asks(side: Side | Crowd) -> bool:
    match side:
        case Named(entity):
            return entity.startswith("nearcast/relations/")
        case ListMembers():
            return False
        case Matching(filter):
            return any(_names_derived(atom) for atom in atoms(filter))


def _names_derived(atom: Atom) -> bool:
    if atom.name != "type" or atom.operator not in (Operator.EQ, Operator.IN, Operator.LIKE):
        return False
    return any(isinstance(value, str) and value.startswith(CONTROL_PREFIX) for value in atom.literals)
