"""Where events enter the journal: with the switch `suppress`, those that can change nothing are held back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from functools import partial
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import JournalError
from nearcast.journal.held_back import Kept
from nearcast.journal.seam import Journal
from nearcast.journal.snapshot_log import REPOSITORY, base_table
from nearcast.model.columns import nodes_of, to_events
from nearcast.model.event import Event
from nearcast.model.subscription import Channel
from nearcast.server.ingest.group_commit import GroupCommit, QueueFull
from nearcast.server.ingest.lease_manager import LeaseManager
from nearcast.server.metrics import ServerMetrics
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository
from nearcast.suppression.guarded import GuardedState
from nearcast.suppression.ingest_filter import IngestFilter
from nearcast.suppression.lease_registry import OpenLease

log = logging.getLogger(__name__)

FOLLOW_SECONDS = 0.05
"""Between two looks at how relations stand; until it is heard, both sides of a relation publish."""

LOG = "source filters"

HEARD_BYTES = 16 << 20
"""Of how relations stand so much is read at once, about."""

STRETCH = 50_000
"""Events that are read together when a relation has to know where everybody is."""


class EventEntry:
    """Puts events on their way into the journal. Used from one event loop.

    With `suppress`, of global relations too if the node is `alone`: a relation's events must all enter at one node (see
    `suppression.ingest_filter`). Those local to it do in any case.
    """

    def __init__(
        self, blocks: GroupCommit[Event], metrics: ServerMetrics, suppress: bool, node: str, lease_seconds: float = 2.0
    ) -> None:
        self.suppress, self._node = suppress, node
        self.alone = True
        self._blocks, self._metrics, self._entry = blocks, metrics, IngestFilter()
        self.lease_manager = LeaseManager(self._entry, metrics, lease_seconds)
        self._channels: Sequence[Channel] = ()
        # Events are taken one after the other, also while a lease has to come back.
        self._turn = asyncio.Lock()
        self._under_way = 0
        self._defined = 0
        self._through = 0
        self._heard: int | None = None

    async def submit(
        self, events: Sequence[Event] | pa.Table, holder: str | None = None, returned: Set[int] = frozenset()
    ) -> list[int | None]:
        """Takes events, or rows of `EVENTS`; their positions once they are durable, None of one that was held back:
        it is kept, durably.

        With what a publisher sends, leases that it had come back. Raises QueueFull, JournalError.
        """
        if not self.suppress:
            return [*await self._blocks.submit(events)]
        if self._blocks.pending and self._blocks.pending + len(events) > self._blocks.room:
            raise QueueFull
        listed = to_events(events) if isinstance(events, pa.Table) else events
        # Also if who published them is gone meanwhile: what was taken has to be written.
        task = asyncio.get_running_loop().create_task(self._submit(listed, holder, returned))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def _submit(self, events: Sequence[Event], holder: str | None, returned: Set[int]) -> list[int | None]:
        entering: list[Event] = []
        writing: list[asyncio.Future[list[int]]] = []
        places: list[int | None] = []
        through = 0
        async with self._turn:
            for event in events:
                while needed := self.lease_manager.leases.needed(event, holder, returned, self.lease_manager.now()):
                    # What was taken is not kept waiting for publishers.
                    writing.append(self._write(entering))
                    through, entering = through + len(entering), []
                    await self._bring_back(needed)
                entering += self._entering(event)
                last = through + len(entering) - 1
                places.append(last if entering and entering[-1] is event else None)
            writing.append(self._write(entering))
        self._metrics.suppressed.inc(places.count(None))
        written = [position for one in await asyncio.gather(*writing) for position in one]
        return [None if place is None else written[place] for place in places]

    async def _bring_back(self, needed: Sequence[OpenLease]) -> None:
        """Takes what is kept under leases; all are called for at once."""
        self.lease_manager.call(needed)
        for one in needed:
            kept = await self.lease_manager.bring_back(one)
            if kept is not None:
                returned = frozenset({one.lease.id})
                while more := self.lease_manager.leases.needed(kept, one.holder, returned, self.lease_manager.now()):
                    await self._bring_back(more)
                self._write(self._entering(kept)).add_done_callback(partial(self._came_back, kept))
            self.lease_manager.leases.end(one.lease.id)

    def _came_back(self, event: Event, written: asyncio.Future[list[int]]) -> None:
        """Takes an event that came back with its lease once more, if it was not written."""
        if written.cancelled() or written.exception():
            self.lease_manager.late.append(event)

    async def sweep(self) -> None:
        """Takes what has come back, or is overdue, though nobody called for it."""
        async with self._turn:
            await self._bring_back(self.lease_manager.waiting())
        late, self.lease_manager.late = self.lease_manager.late, []
        try:
            if late:
                await self.submit(late)
        except (QueueFull, JournalError):
            # Their publishers have let go of them: so they are tried again until they are taken.
            self.lease_manager.late = [*late, *self.lease_manager.late]
            raise

    def _entering(self, event: Event) -> list[Event]:
        if not event.control:
            return self._entry.admit(event, not self._under_way and self._defined <= self._through)
        # Whatever it defines begins with where everything is now.
        released = self._entry.release()
        self._under_way += 1
        return [*released, event]

    def _write(self, entering: list[Event]) -> asyncio.Future[list[int]]:
        """Writes them and what is kept instead of others, also if who published them is gone meanwhile."""
        changes = self._entry.changes()
        kept = {entity: event and replace(event, node=self._node) for entity, event in changes.items()}
        future = self._blocks.submit(entering, beyond=True, kept=kept)
        future.add_done_callback(lambda done: self._written(entering, kept, done))
        return future

    def _written(self, entering: list[Event], kept: Kept, done: asyncio.Future[list[int]]) -> None:
        controls = [index for index, event in enumerate(entering) if event.control]
        self._under_way -= len(controls)
        if done.cancelled() or done.exception():
            self._entry.lost(entering)
            self._entry.unkept(kept)
            return
        positions = done.result()
        self._entry.written(entering, positions)
        self._defined = max([self._defined, *(positions[index] for index in controls)])

    async def restore(self) -> None:
        """Publishes what a server kept that was killed. To be done before anything else enters. Raises JournalError."""
        kept = await asyncio.to_thread(self._blocks.journal.release, self._node)
        if kept:
            log.info("kept events entered events=%d", kept)

    def define(self, registry: Registry, position: int) -> None:
        """Takes what is defined as of a position."""
        if self.suppress:
            released = self._entry.release()
            if released:
                self._write(released)
            self._entry.define(registry.at(self._node, self.alone), position)
            self._channels = registry.settings.channels
            # Those of whatever was defined here have come back before it entered.
            self.lease_manager.call(self.lease_manager.leases.all())

    @property
    def kept(self) -> int:
        """How many events are held back now."""
        return self._entry.kept

    def definitions_read(self, through: int) -> None:
        """Hears how far definitions were read."""
        self._through = through

    async def follow(self, journal: Journal) -> None:
        """Hears how relations stand, on and on; not what was told before it began."""
        while self.suppress:
            try:
                guarded_states = await asyncio.to_thread(self._read, journal)
                self._entry.learn(guarded_states)
                await self._load(journal)
                await self.sweep()
                if not self._turn.locked() and not self._under_way and self._defined <= self._through:
                    self.lease_manager.offer(self._channels)
                self._blocks.error_log.works(LOG)
            except (JournalError, QueueFull) as error:
                self._metrics.errors.labels("source filters").inc()
                self._blocks.error_log.failed(LOG, error)
            except Exception:
                # Without guards everything enters, which is never wrong.
                self._metrics.errors.labels("source filters").inc()
                log.exception("source filters not read")
            await asyncio.sleep(FOLLOW_SECONDS)

    async def _load(self, journal: Journal) -> None:
        """Tells new relations between any entities where everybody is, as of when nothing is on its way from before."""
        unready = self._entry.unready
        if unready:
            await self._blocks.submit([], beyond=True)
            newest = await asyncio.to_thread(_newest, journal, {proximity_rings.node for proximity_rings in unready})
            for proximity_rings in unready:
                proximity_rings.load(newest[proximity_rings.node])

    def _read(self, journal: Journal) -> list[GuardedState]:
        end = journal.end(LOG)
        after = end if self._heard is None else self._heard
        # What is not read now is read with the next look: of many relations at once there may be much.
        through = journal.end_within_bytes(LOG, after, end - after, HEARD_BYTES) if end > after else end
        rows = journal.read(LOG, after, through - after).to_pylist() if through > after else []
        # Last: so is what could not be read.
        self._heard = through
        return [GuardedState(**row) for row in rows]

    def close(self) -> None:
        """Publishes what is kept, before the journal is let go."""
        released = self._entry.release()
        if released:
            self._write(released)


def _newest(journal: Journal, nodes: Iterable[str | None]) -> dict[str | None, list[Event]]:
    """The newest event of every entity, of those that entered at each of some nodes; None: anywhere."""
    newest, end = {node: Repository() for node in nodes}, journal.end("events")
    after, known = base_table(journal, REPOSITORY)
    tables = journal.row_ranges("events", after, end, STRETCH)
    # Of what went the journal's snapshot has the newest, derived ones among them.
    before = [] if known is None else [known.filter(pc.equal(known.column("part"), 0))]
    for table in chain(before, tables):
        for node, one in newest.items():
            one.fold_events(table if node is None else table.filter(pc.equal(nodes_of(table), node)))
    return {node: to_events(one.newest()) for node, one in newest.items()}
