"""Whom a relation is about: whether its sides are among the events that relations themselves cause, and who is of them
where filters share the work on geometries (semantics §12).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from copy import copy
from itertools import chain

from nearcast.filters.evaluate import NO_CONTEXT, truth
from nearcast.filters.spatial_atoms import SpentBudget, spatial_atoms, spent_budget
from nearcast.model.event import CONTROL_PREFIX, Event
from nearcast.model.filter import Atom, Filter, Operator, atoms
from nearcast.model.limits import Limits
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


class SideMembers:
    """Which filters about geometries select the newest events of entities, as it was decided when these came, or when
    the filter came. `others` gives filters beside those that are kept: all share the work, and one of them may have
    come before an equal one that is kept.
    """

    def __init__(self) -> None:
        self.others: Callable[[], Iterable[Filter]] = tuple
        self._filters: list[Filter] = []
        self._decided: dict[str, tuple[Event, dict[Filter, bool]]] = {}

    def copy(self) -> SideMembers:
        """The same, which goes on by itself."""
        found = copy(self)
        found._decided = {name: (event, dict(own)) for name, (event, own) in self._decided.items()}
        return found

    def keep(self, filters: Iterable[Filter]) -> None:
        """Goes on with these filters; of others is forgotten what was decided."""
        self._filters = [one for one in dict.fromkeys([*filters, *self.others()]) if any(spatial_atoms(one))]
        if not self._filters:
            self._decided = {}
        for event, own in self._decided.values():
            self._decided[event.entity] = event, {one: found for one, found in own.items() if one in self._filters}

    def budget(self, event: Event, limits: Limits) -> SpentBudget:
        """How far the work goes that is allowed for an event, with the filters that there are now."""
        return spent_budget(chain.from_iterable(map(spatial_atoms, self._filters)), event, NO_CONTEXT, limits)

    def decide(self, event: Event, limits: Limits) -> None:
        """Decides what is not decided yet of the newest event of an entity."""
        if not self._filters:
            return
        known, own = self._decided.get(event.entity, (event, {}))
        own = own if known is event else {}
        lacking = [one for one in self._filters if one not in own]
        if lacking:
            undecided = self.budget(event, limits).undecided
            own.update((one, truth(one, event, NO_CONTEXT, limits, undecided) is True) for one in lacking)
        self._decided[event.entity] = event, own

    def selects(self, filter: Filter, event: Event, limits: Limits) -> bool:
        """Whether a filter selects the newest event of an entity."""
        if not any(spatial_atoms(filter)):
            return truth(filter, event, NO_CONTEXT, limits) is True
        known, own = self._decided.get(event.entity, (event, {}))
        if known is not event or filter not in own:
            self.decide(event, limits)
            own = self._decided[event.entity][1]
        return own[filter]

    def forget(self, names: Collection[str]) -> None:
        """Forgets entities."""
        for name in names:
            self._decided.pop(name, None)
