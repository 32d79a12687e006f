"""The seam of the journal: ordered logs of Arrow rows, behind a few methods.

A journal holds the logs of `nearcast.model.columns.LOGS`: events, derived, deliveries, outcomes, dead letters, source
filters, snapshots, sessions. Every row has a position; positions only grow. Beside the logs it has what is *kept*: of
some entities an event that an entry node took and that has not entered the log of events; the names of all entry nodes;
and *notes*: short texts under names, such as how far somebody has read.
Implementations: `memory` (the twin, with fault markers), `sqlite` (the default), and `jetstream` (replicated).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import pyarrow as pa

from nearcast.errors import JournalError
from nearcast.journal.held_back import Kept
from nearcast.journal.outage import JournalOutage
from nearcast.model.columns import to_table
from nearcast.model.event import MAIN, Event

if TYPE_CHECKING:
    from nearcast.journal.jetstream.stream_objects import StreamObjects

WAIT = 0.01
"""Seconds between two looks at the end of a log: small against a batch, cheap against a read."""

LOOK_SECONDS = 0.5
"""After which who waits for news looks for himself, whatever was told."""


READ_BYTES = 256 << 20
"""Bytes that are read at once, about, unless somebody wants less. Of events with large payloads those are few."""


class HeldRole:
    """What one at a time may do: true as long as this one surely holds it. Once it is false it stays so."""

    def __init__(self, held: Callable[[], bool]) -> None:
        self._held = held

    def __bool__(self) -> bool:
        return self._held()


class JournalNotes(ABC):
    """Short texts by name that go with a journal, wherever it is opened.

    `shared`: several machines may open it, so that what only files beside it say is not enough.
    """

    shared = False

    @abstractmethod
    def all(self) -> dict[str, str]:
        """What was noted last, by name."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Notes nothing any more under a name."""

    @abstractmethod
    def read(self, name: str) -> str | None:
        """What was noted last; None if nothing was."""

    @abstractmethod
    def write(self, name: str, text: str) -> None:
        """Notes something, durably, in the place of what was noted before."""


