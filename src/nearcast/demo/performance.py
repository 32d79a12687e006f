"""Performing a story on a running system: events are published in time, receivers listen over links of their own.

Everything is real but the world: publishers speak HTTP, each receiver is the client library behind a link that is as
slow as the story says. What arrived, when, and at which priority is kept, to be shown and to be checked.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any
from urllib.parse import urlsplit

from nearcast.client import Client, Delivery, Publisher
from nearcast.client.event_schedule import EventSchedule, time_in
from nearcast.demo.bushfire import StoryStep
from nearcast.demo.link import Link
from nearcast.importers.event_documents import CLIENT_CHANGE, Document

OPEN_LINK = 100_000.0
"""kbit/s of a link of which the story says nothing."""

SLICE = 0.05
"""Seconds of story that are published together."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A delivery as it arrived, `waited` seconds after its event was published (None: published by somebody else)."""

    delivery: Delivery
    at: float
    waited: float | None


@dataclass
class DemoReceiver:
    """A client behind its link, and what has arrived there."""

    id: str
    link: Link
    client: Client
    arrivals: list[Arrival] = field(default_factory=list)
    role: str = ""
    task: str = ""

    def by_priority(self) -> Counter[int]:
        """How many arrived, by priority."""
        return Counter(arrival.delivery.priority for arrival in self.arrivals)


@dataclass
class Performance:
    """A story under way: its receivers, when each event was published, and the story's own clock in seconds."""

    url: str
    token: str | None = None
    receivers: dict[str, DemoReceiver] = field(default_factory=dict)
    published: dict[tuple[str, str], float] = field(default_factory=dict)
    refused: int = 0
    clock: float = 0.0
    done: bool = False

    async def perform(self, clients: Sequence[Document], steps: Iterable[StoryStep], speed: float = 1.0) -> None:
        """Performs the steps, `speed` times as fast as they say; `clients` are those of the definitions document."""
        async with AsyncExitStack() as stack:
            publisher = await stack.enter_async_context(Publisher(self.url, self.token))
            for document in clients:
                await self._enter(document, stack)
            await asyncio.gather(*(receiver.client.connected() for receiver in self.receivers.values()))
            began = time.monotonic()
            for at, due in groupby(steps, key=lambda step: step.at // SLICE * SLICE):
                await asyncio.sleep(max(0.0, began + at / speed - time.monotonic()))
                self.clock = at
                await self._take(list(due), publisher)
            await self._drained()

    async def _enter(self, document: Document, stack: AsyncExitStack) -> None:
        """Connects one receiver over a link as fast as its first reading says."""
        parts = urlsplit(self.url)
        readings = document.get("readings", {})
        link = Link((parts.hostname or "127.0.0.1", parts.port or 80), readings.get("bandwidth", OPEN_LINK))
        address = await link.open()
        stack.push_async_callback(link.close)
        client = await stack.enter_async_context(Client(address, document["id"], self.token))
        receiver = DemoReceiver(document["id"], link, client, [], document.get("role", ""), document.get("task", ""))
        self.receivers[receiver.id] = receiver
        listening = asyncio.create_task(self._listen(receiver))
        stack.callback(listening.cancel)

    async def _listen(self, receiver: DemoReceiver) -> None:
        async for delivery in receiver.client.deliveries():
            now = time.monotonic()
            sent = self.published.get((delivery.event["source"], delivery.event["id"]))
            receiver.arrivals.append(Arrival(delivery, now, None if sent is None else now - sent))

    async def _take(self, steps: list[StoryStep], publisher: Publisher) -> None:
        documents = []
        for step in steps:
            receiver = self.receivers.get(step.client)
            if step.kind == "link":
                if receiver:
                    receiver.link.set(step.bandwidth)
            elif step.kind == "client" and receiver and await self._said(receiver, step.document["data"]):
                continue
            else:
                documents.append(step.document)
        # Before the request: a delivery may arrive sooner than its answer.
        now = time.monotonic()
        self.published.update(((document["source"], document["id"]), now) for document in documents)
        if documents:
            self.refused += len((await publisher.publish(documents)).faults)

    async def _said(self, receiver: DemoReceiver, data: dict[str, Any]) -> bool:
        """Whether the receiver could say itself what changed: readings and places; roles are given by others."""
        receiver.role, receiver.task = data.get("role", receiver.role), data.get("task", receiver.task)
        if not {"readings", "position"} >= data.keys() - {"client"}:
            return False
        await receiver.client.say(readings=data.get("readings"), position=data.get("position"))
        return True

    async def _drained(self, quiet: float = 2.0, most: float = 20.0) -> None:
        """Waits until nothing has arrived for a while."""
        until, last, since = time.monotonic() + most, -1, time.monotonic()
        while time.monotonic() < until and time.monotonic() - since < quiet:
            count = sum(len(receiver.arrivals) for receiver in self.receivers.values())
            if count != last:
                last, since = count, time.monotonic()
            await asyncio.sleep(0.1)
        self.done = True

    def waits(self) -> dict[int, list[float]]:
        """Seconds from publishing to arrival, ascending, by priority."""
        found: dict[int, list[float]] = defaultdict(list)
        for receiver in self.receivers.values():
            for arrival in receiver.arrivals:
                if arrival.waited is not None:
                    found[arrival.delivery.priority].append(arrival.waited)
        return {priority: sorted(waits) for priority, waits in sorted(found.items())}


def steps_of(documents: Iterable[Document]) -> Iterator[StoryStep]:
    """The steps that an events file tells, by the events' times, counted from the first; bandwidths become links.

    An event without a time happens together with the one before it, and none happens before one that stands earlier.
    """
    schedule = EventSchedule(speed=1.0)
    for document in documents:
        at, data = schedule.due(time_in(document)), document.get("data")
        client = data.get("client") if isinstance(data, dict) else None
        if document["type"] != CLIENT_CHANGE or not isinstance(client, str):
            yield StoryStep(at, "event", document=document)
            continue
        bandwidth = _bandwidth(data)
        if bandwidth is not None:
            yield StoryStep(at, "link", client, bandwidth=bandwidth)
        yield StoryStep(at, "client", client, document)


def _bandwidth(data: Any) -> float | None:
    """What a client says of its link; the server is told in any case, and refuses what is none."""
    readings = data.get("readings") if isinstance(data, dict) else None
    found = readings.get("bandwidth") if isinstance(readings, dict) else None
    return float(found) if isinstance(found, (int, float)) and math.isfinite(found) else None
