"""What is known, kept on disk as Arrow files, versioned by position of the journal.

`registry.arrow` has who wants what, `repository.arrow` the newest event of every entity, `relations-<n>.arrow` the n-th
shard of the pairs that are related; what else stages keep is in `stages.pickle`, relations there by their names only.

A snapshot only saves time: what is known is a fold over the journal, so the newest snapshot that is not too new, folded
on to where a batch begins, is what is known there; a lost or stale one costs reading, never correctness. A snapshot is
a folder, renamed into place when it is whole.
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
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather

from nearcast.decision.derived import Deriving
from nearcast.decision.known import Known, derived_stages
from nearcast.decision.registry import Registry
from nearcast.decision.relate.shard import SHARDS, Shard
from nearcast.decision.relate.stored import restore, stored
from nearcast.errors import NearcastError
from nearcast.language.control import changes, to_event
from nearcast.model.columns import EVENTS, to_events, to_table
from nearcast.model.relation import Relation

log = logging.getLogger("nearcast.pipeline")

KEPT = 2
"""Snapshots that stay: the newest, and one before it in case a batch is asked for again."""


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


def save(known: Known, folder: Path, same: Path | None = None) -> Path:
    """Writes what is known as the snapshot of its position, and removes those that are out of date.

    `same` is a snapshot with the same registry, if there is one: to write a hundred thousand definitions takes seconds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{known.position:020d}"
    if not target.exists():
        # Left by a process that was killed while it wrote; a folder has one pipeline at a time.
        for left in folder.glob("unfinished-*"):
            shutil.rmtree(left, ignore_errors=True)
        unfinished = folder / f"unfinished-{os.getpid()}"
        unfinished.mkdir()
        if same is None or not _linked(same / "registry.arrow", unfinished):
            feather.write_feather(_registry_rows(known.registry), str(unfinished / "registry.arrow"), "lz4")
        feather.write_feather(known.repository.newest(), str(unfinished / "repository.arrow"), "lz4")
        for number, pairs in enumerate(stored(known.pairings)):
            feather.write_feather(pairs, str(unfinished / f"relations-{number}.arrow"), "lz4")
        (unfinished / "stages.pickle").write_bytes(_stages(known))
        (unfinished / CHECKSUMS).write_bytes(_checksums(unfinished))
        unfinished.rename(target)
    for old in sorted(_snapshots(folder))[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def _checksums(snapshot: Path) -> bytes:
    """A line for each file but the checksums' own."""
    return b"".join(_checksum(file) for file in sorted(snapshot.iterdir()) if file.name != CHECKSUMS)


def _checksum(file: Path) -> bytes:
    return f"{zlib.crc32(file.read_bytes()):08x} {file.name}\n".encode()


def _linked(file: Path, folder: Path) -> bool:
    """Makes a file of a snapshot one of a folder's too, if it is as it was written and the disk can do that."""
    try:
        # Else what is damaged would get a checksum of its own.
        whole = _checksum(file) in (file.parent / CHECKSUMS).read_bytes()
        if whole:
            os.link(file, folder / file.name)
    except OSError:
        return False
    return whole


def _stages(known: Known) -> bytes:
    target = io.BytesIO()
    _Pickler(target, known.registry).dump(known.stages)
    return target.getvalue()


def stages_of(snapshot: Path, registry: Registry) -> list[Deriving]:
    """The stages that a snapshot has, without pairs, their relations being a registry's."""
    found: list[Deriving] = _Unpickler((snapshot / "stages.pickle").read_bytes(), registry).load()
    return found


class _Pickler(pickle.Pickler):
    """Pickles stages without what other files have: relations as the registry has them, the rows of shards."""

    dispatch_table = copyreg.dispatch_table | {Shard: lambda _: (Shard, ())}

    def __init__(self, target: io.BytesIO, registry: Registry) -> None:
        super().__init__(target, protocol=5)
        self._relations = registry.relations

    def persistent_id(self, found: object) -> str | None:
        """The name of a relation, if it is the very one that the registry has by it."""
        return found.id if isinstance(found, Relation) and self._relations.get(found.id) is found else None


class _Unpickler(pickle.Unpickler):
    """Reads stages that know the registry's relations."""

    def __init__(self, pickled: bytes, registry: Registry) -> None:
        super().__init__(io.BytesIO(pickled))
        self._relations = registry.relations

    def persistent_load(self, id: str) -> Relation:
        return self._relations[id]


def load(folder: Path, at_most: int, shards: int = SHARDS) -> Known:
    """What was known at the newest snapshot that is not after this position; nothing, as of 0, if there is none.

    Pairs that are related are in so many shards, however many the snapshot has.
    """
    # Names are padded with zeros, so they sort as their positions do.
    for snapshot in sorted(_snapshots(folder), reverse=True):
        if int(snapshot.name) <= at_most:
            try:
                return _known(snapshot, shards)
            except UNREADABLE as error:
                # After a loss of power a file may be empty. Out of the way, for `save` takes what is there for good.
                log.warning("snapshot left out path=%s error=%r; the journal is read instead", snapshot, error)
                shutil.rmtree(snapshot, ignore_errors=True)
    return Known(stages=derived_stages(shards))


def drop_beyond(folder: Path, position: int) -> None:
    """Removes the snapshots of later positions than this, behind which the pipeline goes on.

    Mostly they are right. But a journal may end earlier than it did, after a loss of power, or because a copy of it was
    put in its place: then other events take those positions, and a later start would take the snapshot for theirs.
    """
    for snapshot in list(_snapshots(folder)):
        if int(snapshot.name) > position:
            log.warning("snapshot left out path=%s; deliveries end at %d", snapshot, position)
            shutil.rmtree(snapshot, ignore_errors=True)


def _known(snapshot: Path, shards: int) -> Known:
    if (snapshot / CHECKSUMS).read_bytes() != _checksums(snapshot):
        raise OSError("its files are not as they were written")
    registry = _registry(feather.read_table(str(snapshot / "registry.arrow")))
    repository = feather.read_table(str(snapshot / "repository.arrow"))
    if not repository.schema.equals(EVENTS):
        raise pa.ArrowInvalid("expected the columns of this version")
    stages = stages_of(snapshot, registry)
    known = Known(registry, repository, int(snapshot.name), stages)
    count = max((len(pairing.shards) for pairing in known.pairings.values()), default=0)
    files = (snapshot / f"relations-{number}.arrow" for number in range(count))
    restore(known.pairings, [feather.read_table(str(file)) for file in files], shards)
    return known


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
