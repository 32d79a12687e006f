"""Filters read as advertisements: what a publisher says its events will carry, and nothing else.

An event fits an advertisement if it carries no attribute that the advertisement does not name, and what it carries is
as stated; it need not carry everything. Two advertisements are compared on events that carry what both name. So one
that names more attributes allows more, the other way round from a filter.
"""

from __future__ import annotations

from nearcast.errors import DefinitionError, Fault
from nearcast.model.filter import And, Atom, Filter, Not, Operator, Or


def advertised(first: Filter, second: Filter) -> tuple[Filter, Filter]:
    """Two conjunctions, read as advertisements, as filters that select the events that fit.

    Raises `DefinitionError` for what is not a conjunction of atoms about attributes.
    """
    mine, theirs = _stated(first), _stated(second)
    return _fitting(mine, theirs), _fitting(theirs, mine)


def _stated(filter: Filter) -> dict[str, list[Filter]]:
    """What is stated of each attribute."""
    found: dict[str, list[Filter]] = {}
    for part in filter.children if isinstance(filter, And) else (filter,):
        atom = part.child if isinstance(part, Not) else part
        if not isinstance(atom, Atom) or not isinstance(atom.name, str):
            where = atom.where if isinstance(atom, Atom) else None
            raise DefinitionError(Fault("an advertisement: atoms about attributes, joined by AND", "another", where))
        found.setdefault(atom.name, []).append(part)
    return found


def _fitting(own: dict[str, list[Filter]], other: dict[str, list[Filter]]) -> Filter:
    parts: list[Filter] = []
    for name, stated in own.items():
        whole = And(tuple(stated))
        parts.append(whole if name in other else Or((whole, _absent(name))))
    return And((*parts, *(_absent(name) for name in other if name not in own)))


def _absent(name: str) -> Atom:
    return Atom(name, Operator.IS_NULL, None)
