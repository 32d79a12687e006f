"""Which access servers there are on a journal: a record of each, put anew now and then; beside the logs, not in them.

A record is put where the one before is as the writer knows it, so two servers of one name cannot both have theirs. Its
number grows each time: who reads it sees whether its server goes on, without a clock that both share.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import orjson

from nearcast.errors import JournalError
from nearcast.journal.memory import MemoryJournal

MOST_SERVERS = 100
"""Records that a register keeps: one for each access server of a domain."""

RECORD_BYTES = 4_096

SERVERS = """CREATE TABLE IF NOT EXISTS servers (
    name TEXT PRIMARY KEY, instance TEXT NOT NULL, number INTEGER NOT NULL, record BLOB NOT NULL) WITHOUT ROWID"""

LOCK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """What an access server says of itself: its name, one run of it, where clients reach it, and how much it has to do.

    `sessions` are connected ones, `load` is the share of a processor that it uses; `process` and `started` tell its
    process on the machine `host`. `number` counts how often it was put. `asked`: not by itself, but by another that
    wants its name, and asks by this whether it is there.
    """

    name: str
    instance: str
    url: str
    host: str = ""
    process: int = 0
    started: str = ""
    sessions: int = 0
    load: float = 0.0
    draining: bool = False
    number: int = 0
    asked: bool = False

    @property
    def known_dead(self) -> bool:
        """Whether its process is known to have ended: it was one of this machine, and is no more."""
        return bool(self.process) and self.host == socket.gethostname() and self.started != process_start(self.process)


def process_start(process: int) -> str:
    """When a process of this machine began, by the machine's own count; empty where there is none."""
    try:
        told = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return "" if not _runs(process) else "unknown"
    # The name, in brackets, may have blanks; what follows has none. A process that waits to be collected has ended.
    state, *fields = told.rpartition(")")[2].split()
    return "" if state in "ZX" else fields[18]


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def written_record(record: ServerRecord) -> bytes:
    """A record as JSON. Raises `JournalError` for one that is too large."""
    found = orjson.dumps(asdict(record))
    if len(found) > RECORD_BYTES:
        raise JournalError(
            f"expected a server's record of at most {RECORD_BYTES:,} bytes, got {len(found):,}; is its name or URL so"
            " long?"
        )
    return found


def read_record(written: bytes) -> ServerRecord | None:
    """A record from JSON; None for what is none, as one of a later version may be."""
    with suppress(ValueError, TypeError, KeyError):
        told: dict[str, Any] = orjson.loads(written)
        found = ServerRecord(**{name: told[name] for name in ServerRecord.__dataclass_fields__ if name in told})
        if all(isinstance(one, str) for one in (found.name, found.instance, found.url, found.host, found.started)):
            return found
    return None


class ServerRegister(ABC):
    """The records of a journal's access servers. Raises `JournalError` where the medium fails. Threads share it."""

    lasting = True
    """Whether a record stays until somebody removes it, also where it is not put anew."""

    @abstractmethod
    def records(self) -> list[ServerRecord]:
        """All that there are, by name; of one that died the last."""

    @abstractmethod
    def put(self, record: ServerRecord, before: ServerRecord | None) -> bool:
        """Puts a record in the place of the one before, None: there is none of that name; False where that is not so.

        Raises `JournalError` also where there are `MOST_SERVERS`.
        """

    @abstractmethod
    def remove(self, record: ServerRecord) -> None:
        """Removes the record of a run of a server, if it is there still."""

    def close(self) -> None:  # noqa: B027
        """Releases the medium, where there is something to release."""


def refuse_more(records: list[ServerRecord], name: str) -> None:
    """Raises `JournalError` where there is no room for another name."""
    if len({one.name for one in records} | {name}) > MOST_SERVERS:
        raise JournalError(
            f"expected at most {MOST_SERVERS} access servers on a journal, got another one, {name!r}; end some"
        )


class MemoryRegister(ServerRegister):
    """Records that live as long as the object."""

    def __init__(self) -> None:
        self._records: dict[str, ServerRecord] = {}
        self._lock = threading.Lock()

    def records(self) -> list[ServerRecord]:
        """See `ServerRegister.records`."""
        with self._lock:
            return sorted(self._records.values(), key=lambda one: one.name)

    def put(self, record: ServerRecord, before: ServerRecord | None) -> bool:
        """See `ServerRegister.put`."""
        with self._lock:
            if _version(self._records.get(record.name)) != _version(before):
                return False
            refuse_more([*self._records.values()], record.name)
            self._records[record.name] = record
            return True

    def remove(self, record: ServerRecord) -> None:
        """See `ServerRegister.remove`."""
        with self._lock:
            found = self._records.get(record.name)
            if found and found.instance == record.instance:
                del self._records[record.name]


_in_memory: WeakKeyDictionary[MemoryJournal, MemoryRegister] = WeakKeyDictionary()


def memory_register(journal: MemoryJournal) -> MemoryRegister:
    """The register of a journal in memory, which lives as long as that."""
    return _in_memory.setdefault(journal, MemoryRegister())


class SqliteRegister(ServerRegister):
    """Records in a table of a journal's file, which is made when the first is put."""

    def __init__(self, path: str) -> None:
        self.path = path

    def records(self) -> list[ServerRecord]:
        """See `ServerRegister.records`."""
        with self._connected() as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'servers'").fetchone():
                return []
            rows = connection.execute("SELECT record FROM servers ORDER BY name").fetchall()
        return [found for (written,) in rows if (found := read_record(written)) is not None]

    def put(self, record: ServerRecord, before: ServerRecord | None) -> bool:
        """See `ServerRegister.put`."""
        written = written_record(record)
        others = [] if before else self.records()
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute(SERVERS)
                found = connection.execute(
                    "SELECT instance, number FROM servers WHERE name = ?", (record.name,)
                ).fetchone()
                if found != _version(before):
                    return False
                refuse_more(others, record.name)
                values = (record.name, record.instance, record.number, written)
                connection.execute("INSERT OR REPLACE INTO servers VALUES (?, ?, ?, ?)", values)
                connection.execute("COMMIT")
                return True
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def remove(self, record: ServerRecord) -> None:
        """See `ServerRegister.remove`."""
        with self._connected() as connection:
            connection.execute("DELETE FROM servers WHERE name = ? AND instance = ?", (record.name, record.instance))

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        # A connection each time: it is seldom, and a file that was put in the place of the journal's is noticed.
        try:
            uri = f"{Path(self.path).absolute().as_uri()}?mode=rw"
            with closing(sqlite3.connect(uri, LOCK_SECONDS, isolation_level=None, uri=True)) as connection:
                connection.execute("PRAGMA synchronous = NORMAL")
                yield connection
        except sqlite3.Error as error:
            raise JournalError(
                f"journal {self.path}: the register of servers: {error}; is its disk in order?"
            ) from error


def _version(record: ServerRecord | None) -> tuple[str, int] | None:
    return (record.instance, record.number) if record else None
