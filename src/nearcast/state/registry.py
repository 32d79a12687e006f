"""The registry of all that is defined, and of clients: the fold of control events over the journal (semantics §3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from nearcast.model.changes import (
    ActionChange,
    ActionRemoval,
    Change,
    ClientChange,
    ClientRemoval,
    RelationChange,
    RelationRemoval,
    SettingsChange,
    SituationChange,
    SituationRemoval,
    SubscriptionChange,
    SubscriptionRemoval,
)
from nearcast.model.limits import Limits
from nearcast.model.relation import Relation
from nearcast.model.situation import Action, Situation
from nearcast.model.subscription import ClientProfile, Settings, Subscription

Held = Settings | ClientProfile | Subscription | Relation | Situation | Action


@dataclass(slots=True)
class Registry:
    """Who there is and who wants what, as of a position of the journal; the rest in the order of adding."""

    settings: Settings = field(default_factory=Settings)
    clients: dict[str, ClientProfile] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    relations: dict[str, Relation] = field(default_factory=dict)
    situations: dict[str, Situation] = field(default_factory=dict)
    actions: dict[str, Action] = field(default_factory=dict)
    version: int = field(default=0, compare=False)
    """How many changes were folded into it: who rests on it knows whether it is as it was."""

    def apply(self, change: Change) -> None:
        """Folds one change into the registry; removing what is not there changes nothing."""
        self.version += 1
        match change:
            case ClientChange():
                self.clients[change.client] = changed(self.clients.get(change.client), change, self.settings.limits)
            case ClientRemoval(id):
                self.clients.pop(id, None)
            case SubscriptionChange(subscription):
                self.subscriptions.pop(subscription.id, None)
                self.subscriptions[subscription.id] = subscription
            case SubscriptionRemoval(id):
                self.subscriptions.pop(id, None)
            case RelationChange(relation):
                self.relations.pop(relation.id, None)
                self.relations[relation.id] = relation
            case RelationRemoval(id):
                self.relations.pop(id, None)
            case SettingsChange(settings):
                self.settings = settings
            case SituationChange(situation):
                self.situations.pop(situation.id, None)
                self.situations[situation.id] = situation
            case SituationRemoval(id):
                self.situations.pop(id, None)
            case ActionChange(action):
                self.actions.pop(action.id, None)
                self.actions[action.id] = action
            case ActionRemoval(id):
                self.actions.pop(id, None)

    def copy(self) -> Registry:
        """A registry that goes its own way from here."""
        return Registry(
            self.settings,
            dict(self.clients),
            dict(self.subscriptions),
            dict(self.relations),
            dict(self.situations),
            dict(self.actions),
        )

    def at(self, node: str, alone: bool = True) -> Registry:
        """What matters to events that enter at a node: without the relations that are local to others.

        Where it is not `alone`, global relations have no strategy: from one node nobody can hold back for them.
        """
        found = self.copy()
        here = (one for one in self.relations.values() if one.node in (None, node))
        found.relations = {one.id: one if alone or one.node else replace(one, strategy=None) for one in here}
        return found

    def held(self) -> Iterator[Held]:
        """The settings, and all that is there, in the order of `changes`."""
        yield self.settings
        for each in (self.clients, self.subscriptions, self.relations, self.situations, self.actions):
            yield from each.values()

    def changes(self) -> list[Change]:
        """The shortest list of changes that folds to this registry."""
        return [change_of(one) for one in self.held()]


def change_of(held: Held) -> Change:
    """The change that adds what a registry holds."""
    match held:
        case ClientProfile(id, role, task, readings, place, matrix, lists):
            return ClientChange(id, role, task, readings, place, matrix, lists or None)
        case Subscription():
            return SubscriptionChange(held)
        case Relation():
            return RelationChange(held)
        case Situation():
            return SituationChange(held)
        case Action():
            return ActionChange(held)
        case Settings():
            return SettingsChange(held)


def changed(client: ClientProfile | None, change: ClientChange, limits: Limits | None = None) -> ClientProfile:
    """The client after a change: what it gives replaces, readings and lists merge by name; a new one begins empty.

    Readings for which there is no room are left out (`readings_beyond`).
    """
    client = client or ClientProfile(change.client)
    beyond = frozenset(readings_beyond(client, change, limits or Limits()))
    told = {**client.readings, **(change.readings or {})}
    return ClientProfile(
        id=client.id,
        role=client.role if change.role is None else change.role,
        task=client.task if change.task is None else change.task,
        readings={name: value for name, value in told.items() if value is not None and name not in beyond},
        place=change.place or client.place,
        matrix=change.matrix or client.matrix,
        lists={**client.lists, **(change.lists or {})},
    )


def readings_beyond(client: ClientProfile | None, change: ClientChange, limits: Limits) -> list[str]:
    """The readings of a change, by name, for which a client that keeps others has no room: the later ones."""
    given, kept = change.readings or {}, client.readings if client else {}
    # Nearly always: who says again what it said before needs no more room.
    if len(kept) + len(given) <= limits.client_readings:
        return []
    fresh = [name for name, value in given.items() if name not in kept and value is not None]
    lapsed = sum(value is None and name in kept for name, value in given.items())
    return fresh[max(limits.client_readings - len(kept) + lapsed, 0) :]
