"""Compiled code that is kept on disk: a machine compiles once, and Spark's workers load what the driver compiled.

Numba's own cache looks at the file of a function only, not at those of the functions it calls, and fails where the disk
does. Here all files that compiled code is made of have one stamp, and a stamp has a folder: code in it is never stale,
and whatever is wrong with the folder, the code is compiled again and nothing else happens.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import llvmlite.binding
import numba
from numba.core import caching

from nearcast.runtime.private_folder import is_private

F = TypeVar("F", bound=Callable[..., Any])
_njit: Any = numba.njit

MARKS = (b"\n@compiled\n", b"\n@inlined\n", b"\n@inserted\n")
"""What files have of which all is compiled."""

CONSTANT = re.compile(rb"^[A-Z][A-Z_, ]* = .*$", re.MULTILINE)
"""What of the others is compiled into code: their numbers."""


OPTIONS: dict[str, Any] = {"boundscheck": False, "nogil": True, "_nrt": False}
"""Without `_nrt` arrays are not counted as they are handed on: that took a tenth of the matching of trees."""


def compiled(function: F) -> F:
    """The function as machine code, compiled at its first call or loaded from where it is kept.

    It may allocate nothing, copies of slices included.
    """
    dispatcher = _njit(**OPTIONS)(function)
    if folder() is not None:
        dispatcher._cache = _Kept(function)
    return dispatcher


def inlined(function: F) -> F:
    """The function as a part of the compiled ones that call it: handing over many arrays costs more than short work."""
    return _njit(**OPTIONS, inline="always")(function)


@cache
def folder() -> Path | None:
    """Where compiled code of this version is kept for this kind of processor; None if there is no place for it."""
    name = f"kernels-{_stamp()}"
    return next((place / name for place in _places() if _writable(place / name)), None)


def _stamp() -> str:
    """What compiled code depends on: its sources, the compiler, Python, the processor."""
    # Compiled code has numbers also from the modules beside it. The package may be read out of a zip archive, where
    # there are no paths.
    rooms = (room for one in _in_order(files("nearcast")) if one.is_dir() for room in _rooms(one))
    texts = ([one.read_bytes() for one in _in_order(room) if one.name.endswith(".py")] for room in rooms)
    compiled = (own for own in texts if any(mark in text for text in own for mark in MARKS))
    sources = b"".join(_compiled_of(text) for own in compiled for text in own)
    machine = f"{numba.__version__} {sys.version} {platform.machine()} {llvmlite.binding.get_host_cpu_name()}"
    return hashlib.sha256(sources + machine.encode()).hexdigest()[:24]


def _rooms(room: Traversable) -> Iterator[Traversable]:
    """A room, and those within it."""
    yield room
    for one in _in_order(room):
        if one.is_dir():
            yield from _rooms(one)


def _in_order(room: Traversable) -> list[Traversable]:
    return sorted(room.iterdir(), key=lambda one: one.name)


def _compiled_of(source: bytes) -> bytes:
    """What of a module is compiled: all, or its numbers."""
    return source if any(mark in source for mark in MARKS) else b"".join(CONSTANT.findall(source))


def _places() -> Iterator[Path]:
    """Where to keep code, the best first: the folder that the user names, the user's cache, a temporary folder."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    if named:
        yield Path(named)
    cached = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    yield Path(cached) / "nearcast"
    yield Path(tempfile.gettempdir()) / f"nearcast-{os.getuid() if hasattr(os, 'getuid') else 'user'}"


def _writable(path: Path) -> bool:
    """Whether code can be kept there, and nobody else can have put some there: what is loaded is run.

    A folder that is there already and open to others is not closed but left alone: who knows what is in it.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
        return is_private(path) and not _is_open(path.parent)
    except OSError:
        return False


def _is_open(parent: Path) -> bool:
    """Whether others may put another folder in a folder's place: they may write to the one above it."""
    found = parent.stat()
    shared = bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    return shared and not found.st_mode & stat.S_ISVTX


class _Place(caching._CacheLocator):
    """Tells Numba the folder."""

    def __init__(self, line: int) -> None:
        self._line = line

    def get_cache_path(self) -> str:
        """The folder, as text."""
        return str(folder())

    def get_source_stamp(self) -> str:
        """Nothing: the folder has the stamp in its name."""
        return ""

    def get_disambiguator(self) -> str:
        """The line, for functions of one name."""
        return str(self._line)

    @classmethod
    def from_function(cls, function: Any, file: str) -> _Place:
        """The place of a function."""
        return cls(function.__code__.co_firstlineno)


_Impl: Any = caching.CompileResultCacheImpl
_Cache: Any = caching.FunctionCache


class _Form(_Impl):
    _locator_classes: ClassVar[list[type]] = [_Place]


class _Kept(_Cache):
    """Numba's cache of a function, for which a fault of the disk is no fault of who calls the function."""

    _impl_class = _Form

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The code, or None: it may be half written, or of a disk that is full or gone."""
        try:
            return super().load_overload(signature, context)
        except Exception:
            return None

    def save_overload(self, signature: Any, code: Any) -> None:
        """Keeps the code if that can be done."""
        try:
            super().save_overload(signature, code)
        except Exception:
            return
