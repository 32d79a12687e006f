"""Receiving as a client: deliveries as they come, across lost connections and servers, each exactly once.

A server sends again what it has no acknowledgement for. A client remembers each position from its arrival until the
server says that its acknowledgement is settled, and drops what it remembers; after reconnecting it repeats the
acknowledgements that were not settled. So the memory is bounded by what is in flight, and "once" holds for the life of
the client; an application that restarts sees again what it had not acknowledged.

A journal that loses power may lose its newest events and give their positions to others. Then a server greets with
another era: what was remembered before says nothing of what has those positions now, unless it is the same event.

Of several servers of a domain it has one. It goes to the next where that does not answer, and to another where it is
told to, or asked (`move_to`): its session moves with it.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage

from nearcast.client.delivered_event import DeliveredEvent
from nearcast.client.server_addresses import HAPPY_SECONDS, ServerAddresses, websocket_url
from nearcast.errors import AccessError, NearcastError, RightError, SessionError
from nearcast.runtime.backoff import backoff

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE, JITTER = 0.1, 10.0, 0.5
"""Seconds before the first and the last attempts to connect again; doubled in between, and cut at random."""
ACKNOWLEDGED_AT_ONCE = 5_000
GATHER_SECONDS = 0.005
SEEN_BEFORE = 10_000
"""Deliveries of eras before that are remembered, in case they come again; of more the newest."""
CLOSE_SECONDS = 2.0
SETTLE_SECONDS = 3.0
"""That closing waits at most for a server to say that what was acknowledged is durable: with it, a connection that was
just lost is made again. Without that word the last deliveries come again to whoever connects as this client next."""
MESSAGE_BYTES = 4 << 20
REFUSALS: dict[int, type[NearcastError]] = {4401: AccessError, 4403: RightError, 4404: SessionError, 4409: SessionError}
"""Codes with which a server ends a connection for good."""


Takeover = Literal["once", "never"]
"""Whether a client takes its session from another connection that has it, when it connects first."""

Position = int | str
"""What a server calls a delivery by."""

EventName = tuple[Any, Any, Any]
"""What tells an event from any other that had its position: source, id, and the time of what is derived."""


@dataclass(slots=True)
class SeenDelivery:
    """What a client remembers of a delivery: which event it was, if that is known, and whether it is acknowledged."""

    named: EventName | None
    acknowledged: bool = False


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event as it was delivered: its position in the journal, the priority it was sent at, and the CloudEvent.

    An event that nearcast derived from another has a position such as "12.1": the first derived from the one at 12.
    """

    position: Position
    priority: int
    subscription: str
    level: int
    attempt: int
    event: DeliveredEvent


