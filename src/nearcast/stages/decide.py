"""Deciding a batch: match, then adapt, once it is folded (known) and has its derived events (relate, infer).

    known → relate → infer → match → adapt

`decide` is one pure function of what is known and a part of the events, the same for a small batch in the driver and
for a part of a large one on a worker.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from nearcast.matching.spatial.geometry_sharing import match_within_budget
from nearcast.model.columns import NO_DELIVERIES
from nearcast.stages.adapt import adapt, as_of
from nearcast.stages.fold import FoldedBatch, Parse, StateFold
from nearcast.state.timeline import Timeline


def decide(batch: FoldedBatch, events: pa.Table, alternatives: bool = True) -> pa.Table:
    """The DELIVERIES of some of a batch's events, given in any parts."""
    if not len(events):
        return NO_DELIVERIES
    pairs = match_within_budget(batch.index.match, events, batch.around)
    return adapt(batch, events, pairs, alternatives)


def priorities(batch: FoldedBatch, deliveries: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The priority that each delivery had as of its event's position: what history shows."""
    if not len(deliveries):
        return np.array([], np.int64)
    found = batch.clients.priorities
    clients = deliveries.column("client").combine_chunks().dictionary_encode()
    names, which = clients.dictionary.to_pylist(), clients.indices.to_numpy().astype(np.int64)
    rows = sorted(set(found.base.values()) | _changed_rows(found))
    number = {row: index for index, row in enumerate(rows)}
    track: Timeline[str, int] = Timeline(
        {name: number[row] for name, row in found.base.items()},
        {name: [(at, number[row]) for at, row in changes] for name, changes in found.changes.items()},
    )
    row = as_of(track, names, which, deliveries.column("position").to_numpy())
    return np.array(rows, np.int64)[row, deliveries.column("level").to_numpy()]


def _changed_rows(track: Timeline[str, tuple[int, ...]]) -> set[tuple[int, ...]]:
    return {row for changes in track.changes.values() for _, row in changes}


def replay(known: StateFold, row_ranges: Iterator[pa.Table], parse: Parse) -> Iterator[tuple[FoldedBatch, pa.Table]]:
    """Each batch of these tables of EVENTS, ascending by position, with its DELIVERIES."""
    for table in row_ranges:
        yield from decided(known.fold(table, parse))


def decided(batches: Iterator[FoldedBatch]) -> Iterator[tuple[FoldedBatch, pa.Table]]:
    """Each batch with its DELIVERIES at their own levels."""
    for batch in batches:
        yield batch, decide(batch, batch.events, alternatives=False)
