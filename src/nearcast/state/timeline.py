"""What is known as of every position of a batch: values before it, and their changes within it.

A location term sees positions as of the event's own place in the journal, and a client is who it was then. A timeline
carries both the state at the batch's start and every change inside it, so any part of the batch can be decided anywhere
with the same outcome, however the batch is cut.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from nearcast.model.event import Place
from nearcast.model.filter import Entities
from nearcast.model.limits import Limits
from nearcast.model.values import Value
from nearcast.state.spatial_windows import DecidedGeometries, SpatialWindows

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Positions = npt.NDArray[np.int64]

FOREVER = np.iinfo(np.int64).max
"""The last position of what has not ended."""


@dataclass(slots=True)
class Timeline(Generic[K, V]):
    """The value of each key over a batch. A change at position q holds for the events after q."""

    base: dict[K, V] = field(default_factory=dict)
    changes: dict[K, list[tuple[int, V]]] = field(default_factory=dict)

    def record_change(self, key: K, position: int, value: V) -> None:
        """Records a change; positions of one key ascend."""
        self.changes.setdefault(key, []).append((position, value))

    def at(self, key: K, position: int) -> V | None:
        """The value that holds for an event at this position; None if the key is not known."""
        changes = self.changes.get(key, ())
        index = bisect_left(changes, position, key=lambda change: change[0])
        return changes[index - 1][1] if index else self.base.get(key)

    def segments(self, key: K, positions: Positions) -> list[tuple[int, V | None]]:
        """The value for events at ascending positions, as (first index, value) pairs, the first of them at index 0."""
        changes = self.changes.get(key)
        if not changes or not len(positions):
            return [(0, self.base.get(key))]
        found: list[tuple[int, V | None]] = [(0, self.base.get(key))]
        starts = np.searchsorted(positions, [change[0] for change in changes], "right")
        for start, (_, value) in zip(starts.tolist(), changes, strict=True):
            if found[-1][0] == start:
                found.pop()
            if start < len(positions):
                found.append((start, value))
        return found

    def after(self) -> Timeline[K, V]:
        """The track as the next batch begins with it: the newest values, no changes."""
        if not self.changes:
            return self
        newest = {key: changes[-1][1] for key, changes in self.changes.items()}
        return Timeline({**self.base, **newest})


@dataclass(frozen=True, slots=True)
class EntityMembership:
    """An entity that satisfies the conditions of a location term, and where it is (None: nobody knows)."""

    place: Place | None


@dataclass(slots=True)
class TermMembers:
    """The entities that satisfy the conditions of one location term over a batch; a None member has left.

    `changes` are (position, entity, member) in journal order.
    """

    base: dict[str, EntityMembership] = field(default_factory=dict)
    changes: list[tuple[int, str, EntityMembership | None]] = field(default_factory=list)

    def after(self) -> TermMembers:
        """The members as the next batch begins with them."""
        members = dict(self.base)
        for _, entity, member in self.changes:
            members.pop(entity, None)
            if member is not None:
                members[entity] = member
        return TermMembers(members)


class Followed(dict[Entities, TermMembers]):
    """The members of location terms. Of a term that nobody asks for any more there are none.

    The index may have a group that is gone, and has masked it: what it finds is of no account, but must be found.
    """

    def __missing__(self, term: Entities) -> TermMembers:
        return TermMembers()


Excess = tuple[str, str, str]
"""Of an event that was beyond a limit its source and type, and the limit's name."""


@dataclass(slots=True)
class Environment:
    """Where things are over a batch: users, and the entities that each location term asks for.

    `previous` has, for each attribute that a filter asks of the previous event, the values by entity.
    """

    users: Timeline[str, Place | None] = field(default_factory=Timeline)
    entities: Mapping[Entities, TermMembers] = field(default_factory=dict)
    previous: Mapping[str, Timeline[str, tuple[Value, ...]]] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    excess: Counter[Excess] = field(default_factory=Counter)
    """How many atoms were not decided, of which events, for they came to a limit."""
    spatial: SpatialWindows = field(default_factory=SpatialWindows)
    """The atoms that share the work on geometries which is allowed for an event."""
    decided: DecidedGeometries | None = None
    """What they are for events that may take more of it."""
