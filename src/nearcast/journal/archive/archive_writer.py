"""Writes an archive: what was decided, in stretches of positions, each as a few Parquet files.

A stretch counts when the archive's manifest says so, after all of its files are there; then the journal is told, which
may let go of it. Files beyond the manifest are of a writer that was killed: they are removed before it goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nearcast.errors import Fault, SetupError
from nearcast.journal.archive.archive_files import (
    LOGS,
    ArchiveManifest,
    file_name,
    files_of,
    folder_of,
    read_manifest,
    sync_folder,
    write_manifest,
)
from nearcast.journal.identity import identity_of
from nearcast.journal.reader_marks import ARCHIVE, put_mark
from nearcast.journal.seam import Journal

POSITIONS, BYTES = 250_000, 64 << 20
"""Of a stretch, at most, about: what is in memory at once."""


class ArchiveWriter:
    """Copies a journal into a folder. One at a time; others read and write meanwhile. Raises `SetupError` for a folder
    of another journal, or where the journal has let go of what is missing.
    """

    def __init__(self, journal: Journal, folder: Path) -> None:
        self._journal, self._folder = journal, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.manifest = read_manifest(folder) or ArchiveManifest(
            identity_of(journal), *(journal.trimmed("events"),) * 2, *(journal.trimmed("outcomes"),) * 2
        )
        self._check()
        self._remove_unfinished()
        self._note()

    def _check(self) -> None:
        # An empty journal has no identity yet.
        if self.manifest.identity not in (identity_of(self._journal), ""):
            came = f"{self._folder}, an archive of another one"
            raise SetupError(str(Fault(f"an archive of {self._journal}", came, advice="name another folder")))
        for log in ("events", "deliveries", "outcomes"):
            gone, through = self._journal.trimmed(log), self.manifest.through(log)
            if LOGS[log] == log and through < gone:
                expected, came = f"{log} from position {through + 1:,} on", f"a journal without those up to {gone:,}"
                advice = "say `archive: true` in retention, and begin another archive"
                raise SetupError(str(Fault(expected, came, advice=advice)))

    def _remove_unfinished(self) -> None:
        for log in LOGS:
            for file in files_of(self._folder, log):
                if file.last > self.manifest.through(log):
                    file.path.unlink()
            for left in (self._folder / log).glob("**/.*.new"):
                left.unlink()

    def _note(self) -> None:
        events, outcomes = self.manifest.events, self.manifest.outcomes
        put_mark(self._journal, ARCHIVE, {"events": events, "deliveries": events, "outcomes": outcomes})

    def write(self, advance: Callable[[int], None] = lambda count: None) -> int:
        """Copies all that is decided by now; how many positions of events that were."""
        began = self.manifest.events
        if not self.manifest.identity:
            self.manifest = replace(self.manifest, identity=identity_of(self._journal))
        decided = self._journal.end("deliveries")
        while self.manifest.events < decided:
            after = self.manifest.events
            through = self._write_stretch(after, decided)
            self._move(replace(self.manifest, events=through))
            advance(through - after)
        # Later: outcomes are of deliveries that are there.
        end = self._journal.end("outcomes")
        while (after := self.manifest.outcomes) < end:
            through = self._journal.end_within_bytes("outcomes", after, min(POSITIONS, end - after), BYTES)
            rows = self._journal.read("outcomes", after, through - after)
            self._write_rows("outcomes", rows, _days(rows.column("settled")), after + 1, through)
            self._move(replace(self.manifest, outcomes=through))
        return self.manifest.events - began

    def _move(self, manifest: ArchiveManifest) -> None:
        self._journal.sync()
        write_manifest(self._folder, manifest)
        self.manifest = manifest
        self._note()

    def _write_stretch(self, after: int, decided: int) -> int:
        """Writes the files of the next stretch; through which position."""
        logs, most = ("events", "derived", "deliveries"), min(POSITIONS, decided - after)
        through = min([decided, *(self._journal.end_within_bytes(log, after, most, BYTES) for log in logs[:1])])
        for log in logs[1:]:
            # Their ends may be behind: where nothing was derived for long.
            end = self._journal.end_within_bytes(log, after, through - after, BYTES)
            through = end if after < end < min(through, self._journal.end(log)) else through
        tables = {log: self._journal.read(log, after, through - after) for log in logs}
        events = tables["events"]
        days = _days(pc.coalesce(events.column("accepted"), events.column("time")))
        positions = events.column("position").to_numpy()
        for log, rows in tables.items():
            # All rows of a position in one folder of a day, in their order.
            at = np.searchsorted(positions, rows.column("position").to_numpy())
            own = days if log == "events" else days.take(pa.array(np.minimum(at, max(len(days) - 1, 0))))
            self._write_rows(log, rows, own, after + 1, through)
        return through

    def _write_rows(self, log: str, rows: pa.Table, days: pa.Array, first: int, last: int) -> None:
        for day, channel, part in _parts(rows, days):
            folder = folder_of(self._folder, log, day, channel)
            folder.mkdir(parents=True, exist_ok=True)
            temporary, target = folder / f".{file_name(first, last)}.new", folder / file_name(first, last)
            pq.write_table(part, temporary, compression="zstd")
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.rename(target)
            for named in (folder, *folder.parents):
                sync_folder(named)
                if named == self._folder:
                    break


def _days(moments: pa.ChunkedArray) -> pa.Array:
    """The day of each moment, as text; null without one."""
    found = pc.strftime(moments, format="%Y-%m-%d")
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _parts(rows: pa.Table, days: pa.Array) -> Iterator[tuple[str | None, str | None, pa.Table]]:
    """The rows by day and, where they have one, by channel, which is no column then."""
    by_channel = "channel" in rows.column_names
    channels = rows.column("channel") if by_channel else pa.nulls(len(rows), pa.string())
    bare = rows.drop_columns(["channel"]) if by_channel else rows
    keys = pa.table({"day": days, "channel": channels})
    for key in keys.group_by(["day", "channel"], use_threads=False).aggregate([]).to_pylist():
        chosen = [_same(keys.column(name), key[name]) for name in ("day", "channel")]
        yield key["day"], key["channel"], bare.filter(pc.and_(*chosen))


def _same(column: pa.ChunkedArray, value: str | None) -> pa.ChunkedArray:
    return pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False)
