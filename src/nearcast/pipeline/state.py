"""What is known, kept on disk as Arrow files, versioned by position of the journal.

A snapshot only saves time: what is known is a fold over the journal, so the newest snapshot that is not too new, folded
on to where a batch begins, is what is known there; a lost or stale one costs reading, never correctness. A snapshot is
a folder, renamed into place when it is whole.
"""

from __future__ import annotations

import logging
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather

from nearcast.decision.known import Known
from nearcast.decision.registry import Registry
from nearcast.errors import NearcastError
from nearcast.language.control import changes, to_event
from nearcast.model.columns import EVENTS, to_events, to_table

log = logging.getLogger("nearcast.pipeline")

KEPT = 2
"""Snapshots that stay: the newest, and one before it in case a batch is asked for again."""


UNREADABLE = (pa.ArrowException, OSError, NearcastError, pickle.UnpicklingError, EOFError, AttributeError, ImportError)
"""What reading a snapshot raises that is damaged, or was written by another version."""


def ready_file(folder: Path) -> Path:
    """A file in a pipeline's folder, there while the pipeline reads the journal."""
    return folder / "ready"


def save(known: Known, folder: Path) -> Path:
    """Writes what is known as the snapshot of its position, and removes those that are out of date."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{known.position:020d}"
    if not target.exists():
        # Left by a process that was killed while it wrote; a folder has one pipeline at a time.
        for left in folder.glob("unfinished-*"):
            shutil.rmtree(left, ignore_errors=True)
        unfinished = folder / f"unfinished-{os.getpid()}"
        unfinished.mkdir()
        feather.write_feather(_registry_rows(known.registry), str(unfinished / "registry.arrow"), "lz4")
        feather.write_feather(known.repository.newest(), str(unfinished / "repository.arrow"), "lz4")
        (unfinished / "stages.pickle").write_bytes(pickle.dumps(known.stages, protocol=5))
        unfinished.rename(target)
    for old in sorted(_snapshots(folder))[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def load(folder: Path, at_most: int) -> Known:
    """What was known at the newest snapshot that is not after this position; nothing, as of 0, if there is none."""
    # Names are padded with zeros, so they sort as their positions do.
    for snapshot in sorted(_snapshots(folder), reverse=True):
        if int(snapshot.name) <= at_most:
            try:
                return _known(snapshot)
            except UNREADABLE as error:
                # After a loss of power a file may be empty. Out of the way, for `save` takes what is there for good.
                log.warning("snapshot left out path=%s error=%r; the journal is read instead", snapshot, error)
                shutil.rmtree(snapshot, ignore_errors=True)
    return Known()


def _known(snapshot: Path) -> Known:
    registry = _registry(feather.read_table(str(snapshot / "registry.arrow")))
    repository = feather.read_table(str(snapshot / "repository.arrow"))
    if not repository.schema.equals(EVENTS):
        raise pa.ArrowInvalid("expected the columns of this version")
    stages = pickle.loads((snapshot / "stages.pickle").read_bytes())
    return Known(registry, repository, int(snapshot.name), stages)


def _snapshots(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if path.name.isdigit()) if folder.exists() else iter(())


def _registry_rows(registry: Registry) -> pa.Table:
    """The registry as the control events that fold to it."""
    return to_table(to_event(change, str(number), "nearcast") for number, change in enumerate(registry.changes()))


def _registry(rows: pa.Table) -> Registry:
    registry = Registry()
    for event in to_events(rows):
        for change in changes(event, registry.settings):
            registry.apply(change)
    return registry
