"""`nearcast.replay`: who would have got what, decided from a history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, overload

import numpy as np
import orjson
import pyarrow as pa

from nearcast.api.definition_files import Definitions, DefinitionsLike, changes_of, definitions_of
from nearcast.api.event_rows import EventLike
from nearcast.api.frames import OnDeadLetter
from nearcast.api.streams import ArrowStream, EventSource, like, listed
from nearcast.language.cloudevents import DeadLetter
from nearcast.language.control_events import changes
from nearcast.model.columns import EVENTS, entering
from nearcast.model.event import MAIN
from nearcast.stages import decide
from nearcast.stages.decide import priorities
from nearcast.stages.fold import FoldedBatch, StateFold
from nearcast.state.derived import derived_of
from nearcast.state.registry import Registry

Frame = TypeVar("Frame", bound=ArrowStream)
OnDerived = Callable[[dict[str, Any]], None]

DECIDED = pa.schema(
    [
        ("event", pa.string()),
        ("client", pa.string()),
        ("subscription", pa.string()),
        ("level", pa.int8()),
        ("priority", pa.int8()),
        ("position", pa.int64()),
    ]
)
"""One delivery, as `nearcast replay` writes it: `priority` is that as of the event's position, −1 where it is withheld;
`position` the event's place among all that were taken, from 1, of a derived event that of its cause."""


@overload
def replay(
    events: list[Any] | tuple[Any, ...],
    definitions: DefinitionsLike,
    *,
    on_dead_letter: OnDeadLetter | None = None,
    on_derived: OnDerived | None = None,
    node: str = MAIN,
) -> list[dict[str, Any]]: ...
@overload
def replay(
    events: Frame,
    definitions: DefinitionsLike,
    *,
    on_dead_letter: OnDeadLetter | None = None,
    on_derived: OnDerived | None = None,
    node: str = MAIN,
) -> Frame: ...
@overload
def replay(
    events: Iterable[EventLike],
    definitions: DefinitionsLike,
    *,
    on_dead_letter: OnDeadLetter | None = None,
    on_derived: OnDerived | None = None,
    node: str = MAIN,
) -> Iterator[dict[str, Any]]: ...
def replay(
    events: Any,
    definitions: DefinitionsLike,
    *,
    on_dead_letter: OnDeadLetter | None = None,
    on_derived: OnDerived | None = None,
    node: str = MAIN,
) -> Any:
    """The deliveries that a history leads to, through the same stages as live events: `event` (its id), `client`,
    `subscription`, `level`, `priority`, `position`, in the order of the events.

    `events`, in the order in which they were published, are of the same forms as those of `match`, and so is what comes
    back. Events that change clients, subscriptions or settings take effect at their place. `on_derived` is called with
    each event that relations or situations derive, as a CloudEvent, in its order; their deliveries are among the
    others. `node` is the entry node at which the events count as entered. `definitions` are `Definitions`, or what
    `Definitions.read` takes.

    Raises `EventError` for the first event that cannot be taken, comes twice, or would change what cannot be changed
    so, unless `on_dead_letter` is given: then it is called with each, and the rest goes on.
    """
    past = _PastEvents(definitions_of(definitions), node, on_dead_letter, on_derived)
    given = EventSource(events, past.channels, on_dead_letter)
    tables = past.decided(given)
    if given.schema is not None:
        return like(events, tables, DECIDED)
    return listed(events, (row for table in tables for row in table.to_pylist()))


class _PastEvents:
    """What is known while a history goes by."""

    def __init__(
        self, definitions: Definitions, node: str, on_dead_letter: OnDeadLetter | None, on_derived: OnDerived | None
    ) -> None:
        registry = Registry()
        for change in changes_of(definitions, node):
            registry.apply(change)
        self.channels = registry.settings.channels
        self._known = StateFold(registry)
        self._node, self._on_dead_letter, self._on_derived = node, on_dead_letter, on_derived

    def decided(self, given: EventSource) -> Iterator[pa.Table]:
        """The deliveries, a table for each batch."""
        for batch, deliveries in decide.replay(self._known, self._numbered(given), changes):
            self._refuse()
            if self._on_derived is not None:
                for payload in derived_of(batch.events).column("payload").to_pylist():
                    self._on_derived(orjson.loads(payload))
            yield _shown(batch, deliveries)
        self._refuse()

    def _numbered(self, given: EventSource) -> Iterator[pa.Table]:
        """The events as a journal would hold them."""
        end = 0
        at = EVENTS.get_field_index("position")
        for chunk in given.chunks():
            positions = pa.array(np.arange(end + 1, end + 1 + len(chunk.events)))
            end += len(chunk.events)
            yield entering(chunk.events.set_column(at, EVENTS.field(at), positions), self._node)

    def _refuse(self) -> None:
        """Tells the events that changed nothing, for they could not."""
        refused, self._known.refusals = self._known.refusals, []
        for one in refused:
            if self._on_dead_letter is None:
                raise one.error
            self._on_dead_letter(DeadLetter(one.error.fault, one.event.payload))


def _shown(batch: FoldedBatch, deliveries: pa.Table) -> pa.Table:
    """Deliveries as callers see them."""
    keys = zip(batch.events["position"].to_pylist(), batch.events["part"].to_pylist(), strict=True)
    ids = dict(zip(keys, batch.events["id"].to_pylist(), strict=True))
    of = zip(deliveries["position"].to_pylist(), deliveries["part"].to_pylist(), strict=True)
    columns = {name: deliveries[name] for name in ("client", "subscription", "level", "position")}
    columns["event"] = pa.array([ids[key] for key in of], pa.string())
    columns["priority"] = pa.array(priorities(batch, deliveries), pa.int8())
    return pa.table([columns[name] for name in DECIDED.names], schema=DECIDED)
