"""A link of changing bandwidth between a client and the server, on one machine: a real connection, really slow."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

PIECE = 1024
"""Bytes that pass at once: at 10 kbit/s most of a second."""

BUFFER = 4096
"""Bytes that the operating system may keep on each side; else it would hide how slow the link is."""


class Link:
    """Passes connections on to the server at `target`, both ways at `bandwidth` kbit/s; 0: nothing passes."""

    def __init__(self, target: tuple[str, int], bandwidth: float) -> None:
        self.target = target
        self.passed = 0
        self._bandwidth = bandwidth
        self._alive = asyncio.Event()
        self._free = {"down": 0.0, "up": 0.0}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.set(bandwidth)

    @property
    def bandwidth(self) -> float:
        """What the link gives now, in kbit/s."""
        return self._bandwidth

    def set(self, bandwidth: float) -> None:
        """Changes what the link gives."""
        self._bandwidth = bandwidth
        if bandwidth > 0:
            self._alive.set()
        else:
            self._alive.clear()

    async def open(self) -> str:
        """Begins to listen on the loopback; the address to connect to instead of the server's."""
        listening = socket.create_server(("127.0.0.1", 0))
        # The connections that it accepts take over these sizes.
        _narrow(listening)
        self._server = await asyncio.start_server(self._connect, sock=listening, limit=PIECE)
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    async def cut(self) -> None:
        """Ends every connection; new ones are taken."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Ends every connection, and takes no new ones."""
        if self._server:
            self._server.close()
        await self.cut()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Whoever cancels this ends the connection; a handler that ends as cancelled makes asyncio complain before 3.12.
        with suppress(asyncio.CancelledError):
            await self._join(reader, writer)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes pieces both ways between a connection and the target, until one side ends."""
        try:
            onward = socket.create_connection(self.target)
            _narrow(onward)
            far_reader, far_writer = await asyncio.open_connection(sock=onward, limit=PIECE)
        except OSError:
            writer.close()
            return
        down = asyncio.create_task(self._pass("down", far_reader, writer))
        up = asyncio.create_task(self._pass("up", reader, far_writer))
        try:
            await asyncio.wait({down, up}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for passing in (down, up):
                passing.cancel()
            for side in (writer, far_writer):
                side.close()

    async def _pass(self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        with suppress(ConnectionError):
            while piece := await reader.read(PIECE):
                await self._alive.wait()
                # The link is one: a piece begins when the one before it is through, of whichever connection.
                start = max(loop.time(), self._free[way])
                self._free[way] = start + len(piece) * 8 / (max(self._bandwidth, 0.001) * 1000)
                await asyncio.sleep(self._free[way] - loop.time())
                # The link may have died while the piece was on its way.
                await self._alive.wait()
                writer.write(piece)
                self.passed += len(piece)
                await writer.drain()


def _narrow(connection: socket.socket) -> None:
    for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        connection.setsockopt(socket.SOL_SOCKET, buffer, BUFFER)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
