"""What clients say of themselves reaches the journal once, whatever happens on the way there."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from nearcast.errors import JournalError
from nearcast.language.control_events import changes
from nearcast.model.changes import ClientChange, SettingsChange
from nearcast.model.context import Awareness, ContextSpace
from nearcast.model.event import Event
from nearcast.model.subscription import Settings
from nearcast.server import clock
from nearcast.server.admin.documents import MEASURED
from nearcast.server.config import ServerLimits
from nearcast.server.ingest.group_commit import QueueFull
from nearcast.server.metrics import ServerMetrics
from nearcast.server.sessions.client_updates import ClientUpdates
from nearcast.server.sessions.manager import SessionManager
from nearcast.state.registry import Registry
from tests.server.conftest import run, running, until
from tests.server.test_deliver import raw, socket_of


class Door:
    """Takes events, or fails as often and in the way the test wants."""

    def __init__(self, *failures: Exception | None) -> None:
        self.failures = list(failures)
        self.taken: list[dict[str, Any]] = []
        self.sources: list[str] = []
        self.events: list[Event] = []

    def put(self, events: Sequence[Event]) -> asyncio.Future[list[int]]:
        future: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, QueueFull):
            raise failure
        if failure:
            future.set_exception(failure)
            return future
        self.taken += [orjson.loads(event.payload)["data"] for event in events]
        self.sources += [event.source for event in events]
        self.events += events
        future.set_result([1])
        return future


def contexts_at(door: Door) -> ClientUpdates:
    """Of a desk that knows one client, and whose journal is a door."""
    session_manager = SessionManager(None, ServerMetrics(), 100)  # type: ignore[arg-type]
    session_manager.apply(ClientChange("a"))
    return ClientUpdates(session_manager, door.put, ServerLimits())


async def later(client_updates: ClientUpdates, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets what failed be known, and time pass."""
    await asyncio.sleep(0)
    now = clock.steady() + 100
    monkeypatch.setattr(clock, "steady", lambda: now)
    client_updates.flush()


@pytest.mark.parametrize("failure", [JournalError("no"), QueueFull()])
def test_what_the_journal_did_not_take_is_written_later(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a client has said something else meanwhile: readings and place are both kept."""

    async def test() -> None:
        door = Door(failure)
        client_updates = contexts_at(door)
        session = client_updates.session_manager.session("a")
        client_updates.update(session, {"readings": {"battery": 50.0}})
        client_updates.update(session, {"position": {"x": 1.0, "y": 2.0}})
        await later(client_updates, monkeypatch)
        assert [{"client": "a", "readings": {"battery": 50.0}, "position": {"x": 1.0, "y": 2.0}}] == door.taken

    asyncio.run(test())


def test_what_was_measured_stays_measured_when_it_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As something that the client said it would cap the client's pace for good."""

    async def test() -> None:
        door = Door(JournalError("no"))
        client_updates = contexts_at(door)
        client_updates.update(client_updates.session_manager.session("a"), {"readings": {"bandwidth": 50.0}}, MEASURED)
        await later(client_updates, monkeypatch)
        assert [MEASURED] == door.sources

    asyncio.run(test())


@pytest.mark.parametrize("seed", range(20))
def test_the_journal_leads_to_the_class_that_the_server_holds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it has few of the readings, some come late into it, and the server hears them again from there."""
    chance, moments = random.Random(seed), itertools.count(1_000_000, 7)
    held = Awareness("bandwidth", (10.0, 20.0), 2.0, False, chance.choice([0.0, 20.0]))
    settings = SettingsChange(Settings(space=ContextSpace((held, Awareness("battery", (1.0, 2.0))))))

    async def test() -> None:
        door = Door(*(chance.choice([None, QueueFull()]) for _ in range(60)))
        client_updates = contexts_at(door)
        manager, pipeline = client_updates.session_manager, Registry()
        for registry in (manager.registry, pipeline):
            registry.apply(settings)
        read = 0
        for _ in range(60):
            monkeypatch.setattr(clock, "now", partial(float, next(moments)))
            monkeypatch.setattr(clock, "steady", partial(float, next(moments)))
            value = chance.choice([None, *range(5, 26)])
            said = {"bandwidth": value} if chance.random() < 0.8 else {"battery": float(chance.randint(0, 3))}
            client_updates.update(manager.session("a"), {"readings": said}, MEASURED)
            if chance.random() < 0.3:
                await asyncio.sleep(0)
                client_updates.flush()
            if chance.random() < 0.3:
                for event in door.events[read:]:
                    for registry in (pipeline, manager):
                        for change in changes(event, settings.settings):
                            registry.apply(change)
                    if later := client_updates.unwritten("a"):
                        manager.apply(later)
                read = len(door.events)
        await later_on(client_updates, monkeypatch)
        for event in door.events[read:]:
            for change in changes(event, settings.settings):
                pipeline.apply(change)
                manager.apply(change)
        known = pipeline.clients["a"]
        assert known == manager.registry.clients["a"] == manager.session("a").client
        assert 5 < len(door.events)

    asyncio.run(test())


async def later_on(client_updates: ClientUpdates, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets all be written."""
    for _ in range(5):
        await later(client_updates, monkeypatch)


def test_a_removed_client_does_not_come_back_by_what_it_said_before() -> None:
    """A reading that was to be written later would declare it anew; and nothing of it stays in memory."""

    async def test() -> None:
        async with running(limits=ServerLimits(reading_seconds=0.2)) as server:
            await server.declare("a")
            async with socket_of(server) as socket:
                for battery in (90.0, 80.0):
                    await socket.send(orjson.dumps({"readings": {"battery": battery, "bandwidth": 9.0}}).decode())
                    await socket.send(orjson.dumps({"ping": battery}).decode())
                    await raw(socket, "pong")
                (await server.http.delete("/clients/a")).raise_for_status()
            await asyncio.sleep(1.0)
            assert 404 == (await server.http.get("/clients/a")).status_code
            assert {} == server.service.session_manager.stated

    run(test)


def test_a_client_that_is_refused_is_told_why_in_any_script() -> None:
    """A close frame has room for 123 bytes, and names may need several for each letter."""

    async def test() -> None:
        async with running() as server, socket_of(server, "%E4%BD%A0" * 40) as socket:
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
            assert closed.value.rcvd and 4404 == closed.value.rcvd.code

    run(test)


def test_a_client_that_is_gone_before_it_is_refused_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """It is counted as refused like any other."""

    async def test() -> None:
        async with running() as server:
            domain, gone = server.service.domain, asyncio.Event()

            async def known(client: str) -> bool:
                await gone.wait()
                return False

            domain.known = known  # type: ignore[method-assign]
            socket = await connect(f"ws{server.url[4:]}/clients/nobody/stream")
            socket.transport.abort()
            await socket.wait_closed()
            # The server's side notices it a moment later.
            await asyncio.sleep(0.2)
            gone.set()
            refused = server.service.metrics.rejected.labels("stream")
            await until(lambda: refused._value.get())

    run(test)
    assert [] == [one for one in caplog.records if one.levelname == "ERROR"]


def test_messages_for_a_client_that_does_not_read_are_bounded() -> None:
    """Each ping is answered; who sends on and on without reading must not fill the memory."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            async with socket_of(server) as socket:
                await raw(socket, "hello")
                session = server.service.session_manager.session("a")
                await until(lambda: not session.notices)
                for number in range(20_000):
                    session.tell({"pong": number})
                assert 1_000 >= len(session.notices)
                assert {"pong": 19_999} == session.notices[-1]

    run(test)
