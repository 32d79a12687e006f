"""HTTP and WebSocket connections as uvicorn has them, with bounds that it does not have.

Uvicorn bounds how long a connection may be idle after a request, and how many requests run at once. It waits for ever
for the end of a header, keeps as much of one as comes, and keeps connections whose other end takes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from nearcast.server.config import ServerLimits
from nearcast.server.connection_limits import OpenConnections

TOO_MANY = (503, "Service Unavailable", "expected fewer connections; end some, or come back in a second")
TOO_LATE = (408, "Request Timeout", "expected the whole header of a request sooner")
TOO_LONG = (431, "Request Header Fields Too Large", "expected a shorter header")


class Deadline:
    """Something that is called unless it is stopped in time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    @property
    def runs(self) -> bool:
        """Whether it was started and not stopped."""
        return self._timer is not None

    def start(self, seconds: float, call: Callable[..., object], *args: object) -> None:
        """Calls after so many seconds; one that runs stays as it is."""
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, call, *args)

    def stop(self) -> None:
        """Calls nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class HttpConnection(HttpToolsProtocol):
    """One HTTP connection: counted, with bounds on its header, and closed when its other end takes nothing."""

    open_connections: OpenConnections
    limits: ServerLimits

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._header, self._stalled = Deadline(self.loop), Deadline(self.loop)
        self._header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes the connection if there is room for it."""
        super().connection_made(transport)
        _end_when_stalled(transport, self.limits.stall_seconds)
        address = self.client[0] if self.client else ""
        if not self.open_connections.open(transport, address, self._close_idle):
            self._refuse(TOO_MANY)
            return
        self._await_header()

    def connection_lost(self, exc: Exception | None) -> None:
        """Makes room for others."""
        self.open_connections.end(self.transport)
        self._header.stop()
        self._stalled.stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads on, as long as a header is neither too long nor too late."""
        if self.transport.is_closing():
            return
        if self._header.runs:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._header.runs and self._header_bytes > self.limits.header_bytes:
            self._refuse(TOO_LONG)
        elif not self._header.runs and self._is_done() and not self.transport.is_closing():
            # Uvicorn waits for the next request no more once anything of it has come.
            self._await_header()

    def _is_done(self) -> bool:
        """Whether what was asked is answered, and nothing else was asked yet."""
        return self.cycle is not None and self.cycle.response_complete and not self.pipeline

    def _await_header(self) -> None:
        self._header_bytes = 0
        self._header.start(self.limits.header_seconds, self._refuse, TOO_LATE)
        self.open_connections.rest(self.transport, self._close_idle)

    def on_headers_complete(self) -> None:
        """A request begins."""
        self._header.stop()
        self.open_connections.work(self.transport)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """A request was answered."""
        super().on_response_complete()
        if self._is_done() and not self._header.runs:
            self.open_connections.rest(self.transport, self._close_idle)

    def _close_idle(self) -> None:
        """Makes room for another connection."""
        # Who waits between two requests has done nothing wrong, and sends the next one elsewhere.
        self._refuse(TOO_LATE if self._header.runs else None)

    def _refuse(self, answer: tuple[int, str, str] | None) -> None:
        self._header.stop()
        if answer and not self.transport.is_closing():
            status, reason, text = answer
            head = f"HTTP/1.1 {status} {reason}\r\ncontent-type: text/plain\r\ncontent-length: {len(text)}\r\n"
            self.transport.write(f"{head}connection: close\r\nretry-after: 1\r\n\r\n{text}".encode())
        self.transport.close()

    def pause_writing(self) -> None:
        """The other end takes less than is sent."""
        super().pause_writing()
        self._stalled.start(self.limits.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The other end takes what is sent."""
        self._stalled.stop()
        super().resume_writing()


def _end_when_stalled(transport: asyncio.Transport, seconds: float) -> None:
    """Lets the system end a connection whose other end takes nothing for so long, of what the system took already.

    Some megabytes fit in there, so the server may have nothing left to write, and notice nothing.
    """
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    connection = transport.get_extra_info("socket")
    if option is not None and connection is not None:
        # Not every kind of connection has it.
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, option, max(1, round(seconds * 1_000)))


class WebSocketConnection(WebSocketsSansIOProtocol):
    """One WebSocket: counted, and closed when its other end takes nothing."""

    open_connections: OpenConnections
    limits: ServerLimits

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._stalled = Deadline(self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        """Makes room for others."""
        self.open_connections.end(self.transport)
        self._stalled.stop()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The other end takes less than is sent."""
        super().pause_writing()
        self._stalled.start(self.limits.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The other end takes what is sent."""
        self._stalled.stop()
        super().resume_writing()

    def handle_ping(self) -> None:
        """Answers a ping, but not one of an other end that does not read the answers."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    def keepalive_timeout(self) -> None:
        """Ends a connection whose other end is silent, also if what was sent before does not get away."""
        super().keepalive_timeout()
        self._stalled.start(self.limits.close_seconds, self.transport.abort)


def protocols_for(
    limits: ServerLimits, open_connections: OpenConnections
) -> tuple[type[HttpConnection], type[WebSocketConnection]]:
    """The protocols of one server: uvicorn makes a connection's by itself, of a class."""
    shared: dict[str, Any] = {"limits": limits, "open_connections": open_connections}
    return (
        cast(type[HttpConnection], type("HttpConnection", (HttpConnection,), shared)),
        cast(type[WebSocketConnection], type("WebSocketConnection", (WebSocketConnection,), shared)),
    )


class TokenFilter(logging.Filter):
    """Takes tokens out of what uvicorn logs: it writes the address of a WebSocket with its query."""

    _TOKEN = re.compile(r"([?&]token=)[^&\s\"']*")

    def filter(self, record: logging.LogRecord) -> bool:
        """Lets every record through, without tokens."""
        if isinstance(record.args, tuple):
            record.args = tuple(self._TOKEN.sub(r"\1…", one) if isinstance(one, str) else one for one in record.args)
        return True
