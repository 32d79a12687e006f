"""Notes that go with a journal on NATS: each a message of its stream that takes the place of the one before."""

from __future__ import annotations

from nearcast.errors import JournalError
from nearcast.journal.jetstream.stream_api import JetStream
from nearcast.journal.jetstream.trim_marks import ROLLUP
from nearcast.journal.seam import JournalNotes


class StreamNotes(JournalNotes):
    """The notes of a stream. Raises `JournalError` where nobody answers."""

    def __init__(self, stream: JetStream, read_only: bool = False) -> None:
        self._stream, self._read_only = stream, read_only

    def read(self, name: str) -> str | None:
        """See `JournalNotes.read`."""
        message = self._stream.last(self._subject(name))
        return message.data.decode(errors="replace") if message else None

    def write(self, name: str, text: str) -> None:
        """See `JournalNotes.write`."""
        if self._read_only:
            raise JournalError(f"journal {self._stream.address}: expected to read it only, got a note to write")
        self._stream.patiently(lambda: self._stream.write(self._subject(name), text.encode(), None, ROLLUP))

    def _subject(self, name: str) -> str:
        # Names may have any characters, parts of subjects may not.
        return f"{self._stream.name}.note.{name.encode().hex()}"
