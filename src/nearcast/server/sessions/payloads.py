"""What a delivery needs of its event: from a bounded cache of what was read last, else from the journal.

Published events are in the log `events`, derived ones in the log `derived`, at the position of their cause.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
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


class PayloadCache:
    """Events by sequence. Safe to use from several threads; `limit` bounds the bytes kept."""

    def __init__(self, journal: Journal, limit: int) -> None:
        self.journal, self.limit = journal, limit
        self._kept: OrderedDict[int, SendableEvent] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def keep(self, events: pa.Table) -> None:
        """Keeps the events of a table, and gives up the oldest kept beyond the limit."""
        self._keep(sendables(events))

    def _keep(self, found: Iterable[SendableEvent]) -> None:
        with self._lock:
            for event in found:
                if event.sequence not in self._kept:
                    self._bytes += len(event.payload) + OVERHEAD
                self._kept[event.sequence] = event
            # The newest stays, however large it is: it is about to be sent.
            while self._bytes > self.limit and len(self._kept) > 1:
                self._bytes -= len(self._kept.popitem(last=False)[1].payload) + OVERHEAD

    def kept(self, wanted: int) -> SendableEvent | None:
        """The event of a sequence, if it is in memory."""
        with self._lock:
            return self._kept.get(wanted)

    def load(self, sequences: Iterable[int]) -> dict[int, SendableEvent]:
        """Events by sequence, read from the journal where they are not in memory; it may block."""
        found: dict[int, SendableEvent] = {}
        missing: dict[str, list[int]] = {"events": [], "derived": []}
        for one in sorted(set(sequences)):
            event = self.kept(one)
            if event:
                found[one] = event
            else:
                missing["derived" if part_of(one) else "events"].append(one)
        for log, those in missing.items():
            for event in self._read(log, those):
                found[event.sequence] = event
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
