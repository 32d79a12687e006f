"""A session: what one client is owed, and the connection, if there is one, over which it is sent.

There is one session per client. It outlives its connections; a new connection takes over from the one before.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from nearcast.delivery.pacing import Pacing
from nearcast.delivery.priority import context_class, priority_row
from nearcast.delivery.queue import DeliveryQueue, QueuedDelivery, SettledDelivery, present_level
from nearcast.model.context import WITHHELD
from nearcast.model.rate_limit import RateLimit
from nearcast.model.sequence import write_sequence
from nearcast.model.subscription import ClientProfile, Settings
from nearcast.server import clock
from nearcast.server.sessions.payloads import PayloadCache, SendableEvent

log = logging.getLogger(__name__)

TAKEN_OVER, GOING_AWAY, NORMAL, ELSEWHERE = 4409, 1012, 1000, 4307
ELSEWHERE_SECONDS = 2.0
"""So long it is waited for a link to take where its client is to go."""
AHEAD = 256
"""Payloads that are read from the journal at once when one is missing in memory."""
AHEAD_BYTES = 1 << 20
"""And of so many bytes: they are in memory for this connection alone, beside what all share."""

EXPIRED_TOGETHER = 1_000
"""Deliveries that expire before others have their turn: a hundred thousand may wait for one client."""

NOTICES = 1_000
"""Messages kept for a client that does not read: of pongs and faults, which it provokes itself, the oldest give way."""

CONFIRMED = 100_000
"""Settled positions kept for it as well. One that it does not hear of it acknowledges again when it comes back."""


class Connection(ABC):
    """A way to one client: a WebSocket or a stream of server-sent events."""

    follows = False
    """Whether whoever is connected goes to another server when it is told to."""

    @abstractmethod
    async def send(self, text: str, position: int | str | None) -> None:
        """Sends one JSON message, a delivery if it has a position; raises `ClientGone`."""

    @abstractmethod
    async def close(self, code: int, reason: str) -> None:
        """Ends the connection; it may be gone already."""

    async def hear_out(self) -> None:
        """Returns when nothing more comes that was said already, at the latest after a second."""
        return

    async def send_elsewhere(self, url: str, reason: str) -> None:
        """Tells whoever is connected to go to the server at a URL, and ends the connection."""
        told = orjson.dumps({"redirect": {"url": url, "reason": reason}}).decode()
        with suppress(ClientGone, TimeoutError):
            async with asyncio.timeout(ELSEWHERE_SECONDS):
                await self.send(told, None)
        await self.close(ELSEWHERE, "another server has room; go there")


class ClientGone(Exception):
    """The client is no more at the other end."""


@dataclass(eq=False)
class Session:
    """One client's session: its effective state, what waits for it, and how to reach it."""

    client: ClientProfile
    waiting: DeliveryQueue
    reorders: RateLimit
    disordered: bool = False
    """Whether priorities have changed and what waits is not in the new order yet."""
    connection: Connection | None = None
    holder: str | None = None
    """By which name whoever has the connection is known, if it said one."""
    pace: Pacing = field(default_factory=Pacing)
    stated: float | None = None
    """The bandwidth that the client stated, in kbit/s: a cap of the pace."""
    leaving: bool = False
    """Whether nothing more is sent over this connection: it is about to be sent to another server."""
    connections: int = 0
    notices: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=NOTICES))
    confirmed: deque[int] = field(default_factory=lambda: deque(maxlen=CONFIRMED))
    """Positions whose acknowledgements are durable, which the client is to be told: the last, if it never reads."""
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    sending: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with every delivery that is sent, for who waits for one."""

    def priority_of(self, settings: Settings) -> Callable[[QueuedDelivery], int]:
        """Looks up the present priority of a delivery for this client: its level's place in one row of the matrix."""
        levels, row = settings.levels, priority_row(settings, self.client)
        client, roles = self.client, settings.roles

        def look_up(delivery: QueuedDelivery) -> int:
            """Its present priority."""
            by_role = delivery.by_role
            level = delivery.level if by_role is None else present_level(delivery.level, by_role, client, roles)
            return WITHHELD if level < 0 else row[min(level, levels - 1)]

        return look_up

    def context(self, settings: Settings) -> int:
        """The context class of the client."""
        return context_class(settings.space, self.client.readings, settings.levels, self.client.classes)

    def priority_inputs(self, settings: Settings) -> tuple[object, ...]:
        """All that priorities depend on besides the deliveries: while it is the same, no queue changes."""
        return self.client.role, self.client.task, priority_row(settings, self.client), settings.roles

    def tell(self, message: dict[str, Any]) -> None:
        """Queues a message that is not a delivery; dropped if nobody is connected."""
        if self.connection:
            self.notices.append(message)
            self.woken.set()

    def wake(self) -> None:
        """Lets the pump look again."""
        self.woken.set()


