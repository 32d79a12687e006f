"""The default journal: one SQLite file in WAL mode, rows kept as compressed Arrow blocks.

A call writes its rows as one block, so reading is decompressing and concatenating, never parsing. Many small blocks are
merged as they gather: reading 5,000 one-row blocks takes 0.2 s, the same rows in merged ones 0.01 s.

What a call has written before it returned survives the death of any process. After a loss of power the newest commits
may be missing (`synchronous=NORMAL`), but never a part of one, and never one before another that is kept.

Every block has a checksum and a link to the one before it, which reading checks (`block_checksums`): a file with a
flipped bit is told to be damaged, and which positions are, instead of being read as something else.
"""

from __future__ import annotations

import os
import sqlite3
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from os import PathLike, fspath
from typing import Final

import pyarrow as pa

from nearcast.errors import JournalError
from nearcast.journal.block_checksums import (
    COLUMNS,
    UNCHECKED,
    StoredBlock,
    block_checksum,
    check_links,
    checked_block,
    is_position,
    malformed,
)
from nearcast.journal.held_back import Kept, refuse_beside, restored
from nearcast.journal.kept_table import keep, kept_changes
from nearcast.journal.log_ends import log_end, newest_block, put_end, unchecked_blocks
from nearcast.journal.rows import ascending, checked, joined, keys_of, numbered, positions_of, schema_of, within
from nearcast.journal.seam import READ_BYTES, Journal
from nearcast.model.event import MAIN, Event
from nearcast.runtime.descriptors import exhausted
from nearcast.runtime.file_lock import file_identity

TABLE = """
CREATE TABLE blocks (
    number INTEGER PRIMARY KEY, log TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    tier INTEGER NOT NULL, size INTEGER NOT NULL, rows BLOB NOT NULL, previous INTEGER, checksum BLOB);
CREATE INDEX blocks_of_log ON blocks (log, last)"""

MERGE = 16
"""So many neighbouring blocks of one tier become one of the next: a row is rewritten at most `TIERS` times."""
TIERS = 2
BLOCK_ROWS, BLOCK_BYTES = 10_000, 64 << 20

CODEC: Final = "zstd"
"""4 ms and a tenth of the size for 10,000 events; lz4 takes 3 ms and leaves a quarter, so the disk takes longer."""


def write_blocks(connection: sqlite3.Connection, log: str, rows: pa.Table) -> None:
    """Puts rows, which have their positions, at the end of a log."""
    for block in _cut(rows):
        tier = next((tier for tier in range(TIERS) if len(block) < MERGE ** (tier + 1)), TIERS)
        _put(connection, log, block, tier, newest_block(connection, log))
    for tier in range(TIERS):
        _merge(connection, log, tier)


def read_blocks(connection: sqlite3.Connection, log: str, after: int, through: int) -> list[pa.Table]:
    """The rows of the blocks of a log that have some after one position and up to another, block by block.

    Within a transaction: what lies beside them is looked at too. Raises `sqlite3.DatabaseError` where one of them is
    not as it was written, or is missing.
    """
    schema, unchecked = schema_of(log), unchecked_blocks(connection)
    # By number too: deliveries of one event may fill several blocks, which then end at the same position.
    query = f"SELECT {COLUMNS} FROM blocks WHERE log = ? AND last > ? ORDER BY last, number"
    blocks: list[StoredBlock] = []
    behind: tuple[int, int | None] | None = None
    with closing(connection.execute(query, (log, after))) as rows:
        for row in rows:
            block = checked_block(log, row, unchecked)
            # Only of a block that was checked is it known that it lies behind.
            if block.first > through:
                behind = (block.number, block.previous)
                break
            blocks.append(block)
    first = (blocks[0].last, blocks[0].number) if blocks else (after, LAST)
    behind = behind or (0, log_end(connection, log).newest)
    check_links(log, [_before(connection, log, first, after), *((one.number, one.previous) for one in blocks), behind])
    return [_decoded(schema, one.size, one.rows) for one in blocks]


