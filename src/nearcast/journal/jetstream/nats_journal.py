"""The journal on NATS JetStream: every log is a subject of one stream, every call a message, or a few.

What a call has written before it returned is on the disks of most of the servers that keep the stream, if these write
to the disk at once (`sync_interval: always`). Who writes says which block is the newest, so of two that write at once
one is told, and tries again.

Each block has the checksum of the one before it: a log that lost something, or that is another one by now, is refused.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path

import orjson
import pyarrow as pa

from nearcast.errors import JournalError
from nearcast.journal.encoded_rows import cut_rows, decoded_rows, encoded_rows
from nearcast.journal.held_back import Kept, refuse_beside
from nearcast.journal.jetstream.chained_blocks import BYTES, ChainedBlock, DamagedChain, opened
from nearcast.journal.jetstream.event_ids import EventIds, Key, fresh_rows
from nearcast.journal.jetstream.kept_chain import ALONE, KeptChain
from nearcast.journal.jetstream.log_chain import BlockContent, ChainTail, LogChain
from nearcast.journal.jetstream.nats_address import parse_address
from nearcast.journal.jetstream.nats_connection import Unanswered
from nearcast.journal.jetstream.news_listener import NewsListener
from nearcast.journal.jetstream.role_lease import RoleLease
from nearcast.journal.jetstream.stream_api import JetStream, WrongSequence
from nearcast.journal.jetstream.stream_checks import (
    FORMAT,
    IDENTITY,
    VERSION,
    SameStream,
    durability,
    has_lengths,
    identity_of,
)
from nearcast.journal.jetstream.stream_notes import StreamNotes
from nearcast.journal.jetstream.stream_objects import StreamObjects
from nearcast.journal.jetstream.trim_marks import ROLLUP, TrimMarks
from nearcast.journal.outage import JournalOutage
from nearcast.journal.rows import ascending, checked, joined, keys_of, numbered, positions_of, schema_of, within
from nearcast.journal.seam import READ_BYTES, HeldRole, Journal
from nearcast.model.columns import LOGS
from nearcast.model.event import MAIN, Event

PIPELINE = "pipeline"
"""The role of who decides."""

DECIDED = ("derived", "source filters", "deliveries")
"""The logs of what is decided."""

PROBE = bytes(64 * 1024)

ADVICE = "; stop, and restore the stream from a copy, or begin a new one under another name"


class NatsJournal(Journal):
    """A journal at an address of NATS, made if missing. Threads and processes may share it; not carried over a fork.

    `read_only`: it must be there, and nothing of it is changed. `ids` is a file for the table of the events' ids, which
    saves reading the log of events before the first append; None: the log is read.
    """

    def __init__(self, url: str, read_only: bool = False, ids: Path | None = None) -> None:
        self.url, self.read_only, self._ids_file = url, read_only, ids
        self.address = parse_address(url)
        self._stream = JetStream(self.address)
        try:
            self._identity = self._prepare()
        except BaseException:
            self._stream.close()
            raise
        self._marks = TrimMarks(self._stream, lambda log: self._subject("trimmed", log))
        self._chains = {log: self._chain(log) for log in LOGS}
        self._kept: dict[str, KeptChain] = {}
        self._ids: EventIds | None = None
        self._making, self._appending = threading.RLock(), threading.RLock()
        self._epoch: int | None = None
        self._news = NewsListener(self._stream, self._chains)
        self._objects = StreamObjects(self._stream, "snapshots", read_only)
        self._same = SameStream(self._stream, self._identity, self._newest)
        try:
            with self._telling():
                self._check_ends()
        except BaseException:
            self._stream.close()
            raise

    def _chain(self, log: str) -> LogChain:
        return LogChain(self._stream, log, self._subject("log", log), self._marks)

    def _subject(self, kind: str, log: str) -> str:
        return f"{self._stream.name}.{kind}.{_token(log)}"

    def __reduce__(self) -> tuple[type[NatsJournal], tuple[str, bool]]:
        """Travels to another process as its URL."""
        return NatsJournal, (self.url, self.read_only)

    def __str__(self) -> str:
        return str(self.address)

    @property
    def location(self) -> str:
        """See `Journal.location`."""
        return self.url

    @property
    def identity(self) -> str:
        """See `Journal.identity`."""
        return self._identity

    @property
    def outage(self) -> JournalOutage:
        """See `Journal.outage`."""
        return self._stream.watch.outage

    @property
    def durability(self) -> str:
        """See `Journal.durability`."""
        return self._durability

    def _prepare(self) -> str:
        """Which journal the stream is. Makes it if it is missing; refuses one of another program or format."""
        name = self._stream.name
        if self.read_only:
            found = self._stream.info()
        else:
            metadata = {IDENTITY: uuid.uuid4().hex, VERSION: FORMAT}
            found = self._stream.make([f"{name}.>"], metadata=metadata)
        identity = identity_of(self._stream, found)
        self._lengths = has_lengths(found)
        if not self.read_only:
            found = self._stream.grow(found)
        self._durability, self.durable = durability(self._stream, found)
        return identity

    def leading(self, role: str, stopped: Callable[[], bool] = lambda: False) -> AbstractContextManager[HeldRole]:
        """See `Journal.leading`. Who leads the pipeline is the only one from then on that can write what is decided."""
        return self._leading(role, stopped)

    @contextmanager
    def _leading(self, role: str, stopped: Callable[[], bool]) -> Iterator[HeldRole]:
        with self._telling():
            lease = RoleLease(self._stream, role)
            held = lease.acquire(stopped)
        try:
            if held and role == PIPELINE:
                with self._telling():
                    self._take_over()
            yield HeldRole(lambda: held and lease.held)
        finally:
            with self._telling():
                lease.release()

    def _take_over(self) -> None:
        """Writes into each log of what is decided that another pipeline decides from now on."""
        chains = [self._chains[log] for log in DECIDED]
        while True:
            epoch = 1 + max(chain.refreshed().epoch for chain in chains)

            def build(tail: ChainTail, epoch: int = epoch) -> Sequence[BlockContent]:
                return [] if tail.epoch >= epoch else [BlockContent(b"", 0, 0, tail.through)]

            # Of two that take over at once one finds that the first log is taken, and comes after the other.
            if all(chain.append(build, epoch) for chain in chains):
                self._epoch = epoch
                return

    def _newest(self) -> int:
        """The sequence of the newest message that is known of any log."""
        return max(chain.known for chain in self._chains.values())

    def _check_ends(self) -> None:
        """Raises `DamagedChain` where more was decided than happened: the log of events lost its end."""
        decided = max(("deliveries", "derived"), key=lambda log: self._chains[log].refreshed().through)
        through, end = self._chains[decided].tail().through, self._chains["events"].refreshed().through
        if through > end:
            raise DamagedChain(
                f"log 'events': expected it to go to position {through}, as the log {decided!r} does, got {end}: its"
                " newest blocks are lost"
            )

    def append(self, log: str, rows: pa.Table, kept: Kept | None = None, node: str = MAIN) -> list[int]:
        """See `Journal.append`."""
        rows = checked(log, rows)
        if not len(rows) and not kept:
            return []
        with self._telling():
            self._refuse_to_write()
            if log == "events":
                # One after the other: what is kept belongs to the events that are written with it.
                with self._appending:
                    return self._append_events(rows, kept, node)
            if kept:
                self._kept_chain(node).append(kept)
            return self._append_rows(log, rows)

    def _append_rows(self, log: str, rows: pa.Table) -> list[int]:
        last = self._chains[log].append(
            lambda tail: self._contents(numbered(rows, tail.through), tail.through + len(rows))
        )
        through = last.head.through if last else 0
        return list(range(through - len(rows) + 1, through + 1))

    def _append_events(self, rows: pa.Table, kept: Kept | None, node: str) -> list[int]:
        keys, group = keys_of(rows), os.urandom(BYTES)
        if kept:
            both = self._has_new(keys)
            self._kept_chain(node).append(kept, group if both else ALONE)
            if both:
                positions = self._append_new(rows, keys, group, True)
                self._kept_chain(node).written()
                return positions
        return self._append_new(rows, keys, group, False)

    def _has_new(self, keys: Sequence[Key]) -> bool:
        ids = self._ids_until(self._chains["events"].tail())
        return len(ids.known(keys)) < len(set(keys))

    def _append_new(self, rows: pa.Table, keys: Sequence[Key], group: bytes, always: bool) -> list[int]:
        """Appends the events that are new; `always`: a group is written also where there are none by now."""
        positions: list[int] = []
        fresh: list[int] = []

        def build(tail: ChainTail) -> Sequence[BlockContent]:
            known = self._ids_until(tail).known(keys)
            fresh[:], positions[:] = fresh_rows(keys, known, tail.through)
            new = rows if len(fresh) == len(rows) else rows.take(pa.array(fresh, pa.int64()))
            return self._contents(numbered(new, tail.through), tail.through + len(fresh), always)

        last = self._chains["events"].append(build, group=group)
        if last:
            self._known_ids().note([keys[at] for at in fresh], [positions[at] for at in fresh], last)
        return positions

    def _ids_until(self, tail: ChainTail) -> EventIds:
        """The table of the ids of events, up to a block."""
        ids = self._known_ids()
        _, number, position, _ = ids.through()
        if tail.block and number < tail.block.head.number:
            for block, content in self._chains["events"].blocks(position, tail.through):
                rows = _decoded("events", block, content)
                ids.note(keys_of(rows), positions_of(rows).tolist(), block)
            ids.note([], [], tail.block)
        return ids

    def _known_ids(self) -> EventIds:
        with self._making:
            if self._ids is None:
                self._ids = EventIds(self._ids_file, self._identity)
                self._check_ids(self._ids)
                self._ids.forget(self.trimmed("events"))
            return self._ids

    def _check_ids(self, ids: EventIds) -> None:
        """Holds a table that was there against the log. Raises `DamagedChain` where the log has less than it had."""
        sequence, number, position, checksum = ids.through()
        if not number:
            return
        tail = self._chains["events"].refreshed()
        if tail.block is None or tail.block.head.number < number:
            raise DamagedChain(
                f"log 'events': it went to position {position} (block {number}), and ends at {tail.through} now: its"
                " newest blocks are lost"
            )
        message = self._stream.at(sequence)
        if message and opened("events", sequence, message.data).checksum != checksum:
            raise DamagedChain(f"log 'events': block {number}, up to position {position}, was replaced by another")

    def _contents(self, rows: pa.Table, through: int, empty: bool = False) -> list[BlockContent]:
        """Rows, which have their positions, as blocks through a position; `empty`: also where there are none."""
        found: list[BlockContent] = []
        for part in cut_rows(rows):
            size, content = encoded_rows(part, self._lengths)
            found.append(BlockContent(content, size, len(part), int(positions_of(part)[-1])))
        if found:
            return [*found[:-1], found[-1]._replace(through=through)]
        return [BlockContent(b"", 0, 0, through)] if empty else []

    def commit_range(self, log: str, rows: pa.Table, through: int) -> None:
        """See `Journal.commit_range`."""
        rows = ascending(log, rows, through)

        def build(tail: ChainTail) -> Sequence[BlockContent]:
            if self._epoch is not None and tail.epoch > self._epoch:
                raise JournalError(
                    f"journal {self.address}: expected this to be the pipeline that decides, got another one that took"
                    f" over ({tail.epoch}, this is {self._epoch}); end this one"
                )
            if through <= tail.through:
                return []
            return self._contents(within(rows, tail.through, through), through, True)

        with self._telling():
            self._refuse_to_write()
            self._chains[log].append(build, self._epoch)

    def read(self, log: str, after: int, limit: int) -> pa.Table:
        """See `Journal.read`."""
        schema_of(log)
        return joined(log, list(self.blocks(log, after, after + limit)))

    def blocks(self, log: str, after: int, through: int) -> Iterator[pa.Table]:
        """See `Journal.blocks`."""
        with self._telling():
            for block, content in self._chains[log].blocks(after, through):
                if block.head.raw:
                    yield within(_decoded(log, block, content), after, through)

    def end_within_bytes(self, log: str, after: int, limit: int, size: int = READ_BYTES) -> int:
        """See `Journal.end_within_bytes`."""
        through = min(after + limit, self.end(log))
        with self._telling():
            return self._chains[log].end_within(after, through, size)

    def trim(self, log: str, rows: int, size: int) -> int:
        """See `Journal.trim`."""
        schema_of(log)
        with self._telling():
            self._refuse_to_write()
            count = self._chains[log].trim(rows, size)
            if log == "events" and count:
                self._known_ids().forget(self.trimmed(log))
            return count

    def trim_through(self, log: str, through: int) -> int:
        """See `Journal.trim_through`."""
        schema_of(log)
        with self._telling():
            self._refuse_to_write()
            self._chains[log].trim_through(through)
            gone = self.trimmed(log)
            if log == "events":
                self._known_ids().forget(gone)
            return gone

    def stored_bytes(self) -> dict[str, int]:
        """See `Journal.stored_bytes`."""
        with self._telling():
            raw: dict[str, int] = {}
            for log, chain in self._chains.items():
                tail, mark = chain.tail(), self._marks.of(log)
                raw[log] = (tail.block.head.size if tail.block else 0) - (mark.head.size if mark else 0)
            # The servers tell of all together only; rows of all logs shrink about alike.
            share = self._stream.info()["state"]["bytes"] / max(1, sum(raw.values()))
            return {log: int(bytes * share) for log, bytes in raw.items()}

    def end(self, log: str) -> int:
        """See `Journal.end`."""
        schema_of(log)
        with self._telling():
            self._same.look()
            return self._chains[log].tail().through

    def wait(self, after: Mapping[str, int], seconds: float) -> bool:
        """See `Journal.wait`. The servers tell of news; while they do not they are asked."""
        return self._news.wait(after, seconds)

    def trimmed(self, log: str) -> int:
        """See `Journal.trimmed`."""
        schema_of(log)
        with self._telling():
            tail, mark = self._chains[log].tail(), self._marks.of(log)
            gone = mark.head.rows if mark else 0
            if tail.block is None or tail.block.head.rows == gone:
                return tail.through
            return mark.head.through if mark else 0

    def sync(self) -> None:
        """Does nothing: what was written is on the servers' disks, as far as they say."""

    def probe(self) -> None:
        """See `Journal.probe`."""
        with self._telling():
            self._refuse_to_write()
            subject = f"{self._stream.name}.probe"
            self._stream.patiently(lambda: self._stream.write(subject, PROBE, None, ROLLUP))
            sequence = self._stream.patiently(lambda: self._stream.write(subject, b"", None, ROLLUP))
            self._stream.purge(subject, sequence + 1)
            self._stream.watch.works("writing")

    def positions(self, id: str, source: str | None = None) -> list[int]:
        """See `Journal.positions`."""
        with self._telling():
            return self._ids_until(self._chains["events"].tail()).positions(id, source)

    def kept(self, node: str = MAIN) -> list[Event]:
        """See `Journal.kept`."""
        with self._telling():
            try:
                return self._kept_chain(node).events()
            except (ValueError, TypeError, KeyError) as error:
                raise DamagedChain(f"events that are kept at the node {node}: {error}") from error

    def _kept_chain(self, node: str) -> KeptChain:
        with self._making:
            if node not in self._kept:
                self._kept[node] = KeptChain(self._chain(f"kept at {node}"), self._chains["events"])
            return self._kept[node]

    def join(self, node: str, alone: bool) -> set[str]:
        """See `Journal.join`."""
        subject = f"{self._stream.name}.nodes"
        with self._telling():
            self._refuse_to_write()
            while True:
                found = self._stream.last(subject)
                nodes: dict[str, bool] = orjson.loads(found.data) if found else {}
                others = {name: only for name, only in nodes.items() if name != node}
                refuse_beside(others, node)
                message = orjson.dumps({**others, node: alone and not others})
                write = partial(self._stream.write, subject, message, found.sequence if found else 0)
                # Where somebody else, or a try of this one that had no answer, was first: once more.
                with suppress(WrongSequence):
                    self._stream.patiently(write)
                    return set(others)

    @property
    def objects(self) -> StreamObjects:
        """See `Journal.objects`."""
        return self._objects

    @property
    def notes(self) -> StreamNotes:
        """See `Journal.notes`."""
        return StreamNotes(self._stream, self.read_only)

    def close(self) -> None:
        """Ends the connection."""
        with self._making:
            if self._ids:
                self._ids.close()
        self._stream.close()

    def _refuse_to_write(self) -> None:
        if self.read_only:
            raise JournalError(f"journal {self.address}: expected to read it only, got something to write (readonly)")

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Makes one kind of error of all that is wrong with the medium."""
        try:
            yield
        except DamagedChain as error:
            raise JournalError(f"journal {self.address}: {error}{ADVICE}") from error
        except Unanswered as error:
            raise self._stream.unreachable(error) from error
        except sqlite3.Error as error:
            where = self._ids_file or "its temporary file"
            raise JournalError(f"journal {self.address}: the table of ids in {where}: {error}; remove it") from error


def _token(log: str) -> str:
    """A log's name as a part of a subject."""
    return log.replace(" ", "-") if log in LOGS else log.encode().hex()


def _decoded(log: str, block: ChainedBlock, content: bytes) -> pa.Table:
    if not block.head.raw:
        return schema_of(log).empty_table()
    return decoded_rows(schema_of(log), block.head.raw, content)
