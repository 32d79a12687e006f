"""The seam between nodes: datagrams to whoever hears them; and a transport that loses, repeats and reorders some.

A transport promises little: what it gives was sent by somebody, whole, and it says by whom as well as it can tell. A
node may hear itself. Nobody waits for anybody: what a slow node cannot take is dropped and counted.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from nearcast.errors import Fault, Mark
from nearcast.foraging.neighbour_shares import NeighbourShares

MOST_WAITING = 20_000
"""Datagrams that wait to be taken, of which each sender has a share; more are dropped."""

LARGEST = 65_507
"""Bytes: what UDP carries over IPv4."""


class Datagram(NamedTuple):
    """What was heard, and from whom: as far as a transport can tell, which is not from the datagram itself."""

    data: bytes
    sender: str


class Transport(ABC):
    """One node's voice and ear; open it with `async with`."""

    def __init__(self) -> None:
        self._heard: asyncio.Queue[Datagram | None] = asyncio.Queue()
        self._shares = NeighbourShares(MOST_WAITING)
        self._open = False

    async def __aenter__(self) -> Transport:
        await self._start()
        self._open = True
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._open = False
        await self._stop()
        self._heard.put_nowait(None)

    @property
    def dropped(self) -> int:
        """How many datagrams found no room."""
        return self._shares.refused

    def send(self, data: bytes) -> None:
        """Says something to whoever hears it; after closing, to nobody. Raises `Fault` for what is too large."""
        if len(data) > LARGEST:
            raise Fault(f"a datagram of at most {LARGEST:,} bytes", f"{len(data):,}", Mark("datagram"))
        if self._open:
            self._send(data)

    async def receive(self) -> Datagram | None:
        """The next datagram heard; None when the transport is closed."""
        heard = await self._heard.get()
        if heard is None:
            self._heard.put_nowait(None)
        else:
            self._shares.release(heard.sender)
        return heard

    def _hear(self, data: bytes, sender: str) -> None:
        """Takes what an implementation has heard."""
        if self._shares.hold(sender):
            self._heard.put_nowait(Datagram(data, sender))

    @abstractmethod
    async def _start(self) -> None:
        """Makes ready to send and hear."""

    @abstractmethod
    async def _stop(self) -> None:
        """Ends it."""

    @abstractmethod
    def _send(self, data: bytes) -> None:
        """Says something to whoever hears it."""


@dataclass(frozen=True, slots=True)
class ChannelFaults:
    """What happens to datagrams: the shares that are lost and that come twice, and by how many seconds at most, drawn
    anew for each, they are late: so they overtake each other.
    """

    loss: float = 0.0
    twice: float = 0.0
    late: float = 0.0


class FaultyChannel:
    """Carries what is said as the weather lets it."""

    def __init__(self, weather: ChannelFaults, seed: int = 1) -> None:
        self._weather, self._chance = weather, random.Random(seed)

    def carry(self, arrive: Callable[[bytes, str], None], data: bytes, sender: str) -> None:
        """Lets a datagram arrive once, twice or never, now or later."""
        weather, chance = self._weather, self._chance
        for _ in range(1 + (chance.random() < weather.twice)):
            if chance.random() >= weather.loss:
                asyncio.get_running_loop().call_later(chance.random() * weather.late, arrive, data, sender)


class FaultyTransport(Transport):
    """Another transport, heard through bad air."""

    def __init__(self, inner: Transport, weather: ChannelFaults, seed: int = 1) -> None:
        super().__init__()
        self._inner, self._air = inner, FaultyChannel(weather, seed)
        self._listening: asyncio.Task[None] | None = None

    @property
    def dropped(self) -> int:
        """How many datagrams found no room, here or in the other transport."""
        return super().dropped + self._inner.dropped

    async def _start(self) -> None:
        await self._inner.__aenter__()
        self._listening = asyncio.create_task(self._listen())

    async def _stop(self) -> None:
        await self._inner.__aexit__(None, None, None)
        if self._listening:
            await self._listening

    def _send(self, data: bytes) -> None:
        self._inner.send(data)

    async def _listen(self) -> None:
        while heard := await self._inner.receive():
            self._air.carry(self._arrive, *heard)

    def _arrive(self, data: bytes, sender: str) -> None:
        if self._open:
            self._hear(*Datagram(data, sender))
