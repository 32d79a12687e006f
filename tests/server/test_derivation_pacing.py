"""Events of which much follows enter a few at a time while others publish; all others enter as they come."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from unittest.mock import patch

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Counter

from nearcast.journal.memory import MemoryJournal
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.server.access import AccessToken
from nearcast.server.ingest import derivation_pacing
from nearcast.server.ingest.derivation_pacing import SENDERS, DerivationPacing, Entering, derived_from, sources_of
from nearcast.server.ingest.group_commit import QueueFull

BUSY, OTHER = (AccessToken(name, name, frozenset({"publish"})) for name in ("busy", "other"))

DERIVED = 50
"""Events that follow from each of those of the source "crowd"."""


class Door:
    """A door to a journal in which all is decided as it is written; the clock is set by hand."""

    def __init__(self) -> None:
        self.now, self.submitted, self.parts = 0.0, 0.0, list[int]()
        self.journal = MemoryJournal()
        counter = Counter("paced", "Those that waited", registry=CollectorRegistry())
        self.pacing = DerivationPacing(self.journal, lambda: self.journal.end("events"), counter, lambda: self.now)

    async def submit(self, entering: Entering) -> list[int | None]:
        """Writes events, and what follows from them."""
        self.submitted = self.now
        self.parts.append(len(entering))
        positions = self.journal.append("events", to_table(entering))
        derived = [
            Event(f"d{at}-{part}", "nearcast.relation", "x", position=at, part=part)
            for at, event in zip(positions, entering, strict=True)
            if event.source == "crowd"
            for part in range(1, DERIVED + 1)
        ]
        self.journal.commit_range("derived", to_table(derived), positions[-1])
        return [*positions]

    async def enter(self, count: int, source: str, token: AccessToken | None = BUSY, derives: bool = True) -> list[int]:
        """Has so many events of a source entered, and what follows counted; in how many parts they entered."""
        self.parts = []
        first = self.journal.end("events")
        events = [Event(f"e{first + number}", "device", source) for number in range(count)]
        written = await self.pacing.enter(token, events, self.submit, derives)
        assert [*range(first + 1, first + count + 1)] == written
        await self.counted()
        return self.parts

    async def counted(self) -> None:
        """Waits until what follows from what was written is counted."""
        while looking := [*self.pacing._tasks]:
            await asyncio.gather(*looking)
            await asyncio.sleep(0)

    async def pass_time(self, task: asyncio.Task[list[int]], source: str) -> None:
        """Lets time pass beside events of another source until a task is done."""
        while not task.done():
            self.now += 0.01
            self.pacing._note([("other", source)])
            for _ in range(3):
                await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    """Whoever waits looks again as soon as others had their turn."""
    with patch.object(derivation_pacing, "STEP_SECONDS", 0), patch.object(derivation_pacing, "LOOK_SECONDS", 0):
        yield


def test_a_crowd_enters_slowly_beside_others_and_they_do_not() -> None:
    """Once it is known what follows from each of its events: a twentieth of the time may go into that."""

    async def test() -> None:
        door = Door()
        assert [40] == await door.enter(40, "crowd")
        assert [100] == await door.enter(100, "cars", OTHER)
        began = door.now
        crowd = asyncio.create_task(door.enter(40, "crowd"))
        await door.pass_time(crowd, "cars")
        parts = await crowd
        assert 6 == max(parts)
        assert 40 == sum(parts)
        # Forty times fifty times 12 µs are 24 ms, and seven times 8 ms for what each part takes beside that 56.
        assert pytest.approx(1.36, abs=0.24) == door.submitted - began
        assert [100] == await door.enter(100, "cars", OTHER)

    asyncio.run(test())


def test_who_comes_again_after_waiting_too_long_goes_on_from_where_it_was() -> None:
    """A publisher gives up after 30 s; what is there by then is not waited for again."""

    async def test() -> None:
        door = Door()
        await door.enter(40, "crowd")
        await door.enter(1, "cars", OTHER)
        events, there = [Event(f"m{number}", "device", "crowd") for number in range(2_000)], dict[str, int]()

        async def submit(entering: Entering) -> list[int | None]:
            """Knows what it has by its id."""
            new = [event for event in entering if event.id not in there]
            there.update(zip((one.id for one in new), await door.submit(new) if new else (), strict=True))
            return [there[event.id] for event in entering]

        async def asked() -> list[int]:
            """Sends all of it."""
            await door.pacing.enter(BUSY, events, submit, True)
            return []

        tries, entered = 0, -1
        while len(there) < len(events):
            assert entered < (entered := len(there))
            crowd = asyncio.create_task(asked())
            await door.pass_time(crowd, "cars")
            assert isinstance(crowd.exception(), QueueFull) == (len(there) < len(events))
            tries += 1
        assert 1 < tries < 10

    asyncio.run(test())


def test_who_publishes_alone_does_not_wait() -> None:
    """Nobody is in the way."""

    async def test() -> None:
        door = Door()
        for _ in range(3):
            door.now += 11.0
            assert [40] == await door.enter(40, "crowd")

    asyncio.run(test())


def test_where_nothing_is_derived_nobody_waits() -> None:
    """Nor is anything counted."""

    async def test() -> None:
        door = Door()
        for source in ("crowd", "cars", "crowd"):
            assert [40] == await door.enter(40, source, derives=False)

    asyncio.run(test())


def test_a_new_source_is_taken_for_as_dear_as_others_of_its_token() -> None:
    """Until it is known what follows from its own; a token of its own is another sender."""

    async def test() -> None:
        door = Door()
        await door.enter(40, "crowd")
        new = asyncio.create_task(door.enter(40, "another"))
        await door.pass_time(new, "cars")
        assert 6 == max(await new)
        assert [40] == await door.enter(40, "another")
        assert [40] == await door.enter(40, "a third", OTHER)

    asyncio.run(test())


def test_what_follows_from_a_request_of_several_sources_is_what_follows_from_all_of_them() -> None:
    """A few dear ones among many do not make all of them dear; rows are taken as events are."""

    async def test() -> None:
        door = Door()
        await door.enter(40, "cars")
        await door.enter(40, "crowd")
        assert {"a": 2, "b": 1} == sources_of(to_table([Event(f"e{n}", "t", one) for n, one in enumerate("aba")]))
        door.parts = []
        events = [Event(f"m{number}", "device", "crowd" if number == 0 else "cars") for number in range(100)]
        await door.pacing.enter(BUSY, events, door.submit, True)
        await door.counted()
        assert [100] == door.parts

    asyncio.run(test())


def test_a_crowd_that_has_ended_is_forgotten() -> None:
    """By halves, with each time that little follows."""

    async def test() -> None:
        door = Door()
        await door.enter(40, "crowd")
        for _ in range(8):
            door.now += 2.0
            with patch.object(derivation_pacing, "derived_from", lambda *_: {}):
                await door.enter(1, "crowd")
        await door.enter(1, "cars", OTHER)
        assert [40] == await door.enter(40, "crowd")

    asyncio.run(test())


def test_what_is_known_of_senders_has_a_bound() -> None:
    """Those that were heard of last are known."""

    async def test() -> None:
        door = Door()
        for number in range(SENDERS + 50):
            door.pacing._learn({("busy", f"s{number}"): 0.0})
        assert SENDERS == len(door.pacing._senders)
        assert ("busy", f"s{SENDERS + 49}") in door.pacing._senders

    asyncio.run(test())


def test_what_follows_is_counted_for_own_positions_alone() -> None:
    """Others' events lie between."""
    journal = MemoryJournal()
    told: Sequence[Event] = [
        Event(f"d{at}-{part}", "nearcast.relation", "x", position=at, part=part)
        for at, count in ((1, 2), (2, 3), (4, 1))
        for part in range(1, count + 1)
    ]
    journal.commit_range("derived", to_table(told), 5)
    assert {1: 2, 4: 1} == derived_from(journal, np.array([1, 3, 4], np.int64))
    assert {} == derived_from(journal, np.array([3], np.int64))
