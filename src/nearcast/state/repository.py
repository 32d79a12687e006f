"""The repository: the newest event of every entity, as columns, gathered from a journal (semantics §1)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.arrays import Flags, Integers
from nearcast.model.columns import EVENTS, of_last_table, without_payloads
from nearcast.model.limits import Limits
from nearcast.state.entity_ledger import EntityLedger
from nearcast.state.event_size import ENTRY, FIXED

CHUNK = 16_384
"""Rows of a chunk of the newest events at least, but for the last ones."""

SLACK = 10_000
"""Superseded rows that may gather before the repository is compacted: few copies, bounded memory."""

GATHERED = 64
"""Tables of few events each that are put together at a time, in a millisecond. Live there are ten events in each, and
to look through two thousand of them takes a fifth of a second, for which everybody waits."""


class Repository:
    """Holds the newest event of every entity; without payloads, which the journal keeps.

    The newest is the one of the latest moment (see `lateness`). What came late is counted in `late`, and not kept.
    """

    def __init__(self, events: pa.Table | None = None) -> None:
        self._tables = [EVENTS.empty_table() if events is None else events]
        self._rows = len(self._tables[0])
        self._newest = self._rows
        self._loose = 0
        self.compacted_beside = False
        """Whether somebody asks for what is `superseded`, so that nobody has to wait for it here."""
        self._ledger = EntityLedger()
        self._numbered: tuple[pa.Table | None, Integers] = _NO_NUMBERS
        self._counted: tuple[pa.Table | None, Flags] = _NO_COUNTS
        if self._rows:
            table = self._tables[0]
            self._ledger.set(self._ledger.numbered(entities(table)), table, sizes_of(table))

    @property
    def late(self) -> int:
        """How many events came late so far."""
        return self._ledger.late

    @property
    def entities(self) -> int:
        """Of how many entities there is an event."""
        return self._ledger.totals.known

    @property
    def bytes(self) -> int:
        """What the events take, about."""
        return self._ledger.totals.bytes

    def due(self, events: pa.Table, limits: Limits, deriving: bool = True) -> int | None:
        """The position among the next events after which something may have to be forgotten; None: it is none.

        `deriving`: something may be derived from them.
        """
        if not len(events) or self._ledger.has_room(events, int(sizes_of(events).sum()), limits, deriving):
            return None
        number = self._numbers(events)
        counts = self._ledger.counting(number, events)
        if not counts.any():
            return None
        counted = without_excess(events if counts.all() else events.filter(pa.array(counts)), limits.entity_bytes)
        row = self._ledger.due(number[counts], counted, sizes_of(counted), limits)
        return None if row is None else int(counted.column("position")[row].as_py())

    def fold_within(self, events: pa.Table, limits: Limits) -> None:
        """Takes in events, and forgets what comes to be beyond the limits, each time where it does."""
        while len(events):
            due = self.due(events, limits)
            if due is None:
                self.fold_events(without_excess(events, limits.entity_bytes))
                return
            before = pc.less_equal(events.column("position"), due)
            self.fold_events(without_excess(events.filter(before), limits.entity_bytes))
            self.forget(self.oldest(limits))
            events = events.filter(pc.invert(before))

    def oldest(self, limits: Limits) -> list[str]:
        """The entities that are to be forgotten now."""
        return self._ledger.oldest(limits)

    def forget(self, names: Collection[str]) -> None:
        """Drops the events of some entities."""
        self._ledger.forget(names)
        self._numbered, self._counted = _NO_NUMBERS, _NO_COUNTS
        newest = self.newest()
        gone = pc.is_in(entities(newest), value_set=pa.array(list(names), pa.string()))
        self._tables, self._loose = [newest.filter(pc.invert(gone)).combine_chunks()], 0
        self._rows = self._newest = len(self._tables[0])

    def counting(self, events: pa.Table) -> Flags:
        """Which of the next events, in journal order, are not late."""
        if events is not self._counted[0]:
            self._counted = events, self._ledger.counting(self._numbers(events), events)
        return self._counted[1]

    def known_moments(self, events: pa.Table) -> Integers:
        """The moment of the newest report of the entity of each of the next events; `NEVER` where there is none."""
        return self._ledger["moment"][self._numbers(events)]

    def _numbers(self, events: pa.Table) -> Integers:
        """The number of each event's entity: one table is asked for twice, and of a million names each costs."""
        if events is not self._numbered[0]:
            self._numbered = events, self._ledger.numbered(entities(events))
        return self._numbered[1]

    def fold_events(self, events: pa.Table) -> None:
        """Takes in events in journal order; each that is not late supersedes what was there of its entity."""
        if not len(events):
            return
        number = self._numbers(events)
        counts, sizes = self.counting(events), sizes_of(events)
        self._numbered, self._counted = _NO_NUMBERS, _NO_COUNTS
        events = without_payloads(events)
        if not counts.all():
            self._ledger.late += len(events) - int(counts.sum())
            events, number, sizes = events.filter(pa.array(counts)), number[counts], sizes[counts]
        self._ledger.set(number, events, sizes)
        self._append(events)
        # Where it is done beside it may take a while.
        if self._is_worn(2 if self.compacted_beside else 1):
            self.newest()

    def _is_worn(self, times: int) -> bool:
        """Whether so many times as many rows are superseded as is worth while to look through all of them."""
        return self._rows > self._newest + times * (self._newest + SLACK)

    def superseded(self) -> KeptEvents | None:
        """What it has now, where it is worth while to find the newest of it, beside what is taken in, for `adopt`."""
        # Of tables that are put together meanwhile it would not know that it has them still.
        return self.as_of_now() if not self._loose and self._is_worn(1) else None

    def _append(self, events: pa.Table) -> None:
        self._tables.append(events)
        self._rows += len(events)
        self._loose += 1
        if self._loose == GATHERED:
            # In a new list: the one before may be that of a moment.
            self._tables = [*self._tables[:-GATHERED], *_in_chunks(self._tables[-GATHERED:])]
            self._loose = 0

    def newest(self) -> pa.Table:
        """The newest event of every entity, ascending by position."""
        if len(self._tables) > 1:
            self._tables, self._loose = [_newest_of(self._tables)], 0
            self._rows = self._newest = len(self._tables[0])
        return self._tables[0]

    def as_of_now(self) -> KeptEvents:
        """What it has now, whatever it takes in later."""
        return KeptEvents(self._tables, len(self._tables))

    def adopt(self, kept: KeptEvents) -> None:
        """Goes by what `kept` found of an earlier moment instead of all it was found of, if that is still here."""
        newest, before = kept.found, kept.tables[: kept.count]
        same = len(before) <= len(self._tables) and all(map(operator.is_, before, self._tables))
        if newest is None or not same or len(before) == 1:
            return
        self._rows -= sum(map(len, before)) - len(newest)
        self._newest = len(newest)
        # In a new list, as above.
        self._tables = [newest, *self._tables[len(before) :]]
        self._loose = min(self._loose, len(self._tables) - 1)


