"""The journal as the pipeline writes to it: a full disk is waited for, and servers that nobody reaches just now.

What a batch was decided from is folded in by then. To die of it would mean to start Spark and to fold again, and again.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import count
from typing import TypeVar

import pyarrow as pa

from nearcast.errors import JournalError
from nearcast.journal.held_back import Kept
from nearcast.journal.jetstream.nats_connection import Unanswered
from nearcast.journal.jetstream.stream_objects import StreamObjects
from nearcast.journal.locations import journal_at
from nearcast.journal.outage import JournalOutage
from nearcast.journal.seam import READ_BYTES, HeldRole, Journal, JournalNotes
from nearcast.model.event import MAIN, Event
from nearcast.runtime.error_log import RateLimitedErrorLog

T = TypeVar("T")

RETRY_SECONDS = 1.0


class RetryingJournal(Journal):
    """A journal; tries again to write, or read, what fails for a reason that can pass by itself.

    Until it is `stopped`: then JournalError is raised.
    """

    def __init__(self, journal: Journal, stopped: Callable[[], bool]) -> None:
        self.inner, self.wakes_own = journal, journal.wakes_own
        self._stopped, self._error_log = stopped, RateLimitedErrorLog("journal")

    def __reduce__(self) -> tuple[Callable[[str], Journal], tuple[str]]:
        """Travels as a journal that is read."""
        return journal_at, (self.location,)

    def __str__(self) -> str:
        return str(self.inner)

    @property
    def location(self) -> str:
        """See `Journal.location`."""
        return self.inner.location

    @property
    def identity(self) -> str:
        """See `Journal.identity`."""
        return self.inner.identity

    @property
    def era(self) -> str:
        """See `Journal.era`."""
        return self.inner.era

    @property
    def objects(self) -> StreamObjects | None:
        """See `Journal.objects`."""
        return self.inner.objects

    @property
    def outage(self) -> JournalOutage:
        """See `Journal.outage`."""
        return self.inner.outage

    @property
    def notes(self) -> JournalNotes:
        """See `Journal.notes`."""
        return RetryingNotes(self.inner.notes, self)

    def leading(self, role: str, stopped: Callable[[], bool] = lambda: False) -> AbstractContextManager[HeldRole]:
        """See `Journal.leading`."""
        return self.inner.leading(role, stopped)

    def append(self, log: str, rows: pa.Table, kept: Kept | None = None, node: str = MAIN) -> list[int]:
        """See `Journal.append`."""
        if log == "events":
            # What is there already is told by its id.
            return self.patiently(lambda: self.inner.append(log, rows, kept, node))
        after, tries = self.end(log), count()
        return self.patiently(
            lambda: (next(tries) and self._written_since(log, after, rows)) or self.inner.append(log, rows, kept, node)
        )

    def _written_since(self, log: str, after: int, rows: pa.Table) -> list[int]:
        """The positions of rows that a call has written behind `after` though its answer was lost; none: it has not."""
        written = rows.drop_columns("position")
        for first in range(after, self.inner.end(log) - len(rows) + 1):
            if self.inner.read(log, first, len(rows)).drop_columns("position").equals(written):
                return list(range(first + 1, first + len(rows) + 1))
        return []

    def commit_range(self, log: str, rows: pa.Table, through: int) -> None:
        """See `Journal.commit_range`."""
        self.patiently(lambda: self.inner.commit_range(log, rows, through))

    def read(self, log: str, after: int, limit: int) -> pa.Table:
        """See `Journal.read`."""
        return self.patiently(lambda: self.inner.read(log, after, limit))

    def blocks(self, log: str, after: int, through: int) -> Iterator[pa.Table]:
        """See `Journal.blocks`."""
        return self.inner.blocks(log, after, through)

    def end_within_bytes(self, log: str, after: int, limit: int, size: int = READ_BYTES) -> int:
        """See `Journal.end_within_bytes`."""
        return self.patiently(lambda: self.inner.end_within_bytes(log, after, limit, size))

    def end(self, log: str) -> int:
        """See `Journal.end`."""
        return self.patiently(lambda: self.inner.end(log))

    def wait(self, after: Mapping[str, int], seconds: float) -> bool:
        """See `Journal.wait`."""
        return self.patiently(lambda: self.inner.wait(after, seconds))

    def wake(self) -> bool:
        """See `Journal.wake`."""
        return self.inner.wake()

    def trim(self, log: str, rows: int, size: int) -> int:
        """See `Journal.trim`."""
        return self.inner.trim(log, rows, size)

    def trim_through(self, log: str, through: int) -> int:
        """See `Journal.trim_through`."""
        return self.inner.trim_through(log, through)

    def stored_bytes(self) -> dict[str, int]:
        """See `Journal.stored_bytes`."""
        return self.inner.stored_bytes()

    def trimmed(self, log: str) -> int:
        """See `Journal.trimmed`."""
        return self.inner.trimmed(log)

    def kept(self, node: str = MAIN) -> list[Event]:
        """See `Journal.kept`."""
        return self.inner.kept(node)

    def join(self, node: str, alone: bool) -> set[str]:
        """See `Journal.join`."""
        return self.inner.join(node, alone)

    def sync(self) -> None:
        """See `Journal.sync`."""
        self.inner.sync()

    def probe(self) -> None:
        """See `Journal.probe`."""
        self.inner.probe()

    def positions(self, id: str, source: str | None = None) -> list[int]:
        """See `Journal.positions`."""
        return self.inner.positions(id, source)

    def close(self) -> None:
        """See `Journal.close`."""
        self.inner.close()

    def patiently(self, call: Callable[[], T]) -> T:
        """What a call gives, as soon as it does. Raises `JournalError` for what does not pass by itself."""
        while True:
            try:
                found = call()
            except JournalError as error:
                if not _passes(error) or self._stopped():
                    raise
                self._error_log.failed("deciding", error)
                time.sleep(RETRY_SECONDS)
            else:
                self._error_log.works("deciding")
                return found


class RetryingNotes(JournalNotes):
    """The notes of such a journal."""

    def __init__(self, notes: JournalNotes, journal: RetryingJournal) -> None:
        self._notes, self._patiently, self.shared = notes, journal.patiently, notes.shared

    def all(self) -> dict[str, str]:
        """See `JournalNotes.all`."""
        return self._patiently(self._notes.all)

    def remove(self, name: str) -> None:
        """See `JournalNotes.remove`."""
        self._patiently(lambda: self._notes.remove(name))

    def read(self, name: str) -> str | None:
        """See `JournalNotes.read`."""
        return self._patiently(lambda: self._notes.read(name))

    def write(self, name: str, text: str) -> None:
        """See `JournalNotes.write`."""
        self._patiently(lambda: self._notes.write(name, text))


def _passes(error: JournalError) -> bool:
    """Whether the same call may succeed later, without anybody who starts something anew."""
    cause = error.__cause__
    return isinstance(cause, Unanswered) or getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
