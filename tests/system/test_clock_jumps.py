"""A whole system on a machine whose clock is set while it runs: nothing is lost, told twice, stuck, or over at once."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from nearcast.cli.options import journal_path, state_path
from nearcast.cli.supervisor import Supervisor, SystemPart
from nearcast.cli.system import free_port
from nearcast.client import Client, Delivery, Publisher
from nearcast.journal.sqlite import SqliteJournal
from nearcast.pipeline.snapshots import ready_file
from tests.system.machine_clock import MachineClock, machine_clock
from tests.system.test_two_servers import answers

pytestmark = pytest.mark.spark

HOUR = 3_600.0
PACE = 0.1
"""Seconds between two events that are published on and on."""
PATIENCE = 180.0
"""Seconds after which what does not come is missed: on a busy machine a first batch takes long."""
LASTING = 2.0
"""What the relation asks for before it tells of a dwelling."""
SHARE = 0.98
"""Of the seconds that pass so many at least pass for what is accepted, where the machine's clock is behind it."""


@dataclass
class System:
    """A server and a pipeline whose machine's clock is `clock`."""

    url: str
    journal: SqliteJournal
    clock: MachineClock


@contextmanager
def system(data: Path) -> Iterator[System]:
    """Runs both, in the time zone of a place that has daylight saving."""
    clock, port = machine_clock(data), free_port()
    environment = {**clock.environment, "TZ": "Europe/Berlin"}
    server = ["server", "--data", str(data), "--port", str(port), "--private-webhooks"]
    pipeline = ["pipeline", "--data", str(data), "--master", "local[1]"]
    supervisor = Supervisor([SystemPart("server", server, environment), SystemPart("pipeline", pipeline, environment)])
    url = f"http://127.0.0.1:{port}"
    try:
        supervisor.start()
        supervisor.watch(lambda: ready_file(state_path(data)).exists() and answers(url))
        with closing(SqliteJournal(journal_path(data))) as journal:
            yield System(url, journal, clock)
    finally:
        supervisor.stop()
    assert [0, 0] == [part.restarts for part in supervisor.parts]


