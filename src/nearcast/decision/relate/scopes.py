"""The stage relate as a whole: global relations see everything, local ones only what enters at their own node.

Each entry node that has local relations is a scope of its own, which is given that node's reports and nothing else, not
even the time that others bring. So a local relation tells what it would tell if there were no other node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.decision.derived import At, Stretch
from nearcast.decision.relate.pairing import Pairing
from nearcast.decision.relate.shard import SHARDS
from nearcast.decision.relate.stage import Relating
from nearcast.decision.repository import Repository
from nearcast.model.changes import ClientChange, ClientRemoval, RelationChange, RelationRemoval
from nearcast.model.columns import nodes_of
from nearcast.model.event import Event

Scope = str | None
"""An entry node; None is all of them together."""


class Scopes:
    """Relations over the batches of a journal, each in its scope; a `Deriving` stage. See `Relating`."""

    def __init__(self, shards: int = SHARDS) -> None:
        self._scopes: dict[Scope, Relating] = {None: Relating(shards)}
        self._where: dict[str, Scope] = {}
        self._heard: _Heard | None = None

    @property
    def pairings(self) -> Mapping[Scope, Pairing]:
        """The relations between pairs, by scope."""
        return {scope: relating.pairing for scope, relating in self._scopes.items()}

    def advance(self, stretch: Stretch) -> list[Event]:
        """What a stretch of the journal causes, ascending by position."""
        if self._heard is None:
            self._heard = _Heard(stretch.repository)
        left: dict[int, set[Scope]] = {}
        shared = self._shared(stretch.changes, left)
        told = [(event, scope) for scope in self._ordered() for event in self._told(scope, shared[scope], stretch)]
        self._heard.add(stretch)
        for scope in self._ordered():
            if scope is not None and not self._scopes[scope].defined:
                del self._scopes[scope]
        # A relation that goes to another scope ends in the first before it begins in the second.
        told.sort(key=lambda one: (one[0].position, one[1] not in left.get(one[0].position, ())))
        return [event for event, _ in told]

    def _ordered(self) -> list[Scope]:
        return sorted(self._scopes, key=lambda scope: (scope is not None, scope or ""))

    def _shared(self, changes: Sequence[At], left: dict[int, set[Scope]]) -> dict[Scope, list[At]]:
        """The changes that each scope hears; where a relation goes away from a scope, that is noted in `left`."""
        found: defaultdict[Scope, list[At]] = defaultdict(list)
        # Made first: each begins with the lists as of the beginning, and hears of every change of them.
        for _, change in changes:
            if isinstance(change, RelationChange) and change.relation.node not in self._scopes:
                self._scopes[change.relation.node] = self._scopes[None].beside()
        for position, change in changes:
            match change:
                case RelationChange(relation):
                    before = self._where.get(relation.id, relation.node)
                    if before != relation.node:
                        found[before].append((position, RelationRemoval(relation.id)))
                        left.setdefault(position, set()).add(before)
                    self._where[relation.id] = relation.node
                    found[relation.node].append((position, change))
                case RelationRemoval(id):
                    found[self._where.pop(id, None)].append((position, change))
                case ClientChange() | ClientRemoval():
                    for scope in self._scopes:
                        found[scope].append((position, change))
        return found

    def _told(self, scope: Scope, changes: Sequence[At], stretch: Stretch) -> list[Event]:
        relating = self._scopes[scope]
        if scope is None:
            return relating.advance(replace(stretch, changes=changes))
        assert self._heard, "it is there with the first stretch"
        events = stretch.events.filter(pc.equal(nodes_of(stretch.events), scope))
        own = replace(stretch, changes=changes, events=events, repository=self._heard.at(scope, stretch.repository))
        return [replace(event, node=scope) for event in relating.advance(own)]


class _Heard:
    """The newest event of every entity at each node. While all events enter at one, that is what the repository has."""

    def __init__(self, repository: Repository) -> None:
        self._nodes: dict[str, Repository] = {}
        self._only: str | None = None
        self._add(repository.newest(), Repository())

    def at(self, node: str, together: Repository) -> Repository:
        """What was heard at a node, of what was heard at all."""
        return together if node == self._only else self._nodes.get(node, Repository())

    def add(self, stretch: Stretch) -> None:
        """Goes on to the end of a stretch."""
        self._add(stretch.events, stretch.repository)

    def _add(self, events: pa.Table, before: Repository) -> None:
        derived = pc.greater(events.column("part"), 0)
        # What was derived entered nowhere. Seldom is any here, and filtering copies.
        if pc.any(derived).as_py():
            events = events.filter(pc.invert(derived))
        nodes = nodes_of(events)
        names = pc.unique(nodes).to_pylist()
        if not self._nodes and self._only in (None, *names) and len(names) == 1:
            [self._only] = names
            return
        if self._only is not None and names:
            known = before.newest()
            self._nodes[self._only] = Repository(known.filter(pc.equal(known.column("part"), 0)))
            self._only = None
        for name in names:
            self._nodes.setdefault(name, Repository()).add(events.filter(pc.equal(nodes, name)))
