"""A web server that webhooks are posted to: it answers, refuses, is busy, drips, hangs up, or says nothing."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tests.simulation.simulated_loop import SimulatedProcess

if TYPE_CHECKING:
    from tests.simulation.simulated_system import SimulatedSystem

HOST, PORT = "hooks", 9000

MOODS = ("well", "well", "refuses", "busy", "asks for a pause", "drips", "hangs up", "silent")

SURE_SECONDS = 8.0
"""Who has an answer so soon after the request has it in time, and closes the connection for that."""


@dataclass
class Post:
    """A request: of which event, by whom, when, and whether it was answered with 200 to the end, and that got there."""

    id: str
    sender: SimulatedProcess
    began: float
    accepted: bool = False
    confirmed: bool = False


@dataclass
class WebhookEndpoint:
    """`mood` is how it answers just now; `posts` are all requests that came, in their order."""

    system: SimulatedSystem
    chance: random.Random
    mood: str = "well"
    posts: list[Post] = field(default_factory=list)

    def start(self) -> None:
        """Starts it, in the place of one that was killed."""

        def listen(process: SimulatedProcess) -> None:
            loop = self.system.loop
            before, loop.current = loop.current, process
            self.system.network.listen(lambda: _Connection(self), HOST, PORT)
            loop.current = before

        self.system.begin(HOST, listen)

    @property
    def accepted(self) -> set[str]:
        """The events of which a post was answered with 200."""
        return {post.id for post in self.posts if post.accepted}

    @property
    def repeated(self) -> dict[str, int]:
        """The events that one process posted again though it had the answer that they are accepted."""
        had, found = set[tuple[str, SimulatedProcess]](), Counter[str]()
        for post in self.posts:
            found[post.id] += (post.id, post.sender) in had
            if post.confirmed:
                had.add((post.id, post.sender))
        return {id: count for id, count in found.items() if count}


class _Connection(asyncio.Protocol):
    """One connection, of one request."""

    def __init__(self, endpoint: WebhookEndpoint) -> None:
        self._endpoint, self._read = endpoint, b""
        self._transport: Any = None
        self._post: Post | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, found, body = self._read.partition(b"\r\n\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head.decode().split("\r\n")[1:])
        if self._post is None and found and len(body) >= int(headers["content-length"]):
            id = next(
                line.split(": ", 1)[1] for line in head.decode().split("\r\n") if line[:15].lower() == "idempotency-key"
            )
            loop = self._endpoint.system.loop
            self._post = Post(unquote(id), self._transport.peer.process, loop.time())
            self._endpoint.posts.append(self._post)
            loop.create_task(self._answer(self._post, self._endpoint.mood))

    def connection_lost(self, exc: Exception | None) -> None:
        post, now = self._post, self._endpoint.system.loop.time()
        # Who posts ends the connection by itself once it has the answer, unless that takes too long.
        if post is not None and post.accepted and now < post.began + SURE_SECONDS and not self._transport.broken:
            post.confirmed = True

    async def _answer(self, post: Post, mood: str) -> None:
        chance = self._endpoint.chance
        await asyncio.sleep(chance.expovariate(1 / 0.02))
        if mood == "hangs up":
            self._transport.close()
        elif mood == "busy":
            self._write(b"503 x", b"Content-Length: 0")
        elif mood == "asks for a pause":
            self._write(b"429 x", b"Retry-After: 3\r\nContent-Length: 0")
        elif mood == "refuses":
            self._write(chance.choice((b"400 x", b"302 x")), b"Content-Length: 0")
        elif mood == "drips":
            count = chance.choice((3, 20))
            self._write(b"200 OK", b"Content-Length: %d" % count)
            for _ in range(count):
                await asyncio.sleep(1.0)
                self._transport.write(b".")
            # Who waited for too long has gone.
            post.accepted = not self._transport.lost
        elif mood == "well":
            self._write(b"200 OK", b"Content-Length: 0")
            post.accepted = True

    def _write(self, status: bytes, headers: bytes) -> None:
        self._transport.write(b"HTTP/1.1 %b\r\n%b\r\nConnection: close\r\n\r\n" % (status, headers))
