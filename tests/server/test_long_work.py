"""What takes long is a small part of the time, whoever sends it: only its sender waits."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter

from nearcast.model.rate_limit import RateLimit
from nearcast.server.access import AccessToken
from nearcast.server.config import ServerLimits
from nearcast.server.ingest import long_work
from nearcast.server.ingest.definition_offload import LARGE
from nearcast.server.ingest.group_commit import QueueFull
from nearcast.server.ingest.long_work import LONG_SECONDS, LongWorkPacing, long_part, seconds_of_large
from tests.server.conftest import run, running
from tests.server.test_bounds import count, is_served

BUSY, OTHER = (AccessToken(name, name, frozenset({"publish"})) for name in ("busy", "other"))


class Paced:
    """A pacing by a clock that is set by hand."""

    def __init__(self, share: float = 0.01, burst: float = 0.1) -> None:
        self.now = 100.0
        self.counter = Counter("paced", "Those that waited", registry=CollectorRegistry())
        self.pacing = LongWorkPacing(share, burst, self.counter, lambda: self.now)

    async def cause(self, token: AccessToken | None, seconds: float, defines: bool = False) -> None:
        """Takes a turn, in which so many seconds are caused."""
        async with self.pacing.turn(token, defines):
            self.pacing.owe(token, defines, seconds)

    @property
    def waited(self) -> float:
        """How many waited."""
        [metric] = self.counter.collect()
        return metric.samples[0].value


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    """Whoever waits looks again as soon as others had their turn."""
    with patch.object(long_work, "STEP_SECONDS", 0):
        yield


async def turns(number: int = 20) -> None:
    """Lets others have so many turns."""
    for _ in range(number):
        await asyncio.sleep(0)


def test_who_causes_long_work_waits_for_it_alone() -> None:
    """Until its share of the time has made up for what it caused; others go on."""

    async def test() -> None:
        paced = Paced()
        paced.pacing.note_ordinary()
        await paced.cause(BUSY, 0.15)
        waiting = asyncio.create_task(paced.cause(BUSY, 0.15))
        await turns()
        await paced.cause(OTHER, 0.15)
        # What it defines is another matter.
        await paced.cause(BUSY, 0.15, defines=True)
        paced.now += 4.9
        paced.pacing.note_ordinary()
        await turns()
        assert not waiting.done()
        paced.now += 0.2
        await waiting
        assert 1 == paced.waited

    asyncio.run(test())


def test_nobody_waits_where_nothing_ordinary_comes() -> None:
    """While a system is set up nobody is in the way."""

    async def test() -> None:
        paced = Paced()
        for _ in range(10):
            await paced.cause(BUSY, 1.0)
        paced.pacing.note_ordinary()
        waiting = asyncio.create_task(paced.cause(BUSY, 1.0))
        await turns()
        assert not waiting.done()
        paced.now += long_work.ORDINARY_SECONDS + 0.1
        await waiting

    asyncio.run(test())


def test_the_turns_of_one_sender_are_one_after_the_other() -> None:
    """So what the first of many that come at once causes is known before the next."""

    async def test() -> None:
        paced = Paced()
        paced.pacing.note_ordinary()
        tasks = [asyncio.create_task(paced.cause(BUSY, 0.11)) for _ in range(5)]
        await turns()
        assert [True, False, False, False, False] == [one.done() for one in tasks]
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(test())


def test_who_waits_too_long_or_too_often_is_asked_to_come_back() -> None:
    """A client would give up, and what waits takes memory."""

    async def test() -> None:
        paced = Paced(share=1e-6)
        paced.pacing.note_ordinary()
        await paced.cause(None, 1.0)
        waiting = [asyncio.create_task(paced.cause(None, 1.0)) for _ in range(long_work.WAITING)]
        await turns()
        with pytest.raises(QueueFull):
            await paced.cause(None, 1.0)
        for _ in range(4):
            paced.now += long_work.PATIENCE / 3
            paced.pacing.note_ordinary()
            await turns()
        assert all(isinstance(one, QueueFull) for one in await asyncio.gather(*waiting, return_exceptions=True))

    asyncio.run(test())


@given(
    st.floats(0.001, 0.1),
    st.floats(0.01, 1.0),
    st.lists(st.tuples(st.floats(0.0, 20.0), st.floats(0.0, 2.0)), max_size=50),
)
def test_beyond_burst_and_last_piece_no_more_is_caused_than_the_share(
    share: float, burst: float, asked: list[tuple[float, float]]
) -> None:
    """Whenever and whatever comes."""
    limit, now, caused, largest = RateLimit(share, burst), 0.0, 0.0, 0.0
    for passes, seconds in asked:
        now += passes
        if limit.owes_nothing(now):
            limit.owe(seconds, now)
            caused, largest = caused + seconds, max(largest, seconds)
        assert caused <= burst + share * now + largest + 1e-6


@given(st.lists(st.floats(0, 0.1), max_size=20))
def test_what_is_short_is_not_counted(pieces: list[float]) -> None:
    """However much there is of it."""
    assert pytest.approx(sum(one for one in pieces if one > LONG_SECONDS)) == long_part(pieces)


def test_of_a_batch_only_large_events_are_long() -> None:
    """It is read with pauses; a single event is read in one go."""
    assert 0.0 == seconds_of_large([LARGE // 2] * 100, 1.0)
    assert pytest.approx(0.5) == seconds_of_large([*[LARGE // 2] * 4, 2 * LARGE], 1.0)
    assert 1.0 == seconds_of_large([10], 1.0)
    assert 0.0 == seconds_of_large([], 1.0)


def test_large_definitions_and_events_wait_beside_ordinary_events() -> None:
    """By PUT, as events, and where they are refused; ordinary ones do not, and all are taken in the end."""

    async def test() -> None:
        async with running(limits=ServerLimits(long_work=1e-9, long_work_burst=1e-6)) as server:
            await server.declare("a", "other")
            text = " OR ".join(f"b = {n}" for n in range(900))
            document = {"client": "a", "filter": text}
            assert 200 == (await server.http.put("/subscriptions/s0", json=document)).status_code
            await is_served(server, "e1")
            waiting = [asyncio.create_task(server.http.put(f"/subscriptions/s{n}", json=document)) for n in (1, 2)]
            first, second = (_large_event(name) for name in "ab")
            headers = {"Content-Type": "application/cloudevents+json"}
            # What somebody defines does not stop what it publishes.
            assert 202 == (await server.http.post("/events", content=first, headers=headers)).status_code
            waiting.append(asyncio.create_task(server.http.post("/events", content=second, headers=headers)))
            until, number = time.monotonic() + 0.5, 2
            while time.monotonic() < until:
                await is_served(server, f"e{number}")
                number += 1
            assert not any(one.done() for one in waiting)
            # As if nothing more had come for long.
            server.service.long_work._ordinary = -1e9
            answers = await asyncio.gather(*waiting)
            assert [200, 200, 202] == [one.status_code for one in answers]
            assert 3 == await count(server, "nearcast_long_work_paced_total")

    with patch.object(long_work, "STEP_SECONDS", 0.02):
        run(test)


def _large_event(id: str) -> bytes:
    outline = {"type": "LineString", "coordinates": [[n % 9, n % 7] for n in range(100_000)]}
    event = {"specversion": "1.0", "id": id, "source": "x", "type": "zone", "data": {"geom": outline}}
    return json.dumps(event, separators=(",", ":")).encode()
