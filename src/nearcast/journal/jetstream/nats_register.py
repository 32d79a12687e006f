"""The register of access servers on NATS: a stream of its own, with a message for each, which lapses."""

from __future__ import annotations

from nearcast.journal.jetstream.nats_address import parse_address
from nearcast.journal.jetstream.nats_connection import Unanswered
from nearcast.journal.jetstream.stream_api import JetStream, StreamMessage, WrongSequence
from nearcast.journal.server_register import ServerRecord, ServerRegister, read_record, refuse_more, written_record

KEPT_SECONDS = 60.0
"""After which a record that is not put anew is gone; that its server is no more is noticed before."""

GONE = b""
"""Instead of the record of a server that ended."""


class NatsRegister(ServerRegister):
    """The records of the access servers of a journal at an address of NATS, with a connection of its own."""

    lasting = False

    def __init__(self, url: str) -> None:
        self.address = parse_address(url)
        main = JetStream(self.address)
        self._stream = main.beside("servers")
        try:
            self._stream.make(
                [f"{self._stream.name}.>"],
                max_age=int(KEPT_SECONDS * 1e9),
                max_msgs_per_subject=1,
                discard="old",
                duplicate_window=int(KEPT_SECONDS * 1e9),
            )
        except BaseException:
            main.close()
            raise

    def records(self) -> list[ServerRecord]:
        """See `ServerRegister.records`."""
        newest: dict[str, StreamMessage] = {}
        sequence = 1
        while found := self._stream.range(f"{self._stream.name}.>", sequence):
            newest.update((one.subject, one) for one in found)
            sequence = found[-1].sequence + 1
        records = (read_record(one.data) for one in newest.values() if one.data != GONE)
        return sorted((one for one in records if one is not None), key=lambda one: one.name)

    def put(self, record: ServerRecord, before: ServerRecord | None) -> bool:
        """See `ServerRegister.put`."""
        subject, written = self._subject(record.name), written_record(record)
        found = self._stream.last(subject)
        there = read_record(found.data) if found and found.data != GONE else None
        if (there and (there.instance, there.number)) != (before and (before.instance, before.number)):
            # A try of this one that had no answer may have been taken.
            return there == record
        if before is None:
            refuse_more(self.records(), record.name)
        try:
            self._stream.write(subject, written, found.sequence if found else 0)
        except WrongSequence:
            return False
        except Unanswered as error:
            raise self._stream.unreachable(error) from error
        return True

    def remove(self, record: ServerRecord) -> None:
        """See `ServerRegister.remove`."""
        found = self._stream.last(self._subject(record.name))
        there = read_record(found.data) if found and found.data != GONE else None
        if found is None or there is None or there.instance != record.instance:
            return
        try:
            self._stream.write(self._subject(record.name), GONE, found.sequence)
        except (WrongSequence, Unanswered):
            # It lapses, or another one of that name has its own there.
            return

    def close(self) -> None:
        """Ends the connection."""
        self._stream.close()

    def _subject(self, name: str) -> str:
        return f"{self._stream.name}.{name.encode().hex()}"
