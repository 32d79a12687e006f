"""What clients said, and what was measured of them, is unknown once it was valid for so long."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager

import orjson
import pytest

from nearcast.journal.memory import MemoryJournal
from nearcast.language.control_events import changes
from nearcast.model.changes import ClientChange, ClientRemoval, SettingsChange
from nearcast.model.context import Awareness, ContextSpace
from nearcast.model.subscription import Settings
from nearcast.server import clock
from nearcast.server.admin.documents import LAPSED, MEASURED, SAID
from nearcast.server.config import ServerLimits
from nearcast.server.ingest.group_commit import QueueFull
from nearcast.server.metrics import ServerMetrics
from nearcast.server.sessions.client_updates import ClientUpdates
from nearcast.server.sessions.manager import SessionManager
from nearcast.server.sessions.validity_timers import SLACK
from nearcast.state.registry import Registry
from tests.server.conftest import received, run, running, unit, until
from tests.server.test_contexts import Door
from tests.server.test_deliver import raw, socket_of

VALID = SettingsChange(Settings(space=ContextSpace((Awareness("bandwidth", (1250.0, 2500.0), valid=60.0),))))
NOON = 1_800_000_000.0


class HandClock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.seconds = NOON

    def __call__(self) -> float:
        return self.seconds


@contextmanager
def by_hand() -> Iterator[HandClock]:
    """The server's time is told by hand."""
    hand = HandClock()
    with clock.replaced(clock.ServerClock(hand, hand)):
        yield hand


class Written:
    """A server's part that says and withdraws, and a journal that is read when the test says so."""

    def __init__(self, *failures: Exception | None) -> None:
        self.door, self.pipeline, self.read = Door(*failures), Registry(), 0
        self.manager = SessionManager(None, ServerMetrics(), 100)  # type: ignore[arg-type]
        self.updates = ClientUpdates(self.manager, self.door.put, ServerLimits())
        for registry in (self.manager, self.pipeline):
            registry.apply(VALID)
            registry.apply(ClientChange("a"))

    def said(self, bandwidth: float | None, source: str = SAID) -> None:
        self.updates.update(self.manager.session("a"), {"readings": {"bandwidth": bandwidth}}, source)

    async def round(self) -> None:
        """What housekeeping does, then the journal is read."""
        self.updates.flush()
        await self.updates.withdraw_lapsed()
        self.follow()

    def follow(self) -> None:
        for event in self.door.events[self.read :]:
            for change in changes(event, VALID.settings):
                assert isinstance(change, ClientChange)
                self.pipeline.apply(change)
                self.manager.apply(change)
                if event.source != MEASURED:
                    self.manager.state_bandwidth(change)
                if later := self.updates.unwritten("a"):
                    self.manager.apply(later)
        self.read = len(self.door.events)

    def readings(self) -> list[float | None]:
        """The bandwidth that the pipeline and the server know."""
        return [one.clients["a"].readings.get("bandwidth") for one in (self.pipeline, self.manager.registry)]


def test_a_reading_lapses_when_it_was_valid_for_so_long() -> None:
    """By an event of that moment that names the moment of the reading; where nothing lapses nothing is written."""

    async def test() -> None:
        with by_hand() as hand:
            here = Written()
            here.said(100.0)
            hand.seconds += 59.9
            await here.round()
            assert ([SAID], [100.0, 100.0]) == (here.door.sources, here.readings())
            hand.seconds += 0.5
            await here.round()
            assert ([SAID, LAPSED], [None, None]) == (here.door.sources, here.readings())
            assert {"client": "a", "lapsed": {"bandwidth": here.door.taken[0]["moments"]["bandwidth"]}} == (
                here.door.taken[1]
            )
            assert NOON + 60 == pytest.approx(here.door.events[1].moment.timestamp(), abs=0.01)  # type: ignore[union-attr]
            hand.seconds += 3600
            await here.round()
            assert 2 == len(here.door.taken) and 0 == len(here.manager.validity_timers)
            assert {} == here.manager.stated

    asyncio.run(test())


def test_a_reading_that_was_not_written_yet_is_valid_from_when_it_was_heard() -> None:
    """It is written seconds later, with its own moment, before what withdraws it."""

    async def test() -> None:
        with by_hand() as hand:
            here = Written()
            here.said(100.0)
            hand.seconds += 1
            here.said(120.0)
            heard = hand.seconds
            hand.seconds += 60.5
            await here.updates.withdraw_lapsed()
            here.follow()
            assert ([SAID, SAID, LAPSED], [None, None]) == (here.door.sources, here.readings())
            assert heard + 60 == pytest.approx(here.door.events[2].moment.timestamp(), abs=0.01)  # type: ignore[union-attr]

    asyncio.run(test())


def test_a_reading_is_renewed_in_the_journal_before_the_one_there_lapses() -> None:
    """Though readings of one class are written seconds later: another server would withdraw what is there."""

    async def test() -> None:
        with by_hand() as hand:
            here = Written()
            here.said(100.0)
            for seconds, expected in ((1, 1), (57, 3), (0.1, 3)):
                hand.seconds += seconds
                if seconds == 57:
                    here.updates.update(here.manager.session("a"), {"position": {"x": 1, "y": 2}})
                here.said(100.0)
                assert expected == len(here.door.taken)

    asyncio.run(test())


