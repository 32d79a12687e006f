"""What is known, on disk as Arrow files and JSON, versioned by position of the journal; definitions row by row.

`registry.arrow` has who wants what, `repository.arrow` the newest event of every entity, `relations-<n>.arrow` the n-th
shard of the pairs that are related; what else stages keep is in `stages.json` and in tables beside it, definitions
there by their names only. `manifest.json` has the format and a checksum of every file. Nothing that is read is code.

A snapshot only saves time: what is known is a fold over the journal, so the newest snapshot that is not too new, folded
on to where a batch begins, is what is known there; a lost or stale one costs reading, never correctness. A snapshot is
a folder, renamed into place when it is whole.

To write a hundred thousand definitions takes seconds, for which the pipeline would stand still. So a file is made of
the one before it, and of what was defined since.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.feather as feather

from nearcast.language.control_events import changes
from nearcast.language.definitions.registry_rows import WrittenRegistry, held_rows, registry_of, registry_rows
from nearcast.model.changes import (
    ActionChange,
    RelationChange,
    SettingsChange,
    SituationChange,
)
from nearcast.model.columns import EVENTS, to_events
from nearcast.pipeline.captured_state import CapturedStage, CapturedState, captured
from nearcast.relations.lanes.stored_pairs import restore
from nearcast.relations.lanes.stored_scopes import scopes_of
from nearcast.relations.shards import SHARDS
from nearcast.runtime.private_folder import private_folder
from nearcast.situations.stored_situations import situations_of
from nearcast.stages.fold import StateFold, derived_stages
from nearcast.state.derived import DerivingStage
from nearcast.state.registry import Held, Registry
from nearcast.state.stage_documents import StageDocument
from nearcast.zones.stored_zones import zones_of

log = logging.getLogger("nearcast.pipeline")

KEPT = 2
"""Snapshots that stay: the newest, and one before it in case a batch is asked for again."""


FORMAT = 10
"""The format of snapshots that this version writes, and the only one that it reads. It changes with what is in them."""

REGISTRY, STAGES = "registry.arrow", "stages.json"
MANIFEST = "manifest.json"
"""The file of a snapshot that tells its format and the others' checksums. Arrow trusts what it reads: a file that is
damaged in its middle may end the process, which then would be started again and again only to end in the same way."""


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
    """Writes what is known as the snapshot of its position; see `write_snapshot`."""
    return write_snapshot(captured(known), folder, last)


def write_snapshot(state: CapturedState, folder: Path, last: StateSnapshot | None = None) -> StateSnapshot:
    """Writes what was known as the snapshot of its position, and removes those that are out of date.

    What is defined as in the `last` one is taken from there. A folder has one pipeline, which writes one at a time.
    """
    private_folder(folder)
    target, written = named(folder, state.position), None
    if not target.exists():
        # Left by a process that was killed while it wrote.
        for left in folder.glob("unfinished-*"):
            shutil.rmtree(left, ignore_errors=True)
        unfinished = folder / f"unfinished-{os.getpid()}"
        unfinished.mkdir()
        _write_registry(state.registry, unfinished / REGISTRY, last.whole() if last else None)
        feather.write_feather(state.repository.newest(), str(unfinished / "repository.arrow"), "lz4")
        for number, pairs in enumerate(state.pairs):
            feather.write_feather(pairs, str(unfinished / f"relations-{number}.arrow"), "lz4")
        _write_stages(state.stages, unfinished)
        (unfinished / MANIFEST).write_bytes(_manifest(unfinished))
        unfinished.rename(target)
        written = state.registry
    for old in sorted(_snapshots(folder))[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return StateSnapshot(target, written)


@contextmanager
def unfinished_snapshot(folder: Path) -> Iterator[Path]:
    """A folder, in one of snapshots, for the files of one that is brought there; what is not renamed by then goes."""
    private_folder(folder)
    unfinished = folder / f"unfinished-{os.getpid()}"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        yield unfinished
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _write_registry(registry: Registry, file: Path, before: WrittenRegistry | None) -> None:
    """Writes the file of definitions; where nothing was defined since, the one before gets a second name."""
    if before and before.has(registry):
        try:
            os.link(before.file, file)
            return
        except OSError:
            # A disk that cannot do that.
            pass
    feather.write_feather(registry_rows(registry, before), str(file), "lz4")


def _manifest(snapshot: Path) -> bytes:
    """The format, and a checksum of each file but the manifest itself."""
    files = {file.name: _checksum(file) for file in sorted(snapshot.iterdir()) if file.name != MANIFEST}
    return orjson.dumps({"format": FORMAT, "files": files}, option=orjson.OPT_INDENT_2)


def _checksum(file: Path) -> str:
    return hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()


def manifest_files(manifest: bytes) -> dict[str, str]:
    """The checksums of a snapshot's files, by their names. Raises ValueError for a manifest of another format."""
    found = orjson.loads(manifest)
    written = found.get("format") if isinstance(found, dict) else None
    if written != FORMAT:
        raise ValueError(f"its format is {written}, this version reads {FORMAT}")
    files: dict[str, str] = found["files"]
    return files


