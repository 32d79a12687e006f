"""Not even sending: a publisher hears over a WebSocket which of its events change nothing, and keeps the newest.

What is kept goes when the server calls for it, before the next event of its subject, and when the connection is lost or
the publisher is closed. While the server is not heard nothing is held back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from typing import Any

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage

from nearcast.client.kept import Event, Kept
from nearcast.client.receiver import CLOSE_SECONDS, MESSAGE_BYTES, REFUSALS, pauses
from nearcast.client.server_addresses import websocket_url
from nearcast.errors import EventError, Mark
from nearcast.language.cloudevents import read_event
from nearcast.model.event import Event as Read
from nearcast.model.subscription import Channel
from nearcast.suppression.lease_holder import LeaseHolder, ReturnedLease
from nearcast.suppression.leases import lease_of

log = logging.getLogger(__name__)

BEATS = 4
"""So often the server is told that the publisher is there, within the time that it would wait for it."""

DONE = 1000
"""The code with which a server that holds nothing back ends the connection."""


class LeaseSuppression:
    """What one publisher holds back, and its connection to the server; `send` sends what is kept, if it goes alone."""

    def __init__(self, url: str, headers: Mapping[str, str], send: Callable[[Kept], Awaitable[None]]) -> None:
        self.url = websocket_url(url, "/guards")
        self.publisher: str | None = None
        self._headers, self._send = dict(headers), send
        self._holding: LeaseHolder[Event] = LeaseHolder()
        self._seconds = self._began = 0.0
        self._channels: tuple[Channel, ...] = ()
        self._beats: dict[int, float] = {}
        self._types: dict[str, set[str]] = {}
        self._connection: ClientConnection | None = None
        self._running: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Future[None]] = set()

    def begin(self) -> None:
        """Connects, if that is not done yet."""
        if self._running is None:
            self._running = asyncio.create_task(self._run())

    def read(self, event: Event) -> Read | None:
        """An event as the server reads it; None for one that is faulty or has no subject: it is sent."""
        with suppress(EventError):
            found = read_event(event, Mark("event"), self._channels, datetime.now(UTC), b"")
            return None if found.subject is None else found
        return None

    def hold(self, read: Read | None, event: Event) -> bool:
        """Keeps the event as the newest of its subject, if that may be."""
        if read is None:
            return False
        self._types.setdefault(read.entity, set()).add(read.type)
        return self._holding.hold_back(read, event, _now())

    def permits(self, read: Read | None) -> bool:
        """Whether the event may be kept just now."""
        return read is not None and self._holding.permits(read, _now())

    def give_back(self, subjects: Sequence[str]) -> Kept:
        """What goes before events of these subjects."""
        found = [self._holding.give_back(subject) for subject in dict.fromkeys(subjects)]
        return _kept([one for one in found if one is not None])

    def sending(self, subjects: Sequence[str]) -> None:
        """Says that events of these subjects are on their way."""
        self._holding.sending(subjects)

    async def sent(self, subjects: Sequence[str]) -> None:
        """Says that they have arrived, or failed to; asks for what need not be sent from now on."""
        asking = self._holding.sent(subjects)
        for subject in asking:
            await self._say({"ask": {"subject": subject, "types": sorted(self._types.get(subject, ()))}})

    async def move_to(self, url: str) -> None:
        """Follows another server from now on: what is kept by this one's leave is sent."""
        self.url = websocket_url(url, "/guards")
        if self._connection is not None:
            await self._connection.close()

    async def close(self) -> None:
        """Sends what is kept, and ends the connection."""
        self._give_up(self._holding.give_back_all())
        if self._sending:
            await asyncio.wait(self._sending)
        if self._running:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
            self._running = None

    async def _run(self) -> None:
        """Keeps a connection until the server refuses for good, or holds nothing back."""
        waits = pauses()
        while True:
            # By the server's clock it is connected later.
            self._began = _now()
            try:
                async with connect(
                    self.url,
                    additional_headers=self._headers,
                    max_size=MESSAGE_BYTES,
                    compression=None,
                    close_timeout=CLOSE_SECONDS,
                ) as one:
                    beating = asyncio.create_task(self._beat())
                    try:
                        await self._take(one)
                    finally:
                        beating.cancel()
            except ConnectionClosed as closed:
                if closed.rcvd is not None and closed.rcvd.code in (DONE, *REFUSALS):
                    log.info("nothing is held back reason=%r", closed.rcvd.reason)
                    return
                reason = str(closed)
            except (OSError, TimeoutError, InvalidHandshake, InvalidMessage) as error:
                reason = repr(error)
            finally:
                if self.publisher is not None:
                    waits = pauses()
                self._connection, self.publisher = None, None
                self._give_up(self._holding.give_back_all())
            pause = next(waits)
            log.info("connection for guards lost reason=%r pause=%.2f", reason, pause)
            await asyncio.sleep(pause)

    async def _beat(self) -> None:
        """Says that it is there, and gives up what is kept where the server does not say so too."""
        numbers = count()
        while True:
            await asyncio.sleep((self._seconds or 1.0) / BEATS)
            self._give_up(self._holding.overdue(_now()))
            if self._connection is not None:
                number = next(numbers)
                self._beats[number] = _now()
                await self._say({"beat": number})

    async def _take(self, connection: ClientConnection) -> None:
        while True:
            message = orjson.loads(await connection.recv())
            if "recall" in message:
                back = self._holding.recalled(message["recall"])
                await self._say({"returned": {"id": back.lease, "kept": back.kept}})
            elif "lease" in message:
                await self._lend(message)
            elif "beat" in message:
                sent = self._beats.pop(message["beat"], None)
                if sent is not None:
                    self._holding.heard(sent + self._seconds)
            elif "hello" in message:
                self.publisher, self._seconds = message["hello"]["publisher"], message["hello"]["seconds"]
                self._beats, self._connection = {}, connection
                self._name_entities(message)
                self._holding.heard(self._began + self._seconds)

    async def _lend(self, message: Mapping[str, Any]) -> None:
        lease = lease_of(message["lease"])
        self._name_entities(message)
        if not self._holding.begin_lease(lease):
            await self._say({"returned": {"id": lease.id, "kept": None}})

    def _name_entities(self, message: Mapping[str, Any]) -> None:
        """Takes the channels that a message has: by them the server names entities."""
        self._channels = tuple(
            Channel(one["name"], one["coordinates"], tuple(one["types"]), one.get("entity", "subject"))
            for one in message.get("channels", ())
        )

    async def _say(self, message: Mapping[str, Any]) -> None:
        """Sends if connected: what is lost with a connection has no meaning for the next one."""
        if self._connection is not None:
            with suppress(ConnectionClosed):
                await self._connection.send(orjson.dumps(message).decode())

    def _give_up(self, returned: Sequence[ReturnedLease[Event]]) -> None:
        """Sends what is kept by itself; whatever happens to the connection."""
        kept = _kept(returned)
        if kept.leases:
            sending = asyncio.ensure_future(self._send(kept))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)


def _kept(returned: Sequence[ReturnedLease[Event]]) -> Kept:
    return Kept([one.kept for one in returned if one.kept is not None], [one.lease for one in returned])


def _now() -> float:
    return asyncio.get_running_loop().time()
