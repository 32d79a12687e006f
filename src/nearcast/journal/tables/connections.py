"""Connections to the SQLite file of a journal, to write it or only to read it."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

LOCK_SECONDS = 30.0
CACHE_KIB = 4_096
"""Of SQLite's pages, for each connection. More is not faster with a million keys, for the system keeps the file's pages
too; and it would fill, in every connection, with blocks that are read once."""


def connected(path: str) -> sqlite3.Connection:
    """A connection to a journal's file, to read and write it."""
    connection = _connected(path)
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def reading_connection(path: str) -> sqlite3.Connection:
    """A connection to a journal's file that changes nothing of it."""
    return _connected(f"{Path(path).absolute().as_uri()}?{_reading_mode(path)}", uri=True)


def _connected(name: str, uri: bool = False) -> sqlite3.Connection:
    # Transactions are begun by hand; and a connection goes from thread to thread, but is with one at a time.
    connection = sqlite3.connect(name, LOCK_SECONDS, isolation_level=None, check_same_thread=False, uri=uri)
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    return connection


def _reading_mode(path: str) -> str:
    """How SQLite is to open a file that is only read."""
    # Beside a file in WAL mode it wants to make another, to agree with who writes. Where nobody can write there it may
    # do without, unless the newest commits are still beside the file.
    log, folder = Path(f"{path}-wal"), Path(path).absolute().parent
    writable = os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
    return "mode=ro" if writable or (log.exists() and log.stat().st_size) else "immutable=1"
