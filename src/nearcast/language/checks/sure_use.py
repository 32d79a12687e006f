"""What few events make of definitions, where that is sure without deciding them: no columns, and nothing to load.

Each condition is looked at for each event alone; one about anything else may have any truth. What may be derived of the
events is thought of by its type only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from nearcast.filters.evaluate import NO_CONTEXT, atom_truth
from nearcast.filters.surroundings import ANY_TRUTH, Truths, asked_of_surroundings, possible_truths
from nearcast.language.definitions.files import DefinitionSet
from nearcast.model.event import DERIVED, Event
from nearcast.model.filter import Atom, Filter
from nearcast.model.relation import Matching, Named, Pair, Relation
from nearcast.model.situation import Publish


def sure_use(found: DefinitionSet, events: Sequence[Event]) -> tuple[set[str], set[str]] | None:
    """The subscriptions that select some of these events, and the relations that begin; None if that is not sure."""
    if found.settings.roles.vectors or any(event.control for event in events):
        return None
    if found.zones or any(_may_begin(relation, events) for relation in found.relations):
        return None
    derived = [Event("", type, "") for type in _derived_types(found)]
    selecting = set()
    for one in found.subscriptions:
        truths = [_truths(one.filter, event) for event in events]
        truths += [possible_truths(one.filter, partial(_of_type, event=event)) for event in derived]
        if one.relevance is not None or not all(truth == {True} or True not in truth for truth in truths):
            return None
        if {True} in truths:
            selecting.add(one.id)
    return selecting, set()


def _derived_types(found: DefinitionSet) -> Iterator[str]:
    """The types of what definitions may derive, no relation having begun."""
    if found.situations:
        yield from DERIVED[1:]
        yield from (one.type for action in found.actions for one in action.effects if isinstance(one, Publish))


def _may_begin(relation: Relation, events: Sequence[Event]) -> bool:
    about = relation.about
    if not isinstance(about, Pair):
        return True
    return all(any(_may_be(side, event) for event in events) for side in (about.a, about.b))


def _may_be(side: Named | Matching, event: Event) -> bool:
    return side.entity == event.entity if isinstance(side, Named) else True in _truths(side.filter, event)


def _truths(filter: Filter, event: Event) -> Truths:
    return possible_truths(filter, partial(_alone, event=event))


def _alone(atom: Atom, event: Event) -> Truths:
    return ANY_TRUTH if asked_of_surroundings(atom) else frozenset({atom_truth(atom, event, NO_CONTEXT)})


def _of_type(atom: Atom, event: Event) -> Truths:
    """Of what may be derived only the type is known."""
    return _alone(atom, event) if atom.name == "type" else ANY_TRUTH
