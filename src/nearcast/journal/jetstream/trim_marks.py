"""What was let go of on purpose: the last block of it by log, so that what follows still has one to follow."""

from __future__ import annotations

import struct
from collections.abc import Callable

from nearcast.journal.jetstream.chained_blocks import BYTES, FIELDS, BlockHead, ChainedBlock
from nearcast.journal.jetstream.stream_api import JetStream

SEQUENCE = struct.Struct(">Q")
ROLLUP = {"Nats-Rollup": "sub"}
"""A message that takes the place of those before it."""


class TrimMarks:
    """The marks of a stream's logs, each a message that replaces the one before."""

    def __init__(self, stream: JetStream, subject: Callable[[str], str]) -> None:
        self._stream, self._subject = stream, subject

    def of(self, log: str) -> ChainedBlock | None:
        """The last block of a log that was let go of, without its content; None if none was."""
        message = self._stream.last(self._subject(log))
        if message is None:
            return None
        [sequence] = SEQUENCE.unpack_from(message.data)
        fields = message.data[SEQUENCE.size : SEQUENCE.size + FIELDS.size]
        return ChainedBlock(sequence, message.data[-BYTES:], BlockHead(*FIELDS.unpack(fields)[1:]), b"")

    def put(self, log: str, block: ChainedBlock) -> None:
        """Notes that a log was let go of up to a block."""
        fields = FIELDS.pack(b"trim", *block.head)
        message = SEQUENCE.pack(block.sequence) + fields + block.checksum
        self._stream.patiently(lambda: self._stream.write(self._subject(log), message, None, ROLLUP))
