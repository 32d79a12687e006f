"""Connections between the processes of a simulation: they take time, stall, break, and may be refused.

As over TCP, what is written on one connection arrives in its order or not at all; between connections nothing is kept
in order. Where two hosts do not reach each other, what is under way waits until they do, or until one end gives up.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.simulation.simulated_loop import SimulatedLoop, SimulatedProcess

HIGH, LOW = 64 * 1024, 16 * 1024
"""Bytes under way from which on a writer is to pause, and may go on."""

CONNECT_SECONDS = 20.0
"""So long who connects waits for a host that is not reached."""

GIVEN_UP_SECONDS = 30.0
"""So long a system sends again what nobody confirms."""


class SimulatedNetwork:
    """`latency` is the mean delay in seconds of what crosses; `cut_hosts` reach nobody and are reached by nobody."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        loop.network = self
        self.latency = 0.005
        self.cut_hosts: set[str] = set()
        self._listening: dict[tuple[str, int], SimulatedServer] = {}
        self.transports: list[SimulatedTransport] = []
        self._held: list[Callable[[], None]] = []
        self._ports = iter(range(50_000, 1 << 40))
        self.connections = 0

    def delay(self) -> float:
        """How long something takes."""
        return self.latency * (0.3 + self.loop.chance.expovariate(1.0))

    def reach(self, one: str, other: str) -> bool:
        """Whether two hosts reach each other."""
        return one == other or not ({one, other} & self.cut_hosts)

    def hold(self, again: Callable[[], None]) -> None:
        """Calls again once some hosts reach each other again."""
        self._held.append(again)

    def heal(self, *hosts: str) -> None:
        """Lets hosts be reached again, all if none is named."""
        self.cut_hosts -= set(hosts or self.cut_hosts)
        held, self._held = self._held, []
        for again in held:
            self.loop.schedule(self.loop.world, self.delay(), again)

    def listen(self, factory: Callable[[], Any], host: str, port: int) -> SimulatedServer:
        """Takes connections of a process to its host."""
        server = self._listening[host, port] = SimulatedServer(self, factory, (host, port))
        return server

    def forget(self, server: SimulatedServer) -> None:
        """Takes no more."""
        if self._listening.get(server.address) is server:
            del self._listening[server.address]

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[SimulatedTransport, Any]:
        """Connects; raises OSError as a socket would."""
        process, loop = self.loop.current, self.loop
        await asyncio.sleep(self.delay())
        until = loop.time() + CONNECT_SECONDS
        while not self.reach(process.host, host):
            if loop.time() >= until:
                raise TimeoutError(110, f"connection to {host} timed out")
            # As a system repeats what nobody confirms.
            await asyncio.sleep(1.0)
        server = self._listening.get((host, port))
        if server is None or not server.process.alive:
            raise ConnectionRefusedError(111, f"nobody listens at {host}:{port}")
        here = (process.host, next(self._ports))
        mine = SimulatedTransport(self, process, here, server.address)
        theirs = SimulatedTransport(self, server.process, server.address, here)
        mine.peer, theirs.peer = theirs, mine
        self.transports = [one for one in self.transports if not one.lost] + [mine, theirs]
        self.connections += 1
        loop.schedule(server.process, 0.0, theirs.begin, server.factory)
        await asyncio.sleep(self.delay())
        protocol = factory()
        mine.begin(lambda: protocol)
        return mine, protocol

    def kill(self, process: SimulatedProcess) -> None:
        """The process is dead: its system tells the other ends so, unless they are not reached."""
        for server in [one for one in self._listening.values() if one.process is process]:
            self.forget(server)
        for one in [one for one in self.transports if one.process is process]:
            one.reset()

    def reset(self, one: SimulatedTransport) -> None:
        """A connection breaks: each end hears of it in its own time, and what is under way is lost."""
        for end in (one, one.peer):
            end.broken = True
            late = self.loop.chance.choice((0.0, self.delay(), GIVEN_UP_SECONDS * self.loop.chance.random()))
            self.loop.schedule(end.process, late, end.lose, ConnectionResetError(104, "connection reset"))


class SimulatedServer(asyncio.AbstractServer):
    """What listens at an address; `sockets` stand for themselves."""

    def __init__(self, network: SimulatedNetwork, factory: Callable[[], Any], address: tuple[str, int]) -> None:
        self._network, self.factory, self.address = network, factory, address
        self.process = network.loop.current
        self.sockets = [SimulatedSocket(*address)]

    def close(self) -> None:
        self._network.forget(self)

    async def wait_closed(self) -> None: ...


