"""Waking who waits on this machine, whatever the process: each has a named pipe in a folder, and gets a byte.

A pipe says only that something may be new. Who waits looks for himself then, and now and then without being woken: a
folder may be shared with a machine whose pipes are others.
"""

from __future__ import annotations

import errno
import math
import os
import select
import stat
import uuid
import weakref
from contextlib import suppress
from pathlib import Path

ENOUGH = 1 << 16
"""Bytes that a pipe may have gathered: all are read at once."""


UNREAD = "."
"""Names of pipes begin so that are not read yet."""


class Sleeper:
    """One who waits, at a pipe of its own that is made; raises OSError where that cannot be. One thread at a time."""

    def __init__(self, path: Path, mode: int) -> None:
        self.path = path
        self._ends: list[int] = []
        # Under another name until it is open: a pipe that nobody reads is removed.
        made = path.with_name(f"{UNREAD}{path.name}")
        os.mkfifo(made)
        try:
            # Who may write the file that news are of may wake those who wait for them, whatever this process masks.
            made.chmod(mode)
            self._ends.append(os.open(made, os.O_RDONLY | os.O_NONBLOCK))
            # Held open: without anybody who may write it, a pipe is always at its end.
            self._ends.append(os.open(made, os.O_WRONLY | os.O_NONBLOCK))
            made.rename(path)
        except OSError:
            _remove(made)
            self.close()
            raise
        # A process that ends without a word leaves no pipe behind, unless it is killed.
        self._removing = weakref.finalize(self, _remove, path)
        self._poll = select.poll()
        self._poll.register(self._ends[0], select.POLLIN)

    def wait(self, seconds: float) -> bytes:
        """Returns when it was woken since the last time, or so many seconds are over; the signs that came."""
        if not self._poll.poll(math.ceil(max(0.0, seconds) * 1_000)):
            return b""
        with suppress(BlockingIOError):
            return os.read(self._ends[0], ENOUGH)
        return b""

    def close(self) -> None:
        """Removes the pipe; with the last one the folder goes."""
        _remove(self.path)
        while self._ends:
            os.close(self._ends.pop())


class WakeUps:
    """Those who wait for news of a file, in a folder that is there while somebody waits."""

    def __init__(self, file: str) -> None:
        self._file, self._folder = file, f"{file}-waiting"

    def sleeper(self) -> Sleeper | None:
        """One more who waits; None where there are no named pipes, or none may be made."""
        for _ in range(3):
            try:
                mode = stat.S_IMODE(os.stat(self._file).st_mode) & 0o666
                os.makedirs(self._folder, exist_ok=True)
                return Sleeper(Path(self._folder, uuid.uuid4().hex), mode)
            except FileNotFoundError:
                # Another has just removed the folder, which was empty.
                continue
            except (OSError, AttributeError):
                break
        return None

    def wake(self, sign: bytes) -> None:
        """Wakes all who wait, with a sign of one byte. Never fails, and never waits."""
        with suppress(OSError), os.scandir(self._folder) as pipes:
            for pipe in pipes:
                if not pipe.name.startswith(UNREAD):
                    _write(pipe.path, sign)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)
        path.parent.rmdir()


def _write(path: str, sign: bytes) -> None:
    """Writes a sign into a pipe; one that nobody reads any more, for its process is gone, is removed."""
    try:
        end = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ENXIO:
            with suppress(OSError):
                os.unlink(path)
        return
    try:
        if stat.S_ISFIFO(os.fstat(end).st_mode):
            os.write(end, sign)
    except OSError:
        # It is full: who waits there has been woken often enough.
        pass
    finally:
        os.close(end)
