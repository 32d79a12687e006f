"""What a delivery needs of its event: from a bounded cache of what was read last, else from the journal.

Published events are in the log `events`, derived ones in the log `derived`, at the position of their cause.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.journal.seam import Journal
from nearcast.model.sequence import part_of, position_of, sequence
from nearcast.state.lateness import order_of
from nearcast.state.repository import entities

SPAN = 1_000
"""Events that are read at once to find some of them."""
SPAN_BYTES = 16 << 20
"""And so many bytes of them, about."""
OVERHEAD = 300
"""Bytes a cached event takes besides its payload, about."""
UNMADE = 64
"""From so many rows on a table is kept as it is: of the events of a busy log nearly none is sent, and making each takes
longer than all else that is done with it here."""
NEEDED = ["position", "part", "payload", "subject", "source", "about", "accepted", "time"]
"""The columns of which an event is made."""


@dataclass(frozen=True, slots=True)
class SendableEvent:
    """An event as it is sent: its CloudEvent as JSON, its entity; when it was accepted, and the moment by which it is
    newer than others of its entity, in seconds since 1970.
    """

    sequence: int
    payload: bytes
    entity: str
    accepted: float
    moment: float = 0.0


@dataclass(frozen=True, slots=True)
class _KeptRows:
    """Events as they were read, in the order of their positions, and those; what they take, in bytes."""

    positions: npt.NDArray[np.int64]
    rows: pa.Table
    size: int


class PayloadCache:
    """Events by sequence. Safe to use from several threads; `limit` bounds the bytes kept.

    Of tables that are kept in the order of their positions an event is made when it is wanted first.
    """

    def __init__(self, journal: Journal, limit: int) -> None:
        self.journal, self.limit = journal, limit
        # Both kinds in the order in which they came: the oldest goes first. Rows stand under their first position, less
        # than 0.
        self._kept: OrderedDict[int, SendableEvent | _KeptRows] = OrderedDict()
        self._tables: deque[_KeptRows] = deque()
        self._bytes = 0
        self._lock = threading.Lock()

    def keep(self, events: pa.Table) -> None:
        """Keeps the published events of a table, and gives up the oldest kept beyond the limit."""
        if len(events) < UNMADE or events.nbytes > self.limit:
            self._keep(sendables(events))
            return
        # A copy: else all other columns would stay too.
        rows = events.select(NEEDED).take(np.arange(len(events)))
        found = _KeptRows(rows.column("position").to_numpy(), rows, rows.nbytes)
        with self._lock:
            # What came before and failed later comes again.
            if not self._tables or self._tables[-1].positions[-1] < found.positions[0]:
                self._tables.append(found)
                self._kept[-int(found.positions[0])] = found
                self._bytes += found.size
                self._give_up()

    def _keep(self, found: Iterable[SendableEvent]) -> None:
        with self._lock:
            for event in found:
                if event.sequence not in self._kept:
                    self._bytes += len(event.payload) + OVERHEAD
                self._kept[event.sequence] = event
            self._give_up()

    def _give_up(self) -> None:
        # The newest stays, however large it is: it is about to be sent.
        while self._bytes > self.limit and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            if isinstance(oldest, _KeptRows):
                self._tables.popleft()
                self._bytes -= oldest.size
            else:
                self._bytes -= len(oldest.payload) + OVERHEAD

    def kept(self, wanted: int) -> SendableEvent | None:
        """The event of a sequence, if it is in memory and was made."""
        with self._lock:
            found = self._kept.get(wanted)
        return found if isinstance(found, SendableEvent) else None

    def load(self, sequences: Iterable[int]) -> dict[int, SendableEvent]:
        """Events by sequence, read from the journal where they are not in memory; it may block."""
        wanted = sorted(set(sequences))
        found = {one: event for one in wanted if (event := self.kept(one))}
        published = [one for one in wanted if one not in found and not part_of(one)]
        found.update((event.sequence, event) for event in self._made(published))
        for log, part in (("events", False), ("derived", True)):
            missing = [one for one in wanted if one not in found and bool(part_of(one)) == part]
            found.update((event.sequence, event) for event in self._read(log, missing))
        return found

    def _made(self, published: list[int]) -> list[SendableEvent]:
        """Events of tables that are kept, made, and kept so from now on."""
        with self._lock:
            tables = [*self._tables] if published else []
        wanted, found = np.array([*map(position_of, published)]), list[SendableEvent]()
        for table in tables:
            if table.positions[0] <= wanted[-1] and wanted[0] <= table.positions[-1]:
                found += sendables(table.rows.filter(pa.array(np.isin(table.positions, wanted))))
        self._keep(found)
        return found

    def _read(self, log: str, missing: list[int]) -> Iterator[SendableEvent]:
        while missing:
            first = position_of(missing[0])
            # Neighbours are read together: the journal decompresses a whole block for each of them.
            through = max(first, self.journal.end_within_bytes(log, first - 1, SPAN, SPAN_BYTES))
            near = {one for one in missing if position_of(one) <= through}
            for rows in self.journal.blocks(log, first - 1, position_of(max(near))):
                some = sendables(rows.filter(pa.array([one in near for one in _sequences(rows)], pa.bool_())))
                self._keep(some)
                yield from some
            missing = missing[len(near) :]


def _sequences(events: pa.Table) -> Iterator[int]:
    return map(sequence, events.column("position").to_pylist(), events.column("part").to_pylist())


def sendables(events: pa.Table) -> list[SendableEvent]:
    """The rows of a table of events as they are sent."""
    columns = [events.column(name).to_pylist() for name in ("position", "part", "payload")]
    columns.append(entities(events).to_pylist())
    accepted = events.column("accepted").cast(pa.int64()).to_pylist()
    moments = np.maximum(order_of(events), 0).tolist()
    return [
        SendableEvent(sequence(position, part), payload, entity, (taken or 0) / 1e6, moment / 1e6)
        for position, part, payload, entity, taken, moment in zip(*columns, accepted, moments, strict=True)
    ]
