"""One log as the messages of one subject: written behind the newest, found by position, read in order and checked.

There is no index: a position is looked for by halves among the stream's sequences, and where somebody read before is
remembered.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from random import uniform
from typing import NamedTuple

from nearcast.journal.jetstream.chained_blocks import (
    BYTES,
    GENESIS,
    OVERHEAD,
    BlockHead,
    ChainedBlock,
    ChainWalk,
    DamagedChain,
    opened,
    sealed,
)
from nearcast.journal.jetstream.nats_connection import Unanswered
from nearcast.journal.jetstream.stream_api import (
    PATIENCE,
    PAUSE,
    JetStream,
    StreamMessage,
    SubjectBusy,
    WrongSequence,
)
from nearcast.journal.jetstream.trim_marks import TrimMarks

HEADERS = 512
"""Bytes that are left in a message for its headers."""

LAG_SECONDS = 5.0
"""Until when a server that answers has what the leader has, or it is missing."""

BUSY_PAUSE = 0.01
"""Seconds at most until a log is written to again to which somebody else was writing."""

REMEMBERED = 4_096
"""Places in a log that are remembered."""


class BlockContent(NamedTuple):
    """What is to be one block: its content, of how many bytes and rows, and through which position it goes."""

    content: bytes
    raw: int
    rows: int
    through: int


class ChainTail(NamedTuple):
    """The newest block of a log that counts, None: there is none; and the sequence of the newest message, which may
    belong to a group that was not finished.
    """

    block: ChainedBlock | None
    sequence: int

    @property
    def through(self) -> int:
        """The end of the log."""
        return self.block.head.through if self.block else 0

    @property
    def epoch(self) -> int:
        """Of the pipeline that wrote it."""
        return self.block.head.epoch if self.block else 0


class _Piece(NamedTuple):
    """What one message carries of a block."""

    body: bytes
    piece: int
    pieces: int
    block: BlockContent


class LogChain:
    """A log of a stream. Threads share it. Raises `DamagedChain` where the log is not as it was written."""

    def __init__(self, stream: JetStream, log: str, subject: str, marks: TrimMarks) -> None:
        self.log, self.subject, self._stream, self._marks = log, subject, stream, marks
        self._tail: ChainTail | None = None
        self._places = _Places()
        self.heard = 0
        """The sequence of the newest message that somebody told of."""
        self._knowing, self._writing = threading.Lock(), threading.RLock()

    @property
    def known(self) -> int:
        """The sequence of the newest message that is known."""
        return self._tail.sequence if self._tail else 0

    def may_go_beyond(self, position: int) -> bool:
        """Whether it goes beyond a position, or somebody told of what may; nobody is asked."""
        known = self._tail
        return known is None or known.through > position or known.sequence < self.heard

    def tail(self) -> ChainTail:
        """The newest block, as of now; where nothing came, a small question says so."""
        known = self._tail
        # A server that answers may not have yet what was told of.
        if (
            known
            and known.sequence >= self.heard
            and self._stream.newest_near(self.subject, known.sequence + 1) is None
        ):
            return known
        return self.refreshed()

    def refreshed(self) -> ChainTail:
        """The newest block, as the leader knows it."""
        # What another thread writes while this one waits for the answer may be missing in it.
        before, heard = self._tail, self.heard
        message = self._stream.last(self.subject)
        if self.heard == heard:
            # It may have been let go of.
            self.heard = min(heard, message.sequence if message else 0)
        if message is None:
            return self._known(ChainTail(self._marks.of(self.log), 0), before)
        block = opened(self.log, message.sequence, message.data)
        counts: ChainedBlock | None = block
        if not block.last_of_group:
            first = self._at(block.group_begins)
            counts = self._previous(first)
        return self._known(ChainTail(counts, message.sequence), before)

    def _known(self, found: ChainTail, before: ChainTail | None) -> ChainTail:
        """The newest block that is known, now that one was found; `before`: what was known as it was asked for."""
        if before and before.block:
            self._check_goes_on(before.block, found.block)
        with self._knowing:
            # Another thread may know of a newer one by now.
            newest = max(found, self._tail or found, key=lambda tail: tail.sequence)
            self._tail = newest
            return newest

    def _check_goes_on(self, before: ChainedBlock, block: ChainedBlock | None) -> None:
        """Raises `DamagedChain` where the newest block is not the one that was, or one behind it."""
        number, through = (block.head.number, block.head.through) if block else (0, 0)
        if block is None or number < before.head.number:
            raise DamagedChain(
                f"log {self.log!r}: it ended at position {before.head.through} (block {before.head.number}), and ends"
                f" at {through} (block {number}) now: its newest blocks are lost"
            )
        if number == before.head.number + 1:
            same = block.head.link == before.checksum
        elif number == before.head.number:
            same = block.checksum == before.checksum
        else:
            message, mark = self._stream.at(before.sequence), self._marks.of(self.log)
            gone = mark is not None and mark.head.number >= before.head.number
            same = gone or (
                message is not None
                and message.subject == self.subject
                and opened(self.log, message.sequence, message.data).checksum == before.checksum
            )
        if not same:
            raise DamagedChain(f"log {self.log!r}: its block {before.head.number} was replaced by another")

    def append(
        self,
        build: Callable[[ChainTail], Sequence[BlockContent]],
        epoch: int | None = None,
        group: bytes | None = None,
    ) -> ChainedBlock | None:
        """Writes what `build` makes, given the newest block, as one group; its last block, None where it is nothing.
        `epoch` is that of the newest block unless given.

        `build` is called again where somebody else wrote meanwhile.
        """
        name, until, unsure = group or os.urandom(BYTES), time.monotonic() + PATIENCE, None
        with self._writing:
            tail = self.tail()
            while True:
                contents = build(tail)
                if not contents:
                    return None
                began = self._stream.watch.begin()
                try:
                    written = self._write(tail, contents, tail.epoch if epoch is None else epoch, name)
                    self._stream.watch.works("writing")
                    return written
                except SubjectBusy as error:
                    # Asked at once they would say the same.
                    if time.monotonic() > until:
                        raise self._stream.unreachable(error) from Unanswered(str(error))
                    time.sleep(uniform(0.0, BUSY_PAUSE))
                except WrongSequence:
                    pass
                except Unanswered as error:
                    self._stream.watch.failed("writing", error, began)
                    if time.monotonic() > until:
                        raise self._stream.unreachable(error) from error
                    unsure = unsure or tail
                    time.sleep(PAUSE)
                tail = self.refreshed()
                if unsure and (found := self._written(unsure, tail, name)):
                    self._stream.watch.works("writing")
                    return found

    def _write(self, tail: ChainTail, contents: Sequence[BlockContent], epoch: int, group: bytes) -> ChainedBlock:
        pieces = [piece for content in contents for piece in self._pieces(content)]
        before, sequence, first = tail.block, tail.sequence, 0
        for place, piece in enumerate(pieces):
            head = _head(before, piece, group, first, place, len(pieces), epoch)
            message = sealed(self.log, head, piece.body)
            sequence = self._stream.write(self.subject, message, sequence)
            before = opened(self.log, sequence, message)._replace(body=b"")
            first = first or sequence
        assert before
        if len(pieces) == 1:
            self._places.note(tail.block, before)
        with self._knowing:
            self._tail = ChainTail(before, sequence)
        return before

    def _pieces(self, block: BlockContent) -> list[_Piece]:
        step = self._stream.connection.max_payload - OVERHEAD - HEADERS
        bodies = [block.content[at : at + step] for at in range(0, max(len(block.content), 1), step)]
        return [_Piece(body, number, len(bodies), block) for number, body in enumerate(bodies)]

    def _written(self, before: ChainTail, now: ChainTail, group: bytes) -> ChainedBlock | None:
        """The last block of a group, where it was written between two moments."""
        if now.block == before.block or now.block is None:
            return None
        found = self._walk(before.block, now.block)
        return next((block for block in found if block.head.group == group and block.last_of_group), None)

    def blocks(self, after: int, through: int) -> Iterator[tuple[ChainedBlock, bytes]]:
        """The blocks that have positions after one and up to another, each as its last message, and its content."""
        tail = self._tail_beyond(through)
        if tail.block is None or after >= min(through, tail.through):
            return
        before = self._before(after, tail.block)
        content: list[bytes] = []
        for block in self._walk(before, tail.block):
            if block.head.piece == 0:
                # Of one that was let go of meanwhile nothing is left.
                content = []
            content.append(block.body)
            if block.head.piece == block.head.pieces - 1:
                yield block._replace(body=b""), b"".join(content)
                content = []
                if block.head.through > through or (block.head.through == through and block.last_of_group):
                    return

    def _tail_beyond(self, through: int) -> ChainTail:
        known = self._tail
        return known if known and known.through >= through else self.tail()

    def _walk(self, before: ChainedBlock | None, last: ChainedBlock) -> Iterator[ChainedBlock]:
        """The messages that count, behind one and up to another, which is known to count."""
        walk, sequence = ChainWalk(self.log, before), before.sequence if before else 0
        while sequence < last.sequence:
            for message in self._some(sequence + 1, last):
                try:
                    accepted = walk.accept(opened(self.log, message.sequence, message.data))
                except DamagedChain:
                    mark = self._marks.of(self.log)
                    if mark is None or mark.head.number <= (before.head.number if before else 0):
                        raise
                    # What comes next was let go of meanwhile, by another process: it goes on behind that.
                    self._places.clear()
                    walk, before, sequence = ChainWalk(self.log, mark), mark, mark.sequence
                    break
                sequence = message.sequence
                for block in accepted:
                    if block.head.piece == block.head.pieces - 1:
                        self._places.note(before, block)
                        before = block
                    yield block

    def _some(self, sequence: int, last: ChainedBlock) -> list[StreamMessage]:
        """Messages from a sequence on, of which there has to be one: a server may be behind others for a moment."""
        until = time.monotonic() + LAG_SECONDS
        while not (found := self._stream.range(self.subject, sequence)):
            if time.monotonic() > until:
                raise DamagedChain(
                    f"log {self.log!r}: expected messages {sequence} to {last.sequence} of the stream, up to position"
                    f" {last.head.through}, got none: they are lost"
                )
            time.sleep(PAUSE)
        return found

    def end_within(self, after: int, through: int, size: int) -> int:
        """How far somebody may read behind a position to have about so many bytes, `through` at most."""
        tail = self._tail_beyond(through)
        if tail.block is None or through <= after:
            return through
        before = self._before(after, tail.block)
        most = (before.head.size if before else 0) + size
        if tail.block.head.size <= most:
            return through
        beyond = self._first(lambda head: head.size > most, tail.block)
        fits = self._previous(beyond)
        reached = fits.head.through if fits else 0
        return min(reached if reached > after else max(beyond.head.through, after + 1), through)

    def has_group(self, group: bytes, sequence: int) -> bool:
        """Whether a group was written, wholly, behind a sequence of the stream."""
        last = self.refreshed().sequence
        while sequence < last and (found := self._stream.range(self.subject, sequence + 1)):
            blocks = [opened(self.log, message.sequence, message.data) for message in found]
            if any(block.head.group == group and block.last_of_group for block in blocks):
                return True
            sequence = blocks[-1].sequence
        return False

    def trimmed(self) -> ChainedBlock | None:
        """The last block that was let go of; None if none was."""
        return self._marks.of(self.log)

    def trim(self, rows: int, size: int) -> int:
        """Lets the oldest groups go of which the newer ones have so many rows, or bytes; how many rows went."""
        with self._writing:
            tail = self.refreshed()
            if tail.block is None:
                return 0
            all_rows, all_bytes = tail.block.head.rows, tail.block.head.size
            kept = self._first(lambda head: head.rows > all_rows - rows and head.size > all_bytes - size, tail.block)
            before = self._previous(self._at(kept.group_begins))
            mark = self._marks.of(self.log)
            gone = mark.head.rows if mark else 0
            if before is None or before.head.rows <= gone:
                return 0
            self.cut(before)
            return before.head.rows - gone

    def trim_through(self, through: int) -> None:
        """Lets the oldest groups go that end at a position or before; the newest stays."""
        with self._writing:
            tail = self.refreshed()
            if tail.block is None:
                return
            kept = self._first(lambda head: head.through > through, tail.block)
            before = self._previous(self._at(kept.group_begins))
            mark = self._marks.of(self.log)
            if before is not None and (mark is None or before.head.number > mark.head.number):
                self.cut(before)

    def cut(self, before: ChainedBlock) -> None:
        """Lets everything up to a block go, that one too; it is the last of its group."""
        # Noted before: else they would be missed.
        self._marks.put(self.log, before)
        self._stream.purge(self.subject, before.sequence + 1)
        self._places.clear()

    def _before(self, after: int, last: ChainedBlock) -> ChainedBlock | None:
        """The block that those with positions behind `after` follow."""
        known = self._places.find(after)
        if known is not None:
            return known.before
        found = self._first(lambda head: head.through > after, last)
        try:
            return self._previous(self._at(found.group_begins) if found.head.first else found)
        except DamagedChain:
            mark = self._marks.of(self.log)
            if mark is None or mark.head.number < found.head.number:
                raise
            # Another process let all of that go since its end was looked at.
            return mark

    def _first(self, wanted: Callable[[BlockHead], bool], last: ChainedBlock) -> ChainedBlock:
        """The first block that is wanted, where all later ones are too, `last` at the latest."""
        low, high, found = 1, last.sequence, last
        while low < high:
            middle = (low + high) // 2
            message = self._stream.newest_near(self.subject, middle)
            if message is None or message.sequence >= high:
                high = middle
                continue
            block = opened(self.log, message.sequence, message.data)
            if wanted(block.head):
                found, high = block, middle
            else:
                low = message.sequence + 1
        return found

    def _previous(self, block: ChainedBlock) -> ChainedBlock | None:
        """The block that one follows; where that was let go of, as it is remembered."""
        if block.head.number == 1:
            return None
        message = self._stream.at(block.head.previous)
        mark = self._marks.of(self.log) if message is None else None
        before = opened(self.log, message.sequence, message.data) if message else mark
        if before is None or before.head.number != block.head.number - 1 or before.checksum != block.head.link:
            raise DamagedChain(
                f"log {self.log!r}: block {block.head.number - 1}, before position {block.head.through}, is missing"
                " or replaced"
            )
        return before

    def _at(self, sequence: int) -> ChainedBlock:
        message = self._stream.at(sequence)
        if message is None or message.subject != self.subject:
            raise DamagedChain(f"log {self.log!r}: message {sequence} of the stream is missing")
        return opened(self.log, sequence, message.data)


def _head(
    before: ChainedBlock | None, piece: _Piece, group: bytes, first: int, place: int, places: int, epoch: int
) -> BlockHead:
    through, rows, size = (before.head.through, before.head.rows, before.head.size) if before else (0, 0, 0)
    # Only what is whole counts: so whoever looks for a position finds the last message of its block.
    if piece.piece == piece.pieces - 1:
        through, rows, size = piece.block.through, rows + piece.block.rows, size + piece.block.raw
    return BlockHead(
        link=before.checksum if before else GENESIS,
        group=group,
        number=before.head.number + 1 if before else 1,
        previous=before.sequence if before else 0,
        first=first,
        place=place,
        places=places,
        piece=piece.piece,
        pieces=piece.pieces,
        raw=piece.block.raw,
        through=through,
        rows=rows,
        size=size,
        epoch=epoch,
    )


class _Place(NamedTuple):
    """A block that others follow, None: the beginning; and through which position the next one goes, None: unknown."""

    before: ChainedBlock | None
    through: int | None


class _Places:
    """Where readers were: whoever comes again begins there."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._places: dict[int, _Place] = {}
        self._lock = threading.Lock()

    def note(self, before: ChainedBlock | None, block: ChainedBlock) -> None:
        """Remembers that one block follows another."""
        start, end = before.head.through if before else 0, block.head.through
        with self._lock:
            if len(self._starts) > REMEMBERED:
                self._starts = self._starts[::2]
                self._places = {one: self._places[one] for one in self._starts}
            if end > start:
                self._put(start, _Place(before, end))
            if end not in self._places:
                self._put(end, _Place(block._replace(body=b""), None))

    def _put(self, start: int, place: _Place) -> None:
        if start not in self._places:
            insort(self._starts, start)
        self._places[start] = place

    def find(self, after: int) -> _Place | None:
        """Where a reader of what comes behind a position begins; None: unknown."""
        with self._lock:
            at = bisect_right(self._starts, after)
            place = self._places[self._starts[at - 1]] if at else None
            if place is None or self._starts[at - 1] == after or after < (place.through or 0):
                return place
            return None

    def clear(self) -> None:
        """Forgets all."""
        with self._lock:
            self._starts, self._places = [], {}
