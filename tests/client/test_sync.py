"""The client library without async, against a real server."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from nearcast.client import Client, SyncClient, SyncPublisher, receiver
from nearcast.errors import SessionError
from tests.server.conftest import Running, running


def beside(work: Callable[[Running], Any], **more: Any) -> Any:
    """What some work, in a thread of its own, makes of a server."""

    async def test() -> Any:
        async with running(**more) as server:
            await server.declare("a")
            return await asyncio.to_thread(work, server)

    return asyncio.run(test())


def event(number: int) -> dict[str, Any]:
    return {"specversion": "1.0", "id": str(number), "type": "unit", "source": "s", "data": {"size": number}}


def publish(server: Running, *numbers: int) -> list[int | None]:
    with SyncPublisher(server.url) as publisher:
        positions = publisher.publish([event(number) for number in numbers]).positions
    server.pipeline.decide()
    return positions


def test_what_is_published_is_delivered_and_acknowledged() -> None:
    """Each once, in order; the last one with the next question, which ends after its timeout."""

    def work(server: Running) -> list[tuple[Any, int]]:
        positions = publish(server, 1, 2, 3)
        with SyncClient(server.url, "a") as client:
            client.say(readings={"bandwidth": 3000})
            found = [(one.position, one.event.data["size"]) for one in client.deliveries(timeout=3.0)]
            assert client.online
        assert positions == [position for position, _ in found]
        assert 3 == server.journal.end("outcomes")
        return [size for _, size in found]

    assert [1, 2, 3] == beside(work)


def test_what_is_not_acknowledged_comes_again_to_whoever_connects_next() -> None:
    """Leaving the loop acknowledges nothing; `acknowledge` does."""

    def work(server: Running) -> tuple[list[str], list[str]]:
        publish(server, 1, 2)
        with SyncClient(server.url, "a", automatic=False) as client:
            first = []
            for delivery in client.deliveries():
                first.append(delivery.event.id)
                if delivery.event.id == "2":
                    client.acknowledge(delivery.position)
                    break
        with SyncClient(server.url, "a") as client:
            return first, [one.event.id for one in client.deliveries(timeout=3.0)]

    assert (["1", "2"], ["1"]) == beside(work)


def test_what_was_acknowledged_does_not_come_again_after_closing_though_the_connection_was_just_lost() -> None:
    """Closing connects again, says it, and returns when the server has it in the journal."""

    def work(server: Running) -> tuple[list[str], int, list[str]]:
        publish(server, 1, 2)
        client = SyncClient(server.url, "a", automatic=False)
        coming = client.deliveries()
        first = [next(coming), next(coming)]
        connection, loop = client._client._connection, client._background._loop
        assert connection and loop
        loop.call_soon_threadsafe(connection.transport.abort)
        client.acknowledge(*(one.position for one in first))
        client.close()
        noted = server.journal.end("outcomes")
        with SyncClient(server.url, "a") as again:
            return [one.event.id for one in first], noted, [one.event.id for one in again.deliveries(timeout=1.0)]

    assert (["1", "2"], 2, []) == beside(work)


def test_closing_waits_a_bounded_time_for_a_server_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever connects next sees again what nobody has heard that it was acknowledged."""
    monkeypatch.setattr(receiver, "SETTLE_SECONDS", 0.2)

    async def test() -> list[str]:
        async with running() as server:
            await server.declare("a")
            await asyncio.to_thread(publish, server, 1)
            client = Client(server.url, "a", automatic=False)
            taken = await anext(client.deliveries())
        # The server is no more.
        await client.acknowledge(taken.position)
        async with asyncio.timeout(30.0):
            await client.close()
        return [taken.event.id]

    assert ["1"] == asyncio.run(test())


def test_an_iteration_may_be_collected_as_garbage_in_the_thread_of_the_loop() -> None:
    """Which collects whatever nobody has any more; what was not acknowledged comes again."""

    def work(server: Running) -> list[str]:
        publish(server, 1, 2)
        client = SyncClient(server.url, "a", automatic=False)
        coming = client.deliveries()
        found, ring = [next(coming).event.id], list[Any]()
        ring += [ring, coming]
        del coming, ring
        loop, collected = client._background._loop, threading.Event()
        assert loop
        loop.call_soon_threadsafe(lambda: (gc.collect(), collected.set()))
        assert collected.wait(60.0)
        found.append(next(client.deliveries()).event.id)
        client.close()
        return found

    assert ["1", "2"] == beside(work)


def test_errors_come_through() -> None:
    """A client that the server does not know, and faults of events."""

    def work(server: Running) -> None:
        with SyncClient(server.url, "nobody") as client, pytest.raises(SessionError, match="nobody"):
            next(client.deliveries())
        with SyncPublisher(server.url) as publisher:
            assert {0} == publisher.publish([{"id": "1"}]).faults.keys()

    beside(work)


def test_after_closing_there_is_nothing_more() -> None:
    """And no thread is left."""

    def work(server: Running) -> None:
        client = SyncClient(server.url, "a")
        client.connected(timeout=30)
        coming = client.deliveries()
        client.close()
        client.close()
        with pytest.raises(SessionError, match="closed"):
            next(coming)
        assert "nearcast" not in {thread.name for thread in threading.enumerate()}

    beside(work)


def test_the_client_library_starts_without_what_decides() -> None:
    """Neither arrays nor geometry nor a parser of filters is imported for receiving and publishing."""
    script = (
        "import sys, nearcast, nearcast.client as c; c.Publisher('http://x'); c.Client('http://x', 'a');"
        "heavy = {'numpy', 'pyarrow', 'pandas', 'numba', 'shapely', 'pyproj', 'yaml', 'cql2', 'pyspark'};"
        "print(*heavy & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "" == done.stdout.strip()
