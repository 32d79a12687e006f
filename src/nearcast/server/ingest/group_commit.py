"""Group commit: rows from many tasks are appended to the journal as one block, those that come while it is written as
the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Generic, TypeVar

import pyarrow as pa

from nearcast.errors import JournalError
from nearcast.journal.held_back import Kept
from nearcast.journal.seam import Journal
from nearcast.model.event import MAIN
from nearcast.runtime.error_log import RateLimitedErrorLog

T = TypeVar("T")
log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
PIECE = 5_000
"""Rows whose columns are made together."""
PROBE_SECONDS = 1.0
"""Between two looks whether a journal that failed takes something again."""


class QueueFull(Exception):
    """There is no room for more rows before some are written."""


@dataclass(slots=True)
class _PendingRows(Generic[T]):
    """What somebody put: items, or rows as the log has them, and what is to be kept beside the log with them; their
    positions, once written.
    """

    items: list[T] | pa.Table
    kept: Kept
    future: asyncio.Future[list[int]]

    def __len__(self) -> int:
        return len(self.items) + len(self.kept)


class GroupCommit(Generic[T]):
    """Appends to one log in blocks. `table` makes a block of items; `room` bounds what is not yet written.

    A block waits `seconds` for more, 0 where somebody waits for it: a busy log's blocks fill while others are written.

    Used from one event loop; the journal is called on `executor`. With `persistent`, a block that the journal does not
    take is tried again until it does; otherwise those who wait for it get the JournalError, and the journal is asked
    until it takes something again. `node` is the entry node; `error_log` hears of failures, `written` of each block,
    in the executor's thread; `through` is the last position that was given here.
    """

    def __init__(
        self,
        journal: Journal,
        log: str,
        table: Callable[[list[T]], pa.Table],
        executor: Executor,
        *,
        seconds: float,
        rows: int,
        room: int,
        persistent: bool = False,
        node: str = MAIN,
        error_log: RateLimitedErrorLog | None = None,
        written: Callable[[], None] = lambda: None,
    ) -> None:
        self.written = written
        self.journal, self.log, self.table, self.executor = journal, log, table, executor
        self.seconds, self.rows, self.room, self.persistent = seconds, rows, room, persistent
        self.node, self.error_log = node, error_log or RateLimitedErrorLog("journal")
        self.pending, self.through = 0, 0
        self._queue: deque[_PendingRows[T]] = deque()
        self._some = asyncio.Event()
        self._closing = False
        self.failing = False
        self._probing: asyncio.Task[None] | None = None

    def submit(
        self, items: Sequence[T] | pa.Table, beyond: bool = False, kept: Kept | None = None
    ) -> asyncio.Future[list[int]]:
        """Queues items, or rows of the log; the future has their positions once they are durable. Raises QueueFull, but
        not with `beyond`.

        What is `kept` beside the log becomes durable with them, both or neither.
        """
        # A first batch goes in whatever its size: there would never be room for it.
        if not beyond and self.pending and self.pending + len(items) > self.room:
            raise QueueFull
        future: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        part = _PendingRows[T](items if isinstance(items, pa.Table) else list(items), kept or {}, future)
        self.pending += len(part)
        self._queue.append(part)
        self._some.set()
        return future

    async def run(self) -> None:
        """Writes blocks until closed and empty."""
        while True:
            await self._some.wait()
            if not self._queue and self._closing:
                return
            if not self._closing:
                # Whatever comes meanwhile shares the commit; with 0, what this turn of the loop brings.
                await asyncio.sleep(self.seconds)
            await self._write(self._next())
            # While it closes the event stays set: the loop has to come round to its end.
            if not self._queue and not self._closing:
                self._some.clear()

    def _next(self) -> list[_PendingRows[T]]:
        taken: list[_PendingRows[T]] = []
        count = 0
        while self._queue and (not taken or count + len(self._queue[0]) <= self.rows):
            taken.append(self._queue.popleft())
            count += len(taken[-1])
        return taken

    async def _write(self, parts: list[_PendingRows[T]]) -> None:
        items, count = [part.items for part in parts], sum(len(part.items) for part in parts)
        # Of what several parts keep of one entity the last word counts.
        kept = {entity: event for part in parts for entity, event in part.kept.items()}
        try:
            positions = await self._append(items, kept) if count or kept else []
        except Exception as error:
            if not isinstance(error, JournalError):
                log.exception("block not written log=%s rows=%d", self.log, count)
            for part in parts:
                if not part.future.done():
                    part.future.set_exception(error)
                    # Looked at once, so that asyncio does not complain where nobody waits for it.
                    part.future.exception()
            return
        finally:
            # Not before: what is being written is in memory still.
            self.pending -= sum(map(len, parts))
        start = 0
        for part in parts:
            if not part.future.done():
                part.future.set_result(positions[start : start + len(part.items)])
            start += len(part.items)

    async def _append(self, items: list[list[T] | pa.Table], kept: Kept) -> list[int]:
        loop = asyncio.get_running_loop()
        while True:
            try:
                positions = await loop.run_in_executor(self.executor, self._append_now, items, kept)
                self.through = max(self.through, max(positions, default=0))
                self._works()
                return positions
            except JournalError as error:
                self.failing = True
                self.error_log.failed(self._part, error)
                # Once it closes, trying on would keep the server from ending.
                if not self.persistent or self._closing:
                    self._ask()
                    raise
                await asyncio.sleep(RETRY_SECONDS)

    @property
    def _part(self) -> str:
        return f"writing {self.log}"

    def _works(self) -> None:
        self.failing = False
        self.error_log.works(self._part)

    def _ask(self) -> None:
        """Begins to ask the journal whether it works again: maybe nothing is put for hours."""
        if not self._closing and (self._probing is None or self._probing.done()):
            self._probing = asyncio.get_running_loop().create_task(self._probe())

    async def _probe(self) -> None:
        loop = asyncio.get_running_loop()
        while self.failing:
            await asyncio.sleep(PROBE_SECONDS)
            try:
                await loop.run_in_executor(self.executor, self.journal.probe)
                self._works()
            except JournalError as error:
                self.error_log.failed(self._part, error)

    def _append_now(self, items: list[list[T] | pa.Table], kept: Kept) -> list[int]:
        tables = [*self._tables(items)]
        rows = tables[0] if len(tables) == 1 else pa.concat_tables(tables) if tables else self.table([])
        positions = self.journal.append(self.log, rows, kept, self.node)
        self.written()
        return positions

    def _tables(self, parts: list[list[T] | pa.Table]) -> Iterator[pa.Table]:
        """What several have put as tables, in its order: neighbouring items together."""
        for are_rows, group in groupby(parts, lambda part: isinstance(part, pa.Table)):
            if are_rows:
                yield from group
                continue
            items = [*chain.from_iterable(group)]
            # In pieces, between which others have their turn: each column is made in one go, whatever its length.
            for start in range(0, len(items), PIECE):
                yield self.table(items[start : start + PIECE])

    def close(self) -> None:
        """Lets `run` end once what is queued is written."""
        self._closing = True
        if self._probing:
            self._probing.cancel()
        self._some.set()
