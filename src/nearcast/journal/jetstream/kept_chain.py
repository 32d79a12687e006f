"""What an entry node keeps, as a chain of changes of its own.

A change that goes with events is written before them and names their group: until that is in the log of events the
change does not count. Whoever writes next says so of one that never came to count.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nearcast.journal.held_back import Kept, merged, restored, stored
from nearcast.journal.jetstream.chained_blocks import BYTES, ChainedBlock
from nearcast.journal.jetstream.log_chain import BlockContent, ChainTail, LogChain
from nearcast.journal.tables import kept_table
from nearcast.model.event import Event

ALONE = bytes(BYTES)
"""Instead of the group of events: the change goes with none."""

FIELDS = struct.Struct(">?16s")
LAST = (1 << 62) - 1


class KeptChange(NamedTuple):
    """A change as it lies in the chain: the group of events it goes with, and the change; None: the one before does not
    count.
    """

    block: ChainedBlock
    group: bytes
    change: bytes | None


class KeptChain:
    """The changes of one entry node."""

    def __init__(self, chain: LogChain, events: LogChain) -> None:
        self._chain, self._events = chain, events
        self._sound = False

    def append(self, kept: Kept, group: bytes = ALONE) -> None:
        """Puts what is kept of some entities; with a group of events, which is written next."""
        self._settle()
        self._sound = group == ALONE
        last = self._write(stored(kept), len(kept), group)
        if group == ALONE:
            self._merge(last)

    def written(self) -> None:
        """Says that the group of the newest change is in the log of events."""
        self._sound = True

    def events(self) -> list[Event]:
        """The events that are kept, in the order of their acceptance."""
        return restored(self._changes())

    def _settle(self) -> None:
        """Says of the newest change that it does not count, where its events never came."""
        if not self._sound:
            *_, newest = [None, *self._entries()]
            if newest and not self._counts(newest):
                self._write(None, 0, ALONE)
            self._sound = True

    def _changes(self) -> Iterator[bytes]:
        waiting: KeptChange | None = None
        for entry in self._entries():
            if waiting and waiting.change is not None and entry.change is not None:
                yield waiting.change
            waiting = entry
        if waiting and waiting.change is not None and self._counts(waiting):
            yield waiting.change

    def _entries(self) -> Iterator[KeptChange]:
        for block, content in self._chain.blocks(0, LAST):
            void, group = FIELDS.unpack_from(content)
            yield KeptChange(block, group, None if void else content[FIELDS.size :])

    def _counts(self, entry: KeptChange) -> bool:
        return entry.group == ALONE or self._events.has_group(entry.group, entry.block.sequence)

    def _write(self, change: bytes | None, count: int, group: bytes) -> ChainedBlock:
        content = FIELDS.pack(change is None, group) + (change or b"")

        def build(tail: ChainTail) -> Sequence[BlockContent]:
            return [BlockContent(content, len(content), count, tail.through + 1)]

        found = self._chain.append(build)
        assert found
        return found

    def _merge(self, last: ChainedBlock) -> None:
        """Makes one of all changes, where there are many more than entities."""
        first = next(iter(self._chain.blocks(0, LAST)))[0]
        before = self._chain.trimmed()
        gone = before.head.rows if before else 0
        if last.head.rows - gone > 2 * (first.head.rows - gone) + kept_table.KEPT_SLACK:
            count, change = merged(self._changes())
            self._write(change, count, ALONE)
            self._chain.cut(last)