def check_manifest(snapshot: Path) -> None:
    """Raises ValueError where a snapshot is of another format, or its files are not as they were written."""
    manifest_files((snapshot / MANIFEST).read_bytes())
    if (snapshot / MANIFEST).read_bytes() != _manifest(snapshot):
        raise ValueError("its files are not as they were written")


def _is_whole(file: Path) -> bool:
    """Whether a file is as its snapshot's manifest says. What is damaged would get a checksum of its own."""
    try:
        found: bool = orjson.loads((file.parent / MANIFEST).read_bytes())["files"][file.name] == _checksum(file)
        return found
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _write_stages(stages: Sequence[CapturedStage], snapshot: Path) -> None:
    """Writes what the stages keep: their values together, each table and the definitions of each in a file."""
    values: dict[str, Any] = {}
    for name, own, tables, definitions in stages:
        values[name] = {"values": orjson.Fragment(own), "tables": list(tables)}
        for table, rows_ in tables.items():
            feather.write_feather(rows_, str(snapshot / f"{name}-{table}.arrow"), "lz4")
        if definitions:
            feather.write_feather(held_rows(definitions), str(snapshot / f"{name}-definitions.arrow"), "lz4")
    (snapshot / STAGES).write_bytes(orjson.dumps(values))


def stages_of(snapshot: Path, registry: Registry, shards: int = SHARDS) -> list[DerivingStage]:
    """The stages that a snapshot has, without pairs, what is defined being a registry's."""
    values = orjson.loads((snapshot / STAGES).read_bytes())
    names = ("scopes", "zones", "situations")
    scopes, zones, situations = (_document_in(snapshot, name, values[name], registry) for name in names)
    return [scopes_of(scopes, registry, shards), zones_of(zones, registry), situations_of(situations, registry)]


def _document_in(snapshot: Path, name: str, found: dict[str, Any], registry: Registry) -> StageDocument:
    tables = {table: feather.read_table(str(snapshot / f"{name}-{table}.arrow")) for table in found["tables"]}
    file = snapshot / f"{name}-definitions.arrow"
    return StageDocument(found["values"], tables, list(_definitions(file, registry)) if file.exists() else [])


def _definitions(file: Path, registry: Registry) -> Iterator[Held]:
    """What a stage goes by that the registry has otherwise now: a rule that was refused leaves the one before."""
    for event in to_events(feather.read_table(str(file))):
        for change in changes(event, registry.settings):
            match change:
                case RelationChange(held) | SituationChange(held) | ActionChange(held) | SettingsChange(held):
                    yield held


def load(folder: Path, at_most: int, shards: int = SHARDS) -> StateFold:
    """What was known at the newest snapshot that is not after this position; nothing, as of 0, if there is none.

    Pairs that are related are in so many shards, however many the snapshot has.
    """

    def leave_out(snapshot: Path, error: Exception) -> None:
        # Out of the way: `save` takes what is there for good.
        log.warning("snapshot left out path=%s error=%r; the journal is read instead", snapshot, error)
        shutil.rmtree(snapshot, ignore_errors=True)

    return _newest(folder, at_most, shards, leave_out) or StateFold(stages=derived_stages(shards))


def read_snapshot(folder: Path, at_most: int) -> StateFold | None:
    """The same for who only reads beside a pipeline: None if there is none, and nothing is removed."""

    def pass_over(snapshot: Path, error: Exception) -> None:
        # It may also have been replaced meanwhile by a newer one.
        log.info("snapshot not read path=%s error=%r; the journal is read instead", snapshot, error)

    return _newest(folder, at_most, SHARDS, pass_over)


def _newest(folder: Path, at_most: int, shards: int, unreadable: Callable[[Path, Exception], None]) -> StateFold | None:
    """What the newest snapshot says that can be read; those newer that cannot be are told to `unreadable`."""
    for snapshot in sorted(_snapshots(folder), reverse=True):
        if int(snapshot.name) <= at_most:
            try:
                return _known(snapshot, shards)
            except Exception as error:
                # After a loss of power a file may be empty, and of another version anything. It only saves time, so
                # whatever is wrong with it must stop nothing.
                unreadable(snapshot, error)
    return None


def newest_position(folder: Path, at_most: float = math.inf) -> int:
    """The position of the newest snapshot in a folder, not after another; 0 if there is none."""
    return max((at for snapshot in _snapshots(folder) if (at := int(snapshot.name)) <= at_most), default=0)


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
    check_manifest(snapshot)
    registry = registry_of(feather.read_table(str(snapshot / REGISTRY)))
    repository = feather.read_table(str(snapshot / "repository.arrow"))
    if not repository.schema.equals(EVENTS):
        raise pa.ArrowInvalid("expected the columns of this version")
    known = StateFold(registry, repository, int(snapshot.name), stages_of(snapshot, registry, shards))
    # Which there are the manifest says: one that is lost is not as it was written.
    files = sorted(snapshot.glob("relations-*.arrow"))
    restore(known.pairings, [feather.read_table(str(file)) for file in files], shards)
    return known


def _snapshots(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if path.name.isdigit()) if folder.exists() else iter(())
