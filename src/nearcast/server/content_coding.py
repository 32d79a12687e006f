"""Content codings of requests (RFC 9110, 8.4): gzip is unpacked within a limit, any other is refused."""

from __future__ import annotations

import zlib

from nearcast.errors import Fault, Mark

GZIP = ("gzip", "x-gzip")
_REQUEST = Mark("request")
_GZIP_FORMAT = zlib.MAX_WBITS | 16


class UnknownCoding(Exception):
    """A content coding that this server does not undo; `fault` says which it does."""

    def __init__(self, came: str) -> None:
        expected = "content without Content-Encoding, or gzip once"
        self.fault = Fault(expected, came[:80], _REQUEST, "send it as it is, or packed with gzip")
        super().__init__(str(self.fault))


class BrokenCoding(Exception):
    """Content that is not what its coding says."""

    def __init__(self, came: str) -> None:
        self.fault = Fault("content packed with gzip, as Content-Encoding says", came, _REQUEST, "pack it anew")
        super().__init__(str(self.fault))


def is_packed(content_encoding: str | None) -> bool:
    """Whether content comes packed. Raises UnknownCoding for any coding but gzip."""
    codings = [one.strip().lower() for one in (content_encoding or "").split(",")]
    undone = [one for one in codings if one not in ("", "identity")]
    if len(undone) > 1 or not set(undone) <= set(GZIP):
        raise UnknownCoding(", ".join(undone))
    return bool(undone)


def unpacked(content: bytes, limit: int) -> bytes:
    """Gzipped content as it was, of which never more than a byte beyond the limit. Raises BrokenCoding."""
    parts: list[bytes] = []
    size = 0
    try:
        while True:
            unpacking = zlib.decompressobj(_GZIP_FORMAT)
            parts.append(unpacking.decompress(content, limit + 1 - size))
            size += len(parts[-1])
            if size > limit:
                return b"".join(parts)
            if not unpacking.eof:
                raise BrokenCoding("an end too early")
            # Of several members the content is all of them together (RFC 1952, 2.2).
            content = unpacking.unused_data
            if not content:
                return b"".join(parts)
    except zlib.error:
        raise BrokenCoding("something else") from None
