"""The default journal: one SQLite file in WAL mode, rows kept as compressed Arrow blocks.

A call writes its rows as one block, so reading is decompressing and concatenating, never parsing. Many small blocks are
merged as they gather: reading 5,000 one-row blocks takes 0.2 s, the same rows in merged ones 0.01 s.

What a call has written before it returned survives the death of any process. After a loss of power the newest commits
may be missing (`synchronous=NORMAL`), but never a part of one, and never one before another that is kept.

Every block has a checksum and a link to the one before it, which reading checks (`block_checksums`): a file with a
flipped bit is reported as damaged, and which positions are, instead of being read as something else.
"""

from __future__ import annotations

import hashlib
import math
import os
import sqlite3
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from os import PathLike, fspath

import pyarrow as pa

from nearcast.errors import JournalError
from nearcast.journal.block_checksums import is_position, malformed
from nearcast.journal.held_back import Kept, refuse_beside, restored
from nearcast.journal.rows import ascending, checked, joined, numbered, schema_of, within
from nearcast.journal.seam import READ_BYTES, WAIT, Journal
from nearcast.journal.tables.block_table import oldest_blocks, read_blocks, remove_oldest, write_blocks
from nearcast.journal.tables.connections import connected, reading_connection
from nearcast.journal.tables.file_format import NODES, prepare_file, refuse_to_change
from nearcast.journal.tables.kept_table import keep, kept_changes
from nearcast.journal.tables.key_table import check_key, forget_blocks, register_keys
from nearcast.journal.tables.log_ends import log_end, newest_block, put_end
from nearcast.journal.tables.note_table import TableNotes
from nearcast.model.columns import LOGS
from nearcast.model.event import MAIN, Event
from nearcast.runtime.descriptors import exhausted
from nearcast.runtime.file_lock import file_identity
from nearcast.runtime.machine_boot import boot_name
from nearcast.runtime.wakeups import Sleeper, WakeUps

PROBE_BYTES = 64 * 1024

COMMITTED, LOOK = b"c", b"l"
"""By what who waits is woken: something was committed; or, though nothing was, he is to look for himself."""

UNHEARD, DEAF_SECONDS = 3, 60.0
"""After so many commits in a row that woke nobody, as those of another machine, it is not waited for so long that some
do.
"""

FREE_PAGES = 1_000
"""So many free pages stay in the file, and a fifth of it; so many are given back at once, in some milliseconds."""

INCREMENTAL = 2
"""Of SQLite's `auto_vacuum`: a file can be made shorter, step by step."""

ADVICE = {
    "locked": "another process holds it; end that process or wait",
    "busy": "another process holds it; end that process or wait",
    "full": "free space on its disk; what was answered is kept",
    "not a database": "the file is something else; give another path",
    "unable to open": "its folder must exist and be writable",
    "readonly": "the file and its folder must be writable",
    "malformed": "the file is damaged; stop, and restore a copy of it, with the files -wal and -shm beside it;"
    " without a copy `nearcast salvage` copies what is whole of it into a new one",
    "Could not decode": "the file is damaged; stop, and restore a copy of it, or `nearcast salvage` what is whole",
}

GONE = "expected the file that was opened, got none or another; stop, put the journal back, and start again"


