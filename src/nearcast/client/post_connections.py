"""Posts to one server over HTTP/1.1 connections that are kept: with the parser in C that the server has too.

An HTTP client for everything takes 1,500 us of the processor for a post on a machine where this takes 60, and most
events are posted one by one. Where a proxy stands between, or the address has a user's name, that client does it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, Protocol
from urllib.request import getproxies

import httptools
import httpx

from nearcast.client.server_addresses import HAPPY_SECONDS
from nearcast.errors import SessionError

SECONDS = 30.0
"""For a connection to be made, and for something to come or go on it."""

KEPT_SECONDS = 4.0
"""A connection that rested longer is not used again: servers close theirs, this one's after 5 s."""

MOST = 100
"""Connections at once, of those who publish at the same moment."""


class PostAnswer(NamedTuple):
    """What a server answered; `again`: to the second of two posts, and the first may have arrived too."""

    status: int
    body: bytes
    again: bool = False
    location: str = ""
    """Where it sends whoever asked, if it does."""


class Posts(Protocol):
    """Posts to one address."""

    async def post(self, body: bytes, headers: Mapping[str, str]) -> PostAnswer:
        """The answer to a post. Raises OSError where there is none, TimeoutError being one."""

    async def close(self) -> None:
        """Closes the connections."""


def posts_to(url: str, path: str, headers: Mapping[str, str]) -> Posts:
    """What posts to a path of a server, with these headers in each post."""
    address = httpx.URL(url)
    proxies = getproxies()
    plain = address.scheme in ("http", "https") and address.host and not address.userinfo
    if plain and not ({address.scheme, "all"} & proxies.keys()):
        return PostConnections(address, path, headers)
    return ProxiedPosts(httpx.AsyncClient(base_url=url, headers=headers, timeout=SECONDS), path)


class ProxiedPosts:
    """Posts by way of a client for everything."""

    def __init__(self, http: httpx.AsyncClient, path: str) -> None:
        self._http, self._path = http, path

    async def post(self, body: bytes, headers: Mapping[str, str]) -> PostAnswer:
        """See `Posts.post`."""
        try:
            answer = await self._http.post(self._path, content=body, headers=headers)
        except httpx.TransportError as error:
            raise ConnectionError(repr(error)) from error
        return PostAnswer(answer.status_code, answer.content, location=answer.headers.get("location", ""))

    async def close(self) -> None:
        """See `Posts.close`."""
        await self._http.aclose()


class PostConnections:
    """Posts over connections of its own, each for one post at a time. Used from one event loop at a time."""

    def __init__(self, address: httpx.URL, path: str, headers: Mapping[str, str]) -> None:
        secure = address.scheme == "https"
        self._host, self._port = address.raw_host.decode("ascii"), address.port or (443 if secure else 80)
        self._tls = httpx.create_ssl_context() if secure else None
        self._head = f"POST {address.raw_path.decode('ascii').rstrip('/')}{path} HTTP/1.1\r\n" + _lines(
            {"Host": address.netloc.decode("ascii"), "User-Agent": "nearcast", "Accept": "application/json", **headers}
        )
        self._idle: deque[_PostConnection] = deque()
        self._turns = asyncio.Semaphore(MOST)

    async def post(self, body: bytes, headers: Mapping[str, str]) -> PostAnswer:
        """See `Posts.post`."""
        request = f"{self._head}{_lines(headers)}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body
        async with self._turns:
            connection = self._rested()
            if connection is not None:
                try:
                    return await self._exchange(connection, request)
                except ConnectionError:
                    # Nothing came: it was closed as this was sent. What is posted may be posted twice.
                    if connection.heard:
                        raise
            answer = await self._exchange(await self._connected(), request)
            return answer if connection is None else answer._replace(again=True)

    def _rested(self) -> _PostConnection | None:
        """A connection that can be used again: the last, so that others may end."""
        loop = asyncio.get_running_loop()
        while self._idle:
            connection = self._idle.pop()
            if connection.usable(loop):
                return connection
            connection.end()
        return None

    async def _connected(self) -> _PostConnection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(SECONDS):
            _, made = await loop.create_connection(
                _PostConnection, self._host, self._port, ssl=self._tls, happy_eyeballs_delay=HAPPY_SECONDS
            )
        return made

    async def _exchange(self, connection: _PostConnection, request: bytes) -> PostAnswer:
        try:
            answer = await connection.exchange(request)
        except BaseException:
            # Also where nobody waits any more: the answer is still to come, and would be the next one's.
            connection.end()
            raise
        if connection.lasting:
            self._idle.append(connection)
        else:
            connection.end()
        return answer

    async def close(self) -> None:
        """See `Posts.close`."""
        while self._idle:
            self._idle.pop().end()
        # They are closed with the loop's next turn.
        await asyncio.sleep(0)