@dataclass
class Pump:
    """Sends what waits over one connection, most urgent first, as fast as the pace allows, until it is replaced.

    `sent` hears of every delivery sent, `ended` of those that expired.
    """

    session: Session
    connection: Connection
    payloads: PayloadCache
    sent: Callable[[QueuedDelivery], None]
    ended: Callable[[Session, list[SettledDelivery]], object]
    _loaded: dict[int, SendableEvent] = field(default_factory=dict)

    async def run(self) -> None:
        """Raises `ClientGone` when the client is."""
        session = self.session
        while session.connection is self.connection:
            # Before it looks: what comes while it looks wakes it again.
            session.woken.clear()
            if session.notices or session.confirmed:
                await self._send_notices()
            now, expiry = clock.steady(), session.waiting.next_expiry()
            if expiry is not None and (expired := session.waiting.expire(now, EXPIRED_TOGETHER)):
                self.ended(session, expired)
                # There may be more of them; and meanwhile another connection may have come.
                await asyncio.sleep(0)
                continue
            # Chosen anew each time round: while the pace made it wait, something more urgent may have come.
            delivery = None if session.leaving else session.waiting.next()
            delay = session.pace.delay(delivery.size, now) if delivery else None
            if delivery and delay == 0:
                await self._send(delivery)
            else:
                await self._pause(delay, now)

    async def _send_notices(self) -> None:
        session = self.session
        # Looked at again each time: after a wait the notices, the greeting first, may be those of a new connection.
        while session.notices and session.connection is self.connection:
            await self.connection.send(orjson.dumps(session.notices.popleft()).decode(), None)
        if session.confirmed and session.connection is self.connection:
            # Many in one message, and cleared before it is sent: what comes meanwhile is for the next one.
            confirmed = [*map(write_sequence, session.confirmed)]
            session.confirmed.clear()
            await self.connection.send(orjson.dumps({"settled": confirmed}).decode(), None)

    async def _pause(self, delay: float | None, now: float) -> None:
        expiry = self.session.waiting.next_expiry()
        until = [] if delay is None else [delay]
        if expiry is not None:
            # Never 0: an expiry that is due already would make this loop spin.
            until.append(max(expiry - now, 0.001))
        try:
            async with asyncio.timeout(min(until, default=None)):
                await self.session.woken.wait()
        except TimeoutError:
            pass

    async def _send(self, delivery: QueuedDelivery) -> None:
        event = self.payloads.kept(delivery.sequence) or self._loaded.pop(delivery.sequence, None)
        # Back to the loop with it in memory, instead of sending it: it may no longer be the first.
        if event is None:
            await self._load(delivery)
            return
        session, now = self.session, clock.steady()
        # In flight before it is on the wire: the acknowledgement may arrive while `send` still waits.
        session.waiting.send(delivery, now)
        session.sending.set()
        session.pace.sent(delivery.sequence, delivery.size, now, session.waiting.sendable)
        self.sent(delivery)
        await self.connection.send(message_of(delivery, event), write_sequence(delivery.sequence))

    def _ahead(self) -> Iterator[int]:
        """What may be sent next, as far as it is worth reading ahead."""
        waiting, size = self.session.waiting, 0
        for sequence in waiting.first(AHEAD):
            size += waiting.waiting[sequence].size
            if size > AHEAD_BYTES:
                return
            yield sequence

    async def _load(self, delivery: QueuedDelivery) -> None:
        """Reads the payload, and those of others that wait; meanwhile another may have become first."""
        wanted = [delivery.sequence, *self._ahead()]
        self._loaded = await asyncio.to_thread(self.payloads.load, wanted)
        if delivery.sequence not in self._loaded:
            log.error("event missing position=%s client=%s", write_sequence(delivery.sequence), self.session.client.id)
            # Sent as null, so that it is settled and does not hold up what comes after it for ever.
            self._loaded[delivery.sequence] = SendableEvent(delivery.sequence, b"null", delivery.entity, 0.0)


def message_of(delivery: QueuedDelivery, event: SendableEvent) -> str:
    """A delivery as the client gets it; the event is as it was published, not parsed again."""
    head = orjson.dumps(
        {
            "delivery": write_sequence(delivery.sequence),
            "priority": delivery.priority,
            "subscription": delivery.subscription,
            "level": delivery.level,
            "attempt": delivery.attempts,
        }
    )
    return (head[:-1] + b',"event":' + event.payload + b"}").decode()
