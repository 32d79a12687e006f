"""Group commit."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from nearcast.errors import JournalError
from nearcast.journal.held_back import Kept
from nearcast.journal.memory import Abort, MemoryJournal
from nearcast.model.columns import to_table
from nearcast.model.event import MAIN, Event
from nearcast.server.config import ServerLimits
from nearcast.server.ingest.group_commit import GroupCommit, QueueFull
from tests.server.conftest import run


def event(number: int) -> Event:
    return Event(id=str(number), type="t", source="s")


class Counting(MemoryJournal):
    """Counts how often it is appended to."""

    appends = 0

    def append(self, log: str, rows: pa.Table, kept: Kept | None = None, node: str = MAIN) -> list[int]:
        self.appends += 1
        return super().append(log, rows, kept, node)


def blocks(journal: MemoryJournal, **more: Any) -> GroupCommit[Event]:
    settings: dict[str, Any] = {"seconds": 0.002, "rows": 100, "room": 1_000, **more}
    return GroupCommit(journal, "events", to_table, ThreadPoolExecutor(1), **settings)


def test_many_small_parts_become_few_blocks_and_each_gets_its_positions() -> None:
    """In the order in which they were put."""

    async def test() -> None:
        journal = Counting()
        some = blocks(journal)
        futures = [some.submit([event(2 * number), event(2 * number + 1)]) for number in range(100)]
        running = asyncio.create_task(some.run())
        assert [[2 * number + 1, 2 * number + 2] for number in range(100)] == await asyncio.gather(*futures)
        some.close()
        await running
        assert (2, 0) == (journal.appends, some.pending)

    run(test)


def test_rows_and_items_of_several_are_one_block_in_their_order() -> None:
    """Rows are what a batch was read as already."""

    async def test() -> None:
        journal = Counting()
        some = blocks(journal)
        first = to_table([event(3), event(4)])
        put = [[event(0)], [event(1), event(2)], first, first.slice(0, 0), [event(5)]]
        futures = [some.submit(one) for one in put]
        running = asyncio.create_task(some.run())
        assert [[1], [2, 3], [4, 5], [], [6]] == await asyncio.gather(*futures)
        assert [str(number) for number in range(6)] == journal.read("events", 0, 10).column("id").to_pylist()
        some.close()
        await running
        assert (1, 0, 6) == (journal.appends, some.pending, some.through)

    run(test)


class Held(Counting):
    """Writes nothing until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.released = threading.Event(), threading.Event()

    def append(self, log: str, rows: pa.Table, kept: Kept | None = None, node: str = MAIN) -> list[int]:
        self.begun.set()
        assert self.released.wait(30)
        return super().append(log, rows, kept, node)


def test_an_event_alone_is_written_at_once_and_those_that_come_meanwhile_share_the_next_block() -> None:
    """As the door of a server is set up: nothing waits while nothing else is on its way."""

    async def test() -> None:
        journal = Held()
        some = blocks(journal, seconds=ServerLimits().block_seconds)
        running = asyncio.create_task(some.run())
        first = some.submit([event(0)])
        assert await asyncio.to_thread(journal.begun.wait, 30)
        others = [some.submit([event(number)]) for number in range(1, 20)]
        await asyncio.sleep(0)
        journal.released.set()
        assert [[number + 1] for number in range(20)] == await asyncio.gather(first, *others)
        assert 2 == journal.appends
        some.close()
        await running

    run(test)


def test_there_is_a_bound_to_what_is_not_written() -> None:
    """But something that is larger than the bound is taken when nothing else waits."""

    async def test() -> None:
        some = blocks(MemoryJournal(), room=2)
        some.submit([event(1), event(2), event(3)])
        with pytest.raises(QueueFull):
            some.submit([event(4)])

    run(test)


def test_a_failing_journal_fails_those_who_wait_and_nobody_else() -> None:
    """The next block is written."""

    async def test() -> None:
        some = blocks(MemoryJournal([Abort("events", 1, "append")]))
        running = asyncio.create_task(some.run())
        with pytest.raises(JournalError):
            await some.submit([event(1)])
        assert ([1], False) == (await some.submit([event(1)]), some.failing)
        some.close()
        await running

    run(test)


def test_what_is_queued_at_the_end_is_written() -> None:
    """Closing waits for nothing more, and loses nothing."""

    async def test() -> None:
        journal = MemoryJournal()
        some = blocks(journal, seconds=1_000.0)
        future = some.submit([event(1)])
        some.close()
        await asyncio.wait_for(some.run(), 60.0)
        assert ([1], 1) == (await future, journal.end("events"))

    run(test)
