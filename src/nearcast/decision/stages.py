"""Deciding a batch: match, then adapt. Relate and infer will add derived events before match; known comes first.

    known → relate → infer → match → adapt

`decide` is one pure function of what is known and a part of the events, the same for a small batch in the driver and for
a part of a large one on a worker.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from nearcast.decision.adapt import adapt, as_of
from nearcast.decision.known import Batch
from nearcast.model.columns import DELIVERIES


def decide(batch: Batch, events: pa.Table, by_role: bool = True) -> pa.Table:
    """The DELIVERIES of some of a batch's events, given in any parts."""
    if not len(events):
        return DELIVERIES.empty_table()
    pairs = batch.index.match(events, batch.around)
    return adapt(batch, events.column("position").to_numpy(), pairs, by_role)


def priorities(batch: Batch, deliveries: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The priority that each delivery had as of its event's position: what history shows."""
    names = batch.assignments.clients
    rows = sorted({row for row in batch.clients.priorities.base.values()} | _changed_rows(batch))
    number = {row: index for index, row in enumerate(rows)}
    track = type(batch.clients.priorities)(
        {name: number[row] for name, row in batch.clients.priorities.base.items()},
        {
            name: [(position, number[row]) for position, row in changes]
            for name, changes in batch.clients.priorities.changes.items()
        },
    )
    code = {name: index for index, name in enumerate(names)}
    clients = np.array([code[name] for name in deliveries.column("client").to_pylist()], np.int64)
    which = as_of(track, names, clients, deliveries.column("position").to_numpy())  # type: ignore[arg-type]
    table = np.array(rows, np.int64).reshape(len(rows), -1)
    return table[which, deliveries.column("level").to_numpy()] if len(deliveries) else np.array([], np.int64)


def _changed_rows(batch: Batch) -> set[tuple[int, ...]]:
    return {row for changes in batch.clients.priorities.changes.values() for _, row in changes}
