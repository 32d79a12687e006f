"""What every worker needs and few batches change: a file that is written once, and mapped by those who read it.

A value is pickled, its arrays apart from it and side by side in the file: who maps it has them without a copy, in
memory that all processes of a machine share. A file is renamed into place when it is whole, and goes with its index.

What is unpickled may run code. So these files are of one run, in a folder that is closed to other users, and are told
to workers by the process that wrote them; nothing of an earlier run is read.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import struct
import weakref
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from tempfile import mkstemp
from typing import Any, Final

from nearcast.matching.matcher import FilterMatcher
from nearcast.runtime.private_folder import private_folder

ALIGNED: Final = 64
"""Arrays begin at multiples of it, as the kernels' vectors like it."""

KEPT = 8
"""Mapped files that a worker keeps."""


def write(value: object, path: Path) -> None:
    """Writes a value so that `read` gives it again; whoever reads meanwhile has the old file or the new one."""
    arrays: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=arrays.append)
    views = [array.raw() for array in arrays]
    descriptor, name = mkstemp(prefix="unfinished-", dir=path.parent)
    with open(descriptor, "wb") as file:
        file.write(struct.pack(f"<{len(views) + 2}q", len(views), len(head), *(view.nbytes for view in views)))
        file.write(head)
        for view in views:
            file.seek(_aligned(file.tell()))
            file.write(view)
    os.replace(name, path)


def read(path: Path) -> Any:
    """The value of a file, its arrays mapped. Changing them changes nothing in the file."""
    with open(path, "rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    count, length = struct.unpack_from("<2q", mapped)
    sizes = struct.unpack_from(f"<{count}q", mapped, 16)
    at = 16 + 8 * count
    head, at = mapped[at : at + length], at + length
    arrays = []
    for size in sizes:
        at = _aligned(at)
        arrays.append(mapped[at : at + size])
        at += size
    return pickle.loads(head, buffers=arrays)


def _aligned(at: int) -> int:
    return -(-at // ALIGNED) * ALIGNED


class IndexShelf:
    """A folder with the files of indexes, each written when it is first needed and removed when the index is gone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: weakref.WeakKeyDictionary[FilterMatcher, tuple[Path, bool]] = weakref.WeakKeyDictionary()

    def dumps(self, value: object, position: int, paths: set[Path] | None = None) -> bytes:
        """A pickled value in which the large indexes are the paths of their files, named by a position; `paths` gets
        them all.
        """
        target = io.BytesIO()
        _MappedPickler(target, self, position, set() if paths is None else paths).dump(value)
        return target.getvalue()

    def path(self, index: FilterMatcher, position: int) -> Path:
        """The file of an index, written if it is not there or the index has been planned again."""
        known = self._paths.get(index)
        unplanned = index.planned_without_sample(1 << 30)
        if known is None or known[1] != unplanned or not known[0].exists():
            private_folder(self._folder)
            path = self._folder / f"index-{position:020d}-{id(index):x}-{unplanned:d}"
            write(index, path)
            self._paths[index] = path, unplanned
            weakref.finalize(index, path.unlink, missing_ok=True)
        return self._paths[index][0]


class _MappedPickler(pickle.Pickler):
    def __init__(self, target: io.BytesIO, shelf: IndexShelf, position: int, paths: set[Path]) -> None:
        super().__init__(target, protocol=5)
        self._shelf, self._position, self._paths = shelf, position, paths

    def persistent_id(self, value: object) -> str | None:
        """The path of a large index, which stands for it."""
        if isinstance(value, FilterMatcher) and value.large:
            path = self._shelf.path(value, self._position)
            self._paths.add(path)
            return str(path)
        return None


def loads(found: bytes, located: Callable[[str], Path] = Path) -> Any:
    """The value, its large indexes mapped from their files; `located` says where on this machine those are."""
    return _MappedUnpickler(io.BytesIO(found), located).load()


class _MappedUnpickler(pickle.Unpickler):
    def __init__(self, source: io.BytesIO, located: Callable[[str], Path]) -> None:
        super().__init__(source)
        self._located = located

    def persistent_load(self, path: str) -> Any:
        """The index of a file."""
        return _mapped(str(self._located(path)))


@lru_cache(maxsize=KEPT)
def _mapped(path: str) -> Any:
    return read(Path(path))
