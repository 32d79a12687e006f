"""Files as commands are given them, plain or gzipped, `-` for standard input; what cannot be read is told in a line."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from nearcast.errors import Fault, Mark

STANDARD_INPUT = Path("-")

_GZIP = b"\x1f\x8b"
_MAGIC_BYTES = 6
_OTHERS = (
    (b"PK\x03\x04", "a zip archive", "unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a file packed with zstd", "unpack it, or pack it with gzip"),
    (b"\xfd7zXZ", "a file packed with xz", "unpack it, or pack it with gzip"),
    (b"BZh", "a file packed with bzip2", "unpack it, or pack it with gzip"),
    (b"PAR1", "a Parquet file", "read it in Python: nearcast.match and nearcast.replay take its table"),
    (b"SQLite", "a SQLite file", "explain and replay read a journal, with --journal"),
    (b"\xff\xfe", "UTF-16", "save it as UTF-8"),
    (b"\xfe\xff", "UTF-16", "save it as UTF-8"),
)
"""First bytes of what is no text in UTF-8, what it is, and what to do."""


def name_of(path: Path) -> str:
    """A file as faults name it."""
    return "standard input" if path == STANDARD_INPUT else str(path)


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """A file from its beginning, unpacked if its first bytes are those of gzip.

    Raises `Fault` where it cannot be opened or read, in one line that says what to do.
    """
    where = Mark(name_of(path))
    try:
        with _raw(path) as raw:
            head = _head(raw)
            whole = io.BufferedReader(_Rejoined(head, raw))
            if head.startswith(_GZIP):
                with gzip.GzipFile(fileobj=whole) as unpacked:
                    yield rejoined(_checked(unpacked, where), unpacked)
                return
            _check(head, where)
            yield whole
    except IsADirectoryError:
        raise Fault("a file", "a folder", where, "name the files in it") from None
    except FileNotFoundError:
        raise Fault("a file that there is", "none", where, "look at its name and folder") from None
    except PermissionError:
        raise Fault("a file that may be read", "no leave to", where, "look at its rights") from None
    except EOFError:
        raise Fault("a whole gzip file", "one that is cut off", where, "fetch it again, or pack it anew") from None
    except (zlib.error, gzip.BadGzipFile) as error:
        raise Fault("a gzip file that is whole", str(error), where, "fetch it again, or pack it anew") from None


@contextmanager
def _raw(path: Path) -> Iterator[IO[bytes]]:
    if path == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    with path.open("rb") as file:
        yield file


def _checked(unpacked: gzip.GzipFile, where: Mark) -> bytes:
    head = _head(unpacked)
    _check(head, where)
    return head


def _check(head: bytes, where: Mark) -> None:
    for magic, came, advice in _OTHERS:
        if head.startswith(magic):
            raise Fault("text in UTF-8, plain or gzipped", came, where, advice)


def _head(file: IO[bytes] | gzip.GzipFile) -> bytes:
    """The first bytes, fewer where the file has no more; a pipe may give them one by one."""
    head = b""
    while len(head) < _MAGIC_BYTES and (more := file.read(_MAGIC_BYTES - len(head))):
        head += more
    return head


def rejoined(head: bytes, file: IO[bytes] | gzip.GzipFile) -> IO[bytes]:
    """A file of which some was read already, again from its beginning."""
    return io.BufferedReader(_Rejoined(head, file), 1 << 20)


class _Rejoined(io.RawIOBase):
    """The bytes that were read, then the rest of the file. It is closed by who opened it."""

    def __init__(self, head: bytes, file: IO[bytes] | gzip.GzipFile) -> None:
        self._head, self._file = head, file

    def readable(self) -> bool:
        """It is for reading."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """See `io.RawIOBase.readinto`."""
        some = self._head[: len(buffer)]
        if some:
            self._head = self._head[len(some) :]
        else:
            # What a pipe has now, so that nobody waits for a whole buffer of it.
            some = self._file.read1(len(buffer)) if hasattr(self._file, "read1") else self._file.read(len(buffer))
        buffer[: len(some)] = some
        return len(some)
