"""Two access servers on one journal: one order of all events, entry nodes apart, and each with every session."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from nearcast.cli.options import journal_path, state_path
from nearcast.cli.supervisor import Supervisor, SystemPart
from nearcast.cli.system import free_port
from nearcast.client import Client, Delivery, Publisher
from nearcast.journal.sqlite import SqliteJournal
from nearcast.pipeline.snapshots import ready_file

pytestmark = pytest.mark.spark

SECONDS = 120.0
"""Each answer is waited for, at most."""
START_SECONDS = 300.0

NEAR = {"a": "type = 'car'", "b": "type = 'car'", "when": "distance(a, b) < 10"}


@dataclass
class Two:
    """The servers north and south, by URL, and their journal."""

    north: str
    south: str
    journal: SqliteJournal


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """Two servers and a pipeline, all ready."""
    data = tmp_path_factory.mktemp("two")
    ports = {"north": free_port(), "south": free_port()}
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    parts = [
        SystemPart(name, ["server", "--data", str(data), "--port", str(port), "--node", name], environment)
        for name, port in ports.items()
    ]
    parts.append(SystemPart("pipeline", ["pipeline", "--data", str(data), "--master", "local[1]"], environment))
    supervisor, urls = Supervisor(parts), {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    until = time.monotonic() + START_SECONDS

    def ready() -> bool:
        assert time.monotonic() < until
        return ready_file(state_path(data)).exists() and all(map(answers, urls.values()))

    try:
        supervisor.start()
        supervisor.watch(ready)
        with closing(SqliteJournal(journal_path(data))) as journal:
            yield Two(urls["north"], urls["south"], journal)
    finally:
        supervisor.stop()


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=1.0).status_code == 200
    except httpx.HTTPError:
        return False


def car(id: str, x: float) -> dict[str, Any]:
    """A report of the car whose name the id begins with."""
    event = {"specversion": "1.0", "id": id, "type": "car", "source": "s", "subject": id[0]}
    return event | {"data": {"x": x, "y": 0.0}}


async def put(url: str, path: str, document: dict[str, Any]) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=SECONDS) as http:
        (await http.put(path, json=document)).raise_for_status()


async def known(url: str, path: str) -> None:
    """Returns when a server knows of what was defined at the other."""
    async with httpx.AsyncClient(base_url=url, timeout=SECONDS) as http, asyncio.timeout(SECONDS):
        while (await http.get(path)).status_code != 200:
            await asyncio.sleep(0.05)


async def received(client: Client, count: int, seconds: float = SECONDS) -> list[Delivery]:
    """The next deliveries of a client, all acknowledged."""
    found: list[Delivery] = []
    async with asyncio.timeout(seconds):
        async for delivery in client.deliveries():
            found.append(delivery)
            if len(found) == count:
                break
    await client.acknowledge(found[-1].position)
    return found


async def settled(two: Two, client: str, count: int) -> None:
    """Returns when so many deliveries of a client are settled for all servers: closing a connection waits for none."""
    async with asyncio.timeout(SECONDS):
        while True:
            outcomes = two.journal.read("outcomes", 0, 10_000).to_pylist()
            if sum(one["client"] == client for one in outcomes) >= count:
                return
            await asyncio.sleep(0.05)


def test_local_relations_hear_their_own_server_and_global_ones_both(two: Two) -> None:
    """Whoever listens at either server hears what all of them tell."""

    async def test() -> None:
        await put(two.north, "/clients/ann", {})
        await put(two.north, "/relations/here", {**NEAR, "scope": "local"})
        await put(two.north, "/relations/all", NEAR)
        await put(two.north, "/subscriptions/told", {"client": "ann", "filter": "type = 'nearcast.relation'"})
        await known(two.south, "/subscriptions/told")
        async with (
            Publisher(two.north) as north,
            Publisher(two.south) as south,
            Client(two.south, "ann") as ann,
        ):
            await north.publish([car("a1", 0)])
            await south.publish([car("b1", 5)])
            [across] = await received(ann, 1)
            await north.publish([car("b2", 6)])
            [here] = await received(ann, 1)
        told = [(one.event["data"]["relation"], one.event["data"]["detect"]) for one in (across, here)]
        assert [("all", "enter"), ("here", "enter")] == told

    asyncio.run(test())
    found = httpx.get(f"{two.south}/relations/here", timeout=SECONDS).json()
    assert {"local": "north"} == found["scope"]


def test_both_write_into_one_order(two: Two) -> None:
    """Positions have no gap and nobody's twice, whoever writes at the same time; an event is taken once by both."""

    async def test() -> list[int | None]:
        async with Publisher(two.north) as north, Publisher(two.south) as south:
            before = two.journal.end("events")
            writing = [
                one.publish([car(f"{name}.{number}", 1_000.0)])
                for number in range(40)
                for one, name in ((north, "n"), (south, "s"))
            ]
            done = await asyncio.gather(*writing)
            again = await north.publish([car("s.7", 1_000.0)])
            positions = [one.positions[0] for one in done]
            assert list(range(before + 1, before + 81)) == sorted(one or 0 for one in positions)
            assert positions[15] == again.positions[0]
            return positions

    positions = asyncio.run(test())
    rows = two.journal.read("events", 0, two.journal.end("events")).to_pylist()
    nodes = {row["position"]: row["node"] for row in rows}
    assert ["north", "south"] * 40 == [nodes[position or 0] for position in positions]


def test_each_has_every_session(two: Two) -> None:
    """What was acknowledged at one the other does not send again, and nothing is lost."""

    async def test() -> None:
        await put(two.north, "/clients/bob", {})
        await put(two.north, "/subscriptions/buses", {"client": "bob", "filter": "type = 'bus'"})
        await known(two.south, "/subscriptions/buses")
        async with Publisher(two.north) as north:
            published = await north.publish([car("bus", 0) | {"type": "bus"}])
            async with Client(two.south, "bob") as bob:
                assert published.positions == [one.position for one in await received(bob, 1)]
            later = await north.publish([car("bus2", 0) | {"type": "bus"}])
        await settled(two, "bob", 1)
        async with Client(two.north, "bob") as bob:
            assert later.positions == [one.position for one in await received(bob, 1)]
        await settled(two, "bob", 2)
        async with Client(two.south, "bob") as bob:
            with pytest.raises(TimeoutError):
                await received(bob, 1, 2.0)

    asyncio.run(test())
