"""A connection to NATS for code that waits: what is asynchronous runs in one thread of this process."""

from __future__ import annotations

import asyncio
import atexit
import importlib
import logging
import os
import ssl
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from nearcast.errors import Fault, JournalError, SetupError
from nearcast.journal.jetstream.nats_address import NatsAddress

log = logging.getLogger(__name__)

T = TypeVar("T")

OLDEST = (2, 11)
"""The first version of the server that gives several messages at once."""

CONNECT_SECONDS = 10.0
RECONNECT_SECONDS = 0.2
"""Between two servers that are tried; the next leader is found within seconds, and nothing is done meanwhile."""
ANSWER_SECONDS = 5.0
END_SECONDS = 2.0
PENDING_BYTES = 256 << 20
"""Of answers that came and are not looked at yet."""


class Unanswered(Exception):
    """Nobody answered, or who did cannot just now: what was asked for may have been done, or not."""


class Reply(NamedTuple):
    """An answer: its headers, and its content."""

    headers: Mapping[str, str]
    data: bytes


class NatsConnection:
    """A connection that comes back when it is lost. Threads share it; it is not carried over a fork.

    Raises `JournalError` where nobody can be connected to within `CONNECT_SECONDS`.
    """

    def __init__(self, address: NatsAddress) -> None:
        self.address = address
        self._library = library()
        self._loop = _loop()
        self._told: list[str] = []
        self._listening: dict[str, Any] = {}
        self._client = self._run(self._connect(), CONNECT_SECONDS + 1)
        version = self._client.connected_server_version
        if (version.major, version.minor) < OLDEST:
            self.close()
            raise JournalError(
                f"journal {address}: expected a NATS server of version {OLDEST[0]}.{OLDEST[1]} or newer, got {version}"
            )

    @property
    def max_payload(self) -> int:
        """Bytes of the largest message that the server takes."""
        return int(self._client.max_payload)

    def request(self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None) -> Reply:
        """Asks, and waits for the answer. Raises `Unanswered`."""
        return self._run(self._request(subject, payload, headers), ANSWER_SECONDS + 1)

    def replies(self, subject: str, payload: bytes) -> list[Reply]:
        """Asks, and waits for all answers up to one with a status, which comes last. Raises `Unanswered`."""
        return self._run(self._replies(subject, payload), None)

    def listen(self, heard: Callable[[str, str], None]) -> str:
        """Has each message to a new subject, which it gives, told by its subject and by where it is answered; in the
        connection's thread, also after it was lost and came back.
        """
        return self._run(self._listen(heard), ANSWER_SECONDS)

    def forget(self, inbox: str) -> None:
        """Listens to a subject no more."""
        self._run(self._forget(inbox), ANSWER_SECONDS)

    def close(self) -> None:
        """Ends the connection."""
        # Where it is lost there is nothing to say good-bye to.
        with suppress(Unanswered):
            self._run(self._client.close(), ANSWER_SECONDS)

    def _run(self, work: Coroutine[Any, Any, T], seconds: float | None) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(seconds)
        except (TimeoutError, self._library.errors.Error, ConnectionError) as error:
            future.cancel()
            raise Unanswered(str(error) or type(error).__name__) from error

    async def _connect(self) -> Any:
        found = self.address.credentials
        known: dict[str, Any] = {"user": found.user, "password": found.password, "token": found.token}
        if found.creds:
            known["user_credentials"] = _readable(found.creds)
        connecting = self._library.connect(
            list(self.address.servers),
            name="nearcast",
            connect_timeout=2,
            reconnect_time_wait=RECONNECT_SECONDS,
            max_reconnect_attempts=-1,
            ping_interval=10,
            error_cb=self._note,
            tls=_context(self.address) if self.address.encrypted else None,
            **{name: value for name, value in known.items() if value is not None},
        )
        try:
            return await asyncio.wait_for(connecting, CONNECT_SECONDS)
        except (TimeoutError, OSError, self._library.errors.Error) as error:
            said = self._told[-1] if self._told else str(error) or type(error).__name__
            advice = "is it running there, and are the credentials right?"
            raise JournalError(str(Fault(f"a NATS server at {self.address}", said, advice=advice))) from error

    async def _note(self, error: Exception) -> None:
        self._told = [str(error) or type(error).__name__]
        log.debug("nats error=%r", error)

    async def _request(self, subject: str, payload: bytes, headers: Mapping[str, str] | None) -> Reply:
        message = await self._client.request(subject, payload, timeout=ANSWER_SECONDS, headers=headers)
        return Reply(message.headers or {}, message.data)

    async def _replies(self, subject: str, payload: bytes) -> list[Reply]:
        inbox = self._client.new_inbox()
        heard = await self._client.subscribe(inbox, pending_bytes_limit=PENDING_BYTES)
        try:
            await self._client.publish(subject, payload, reply=inbox)
            found: list[Reply] = []
            while not found or "Status" not in found[-1].headers:
                message = await heard.next_msg(timeout=ANSWER_SECONDS)
                found.append(Reply(message.headers or {}, message.data))
            return found
        finally:
            await heard.unsubscribe()

    async def _listen(self, heard: Callable[[str, str], None]) -> str:
        async def hear(message: Any) -> None:
            heard(message.subject, message.reply)

        inbox: str = self._client.new_inbox()
        self._listening[inbox] = await self._client.subscribe(inbox, cb=hear)
        return inbox

    async def _forget(self, inbox: str) -> None:
        heard = self._listening.pop(inbox, None)
        if heard:
            await heard.unsubscribe()


def library() -> Any:
    """The package nats-py. Raises `SetupError` where it is not installed."""
    try:
        return importlib.import_module("nats")
    except ImportError:
        raise SetupError(
            "expected the package nats-py for a journal on NATS, got none; install nearcast[nats]"
        ) from None


def _readable(path: str) -> str:
    if not os.access(path, os.R_OK):
        raise SetupError(f"expected a file of credentials for NATS that can be read, got {path}")
    return path


def _context(address: NatsAddress) -> ssl.SSLContext:
    found = address.credentials
    try:
        context = ssl.create_default_context(cafile=found.ca)
        if found.cert:
            context.load_cert_chain(found.cert, found.key)
    except OSError as error:
        files = ", ".join(filter(None, (found.ca, found.cert, found.key)))
        raise SetupError(f"expected certificates for NATS in {files}, got {error}") from error
    return context


_loops: dict[int, asyncio.AbstractEventLoop] = {}
_making = threading.Lock()


def _loop() -> asyncio.AbstractEventLoop:
    """The loop of this process, in a thread of its own; a process that was forked off makes another."""
    with _making:
        if os.getpid() not in _loops:
            _loops[os.getpid()] = loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="nearcast-nats", daemon=True)
            thread.start()
            atexit.register(_end, os.getpid(), loop, thread)
        return _loops[os.getpid()]


def _end(process: int, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """Ends what connections that nobody closed, or that were lost, left behind: else each would be complained of."""

    async def cancel() -> None:
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        loop.stop()

    # The thread is not carried over a fork.
    if process == os.getpid():
        asyncio.run_coroutine_threadsafe(cancel(), loop)
        thread.join(END_SECONDS)
