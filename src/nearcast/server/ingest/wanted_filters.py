"""What publishers are told to send, as CQL2 text: the filters of all that may want events, in a routing table.

Used from one thread at a time; it takes its time, and leaves half of it to others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event
from typing import TypeVar, cast

import orjson

from nearcast.errors import DefinitionError
from nearcast.journal.seam import Journal
from nearcast.language.cql2 import write
from nearcast.model.columns import to_events
from nearcast.model.filter import Atom, Filter
from nearcast.routing.table import QUICK, ForwardingChange, MergingPolicy, RoutingMeasures, RoutingTable
from nearcast.routing.traffic import TrafficSample
from nearcast.server.metrics import ServerMetrics
from nearcast.state.registry import Registry
from nearcast.suppression.interest_index import ALL, Demand, InterestIndex, outward, rests_on_more

T = TypeVar("T")

EVERYTHING = (write(ALL),)

SAMPLE = 1_000
"""Events of the journal, the newest, on which precision is measured: after as many others it is made anew."""

PAUSE = 60.0
REST = 100
"""So many seconds, and so many times as long as making it took, is a table kept before it is made anew."""


class TableClosed(Exception):
    """Nothing is taken any more: the server ends, or the table failed."""


class InterestTable:
    """What is wanted, by the kind and id of their definition, and the table of what is forwarded for them.

    With a `precision` below 1 it merges imperfectly, as far as the newest events of the journal show nothing less.
    `body` is the answer that says what is forwarded, JSON; `version` counts its changes. Where `closing` is set, from
    outside or since it failed, nothing is taken any more.
    """

    def __init__(self, journal: Journal, precision: float) -> None:
        self.closing = Event()
        self._journal, self._precision = journal, precision
        self._filters: dict[str, tuple[Filter, ...]] = {}
        self._greedy: set[str] = set()
        self._texts: dict[Filter, str] = {}
        self._changed = True
        self.version, self.body = 0, b""
        self._sampled, self._rested = -SAMPLE, 0.0
        self._table = RoutingTable(MergingPolicy.PERFECT, effort=QUICK)

    def measures(self) -> RoutingMeasures:
        """Size and precision as they are now, also while it is being made."""
        found = self._table.measures()
        return replace(found, forwarded=1, precision=1.0) if self._greedy else found

    def update_demands(self, changes: Mapping[str, Demand | None]) -> None:
        """Takes what definitions want from now on; None: they are gone. Raises `TableClosed`."""
        try:
            self._update_demands(changes)
        except BaseException:
            # What it holds is less than what is wanted, perhaps.
            self.closing.set()
            raise

    def _update_demands(self, changes: Mapping[str, Demand | None]) -> None:
        self._rest(0.0)
        if self._precision < 1.0:
            self._renew()
        for key, demand in changes.items():
            filters = () if demand is None else outward(demand, _is_open)
            greedy = filters is None
            self._changed |= greedy != (key in self._greedy)
            (self._greedy.add if greedy else self._greedy.discard)(key)
            self._put(key, filters or ())
        if self._changed:
            self.version, self.body, self._changed = self.version + 1, body_of(self.texts()), False

    def texts(self) -> tuple[str, ...]:
        """The forwarded filters."""
        if self._greedy:
            return EVERYTHING
        for filter, text in self._texts.items():
            self._texts[filter] = text or write(filter)
        return tuple(self._texts.values())

    def _put(self, key: str, filters: tuple[Filter, ...]) -> None:
        before = self._filters.pop(key, ())
        if filters:
            self._filters[key] = filters
        for number in range(max(len(before), len(filters))):
            began, id = time.monotonic(), f"{number} {key}"
            if number >= len(filters):
                self._note(self._table.remove_filter(id))
            elif number >= len(before) or filters[number] != before[number]:
                self._note(self._table.add_filter(id, filters[number]))
            self._rest(time.monotonic() - began)

    def _rest(self, seconds: float) -> None:
        if self.closing.wait(seconds):
            raise TableClosed

    def _note(self, change: ForwardingChange) -> None:
        for filter in change.withdrawn:
            del self._texts[filter]
        self._texts.update(dict.fromkeys(change.added, ""))
        self._changed |= bool(change.added or change.withdrawn)

    def _renew(self) -> None:
        """Makes the table anew where enough has come that may show another precision."""
        began, end = time.monotonic(), self._journal.end("events")
        if began < self._rested or end < self._sampled + SAMPLE:
            return
        self._sampled = end
        before, self._filters, self._texts = self._filters, {}, {}
        self._table = RoutingTable(MergingPolicy.IMPERFECT, _traffic(self._journal, end), self._precision, QUICK)
        for key, filters in before.items():
            self._put(key, filters)
        self._rested = time.monotonic() + max(PAUSE, REST * (time.monotonic() - began))
        self._changed = True


def body_of(texts: tuple[str, ...]) -> bytes:
    """The answer that says that these filters are forwarded."""
    return orjson.dumps({"filters": texts})


def _traffic(journal: Journal, end: int) -> TrafficSample:
    """The newest events, or, where they are large, some of them."""
    after = max(0, end - SAMPLE)
    rows = journal.read("events", after, journal.end_within_bytes("events", after, SAMPLE) - after)
    return TrafficSample([event for event in to_events(rows) if not event.control])


def _is_open(atom: Atom) -> bool:
    """Whether a publisher cannot tell an atom's truth: it rests on more than the event, or CQL2 cannot say it."""
    if rests_on_more(atom):
        return True
    try:
        write(atom)
    except DefinitionError:
        return True
    return False