def _before(connection: sqlite3.Connection, log: str, first: tuple[int, int], after: int) -> tuple[int, None]:
    """The number of the block before the one with this last position and number; 0 where there is none."""
    query = (
        "SELECT number FROM blocks WHERE log = ? AND (last, number) < (?, ?) ORDER BY last DESC, number DESC LIMIT 1"
    )
    found = connection.execute(query, (log, *first)).fetchone()
    if found is None:
        return 0, None
    # By its number, so that it is the table that answers: the index may be what is damaged.
    last = connection.execute("SELECT last FROM blocks WHERE number = ?", found).fetchone()
    if last is None or not is_position(last[0]) or last[0] > after:
        raise malformed(f"index of the log {log!r} at block {found[0]}")
    return found[0], None


LAST = (1 << 63) - 1
"""The greatest number that SQLite keeps."""


def _cut(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows in pieces small enough for a block, none empty."""
    # A single row that is larger than a block has to be one.
    if len(rows) > 1 and (len(rows) > BLOCK_ROWS or rows.nbytes > BLOCK_BYTES):
        yield from _cut(rows.slice(0, len(rows) // 2))
        yield from _cut(rows.slice(len(rows) // 2))
    elif len(rows):
        yield rows


def _begin_with_oldest(connection: sqlite3.Connection, log: str) -> None:
    """Makes the oldest block of a log the first of it, without a link: those before it are gone on purpose."""
    query = f"SELECT {COLUMNS} FROM blocks WHERE log = ? ORDER BY last, number LIMIT 1"
    oldest = connection.execute(query, (log,)).fetchone()
    block = checked_block(log, oldest, unchecked_blocks(connection))._replace(previous=0)
    # One of a format before has no link.
    if block.checksum is not None:
        sum = block_checksum(log, block)
        connection.execute("UPDATE blocks SET previous = 0, checksum = ? WHERE number = ?", (sum, block.number))


def _put(connection: sqlite3.Connection, log: str, rows: pa.Table, tier: int, previous: int) -> None:
    positions = positions_of(rows)
    # A batch without its schema, which is known by the log: in a block of few rows that would be the larger part.
    [batch] = rows.combine_chunks().to_batches()
    raw = batch.serialize()
    content = pa.compress(raw, CODEC, asbytes=True)
    block = StoredBlock(0, int(positions[0]), int(positions[-1]), tier, raw.size, previous, None, content)
    connection.execute(
        "INSERT INTO blocks (log, first, last, tier, size, previous, checksum, rows) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (log, *block[1:6], block_checksum(log, block), content),
    )


def _merge(connection: sqlite3.Connection, log: str, tier: int) -> None:
    """Merges the newest `MERGE` blocks of a log if all are of this tier and small."""
    query = "SELECT number, tier, size FROM blocks WHERE log = ? ORDER BY last DESC, number DESC LIMIT ?"
    newest = connection.execute(query, (log, MERGE)).fetchall()
    # Only a run of the newest: so blocks stay ranges of positions one after the other, which are read in order.
    if [of for _, of, _ in newest] != [tier] * MERGE or sum(size for *_, size in newest) > BLOCK_BYTES:
        return
    numbers = ", ".join(str(number) for number, *_ in newest)
    found = connection.execute(f"SELECT {COLUMNS} FROM blocks WHERE number IN ({numbers}) ORDER BY last, number")
    # What is damaged would get a checksum of its own.
    unchecked = unchecked_blocks(connection)
    blocks = [checked_block(log, row, unchecked) for row in found]
    rows = joined(log, [_decoded(schema_of(log), one.size, one.rows) for one in blocks])
    connection.execute(f"DELETE FROM blocks WHERE number IN ({numbers})")
    _put(connection, log, rows, tier + 1, newest_block(connection, log))


def _decoded(schema: pa.Schema, size: int, block: bytes) -> pa.Table:
    try:
        raw = pa.decompress(block, size, CODEC)
        return pa.Table.from_batches([_batch(raw, schema)])
    except (pa.ArrowException, OSError) as error:
        raise malformed(f"block: {error}") from error


def _batch(raw: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    try:
        return pa.ipc.read_record_batch(raw, schema)
    except pa.ArrowInvalid:
        # Of a format before, which lacks the last columns; Arrow finds that it ran out of them.
        if schema.field(-1).name not in ADDED:
            raise
        batch = _batch(raw, schema.remove(len(schema) - 1))
        return batch.append_column(schema.field(-1), pa.nulls(len(batch), schema.types[-1]))


ADDED = ("node", "about")
"""The columns of events that formats before lack, the last ones."""

FORMAT = 4
"""The version of the tables and blocks below, kept in the file; a file of a newer format is not touched."""

BEFORE = (2, 3)
"""The formats before: their blocks have no checksums, their events no entry node or no name beside subject and source.
Such a file is taken over, and its blocks are read as they are."""

APPLICATION = 0x6E656172
"""Marks an SQLite file as a journal of nearcast ("near" in ASCII)."""

TABLES = f"""
CREATE TABLE ends (
    log TEXT PRIMARY KEY, position INTEGER NOT NULL, newest INTEGER, checksum BLOB) WITHOUT ROWID;
{TABLE};
CREATE TABLE keys (id TEXT, source TEXT, position INTEGER NOT NULL, PRIMARY KEY (id, source)) WITHOUT ROWID;
"""

NODES = "CREATE TABLE IF NOT EXISTS nodes (name TEXT PRIMARY KEY, alone INTEGER NOT NULL) WITHOUT ROWID"
"""The entry nodes, and which is to be the only one; made when the first one joins."""

LOCK_SECONDS = 30.0
CACHE_KIB = 4_096
"""Of SQLite's pages, for each connection. More is not faster with a million keys, for the system keeps the file's pages
too; and it would fill, in every connection, with blocks that are read once."""

PROBE_BYTES = 64 * 1024

ADVICE = {
    "locked": "another process holds it; end that process or wait",
    "busy": "another process holds it; end that process or wait",
    "full": "free space on its disk; what was answered is kept",
    "not a database": "the file is something else; give another path",
    "unable to open": "its folder must exist and be writable",
    "readonly": "the file and its folder must be writable",
    "malformed": "the file is damaged; stop, and restore a copy of it, with the files -wal and -shm beside it;"
    " positions before the damage can still be read",
    "Could not decode": "the file is damaged; stop, and restore a copy of it",
}

GONE = "expected the file that was opened, got none or another; stop, put the journal back, and start again"


class SqliteJournal(Journal):
    """A journal in the file `path`, made if missing. Threads and processes may share it; do not fork with it open."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = fspath(path)
        # Taking from a deque and giving back are atomic: threads share it without a lock.
        self._idle: deque[sqlite3.Connection] = deque()
        with self._reading() as connection:
            _prepare(connection, self.path)
        self._file = file_identity(self.path)

    def __reduce__(self) -> tuple[type[SqliteJournal], tuple[str]]:
        """Travels to another process as its path."""
        return type(self), (self.path,)

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
                fresh, positions = _register(connection, rows, after)
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
            parts = read_blocks(connection, log, after, after + limit)
        return within(joined(log, parts), after, after + limit)

    def blocks(self, log: str, after: int, through: int) -> Iterator[pa.Table]:
        """See `Journal.blocks`."""
        query = "SELECT number FROM blocks WHERE log = ? AND last > ? AND first <= ? ORDER BY last, number"
        with self._reading() as connection:
            # All as of one moment: else a block might be merged into another meanwhile.
            connection.execute("BEGIN")
            try:
                numbers = connection.execute(query, (log, after, through)).fetchall()
                for number in numbers:
                    found = connection.execute("SELECT size, rows FROM blocks WHERE number = ?", number).fetchone()
                    yield within(_decoded(schema_of(log), *found), after, through)
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
                if kept_rows >= rows or kept_bytes >= size:
                    gone.append((number,))
                    count += held
                kept_rows, kept_bytes = kept_rows + held, kept_bytes + bytes
            connection.executemany("DELETE FROM blocks WHERE number = ?", gone)
            if gone:
                _begin_with_oldest(connection, log)
        return count

    def end(self, log: str) -> int:
        """See `Journal.end`."""
        schema_of(log)
        with self._reading() as connection:
            return _end(connection, log)

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
                _check_key(connection, id, position)
            return found

    def kept(self, node: str = MAIN) -> list[Event]:
        """See `Journal.kept`."""
        with self._reading() as connection:
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
        """Closes the connections that are not in use just now."""
        while self._idle:
            self._idle.pop().close()

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
        # Transactions are begun by hand; and a connection goes from thread to thread, but is with one at a time.
        connection = sqlite3.connect(self.path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        return connection


def _prepare(connection: sqlite3.Connection, path: str) -> None:
    """Makes the tables in a new file; refuses a file of another program or of a newer format before touching it."""
    if _is_journal(connection, path):
        return
    # Before the transaction: within one SQLite leaves this mode as it is.
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Looked at again now that nobody else writes: another process may have made the tables meanwhile.
        if not _is_journal(connection, path):
            for statement in TABLES.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _is_journal(connection: sqlite3.Connection, path: str) -> bool:
    """True for a journal of this format, False for an empty file; `JournalError` for anything else."""
    [application], [version], [tables] = (
        connection.execute(query).fetchone()
        for query in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    )
    if application == APPLICATION and version in (*BEFORE, FORMAT):
        return version == FORMAT or _taken_over(connection)
    if application == APPLICATION:
        raise JournalError(
            f"journal {path}: expected format {FORMAT}, got {version}; use the version of nearcast that wrote it"
        )
    if tables or application or version:
        raise JournalError(f"journal {path}: expected a journal, got another program's database; give another path")
    return False


def _taken_over(connection: sqlite3.Connection) -> bool:
    """Makes a journal of a format before one of this: new blocks get checksums, those that are there none."""
    own = not connection.in_transaction
    if own:
        connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have done it meanwhile.
        if connection.execute("PRAGMA user_version").fetchone() != (FORMAT,):
            for table, column in (
                ("blocks", "previous"),
                ("blocks", "checksum"),
                ("ends", "newest"),
                ("ends", "checksum"),
            ):
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
            [last] = connection.execute("SELECT coalesce(max(number), 0) FROM blocks").fetchone()
            connection.execute("INSERT OR REPLACE INTO ends (log, position) VALUES (?, ?)", (UNCHECKED, last))
            # By the number a version that would lose the entry nodes, as it merges blocks, leaves the file alone.
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        if own:
            connection.execute("COMMIT")
    finally:
        if own and connection.in_transaction:
            connection.execute("ROLLBACK")
    return True


def _register(connection: sqlite3.Connection, rows: pa.Table, after: int) -> tuple[pa.Table, list[int]]:
    """Gives positions after `after` to the events whose (source, id) is new; those events, and everyone's positions."""
    keys = keys_of(rows)
    positions = list(range(after + 1, after + 1 + len(keys)))
    connection.execute("SAVEPOINT guess")
    # In the order of the index, neighbours share a page; and nearly always every event is new.
    ordered = sorted((*key, position) for key, position in zip(keys, positions, strict=True))
    added = connection.executemany("INSERT OR IGNORE INTO keys VALUES (?, ?, ?)", ordered).rowcount
    if added == len(keys):
        connection.execute("RELEASE guess")
        return rows, positions
    connection.execute("ROLLBACK TO guess")
    return _register_each(connection, rows, keys, after)


def _register_each(
    connection: sqlite3.Connection, rows: pa.Table, keys: list[tuple[str, str]], after: int
) -> tuple[pa.Table, list[int]]:
    """The same where some events are known already, or come twice."""
    fresh, positions, following = [], [], count(after + 1)
    for index, key in enumerate(keys):
        known = connection.execute("SELECT position FROM keys WHERE id = ? AND source = ?", key).fetchone()
        if known is None:
            known = (next(following),)
            connection.execute("INSERT INTO keys VALUES (?, ?, ?)", (*key, *known))
            fresh.append(index)
        positions.append(known[0])
    return rows.take(pa.array(fresh, pa.int64())), positions


def _check_key(connection: sqlite3.Connection, id: str, position: int) -> None:
    """Raises `sqlite3.DatabaseError` where the event at a position has another id."""
    if not is_position(position):
        raise malformed(f"key of the event {id}")
    for rows in read_blocks(connection, "events", position - 1, position):
        if within(rows, position - 1, position).column("id").to_pylist() == [id]:
            return
    raise malformed(f"key of the event {id}: at position {position} is another event, or none")


def _write(connection: sqlite3.Connection, log: str, rows: pa.Table, end: int) -> None:
    """Puts rows, which have their positions, and the new end of the log."""
    write_blocks(connection, log, rows)
    put_end(connection, log, end, newest_block(connection, log))


def _end(connection: sqlite3.Connection, log: str) -> int:
    return log_end(connection, log).position


def _advice(error: str) -> str:
    return next((f"; {advice}" for sign, advice in ADVICE.items() if sign in error), "")
