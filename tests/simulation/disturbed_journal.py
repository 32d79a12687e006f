"""The journal in memory as one that is elsewhere: each call takes its time, and may fail before or after its effect.

Its medium keeps what was written since the last `sync` in a cache that a loss of power takes, from some write on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from nearcast.errors import JournalError
from nearcast.journal.held_back import Kept
from nearcast.journal.jetstream.nats_connection import Unanswered
from nearcast.journal.memory import Gap, MemoryJournal, MemoryNotes
from nearcast.model.columns import LOGS
from nearcast.model.event import MAIN, Event
from tests.simulation.retention_checks import ReadPosition, taken_too_early
from tests.simulation.simulated_loop import SimulatedLoop, SimulatedProcess, _Wait


@dataclass(frozen=True)
class Written:
    """What the medium has after a write: how far each log goes, what is noted, and what nodes keep."""

    ends: dict[str, int]
    notes: dict[str, str]
    kept: dict[str, dict[str, Event]]


class DisturbedJournal(MemoryJournal):
    """Shared by all processes. `latency` is the mean delay of a call in seconds; `unreached` are hosts whose calls
    fail; `lost` is the share of calls whose answers are lost; while `full` nothing is written.
    `gone` are the rows that losses of power took, by log, and `history` are all others, also those that were let go of.
    """

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__()
        self._loop = loop
        self.latency = 0.001
        self.unreached: set[str] = set()
        self.lost = 0.0
        self.full = False
        self.told: set[str] = set()
        """What it said of all that it failed to do on purpose."""
        self.gone: dict[str, list[dict[str, Any]]] = {log: [] for log in LOGS}
        self.history: dict[str, list[dict[str, Any]]] = {log: [] for log in LOGS}
        self.readers: Callable[[], Iterable[ReadPosition]] = tuple
        """Says where those who read are just now."""
        self.too_early: list[str] = []
        """What went though somebody needed it."""
        self.read_ends: dict[tuple[SimulatedProcess, str], int] = {}
        """Up to which position each process has read each log."""
        self._waiters: list[_Wait] = []
        self._unsynced = [self._written()]

    @property
    def location(self) -> str:
        return "memory"

    def _delay(self) -> float:
        return self.latency * (0.3 + self._loop.chance.expovariate(1.0))

    @contextmanager
    def _call(self, what: str, writes: bool = False) -> Iterator[None]:
        threads = self._loop.threads
        host = self._loop.current.host
        # What the tests look at takes no time.
        if threads.running is None:
            yield
            return
        threads.sleep(self._delay())
        if host in self.unreached:
            threads.sleep(self._loop.chance.uniform(0.0, 5.0))
            self._fail(what, "before", Unanswered("nobody answers"))
        if writes and self.full:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            self._fail(what, "before", error)
        yield
        if self._loop.chance.random() < self.lost or host in self.unreached:
            self._fail(what, "after", Unanswered("the answer did not come"))
        threads.sleep(self._delay())

    def _fail(self, what: str, when: str, cause: Exception) -> None:
        told = f"expected the journal to {what}, got an error {when} it did"
        self.told.add(told)
        raise JournalError(told) from cause

    def _refuse_gaps(self, log: str, after: int, through: int) -> None:
        try:
            super()._refuse_gaps(log, after, through)
        except JournalError as error:
            self.told.add(str(error))
            raise

    def append(self, log: str, rows: pa.Table, kept: Kept | None = None, node: str = MAIN) -> list[int]:
        with self._call(f"append to {log}", writes=True):
            found = super().append(log, rows, kept, node)
            self._unsynced.append(self._written())
            self._loop.threads.tell(self._waiters, self._delay())
        return found

    def commit_range(self, log: str, rows: pa.Table, through: int) -> None:
        with self._call(f"write {log}", writes=True):
            super().commit_range(log, rows, through)
            self._unsynced.append(self._written())
            self._loop.threads.tell(self._waiters, self._delay())

    def _keep(self, log: str, rows: pa.Table, end: int) -> None:
        super()._keep(log, rows, end)
        self.history[log] += rows.to_pylist()

    def trim_through(self, log: str, through: int) -> int:
        with self._call(f"let rows of {log} go", writes=True):
            before = self.trimmed(log)
            found = super().trim_through(log, through)
            self.too_early += taken_too_early(self, log, before, found, self.readers())
            # What was let go of does not come back, and so what it was let go for has to be there.
            self._unsynced = [self._written()]
        return found

    def restore(self, gap: Gap) -> None:
        """What was lost is there again, as from a copy."""
        self._faults.remove(gap)

    def _written(self) -> Written:
        return Written(dict(self._ends), self.notes.all(), dict(self._kept))

    def sync(self) -> None:
        with self._call("sync", writes=True):
            self._unsynced = [self._written()]

    def lose_power(self) -> None:
        """Takes what was written behind some write that is not older than the last sync."""
        kept = self._loop.chance.choice(self._unsynced)
        for log, end in kept.ends.items():
            self.gone[log] += [row for row in self.history[log] if row["position"] > end]
            self.history[log] = [row for row in self.history[log] if row["position"] <= end]
            self.cut(log, end)
        self._notes = MemoryNotes()
        for name, text in kept.notes.items():
            self._notes.write(name, text)
        self._kept = dict(kept.kept)
        self._unsynced = [kept]

    def read(self, log: str, after: int, limit: int) -> pa.Table:
        with self._call(f"read {log}"):
            found = super().read(log, after, limit)
            key, through = (self._loop.current, log), min(after + limit, self._ends[log])
            self.read_ends[key] = max(self.read_ends.get(key, 0), through)
            return found

    def end(self, log: str) -> int:
        # Mostly it is known without asking, so it takes no time.
        if self._loop.threads.running and self._loop.current.host in self.unreached:
            with self._call("end"):
                pass
        return super().end(log)

    def probe(self) -> None:
        with self._call("take something", writes=True):
            pass

    def positions(self, id: str, source: str | None = None) -> list[int]:
        with self._call("look up an event"):
            return super().positions(id, source)

    def kept(self, node: str = MAIN) -> list[Event]:
        with self._call("say what is kept"):
            return super().kept(node)

    def join(self, node: str, alone: bool) -> set[str]:
        with self._call("let a node join"):
            return super().join(node, alone)

    def wait(self, after: Mapping[str, int], seconds: float) -> bool:
        if any(self.end(log) > position for log, position in after.items()):
            return True
        return self._loop.threads.wait(self._waiters, seconds)
