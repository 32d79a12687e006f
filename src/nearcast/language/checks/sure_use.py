"""What few events make of definitions, where that is sure without deciding them: no columns, and nothing to load.

Each condition is looked at for each event alone, with the clients as they are defined, who stay so while no control
event comes; one about anything else may have any truth. What may be derived of the events is thought of by its type
only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from nearcast.filters.evaluate import NO_CONTEXT, EmptyContext, EvaluationContext, atom_truth
from nearcast.filters.receiver_terms import asked_of_receiver, for_receiver
from nearcast.filters.surroundings import (
    ANY_TRUTH,
    Truths,
    asked_of_more_than_users,
    asked_of_surroundings,
    possible_truths,
)
from nearcast.language.definitions.files import DefinitionSet
from nearcast.model.changes import ClientChange, SettingsChange
from nearcast.model.event import DERIVED, Event, Place
from nearcast.model.filter import Atom, Filter
from nearcast.model.relation import Matching, Named, Pair, Relation
from nearcast.model.situation import Publish
from nearcast.model.subscription import ClientProfile, Subscription
from nearcast.state.registry import Registry

LOOKS = 10_000
"""Filters held against events, a fleet's for each receiver, in a fifth of a second: with more, deciding is quicker."""


def sure_use(found: DefinitionSet, events: Sequence[Event]) -> tuple[set[str], set[str]] | None:
    """The subscriptions that select some of these events, and the relations that begin; None if that is not sure,
    or is more to look at than `LOOKS`.
    """
    if found.settings.roles.vectors or any(event.control for event in events):
        return None
    if found.zones or any(_may_begin(relation, events) for relation in found.relations):
        return None
    clients = _clients(found)
    if any(client.moments for client in clients.values()):
        return None
    users = _Users(clients)
    derived = [Event("", type, "") for type in _derived_types(found)]
    selecting, looks = set(), 0
    for one in found.subscriptions:
        for filter in _written_out(one, clients):
            looks += len(events)
            if looks > LOOKS:
                return None
            truths = [_beside_users(filter, event, users) for event in events]
            truths += [possible_truths(filter, partial(_of_type, event=event)) for event in derived]
            if one.relevance is not None or not all(map(_is_sure, truths)):
                return None
            if {True} in truths:
                selecting.add(one.id)
    return selecting, set()


class _Users(EmptyContext):
    """Where clients are that stay where they are defined; of entities nothing is known."""

    def __init__(self, clients: Mapping[str, ClientProfile]) -> None:
        self._clients = clients

    def user(self, name: str) -> Place | None:
        """Where that client is."""
        client = self._clients.get(name)
        return client.place if client else None


def _clients(found: DefinitionSet) -> Mapping[str, ClientProfile]:
    registry = Registry()
    for change in found.changes():
        if isinstance(change, SettingsChange | ClientChange):
            registry.apply(change)
    return registry.clients


def _written_out(subscription: Subscription, clients: Mapping[str, ClientProfile]) -> Iterator[Filter]:
    """The filter as it is for each of its clients, where it asks for its receiver."""
    if not asked_of_receiver(subscription.filter)[0]:
        yield subscription.filter
        return
    for client in subscription.clients:
        if client in clients:
            yield for_receiver(subscription.filter, client, clients[client].readings)


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


def _is_sure(truths: Truths) -> bool:
    """Whether it is known if a filter selects."""
    return truths == {True} or True not in truths


def _beside_users(filter: Filter, event: Event, users: EvaluationContext) -> Truths:
    # Without users first: what measures distances takes longer to load than all the rest.
    found = _truths(filter, event)
    return found if _is_sure(found) else possible_truths(filter, partial(_measured, event=event, users=users))


def _truths(filter: Filter, event: Event) -> Truths:
    return possible_truths(filter, partial(_alone, event=event))


def _measured(atom: Atom, event: Event, users: EvaluationContext) -> Truths:
    return ANY_TRUTH if asked_of_more_than_users(atom) else frozenset({atom_truth(atom, event, users)})


def _alone(atom: Atom, event: Event) -> Truths:
    return ANY_TRUTH if asked_of_surroundings(atom) else frozenset({atom_truth(atom, event, NO_CONTEXT)})


def _of_type(atom: Atom, event: Event) -> Truths:
    """Of what may be derived only the type is known."""
    return _alone(atom, event) if atom.name == "type" else ANY_TRUTH
