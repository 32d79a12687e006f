"""What is known, on disk as Arrow files, versioned by position of the journal; definitions row by row.

`registry.arrow` has who wants what, `repository.arrow` the newest event of every entity, `relations-<n>.arrow` the n-th
shard of the pairs that are related; what else stages keep is in `stages.pickle`, relations there by their names only.

A snapshot only saves time: what is known is a fold over the journal, so the newest snapshot that is not too new, folded
on to where a batch begins, is what is known there; a lost or stale one costs reading, never correctness. A snapshot is
a folder, renamed into place when it is whole.

To write a hundred thousand definitions takes seconds, for which the pipeline would stand still. So a file is made of
the one before it, and of what was defined since.
"""

from __future__ import annotations

import copyreg
import io
import logging
import os
import pickle
import shutil
import zlib
from collections.abc import Iterator
from operator import is_
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather

from nearcast.errors import NearcastError
from nearcast.language.control_events import changes, to_event
from nearcast.model.columns import EVENTS, to_events, to_table
from nearcast.model.relation import Relation
from nearcast.relations.shards import SHARDS, Shard
from nearcast.relations.stored_pairs import restore, stored
from nearcast.stages.fold import StateFold, derived_stages
from nearcast.state.derived import DerivingStage
from nearcast.state.registry import Registry, change_of

ID = "definition"
"""The id of all rows: what was published had its own, and is not asked for any more."""


class WrittenRegistry(NamedTuple):
    """A file and the registry that it has, row by row."""

    file: Path
    registry: Registry

    def has(self, registry: Registry) -> bool:
        """Whether another registry is the same, by the very objects: to compare them takes as long as to write them."""
        own, others = list(self.registry.held()), list(registry.held())
        return len(own) == len(others) and all(map(is_, own, others))


def rows(registry: Registry, before: WrittenRegistry | None = None) -> pa.Table:
    """The rows of a registry; those of definitions that are in a file before are taken from there."""
    old = feather.read_table(str(before.file)) if before else EVENTS.empty_table()
    # None of these goes while the registry before keeps it.
    row_of = {id(one): row for row, one in enumerate(before.registry.held() if before else ())}
    if len(old) != len(row_of):
        # Not row by row what the registry has; no version is known to have written such a file.
        return rows(registry)
    listed = list(registry.held())
    found = np.array([row_of.get(id(one), -1) for one in listed], np.int64)
    new = np.flatnonzero(found < 0)
    fresh = to_table(to_event(change_of(listed[number]), ID, "nearcast") for number in new.tolist())
    found[new] = len(row_of) + np.arange(len(new))
    return pa.concat_tables([old, fresh]).take(found)


def registry_of(rows: pa.Table) -> Registry:
    """The registry that rows fold to. Raises EventError for one that is no control event of this version."""
    registry = Registry()
    for event in to_events(rows):
        for change in changes(event, registry.settings):
            registry.apply(change)
    return registry


log = logging.getLogger("nearcast.pipeline")

KEPT = 2
"""Snapshots that stay: the newest, and one before it in case a batch is asked for again."""


REGISTRY = "registry.arrow"
FORMAT = b"format 2\n"
"""In front of the checksums: what a snapshot means. One that was written before is left out, and the journal read."""

CHECKSUMS = "checksums"
"""The file of a snapshot that tells the others' checksums. Arrow trusts what it reads: a file that is damaged in its
middle may end the process, which then would be started again and again only to end in the same way."""

UNREADABLE = (
    pa.ArrowException,
    OSError,
    NearcastError,
    pickle.UnpicklingError,
    EOFError,
    AttributeError,
    ImportError,
    KeyError,
)
"""What reading a snapshot raises that is damaged, or was written by another version."""


def ready_file(folder: Path) -> Path:
    """A file in a pipeline's folder, there while the pipeline reads the journal."""
    return folder / "ready"


class StateSnapshot(NamedTuple):
    """A snapshot that was written, and a copy of the registry that it has; None if it was there already."""

    folder: Path
    registry: Registry | None

    def whole(self) -> WrittenRegistry | None:
        """Its definitions, if their file is as it was written."""
        file = self.folder / REGISTRY
        return WrittenRegistry(file, self.registry) if self.registry and _is_whole(file) else None


def named(folder: Path, position: int) -> Path:
    """The snapshot of a position."""
    # Padded with zeros, names sort as positions do.
    return folder / f"{position:020d}"


