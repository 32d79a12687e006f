"""What a client remembers of deliveries across connections, as a server sees it that does only what the test does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson
import pytest
from websockets.asyncio.server import ServerConnection, serve

from nearcast.client import Client, receiver
from nearcast.journal.memory import MemoryJournal
from nearcast.journal.sqlite import SqliteJournal
from nearcast.runtime import machine_boot

Talk = Callable[[ServerConnection], Awaitable[None]]


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """These servers settle nothing, so that closing would only wait for them."""
    monkeypatch.setattr(receiver, "SETTLE_SECONDS", 0.05)


@asynccontextmanager
async def talking(*talks: Talk) -> AsyncIterator[str]:
    """A server that holds these talks, one on each connection; its URL."""
    left = iter(talks)

    async def talk(socket: ServerConnection) -> None:
        await next(left)(socket)

    async with serve(talk, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def greet(socket: ServerConnection, era: str) -> None:
    await socket.send(orjson.dumps({"hello": {"era": era}}).decode())


async def deliver(socket: ServerConnection, position: int, id: str) -> None:
    event = {"specversion": "1.0", "id": id, "source": "s", "type": "t"}
    about = {"priority": 0, "subscription": "all", "level": 2, "attempt": 1}
    await socket.send(orjson.dumps({"delivery": position, **about, "event": event}).decode())


async def acknowledged(socket: ServerConnection) -> Any:
    """What the client acknowledges next."""
    while "ack" not in (message := orjson.loads(await socket.recv())):
        pass
    return message["ack"]


async def first(socket: ServerConnection) -> None:
    """Delivers a, hears that it was taken, and is gone before it can say that this is settled."""
    await greet(socket, "one")
    await deliver(socket, 7, "a")
    assert [7] == await acknowledged(socket)


def taken(*talks: Talk) -> list[str]:
    """The ids of what an application gets from a server, with one more at the end."""

    async def test() -> list[str]:
        found = list[str]()
        async with asyncio.timeout(60), talking(first, *talks) as url, Client(url, "ann") as client:
            async for delivery in client.deliveries():
                found.append(delivery.event.id)
                if found[-1] == "last":
                    break
        return found

    return asyncio.run(test())


def test_in_the_same_era_a_client_repeats_what_it_acknowledged() -> None:
    """The server may not have heard it, and need not send again what it is told of."""

    async def again(socket: ServerConnection) -> None:
        await greet(socket, "one")
        assert [7] == await acknowledged(socket)
        await deliver(socket, 7, "a")
        assert [7] == await acknowledged(socket)
        await deliver(socket, 8, "last")
        await socket.wait_closed()

    assert ["a", "last"] == taken(again)


def test_in_another_era_a_position_may_be_that_of_another_event() -> None:
    """A journal that lost its newest events gives their positions again: what was acknowledged there says nothing."""

    async def after_loss(socket: ServerConnection) -> None:
        await greet(socket, "two")
        with suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                raise AssertionError(f"{await acknowledged(socket)} is of the era before")
        await deliver(socket, 7, "b")
        assert [7] == await acknowledged(socket)
        await deliver(socket, 8, "last")
        await socket.wait_closed()

    assert ["a", "b", "last"] == taken(after_loss)


def test_in_another_era_what_comes_again_is_known_by_its_event() -> None:
    """Also after the era after that one: the application gets it once, and it is acknowledged without being asked."""

    async def short(socket: ServerConnection) -> None:
        await greet(socket, "two")

    async def again(socket: ServerConnection) -> None:
        await greet(socket, "three")
        await deliver(socket, 7, "a")
        assert [7] == await acknowledged(socket)
        await deliver(socket, 8, "last")
        await socket.wait_closed()

    assert ["a", "last"] == taken(short, again)


def test_an_era_ends_where_a_journal_may_have_lost_its_end(tmp_path: Any, monkeypatch: Any) -> None:
    """That in memory where it is cut, a file where its machine starts again or another file takes its place."""
    memory = MemoryJournal()
    before = memory.era
    memory.cut("events", 0)
    assert before != memory.era
    eras = list[str]()
    for name, boot in (("a", "one"), ("a", "one"), ("a", "two"), ("b", "two")):
        monkeypatch.setattr("nearcast.journal.sqlite.boot_name", lambda boot=boot: boot)
        journal = SqliteJournal(tmp_path / name)
        eras.append(journal.era)
        journal.close()
    assert eras[0] == eras[1]
    assert 3 == len(set(eras))
    assert machine_boot.boot_name() == machine_boot.boot_name()
