"""Leases as messages: told to the publishers that asked for them, called for, and come back.

See `suppression.lease_registry`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

from nearcast.model.event import Event
from nearcast.model.subscription import Channel
from nearcast.server.metrics import ServerMetrics
from nearcast.suppression.ingest_filter import IngestFilter
from nearcast.suppression.lease_registry import LeaseRegistry, OpenLease
from nearcast.suppression.leases import lease_json

log = logging.getLogger(__name__)

Messages = asyncio.Queue[dict[str, Any] | None]
"""What is to be told to a publisher; None: it is to come back to another server."""

MOST_ASKED = 10_000
"""Of so many subjects one publisher may ask for the guards; what it asks beyond is not answered."""

ASKED_CHARACTERS = 4_096
"""Of a subject and its types together: they are kept as long as the publisher is there."""

MOST_UNREAD = 2 * MOST_ASKED
"""Messages that wait for a publisher; one that does not read is told no more, and so its time runs out."""


def channels_json(channels: Iterable[Channel]) -> list[dict[str, Any]]:
    """Channels as far as a publisher needs them to read its events as the server does."""
    return [
        {"name": one.name, "coordinates": one.coordinates, "types": list(one.types), "entity": one.entity}
        for one in channels
    ]


class LeaseManager:
    """The connections of publishers that hold back by themselves. Used from one event loop."""

    def __init__(self, entry: IngestFilter, metrics: ServerMetrics, seconds: float) -> None:
        self.leases = LeaseRegistry(entry, seconds, secrets.randbelow(1 << 50))
        self._metrics = metrics
        self._to: dict[str, Messages] = {}
        self._asked: dict[str, set[str]] = {}
        self._called: dict[int, tuple[float, asyncio.Event]] = {}
        self._came: dict[int, Event | None] = {}
        self.late: list[Event] = []
        """What was kept under leases that nobody waited for any more."""

    @staticmethod
    def now() -> float:
        """Seconds of the clock by which leases end."""
        return asyncio.get_running_loop().time()

    def connect(self) -> tuple[str, Messages]:
        """A new holder, and what is to be told to it."""
        holder = uuid4().hex
        self._to[holder], self._asked[holder] = asyncio.Queue(), set()
        self.leases.heard(holder, self.now())
        return holder, self._to[holder]

    def disconnect(self, holder: str) -> None:
        """It is gone; its leases last until its time is over."""
        self._to.pop(holder, None)
        self._asked.pop(holder, None)
        self.leases.gone(holder)

    def note_heartbeat(self, holder: str) -> bool:
        """A holder has spoken; whether it is told so. Not if it leaves a call unanswered: then its time runs out."""
        now = self.now()
        if self._to[holder].qsize() >= MOST_UNREAD:
            return False
        for open in self.leases.all():
            called = self._called.get(open.lease.id)
            if open.holder == holder and called is not None and now - called[0] > self.leases.seconds / 2:
                return False
        self.leases.heard(holder, now)
        return True

    def ask(self, holder: str, subject: str, types: Iterable[str]) -> None:
        """A holder asks for the guards of a subject."""
        asked, types = self._asked[holder], tuple(types)
        if len(subject) + sum(map(len, types)) > ASKED_CHARACTERS:
            return
        if subject in asked or len(asked) < MOST_ASKED:
            asked.add(subject)
            self.leases.ask(holder, subject, types, self.now())

    def offer(self, channels: Iterable[Channel]) -> None:
        """Tells new leases."""
        for one in self.leases.offers(self.now()):
            document = lease_json(one.lease)
            if document is None or one.holder not in self._to or self._to[one.holder].qsize() >= MOST_UNREAD:
                self.leases.end(one.lease.id)
                continue
            self._to[one.holder].put_nowait({"lease": document, "channels": channels_json(channels)})
        self._metrics.leases.set(len(self.leases))

    def call(self, wanted: Iterable[OpenLease]) -> None:
        """Calls for leases, each once."""
        for one in wanted:
            if one.lease.id in self._called or one.lease.id in self._came:
                continue
            self._called[one.lease.id] = (self.now(), asyncio.Event())
            if one.holder in self._to:
                self._to[one.holder].put_nowait({"recall": one.lease.id})

    def came(self, holder: str, id: int, kept: Event | None) -> None:
        """A lease has come back. If nobody waits for it, it is found by `waiting`; if it was over, by `late`."""
        if not any(open.lease.id == id and open.holder == holder for open in self.leases.all()):
            self.late += [] if kept is None else [kept]
            return
        # Asked again, a publisher has nothing more to say: the first word counts.
        self._came.setdefault(id, kept)
        called = self._called.get(id)
        if called is not None:
            called[1].set()

    def waiting(self) -> list[OpenLease]:
        """The leases that have come back, or are overdue, and that nobody has taken so far."""
        now = self.now()
        return [
            one for one in self.leases.all() if one.lease.id in self._came or self.leases.until(one.lease.id) <= now
        ]

    async def bring_back(self, one: OpenLease) -> Event | None:
        """What was kept under a lease, once it has come back; waits no longer than its publisher holds back."""
        id = one.lease.id
        self.call([one])
        called = self._called.get(id)
        while called is not None and id not in self._came and (left := self.leases.until(id) - self.now()) > 0:
            try:
                await asyncio.wait_for(called[1].wait(), left)
            except TimeoutError:
                continue
        self._called.pop(id, None)
        if id not in self._came:
            self._metrics.leases_lost.inc()
            log.warning("lease lost subject=%s seconds=%.1f", one.lease.subject, self.leases.seconds)
            return None
        if called is not None:
            self._metrics.recalls.observe(self.now() - called[0])
        return self._came.pop(id)

    def close(self) -> None:
        """Tells every publisher to come back."""
        for messages in self._to.values():
            messages.put_nowait(None)
