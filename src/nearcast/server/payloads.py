"""What a delivery needs of its event: from a bounded cache of what was read last, else from the journal."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from nearcast.journal.seam import Journal

SPAN = 1_000
"""Events that are read at once to find some of them."""
OVERHEAD = 300
"""Bytes a cached event takes besides its payload, about."""


@dataclass(frozen=True, slots=True)
class Sendable:
    """An event as it is sent: its CloudEvent as JSON, its entity, and when it was accepted (seconds since 1970)."""

    position: int
    payload: bytes
    entity: str
    accepted: float


class Payloads:
    """Events by position. Safe to use from several threads; `limit` bounds the bytes kept."""

    def __init__(self, journal: Journal, limit: int) -> None:
        self.journal, self.limit = journal, limit
        self._kept: OrderedDict[int, Sendable] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def keep(self, events: pa.Table) -> None:
        """Keeps the events of a table, and gives up the oldest kept beyond the limit."""
        self._keep(sendables(events))

    def _keep(self, found: Iterable[Sendable]) -> None:
        with self._lock:
            for event in found:
                if event.position not in self._kept:
                    self._bytes += len(event.payload) + OVERHEAD
                self._kept[event.position] = event
            # The newest stays, however large it is: it is about to be sent.
            while self._bytes > self.limit and len(self._kept) > 1:
                self._bytes -= len(self._kept.popitem(last=False)[1].payload) + OVERHEAD

    def kept(self, position: int) -> Sendable | None:
        """The event, if it is in memory."""
        with self._lock:
            return self._kept.get(position)

    def load(self, positions: Iterable[int]) -> dict[int, Sendable]:
        """Events by position, read from the journal where they are not in memory; it may block."""
        found: dict[int, Sendable] = {}
        missing = []
        for position in sorted(set(positions)):
            event = self.kept(position)
            if event:
                found[position] = event
            else:
                missing.append(position)
        while missing:
            first = missing[0]
            # Neighbours are read together: the journal decompresses a whole block for each of them.
            near = {position for position in missing if position < first + SPAN}
            read = self.journal.read("events", first - 1, max(near) - first + 1)
            some = [event for event in sendables(read) if event.position in near]
            self._keep(some)
            found.update((event.position, event) for event in some)
            missing = missing[len(near) :]
        return found


def sendables(events: pa.Table) -> list[Sendable]:
    """The rows of a table of events as they are sent."""
    names = ("position", "payload", "subject", "source")
    columns = [events.column(name).to_pylist() for name in names]
    accepted = events.column("accepted").cast(pa.int64()).to_pylist()
    return [
        Sendable(position, payload, source if subject is None else subject, (taken or 0) / 1e6)
        for position, payload, subject, source, taken in zip(*columns, accepted, strict=True)
    ]
