"""Snapshots in the object store of a journal, so that a machine that takes over goes on from where another one was.

A snapshot is its manifest, by the journal's identity and the position, and its files, by their checksums: a file that
the one before has too, such as that of a hundred thousand definitions, is written once. The newest two are kept.

As those on the disk, they only save time: what cannot be read is passed over, and the journal is read instead.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

from nearcast.errors import JournalError
from nearcast.journal.jetstream.stream_objects import DamagedObject, StreamObjects
from nearcast.journal.seam import Journal
from nearcast.pipeline.snapshots import KEPT, MANIFEST, check_manifest, manifest_files, named, unfinished_snapshot

log = logging.getLogger("nearcast.pipeline")

PART = 8 << 20
"""Bytes of a file that are read at once."""

END_SECONDS = 10.0
"""That the end of a pipeline waits for its last snapshot to be stored."""

FAILURES = (JournalError, DamagedObject, OSError, ValueError, LookupError, TypeError)
"""What an object store, or what lies in it, may be to blame for."""


class StoredSnapshots:
    """The snapshots of one journal in its object store. One pipeline at a time writes them."""

    def __init__(self, objects: StreamObjects, identity: str) -> None:
        self._objects, self._identity = objects, identity
        self._storing = threading.Lock()
        self._newest: Path | None = None
        self._thread: threading.Thread | None = None

    def positions(self) -> list[int]:
        """At which positions there are snapshots, ascending."""
        begin = f"{self._identity}/at/"
        found = (name.removeprefix(begin) for name in self._objects.names() if name.startswith(begin))
        return sorted(int(position) for position in found if position.isdigit())

    def fetch(self, folder: Path, after: int, at_most: int) -> int | None:
        """Brings the newest snapshot that can be read, and is between two positions, into a folder; its position."""
        try:
            found = [one for one in self.positions() if after < one <= at_most]
        except FAILURES as error:
            log.warning("stored snapshots not found error=%r; the journal is read instead", error)
            return None
        for position in reversed(found):
            try:
                self._fetch(folder, position)
            except FAILURES as error:
                log.warning("stored snapshot not read position=%d error=%r", position, error)
            else:
                log.info("snapshot fetched position=%d", position)
                return position
        return None

    def _fetch(self, folder: Path, position: int) -> None:
        manifest = b"".join(self._objects.get(self._snapshot(position)))
        with unfinished_snapshot(folder) as unfinished:
            for name, checksum in manifest_files(manifest).items():
                if Path(name).name != name:
                    raise ValueError(f"expected the name of a file, got {name!r}")
                with (unfinished / name).open("wb") as file:
                    file.writelines(self._objects.get(self._file(checksum)))
            (unfinished / MANIFEST).write_bytes(manifest)
            check_manifest(unfinished)
            unfinished.rename(named(folder, position))

    def drop_beyond(self, position: int) -> None:
        """Removes those of later positions: the journal ends earlier than it did, and goes on with other events."""
        try:
            self._objects.remove(self._snapshot(one) for one in self.positions() if one > position)
        except FAILURES as error:
            log.warning("stored snapshots not removed beyond=%d error=%r", position, error)

    def submit(self, snapshot: Path) -> None:
        """Has a snapshot stored by a thread; of several that come meanwhile the newest."""
        with self._storing:
            self._newest = snapshot
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="nearcast-snapshots", daemon=True)
                self._thread.start()

    def finish(self) -> None:
        """Waits until what was submitted is stored, not for long."""
        thread = self._thread
        if thread:
            thread.join(END_SECONDS)

    def _run(self) -> None:
        while True:
            with self._storing:
                snapshot, self._newest = self._newest, None
                if snapshot is None:
                    self._thread = None
                    return
            try:
                self.store(snapshot)
            except FAILURES as error:
                log.warning("snapshot not stored path=%s error=%r; another machine reads more", snapshot, error)

    def store(self, snapshot: Path) -> None:
        """Writes a snapshot, and removes what is older than the one before. Raises what `FAILURES` names."""
        manifest = (snapshot / MANIFEST).read_bytes()
        there = set(self._objects.names())
        for name, checksum in manifest_files(manifest).items():
            if self._file(checksum) not in there:
                self._objects.put(self._file(checksum), _parts(snapshot / name))
        # Last: what it names is there by then.
        self._objects.put(self._snapshot(int(snapshot.name)), [manifest])
        self._remove_older()
        log.info("snapshot stored position=%d", int(snapshot.name))

    def _remove_older(self) -> None:
        kept = [self._snapshot(position) for position in self.positions()[-KEPT:]]
        wanted = set(kept)
        for name in kept:
            # Of another version's snapshot nobody knows what it needs: it goes as a whole.
            try:
                files = manifest_files(b"".join(self._objects.get(name)))
            except (DamagedObject, ValueError, LookupError, TypeError):
                wanted.discard(name)
            else:
                wanted.update(self._file(checksum) for checksum in files.values())
        self._objects.remove(name for name in self._objects.names() if name not in wanted)
        self._objects.remove_unfinished()

    def _snapshot(self, position: int) -> str:
        return f"{self._identity}/at/{position:020d}"

    def _file(self, checksum: str) -> str:
        return f"{self._identity}/files/{checksum}"


def _parts(file: Path) -> Iterator[bytes]:
    with file.open("rb") as content:
        while part := content.read(PART):
            yield part


def snapshots_in(journal: Journal) -> StoredSnapshots | None:
    """Where a journal keeps snapshots for every machine; None: it does not."""
    objects = journal.objects
    return StoredSnapshots(objects, journal.identity) if objects else None
