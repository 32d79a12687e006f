"""Files of the driver that executors read, such as indexes: on its own machine where they lie; elsewhere Spark carries
their contents, and each machine keeps them once, by their checksums.

What is read there is unpickled, which may run code. So a machine keeps it in a folder that is closed to other users,
and holds it against its checksum, which the driver tells.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from nearcast.runtime.private_folder import private_folder

if TYPE_CHECKING:
    from pyspark import Broadcast, SparkContext

KEPT = 16
"""Files that a machine keeps: more than batches that are decided at once refer to."""


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file: its `path` on the driver's machine, and where it is carried its `checksum` (BLAKE2b), else empty."""

    path: str
    checksum: str = ""


class CarriedFiles:
    """The files that Spark carries for a driver, each once; and no longer than they are on its disk."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._carried: dict[Path, tuple[str, Broadcast[bytes]]] = {}

    def carry(self, path: Path) -> tuple[SharedFile, Broadcast[bytes]]:
        """The file as executors know it, and its content as Spark carries it."""
        if path not in self._carried:
            content = path.read_bytes()
            self._carried[path] = checksum_of(content), self._context.broadcast(content)
        checksum, broadcast = self._carried[path]
        return SharedFile(str(path), checksum), broadcast

    def forget_removed(self) -> None:
        """Has Spark drop those that are on the disk no more."""
        for path in [path for path in self._carried if not path.exists()]:
            self._carried.pop(path)[1].destroy()


def checksum_of(content: bytes) -> str:
    """What a content is known by."""
    return hashlib.blake2b(content, digest_size=32).hexdigest()


_received: dict[str, Broadcast[bytes]] = {}


def receive(carried: Mapping[str, Broadcast[bytes]]) -> None:
    """On a worker: what is carried for its present task, and nothing else any more."""
    _received.clear()
    _received.update(carried)


def content_of(file: SharedFile) -> bytes:
    """On a worker: what is in a file, where it lies or as it was carried."""
    return _received[file.checksum].value if file.checksum else Path(file.path).read_bytes()


def located(file: SharedFile) -> Path:
    """On a worker: a file of this machine with that content, written if it is not there or not as it was."""
    if not file.checksum:
        return Path(file.path)
    place = _verified(file.checksum)
    if not place.exists():
        _write(place, _received[file.checksum])
    # Those that were used last are kept.
    place.touch()
    return place


@lru_cache(maxsize=KEPT)
def _verified(checksum: str) -> Path:
    """Where a content is on this machine; whoever wrote it, it is read whole once by each process."""
    place = machine_folder() / checksum
    if not (place.exists() and checksum_of(place.read_bytes()) == checksum):
        _write(place, _received[checksum])
    return place


def machine_folder() -> Path:
    """Where a machine keeps files for all workers of a user. Raises SetupError where it is another user's."""
    return private_folder(Path(tempfile.gettempdir(), f"nearcast-shared-{os.getuid()}"))


def _write(place: Path, broadcast: Broadcast[bytes]) -> None:
    descriptor, name = tempfile.mkstemp(prefix="unfinished-", dir=place.parent)
    with open(descriptor, "wb") as file:
        file.write(broadcast.value)
    # Whole before others see it.
    os.replace(name, place)
    if "_path" in vars(broadcast):
        # It is read once more from Spark's own file if it must be: the memory need not have it too.
        vars(broadcast).pop("_value", None)
    # Who has one mapped keeps it; who needs one again writes it again.
    oldest = sorted(place.parent.iterdir(), key=_last_used)[:-KEPT]
    for one in oldest:
        one.unlink(missing_ok=True)


def _last_used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