log = logging.getLogger(__name__)

WAIT = 0.25
"""Seconds for which an answer waits for what changed last."""


@dataclass(frozen=True, slots=True)
class ForwardedBody:
    """The filters that are forwarded, as the body of an answer, and its ETag."""

    tag: str
    body: bytes


async def _in_turns(steps: Generator[None, None, T]) -> T:
    """What steps come to, while others have their turn between them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(T, end.value)
        await asyncio.sleep(0)


class ForwardedFilters:
    """Belongs to one event loop. `instance` tells its ETags from those of other servers."""

    def __init__(
        self, interest_index: InterestIndex, journal: Journal, metrics: ServerMetrics, precision: float, instance: str
    ) -> None:
        self._interest_index, self._journal, self._metrics, self._precision = (
            interest_index,
            journal,
            metrics,
            precision,
        )
        self._instance = instance
        self._thread = ThreadPoolExecutor(1, "nearcast-routing")
        self._everything = ForwardedBody(f'"{instance}-all"', body_of(EVERYTHING))
        self._changes: dict[str, Demand | None] = {}
        self._interest_table: InterestTable | None = None
        self._made = 0
        self._taking: asyncio.Future[ForwardedBody] | None = None
        self._following = asyncio.Lock()

    async def follow(self, registry: Registry) -> None:
        """Takes the definitions as they are now into the index, while others have their turn."""
        async with self._following:
            while not self._interest_index.follows(registry):
                for _ in self._interest_index.follow_in_steps(registry):
                    await asyncio.sleep(0)

    async def wants_types(self, registry: Registry, types: Iterable[str]) -> dict[str, bool]:
        """Of each type, whether anybody may want some event of it now, beside control events."""
        await self.follow(registry)
        return {one: await _in_turns(self._interest_index.type_in_steps(one)) for one in dict.fromkeys(types)}

    async def forwarded(self, registry: Registry) -> ForwardedBody:
        """Filters that select whatever anybody may want, as of now."""
        await self.follow(registry)
        self.follow_definitions(registry, begin=True)
        taking = self._taking
        if self._interest_index.all or taking is None:
            return self._everything
        try:
            return await asyncio.wait_for(asyncio.shield(taking), WAIT)
        except TimeoutError:
            return self._everything
        except Exception:
            # Once, though several may have waited: another one may have begun to make it anew.
            if taking is self._taking:
                self._metrics.errors.labels("routing").inc()
                log.exception("routing table failed, it is made anew")
                self._end()
            return self._everything

    def follow_definitions(self, registry: Registry, begin: bool = False) -> None:
        """Takes the definitions as they are now, if there is a table, or one is to begin."""
        self._interest_index.follow_definitions(registry)
        if self._interest_table is None and begin:
            self._made += 1
            self._interest_table = InterestTable(self._journal, self._precision)
            self._changes = dict(self._interest_index.demands())
            self._interest_index.heard = self._hear
        # While everything is wanted there is nothing to look at it for.
        if self._interest_table is not None and not self._interest_index.all:
            self._hand_over(self._interest_table)

    def _hear(self, key: str, demand: Demand | None) -> None:
        self._changes[key] = demand

    def _hand_over(self, interest_table: InterestTable) -> None:
        """Gives the thread what has changed; with a precision below 1 it also looks what has come."""
        busy = self._taking is not None and not self._taking.done()
        if self._changes or self._taking is None or (self._precision < 1.0 and not busy):
            changes, self._changes = self._changes, {}
            loop = asyncio.get_running_loop()
            self._taking = loop.run_in_executor(self._thread, self._taken, interest_table, changes, self._made)
            # Nobody may ask again.
            self._taking.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _taken(self, interest_table: InterestTable, changes: dict[str, Demand | None], made: int) -> ForwardedBody:
        """The answer after some changes; in the thread."""
        interest_table.update_demands(changes)
        return ForwardedBody(f'"{self._instance}-{made}-{interest_table.version}"', interest_table.body)

    def measures(self) -> RoutingMeasures:
        """Size and precision of what is forwarded; of no table as long as nobody has asked."""
        found = RoutingMeasures(0, 0, 1.0) if self._interest_table is None else self._interest_table.measures()
        return replace(found, forwarded=1, precision=1.0) if self._interest_index.all else found

    def _end(self) -> None:
        if self._interest_table is not None:
            self._interest_table.closing.set()
        self._interest_table = self._taking = self._interest_index.heard = None

    def close(self) -> None:
        """Ends the thread, whatever it is at."""
        self._end()
        self._thread.shutdown(wait=False, cancel_futures=True)
