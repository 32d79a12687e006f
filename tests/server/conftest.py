"""Real servers on ephemeral ports of loopback, and a pipeline that decides simply."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from nearcast.client import Client, Publisher
from nearcast.journal.memory import MemoryJournal
from nearcast.journal.seam import Journal
from nearcast.server.app import listen, server_of
from nearcast.server.config import ServerConfig
from nearcast.server.ingest import entry
from tests.server.fake_pipeline import FakePipeline


@dataclass
class Running:
    """A server that runs in the test's own event loop, its journal, and the pipeline beside it."""

    url: str
    journal: Journal
    pipeline: FakePipeline
    server: uvicorn.Server
    http: httpx.AsyncClient

    @property
    def service(self) -> Any:
        return self.server.config.app.state.service

    def client(self, id: str = "a", **more: Any) -> Client:
        return Client(self.url, id, **more)

    def publisher(self, **more: Any) -> Publisher:
        return Publisher(self.url, **more)

    async def declare(self, *clients: str, **subscription: Any) -> None:
        """Declares clients with one subscription each, `all-CLIENT`."""
        for id in clients:
            (await self.http.put(f"/clients/{id}", json={})).raise_for_status()
            body = {"client": id, "filter": "type = 'unit'", **subscription}
            (await self.http.put(f"/subscriptions/all-{id}", json=body)).raise_for_status()

    async def publish(self, *events: dict[str, Any]) -> list[int]:
        """Publishes events and lets the pipeline decide; the events' positions."""
        async with self.publisher() as publisher:
            published = await publisher.publish(events)
        assert not published.faults
        self.pipeline.decide()
        return [position for position in published.positions if position]


@contextlib.asynccontextmanager
async def running(journal: Journal | None = None, **more: Any) -> AsyncIterator[Running]:
    """A server from the beginning of the block to its end."""
    journal = journal or MemoryJournal()
    config = ServerConfig(Path("unused"), port=0, **more)
    listening = listen(config)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server = server_of(replace(config, url=url), journal)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        async with httpx.AsyncClient(base_url=url, timeout=60.0, verify=False) as http:
            await until(lambda: server.started or task.done())
            yield Running(url, journal, FakePipeline(journal), server, http)
    finally:
        server.should_exit = True
        await task


async def until(true: Callable[[], Any], seconds: float = 60.0) -> None:
    """Waits until something is so; fails if it does not become so."""
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.005)


async def received(client: Client, count: int, seconds: float = 60.0) -> list[Any]:
    """The next deliveries of a client; the last one is acknowledged too."""
    found: list[Any] = []
    async with asyncio.timeout(seconds):
        async for delivery in client.deliveries():
            found.append(delivery)
            if len(found) == count:
                break
    if found and client.automatic:
        await client.acknowledge(found[-1].position)
    return found


def unit(id: str, subject: str = "u1", **data: Any) -> dict[str, Any]:
    """An event as a CloudEvent."""
    return {"specversion": "1.0", "id": id, "type": "unit", "source": "s", "subject": subject, "data": data}


LOOK = 0.01
"""Seconds after which a server looks again at how relations stand."""


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers look often: each step of a test waits for it."""
    monkeypatch.setattr(entry, "FOLLOW_SECONDS", LOOK)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Runs an asynchronous test."""
    asyncio.run(test())  # type: ignore[arg-type]
