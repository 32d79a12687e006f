"""Access servers as processes on one journal, a pipeline that decides simply, and clients that move between them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from nearcast.cli.options import JOURNAL, journal_path
from nearcast.cli.supervisor import SystemPart
from nearcast.cli.system import free_port
from nearcast.client import Client, Delivery, Publisher
from nearcast.journal.locations import journal_at
from nearcast.journal.seam import Journal
from tests.server.fake_pipeline import FakePipeline

PAUSE = 0.02
FILTER = {
    "any": [
        {"when": "kind = 'fire'", "relevance": 1},
        {"when": "kind = 'smoke'", "relevance": 0.5},
        {"when": "kind = 'dust'", "relevance": 0.2},
    ]
}
KINDS = ("fire", "smoke", "dust")


class Fleet:
    """Servers by name on a journal in a folder, or at a location: then each has a folder of its own, as on machines."""

    def __init__(self, data: Path, names: Sequence[str], location: str | None = None) -> None:
        self.data, self.ports = data, {name: free_port() for name in names}
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        environment |= {JOURNAL: location} if location else {}
        folders = {name: data / name if location else data for name in names}
        self.parts = {
            name: SystemPart(
                name,
                ["server", "--data", str(folders[name]), "--port", str(port), "--node", name],
                environment,
            )
            for name, port in self.ports.items()
        }
        self.down: set[str] = set()

    @property
    def urls(self) -> list[str]:
        """Where all are, whether they run or not."""
        return [self.url(name) for name in self.ports]

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def up(self) -> list[str]:
        """The names of those that run."""
        return [name for name in self.ports if name not in self.down]

    async def start(self, *names: str) -> None:
        """Starts servers, and waits until they answer."""
        for name in names or self.ports:
            self.parts[name].start(time.monotonic())
        async with httpx.AsyncClient(timeout=5.0) as http, asyncio.timeout(60):
            for name in names or self.ports:
                while True:
                    with contextlib.suppress(httpx.HTTPError):
                        if (await http.get(f"{self.url(name)}/health")).status_code == 200:
                            break
                    await asyncio.sleep(0.05)
                self.down.discard(name)

    async def end(self, name: str, sign: signal.Signals) -> int:
        """Sends a server a signal; its exit code."""
        self.down.add(name)
        process = self.parts[name].process
        assert process
        process.send_signal(sign)
        code = await asyncio.to_thread(process.wait, 60)
        self.parts[name].wait(0)
        return code

    def stop(self) -> None:
        """Ends all."""
        for part in self.parts.values():
            part.stop()
        for part in self.parts.values():
            part.wait(20)

    async def counted(self, name: str) -> Counter[str]:
        """The counters of a server, by name without labels."""
        found: Counter[str] = Counter()
        async with httpx.AsyncClient(timeout=20.0) as http:
            for line in (await http.get(f"{self.url(name)}/metrics")).text.splitlines():
                if line and not line.startswith("#"):
                    named, _, value = line.rpartition(" ")
                    found[named.partition("{")[0]] += float(value)
        return found


@contextlib.contextmanager
def deciding(data: Path, location: str | None = None) -> Iterator[Journal]:
    """A pipeline decides what comes, in a thread; the journal."""
    with contextlib.closing(journal_at(location or journal_path(data))) as journal:
        pipeline, ended = FakePipeline(journal), threading.Event()

        def decide() -> None:
            while not ended.wait(PAUSE):
                if journal.end("events") > pipeline.through:
                    pipeline.decide()

        thread = threading.Thread(target=decide, name="deciding")
        thread.start()
        try:
            yield journal
        finally:
            ended.set()
            thread.join()


@dataclass
class Follower:
    """A client that listens, and what it got."""

    client: Client
    got: list[Delivery] = field(default_factory=list)
    moves: int = 0

    async def listen(self) -> None:
        """Listens without end."""
        async for delivery in self.client.deliveries():
            self.got.append(delivery)

    async def move(self, fleet: Fleet, count: int, chance: random.Random) -> None:
        """Moves so often to another server that runs."""
        await self.client.connected()
        while self.moves < count:
            others = [name for name in fleet.up() if fleet.url(name) != self.client.server]
            if others:
                await self.client.move_to(fleet.url(chance.choice(others)))
                self.moves += 1
            await asyncio.sleep(0.02 * chance.random())


@contextlib.asynccontextmanager
async def followers(fleet: Fleet, count: int) -> AsyncIterator[list[Follower]]:
    """Clients that want everything, at priorities that depend on its kind, declared and listening."""
    ids = [f"c{number}" for number in range(count)]
    async with httpx.AsyncClient(base_url=fleet.url(fleet.up()[0]), timeout=60.0) as http:
        for id in ids:
            (await http.put(f"/clients/{id}", json={})).raise_for_status()
            (await http.put(f"/subscriptions/all-{id}", json={"client": id, "filter": FILTER})).raise_for_status()
    urls = fleet.urls
    found = [Follower(Client(urls[at % len(urls) :] + urls[: at % len(urls)], id)) for at, id in enumerate(ids)]
    listening = [asyncio.create_task(one.listen()) for one in found]
    try:
        yield found
    finally:
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)
        await asyncio.gather(*(one.client.close() for one in found))


async def publish(fleet: Fleet, accepted: list[int], ended: asyncio.Event, pause: float) -> None:
    """Publishes events of all kinds without end; the positions of those that were accepted."""
    number = 0
    async with Publisher(fleet.urls, patience=60.0) as publisher:
        while not ended.is_set():
            batch = [event(f"e{number + at}", KINDS[(number + at) % 3]) for at in range(3)]
            number += 3
            done = await publisher.publish(batch)
            assert not done.faults
            accepted += [position for position in done.positions if position is not None]
            await asyncio.sleep(pause)


def event(id: str, kind: str) -> dict[str, Any]:
    """An event as a CloudEvent."""
    about = {"specversion": "1.0", "id": id, "type": "unit", "source": "s", "subject": id}
    return about | {"data": {"kind": kind}}


async def check(found: list[Follower], accepted: list[int], seconds: float) -> None:
    """Everybody got all that was accepted, nothing twice, and what is of one level in its order."""
    wanted = sorted(accepted)
    async with asyncio.timeout(seconds):
        while any(len(one.got) < len(wanted) for one in found):
            await asyncio.sleep(0.05)
    for one in found:
        positions = [int(delivery.position) for delivery in one.got]
        assert wanted == sorted(positions), one.client.id
        for level in {delivery.level for delivery in one.got}:
            of_level = [int(delivery.position) for delivery in one.got if delivery.level == level]
            assert sorted(of_level) == of_level, one.client.id
