"""How blocks of a log lie in messages: each with a checksum of all that it says, and the checksum of the one before it.

A call writes a *group*: one message, or more where its rows need several blocks, or a block is larger than a message
may be. A group of which the last message is missing was not written; the next one begins where it began.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

MAGIC = b"NCB1"
"""Marks a message as a block of nearcast's, in the format 1."""

BYTES = 16
"""Of a checksum, and of a group's name."""

GENESIS = bytes(BYTES)
"""What the first message of a log has instead of the checksum of the one before it."""

FIELDS = struct.Struct(">4s16s16sQQQIIIIQQQQQ")
OVERHEAD = FIELDS.size + BYTES


class DamagedChain(Exception):
    """A log is not as it was written: a message was changed, or one is missing."""


class BlockHead(NamedTuple):
    """What a message says of itself.

    `link` is the checksum of the message before it in its log; `number` counts those of a log from 1, `previous` is the
    stream's sequence of the one before, `first` that of the group's first (0 in it). `place` of `places` is where it is
    in the group, `piece` of `pieces` where in the block, which has `raw` bytes when it is not compressed.

    `through`, `rows` and `size` (bytes, not compressed) are of the log up to here, in blocks that are whole here.
    `epoch` grows with each pipeline that takes over.
    """

    link: bytes
    group: bytes
    number: int
    previous: int
    first: int
    place: int
    places: int
    piece: int
    pieces: int
    raw: int
    through: int
    rows: int
    size: int
    epoch: int


class ChainedBlock(NamedTuple):
    """A message with its sequence in the stream, and its own checksum."""

    sequence: int
    checksum: bytes
    head: BlockHead
    body: bytes

    @property
    def last_of_group(self) -> bool:
        """Whether its group is whole with it."""
        return self.head.place == self.head.places - 1

    @property
    def group_begins(self) -> int:
        """The sequence of its group's first message."""
        return self.head.first or self.sequence


def sealed(log: str, head: BlockHead, body: bytes) -> bytes:
    """A message of these."""
    fields = FIELDS.pack(MAGIC, *head)
    return fields + _checksum(log, fields, body) + body


def opened(log: str, sequence: int, message: bytes) -> ChainedBlock:
    """What a message has. Raises `DamagedChain` where it is not as it was written."""
    fields, body = message[: FIELDS.size], message[OVERHEAD:]
    if len(message) < OVERHEAD or message[: len(MAGIC)] != MAGIC:
        raise DamagedChain(f"message {sequence} of the log {log!r}: expected a block of nearcast's, got something else")
    checksum = message[FIELDS.size : OVERHEAD]
    if checksum != _checksum(log, fields, body):
        raise DamagedChain(f"message {sequence} of the log {log!r}: it is not as it was written")
    return ChainedBlock(sequence, checksum, BlockHead(*FIELDS.unpack(fields)[1:]), body)


def _checksum(log: str, fields: bytes, body: bytes) -> bytes:
    found = hashlib.blake2b(log.encode(), digest_size=BYTES)
    found.update(fields)
    found.update(body)
    return found.digest()


def follows(before: ChainedBlock | None, block: ChainedBlock) -> bool:
    """Whether a block comes right after another, None: at the beginning of a log."""
    number, link = (before.head.number, before.checksum) if before else (0, GENESIS)
    if (block.head.number, block.head.link) != (number + 1, link):
        return False
    if before is None or before.last_of_group:
        return block.head.place == 0
    return (block.head.group, block.head.place) == (before.head.group, before.head.place + 1)


class ChainWalk:
    """The messages of a log in their order, each held against the one before it.

    `before` is the message that the first one has to follow; it is known to be of a whole group.
    """

    def __init__(self, log: str, before: ChainedBlock | None) -> None:
        self.log, self.before = log, before
        self._pending: list[ChainedBlock] = []

    def accept(self, block: ChainedBlock) -> list[ChainedBlock]:
        """The messages that are known to count now, in their order; others wait for the rest of their group.

        Raises `DamagedChain` where this one is not the next one.
        """
        if self.before and not self.before.last_of_group and follows(self.before, block):
            self.before = block
            return [block]
        if follows(self._pending[-1] if self._pending else self.before, block):
            self._pending.append(block)
        elif follows(self.before, block):
            # Who wrote those before it did not come to their end.
            self._pending = [block]
        else:
            raise DamagedChain(self._broken(block))
        if not block.last_of_group:
            return []
        found, self._pending, self.before = self._pending, [], block
        return found

    def _broken(self, block: ChainedBlock) -> str:
        newest = self._pending[-1] if self._pending else self.before
        number, through = (newest.head.number, newest.head.through) if newest else (0, 0)
        return (
            f"log {self.log!r}: behind position {through} expected block {number + 1}, got block {block.head.number}"
            f" (message {block.sequence}), which does not follow: some are missing or replaced"
        )