class SqliteJournal(Journal):
    """A journal in the file `path`, made if missing. Threads and processes may share it; do not fork with it open.

    `read_only`: it must be there, in this format, and nothing of it is changed; who writes meanwhile is not held up.
    """

    wakes_own = True

    def __init__(self, path: str | PathLike[str], read_only: bool = False) -> None:
        self.path, self.read_only = fspath(path), read_only
        # Taking from a deque and giving back are atomic: threads share it without a lock.
        self._idle: deque[sqlite3.Connection] = deque()
        self._sleepers: deque[Sleeper] = deque()
        self._wakeups = WakeUps(self.path)
        # How many commits in a row woke nobody, and until when it is not waited for being woken.
        self._unheard, self._deaf_until = 0, -math.inf
        if read_only and not os.path.isfile(self.path):
            raise JournalError(f"journal {self.path}: expected a journal, got no file; give another path")
        with self._reading() as connection:
            refuse_to_change(connection, self.path) if read_only else prepare_file(connection, self.path)
        self._file = file_identity(self.path)

    def __reduce__(self) -> tuple[type[SqliteJournal], tuple[str, bool]]:
        """Travels to another process as its path."""
        return type(self), (self.path, self.read_only)

    def __str__(self) -> str:
        return self.path

    @property
    def location(self) -> str:
        """See `Journal.location`."""
        return self.path

    @property
    def era(self) -> str:
        """See `Journal.era`: a machine that started again may have lost power; another file may be an older copy."""
        return hashlib.blake2b(f"{boot_name()} {self._file}".encode(), digest_size=6).hexdigest()

    def append(self, log: str, rows: pa.Table, kept: Kept | None = None, node: str = MAIN) -> list[int]:
        """See `Journal.append`."""
        rows = checked(log, rows)
        if not len(rows) and not kept:
            return []
        with self._writing() as connection:
            if kept:
                keep(connection, node, kept)
            if not len(rows):
                return []
            # Within the transaction: nobody else can give the same positions meanwhile.
            after = _end(connection, log)
            if log == "events":
                fresh, positions = register_keys(connection, rows, after)
            else:
                fresh, positions = rows, list(range(after + 1, after + 1 + len(rows)))
            _write(connection, log, numbered(fresh, after), after + len(fresh))
            return positions

    def commit_range(self, log: str, rows: pa.Table, through: int) -> None:
        """See `Journal.commit_range`."""
        rows = ascending(log, rows, through)
        with self._writing() as connection:
            end = _end(connection, log)
            if through > end:
                _write(connection, log, within(rows, end, through), through)

    def read(self, log: str, after: int, limit: int) -> pa.Table:
        """See `Journal.read`."""
        with self._snapshot() as connection:
            parts = list(read_blocks(connection, log, after, after + limit))
        return within(joined(log, parts), after, after + limit)

    def blocks(self, log: str, after: int, through: int) -> Iterator[pa.Table]:
        """See `Journal.blocks`."""
        with self._reading() as connection:
            # All as of one moment: else a block might be merged into another meanwhile.
            connection.execute("BEGIN")
            try:
                for rows in read_blocks(connection, log, after, through):
                    yield within(rows, after, through)
            finally:
                connection.execute("ROLLBACK")

    def end_within_bytes(self, log: str, after: int, limit: int, size: int = READ_BYTES) -> int:
        """See `Journal.end_within_bytes`."""
        # Cheap: `rows` is the last column, so SQLite reads none of it.
        query = "SELECT last, size FROM blocks WHERE log = ? AND last > ? AND first <= ? ORDER BY last, number"
        through = min(after + limit, self.end(log))
        total, before = 0, 0
        with self._reading() as connection, closing(connection.execute(query, (log, after, through))) as blocks:
            for last, bytes in blocks:
                if not (is_position(last) and is_position(bytes)):
                    raise malformed(f"block of the log {log!r} behind position {before or after}")
                total += bytes
                if total > size and before:
                    return min(before, through)
                before = last
        return through

    def trim(self, log: str, rows: int, size: int) -> int:
        """See `Journal.trim`."""
        gone: list[tuple[int]] = []
        count = kept_rows = kept_bytes = 0
        # Cheap: `rows` is the last column, so SQLite reads none of it.
        query = "SELECT number, last - first + 1, size FROM blocks WHERE log = ? ORDER BY last DESC, number DESC"
        with self._writing() as connection:
            for number, held, bytes in connection.execute(query, (log,)):
                # The newest stays, whatever is asked: what is written next has a link to it.
                if kept_rows and (kept_rows >= rows or kept_bytes >= size):
                    gone.append((number,))
                    count += held
                kept_rows, kept_bytes = kept_rows + held, kept_bytes + bytes
            if log == "events":
                forget_blocks(connection, gone)
            remove_oldest(connection, log, gone)
        return count

    def trim_through(self, log: str, through: int) -> int:
        """See `Journal.trim_through`."""
        schema_of(log)
        while True:
            with self._writing() as connection:
                gone = oldest_blocks(connection, log, through)
                if log == "events":
                    forget_blocks(connection, gone)
                remove_oldest(connection, log, gone)
            if not gone:
                break
        self._shrink()
        return self.trimmed(log)

    def _shrink(self) -> None:
        """Gives free pages back to the disk, a few at a time, where there are many; others are written to again.

        A file of a version before keeps all of its pages.
        """
        while True:
            with self._reading() as connection:
                [pages], [free], [mode] = (
                    connection.execute(f"PRAGMA {name}").fetchone()
                    for name in ("page_count", "freelist_count", "auto_vacuum")
                )
                if mode != INCREMENTAL or free <= max(FREE_PAGES, pages // 5):
                    return
                connection.execute(f"PRAGMA incremental_vacuum({FREE_PAGES})").fetchall()
            self._wakeups.wake(COMMITTED)

    def stored_bytes(self) -> dict[str, int]:
        """See `Journal.stored_bytes`."""
        with self._snapshot() as connection:
            # Of a blob SQLite knows the length without reading it.
            query = "SELECT log, sum(length(rows)) FROM blocks WHERE log <> '' GROUP BY log"
            found = dict.fromkeys(LOGS, 0) | dict(connection.execute(query).fetchall())
            names = ("page_count", "freelist_count", "page_size")
            [pages], [free], [size] = (connection.execute(f"PRAGMA {name}").fetchone() for name in names)
        others = sum(bytes for log, bytes in found.items() if log != "events")
        # All the rest of the file is there for events: their keys are in it.
        return {**found, "events": max(found["events"], (pages - free) * size - others)}

    @property
    def notes(self) -> TableNotes:
        """See `Journal.notes`."""
        return TableNotes(self._writing, self._snapshot)

    def end(self, log: str) -> int:
        """See `Journal.end`."""
        schema_of(log)
        with self._snapshot() as connection:
            return _end(connection, log)

    def trimmed(self, log: str) -> int:
        """See `Journal.trimmed`."""
        query = "SELECT first FROM blocks WHERE log = ? ORDER BY last, number LIMIT 1"
        with self._snapshot() as connection:
            found = connection.execute(query, (log,)).fetchone()
            return max(0, found[0] - 1) if found and is_position(found[0]) else _end(connection, log)

    def wait(self, after: Mapping[str, int], seconds: float) -> bool:
        """See `Journal.wait`. Who commits wakes who waits; while nobody does, the file is asked for nothing.

        Where nobody can be woken, or some commits wake nobody, it is asked for its version every `WAIT` seconds.
        """
        until = time.monotonic() + seconds
        with self._reading() as watching, self._sleeping() as sleeper:
            while True:
                # Before the ends: what is committed behind this look wakes, and makes another version.
                version = _data_version(watching)
                if any(self.end(log) > position for log, position in after.items()):
                    return True
                if sleeper is None:
                    slept = _unchanged(watching, version, until)
                else:
                    signs = sleeper.wait(until - time.monotonic())
                    if LOOK in signs:
                        return True
                    slept = not signs and _data_version(watching) == version
                    self._unheard = 0 if signs or slept else self._unheard + 1
                if slept:
                    return False

    @contextmanager
    def _sleeping(self) -> Iterator[Sleeper | None]:
        """Who is woken by commits; None where nobody can be."""
        if self._unheard >= UNHEARD:
            self._unheard, self._deaf_until = 0, time.monotonic() + DEAF_SECONDS
            # Their pipes may be gone.
            self._drop_sleepers()
        if self.read_only or time.monotonic() < self._deaf_until:
            yield None
            return
        try:
            sleeper: Sleeper | None = self._sleepers.pop()
        except IndexError:
            sleeper = self._wakeups.sleeper()
        try:
            yield sleeper
        finally:
            if sleeper is not None:
                self._sleepers.append(sleeper)

    def wake(self) -> bool:
        """See `Journal.wake`."""
        self._wakeups.wake(LOOK)
        return True

    def sync(self) -> None:
        """See `Journal.sync`."""
        try:
            # What is committed and not in the file yet is in the log beside it; a checkpoint secures both by itself.
            descriptor = os.open(f"{self.path}-wal", os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise JournalError(f"journal {self.path}: {error}; is its disk in order?") from error
        finally:
            os.close(descriptor)

    def probe(self) -> None:
        """See `Journal.probe`."""
        with self._writing() as connection:
            # Room for it is taken, and given back for whatever comes next.
            added = "INSERT INTO blocks (log, first, last, tier, size, rows) VALUES ('', 0, 0, 0, 0, zeroblob(?))"
            number = connection.execute(added, (PROBE_BYTES,)).lastrowid
            connection.execute("DELETE FROM blocks WHERE number = ?", (number,))

    def positions(self, id: str, source: str | None = None) -> list[int]:
        """See `Journal.positions`."""
        query = "SELECT DISTINCT position FROM keys WHERE id = ?1 AND (?2 IS NULL OR source = ?2) ORDER BY position"
        with self._snapshot() as connection:
            found = [position for (position,) in connection.execute(query, (id, source))]
            for position in found:
                check_key(connection, id, position)
            return found

    def kept(self, node: str = MAIN) -> list[Event]:
        """See `Journal.kept`."""
        with self._snapshot() as connection:
            try:
                return restored(kept_changes(connection, node))
            except (ValueError, TypeError, KeyError) as error:
                raise malformed(f"events that are kept at the node {node}: {error}") from error

    def join(self, node: str, alone: bool) -> set[str]:
        """See `Journal.join`."""
        with self._writing() as connection:
            connection.execute(NODES)
            others = dict(connection.execute("SELECT name, alone FROM nodes WHERE name <> ?", (node,)).fetchall())
            refuse_beside(others, node)
            connection.execute("INSERT OR REPLACE INTO nodes VALUES (?, ?)", (node, alone and not others))
            return set(others)

    def close(self) -> None:
        """Closes the connections that are not in use just now, and lets go of who slept here."""
        self._drop_sleepers()
        while self._idle:
            self._idle.pop().close()

    def _drop_sleepers(self) -> None:
        while self._sleepers:
            self._sleepers.pop().close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that takes the write lock at once: two writers queue up instead of failing half way."""
        with self._reading() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                # SQLite would go on writing to a file that nobody will find again.
                if file_identity(self.path) != self._file:
                    raise JournalError(f"journal {self.path}: {GONE}")
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        self._wakeups.wake(COMMITTED)

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees one state of the file, whatever others write meanwhile."""
        with self._reading() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that no other thread uses meanwhile; SQLite's errors become `JournalError`."""
        try:
            connection = self._take()
            try:
                yield connection
            finally:
                self._idle.append(connection)
        except sqlite3.Error as error:
            # Where nothing at all can be opened any more SQLite says that of the file, which is misleading.
            said = exhausted() if "unable to open" in str(error) else None
            raise JournalError(f"journal {self.path}: {said or f'{error}{_advice(str(error))}'}") from error
        except UnicodeDecodeError as error:
            # Python reads the text of an error of SQLite, in which the damage may be quoted.
            raise JournalError(f"journal {self.path}: malformed text{_advice('malformed')}") from error

    def _take(self) -> sqlite3.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        return reading_connection(self.path) if self.read_only else connected(self.path)


def _write(connection: sqlite3.Connection, log: str, rows: pa.Table, end: int) -> None:
    """Puts rows, which have their positions, and the new end of the log."""
    write_blocks(connection, log, rows)
    put_end(connection, log, end, newest_block(connection, log))


def _end(connection: sqlite3.Connection, log: str) -> int:
    return log_end(connection, log).position


def _data_version(connection: sqlite3.Connection) -> int:
    """A number that is another one once some other connection, of any process, has committed."""
    [version] = connection.execute("PRAGMA data_version").fetchone()
    return int(version)


def _unchanged(connection: sqlite3.Connection, version: int, until: float) -> bool:
    """Returns once a file has another version, or a time is over; whether it still has the same."""
    while _data_version(connection) == version:
        left = until - time.monotonic()
        if left <= 0:
            return True
        time.sleep(min(WAIT, left))
    return False


def wake(path: str | PathLike[str]) -> None:
    """Lets those who wait for news of the journal in a file look for themselves, though nothing was written."""
    WakeUps(fspath(path)).wake(LOOK)


def _advice(error: str) -> str:
    return next((f"; {advice}" for sign, advice in ADVICE.items() if sign in error), "")
