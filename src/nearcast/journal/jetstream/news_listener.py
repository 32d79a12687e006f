"""Hears that something was written, so that who waits for news need not ask for it again and again.

An ephemeral consumer of the stream sends the headers of what is stored, and a sign of life now and then. What it says
is a hint only: readers look for themselves, and where it is silent they go on asking.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from math import inf
from typing import Any

from nearcast.errors import JournalError
from nearcast.journal.jetstream.log_chain import LogChain
from nearcast.journal.jetstream.nats_connection import Unanswered
from nearcast.journal.jetstream.stream_api import JetStream
from nearcast.journal.seam import WAIT

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 1.0
"""Between two signs of life where nothing is written."""

SILENT_SECONDS = 3.0
"""After which who says nothing is taken for gone, and another consumer is asked for."""

GONE_SECONDS = 30.0
"""After which servers forget a consumer that nobody listens to."""


class NewsListener:
    """Listens for news of a stream's logs; threads share it. It begins to listen when somebody waits."""

    def __init__(self, stream: JetStream, chains: Mapping[str, LogChain]) -> None:
        self._stream, self._chains = stream, chains
        self._by_subject = {chain.subject: chain for chain in chains.values()}
        self._changed, self._asking = threading.Condition(), threading.Lock()
        self._heard, self._asked = -inf, -inf
        self._inbox: str | None = None

    def wait(self, after: Mapping[str, int], seconds: float) -> bool:
        """Returns when a log may have something behind a position, or so many seconds are over; whether it may."""
        until = time.monotonic() + seconds
        if not self._listens():
            time.sleep(min(WAIT, seconds))
            return True
        with self._changed:
            while not self._news(after):
                left = until - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    return self._news(after)
        return True

    def _news(self, after: Mapping[str, int]) -> bool:
        return any(self._chains[log].may_go_beyond(position) for log, position in after.items())

    def _listens(self) -> bool:
        """Whether it hears; else it asks to be told again, at times."""
        now = time.monotonic()
        if now < self._heard + SILENT_SECONDS:
            return True
        if now > self._asked + SILENT_SECONDS and self._asking.acquire(blocking=False):
            try:
                self._asked = now
                self._ask()
            except (JournalError, Unanswered) as error:
                log.debug("not told of news error=%r", error)
            finally:
                self._asking.release()
        return False

    def _ask(self) -> None:
        connection = self._stream.connection
        if self._inbox:
            # Of a connection that is gone by now there is nothing to end.
            with suppress(Unanswered):
                connection.forget(self._inbox)
        self._inbox = connection.listen(self._hear)
        config: dict[str, Any] = {
            "deliver_subject": self._inbox,
            # What came before it was made is told too.
            "deliver_policy": "last_per_subject",
            "filter_subjects": list(self._by_subject),
            "ack_policy": "none",
            "headers_only": True,
            "idle_heartbeat": int(HEARTBEAT_SECONDS * 1e9),
            "inactive_threshold": int(GONE_SECONDS * 1e9),
            "mem_storage": True,
            "num_replicas": 1,
        }
        self._stream.once(f"CONSUMER.CREATE.{self._stream.name}", {"stream_name": self._stream.name, "config": config})

    def _hear(self, subject: str, told: str) -> None:
        """Takes a message, or a sign of life; in the connection's thread."""
        with self._changed:
            self._heard = time.monotonic()
            chain = self._by_subject.get(subject)
            if chain:
                # $JS.ACK.<stream>.<consumer>.<deliveries>.<stream's sequence>.<consumer's>.<time>.<pending>
                chain.heard = max(chain.heard, int(told.split(".")[-4]))
                self._changed.notify_all()
