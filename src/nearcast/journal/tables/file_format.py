"""The format of a journal in an SQLite file: made, told from other files, taken over from versions before."""

from __future__ import annotations

import sqlite3

from nearcast.errors import JournalError
from nearcast.journal.block_checksums import UNCHECKED
from nearcast.journal.tables.block_table import BLOCKS
from nearcast.journal.tables.key_table import KEYS

FORMAT = 6
"""The version of the tables and blocks below, kept in the file; a file of a newer format is not touched."""

BEFORE = (2, 3)
"""The formats before: their blocks have no checksums, their events no entry node or no name beside subject and source.
Such a file is taken over, and its blocks are read as they are."""

ALIKE = (4, 5)
"""Formats before that are read as they are: 4 has checksums of blocks that are made in another way, and none has blocks
with lengths in the place of offsets.
"""

APPLICATION = 0x6E656172
"""Marks an SQLite file as a journal of nearcast ("near" in ASCII)."""

TABLES = f"""
CREATE TABLE ends (
    log TEXT PRIMARY KEY, position INTEGER NOT NULL, newest INTEGER, checksum BLOB) WITHOUT ROWID;
{BLOCKS};
{KEYS};
"""

NODES = "CREATE TABLE IF NOT EXISTS nodes (name TEXT PRIMARY KEY, alone INTEGER NOT NULL) WITHOUT ROWID"
"""The entry nodes, and which is to be the only one; made when the first one joins."""


def refuse_to_change(connection: sqlite3.Connection, path: str) -> None:
    """Raises `JournalError` for a file that is no journal of this format: it is read as it is, or not at all."""
    application, version, tables = _marks(connection)
    if application == APPLICATION and version in BEFORE:
        raise JournalError(
            f"journal {path}: expected format {FORMAT}, got {version}, which a version before wrote;"
            " start the system once with this one, or `nearcast explain` on a copy of the file: either takes it over"
        )
    if application == APPLICATION and version in ALIKE:
        return
    if not tables or not _is_journal(connection, path):
        raise JournalError(f"journal {path}: expected a journal, got an empty file; give another path")


def prepare_file(connection: sqlite3.Connection, path: str) -> None:
    """Makes the tables in a new file; refuses a file of another program or of a newer format before touching it."""
    if _is_journal(connection, path):
        return
    # Before the transaction: within one SQLite leaves these modes as they are; the first only before the second.
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
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
    application, version, tables = _marks(connection)
    if application == APPLICATION and version in (*BEFORE, *ALIKE, FORMAT):
        return version == FORMAT or _taken_over(connection)
    if application == APPLICATION:
        raise JournalError(
            f"journal {path}: expected format {FORMAT}, got {version}; use the version of nearcast that wrote it"
        )
    if tables or application or version:
        raise JournalError(f"journal {path}: expected a journal, got another program's database; give another path")
    return False


def _marks(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """What tells a file's kind: the numbers of its application and format, and how many tables it has."""
    queries = ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    [application], [version], [tables] = (connection.execute(query).fetchone() for query in queries)
    return application, version, tables


def _taken_over(connection: sqlite3.Connection) -> bool:
    """Makes a journal of a format before one of this: new blocks get checksums of this, those that are there none."""
    own = not connection.in_transaction
    if own:
        connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have done it meanwhile.
        [version] = connection.execute("PRAGMA user_version").fetchone()
        if version in BEFORE:
            for table, column in (
                ("blocks", "previous"),
                ("blocks", "checksum"),
                ("ends", "newest"),
                ("ends", "checksum"),
            ):
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
            [last] = connection.execute("SELECT coalesce(max(number), 0) FROM blocks").fetchone()
            connection.execute("INSERT OR REPLACE INTO ends (log, position) VALUES (?, ?)", (UNCHECKED, last))
        # By the number a version that would lose the entry nodes, as it merges blocks, leaves the file alone, and so
        # does one to which all new blocks were damaged, or which cannot read them.
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        if own:
            connection.execute("COMMIT")
    finally:
        if own and connection.in_transaction:
            connection.execute("ROLLBACK")
    return True
