"""Who gets what by which group, and from when to when: subscriptions, clients and roles as columns (Agent §6.1.2).

A subscription sees exactly the events after its own position in the journal, until the one before it ends; so does a
client. Within a batch that makes windows, not cuts: what ends in a batch is there until the next one begins.

A block has room to grow, and moves to the end when it is full, so adding a row takes a constant time on average.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from nearcast.delivery.spatial_uses import SpatialUses
from nearcast.filters.receiver_terms import asked_of_receiver, for_receiver
from nearcast.filters.relevance import by_role, classes_of, role_relevance
from nearcast.filters.spatial_atoms import spatial_atoms, term_atoms
from nearcast.matching.bitset import FilterGroup
from nearcast.matching.incremental import IncrementalIndex
from nearcast.matching.matcher import location_conditions
from nearcast.model.arrays import Int32s, Integers, runs
from nearcast.model.changes import Change, ClientChange, ClientRemoval, SubscriptionChange, SubscriptionRemoval
from nearcast.model.filter import Atom, Entities, Filter, atoms
from nearcast.model.subscription import ClientProfile, Roles, Settings, Subscription
from nearcast.state.previous_values import asked_of_previous
from nearcast.state.registry import Registry
from nearcast.state.timeline import FOREVER


@dataclass(frozen=True, slots=True)
class GroupAssignments:
    """One row per (group, client, subscription): those of group g are `counts[g]` from `starts[g]` on.

    `role` is the number of the role and task under which the row holds, or `ANY_ROLE`; `order` is that of the
    subscription, ascending with its adding. Clients and subscriptions are numbers into `clients` and `subscriptions`,
    which may have more. A row holds for events with `after` < position ≤ `through`.
    """

    starts: Integers
    counts: Integers
    client: Int32s
    order: Int32s
    role: Int32s
    after: Integers
    through: Integers
    clients: list[str]
    subscriptions: list[str]


class AssignmentRows:
    """The rows of `GroupAssignments` while they come and go."""

    def __init__(self) -> None:
        # By group: where its block begins, how many rows it has, and how many there is room for.
        self._blocks = np.zeros((3, 64), np.int64)
        self._used = 0
        self.client, self.order, self.role = (np.zeros(64, np.int32) for _ in range(3))
        self.after, self.through = np.zeros(64, np.int64), np.zeros(64, np.int64)
        self._shown = False

    def reach(self, group: int) -> None:
        """Makes room for a group, which need not have a row: its clients may all be unknown yet."""
        if group >= self._blocks.shape[1]:
            # What was shown stays as it is.
            self._blocks = _longer(self._blocks, 2 * group)

    def add_row(self, group: int, client: int, order: int, role: int, after: int) -> None:
        """Adds a row of a group that has room, which holds for the events after a position."""
        self._own()
        start, count, room = self._blocks[:, group].tolist()
        if count == room:
            start = self._move(group, start, count)
        at = start + count
        self.client[at], self.order[at], self.role[at] = client, order, role
        self.after[at], self.through[at] = after, FOREVER
        self._blocks[1, group] = count + 1

    def end_order(self, group: int, order: int, position: int) -> None:
        """Ends the rows of a subscription: the last event they hold for is at this position."""
        self._end(group, self.order, order, position)

    def end_row(self, group: int, client: int, order: int, position: int) -> None:
        """The same for the row of a client by a subscription."""
        self._own()
        block = self._block(group)
        through = self.through[block]
        own = (self.client[block] == client) & (self.order[block] == order) & (through == FOREVER)
        through[own] = position

    def end_client(self, group: int, client: int, position: int) -> None:
        """The same for the rows of a client."""
        self._end(group, self.client, client, position)

    def clear(self, groups: Sequence[int]) -> None:
        """Removes the rows of groups that have ended."""
        self._own()
        starts, counts, _ = self._blocks[:, groups]
        rows = runs(starts, counts)
        current = self.through[rows] == FOREVER
        left = np.bincount(np.repeat(np.arange(len(groups)), counts)[current], minlength=len(groups))
        to = runs(starts, left)
        for column in self._columns():
            column[to] = column[rows[current]]
        self._blocks[1, groups] = left

    def renumber(self, clients: Int32s, orders: Int32s) -> None:
        """Gives clients and subscriptions other numbers: `clients[old]` and `orders[old]`."""
        self._own()
        self.client, self.order = clients[self.client], orders[self.order]

    def show(self, clients: list[str], subscriptions: list[str]) -> GroupAssignments:
        """The rows as they are now; what comes later does not change what was shown."""
        self._shown = True
        columns = (self.client, self.order, self.role, self.after, self.through)
        return GroupAssignments(self._blocks[0], self._blocks[1], *columns, clients, subscriptions)

    def _end(self, group: int, column: Int32s, value: int, position: int) -> None:
        self._own()
        block = self._block(group)
        through = self.through[block]
        through[(column[block] == value) & (through == FOREVER)] = position

    def _block(self, group: int) -> slice:
        start, count, _ = self._blocks[:, group].tolist()
        return slice(start, start + count)

    def _move(self, group: int, start: int, count: int) -> int:
        """Gives a full block twice the room, at the end."""
        room = max(1, 2 * count)
        begin = self._used
        self._used += room
        if self._used > len(self.client):
            self.client, self.order, self.role, self.after, self.through = (
                _longer(column, 2 * self._used) for column in self._columns()
            )
        for column in self._columns():
            column[begin : begin + count] = column[start : start + count]
        self._blocks[0, group], self._blocks[2, group] = begin, room
        return begin

    def _own(self) -> None:
        """Copies what was shown before it is changed: once for all changes until it is shown again."""
        if self._shown:
            self.client, self.order, self.role, self.after, self.through = (each.copy() for each in self._columns())
            self._blocks, self._shown = self._blocks.copy(), False

    def _columns(self) -> tuple[npt.NDArray[Any], ...]:
        return self.client, self.order, self.role, self.after, self.through


def _longer(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """The same with room for so many, the new ones zero."""
    longer = np.zeros((*array.shape[:-1], size), array.dtype)
    longer[..., : array.shape[-1]] = array
    return longer


K = TypeVar("K")

ANY_ROLE = -1

Groups = list[tuple[int, int]]
"""Groups, each by its number and the role under which it holds."""

SPARE = 1_000
"""Numbers of clients or subscriptions that may be of none any more, beside as many as there are."""


@dataclass(frozen=True, slots=True)
class _OwnGroups:
    """What a subscription is for one client: its groups by these readings, and its atoms about geometries."""

    groups: Groups
    readings: Mapping[str, float]
    spatial: tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class _IndexedSubscription:
    """A subscription that is there: what it wants, and of each of its groups the number and the role.

    `asks`: the readings that it asks of its receivers, None if it says nothing of them. Else there are groups for each
    client that hears it, by its name, with these readings of it.
    """

    subscription: Subscription
    groups: Groups
    asks: frozenset[str] | None = None
    own: dict[str, _OwnGroups] = field(default_factory=dict)

    def groups_of(self, client: str) -> Groups:
        """The groups by which a client hears it."""
        if self.asks is None:
            return self.groups
        return self.own[client].groups if client in self.own else []

    def all_groups(self) -> Iterator[int]:
        """The numbers of all its groups, each as often as it was acquired."""
        yield from (group for group, _ in self.groups)
        yield from (group for own in self.own.values() for group, _ in own.groups)


class SubscriptionIndex:
    """Follows the registry's subscriptions and clients, change by change; the settings do not change.

    `incremental_index` has the groups, `terms` the location terms in use, `remembered` the attributes asked of previous
    events, `spatial` the atoms about geometries, `spatial_of_terms` those of the terms' conditions.
    """

    def __init__(self, registry: Registry, incremental_index: IncrementalIndex | None = None) -> None:
        self.incremental_index = incremental_index or IncrementalIndex()
        self.terms: Counter[Entities] = Counter()
        self.remembered: Counter[str] = Counter()
        self.spatial = SpatialUses()
        self.spatial_of_terms = SpatialUses()
        self._registry, self._settings = registry, registry.settings
        self._left: list[int] = []
        self._rows = AssignmentRows()
        self._shown: GroupAssignments | None = None
        self._ids: list[str] = []
        self._names: list[str] = []
        self._codes: dict[str, int] = {}
        self._clients: set[str] = set()
        self._orders: dict[str, int] = {}
        self._held: dict[int, _IndexedSubscription] = {}
        self._wanting: dict[str, dict[int, None]] = {}
        self._ended: list[_IndexedSubscription] = []
        self._worn: dict[int, None] = {}
        for client in registry.clients:
            self._come(0, client)
        for subscription in registry.subscriptions.values():
            self._begin(0, subscription)

    def begin_batch(self) -> None:
        """Forgets what ended in the last batch: the next one begins."""
        self.spatial.begin_batch()
        self.spatial_of_terms.begin_batch()
        if self._worn:
            self._rows.clear(list(self._worn))
        for group in self._left:
            self.incremental_index.release(group)
        self._left = []
        for held in self._ended:
            for group in held.all_groups():
                self.incremental_index.release(group)
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
                if not change.withdraws_only:
                    self._come(position, change.client)
                if change.readings is not None or change.lapsed is not None:
                    self._reread(position, change.client)

    def forget_all(self) -> None:
        """Forgets everything: others go on with the groups."""
        for group in self._left:
            self.incremental_index.release(group)
        for held in [*self._held.values(), *self._ended]:
            for group in held.all_groups():
                self.incremental_index.release(group)

    def assignments(self) -> GroupAssignments:
        """The rows as they are now, with those that ended in this batch."""
        if self._shown is None:
            self._shown = self._rows.show(self._names, self._ids)
        return self._shown

    def _begin(self, position: int, subscription: Subscription) -> None:
        order = len(self._ids)
        self._ids.append(subscription.id)
        self._orders[subscription.id] = order
        about_receiver, readings = asked_of_receiver(subscription.filter)
        groups = [] if about_receiver else self._acquired(subscription)
        self._held[order] = _IndexedSubscription(subscription, groups, readings if about_receiver else None)
        if not about_receiver:
            self.spatial.begin(position, spatial_atoms(subscription.filter))
        self._shown = None
        for client in dict.fromkeys(subscription.clients):
            self._wanting.setdefault(client, {})[order] = None
            if client in self._clients:
                self._hear(position, client, order)
        if terms := location_conditions(subscription.filter):
            self.terms.update(terms)
            self.spatial_of_terms.begin(position, term_atoms(subscription.filter))
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
        for group in held.all_groups():
            self._rows.end_order(group, order, position)
            self._worn[group] = None
        if held.asks is None:
            self.spatial.end(position, spatial_atoms(held.subscription.filter))
        for own in held.own.values():
            self.spatial.end(position, own.spatial)
        if self.terms:
            self.spatial_of_terms.end(position, term_atoms(held.subscription.filter))
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
            held = self._held[order]
            for group, _ in held.groups_of(client):
                self._rows.end_client(group, self._codes[client], position)
                self._worn[group] = None
            if client in held.own:
                self._forget_own(position, held, client)
        self._shown = None

    def _reread(self, position: int, client: str) -> None:
        """Hears anew what asks for readings of a client that have changed."""
        known = self._known(client)
        for order in self._wanting.get(client, ()):
            held = self._held[order]
            if held.asks is None or client not in held.own or held.own[client].readings == _of(known, held.asks):
                continue
            for group, _ in held.own[client].groups:
                self._rows.end_row(group, self._codes[client], order, position)
                self._worn[group] = None
            self._forget_own(position, held, client)
            self._hear(position, client, order)

    def _forget_own(self, position: int, held: _IndexedSubscription, client: str) -> None:
        """Forgets what a subscription is for one client."""
        own = held.own.pop(client)
        self._left += [group for group, _ in own.groups]
        self.spatial.end(position, own.spatial)

    def _known(self, client: str) -> Mapping[str, float]:
        """The readings of a client as they are now."""
        found = self._registry.clients.get(client)
        return {} if found is None else found.readings

    def _acquired(self, subscription: Subscription) -> Groups:
        """The groups of a subscription, from now on used once more, with room for rows."""
        groups = [
            (self.incremental_index.acquire(group), role) for group, role in groups_of(subscription, self._settings)
        ]
        for group, _ in groups:
            self._rows.reach(group)
        return groups

    def _hear(self, position: int, client: str, order: int) -> None:
        """From a position on a client hears by a subscription."""
        code = self._codes.setdefault(client, len(self._names))
        if code == len(self._names):
            self._names.append(client)
        held = self._held[order]
        if held.asks is not None and client not in held.own:
            readings = _of(self._known(client), held.asks)
            filter = for_receiver(held.subscription.filter, client, readings)
            groups = self._acquired(replace(held.subscription, filter=filter))
            own = held.own[client] = _OwnGroups(groups, readings, tuple(spatial_atoms(filter)))
            self.spatial.begin(position, own.spatial)
        for group, role in held.groups_of(client):
            self._rows.add_row(group, code, order, role, position)
        self._shown = None

    def _renumber(self) -> None:
        """Numbers clients and subscriptions anew, without those that are not there any more."""
        names = [name for name in self._names if name in self._clients]
        clients, orders = np.zeros(len(self._names) + 1, np.int32), np.zeros(len(self._ids) + 1, np.int32)
        codes = {name: code for code, name in enumerate(names)}
        clients[[self._codes[name] for name in names]] = np.arange(len(names))
        current = sorted(self._held)
        orders[current] = np.arange(len(current))
        number = {old: new for new, old in enumerate(current)}
        self._rows.renumber(clients, orders)
        # New lists, for the old ones belong to what was shown.
        self._names, self._codes, self._ids = names, codes, [self._ids[order] for order in current]
        self._held = {number[order]: held for order, held in self._held.items()}
        self._orders = {id: number[order] for id, order in self._orders.items()}
        self._wanting = {
            client: {number[order]: None for order in wanting} for client, wanting in self._wanting.items()
        }
        self._shown = None


def _of(readings: Mapping[str, float], names: frozenset[str]) -> Mapping[str, float]:
    return {name: readings[name] for name in sorted(names) if name in readings}


def _uncount(counter: Counter[K], found: list[K]) -> None:
    # Subtracting counters would look at all that they count.
    for key in found:
        counter[key] -= 1
        if not counter[key]:
            del counter[key]


def role_number(client: ClientProfile, roles: Roles) -> int:
    """The number of the client's role and task among those with vectors; one past the last for any other."""
    keys = list(roles.vectors)
    key = (client.role or "", client.task or "")
    if client.role is None and client.task is None and roles.default:
        key = roles.default
    return keys.index(key) if key in keys else len(keys)


def groups_of(subscription: Subscription, settings: Settings) -> Iterator[tuple[FilterGroup, int]]:
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
