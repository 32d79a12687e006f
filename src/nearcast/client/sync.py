"""The client library without async: the same client and publisher, on an event loop in a thread of its own.

The loop goes on while the application works on a delivery, so the connection lives, and acknowledgements are sent.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from nearcast.client.kept import Event
from nearcast.client.publisher import Published, Publisher
from nearcast.client.receiver import Client, Delivery, Position, Takeover
from nearcast.errors import SessionError

T = TypeVar("T")


class _Background:
    """An event loop in a thread that ends with the process."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="nearcast", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """What some work gives, done in the loop; raises what it raises."""
        if self._loop is None:
            work.close()
            raise SessionError("expected an open client, got one that was closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C comes to this thread; the work is in the other.
            future.cancel()
            raise

    def end(self, coming: AsyncGenerator[Any, None]) -> None:
        """Ends an iteration; in the loop's own thread, which may collect as garbage what nobody iterates any more, it
        is left to the loop: to wait there would be to wait for ever.
        """
        if threading.current_thread() is not self._thread:
            self.call(coming.aclose())
        elif self._loop is not None:
            self._loop.create_task(_ended(coming))

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Does the last work, and ends the thread."""
        if self._loop is None:
            last.close()
            return
        try:
            self.call(last)
        finally:
            loop, self._loop = self._loop, None
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()


class SyncClient:
    """As `Client`, without async: `for delivery in client.deliveries()`, in a `with` block.

    One thread at a time may use it.
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
        self._background = _Background()
        self._client = Client(url, id, token, automatic=automatic, takeover=takeover)

    def deliveries(self, timeout: float | None = None) -> Iterator[Delivery]:
        """The deliveries, as they come; each is acknowledged when the next one is asked for, if `automatic`.

        Without end, or, with a `timeout`, until none has come for so many seconds. Raises as `Client.deliveries`.
        """
        coming = self._client.deliveries()
        try:
            while True:
                try:
                    yield self._background.call(_within(anext(coming), timeout))
                except TimeoutError:
                    return
        finally:
            # Closed meanwhile, or interrupted while it waited.
            with suppress(SessionError, RuntimeError):
                self._background.end(coming)

    def connected(self, timeout: float | None = None) -> None:
        """Returns when the server has greeted this client. Raises as `deliveries`, TimeoutError after `timeout`."""
        self._background.call(_within(self._client.connected(), timeout))

    def acknowledge(self, *positions: Position) -> None:
        """Tells the server that deliveries were taken; it never fails, but may have to be told again later."""
        self._background.call(self._client.acknowledge(*positions))

    def say(
        self,
        *,
        readings: Mapping[str, float] | None = None,
        position: Mapping[str, float] | None = None,
        role: str | None = None,
        task: str | None = None,
    ) -> None:
        """As `Client.say`: readings of the context, the position, the role, the task."""
        self._background.call(self._client.say(readings=readings, position=position, role=role, task=task))

    @property
    def online(self) -> bool:
        """Whether a server has greeted it and the connection stands."""
        return self._client.online

    @property
    def server(self) -> str:
        """The URL of the server that it has, or tries next."""
        return self._client.server

    def move_to(self, url: str) -> None:
        """As `Client.move_to`: goes to another server of the domain."""
        self._background.call(self._client.move_to(url))

    def close(self) -> None:
        """As `Client.close`: what is acknowledged is durable then, unless no server says so within three seconds."""
        self._background.close(self._client.close())

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class SyncPublisher:
    """As `Publisher`, without async: `publisher.publish(events)`, in a `with` block.

    One thread at a time may use it.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        token: str | None = None,
        *,
        patience: float = 60.0,
        quench: bool = False,
        suppress: bool = False,
    ) -> None:
        self._background = _Background()
        self._publisher = Publisher(url, token, patience=patience, quench=quench, suppress=suppress)

    def publish(self, events: Sequence[Event]) -> Published:
        """As `Publisher.publish`: returns when all events are durable or refused."""
        return self._background.call(self._publisher.publish(events))

    def close(self) -> None:
        """Sends what is kept, and closes the connections."""
        self._background.close(self._publisher.close())

    def __enter__(self) -> SyncPublisher:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


async def _ended(coming: AsyncGenerator[Any, None]) -> None:
    """Ends an iteration, unless that is under way."""
    with suppress(RuntimeError):
        await coming.aclose()


async def _within(work: Any, timeout: float | None) -> Any:
    """What some work gives, if it takes no longer than so many seconds. Raises TimeoutError."""
    async with asyncio.timeout(timeout):
        return await work
