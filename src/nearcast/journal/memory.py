"""The journal's twin in memory, with fault markers: a crash and the return from it become an ordinary test."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

import pyarrow as pa

from nearcast.errors import JournalError
from nearcast.journal.held_back import Kept, by_acceptance, refuse_beside
from nearcast.journal.rows import ascending, checked, joined, keys_of, numbered, schema_of, within
from nearcast.journal.seam import Journal, JournalNotes
from nearcast.model.columns import LOGS
from nearcast.model.event import MAIN, Event

Call = Literal["append", "commit_range", "read"]


@dataclass(frozen=True, slots=True)
class Abort:
    """The process dies, once, in the first call on `log` that reaches position `at`.

    Nothing of that call is kept; or, if `kept`, all of it is, and only the answer is lost. `call` None: any call.
    """

    log: str
    at: int
    call: Call | None = None
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """The medium stalls, once, for `seconds` in the first call on `log` that reaches position `at`."""

    log: str
    at: int
    seconds: float
    call: Call | None = None


@dataclass(frozen=True, slots=True)
class End:
    """Readers see `log` end at position `at`, whatever is written behind it."""

    log: str
    at: int


@dataclass(frozen=True, slots=True)
class Full:
    """The medium has no room for what would reach position `at` of `log`, nor for anything behind it, `times` times."""

    log: str
    at: int
    times: int = 1


@dataclass(frozen=True, slots=True)
class Gap:
    """The rows of `log` from position `first` to `last` are damaged: no call reads them, however often."""

    log: str
    first: int
    last: int


Marker = Abort | Pause | End | Full | Gap


class MemoryNotes(JournalNotes):
    """The notes of a journal in memory."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def all(self) -> dict[str, str]:
        """See `JournalNotes.all`."""
        return dict(self._texts)

    def remove(self, name: str) -> None:
        """See `JournalNotes.remove`."""
        self._texts.pop(name, None)

    def read(self, name: str) -> str | None:
        """See `JournalNotes.read`."""
        return self._texts.get(name)

    def write(self, name: str, text: str) -> None:
        """See `JournalNotes.write`."""
        self._texts[name] = text