_NO_NUMBERS: tuple[None, Integers] = None, np.zeros(0, np.int64)
_NO_COUNTS: tuple[None, Flags] = None, np.zeros(0, np.bool_)


class NewestEvents(Protocol):
    """What was known at a moment."""

    def newest(self) -> pa.Table:
        """The newest event of every entity, ascending by position."""
        ...


@dataclass(slots=True)
class KeptEvents:
    """The events of a repository as of a moment: the first of its tables, of which each supersedes those before it."""

    # The repository's own list, to which it only adds: there may be many, and seldom does anybody ask.
    tables: list[pa.Table]
    count: int
    found: pa.Table | None = None

    def newest(self) -> pa.Table:
        """The newest event of every entity, ascending by position; also from another thread."""
        if self.found is None:
            self.found = self.tables[0] if self.count == 1 else _newest_of(self.tables[: self.count])
        return self.found


def _newest_of(tables: Sequence[pa.Table]) -> pa.Table:
    """The last event of every entity."""
    together = pa.concat_tables(tables)
    last = np.zeros(len(together), np.bool_)
    last[last_of_each(entities(together))] = True
    return pa.concat_tables(_in_chunks(_kept_rows(together, last)))


def _kept_rows(table: pa.Table, kept: Flags) -> Iterator[pa.Table]:
    """Some rows of a table, chunk by chunk; where all of a chunk are kept it is not copied."""
    first = 0
    # Not `take`, which would make one piece of all rows first, attributes and all, to choose a few of them.
    for batch in table.to_batches():
        own = kept[first : first + len(batch)]
        first += len(batch)
        yield pa.Table.from_batches([batch if own.all() else batch.filter(pa.array(own))])


