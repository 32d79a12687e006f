"""A connection to NATS for code that waits: what is asynchronous runs in one thread of this process."""

from __future__ import annotations

import asyncio
import atexit
import importlib
import logging
import os
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from nearcast.errors import Fault, JournalError, SetupError
from nearcast.journal.jetstream.nats_address import NatsAddress
from nearcast.journal.jetstream.nats_credentials import credential_options

log = logging.getLogger(__name__)

T = TypeVar("T")

OLDEST = (2, 11)
"""The first version of the server that gives several messages at once."""

CONNECT_SECONDS = 10.0
RECONNECT_SECONDS = 0.2
"""Between two servers that are tried; the next leader is found within seconds, and nothing is done meanwhile."""
ANSWER_SECONDS = 5.0
REPEAT_SECONDS = 1.0
"""After which a question is asked again, beside the first: without a leader servers say nothing, and a new one did not
hear it."""

PING_SECONDS, PINGS = 2, 2
"""Between two pings, and so many without an answer: then a server that says nothing any more is left for another."""
END_SECONDS = 2.0
REFUSALS = ("Authorization Violation", "Authentication", "Credentials", "Account")
"""What servers say to who may not be connected; that does not pass by itself within seconds."""

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
        self._forbidden = self._refusal = ""
        self._asking, self._lost = set[asyncio.Future[Any]](), False
        self._listening: dict[str, Any] = {}
        self._ended, self._reopening = False, asyncio.Lock()
        # It ends by itself, and says why; on a machine that is busy it may take longer.
        self._client = self._run(self._connect(CONNECT_SECONDS), CONNECT_SECONDS + ANSWER_SECONDS)
        version = self._client.connected_server_version
        if is_too_old((version.major, version.minor)):
            self.close()
            came = f"{version.major}.{version.minor}.{version.patch}"
            raise JournalError(
                f"journal {address}: expected a NATS server of version {OLDEST[0]}.{OLDEST[1]} or newer, got {came}"
            )

    @property
    def max_payload(self) -> int:
        """Bytes of the largest message that the server takes."""
        return int(self._client.max_payload)

    def request(
        self,
        subject: str,
        payload: bytes,
        headers: Mapping[str, str] | None = None,
        repeating: Callable[[int], None] | None = None,
    ) -> Reply:
        """Asks, and waits for the answer. With `repeating` it is a question that changes nothing: it is asked again and
        again meanwhile, and that hears the how-manieth time. Raises `Unanswered`.
        """
        return self._run(self._request(subject, payload, headers, repeating), ANSWER_SECONDS + 1)

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
        self._ended = True
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

    async def _connect(self, seconds: float) -> Any:
        self._told, self._refusals, self._refused, self._lost = [], 0, asyncio.Event(), False
        self._refusal = ""
        connecting = asyncio.ensure_future(
            self._library.connect(
                list(self.address.servers),
                name="nearcast",
                connect_timeout=2,
                reconnect_time_wait=RECONNECT_SECONDS,
                max_reconnect_attempts=-1,
                ping_interval=PING_SECONDS,
                max_outstanding_pings=PINGS,
                error_cb=self._note,
                disconnected_cb=self._note_loss,
                reconnected_cb=self._note_return,
                **credential_options(self.address),
            )
        )
        refused = asyncio.ensure_future(self._refused.wait())
        try:
            done, _ = await asyncio.wait((connecting, refused), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if connecting in done:
                return connecting.result()
            raise TimeoutError
        except (TimeoutError, OSError, self._library.errors.Error) as error:
            # Who refuses also hangs up: that comes later, and says less.
            said = self._refusal or (self._told[-1] if self._told else str(error) or type(error).__name__)
            raise JournalError(str(Fault(f"a NATS server at {self.address}", said, advice=_advice(said)))) from error
        finally:
            for task in (connecting, refused):
                if not task.done():
                    task.cancel()

    async def _note(self, error: Exception) -> None:
        self._told = [str(error) or type(error).__name__]
        if "permissions violation" in self._told[0].lower():
            self._forbidden = self._told[0]
        if isinstance(error, ssl.SSLError) or any(word in self._told[0] for word in REFUSALS):
            # Of several servers one may not have been told yet by whom it is spoken to.
            self._refusals, self._refusal = self._refusals + 1, self._told[0]
            if self._refusals >= len(self.address.servers):
                self._refused.set()
        log.debug("nats error=%r", error)

    async def _note_loss(self) -> None:
        """Nobody will answer what was asked: that is known now, not when the time for an answer is over."""
        self._lost = True
        for asking in self._asking:
            asking.cancel()

    async def _note_return(self) -> None:
        self._lost = False

    async def _connected(self) -> Any:
        """The client, once it is connected: what is asked meanwhile must not be sent later, when others have written.

        Raises `Unanswered`.
        """
        until = time.monotonic() + ANSWER_SECONDS / 2
        while not self._client.is_connected:
            if self._ended or time.monotonic() > until:
                raise Unanswered(f"not connected: {self._told[-1] if self._told else 'the connection is lost'}")
            if self._client.is_closed:
                await self._reopen()
            else:
                await asyncio.sleep(RECONNECT_SECONDS / 4)
        return self._client

    async def _reopen(self) -> None:
        """Connects anew: the library gives up for good where a server says that who is connected may not be."""
        async with self._reopening:
            if self._client.is_closed and not self._ended:
                try:
                    self._client = await self._connect(ANSWER_SECONDS / 2)
                except (JournalError, SetupError) as error:
                    await asyncio.sleep(RECONNECT_SECONDS)
                    raise Unanswered(str(error)) from error

    async def _request(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None, repeating: Callable[[int], None] | None
    ) -> Reply:
        client = await self._connected()
        asked: list[asyncio.Future[Any]] = []
        until = time.monotonic() + ANSWER_SECONDS
        try:
            message = await self._first_answer(client, asked, until, repeating, (subject, payload, headers))
        except asyncio.CancelledError:
            if not self._lost:
                raise
            raise Unanswered("the connection was lost meanwhile") from None
        except self._library.errors.TimeoutError:
            if self._forbidden and f'"{subject}"' in self._forbidden:
                said, self._forbidden = self._forbidden, ""
                advice = "give the user rights on the subjects that the page on NATS names"
                raise JournalError(
                    str(Fault(f"a user of {self.address} who may write there", said, advice=advice))
                ) from None
            raise
        finally:
            self._asking.difference_update(asked)
            for asking in asked:
                asking.cancel()
        return Reply(message.headers or {}, message.data)

    async def _first_answer(
        self,
        client: Any,
        asked: list[asyncio.Future[Any]],
        until: float,
        repeating: Callable[[int], None] | None,
        question: tuple[str, bytes, Mapping[str, str] | None],
    ) -> Any:
        """What is answered first to a question that is asked again and again."""
        subject, payload, headers = question
        while True:
            left = until - time.monotonic()
            asking = asyncio.ensure_future(client.request(subject, payload, timeout=left, headers=headers))
            asked.append(asking)
            self._asking.add(asking)
            last = repeating is None or left <= 1.5 * REPEAT_SECONDS
            seconds = None if last else REPEAT_SECONDS
            done, _ = await asyncio.wait(asked, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if repeating and not done:
                repeating(len(asked))
            if done:
                return min(done, key=lambda one: one.cancelled() or one.exception() is not None).result()

    async def _replies(self, subject: str, payload: bytes) -> list[Reply]:
        client = await self._connected()
        inbox = client.new_inbox()
        heard = await client.subscribe(inbox, pending_bytes_limit=PENDING_BYTES)
        try:
            await client.publish(subject, payload, reply=inbox)
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

        client = await self._connected()
        inbox: str = client.new_inbox()
        self._listening[inbox] = await client.subscribe(inbox, cb=hear)
        return inbox

    async def _forget(self, inbox: str) -> None:
        heard = self._listening.pop(inbox, None)
        if heard:
            await heard.unsubscribe()


def is_too_old(version: tuple[int, int]) -> bool:
    """Whether a server of that version is of no use; 0.0: the connection to it was lost before it was looked at."""
    return (0, 0) < version < OLDEST


def library() -> Any:
    """The package nats-py. Raises `SetupError` where it is not installed."""
    try:
        return importlib.import_module("nats")
    except ImportError:
        raise SetupError(
            "expected the package nats-py for a journal on NATS, got none; install nearcast[nats]"
        ) from None


def _advice(said: str) -> str:
    if any(word in said for word in REFUSALS):
        return "give the user, token or file of credentials that the servers know (NEARCAST_NATS_… or in the URL)"
    if "certificate" in said or "SSL" in said:
        return "name the authority that signed the servers' certificate with ca, and a certificate of yours with cert"
    return "is it running there?"


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
