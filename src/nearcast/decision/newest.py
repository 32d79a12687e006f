"""The newest event that counts of every entity, gathered from a journal stretch by stretch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.decision.repository import entities
from nearcast.model.columns import EVENTS, to_events, without_payloads
from nearcast.model.event import Event


class Newest:
    """Takes stretches of a journal in order; late events, by their own time, do not count. Payloads are not kept."""

    def __init__(self) -> None:
        self._table = EVENTS.empty_table()

    def add(self, events: pa.Table) -> None:
        """Takes the next stretch."""
        together = pa.concat_tables([self._table, without_payloads(events)]).combine_chunks()
        coded = entities(together).combine_chunks().dictionary_encode()
        key = pc.coalesce(together.column("time"), together.column("accepted")).cast(pa.int64())
        order = np.lexsort((np.arange(len(together)), pc.fill_null(key, 0).to_numpy(), _indices(coded)))
        own = _indices(coded)[order]
        last = order[np.append(own[1:] != own[:-1], True)[: len(own)]]
        # In the order of the journal again: of events of one time the later one counts.
        self._table = together.take(pa.array(np.sort(last)))

    def events(self) -> list[Event]:
        """One event of each entity."""
        return to_events(self._table)


def _indices(coded: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    return coded.indices.to_numpy().astype(np.int64)
