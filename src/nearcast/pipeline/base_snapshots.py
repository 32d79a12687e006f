"""The snapshot that a journal's log of events begins with: made of one on the disk, and put back there.

A start whose own snapshots are older than the log begins with it; so does whoever only wants to know what was defined.
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather

from nearcast.errors import Fault, SetupError
from nearcast.journal.seam import Journal
from nearcast.journal.snapshot_log import ACTIVE, REGISTRY, STATED, base_table, put_base, write_base
from nearcast.language.definitions.registry_rows import apply_event, control_events_of, registry_of, registry_rows
from nearcast.pipeline.snapshots import (
    check_manifest,
    load,
    named,
    newest_position,
    unfinished_snapshot,
)
from nearcast.stages.fold import StateFold
from nearcast.state.held_derivations import HeldDerivations
from nearcast.state.registry import Registry

STRETCH = 100_000
"""Positions that are read at once."""

DERIVED_STRETCH = 10_000
"""And of derived events, of which each position may have many."""

STATED_SOURCE = "definitions"
"""The source of the control events that definition files become."""


def store_base(journal: Journal, snapshot: Path) -> None:
    """Makes a snapshot on the disk that of the journal. Raises `ValueError` where it is not as it was written."""
    check_manifest(snapshot)
    position = int(snapshot.name)
    files = {file.name: file.read_bytes() for file in snapshot.iterdir()}
    stated = _written(registry_rows(stated_until(journal, position)))
    put_base(journal, position, {**files, STATED: stated, ACTIVE: _written(active_until(journal, position))})


def _written(rows: pa.Table) -> bytes:
    file = io.BytesIO()
    feather.write_feather(rows, file, "lz4")
    return file.getvalue()


def active_until(journal: Journal, position: int) -> pa.Table:
    """What holds at a position, as derived events tell it, also those of which the journal lets go: rows of HELD."""
    after, rows = base_table(journal, ACTIVE)
    held = HeldDerivations(rows=rows)
    # Without such a file all that is there is read: a version before wrote none.
    after = after if rows is not None else 0
    # Their end may be behind: where nothing was derived for long.
    through = min(position, journal.end("derived"))
    for derived in journal.row_ranges("derived", after, through, DERIVED_STRETCH):
        held.fold(derived)
    return held.rows()


def stated_until(journal: Journal, position: int) -> Registry:
    """What definition files said of clients up to a position, without what clients said since."""
    after, table = base_table(journal, STATED)
    stated = registry_of(table) if table is not None else Registry()
    for event in control_events_of(journal.row_ranges("events", after, position, STRETCH)):
        if event.source == STATED_SOURCE:
            apply_event(stated, event, clients_only=True)
    return stated


def registry_until(journal: Journal) -> tuple[int, Registry]:
    """What is defined as of the journal's snapshot, and its position; nothing, and 0, without one."""
    position, table = base_table(journal, REGISTRY)
    return position, Registry() if table is None else registry_of(table)


def loaded(journal: Journal, folder: Path, at: int, shards: int) -> StateFold:
    """What was known at the newest snapshot that is not after a position, of the folder or the journal.

    Raises `SetupError` where the journal has let go of events that came after it.
    """
    known = load(folder, at, shards)
    gone = journal.trimmed("events")
    if known.position < gone and restore_base(journal, folder):
        known = load(folder, at, shards)
    if known.position < gone:
        came = f"none of this version's format from there on (the newest is of {newest_position(folder):,})"
        advice = "use the version that wrote it, or a copy of the data folder"
        raise SetupError(str(Fault(f"a snapshot at {gone:,} or later, where the events begin", came, advice=advice)))
    return known


def restore_base(journal: Journal, folder: Path) -> int:
    """Writes the journal's snapshot into a folder of snapshots; its position, 0 where there is none that can be read.

    Where there is one of the same position it replaces that.
    """
    with unfinished_snapshot(folder) as unfinished:
        try:
            position = write_base(journal, unfinished)
            if not position:
                return 0
            # They are no part of the snapshot, so its manifest does not tell of them.
            for own in (STATED, ACTIVE):
                (unfinished / own).unlink(missing_ok=True)
            check_manifest(unfinished)
            shutil.rmtree(named(folder, position), ignore_errors=True)
            unfinished.rename(named(folder, position))
            return position
        except (OSError, ValueError, LookupError, TypeError, pa.ArrowException):
            return 0
