"""Bad air: datagrams that get lost, come twice and overtake each other, for simulated radios and for trials."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from nearcast.node.transport import Datagram, Transport


@dataclass(frozen=True, slots=True)
class Weather:
    """What happens to datagrams: the shares that are lost and that come twice, and by how many seconds at most, drawn
    anew for each, they are late: so they overtake each other.
    """

    loss: float = 0.0
    twice: float = 0.0
    late: float = 0.0


CLEAR = Weather()


class Air:
    """Carries what is said as the weather lets it."""

    def __init__(self, weather: Weather, seed: int = 1) -> None:
        self._weather, self._chance = weather, random.Random(seed)

    def carry(self, arrive: Callable[[bytes, str], None], data: bytes, sender: str) -> None:
        """Lets a datagram arrive once, twice or never, now or later."""
        weather, chance = self._weather, self._chance
        for _ in range(1 + (chance.random() < weather.twice)):
            if chance.random() >= weather.loss:
                asyncio.get_running_loop().call_later(chance.random() * weather.late, arrive, data, sender)


class WeatheredTransport(Transport):
    """Another transport, heard through bad air."""

    def __init__(self, inner: Transport, weather: Weather, seed: int = 1) -> None:
        super().__init__()
        self._inner, self._air = inner, Air(weather, seed)
        self._listening: asyncio.Task[None] | None = None

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
