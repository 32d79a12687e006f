"""The repository: the newest event of every entity, as columns, gathered from a journal (semantics §1)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.columns import EVENTS, to_events, without_payloads
from nearcast.model.event import Event

SLACK = 10_000
"""Superseded rows that may gather before the repository is compacted: few copies, bounded memory."""


class Repository:
    """Holds the newest event of every entity; without payloads, which the journal keeps."""

    def __init__(self, events: pa.Table | None = None) -> None:
        self._tables = [EVENTS.empty_table() if events is None else events]
        self._rows = len(self._tables[0])
        self._newest = self._rows

    def fold_events(self, events: pa.Table) -> None:
        """Takes in events in journal order; each supersedes what was there of its entity."""
        if not len(events):
            return
        self._tables.append(without_payloads(events))
        self._rows += len(events)
        if self._rows > 2 * self._newest + SLACK:
            self.newest()

    def newest(self) -> pa.Table:
        """The newest event of every entity, ascending by position."""
        if len(self._tables) > 1:
            together = pa.concat_tables(self._tables)
            last = np.zeros(len(together), np.bool_)
            last[last_of_each(entities(together))] = True
            # Not `take`, which would make one piece of all rows first, attributes and all, to choose a few of them.
            self._tables = [together.filter(pa.array(last)).combine_chunks()]
            self._rows = self._newest = len(self._tables[0])
        return self._tables[0]


def entities(events: pa.Table) -> pa.ChunkedArray:
    """What each event is about, as `Event.entity` says it."""
    return pc.coalesce(events.column("about"), events.column("subject"), events.column("source"))


def last_of_each(keys: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The index of the last occurrence of every key, ascending."""
    coded = keys.combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    last = np.zeros(len(coded.dictionary), np.int64)
    last[coded.indices.to_numpy()] = np.arange(len(coded))
    return np.sort(last)


class NewestEvents:
    """Takes stretches of a journal in order; late events, by their own time, do not count. Payloads are not kept."""

    def __init__(self) -> None:
        self._table = EVENTS.empty_table()

    def fold_events(self, events: pa.Table) -> None:
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
