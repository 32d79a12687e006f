"""Who hears by which group, and from when to when: subscriptions, clients and roles as columns (Agent §6.1.2).

A subscription sees exactly the events after its own position in the journal, until the one before it ends; so does a
client. Within a batch that makes windows, not cuts: what ends in a batch is there until the next one begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from nearcast.decision.assignments import Assignments, Rows
from nearcast.decision.match.index import Group, location_conditions
from nearcast.decision.match.standing import Standing
from nearcast.decision.registry import Registry
from nearcast.decision.relevance import by_role, classes_of, role_relevance
from nearcast.decision.remembered import asked_of_previous
from nearcast.model.changes import Change, ClientChange, ClientRemoval, SubscriptionChange, SubscriptionRemoval
from nearcast.model.filter import Entities, Filter, atoms
from nearcast.model.subscription import Client, Roles, Settings, Subscription

K = TypeVar("K")

ANY_ROLE = -1

SPARE = 1_000
"""Numbers of clients or subscriptions that may be of none any more, beside as many as there are."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A subscription that is there: what it wants, and of each of its groups the number and the role."""

    subscription: Subscription
    groups: list[tuple[int, int]]


class Interests:
    """Follows the registry's subscriptions and clients, change by change; the settings do not change.

    `standing` are the groups, `terms` the location terms in use, `remembered` the attributes asked of previous events.
    """

    def __init__(self, registry: Registry, standing: Standing | None = None) -> None:
        self.standing = standing or Standing()
        self.terms: Counter[Entities] = Counter()
        self.remembered: Counter[str] = Counter()
        self._settings = registry.settings
        self._rows = Rows()
        self._shown: Assignments | None = None
        self._ids: list[str] = []
        self._names: list[str] = []
        self._codes: dict[str, int] = {}
        self._clients: set[str] = set()
        self._orders: dict[str, int] = {}
        self._held: dict[int, _Held] = {}
        self._wanting: dict[str, dict[int, None]] = {}
        self._ended: list[_Held] = []
        self._worn: dict[int, None] = {}
        for client in registry.clients:
            self._come(0, client)
        for subscription in registry.subscriptions.values():
            self._begin(0, subscription)

    def settle(self) -> None:
        """Forgets what ended in the last batch: the next one begins."""
        if self._worn:
            self._rows.clear(list(self._worn))
        for held in self._ended:
            for group, _ in held.groups:
                self.standing.let_go(group)
            # Most filters have neither, and need not be gone through for them.
            if self.terms:
                _uncount(self.terms, location_conditions(held.subscription.filter))
            if self.remembered:
                _uncount(self.remembered, asked_of_previous(held.subscription.filter))
        if self._worn or self._ended:
            self._shown = None
        self._worn, self._ended = {}, []
        if len(self._ids) > 2 * len(self._held) + SPARE or len(self._names) > 2 * len(self._clients) + SPARE:
            self._renumber()

    def apply(self, position: int, change: Change) -> None:
        """Opens and closes windows as one change says."""
        match change:
            case SubscriptionChange(subscription):
                self._end(position, subscription.id)
                self._begin(position, subscription)
            case SubscriptionRemoval(id):
                self._end(position, id)
            case ClientRemoval(name):
                self._leave(position, name)
            case ClientChange():
                self._come(position, change.client)

    def let_go(self) -> None:
        """Forgets everything: others go on with the groups."""
        for held in [*self._held.values(), *self._ended]:
            for group, _ in held.groups:
                self.standing.let_go(group)

    def assignments(self) -> Assignments:
        """The rows as they are now, with those that ended in this batch."""
        if self._shown is None:
            self._shown = self._rows.show(self._names, self._ids)
        return self._shown

    def _begin(self, position: int, subscription: Subscription) -> None:
        order = len(self._ids)
        self._ids.append(subscription.id)
        self._orders[subscription.id] = order
        groups = [(self.standing.take(group), role) for group, role in groups_of(subscription, self._settings)]
        self._held[order] = _Held(subscription, groups)
        for group, _ in groups:
            self._rows.reach(group)
        self._shown = None
        for client in dict.fromkeys(subscription.clients):
            self._wanting.setdefault(client, {})[order] = None
            if client in self._clients:
                self._hear(position, client, order)
        self.terms.update(location_conditions(subscription.filter))
        self.remembered.update(asked_of_previous(subscription.filter))

    def _end(self, position: int, id: str) -> None:
        order = self._orders.pop(id, None)
        if order is None:
            return
        held = self._held.pop(order)
        for client in held.subscription.clients:
            if order in (wanting := self._wanting.get(client, {})):
                del wanting[order]
            if not wanting:
                self._wanting.pop(client, None)
        for group, _ in held.groups:
            self._rows.end_order(group, order, position)
            self._worn[group] = None
        self._ended.append(held)
        self._shown = None

    def _come(self, position: int, client: str) -> None:
        if client in self._clients:
            return
        self._clients.add(client)
        for order in self._wanting.get(client, ()):
            self._hear(position, client, order)

    def _leave(self, position: int, client: str) -> None:
        if client not in self._clients:
            return
        self._clients.remove(client)
        for order in self._wanting.get(client, ()):
            for group, _ in self._held[order].groups:
                self._rows.end_client(group, self._codes[client], position)
                self._worn[group] = None
        self._shown = None

    def _hear(self, position: int, client: str, order: int) -> None:
        """From a position on a client hears by a subscription."""
        code = self._codes.setdefault(client, len(self._names))
        if code == len(self._names):
            self._names.append(client)
        for group, role in self._held[order].groups:
            self._rows.add(group, code, order, role, position)
        self._shown = None

    def _renumber(self) -> None:
        """Numbers clients and subscriptions anew, without those that are not there any more."""
        names = [name for name in self._names if name in self._clients]
        clients, orders = np.zeros(len(self._names) + 1, np.int32), np.zeros(len(self._ids) + 1, np.int32)
        codes = {name: code for code, name in enumerate(names)}
        clients[[self._codes[name] for name in names]] = np.arange(len(names))
        kept = sorted(self._held)
        orders[kept] = np.arange(len(kept))
        number = {old: new for new, old in enumerate(kept)}
        self._rows.renumber(clients, orders)
        # New lists, for the old ones belong to what was shown.
        self._names, self._codes, self._ids = names, codes, [self._ids[order] for order in kept]
        self._held = {number[order]: held for order, held in self._held.items()}
        self._orders = {id: number[order] for id, order in self._orders.items()}
        self._wanting = {
            client: {number[order]: None for order in wanting} for client, wanting in self._wanting.items()
        }
        self._shown = None


def _uncount(counter: Counter[K], found: list[K]) -> None:
    # Subtracting counters would look at all that they count.
    for key in found:
        counter[key] -= 1
        if not counter[key]:
            del counter[key]


def role_number(client: Client, roles: Roles) -> int:
    """The number of the client's role and task among those with vectors; one past the last for any other."""
    keys = list(roles.vectors)
    key = (client.role or "", client.task or "")
    if client.role is None and client.task is None and roles.default:
        key = roles.default
    return keys.index(key) if key in keys else len(keys)


def groups_of(subscription: Subscription, settings: Settings) -> Iterator[tuple[Group, int]]:
    """A subscription's groups, each with the role under which it holds."""
    filter: Filter = subscription.filter
    count = sum(1 for _ in atoms(filter))
    if not by_role(subscription, settings.roles):
        yield (filter, classes_of(subscription.relevance, count, settings.levels)), ANY_ROLE
        return
    keys: list[tuple[str | None, str | None]] = [*settings.roles.vectors, ("", "")]
    for number, key in enumerate(keys):
        vector = role_relevance(subscription, settings.roles, *key)
        yield (filter, classes_of(vector, count, settings.levels)), number