class Client:
    """One client of the access server at `url` (http or https), or of several of one domain, which know it by `id`.

    `async for delivery in client.deliveries()`; each is acknowledged when the next one is asked for, or, if not
    `automatic`, by `acknowledge`.

    A client has one session, and one connection that has it. With `takeover="once"` the first connection takes the
    session from whoever has it; with "never" it is refused as long as somebody does. Connecting again, this client has
    its own session back, unless another took it meanwhile: then it ends with a SessionError, and does not fight.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        id: str,
        token: str | None = None,
        *,
        automatic: bool = True,
        takeover: Takeover = "once",
    ) -> None:
        self._servers = ServerAddresses(url)
        self._moving = False
        self._redirects = 0
        self.id, self.automatic, self.takeover = id, automatic, takeover
        self._holder = uuid.uuid4().hex
        self.connections = 0
        self.duplicates = 0
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._arrived: asyncio.Queue[Delivery | None] = asyncio.Queue()
        self._seen: dict[Position, SeenDelivery] = {}
        self._seen_before: dict[Position, SeenDelivery] = {}
        self._era: str | None = None
        self._unsent: list[Position] = []
        self._sending: asyncio.Task[None] | None = None
        self._progress = asyncio.Event()
        """Something was settled, or nothing more will be."""
        self._said: dict[str, Any] = {}
        self._connection: ClientConnection | None = None
        self._greeted = asyncio.Event()
        self._failure: NearcastError | None = None
        self._running: asyncio.Task[None] | None = None

    async def deliveries(self) -> AsyncGenerator[Delivery, None]:
        """The deliveries, as they come, without end; connects again whenever the connection is lost.

        Raises AccessError, RightError or SessionError where that has no sense.
        """
        self._begin()
        while True:
            arrived = await self._arrived.get()
            if arrived is None:
                raise self._ended()
            yield arrived
            if self.automatic:
                await self.acknowledge(arrived.position)

    async def connected(self) -> None:
        """Returns when the server has greeted this client; connects if that is not done yet. Raises as `deliveries`."""
        self._begin()
        await self._greeted.wait()
        if self._failure:
            raise self._failure

    def _begin(self) -> None:
        if self._running is None:
            self._running = asyncio.create_task(self._run())
            self._running.add_done_callback(self._end)

    def _end(self, running: asyncio.Task[None]) -> None:
        """Lets nobody wait for ever where the connection has ended for good."""
        if not running.cancelled() and running.exception():
            self._failure = SessionError(f"expected to follow the server, got {running.exception()!r}")
        self._greeted.set()
        self._progress.set()
        self._arrived.put_nowait(None)

    def _ended(self) -> NearcastError:
        """Why there is nothing more; told again to whoever asks again."""
        self._arrived.put_nowait(None)
        return self._failure or SessionError("expected an open client, got one that was closed")

    async def acknowledge(self, *positions: Position) -> None:
        """Tells the server that deliveries were taken; it never fails, but may have to be told again later."""
        for position in positions:
            # Of an era before: it is told when the same event comes again, for another one may have the position.
            before = position not in self._seen and self._seen_before.get(position)
            if before:
                before.acknowledged = True
                continue
            self._seen.setdefault(position, SeenDelivery(None)).acknowledged = True
            self._unsent.append(position)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_soon())

    async def _send_soon(self) -> None:
        """Sends the acknowledgements of a few milliseconds at once."""
        await asyncio.sleep(GATHER_SECONDS)
        # What is acknowledged from now on starts a round of its own: the list of this one is taken next.
        self._sending = None
        await self._send_acknowledgements()

    async def _send_acknowledgements(self) -> None:
        while self._unsent:
            some, self._unsent = self._unsent[:ACKNOWLEDGED_AT_ONCE], self._unsent[ACKNOWLEDGED_AT_ONCE:]
            await self._send({"ack": some})

    async def say(
        self,
        *,
        readings: Mapping[str, float] | None = None,
        position: Mapping[str, float] | None = None,
        role: str | None = None,
        task: str | None = None,
    ) -> None:
        """Tells the server readings of the context, the position (x, y or lon, lat), the role, the task.

        The newest are told again after reconnecting.
        """
        given = {"readings": readings, "position": position, "role": role, "task": task}
        message = {name: value for name, value in given.items() if value is not None}
        if readings is not None:
            self._said["readings"] = {**self._said.get("readings", {}), **readings}
        self._said.update({name: value for name, value in message.items() if name != "readings"})
        await self._send(message)

    @property
    def server(self) -> str:
        """The URL of the server that it has, or tries next."""
        return self._servers.current

    async def move_to(self, url: str) -> None:
        """Goes to another server of the domain; returns when that has greeted it, or another in its place.

        Raises SessionError for a URL that is none, or without encryption where those given have it.
        """
        if not self._servers.go_to(url):
            raise SessionError(f"expected the http or https URL of an access server of the domain, got {url[:200]!r}")
        self._moving = True
        await self._send_acknowledgements()
        connection, self._connection = self._connection, None
        self._greeted.clear()
        if connection:
            await connection.close()
        await self.connected()

    async def close(self) -> None:
        """Ends the connection; what is not acknowledged is delivered to whoever connects as this client next.

        What is acknowledged is durable when this returns, unless no server says so within three seconds.
        """
        await self._send_acknowledgements()
        if self._running:
            await self._settle(self._running)
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
            self._running = None

    async def _settle(self, running: asyncio.Task[None]) -> None:
        """Returns when all that was acknowledged is settled, or it was waited for long enough."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                while not running.done() and any(one.acknowledged for one in self._seen.values()):
                    self._progress.clear()
                    await self._progress.wait()

    @property
    def online(self) -> bool:
        """Whether a server has greeted it and the connection stands; without one it tries again and again."""
        return self._connection is not None

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def _run(self) -> None:
        """Keeps a connection until the server refuses for good."""
        waits = pauses()
        while True:
            try:
                async with connect(
                    self._address(),
                    additional_headers=self._headers,
                    max_size=MESSAGE_BYTES,
                    # Unbounded: else an application that is slow would keep pings and confirmations from being read.
                    max_queue=None,
                    compression=None,
                    close_timeout=CLOSE_SECONDS,
                    happy_eyeballs_delay=HAPPY_SECONDS,
                ) as one:
                    await self._take(one)
            except ConnectionClosed as closed:
                refusal = self._refusal(closed)
                if refusal:
                    self._failure = refusal
                    return
                reason = str(closed)
            except (OSError, TimeoutError, InvalidHandshake, InvalidMessage) as error:
                reason = repr(error)
            finally:
                self._connection = None
            # It was a connection that worked: the next attempt may be quick again.
            if self._greeted.is_set():
                waits = pauses()
            self._greeted.clear()
            pause = self._next_server(waits)
            log.info("connection lost client=%s reason=%r pause=%.2f next=%s", self.id, reason, pause, self.server)
            await asyncio.sleep(pause)

    def _next_server(self, waits: Iterator[float]) -> float:
        """Chooses where to connect next; the seconds until then."""
        if self._moving:
            self._moving = False
            return 0.0
        self._redirects = 0
        # Others may have room at once; where all were tried it is waited longer and longer.
        return next(waits) if self._servers.failed() else 0.0

    def _address(self) -> str:
        """Where to connect: the first time it may take over, afterwards it only says who it is."""
        takes = self.takeover == "once" and not self.connections
        stream = websocket_url(self.server, f"/clients/{quote(self.id, safe='')}/stream")
        return f"{stream}?holder={self._holder}&redirects={self._redirects}{'&takeover=true' if takes else ''}"

    def _refusal(self, closed: ConnectionClosed) -> NearcastError | None:
        if closed.rcvd is None or closed.rcvd.code not in REFUSALS:
            return None
        return REFUSALS[closed.rcvd.code](closed.rcvd.reason)

    async def _take(self, connection: ClientConnection) -> None:
        while True:
            message = orjson.loads(await connection.recv())
            if "delivery" in message:
                await self._arrive(message)
            elif "settled" in message:
                for position in message["settled"]:
                    self._seen.pop(position, None)
                self._progress.set()
            elif "ping" in message:
                await self._send({"pong": message["ping"]})
            elif "hello" in message:
                # Not before the greeting: what is said until then might go to a server that refuses.
                self._connection = connection
                self._redirects = 0
                self._begin_era(message["hello"].get("era"))
                self._servers.works()
                self._servers.learn(message["hello"].get("servers", ()))
                await self._resume()
            elif "redirect" in message:
                self._follow(message["redirect"])
            elif "notice" in message:
                log.warning("notice client=%s notice=%r", self.id, message["notice"])

    def _follow(self, redirect: Mapping[str, Any]) -> None:
        """Goes to the server that this one names; the connection is about to end."""
        if self._servers.go_to(str(redirect.get("url"))):
            self._moving = True
            self._redirects += 1
        else:
            log.warning("redirect not followed client=%s redirect=%r", self.id, redirect)

    async def _arrive(self, message: dict[str, Any]) -> None:
        position, named = message["delivery"], _named(message["event"])
        before = self._seen_before.pop(position, None)
        if before is not None and before.named == named:
            self._seen[position] = before
        if position in self._seen:
            self.duplicates += 1
            # The acknowledgement was lost, or not there yet when the server sent it again.
            if self._seen[position].acknowledged:
                await self.acknowledge(position)
            return
        self._seen[position] = SeenDelivery(named)
        self._arrived.put_nowait(
            Delivery(
                position,
                message["priority"],
                message["subscription"],
                message["level"],
                message["attempt"],
                # A server that has lost an event delivers null in its place.
                DeliveredEvent(message["event"] or {}),
            )
        )

    def _begin_era(self, era: str | None) -> None:
        """Where positions may have been given to other events since, what was seen at them is another matter."""
        if self._era is not None and era != self._era:
            log.warning("journal may have lost its newest events client=%s", self.id)
            before = [*self._seen_before.items(), *self._seen.items()]
            self._seen_before, self._seen = dict(before[-SEEN_BEFORE:]), {}
        self._era = era

    async def _resume(self) -> None:
        """Says again what a new connection, or a new server, may not know."""
        self.connections += 1
        # All that is unsent is among them: it is acknowledged, and not known to be settled.
        self._unsent = [position for position, seen in self._seen.items() if seen.acknowledged]
        await self._send_acknowledgements()
        if self._said:
            await self._send(self._said)
        self._greeted.set()

    async def _send(self, message: Mapping[str, Any]) -> None:
        """Sends if connected; what is lost is made good by `_resume`."""
        if self._connection:
            with suppress(ConnectionClosed):
                await self._connection.send(orjson.dumps(message).decode())


def pauses() -> Iterator[float]:
    """Seconds to wait before each attempt to connect, without end."""
    return backoff(FIRST_PAUSE, LONGEST_PAUSE, JITTER)


def _named(event: Mapping[str, Any] | None) -> EventName | None:
    return (event.get("source"), event.get("id"), event.get("time")) if event else None