class MemoryJournal(Journal):
    """A journal that lives as long as the object; `faults` are what shall go wrong, and when.

    `disturb` adds some while it is used, and `cut` takes away what was written last.
    """

    def __init__(self, faults: Iterable[Marker] = ()) -> None:
        self._faults = list(faults)
        self._parts: dict[str, list[pa.Table]] = {log: [] for log in LOGS}
        self._ends = dict.fromkeys(LOGS, 0)
        self._keys: dict[tuple[str, str], int] = {}
        self._kept: dict[str, dict[str, Event]] = {}
        self._nodes: dict[str, bool] = {}
        self._notes = MemoryNotes()
        self._cuts = 0
        self._lock = threading.RLock()

    def disturb(self, *faults: Marker) -> None:
        """What shall go wrong besides, from now on."""
        self._faults += faults

    def cut(self, log: str, at: int) -> None:
        """Takes away the rows behind a position, as a loss of power does with what no disk has yet; the log ends there.

        Positions behind it are given again.
        """
        with self._lock:
            self._cuts += 1
            self._parts[log] = [within(joined(log, self._parts[log]), 0, at)]
            self._ends[log] = min(self._ends[log], at)
            if log == "events":
                self._keys = {key: position for key, position in self._keys.items() if position <= at}

    @property
    def era(self) -> str:
        """See `Journal.era`."""
        return str(self._cuts)

    def append(self, log: str, rows: pa.Table, kept: Kept | None = None, node: str = MAIN) -> list[int]:
        """See `Journal.append`."""
        rows = checked(log, rows)
        # The markers act outside the lock: what stalls one call does not stall the others.
        with self._marked("append", log, self._ends[log] + len(rows)), self._lock:
            together = {**self._kept.get(node, {}), **(kept or {})}
            self._kept[node] = {entity: event for entity, event in together.items() if event is not None}
            if log != "events":
                first = self._ends[log] + 1
                self._keep(log, numbered(rows, first - 1), first - 1 + len(rows))
                return list(range(first, first + len(rows)))
            return self._append_events(rows)

    def _append_events(self, rows: pa.Table) -> list[int]:
        after, fresh, positions = self._ends["events"], [], []
        following = count(after + 1)
        for index, key in enumerate(keys_of(rows)):
            if key not in self._keys:
                self._keys[key] = next(following)
                fresh.append(index)
            positions.append(self._keys[key])
        self._keep("events", numbered(rows.take(pa.array(fresh, pa.int64())), after), after + len(fresh))
        return positions

    def commit_range(self, log: str, rows: pa.Table, through: int) -> None:
        """See `Journal.commit_range`."""
        rows = ascending(log, rows, through)
        with self._marked("commit_range", log, through), self._lock:
            self._keep(log, within(rows, self._ends[log], through), max(through, self._ends[log]))

    def _keep(self, log: str, rows: pa.Table, end: int) -> None:
        if len(rows):
            self._parts[log].append(rows)
        self._ends[log] = end

    def read(self, log: str, after: int, limit: int) -> pa.Table:
        """See `Journal.read`."""
        through = min(after + limit, self.end(log))
        with self._marked("read", log, through), self._lock:
            self._refuse_gaps(log, after, through)
            # Joined once and kept: else every read would copy the log again.
            self._parts[log] = [joined(log, self._parts[log])]
            return within(self._parts[log][0], after, through)

    def trim(self, log: str, rows: int, size: int) -> int:
        """See `Journal.trim`."""
        with self._lock:
            table = joined(log, self._parts[log])
            first = max(len(table) - rows, 0)
            while len(table) - first > 1 and table.slice(first).nbytes > size:
                first += (len(table) - first + 3) // 4
            self._parts[log] = [table.slice(first)]
            if log == "events":
                gone = self.trimmed(log)
                self._keys = {key: at for key, at in self._keys.items() if at > gone}
            return first

    def trim_through(self, log: str, through: int) -> int:
        """See `Journal.trim_through`."""
        with self._lock:
            table = joined(log, self._parts[log])
            newest = within(table, self._ends[log] - 1, self._ends[log])
            through = min(through, self._ends[log] - 1) if len(newest) else through
            self._parts[log] = [within(table, through, self._ends[log])]
            if log == "events":
                self._keys = {key: at for key, at in self._keys.items() if at > through}
            return self.trimmed(log)

    def stored_bytes(self) -> dict[str, int]:
        """See `Journal.stored_bytes`."""
        with self._lock:
            return {log: sum(part.nbytes for part in parts) for log, parts in self._parts.items()}

    @property
    def notes(self) -> MemoryNotes:
        """See `Journal.notes`."""
        return self._notes

    def end(self, log: str) -> int:
        """See `Journal.end`."""
        schema_of(log)
        held = [fault.at for fault in self._faults if isinstance(fault, End) and fault.log == log]
        return min([self._ends[log], *held])

    def trimmed(self, log: str) -> int:
        """See `Journal.trimmed`."""
        end = self.end(log)
        with self._lock:
            rows = next((part for part in self._parts[log] if len(part)), None)
            return end if rows is None else max(0, int(rows["position"][0].as_py()) - 1)

    def sync(self) -> None:
        """Does nothing: there is no medium."""

    def probe(self) -> None:
        """Does nothing: there is always room."""

    def positions(self, id: str, source: str | None = None) -> list[int]:
        """See `Journal.positions`."""
        with self._lock:
            keys = list(self._keys.items())
        return sorted(at for (key, of), at in keys if key == id and source in (None, of))

    def kept(self, node: str = MAIN) -> list[Event]:
        """See `Journal.kept`."""
        with self._lock:
            return by_acceptance(self._kept.get(node, {}).values())

    def join(self, node: str, alone: bool) -> set[str]:
        """See `Journal.join`."""
        with self._lock:
            others = {other: only for other, only in self._nodes.items() if other != node}
            refuse_beside(others, node)
            self._nodes[node] = alone and not others
            return set(others)

    def close(self) -> None:
        """Does nothing: what was written stays, as on a disk, for whoever opens the journal next."""

    def _refuse_gaps(self, log: str, after: int, through: int) -> None:
        for gap in self._faults:
            if isinstance(gap, Gap) and gap.log == log and gap.first <= through and after < gap.last:
                raise JournalError(
                    f"expected the positions {gap.first} to {gap.last} of {log!r} in the memory journal, got damaged"
                    " ones, as its markers want"
                )

    def _refuse_full(self, log: str, reached: int) -> None:
        for index, full in enumerate(self._faults):
            if isinstance(full, Full) and full.log == log and full.at <= reached:
                rest = [replace(full, times=full.times - 1)] if full.times > 1 else []
                self._faults[index : index + 1] = rest
                error = sqlite3.OperationalError("database or disk is full")
                # By it those who wait for room tell this from what does not pass.
                error.sqlite_errorcode = sqlite3.SQLITE_FULL
                raise JournalError(f"the memory journal has no room for {log!r}, as its markers want") from error

    @contextmanager
    def _marked(self, call: Call, log: str, reached: int) -> Iterator[None]:
        """Runs a call as the markers that it reaches want it."""
        if call != "read":
            self._refuse_full(log, reached)
        due = [
            f
            for f in self._faults
            if isinstance(f, (Abort, Pause)) and f.log == log and f.at <= reached and f.call in (None, call)
        ]
        # Taken out before they act: after the crash the same call has to succeed.
        self._faults = [fault for fault in self._faults if fault not in due]
        for fault in due:
            if isinstance(fault, Pause):
                time.sleep(fault.seconds)
        aborts = [fault for fault in due if isinstance(fault, Abort)]
        if any(not abort.kept for abort in aborts):
            raise JournalError(f"the memory journal died before its {call} on {log!r}, as its markers want")
        yield
        if aborts:
            raise JournalError(f"the memory journal died after its {call} on {log!r}, as its markers want")
