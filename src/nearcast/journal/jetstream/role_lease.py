"""What one process at a time may do, on whichever machine: it holds a message that lapses unless it is renewed."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from math import inf

from nearcast.errors import JournalError
from nearcast.journal.jetstream.nats_connection import Unanswered
from nearcast.journal.jetstream.stream_api import JetStream, WrongSequence

log = logging.getLogger(__name__)

LEASE_SECONDS = 10.0
"""After which a lease that is not renewed lapses: longer than a new leader of the servers takes to be chosen."""

RENEWALS = 3
"""In that time."""

WAIT_SECONDS = 1.0
"""Between two looks whether a lease that another holds has lapsed."""


class RoleLease:
    """A lease of one role. It is renewed by a thread, until it is released or another process has it.

    Nothing that matters rests on it alone: who decides without it, because it was held up for long, is refused when it
    writes.
    """

    def __init__(self, stream: JetStream, role: str) -> None:
        self._stream, self.role = stream.beside("leases"), role
        # Of one lease alone: a renewal that was made, and of which no answer came, is known again by it.
        self._holder = f"{socket.gethostname()} process {os.getpid()} lease {os.urandom(4).hex()}"
        made = self._stream.make(
            [f"{self._stream.name}.>"],
            max_age=int(LEASE_SECONDS * 1e9),
            max_msgs_per_subject=1,
            discard="old",
            duplicate_window=int(LEASE_SECONDS * 1e9),
        )
        self._stream.grow(made)
        self._subject = f"{self._stream.name}.{role}"
        self._sequence = 0
        self._renewed, self._lost = -inf, False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self, stopped: Callable[[], bool]) -> bool:
        """Waits until it is held; False where it is stopped before."""
        told = False
        while not stopped():
            try:
                holder = self._try()
            except (WrongSequence, Unanswered):
                holder = "another one"
            if holder is None:
                self._thread = threading.Thread(target=self._renew, name=f"nearcast-{self.role}-lease", daemon=True)
                self._thread.start()
                return True
            if not told:
                log.info("waiting role=%s holder=%s", self.role, holder)
                told = True
            time.sleep(WAIT_SECONDS)
        return False

    @property
    def held(self) -> bool:
        """Whether it was held all the time since it was acquired: once it may have lapsed, another may have had it."""
        self._lost = self._lost or time.monotonic() > self._renewed + LEASE_SECONDS
        return not self._lost

    def release(self) -> None:
        """Lets go of it: the next one need not wait."""
        self._ended.set()
        if self._thread:
            self._thread.join()
        if self._sequence:
            try:
                self._stream.write(self._subject, b"", self._sequence)
            except (WrongSequence, Unanswered, JournalError) as error:
                log.debug("lease lapses role=%s error=%r", self.role, error)

    def _try(self) -> str | None:
        """None if it is held now; else who holds it. Raises `WrongSequence` and `Unanswered` where that is not known:
        it may be held then, for it may have been written.
        """
        asked = time.monotonic()
        found = self._stream.patiently(lambda: self._stream.last(self._subject))
        # Who let go of it left an empty one.
        if found and found.data and found.data.decode() != self._holder:
            return found.data.decode()
        self._sequence = self._stream.write(self._subject, self._holder.encode(), found.sequence if found else 0)
        # It lapses so long after it was written, which is not before it was asked for; whether it lapsed shows first.
        self._lost = self._lost or (self._renewed > -inf and asked > self._renewed + LEASE_SECONDS)
        self._renewed = asked
        return None

    def _renew(self) -> None:
        while not self._ended.wait(LEASE_SECONDS / RENEWALS):
            try:
                holder = self._try()
            except (WrongSequence, Unanswered, JournalError) as error:
                # It is held until it lapses by the clock of this process; whether another has it, the next one shows.
                log.warning("lease not renewed role=%s error=%r", self.role, error)
                continue
            if holder is not None:
                self._lost = True
                log.warning("lease lost role=%s holder=%s", self.role, holder)