def save(known: StateFold, folder: Path, last: StateSnapshot | None = None) -> StateSnapshot:
    """Writes what is known as the snapshot of its position, and removes those that are out of date.

    What is defined as in the `last` one is taken from there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target, written = named(folder, known.position), None
    if not target.exists():
        # Left by a process that was killed while it wrote; a folder has one pipeline at a time.
        for left in folder.glob("unfinished-*"):
            shutil.rmtree(left, ignore_errors=True)
        unfinished = folder / f"unfinished-{os.getpid()}"
        unfinished.mkdir()
        _write_registry(known.registry, unfinished / REGISTRY, last.whole() if last else None)
        feather.write_feather(known.repository.newest(), str(unfinished / "repository.arrow"), "lz4")
        for number, pairs in enumerate(stored(known.pairings)):
            feather.write_feather(pairs, str(unfinished / f"relations-{number}.arrow"), "lz4")
        (unfinished / "stages.pickle").write_bytes(_stages(known))
        (unfinished / CHECKSUMS).write_bytes(_checksums(unfinished))
        unfinished.rename(target)
        written = known.registry.copy()
    for old in sorted(_snapshots(folder))[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return StateSnapshot(target, written)


def _write_registry(registry: Registry, file: Path, before: WrittenRegistry | None) -> None:
    """Writes the file of definitions; where nothing was defined since, the one before gets a second name."""
    if before and before.has(registry):
        try:
            os.link(before.file, file)
            return
        except OSError:
            # A disk that cannot do that.
            pass
    feather.write_feather(rows(registry, before), str(file), "lz4")


def _checksums(snapshot: Path) -> bytes:
    """A line for each file but the checksums' own, behind that of the format."""
    return FORMAT + b"".join(_checksum(file) for file in sorted(snapshot.iterdir()) if file.name != CHECKSUMS)


def _checksum(file: Path) -> bytes:
    return f"{zlib.crc32(file.read_bytes()):08x} {file.name}\n".encode()


def _is_whole(file: Path) -> bool:
    """Whether a file is as its snapshot's checksums say. What is damaged would get a checksum of its own."""
    try:
        return _checksum(file) in (file.parent / CHECKSUMS).read_bytes()
    except OSError:
        return False


def _stages(known: StateFold) -> bytes:
    target = io.BytesIO()
    _StagePickler(target, known.registry).dump(known.stages)
    return target.getvalue()


def stages_of(snapshot: Path, registry: Registry) -> list[DerivingStage]:
    """The stages that a snapshot has, without pairs, their relations being a registry's."""
    found: list[DerivingStage] = _StageUnpickler((snapshot / "stages.pickle").read_bytes(), registry).load()
    return found


class _StagePickler(pickle.Pickler):
    """Pickles stages without what other files have: relations as the registry has them, the rows of shards."""

    dispatch_table = copyreg.dispatch_table | {Shard: lambda _: (Shard, ())}

    def __init__(self, target: io.BytesIO, registry: Registry) -> None:
        super().__init__(target, protocol=5)
        self._relations = registry.relations

    def persistent_id(self, found: object) -> str | None:
        """The name of a relation, if it is the very one that the registry has by it."""
        return found.id if isinstance(found, Relation) and self._relations.get(found.id) is found else None


class _StageUnpickler(pickle.Unpickler):
    """Reads stages that know the registry's relations."""

    def __init__(self, pickled: bytes, registry: Registry) -> None:
        super().__init__(io.BytesIO(pickled))
        self._relations = registry.relations

    def persistent_load(self, id: str) -> Relation:
        return self._relations[id]


def load(folder: Path, at_most: int, shards: int = SHARDS) -> StateFold:
    """What was known at the newest snapshot that is not after this position; nothing, as of 0, if there is none.

    Pairs that are related are in so many shards, however many the snapshot has.
    """
    for snapshot in sorted(_snapshots(folder), reverse=True):
        if int(snapshot.name) <= at_most:
            try:
                return _known(snapshot, shards)
            except UNREADABLE as error:
                # After a loss of power a file may be empty. Out of the way, for `save` takes what is there for good.
                log.warning("snapshot left out path=%s error=%r; the journal is read instead", snapshot, error)
                shutil.rmtree(snapshot, ignore_errors=True)
    return StateFold(stages=derived_stages(shards))


def drop_beyond(folder: Path, position: int) -> None:
    """Removes the snapshots of later positions than this, behind which the pipeline goes on.

    Mostly they are right. But a journal may end earlier than it did, after a loss of power, or because a copy of it was
    put in its place: then other events take those positions, and a later start would take the snapshot for theirs.
    """
    for snapshot in list(_snapshots(folder)):
        if int(snapshot.name) > position:
            log.warning("snapshot left out path=%s; deliveries end at %d", snapshot, position)
            shutil.rmtree(snapshot, ignore_errors=True)


def _known(snapshot: Path, shards: int) -> StateFold:
    if (snapshot / CHECKSUMS).read_bytes() != _checksums(snapshot):
        raise OSError("its files are not as they were written")
    registry = registry_of(feather.read_table(str(snapshot / REGISTRY)))
    repository = feather.read_table(str(snapshot / "repository.arrow"))
    if not repository.schema.equals(EVENTS):
        raise pa.ArrowInvalid("expected the columns of this version")
    stages = stages_of(snapshot, registry)
    known = StateFold(registry, repository, int(snapshot.name), stages)
    count = max((len(pairing.shards) for pairing in known.pairings.values()), default=0)
    files = (snapshot / f"relations-{number}.arrow" for number in range(count))
    restore(known.pairings, [feather.read_table(str(file)) for file in files], shards)
    return known


def _snapshots(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if path.name.isdigit()) if folder.exists() else iter(())
