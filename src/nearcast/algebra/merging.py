"""Merging filters into one that accepts all that they accept (Channels §3); filters read as advertisements.

A filter is taken as a set of attribute filters: what it demands of one attribute, all of it, is a clause. Filters are
of the same structure if their clauses are about the same attributes and kinds of values. Two are merged perfectly if
at most one clause differs: then its disjunction accepts just what the two accept. Imperfectly every clause becomes a
disjunction, and more may be accepted.

An event fits an advertisement if it carries no attribute that the advertisement does not name, and what it carries is
as stated; it need not carry everything. Two advertisements are compared on events that carry what both name. So one
that names more attributes allows more, the other way round from a filter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nearcast.algebra.comparison import covers
from nearcast.algebra.simplify import joined, simplify
from nearcast.errors import DefinitionError, Fault
from nearcast.model.filter import And, Atom, Filter, Not, Operator, Or, atoms

Structure = frozenset[object]
"""What the clauses of a filter are about; filters of one structure can be merged."""

Shared = tuple[object, frozenset[tuple[object, Filter]]]


@dataclass(frozen=True, slots=True)
class Clauses:
    """A filter as clauses, by what each is about, in their order."""

    parts: tuple[tuple[object, Filter], ...]

    @property
    def structure(self) -> Structure:
        """What they are about."""
        return frozenset(about for about, _ in self.parts)

    def filter(self) -> Filter:
        """The conjunction."""
        return joined(And, [clause for _, clause in self.parts])

    def without_one(self) -> Iterator[Shared]:
        """All clauses but one, for each in turn, and what that is about: two filters that can be merged perfectly share
        this.
        """
        for at, (about, _) in enumerate(self.parts):
            yield about, frozenset((*self.parts[:at], *self.parts[at + 1 :]))


def clauses(filter: Filter) -> Clauses:
    """The clauses of a filter: the children of its conjunction, those about one attribute together."""
    simple = simplify(filter)
    found: dict[object, list[Filter]] = {}
    for child in simple.children if isinstance(simple, And) else (simple,):
        found.setdefault(_about(child), []).append(child)
    return Clauses(tuple((about, parts[0] if len(parts) == 1 else And(tuple(parts))) for about, parts in found.items()))


def _about(filter: Filter) -> object:
    """The attribute and the kinds of values that a clause is about; of several attributes the clause itself."""
    names = {atom.name for atom in atoms(filter)}
    # Such a clause can only be shared as it is; a disjunction of two of them would not be one clause.
    if len(names) > 1:
        return filter
    return names.pop(), frozenset(kind for atom in atoms(filter) for kind in atom.kinds)


def merge(first: Filter, second: Filter, perfect: bool = True) -> Filter | None:
    """One filter that accepts what either accepts, and, if `perfect`, nothing else; None if their structure differs.

    Where one covers the other it is that one.
    """
    # Covering first: a merge of a filter with one it covers would only be longer.
    if covers(first, second):
        return first
    if covers(second, first):
        return second
    together = merged(clauses(first), clauses(second), perfect)
    return together.filter() if together else None


def merged(first: Clauses, second: Clauses, perfect: bool) -> Clauses | None:
    """The same of clauses, without looking whether one covers the other."""
    theirs = dict(second.parts)
    if first.structure != second.structure:
        return None
    differing = [about for about, clause in first.parts if clause != theirs[about]]
    # (A and X) or (A and Y) is A and (X or Y), also with three truths and repeated names. With two clauses
    # differing the disjunctions also accept what mixes them.
    if perfect and len(differing) > 1:
        return None
    return Clauses(
        tuple(
            (about, joined(Or, [clause, theirs[about]]) if about in differing else clause)
            for about, clause in first.parts
        )
    )


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
