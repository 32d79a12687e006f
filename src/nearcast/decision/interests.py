"""Who hears by which group, and from when to when: subscriptions, clients and roles as columns (Agent §6.1.2).

A subscription sees exactly the events after its own position in the journal, until the one before it ends; so does a
client. Within a batch that makes windows, not cuts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nearcast.decision.match import Group
from nearcast.decision.registry import Registry
from nearcast.decision.relevance import by_role, classes_of, role_relevance
from nearcast.decision.timeline import FOREVER
from nearcast.model.changes import Change, ClientChange, ClientRemoval, SubscriptionChange, SubscriptionRemoval
from nearcast.model.filter import atoms
from nearcast.model.subscription import Client, Roles, Settings, Subscription

ANY_ROLE = -1
Integers = npt.NDArray[np.int64]


@dataclass(slots=True)
class Window:
    """The events with `after` < position ≤ `through`."""

    after: int = 0
    through: int = FOREVER


@dataclass(slots=True)
class Interest:
    """A subscription while it holds; `order` ascends with its adding."""

    subscription: Subscription
    order: int
    window: Window = field(default_factory=Window)


class Windows:
    """The windows of subscriptions and clients over a batch that begins with this registry."""

    def __init__(self, registry: Registry) -> None:
        self.clients: dict[str, list[Window]] = {name: [Window()] for name in registry.clients}
        self._all = [Interest(found, order) for order, found in enumerate(registry.subscriptions.values())]
        self._there = {interest.subscription.id: interest for interest in self._all}

    def apply(self, position: int, change: Change) -> None:
        """Opens and closes windows as one change says."""
        match change:
            case SubscriptionChange(subscription):
                self._end(position, subscription.id)
                self._all.append(Interest(subscription, len(self._all), Window(after=position)))
                self._there[subscription.id] = self._all[-1]
            case SubscriptionRemoval(id):
                self._end(position, id)
            case ClientRemoval(name):
                for window in self.clients.get(name, [])[-1:]:
                    window.through = min(window.through, position)
            case ClientChange():
                windows = self.clients.setdefault(change.client, [])
                if not windows or windows[-1].through < FOREVER:
                    windows.append(Window(after=position))

    def _end(self, position: int, id: str) -> None:
        old = self._there.pop(id, None)
        if old:
            old.window.through = position

    def interests(self) -> list[Interest]:
        """All subscriptions of the batch in the order of their adding, those that ended in it too."""
        return self._all


@dataclass(frozen=True, slots=True)
class Assignments:
    """One row per (group, client, subscription), by group: `starts[g]` … `starts[g+1]` are those of group g.

    `role` is the number of the role and task under which the row holds, or `ANY_ROLE`; `order` is that of the
    subscription. Clients and subscriptions are numbers into `clients` and `subscriptions`.
    """

    starts: Integers
    client: Integers
    order: Integers
    role: Integers
    after: Integers
    through: Integers
    clients: list[str]
    subscriptions: list[str]


def role_number(client: Client, roles: Roles) -> int:
    """The number of the client's role and task among those with vectors; one past the last for any other."""
    keys = list(roles.vectors)
    key = (client.role or "", client.task or "")
    if client.role is None and client.task is None and roles.default:
        key = roles.default
    return keys.index(key) if key in keys else len(keys)


def groups_of(interests: Iterable[Interest], settings: Settings) -> dict[Group, int]:
    """The distinct groups of these interests, numbered in the order of their first appearance."""
    numbers: dict[Group, int] = {}
    for interest in interests:
        for group, _ in _groups(interest.subscription, settings):
            numbers.setdefault(group, len(numbers))
    return numbers


def _groups(subscription: Subscription, settings: Settings) -> list[tuple[Group, int]]:
    """A subscription's groups, each with the role under which it holds."""
    count = sum(1 for _ in atoms(subscription.filter))
    if not by_role(subscription, settings.roles):
        return [((subscription.filter, classes_of(subscription.relevance, count, settings.levels)), ANY_ROLE)]
    keys: list[tuple[str | None, str | None]] = [*settings.roles.vectors, ("", "")]
    return [
        ((subscription.filter, classes_of(vector, count, settings.levels)), number)
        for number, key in enumerate(keys)
        for vector in [role_relevance(subscription, settings.roles, *key)]
    ]


def assign(
    interests: list[Interest], clients: dict[str, list[Window]], groups: dict[Group, int], settings: Settings
) -> Assignments:
    """The assignments of these interests to these clients, each as long as both are there."""
    names = sorted(clients)
    codes = {name: code for code, name in enumerate(names)}
    rows = [
        (
            groups[group],
            codes[client],
            interest.order,
            role,
            max(own.after, there.after),
            min(own.through, there.through),
        )
        for interest in interests
        for own in [interest.window]
        for group, role in _groups(interest.subscription, settings)
        for client in interest.subscription.clients
        for there in clients.get(client, ())
    ]
    table = np.array(sorted(rows), np.int64).reshape(-1, 6).T
    return Assignments(
        np.searchsorted(table[0], np.arange(len(groups) + 1)),
        table[1],
        table[2],
        table[3],
        table[4],
        table[5],
        names,
        [interest.subscription.id for interest in interests],
    )