class _PostConnection(asyncio.Protocol):
    """One connection; the methods `on_…` are called by the parser."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[PostAnswer] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._parts: list[bytes] = []
        self._rests_since = 0.0
        self._unsent = 0
        self._sized = False
        self._location = ""
        self.heard, self.lasting = False, True

    def usable(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether the other end may still be there."""
        open = self._transport is not None and not self._transport.is_closing()
        return open and self.lasting and self._loop is loop and loop.time() - self._rests_since < KEPT_SECONDS

    async def exchange(self, request: bytes) -> PostAnswer:
        """The answer to a request. Raises OSError."""
        if self._transport is None:
            raise ConnectionError("expected a connection, got one that was closed")
        self._parser = httptools.HttpResponseParser(self)
        self._parts, self.heard, self._sized, self._location = [], False, False, ""
        self._answer = self._loop.create_future()
        self._transport.write(request)
        self._wait()
        try:
            return await self._answer
        finally:
            if self._timer:
                self._timer.cancel()
            self._answer, self._rests_since = None, self._loop.time()

    def _wait(self) -> None:
        if self._timer:
            self._timer.cancel()
        assert self._transport is not None, "called while there is a connection"
        self._unsent = self._transport.get_write_buffer_size()
        self._timer = self._loop.call_later(SECONDS, self._look)

    def _look(self) -> None:
        """Gives up, unless something went out meanwhile: a slow link takes long for a large request."""
        if self._transport is not None and self._transport.get_write_buffer_size() < self._unsent:
            self._wait()
        else:
            self._fail(TimeoutError(f"nothing came or went for {SECONDS:g} s"))

    def _fail(self, error: Exception) -> None:
        self.lasting = False
        if self._answer and not self._answer.done():
            self._answer.set_exception(error)

    def end(self) -> None:
        """Closes the connection."""
        if self._transport is not None and not self._loop.is_closed():
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport), "a stream"
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._answer is None or self._answer.done():
            # Nothing was asked: whatever this is, it must not be taken for the next answer.
            self.lasting = False
            return
        self.heard = True
        self._wait()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"expected an answer in HTTP, got something else: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._transport, self.lasting = None, False
        if self._answer is not None and self._parts and not self._sized and exc is None:
            # An answer that says no length ends with its connection.
            self.on_message_complete()
        self._fail(exc if isinstance(exc, OSError) else ConnectionError("the server closed the connection"))

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools."""
        self._sized = self._sized or name.lower() in (b"content-length", b"transfer-encoding")
        if name.lower() == b"location":
            self._location = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """See httptools."""
        status = self._parser.get_status_code()
        # What comes before an answer, as 100 Continue.
        if status < 200:
            return
        self.lasting = self.lasting and self._parser.should_keep_alive()
        if self._answer and not self._answer.done():
            self._answer.set_result(PostAnswer(status, b"".join(self._parts), location=self._location))


def _lines(headers: Mapping[str, str]) -> str:
    """Header lines. Raises SessionError for a value that would be more than one."""
    for name, value in headers.items():
        if not value.isprintable() or not value.isascii():
            raise SessionError(
                f"expected printable ASCII as the header {name}, got {value[:40]!a}; is the token whole?"
            )
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())