class Journal(ABC):
    """Ordered, kept logs. Safe to use from several threads and, where the medium allows, several processes.

    Every method raises `JournalError` when the medium fails, naming it and what to do. `wakes_own`: what this process
    writes wakes at once who waits for it here.
    """

    wakes_own = False

    @abstractmethod
    def append(self, log: str, rows: pa.Table, kept: Kept | None = None, node: str = MAIN) -> list[int]:
        """Appends rows in order, giving them the next positions, durably before it returns.

        Rows come with the log's schema; their `position` column is overwritten. In the log `events` a row whose
        (source, id) the journal holds already is not appended again: the answer has the position it has. So a
        publisher that is not sure may repeat itself (CloudEvents 1.0: the pair identifies an event).

        `kept` says what the entry node keeps of some entities from then on. Rows and what is kept change together or
        not at all.

        Returns the position of every row.
        """

    @abstractmethod
    def kept(self, node: str = MAIN) -> list[Event]:
        """The events that an entry node keeps, in the order of their acceptance."""

    @abstractmethod
    def join(self, node: str, alone: bool) -> set[str]:
        """Takes note, for good, of an entry node; the names of all others that there are.

        `alone`: from now on, if there are no others, this is to be the only one, until it joins otherwise. Raises
        `JournalError` where another one is.
        """

    def release(self, node: str = MAIN) -> int:
        """Lets what a node keeps enter the log of events, before anything else does; how many that were."""
        kept = self.kept(node)
        if kept:
            self.append("events", to_table(kept), {event.entity: None for event in kept}, node)
        return len(kept)

    @abstractmethod
    def commit_range(self, log: str, rows: pa.Table, through: int) -> None:
        """Writes rows that bring their own positions, ascending, and moves the end of the log to `through`.

        Rows at or before the present end are skipped, and an end beyond `through` stays: writing any range again
        changes nothing, whatever its cuts. Rows and end change together or not at all.
        """

    @abstractmethod
    def read(self, log: str, after: int, limit: int) -> pa.Table:
        """The rows with `after` < position ≤ `after + limit`, in order, in the log's schema; empty if none."""

    def blocks(self, log: str, after: int, through: int) -> Iterator[pa.Table]:
        """The rows with `after` < position ≤ `through` in order, in pieces of bounded size, also of one position."""
        yield self.read(log, after, through - after)

    def end_within_bytes(self, log: str, after: int, limit: int, size: int = READ_BYTES) -> int:
        """How far a read behind `after` may go, by at most `limit` positions, to hold about `size` bytes at most.

        Beyond `after`, if there is anything: also where what comes next is larger than that.
        """
        return min(after + limit, self.end(log))

    def row_ranges(self, log: str, after: int, through: int, limit: int) -> Iterator[pa.Table]:
        """The rows with `after` < position ≤ `through`, one stretch after the other, each as far as `end_within_bytes`
        says, up to where the log ends.
        """
        while after < through and (step := self.end_within_bytes(log, after, min(limit, through - after)) - after) > 0:
            yield self.read(log, after, step)
            after += step

    @abstractmethod
    def trim(self, log: str, rows: int, size: int) -> int:
        """Lets go of the oldest rows of a log of which more are kept than so many rows, or bytes; how many went.

        It may keep some more than asked: rows go together as they were written. The others keep their positions.
        """

    @abstractmethod
    def trim_through(self, log: str, through: int) -> int:
        """Lets go of rows with positions up to `through`; the position behind which the log's rows begin then.

        Never of the newest, and of those that were written together all or none. Of events, their ids are forgotten
        too: one that is published again then is a new one. Others write meanwhile: it goes step by step.
        """

    @abstractmethod
    def stored_bytes(self) -> dict[str, int]:
        """Bytes that each log takes where it is stored, about; those of events with what finds them by their ids."""

    @abstractmethod
    def end(self, log: str) -> int:
        """The last position of the log; 0 if empty."""

    @abstractmethod
    def trimmed(self, log: str) -> int:
        """The position behind which the log's rows begin: 0 until some were let go of, or where the first has no rows
        before it; its end where there are no rows.
        """

    @abstractmethod
    def sync(self) -> None:
        """Returns when all that was written so far survives a loss of power too, not only the death of a process.

        Whoever notes outside the journal how far it is done calls this first: else the note may outlive what it is of.
        """

    @abstractmethod
    def probe(self) -> None:
        """Returns if something can be written; it is in no log, and nothing of it stays."""

    @abstractmethod
    def positions(self, id: str, source: str | None = None) -> list[int]:
        """The positions of the events with this id (of this source, if given), ascending."""

    def wait(self, after: Mapping[str, int], seconds: float) -> bool:
        """Returns when one of some logs may have something behind a position, or so many seconds are over; whether it
        may. Who waits looks for himself then.
        """
        until = time.monotonic() + seconds
        while not (news := any(self.end(log) > position for log, position in after.items())):
            left = until - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(WAIT, left))
        return news

    def wake(self) -> bool:
        """Lets who waits look for himself, though nothing was written; whether he can be told."""
        return False

    def follow(self, log: str, after: int, limit: int, stopped: Callable[[], bool]) -> Iterator[pa.Table]:
        """Non-empty tables of the rows after `after`, as they come, until `stopped()`; waits where there is nothing."""
        while not stopped():
            end = self.end_within_bytes(log, after, limit)
            if end <= after:
                self.wait({log: after}, LOOK_SECONDS)
                continue
            rows = self.read(log, after, end - after)
            # By the end, not by the last row: a stretch that was covered may hold none.
            after = end
            if len(rows):
                yield rows

    @property
    def location(self) -> str:
        """What opens this journal in another process, with `journal_at`: a path or a URL, which may have a password."""
        raise JournalError(f"expected a journal that other processes can open, got {self}, which lives in this one")

    @property
    def identity(self) -> str:
        """What tells this journal from others that may be at its location; empty where that is its file."""
        return ""

    @property
    def era(self) -> str:
        """Another one where the newest rows may have been lost since, and their positions given to others."""
        return self.identity

    @property
    def durability(self) -> str:
        """How safely it is kept, as far as that is told by who keeps it; empty where it is a file of this machine."""
        return ""

    @property
    def outage(self) -> JournalOutage:
        """Since when nobody answers for it, where it is kept by others than this process."""
        return JournalOutage()

    def leading(self, role: str, stopped: Callable[[], bool] = lambda: False) -> AbstractContextManager[HeldRole]:
        """Holds what one at a time may do, as long as the block runs; waits for it until `stopped()`: then it is false.

        Of a journal on this machine files are held for that, by those who do it.
        """
        return nullcontext(HeldRole(lambda: True))

    @property
    @abstractmethod
    def notes(self) -> JournalNotes:
        """Where who follows a log notes how far it is."""

    @property
    def objects(self) -> StreamObjects | None:
        """Where what saves time lies for every machine, by name; None: it lies on this one, beside the journal."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Releases the medium; the journal is not used afterwards."""
