"""Which definitions some events make use of: the events are decided, as replay does, and what came of them is noted."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.language.control_events import changes
from nearcast.language.definitions.files import DefinitionSet
from nearcast.model.columns import entered_events
from nearcast.model.event import Event
from nearcast.model.relation import RELATION_EVENT
from nearcast.model.zone import ZONE_EVENT
from nearcast.stages.decide import decide
from nearcast.stages.fold import FoldedBatch, StateFold
from nearcast.state.previous_values import values_of
from nearcast.state.registry import Registry


class DefinitionUse:
    """Takes events in their order, in any portions; the ids of what selected or told something."""

    def __init__(self, definitions: DefinitionSet, node: str) -> None:
        self.subscriptions: set[str] = set()
        self.relations: set[str] = set()
        self.layers: set[str] = set()
        registry = Registry()
        for change in definitions.changes(node):
            registry.apply(change)
        self._known, self._node, self._end = StateFold(registry), node, 0

    def include(self, events: Sequence[Event]) -> None:
        """Decides the next events."""
        table = entered_events(events, self._node)
        numbers = pa.array(range(self._end + 1, self._end + 1 + len(events)), pa.int64())
        self._end += len(events)
        for batch in self._known.fold(table.set_column(0, table.schema.field(0), numbers), changes):
            self._note(batch)
        # What acts wrongly is told where it is read.
        self._known.refusals.clear()

    def _note(self, batch: FoldedBatch) -> None:
        deliveries = decide(batch, batch.events)
        self.subscriptions.update(deliveries.column("subscription").unique().to_pylist())
        others = deliveries.column("others").combine_chunks().flatten()
        self.subscriptions.update(pc.struct_field(others, "subscription").unique().to_pylist())
        told = batch.events.filter(pc.equal(batch.events.column("type"), RELATION_EVENT))
        zones = batch.events.filter(pc.equal(batch.events.column("type"), ZONE_EVENT))
        self.layers.update(str(one) for values in values_of(zones, ["layer"])["layer"] for one in values)
        self.relations.update(str(one) for values in values_of(told, ["relation"])["relation"] for one in values)
