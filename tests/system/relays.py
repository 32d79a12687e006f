"""A network of relays on the loopback: who speaks to whom goes through one that can be cut, as a cable or a switch."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Relay:
    """Passes connections on to a port of this machine, until it is cut. Used from one event loop.

    Cut, it is silent: nothing passes, nothing is refused, and no end hears of it. Who connects meanwhile waits.
    """

    def __init__(self, port: int = 0) -> None:
        self.target, self.port = port, 0
        self.mended = asyncio.Event()
        self.mended.set()
        self.ends: set[_RelayEnd] = set()
        self._server: asyncio.Server | None = None
        self._joining: set[asyncio.Task[None]] = set()

    async def open(self) -> int:
        """Begins to listen; its port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _RelayEnd(self), "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self.port

    def cut(self) -> None:
        """Lets nothing pass from now on."""
        self.mended.clear()
        for end in self.ends:
            end.pause()

    def mend(self, reset: bool) -> None:
        """Lets everything pass again, what was on its way too; `reset`: instead, whoever was connected is cut off."""
        self.mended.set()
        for end in [*self.ends]:
            if reset:
                end.abort()
            else:
                end.resume()

    async def close(self) -> None:
        """Ends every connection, and takes no new ones."""
        if self._server:
            self._server.close()
        for task in self._joining:
            task.cancel()
        await asyncio.gather(*self._joining, return_exceptions=True)
        for end in [*self.ends]:
            end.abort()
        await asyncio.sleep(0)

    def accepted(self, near: _RelayEnd) -> None:
        """Somebody has connected."""
        task = asyncio.get_running_loop().create_task(self._join(near))
        self._joining.add(task)
        task.add_done_callback(self._joining.discard)

    async def _join(self, near: _RelayEnd) -> None:
        await self.mended.wait()
        try:
            loop = asyncio.get_running_loop()
            _, far = await loop.create_connection(lambda: _RelayEnd(self, near), "127.0.0.1", self.target)
        except OSError:
            near.abort()
            return
        near.other = far
        if near not in self.ends:
            far.abort()
        elif self.mended.is_set():
            near.resume()
        else:
            far.pause()


class _RelayEnd(asyncio.Protocol):
    """One end of what a relay passes on."""

    def __init__(self, relay: Relay, other: _RelayEnd | None = None) -> None:
        self.relay, self.other = relay, other
        self._transport: asyncio.Transport | None = None

    def pause(self) -> None:
        """Reads no more: what comes is left to the system's buffers."""
        if self._transport and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Reads on, once there is somewhere to pass it."""
        if self._transport and self.other and not self._transport.is_reading() and self.relay.mended.is_set():
            with suppress(RuntimeError):
                self._transport.resume_reading()

    def abort(self) -> None:
        """Ends the connection at once."""
        if self._transport:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.relay.ends.add(self)
        if self.other is None:
            self.pause()
            self.relay.accepted(self)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self.other and self.other._transport:
            self.other._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.relay.ends.discard(self)
        self._transport = None
        if self.other and self.other._transport:
            # What was passed on before goes out first.
            self.other._transport.close()

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        if self.other:
            self.other.pause()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        if self.other:
            self.other.resume()
