"""Notes that go with a journal on NATS: each a message of its stream that takes the place of the one before."""

from __future__ import annotations

from nearcast.errors import JournalError
from nearcast.journal.jetstream.stream_api import JetStream
from nearcast.journal.jetstream.trim_marks import ROLLUP
from nearcast.journal.seam import JournalNotes


class StreamNotes(JournalNotes):
    """The notes of a stream. Raises `JournalError` where nobody answers."""

    shared = True

    def __init__(self, stream: JetStream, read_only: bool = False) -> None:
        self._stream, self._read_only = stream, read_only

    def all(self) -> dict[str, str]:
        """See `JournalNotes.all`."""
        prefix = self._subject("")
        found = self._stream.found(subjects_filter=f"{prefix}>") or {}
        names = [bytes.fromhex(one.removeprefix(prefix)).decode() for one in found["state"].get("subjects") or ()]
        texts = {name: self.read(name) for name in sorted(names)}
        return {name: text for name, text in texts.items() if text is not None}

    def remove(self, name: str) -> None:
        """See `JournalNotes.remove`."""
        self._refuse_to_write()
        self._stream.purge(self._subject(name))

    def read(self, name: str) -> str | None:
        """See `JournalNotes.read`."""
        message = self._stream.last(self._subject(name))
        return message.data.decode(errors="replace") if message else None

    def write(self, name: str, text: str) -> None:
        """See `JournalNotes.write`."""
        self._refuse_to_write()
        self._stream.patiently(lambda: self._stream.write(self._subject(name), text.encode(), None, ROLLUP))

    def _refuse_to_write(self) -> None:
        if self._read_only:
            raise JournalError(f"journal {self._stream.address}: expected to read it only, got a note to write")

    def _subject(self, name: str) -> str:
        # Names may have any characters, parts of subjects may not.
        return f"{self._stream.name}.note.{name.encode().hex()}"