def test_a_withdrawal_that_the_journal_did_not_take_is_written_again() -> None:
    """Until the reading is gone, and not with each look."""

    async def test() -> None:
        with by_hand() as hand:
            here = Written(None, QueueFull(), None)
            here.said(100.0)
            for seconds, expected in ((60.5, 1), (0.5, 1), (5.0, 2), (5.0, 2)):
                hand.seconds += seconds
                await here.round()
                here.manager.apply(ClientChange("a", role="runner"))
                assert expected == len(here.door.taken)
            assert [None, None] == here.readings()

    asyncio.run(test())


def test_one_timer_stands_for_a_reading_that_comes_again_and_again() -> None:
    """And for clients that come and go there are hardly more entries than clients."""
    with by_hand() as hand:
        manager = SessionManager(None, ServerMetrics(), 100)  # type: ignore[arg-type]
        manager.apply(VALID)
        for number in range(1_000):
            hand.seconds += 1
            manager.apply(ClientChange("a", readings={"bandwidth": number}, moment=round(hand.seconds * 1e6)))
        assert 1 == len(manager.validity_timers)
        for number in range(1_000):
            hand.seconds += 0.01
            manager.apply(ClientChange(f"b{number}", readings={"bandwidth": number}, moment=round(hand.seconds * 1e6)))
            manager.apply(ClientRemoval(f"b{number}"))
        assert 2 * SLACK > len(manager.validity_timers)


def test_what_is_put_back_for_what_was_measured_is_as_old_as_it_was() -> None:
    """A bandwidth that was stated an hour ago is not stated anew where the measured one lapses with the connection."""

    async def test() -> None:
        with by_hand() as hand:
            here = Written()
            here.said(3000.0)
            hand.seconds += 30
            here.said(100.0, MEASURED)
            assert here.updates.lapse(here.manager.session("a"))
            await here.round()
            assert [3000.0, 3000.0] == here.readings()
            hand.seconds += 30.5
            await here.round()
            assert [None, None] == here.readings()
            hand.seconds += 1
            here.said(3000.0)
            await here.round()
            hand.seconds += 50
            here.said(100.0, MEASURED)
            hand.seconds += 20
            assert here.updates.lapse(here.manager.session("a"))
            await here.round()
            assert [None, None] == here.readings() and {} == here.manager.stated

    asyncio.run(test())


@pytest.mark.parametrize("seed", range(15))
def test_the_journal_leads_to_what_the_server_knows(seed: int) -> None:
    """Whatever is said, measured, refused and read late: in the end both know the last reading, or that it lapsed."""
    chance = random.Random(seed)

    async def test() -> None:
        with by_hand() as hand:
            here = Written(*(chance.choice([None, None, QueueFull()]) for _ in range(40)))
            for _ in range(40):
                hand.seconds += chance.choice([0.3, 7.0, 40.0])
                if chance.random() < 0.6:
                    here.said(chance.choice([None, 100.0, 120.0, 3000.0]), chance.choice([SAID, MEASURED]))
                here.updates.flush()
                await here.updates.withdraw_lapsed()
                if chance.random() < 0.6:
                    here.follow()
            here.door.failures.clear()
            hand.seconds += 20
            here.said(150.0)
            for seconds, expected in ((10, 150.0), (10, 150.0), (45, None), (10, None)):
                hand.seconds += seconds
                await here.round()
                assert [expected, expected] == here.readings()
            assert here.pipeline.clients["a"] == here.manager.registry.clients["a"]

    asyncio.run(test())


BODY = {"awareness": {"bandwidth": {"maximum": 3750, "valid": 1}}, "matrix": "restriction"}


def test_what_a_reading_withheld_is_sent_once_it_lapsed() -> None:
    """Without another event; and what is read of the client says of when the reading was."""

    async def test() -> None:
        async with running() as server:
            (await server.http.put("/settings", json=BODY)).raise_for_status()
            await server.declare("a", relevance=0.3)
            async with server.client() as client:
                async with socket_of(server) as socket:
                    await raw(socket, "hello")
                    await socket.send(orjson.dumps({"readings": {"bandwidth": 100}}).decode())
                    await socket.send(orjson.dumps({"ping": 1}).decode())
                    await raw(socket, "pong")
                    await server.publish(unit("1"))
                    await until(lambda: server.service.session_manager.session("a").waiting.waiting)
                [delivery] = await received(client, 1)
                assert "1" == delivery.event["id"]
            found = (await server.http.get("/clients/a")).json()
            assert ["bandwidth"] == [*found["lapsed"]] and not found.get("readings")
            (await server.http.delete("/clients/a")).raise_for_status()
            assert {"id": "a"} == (await server.http.put("/clients/a", json=found)).json()["document"]

    run(test)


def test_after_a_restart_a_reading_lapses_too() -> None:
    """What was valid when the server stopped, and is not any more, is withdrawn by the one that comes after it."""

    async def test() -> None:
        journal = MemoryJournal()
        async with running(journal) as server:
            (await server.http.put("/settings", json=BODY)).raise_for_status()
            (await server.http.put("/clients/a", json={"readings": {"bandwidth": 100}})).raise_for_status()
        async with running(journal) as server:
            await until(lambda: server.service.session_manager.registry.clients["a"].lapsed())
            assert {} == server.service.session_manager.stated

    run(test)
