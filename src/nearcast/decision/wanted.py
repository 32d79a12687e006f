"""Whether anybody but guarded relations may want an event: asked where it enters, and answered yes if in doubt.

The filters of subscriptions are held against the one event. What else they need — where users are, which event came
before — is not known there; an atom about it may be TRUE or FALSE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nearcast.decision.evaluate import NOTHING, UNDER_NOT, UNDER_PLAIN_NOT, Wanted, atom_truth
from nearcast.decision.registry import Registry
from nearcast.decision.relate.guarded import is_guarded
from nearcast.decision.relate.sides import sees_derived
from nearcast.model.event import Event
from nearcast.model.expression import PREVIOUS, Call, parts
from nearcast.model.filter import And, Atom, Count, Distance, Entities, Filter, Not, PlainNot, This, atoms
from nearcast.model.place import Place
from nearcast.model.relation import Buddies, Matching, Named, Relation
from nearcast.model.subscription import Client, Roles, Subscription


class Interest:
    """All that may want events beside guarded relations; without `guards` these too, as if there were none."""

    def __init__(self, registry: Registry, guards: bool = True) -> None:
        subscriptions = registry.subscriptions.values()
        filters = [one.filter for one in subscriptions]
        self._entities: set[str] = set()
        # Situations read whatever there is.
        self._all = bool(registry.situations or registry.actions)
        self._all |= any(_may_lack_atoms(one, registry.settings.roles) for one in subscriptions)
        for relation in registry.relations.values():
            if not guards or not is_guarded(relation):
                filters += self._sides(relation, registry.clients)
        self._all |= any(_needs_others(atom) for filter in filters for atom in atoms(filter))
        # Many clients ask the same.
        self._filters = list(dict.fromkeys(filters))

    def _sides(self, relation: Relation, clients: Mapping[str, Client]) -> list[Filter]:
        """The filters of a relation's sides; of sides that are named the names are noted."""
        found: list[Filter] = []
        about = relation.about
        self._all |= sees_derived(relation)
        for side in (getattr(about, name, None) for name in ("a", "b", "among")):
            match side:
                case Named(entity):
                    self._entities.add(entity)
                case Matching(filter):
                    found.append(filter)
                case Buddies(client, list):
                    known = clients.get(client)
                    self._entities.update(known.lists.get(list, ()) if known else ())
        return found

    def wants(self, event: Event) -> bool:
        """Whether anybody may want the event."""
        if self._all or event.entity in self._entities:
            return True
        return any(may_select(filter, event) for filter in self._filters)

    def wants_type(self, type: str) -> bool:
        """Whether anybody may want some event of a type, whatever else it says."""
        if self._all or self._entities:
            return True
        event = Event("", type, "")
        return any(may_select(filter, event, is_open=_is_not_type) for filter in self._filters)


Open = Callable[[Atom], bool]


def may_select(node: Filter, event: Event, wanted: Wanted = Wanted.TRUE, is_open: Open | None = None) -> bool:
    """Whether a filter may select an event, whatever is known besides it: atoms that are open may have any truth."""
    is_open = is_open or _is_open
    if isinstance(node, Atom):
        return is_open(node) or wanted.holds(atom_truth(node, event, NOTHING))
    if isinstance(node, (Not, PlainNot)):
        under = (UNDER_NOT if isinstance(node, Not) else UNDER_PLAIN_NOT)[wanted]
        return may_select(node.child, event, under, is_open)
    found = (may_select(child, event, wanted, is_open) for child in node.children)
    return all(found) if isinstance(node, And) == wanted.joint else any(found)


def _is_not_type(atom: Atom) -> bool:
    """Whether an atom asks for more than the event's type."""
    return atom.name != "type"


def _may_lack_atoms(subscription: Subscription, roles: Roles) -> bool:
    """Whether an atom may have the relevance 0: the filter without it may select what the whole does not."""
    if subscription.relevance is not None:
        return 0 in subscription.relevance
    return any(0 in vector for vectors in roles.vectors.values() for vector in vectors.values())


def _is_open(atom: Atom) -> bool:
    """Whether an atom rests on more than the event."""
    if isinstance(atom.name, Distance):
        return any(not isinstance(one, (This, Place)) for one in (atom.name.a, atom.name.b))
    if isinstance(atom.name, Call):
        return any(isinstance(part, Call) and part.function in ("USER", *PREVIOUS) for part in parts(atom.name))
    return isinstance(atom.name, Count)


def _needs_others(atom: Atom) -> bool:
    """Whether an atom rests on other events, so that one that it does not select may still count for it."""
    match atom.name:
        case Distance(a, b):
            return isinstance(a, Entities) or isinstance(b, Entities)
        case Count():
            return True
        case Call():
            return any(isinstance(part, Call) and part.function in PREVIOUS for part in parts(atom.name))
    return False