@dataclass
class Hook:
    """A web server that fails at first; the keys that it got, and those that it took."""

    failures: int
    url: str = ""
    got: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        fields = dict(line.split(": ", 1) for line in head.splitlines()[1:] if ": " in line)
        await reader.readexactly(int(fields["content-length"]))
        self.got.append(fields["idempotency-key"])
        failed = len(self.got) <= self.failures
        if not failed:
            self.taken.append(fields["idempotency-key"])
        writer.write(f"HTTP/1.1 {503 if failed else 200} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with server:
            yield


def event(type: str, id: str, subject: str, **data: Any) -> dict[str, Any]:
    """An event without a time: that of its acceptance counts."""
    return {"specversion": "1.0", "id": id, "type": type, "source": "s", "subject": subject, "data": data}


async def define(url: str, hook: str) -> None:
    """Ann gets all that is published and told; what Bob, who is away, is owed may wait for ten minutes, or a second."""
    near = {"a": "type = 'car'", "b": "type = 'car'", "when": "distance(a, b) < 10", "time_to_live": 3 * HOUR}
    told = "type IN ('unit', 'nearcast.relation')"
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as http:
        for path, document in (
            ("/settings", {"awareness": {"battery": {"intervals": [0.2, 0.5], "valid": 1}}}),
            ("/clients/ann", {}),
            ("/clients/bob", {}),
            ("/relations/near", {**near, "for": LASTING, "detect": ["enter", "dwell", "exit"]}),
            ("/subscriptions/all", {"client": "ann", "filter": told}),
            ("/subscriptions/kept", {"client": "bob", "filter": "type = 'kept'", "ttl": 600}),
            ("/subscriptions/brief", {"client": "bob", "filter": "type = 'brief'", "ttl": 1}),
            ("/actions/post", {"subscription": "kept", "webhook": hook}),
        ):
            (await http.put(path, json=document)).raise_for_status()


@dataclass
class Run:
    """What is under way on a system: what was published, and what ann got, with when by a steady clock."""

    system: System
    publisher: Publisher
    published: list[str] = field(default_factory=list)
    pairs: int = 0
    got: list[tuple[Delivery, float]] = field(default_factory=list)

    async def publish_on(self) -> None:
        """Publishes without end, at a steady pace."""
        while True:
            self.published.append(f"unit {len(self.published)}")
            await self.publisher.publish([event("unit", self.published[-1], "u")])
            await asyncio.sleep(PACE)

    async def receive(self, client: Client) -> None:
        async for delivery in client.deliveries():
            self.got.append((delivery, time.monotonic()))
            await client.acknowledge(delivery.position)

    async def goes_on(self) -> None:
        """Returns when what is published now has arrived."""
        last = len(self.published)
        await self.until(lambda: self.arrived()[f"unit {last}"] > 0)

    async def until(self, true: Any) -> None:
        async with asyncio.timeout(PATIENCE):
            while not true():
                await asyncio.sleep(0.02)

    def arrived(self) -> Counter[str]:
        """How often each event arrived."""
        return Counter(str(delivery.event["id"]) for delivery, _ in self.got)

    async def ends(self, publishing: asyncio.Task[None], receiving: asyncio.Task[None]) -> None:
        """Ends both, after which all has arrived that was published: once, and in its order."""
        publishing.cancel()
        await self.until(lambda: set(self.published[:-1]) <= self.arrived().keys())
        receiving.cancel()
        await asyncio.gather(publishing, receiving, return_exceptions=True)
        assert {1} == set(self.arrived().values())
        units = [one.event["id"] for one, _ in self.got if one.event["type"] == "unit"]
        assert self.published[: len(units)] == units

    def relations(self, pair: str) -> list[tuple[dict[str, Any], float]]:
        """What was told of a pair whose first entity has that name."""
        return [(one.event, at) for one, at in self.got if one.event["data"].get("a") == pair]

    def accepted(self, id: str) -> datetime:
        [position] = self.system.journal.positions(id)
        [found] = self.system.journal.read("events", position - 1, 1).column("accepted").to_pylist()
        assert isinstance(found, datetime)
        return found

    async def meet(self, pair: str) -> float:
        """Lets two cars meet that nobody else is near, and says when by a steady clock."""
        self.pairs += 1
        x = self.pairs * 1_000.0
        began = time.monotonic()
        cars = [event("car", f"{pair}{side}", f"{pair}{side}", x=x + at, y=0.0) for at, side in enumerate("ab")]
        await self.publisher.publish(cars)
        return began


async def status(url: str) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as http:
        found: dict[str, Any] = (await http.get("/status")).json()
        return found


async def lapses(url: str, client: Client) -> None:
    """Says a reading, and returns when it has lapsed."""
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as http, asyncio.timeout(PATIENCE):
        before = (await http.get("/clients/ann")).json().get("lapsed")
        await client.say(readings={"battery": 0.9})
        while (await http.get("/clients/ann")).json().get("lapsed") in (None, before):
            await asyncio.sleep(0.05)


async def dwells(run: Run, pair: str) -> None:
    """Lets two meet, and sees that they dwell as long after it as they have to, though the clock was set."""
    began = await run.meet(pair)
    await run.until(lambda: len(run.relations(f"{pair}a")) == 2)
    (_, _), (dwell, at) = run.relations(f"{pair}a")
    assert at - began >= LASTING * SHARE, "it has not been so long yet"
    since = datetime.fromisoformat(dwell["data"]["since"])
    assert LASTING == (datetime.fromisoformat(dwell["time"]) - since).total_seconds()


async def brief_expires(run: Run, id: str) -> None:
    """What may wait for a second ends after it: it is not kept for as long as the clock was set back by."""
    before = (await status(run.system.url))["outcomes"].get("expired", 0)
    await run.publisher.publish([event("brief", id, id)])
    async with asyncio.timeout(PATIENCE):
        while (await status(run.system.url))["outcomes"].get("expired", 0) == before:
            await asyncio.sleep(0.1)


def test_a_machine_whose_clock_is_set_is_as_any_other(tmp_path: Path) -> None:
    """Forward an hour, back two, a leap second, and to where it was: events arrive once each in their order, relations
    dwell when they have to, readings lapse, what waits neither ends at once nor stays, webhooks are posted.
    """

    async def test(running: System) -> None:
        hook = Hook(failures=2)
        async with hook.serving(), Publisher(running.url) as publisher, Client(running.url, "ann") as ann:
            await define(running.url, hook.url)
            run = Run(running, publisher)
            publishing, receiving = asyncio.create_task(run.publish_on()), asyncio.create_task(run.receive(ann))
            await publisher.publish([event("kept", "kept", "k")])
            for number, seconds in enumerate((0.0, HOUR, -2 * HOUR, -1.0, HOUR + 1)):
                await run.goes_on()
                running.clock.set(seconds)
                await run.goes_on()
                await asyncio.gather(
                    dwells(run, f"pair {number}"), lapses(running.url, ann), brief_expires(run, f"brief {number}")
                )
            await run.until(lambda: hook.taken)
            await run.ends(publishing, receiving)
            assert ["enter", "dwell"] * 5 == [
                one["data"]["detect"] for n in range(5) for one, _ in run.relations(f"pair {n}a")
            ]
            async with Client(running.url, "bob") as bob:
                [kept] = [await anext(bob.deliveries())]
                await bob.acknowledge(kept.position)
            assert "kept" == kept.event["id"]
            assert 1 == len(set(hook.got)) == len(hook.taken)
            found = await status(running.url)
            assert (0, 5) == (found["balance"], found["outcomes"]["expired"])

    data = tmp_path
    with system(data) as running:
        asyncio.run(test(running))
