"""What one process at a time may do with a journal: it holds a file while it does, and another is told so.

A file is known by what it is on its disk: its name may be another's by now.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nearcast.errors import SetupError

log = logging.getLogger(__name__)


@contextmanager
def file_lock(path: Path, expected: str, came: str, advice: str) -> Iterator[None]:
    """Holds a file until the block ends, or this process does, in whichever way.

    Raises SetupError, of what was expected, what came and what to do, where another process holds it: its number is
    told too. Holds nothing on a file system without locks, which is logged.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise SetupError(
            f"expected to write {path}, got {error.strerror or error}; its folder must be writable"
        ) from error
    try:
        if not _taken(file, path):
            # It may have ended, or not yet have written its number.
            number = os.pread(file, 20, 0).decode(errors="replace").strip()
            process = f" (process {number})" if number.isdigit() else ""
            raise SetupError(f"expected {expected}, got {came}{process}; {advice}")
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        # The file stays: whoever waits for it holds this one, not another of that name.
        os.close(file)


def _taken(file: int, path: Path) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        log.warning("not held path=%s error=%r; another process on this journal would not be told", path, error)
    return True


def lock_file_of(path: str) -> tuple[int, int] | None:
    """Which file stands at a path, by device and number; None if there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