class SimulatedSocket:
    """The address of a socket, and of the one that it is connected to."""

    family = socket.AF_INET

    def __init__(self, host: str, port: int, peer: tuple[str, int] | None = None) -> None:
        self._address, self._peer = (host, port), peer

    def getpeername(self) -> tuple[str, int] | None:
        return self._peer

    def setsockopt(self, *option: object) -> None: ...

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def close(self) -> None: ...


class SimulatedTransport(asyncio.Transport):
    """One end of a connection. What arrives from its `peer` comes in the order in which that wrote it."""

    def __init__(
        self, network: SimulatedNetwork, process: SimulatedProcess, here: tuple[str, int], there: tuple[str, int]
    ) -> None:
        super().__init__({"sockname": here, "peername": there, "socket": SimulatedSocket(*here, there)})
        self._network, self.process = network, process
        self.peer: SimulatedTransport
        self._protocol: Any = None
        self._closing = self.lost = self.broken = self._writing_paused = self._reading_paused = False
        self._last = 0.0
        self._crossing: deque[tuple[float, str, bytes]] = deque()
        self._held = False
        self._under_way = 0
        self._arrived: list[tuple[str, bytes]] = []

    def begin(self, factory: Callable[[], Any]) -> None:
        """Gives it its protocol, as the process that has it."""
        self._protocol = factory()
        self._protocol.connection_made(self)
        self._deliver()

    # What the protocol asks

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self.lost or not data:
            return
        self._under_way += len(data)
        self._send("data", bytes(data))
        if self._under_way > HIGH and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return self._under_way

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return LOW, HIGH

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._send("end")

    def is_closing(self) -> bool:
        return self._closing or self.lost

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._send("end")
            self._network.loop.call_soon(self.lose, None)

    def abort(self) -> None:
        self.reset()
        if not self._closing:
            self._closing = True
            self._network.loop.call_soon(self.lose, None)

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def is_reading(self) -> bool:
        return not self._reading_paused

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            self._network.loop.call_soon(self._deliver)

    # What the network does

    def reset(self) -> None:
        """The other end hears that nobody is here any more."""
        self._send("reset")

    def _send(self, kind: str, data: bytes = b"") -> None:
        loop = self._network.loop
        self._last = max(self._last, loop.time() + self._network.delay())
        self._crossing.append((self._last, kind, data))
        loop.schedule(loop.world, self._last - loop.time(), self._cross)

    def _cross(self) -> None:
        """What is due arrives at the other host, or waits until that is reached."""
        self._held = self._held and not self._network.reach(self.process.host, self.peer.process.host)
        while self._crossing and self._crossing[0][0] <= self._network.loop.time() and not self._held:
            if self.broken or self.peer.lost:
                return
            if not self._network.reach(self.process.host, self.peer.process.host):
                self._held = True
                self._network.hold(self._cross)
                self._network.loop.schedule(self._network.loop.world, GIVEN_UP_SECONDS, self._give_up)
                return
            _, kind, data = self._crossing.popleft()
            if not self.peer.process.alive:
                late, error = self._network.delay(), ConnectionResetError(104, "connection reset by peer")
                self._network.loop.schedule(self.process, late, self.lose, error)
            else:
                self.peer.take(kind, data)

    def _give_up(self) -> None:
        if self._held and not self.broken:
            self._network.reset(self)

    def take(self, kind: str, data: bytes) -> None:
        """Something has arrived here."""
        self._arrived.append((kind, data))
        self._network.loop.schedule(self.process, 0.0, self._deliver)

    def _deliver(self) -> None:
        while self._arrived and self._protocol is not None and not self.lost:
            kind, data = self._arrived[0]
            if self._reading_paused and kind != "reset":
                return
            del self._arrived[0]
            if kind == "reset":
                self.lose(ConnectionResetError(104, "connection reset by peer"))
            elif kind == "end":
                if not self._protocol.eof_received():
                    self.close()
            else:
                loop = self._network.loop
                loop.schedule(self.peer.process, 0.0, self.peer.confirmed, len(data))
                if not self._closing:
                    self._protocol.data_received(data)

    def confirmed(self, count: int) -> None:
        """The other end has taken so many bytes."""
        self._under_way -= count
        if self._writing_paused and self._under_way <= LOW and not self.lost:
            self._writing_paused = False
            self._protocol.resume_writing()

    def lose(self, error: Exception | None) -> None:
        """The connection is no more at this end."""
        if not self.lost:
            self.lost = self._closing = True
            if self._protocol is not None:
                self._protocol.connection_lost(error)
