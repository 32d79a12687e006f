"""What was heard at each entry node: the newest event of every entity there."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.columns import any_derived, are_derived, entry_nodes, nodes_of
from nearcast.state.derived import StageInput
from nearcast.state.repository import NewestEvents, Repository


class HeardEvents:
    """The newest event of every entity at each node. While all events enter at one, that is what the repository has."""

    def __init__(self, repository: NewestEvents) -> None:
        self._nodes: dict[str, Repository] = {}
        self._only: str | None = None
        self._add(repository.newest(), Repository())

    def at(self, node: str, together: NewestEvents) -> NewestEvents:
        """What was heard at a node, of what was heard at all."""
        return together if node == self._only else self._nodes.get(node, Repository())

    def add(self, stage_input: StageInput) -> None:
        """Goes on to the end of a stretch."""
        self._add(stage_input.events, stage_input.repository)

    def forget(self, entities: Collection[str]) -> None:
        """Drops the events of some entities."""
        for repository in self._nodes.values():
            repository.forget(entities)

    def _add(self, events: pa.Table, before: NewestEvents) -> None:
        # What was derived entered nowhere.
        if any_derived(events):
            events = events.filter(pa.array(~are_derived(events)))
        names = entry_nodes(events)
        if not self._nodes and self._only in (None, *names) and len(names) == 1:
            [self._only] = names
            return
        if self._only is not None and names:
            known = before.newest()
            self._nodes[self._only] = Repository(known.filter(pc.equal(known.column("part"), 0)))
            self._only = None
        for name in names:
            own = events.filter(pc.equal(nodes_of(events), name))
            self._nodes.setdefault(name, Repository()).fold_events(own)
