"""The journal as the pipeline writes to it: a full disk is waited for.

What a batch was decided from is folded in by then. To die of it would mean to start Spark and to fold again, and again.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from os import PathLike
from typing import TypeVar

import pyarrow as pa

from nearcast.errors import JournalError
from nearcast.journal.held_back import Kept
from nearcast.journal.sqlite import SqliteJournal
from nearcast.model.event import MAIN
from nearcast.runtime.error_log import RateLimitedErrorLog

T = TypeVar("T")

RETRY_SECONDS = 1.0


class RetryingJournal(SqliteJournal):
    """Tries again to write while the disk is full, until it is `stopped`; then JournalError is raised."""

    def __init__(self, path: str | PathLike[str], stopped: Callable[[], bool]) -> None:
        super().__init__(path)
        self._stopped, self._error_log = stopped, RateLimitedErrorLog("journal")

    def __reduce__(self) -> tuple[type[SqliteJournal], tuple[str, bool]]:
        """Travels as a journal that is read."""
        return SqliteJournal, (self.path, self.read_only)

    def append(self, log: str, rows: pa.Table, kept: Kept | None = None, node: str = MAIN) -> list[int]:
        """See `Journal.append`."""
        append = super().append
        return self._patiently(lambda: append(log, rows, kept, node))

    def commit_range(self, log: str, rows: pa.Table, through: int) -> None:
        """See `Journal.commit_range`."""
        commit_range = super().commit_range
        self._patiently(lambda: commit_range(log, rows, through))

    def _patiently(self, write: Callable[[], T]) -> T:
        while True:
            try:
                found = write()
            except JournalError as error:
                if not _is_full(error) or self._stopped():
                    raise
                self._error_log.failed("deciding", error)
                time.sleep(RETRY_SECONDS)
            else:
                self._error_log.works("deciding")
                return found


def _is_full(error: JournalError) -> bool:
    return getattr(error.__cause__, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
