"""A journal with its archive before it: one history, however much of it the journal has let go of. To be read only."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from nearcast.errors import Fault, JournalError, SetupError
from nearcast.journal.archive.archive_files import LOGS, ArchiveFile, files_of, read_manifest
from nearcast.journal.held_back import Kept
from nearcast.journal.identity import identity_of
from nearcast.journal.memory import MemoryJournal
from nearcast.journal.rows import joined, schema_of, within
from nearcast.journal.seam import READ_BYTES, Journal, JournalNotes
from nearcast.model.event import MAIN, Event

SCHEME = "archive:"
"""What a location begins with that names an archive, and behind it a journal."""


DENSE = ("events", "outcomes")
"""Logs that have a row at every position."""


class ArchivedJournal(Journal):
    """The history of an archive, and of the journal that it was written from, where there is one.

    Raises `SetupError` where there is no archive or one of another journal, `JournalError` where positions between the
    two are missing, then or later.
    """

    def __init__(self, folder: Path, journal: Journal | None = None) -> None:
        found = read_manifest(folder)
        if found is None:
            raise SetupError(str(Fault("the folder of an archive", f"{folder}, which has none")))
        self._manifest, self._folder, self._own = found, folder, journal is None
        self._journal = journal or MemoryJournal()
        if journal is not None:
            self._check(journal)
        # As of now: where the journal lets go of more meanwhile, more of the archive is read.
        self._files = {log: sorted(one for one in files_of(folder, log) if self._counts(log, one)) for log in LOGS}
        self._read: dict[str, tuple[int, int, pa.Table]] = {}
        self._lock = threading.Lock()

    def _check(self, journal: Journal) -> None:
        if self._manifest.identity != identity_of(journal):
            came = f"{self._folder}, one of another journal"
            raise SetupError(str(Fault(f"the archive of {journal}", came)))
        for log in DENSE:
            self._begins(log)

    def _counts(self, log: str, file: ArchiveFile) -> bool:
        return file.last <= self._manifest.through(log)

    def __str__(self) -> str:
        return str(self._folder) if self._own else f"{self._folder} and {self._journal}"

    @property
    def location(self) -> str:
        """See `Journal.location`."""
        behind = "" if self._own else self._journal.location
        return f"{SCHEME}{quote(str(self._folder.absolute()))}?{quote(behind)}"

    def _begins(self, log: str) -> int:
        """Behind which position the journal is read, before it the archive."""
        if log not in LOGS:
            return 0
        through = self._manifest.through(log)
        begins = through if self._own else self._journal.trimmed(log)
        if begins > through and log in DENSE:
            came = f"one up to {through:,}, and a journal from {begins + 1:,} on"
            raise JournalError(str(Fault(f"an archive of {log} up to where the journal begins", came)))
        return begins

    def read(self, log: str, after: int, limit: int) -> pa.Table:
        """See `Journal.read`."""
        return joined(log, list(self.blocks(log, after, after + limit)))

    def blocks(self, log: str, after: int, through: int) -> Iterator[pa.Table]:
        """See `Journal.blocks`."""
        schema_of(log)
        begins = self._begins(log)
        while after < min(begins, through):
            first, last, rows = self._stretch(log, after)
            yield within(rows, after, min(through, begins))
            after = min(max(last, first), begins)
        if through > after and not self._own:
            yield from self._journal.blocks(log, max(after, begins), through)

    def _stretch(self, log: str, after: int) -> tuple[int, int, pa.Table]:
        """The rows of the files that have a position, or of none up to the next that have some; and from where to
        where.
        """
        files = self._files[log]
        at = bisect_right(files, (after + 1, 1 << 62, Path(), None)) - 1
        if at < 0 or files[at].last <= after:
            following = files[at + 1].first - 1 if at + 1 < len(files) else self._begins(log)
            return after + 1, max(after + 1, following), schema_of(log).empty_table()
        first, last = files[at].first, files[at].last
        with self._lock:
            known = self._read.get(log)
            if known is None or known[:2] != (first, last):
                rows = [_rows(log, one) for one in files if (one.first, one.last) == (first, last)]
                self._read[log] = known = first, last, _in_order(joined(log, rows))
            return known

    def end_within_bytes(self, log: str, after: int, limit: int, size: int = READ_BYTES) -> int:
        """See `Journal.end_within_bytes`."""
        begins = self._begins(log)
        if after >= begins:
            return after if self._own else self._journal.end_within_bytes(log, after, limit, size)
        # Each stretch is bounded as it was written.
        return min(after + limit, begins, self._stretch(log, after)[1])

    def end(self, log: str) -> int:
        """See `Journal.end`."""
        schema_of(log)
        if not self._own:
            return self._journal.end(log)
        return self._manifest.through(log) if log in LOGS else 0

    def trimmed(self, log: str) -> int:
        """See `Journal.trimmed`."""
        if log not in LOGS:
            return self._journal.trimmed(log)
        return min(self._manifest.after(log), self._begins(log))

    def positions(self, id: str, source: str | None = None) -> list[int]:
        """See `Journal.positions`."""
        wanted = [("id", "=", id)] + ([] if source is None else [("source", "=", source)])
        found: set[int] = set() if self._own else set(self._journal.positions(id, source))
        for file in self._files["events"]:
            if file.first <= self._begins("events"):
                rows = pq.read_table(file.path, columns=["position"], filters=wanted, partitioning=None)
                found.update(rows.column("position").to_pylist())
        return sorted(found)

    def stored_bytes(self) -> dict[str, int]:
        """See `Journal.stored_bytes`."""
        found = self._journal.stored_bytes()
        return found | {log: found[log] + sum(one.path.stat().st_size for one in self._files[log]) for log in LOGS}

    def kept(self, node: str = MAIN) -> list[Event]:
        """See `Journal.kept`."""
        return self._journal.kept(node)

    @property
    def notes(self) -> JournalNotes:
        """See `Journal.notes`."""
        return self._journal.notes

    @property
    def identity(self) -> str:
        """See `Journal.identity`."""
        return self._journal.identity

    def append(self, log: str, rows: pa.Table, kept: Kept | None = None, node: str = MAIN) -> NoReturn:
        """Refuses."""
        raise self._refusal()

    def commit_range(self, log: str, rows: pa.Table, through: int) -> NoReturn:
        """Refuses."""
        raise self._refusal()

    def join(self, node: str, alone: bool) -> NoReturn:
        """Refuses."""
        raise self._refusal()

    def trim(self, log: str, rows: int, size: int) -> NoReturn:
        """Refuses."""
        raise self._refusal()

    def trim_through(self, log: str, through: int) -> NoReturn:
        """Refuses."""
        raise self._refusal()

    def probe(self) -> NoReturn:
        """Refuses."""
        raise self._refusal()

    def sync(self) -> None:
        """Does nothing: nothing is written."""

    def close(self) -> None:
        """See `Journal.close`."""
        self._journal.close()

    def _refusal(self) -> JournalError:
        return JournalError(f"journal {self}: expected to read it only, got something to write")


def _rows(log: str, file: ArchiveFile) -> pa.Table:
    """The rows of a file, with all columns of the log."""
    schema = schema_of(log)
    try:
        rows = pq.ParquetFile(file.path).read()
        if "channel" in schema.names:
            rows = rows.append_column("channel", pa.array([file.channel] * len(rows), pa.string()))
        return rows.select(schema.names).cast(schema)
    except (OSError, KeyError, pa.ArrowException) as error:
        raise JournalError(f"archive {file.path}: expected rows of the log {log!r}, got {error}") from error


def _in_order(rows: pa.Table) -> pa.Table:
    """Rows of several files in the order of the log: those of a position stand in one, in their order."""
    keys = [("position", "ascending")] + ([("part", "ascending")] if "id" in rows.column_names else [])
    return rows.sort_by(keys) if len(rows) else rows


def archive_at(location: str) -> tuple[Path, str]:
    """The folder and the journal that a location of an archive names; empty without a journal."""
    folder, _, behind = location.removeprefix(SCHEME).partition("?")
    return Path(unquote(folder)), unquote(behind)
