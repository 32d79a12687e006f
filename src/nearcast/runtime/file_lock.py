"""What one process at a time may do: it holds a file while it does, and another is told so.

A file is known by what it is on its disk: its name may be another's by now.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nearcast.errors import SetupError

log = logging.getLogger(__name__)


@contextmanager
def file_lock(path: Path, expected: str, came: str, advice: str) -> Iterator[int]:
    """Holds a file until the block ends, or this process does, in whichever way; gives the descriptor that holds it.

    A process that inherits the descriptor holds the file too, until it ends. Raises SetupError, of what was expected,
    what came and what to do, where another process holds it: its number is told too. Holds nothing on a file system
    without locks, which is logged.
    """
    try:
        file = try_lock(path)
    except OSError as error:
        raise SetupError(
            f"expected to write {path}, got {error.strerror or error}; its folder must be writable"
        ) from error
    if file is None:
        number = ""
        # It may have ended, or not yet have written its number.
        with suppress(OSError):
            number = path.read_text(errors="replace").strip()
        process = f" (process {number})" if number.isdigit() else ""
        raise SetupError(f"expected {expected}, got {came}{process}; {advice}")
    try:
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        yield file
    finally:
        # The file stays: whoever waits for it holds this one, not another of that name.
        os.close(file)


def try_lock(path: Path, strict: bool = False) -> int | None:
    """A descriptor that holds a file until it is closed, or this process ends; None where another process holds it.

    Does not wait. On a file system without locks nothing is held, which is logged; `strict`: OSError is raised. So it
    is where the file cannot be written.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        held = error.errno in (errno.EWOULDBLOCK, errno.EACCES)
        if held or strict:
            os.close(file)
        if held:
            return None
        if strict:
            raise
        log.warning("not held path=%s error=%r; another process would not be told", path, error)
    return file


def file_identity(path: str) -> tuple[int, int] | None:
    """Which file stands at a path, by device and number; None if there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
