"""What was known as of an event's position, and when who came and went around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from nearcast.errors import EventError
from nearcast.explain.explanation import ExplanationScene
from nearcast.model.changes import (
    Change,
    ClientChange,
    ClientRemoval,
    RelationChange,
    SituationChange,
    SubscriptionChange,
    SubscriptionRemoval,
    ZoneRuleChange,
)
from nearcast.model.event import Event
from nearcast.model.expression import Call, remembered
from nearcast.model.filter import Atom, Count, Distance, Entities, Filter, atoms
from nearcast.model.subscription import Settings
from nearcast.state.registry import Registry

Parse = Callable[[Event, Settings], list[Change]]
"""Reads a control event; raises EventError where it cannot be taken."""


@dataclass(slots=True)
class EntityChanges:
    """When clients and subscriptions came and went, on one side of an event: positions by id.

    `came` is the first time, `went` the last; `receivers` names those of each subscription that came. `derives`:
    whether there was a relation or a rule for situations, so that something may have been derived.
    """

    clients_came: dict[str, int] = field(default_factory=dict)
    clients_went: dict[str, int] = field(default_factory=dict)
    came: dict[str, int] = field(default_factory=dict)
    went: dict[str, int] = field(default_factory=dict)
    receivers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    derives: bool = False

    def note(self, position: int, change: Change) -> None:
        """Takes note of one change."""
        match change:
            case ClientChange() if not change.withdraws_only:
                self.clients_came.setdefault(change.client, position)
            case ClientRemoval(name):
                self.clients_went[name] = position
            case SubscriptionChange(subscription):
                self.came.setdefault(subscription.id, position)
                self.receivers[subscription.id] = subscription.clients
            case SubscriptionRemoval(id):
                self.went[id] = position
            case RelationChange() | SituationChange() | ZoneRuleChange():
                self.derives = True


@dataclass(slots=True)
class PastState:
    """The journal around one position: the state before it, and when who came and went before and after it."""

    scene: ExplanationScene
    before: EntityChanges
    after: EntityChanges


def changes_of(event: Event, state: Registry, parse: Parse) -> list[Change]:
    """What a control event changes; one that cannot be taken changes nothing."""
    try:
        return parse(event, state.settings)
    except EventError:
        return []


def derives(registry: Registry) -> bool:
    """Whether something may be derived."""
    return bool(registry.relations or registry.situations or registry.zones)


def rests_on_derived(past: PastState) -> bool:
    """Whether what is decided of the event may rest on derived ones: some subscription asks for other entities, or for
    the previous event.
    """
    return past.before.derives and any(_asks(one.filter) for one in past.scene.registry.subscriptions.values())


def _remembers(atom: Atom) -> bool:
    return isinstance(atom.name, Call) and bool(remembered(atom.name))


def _asks(filter: Filter) -> bool:
    terms = [atom.name for atom in atoms(filter) if isinstance(atom.name, Distance | Count)]
    sides = [getattr(term, side) for term in terms for side in type(term).__slots__]
    return any(isinstance(side, Entities) for side in sides) or any(_remembers(atom) for atom in atoms(filter))
