"""A simulated radio: nodes of one process hear each other within reach, as well as is wanted of it."""

from __future__ import annotations

from collections.abc import Callable

from nearcast.geo.distance import distance
from nearcast.model.event import Place
from nearcast.node.transport import ChannelFaults, FaultyChannel, Transport

Where = Callable[[], Place]
CLEAR = ChannelFaults()


class Radio:
    """The air between nodes that hear each other within `reach` metres."""

    def __init__(self, reach: float, weather: ChannelFaults = CLEAR, seed: int = 1) -> None:
        self._reach, self._air = reach, FaultyChannel(weather, seed)
        self._sets: list[RadioTransport] = []

    def transport(self, name: str, where: Where) -> RadioTransport:
        """A new node's radio set, which is where the node is."""
        return RadioTransport(self, name, where)

    def join(self, one: RadioTransport) -> None:
        """Lets a set hear and be heard."""
        self._sets.append(one)

    def leave(self, one: RadioTransport) -> None:
        """Ends that."""
        self._sets.remove(one)

    def broadcast(self, data: bytes, sender: RadioTransport) -> None:
        """Carries a datagram to every other set within reach."""
        for other in self._sets:
            apart = distance(sender.where(), other.where())
            if other is not sender and apart is not None and apart <= self._reach:
                self._air.carry(other.hear, data, sender.name)


class RadioTransport(Transport):
    """A node's set."""

    def __init__(self, radio: Radio, name: str, where: Where) -> None:
        super().__init__()
        self.name, self.where = name, where
        self._radio = radio

    def hear(self, data: bytes, sender: str) -> None:
        """Takes a datagram from the air; a set that is switched off hears nothing."""
        if self._open:
            self._hear(data, sender)

    async def _start(self) -> None:
        self._radio.join(self)

    async def _stop(self) -> None:
        self._radio.leave(self)

    def _send(self, data: bytes) -> None:
        self._radio.broadcast(data, self)