def _in_chunks(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Tables with their chunks put together, until each has `CHUNK` rows: larger ones would be copied at once."""
    waiting: list[pa.Table] = []
    for table in tables:
        if sum(map(len, waiting)) >= CHUNK or len(table) >= CHUNK:
            yield from _combined(waiting)
            waiting = []
        waiting.append(table)
    yield from _combined(waiting)


def _combined(tables: Sequence[pa.Table]) -> Iterator[pa.Table]:
    if tables:
        yield tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()


def entities(events: pa.Table) -> pa.ChunkedArray:
    """What each event is about, as `Event.entity` says it."""
    columns = [events.column(name) for name in ("about", "subject", "source")]
    there = [column for column in columns if column.null_count < len(column)] or columns[-1:]
    return pc.coalesce(*there) if there[0].null_count else there[0]


def last_of_each(keys: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The index of the last occurrence of every key, ascending."""
    coded = keys.combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    last = np.zeros(len(coded.dictionary), np.int64)
    last[coded.indices.to_numpy()] = np.arange(len(coded))
    return np.sort(last)


def without_excess(events: pa.Table, most: int) -> pa.Table:
    """The events as they are kept: of those that take more than so many bytes the attributes are left out."""
    excess = sizes_of(events) > most
    if not excess.any():
        return events
    at = EVENTS.get_field_index("attributes")
    empty = pa.array([[]], EVENTS.types[at])
    attributes = events.column("attributes").combine_chunks()
    if isinstance(attributes, pa.ChunkedArray):
        attributes = pa.concat_arrays(attributes.chunks)
    index = np.where(excess, len(events), np.arange(len(events)))
    return events.set_column(at, EVENTS.field(at), pa.concat_arrays([attributes, empty]).take(pa.array(index)))


@of_last_table
def sizes_of(events: pa.Table) -> Integers:
    """The bytes that each event takes without its payload, about; not to be written to."""
    found = _of_chunks(events.column("attributes"), _attribute_sizes) + FIXED
    for name in ("id", "subject", "source"):
        texts = events.column(name)
        if texts.null_count < len(texts):
            found += _of_chunks(texts, lambda chunk: _lengths(_text_starts(chunk)))
    found.flags.writeable = False
    return found


def _of_chunks(column: pa.ChunkedArray, sizes: Callable[[pa.Array], Integers]) -> Integers:
    """The sizes of each row of a column."""
    found = [sizes(chunk) for chunk in column.chunks]
    return found[0] if len(found) == 1 else np.concatenate([np.zeros(0, np.int64), *found])


def _attribute_sizes(lists: pa.ListArray) -> Integers:
    """The bytes that the attributes of each event take, about: by where they begin, not one by one."""
    if lists.null_count:
        bounds = np.append(0, np.cumsum(lists.value_lengths().fill_null(0).to_numpy(), dtype=np.int64))
    else:
        bounds = _starts(lists)
    entries = lists.flatten()
    texts = (_lengths(_text_starts(entries.field(name))[bounds]) for name in ("name", "text"))
    return ENTRY * _lengths(bounds) + sum(texts)


def _lengths(starts: Integers) -> Integers:
    # What NumPy's `diff` does, which for a few takes several times as long.
    return starts[1:] - starts[:-1]


def _text_starts(texts: pa.StringArray) -> Integers:
    """How many bytes the texts before each take, and all of them."""
    starts = _starts(texts)
    # Bytes may lie where no text is.
    if texts.null_count and starts[-1]:
        lengths, (first, bit) = _lengths(starts), divmod(texts.offset, 8)
        found = np.frombuffer(texts.buffers()[0], np.uint8, (bit + len(texts) + 7) // 8, first)
        absent = np.unpackbits(found, bitorder="little")[bit : bit + len(texts)] == 0
        if lengths[absent].any():
            lengths[absent] = 0
            return np.append(0, np.cumsum(lengths))
    return starts


def _starts(lists: pa.ListArray | pa.StringArray) -> Integers:
    """Where each list or text begins, counted from the first one, and where the last one ends."""
    offsets = lists.buffers()[1]
    if offsets is None or not len(lists):
        return np.zeros(1, np.int64)
    starts = np.frombuffer(offsets, np.int32, len(lists) + 1, 4 * lists.offset)
    return np.subtract(starts, starts[0], dtype=np.int64)
