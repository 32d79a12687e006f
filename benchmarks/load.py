"""A load for a whole system: who wants what, reports that flow at a rate, and clients that take what comes.

Units report from a square of 10 km. A subscription is two or three conditions on text and numbers; one in ten also asks
for a distance from its client, which moves. Every matrix row is the same, so the priority is the filter's relevance.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from nearcast.client import Client, Delivery, Publisher

Document = dict[str, Any]

SIDE = 10_000.0
UNITS = 500
KINDS = [f"kind {number}" for number in range(20)]
AREAS = [f"area {number}" for number in range(50)]
RELEVANCES = (1.0, 0.6, 0.3)
"""One for each priority; a fifth of the subscriptions has the first, the others share what is left."""
POSTS_PER_SECOND = 50
MOVES_EVERY = 2.0
"""Seconds between two positions that a client tells."""


@dataclass(frozen=True, slots=True)
class Load:
    """How much: events a second, subscriptions, clients; all of it from a seed. `delivery`: of the channel."""

    rate: float = 500.0
    subscriptions: int = 1_000
    clients: int = 50
    seed: int = 1
    delivery: str = "ordered"

    def ids(self) -> list[str]:
        """The clients."""
        return [f"client {number}" for number in range(self.clients)]

    def definitions(self, options: dict[str, Document] | None = None) -> Document:
        """The definitions document; `options` are those of every subscription of a client, such as `ttl`."""
        chance = random.Random(f"load {self.seed}")
        ids, options = self.ids(), options or {}
        subscriptions = []
        for number in range(self.subscriptions):
            client = ids[number % len(ids)]
            relevance = chance.choices(RELEVANCES, (1, 2, 2))[0]
            wanted = {
                "id": f"s{number}",
                "client": client,
                "filter": _filter(chance, client),
                **options.get(client, {}),
            }
            subscriptions.append({**wanted, "relevance": [relevance] * wanted["filter"].count(" AND ") + [relevance]})
        clients = [{"id": id, "readings": {"bandwidth": 3750}, "position": _place(chance)} for id in ids]
        return {
            "awareness": {"bandwidth": {"maximum": 3750}},
            "matrix": [[2, 1, 0]] * 3,
            "channels": {"field": {"coordinates": "planar", "types": ["unit"], "delivery": self.delivery}},
            "clients": clients,
            "subscriptions": subscriptions,
        }

    def reports(self, run: str) -> Iterator[Document]:
        """Reports without end; `run` tells theirs from those of another run."""
        chance = random.Random(f"reports {self.seed}")
        places = [_place(chance) for _ in range(UNITS)]
        number = 0
        while True:
            unit = chance.randrange(UNITS)
            places[unit] = {axis: _moved(chance, value, 50.0) for axis, value in places[unit].items()}
            number += 1
            yield _report(chance, f"{run} {number}", unit, places[unit])


def _filter(chance: random.Random, client: str) -> str:
    """Selects about 0.2 % of the reports; a condition each on kind, area, a number, or the distance."""
    form = chance.random()
    kind, area = chance.choice(KINDS), chance.choice(AREAS)
    if form < 0.1:
        metres = chance.choice((500, 1000))
        return f"affiliation = '{chance.choice('FHNU')}' AND distance(user('{client}'), this) <= {metres}"
    if form < 0.5:
        return f"kind = '{kind}' AND area = '{area}'"
    if form < 0.8:
        low = chance.randrange(0, 180)
        return f"kind = '{kind}' AND size >= {low} AND size <= {low + 10} AND speed > {chance.randrange(0, 60)}"
    return f"area = '{area}' AND affiliation = '{chance.choice('FHNU')}' AND speed <= {chance.randrange(10, 70)}"


def _place(chance: random.Random) -> dict[str, float]:
    return {"x": round(chance.uniform(0, SIDE), 1), "y": round(chance.uniform(0, SIDE), 1)}


def _moved(chance: random.Random, value: float, step: float) -> float:
    return round(min(max(value + chance.uniform(-step, step), 0.0), SIDE), 1)


def _report(chance: random.Random, id: str, unit: int, place: dict[str, float]) -> Document:
    data = {
        "affiliation": chance.choice("FHNU"),
        "kind": chance.choice(KINDS),
        "area": chance.choice(AREAS),
        "size": chance.randrange(200),
        "speed": round(chance.uniform(0, 100), 1),
        "note": "seen from the road, moving along the river",
        **place,
    }
    time_ = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    head = {"specversion": "1.0", "id": id, "type": "unit", "source": "load", "subject": f"unit {unit}", "time": time_}
    return {**head, "data": data}


@dataclass
class Traffic:
    """A load under way on a server, or on several of a domain: when each event was published, what arrived when."""

    load: Load
    url: str | Sequence[str]
    keep: bool = True
    """Whether arrivals are kept; else they are only counted."""
    published: dict[str, float] = field(default_factory=dict)
    arrivals: list[tuple[str, Delivery, float]] = field(default_factory=list)
    arrived: int = 0
    events: int = 0
    late: float = 0.0
    """The most that an event was published after its time, in seconds: how far this machine fell behind."""

    async def publish(self, seconds: float, run: str) -> None:
        """Publishes at the load's rate, whether or not the server keeps pace."""
        reports = self.load.reports(run)
        loop = asyncio.get_running_loop()
        began, sending = loop.time(), set[asyncio.Task[Any]]()
        async with Publisher(self.url) as publisher:
            for turn in range(int(seconds * POSTS_PER_SECOND)):
                due = began + turn / POSTS_PER_SECOND
                await asyncio.sleep(due - loop.time())
                self.late = max(self.late, loop.time() - due)
                count = int((turn + 1) * self.load.rate / POSTS_PER_SECOND) - self.events
                batch = [next(reports) for _ in range(count)]
                self.events += count
                if self.keep:
                    self.published.update(dict.fromkeys((event["id"] for event in batch), time.time()))
                # Not awaited: a server that falls behind must not slow the load that it is measured by.
                task = asyncio.create_task(publisher.publish(batch))
                sending.add(task)
                task.add_done_callback(sending.discard)
            await asyncio.gather(*sending)

    async def receive(self, client: Client, pause: float = 0.0) -> None:
        """Takes a client's deliveries without end, `pause` seconds over each."""
        async for delivery in client.deliveries():
            self.arrived += 1
            if self.keep:
                self.arrivals.append((client.id, delivery, time.time()))
            if pause:
                await asyncio.sleep(pause)

    async def move(self, client: Client) -> None:
        """Tells a client's position every now and then, without end."""
        chance = random.Random(f"move {self.load.seed} {client.id}")
        place = _place(chance)
        await asyncio.sleep(chance.uniform(0, MOVES_EVERY))
        while True:
            place = {axis: _moved(chance, value, 100.0) for axis, value in place.items()}
            await client.say(position=place)
            await asyncio.sleep(MOVES_EVERY)
