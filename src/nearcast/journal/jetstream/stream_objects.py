"""Objects by name, beside a journal on NATS: its object store, as its own tools read it (NATS ADR-20).

An object is a message that describes it, and its content in chunks before that. Who writes one that is there replaces
it. What is read is held against the checksum that the description has.
"""

from __future__ import annotations

import base64
import hashlib
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from nearcast.errors import JournalError
from nearcast.journal.jetstream.stream_api import PAUSE, JetStream
from nearcast.journal.jetstream.trim_marks import ROLLUP

HEADERS = 512
"""Bytes that are left in a message for its headers."""

CHUNK = 4 << 20
"""Bytes of a chunk at most; fewer where the server takes smaller messages only."""

LAG_SECONDS = 5.0
"""Until when a server that answers has what was written, or it is missing."""


class DamagedObject(Exception):
    """An object is not as it was written, or not wholly there."""


class StreamObjects:
    """The object store of a journal, made if it is missing.

    Methods raise `JournalError` where nobody answers or there is no room.
    """

    def __init__(self, journal: JetStream, what: str, read_only: bool = False) -> None:
        self.bucket = f"{journal.name}_{what}"
        self._stream = JetStream(journal.address, journal.connection, f"OBJ_{self.bucket}", journal.watch)
        self._read_only, self._made = read_only, False

    def names(self) -> list[str]:
        """Which objects there are, in the order of their names; none where the store was never written to."""
        prefix = self._description("")
        found = self._subjects(f"{prefix}>")
        return sorted(base64.urlsafe_b64decode(subject.removeprefix(prefix)).decode() for subject in found)

    def put(self, name: str, content: Iterable[bytes]) -> None:
        """Writes an object, which is there when this returns."""
        self._make()
        before, place, digest, size, chunks = self._described(name), uuid.uuid4().hex, hashlib.sha256(), 0, 0
        for part in self._cut(content):
            digest.update(part)
            size, chunks = size + len(part), chunks + 1
            # Where an answer is lost it is written again, and there once.
            self._write(self._chunks(place), part, {"Nats-Msg-Id": f"{place}.{chunks}"})
        if chunks != self._subjects(self._chunks(place)).get(self._chunks(place), 0):
            raise DamagedObject(f"object {name!r}: what was written of it was removed meanwhile")
        description = {
            "name": name,
            "bucket": self.bucket,
            "nuid": place,
            "size": size,
            "chunks": chunks,
            "digest": f"SHA-256={base64.urlsafe_b64encode(digest.digest()).decode()}",
        }
        self._write(self._description(name), orjson.dumps(description), ROLLUP)
        if before:
            self._stream.purge(self._chunks(before["nuid"]))

    def _make(self) -> None:
        if self._read_only:
            raise JournalError(f"journal {self._stream.address}: expected to read it only, got an object to write")
        if not self._made:
            self._stream.grow(self._stream.make([self._chunks(">"), self._description("") + ">"]))
            self._made = True

    def _cut(self, content: Iterable[bytes]) -> Iterator[bytes]:
        size = min(CHUNK, self._stream.connection.max_payload - HEADERS)
        for part in content:
            yield from (part[at : at + size] for at in range(0, len(part), size))

    def _write(self, subject: str, message: bytes, headers: dict[str, str]) -> None:
        self._stream.patiently(lambda: self._stream.write(subject, message, None, headers))

    def get(self, name: str) -> Iterator[bytes]:
        """The content of an object, in parts. Raises `DamagedObject` where it is not whole, at the latest at its end;
        what came before then does not count.
        """
        found = self._described(name)
        if found is None:
            raise DamagedObject(f"object {name!r}: it is not there")
        digest, sequence, until = hashlib.sha256(), 0, time.monotonic() + LAG_SECONDS
        left = int(found["chunks"])
        while left > 0:
            messages = self._stream.range(self._chunks(found["nuid"]), sequence + 1)[:left]
            for message in messages:
                digest.update(message.data)
                sequence, left = message.sequence, left - 1
                yield message.data
            if not messages:
                if time.monotonic() > until:
                    raise DamagedObject(f"object {name!r}: {left} of its {found['chunks']} chunks are missing")
                time.sleep(PAUSE)
        if found["digest"] != f"SHA-256={base64.urlsafe_b64encode(digest.digest()).decode()}":
            raise DamagedObject(f"object {name!r}: it is not as it was written")

    def remove(self, names: Iterable[str]) -> None:
        """Removes objects, as far as they are there."""
        for name in names:
            found = self._described(name)
            self._stream.purge(self._description(name))
            if found:
                self._stream.purge(self._chunks(found["nuid"]))

    def remove_unfinished(self) -> None:
        """Removes the chunks of which no object tells: who wrote them died before it was done."""
        prefix = self._chunks("")
        there = {subject.removeprefix(prefix) for subject in self._subjects(f"{prefix}>")}
        described = (self._described(name) for name in self.names())
        for place in there - {one["nuid"] for one in described if one}:
            self._stream.purge(self._chunks(place))

    def _subjects(self, wanted: str) -> dict[str, int]:
        """How many messages there are, by subject."""
        found = self._stream.found(subjects_filter=wanted)
        return dict((found or {}).get("state", {}).get("subjects") or {})

    def _described(self, name: str) -> dict[str, Any] | None:
        try:
            message = self._stream.last(self._description(name)) if self._stream.found() else None
            return orjson.loads(message.data) if message else None
        except ValueError as error:
            raise DamagedObject(f"object {name!r}: what describes it is damaged: {error}") from error

    def _chunks(self, place: str) -> str:
        return f"$O.{self.bucket}.C.{place}"

    def _description(self, name: str) -> str:
        return f"$O.{self.bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"
