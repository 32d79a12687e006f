"""Two access servers on one journal: what a client said of itself lapses once, at its moment, whichever dies."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from nearcast.cli.options import journal_path
from nearcast.cli.supervisor import SystemPart
from nearcast.cli.system import free_port
from nearcast.client import Client
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control_events import changes
from nearcast.model.changes import ClientChange
from nearcast.model.columns import are_control, to_events
from nearcast.model.event import MAIN
from nearcast.model.values import microseconds_of
from nearcast.server.admin.documents import LAPSED
from nearcast.state.registry import Registry

SECONDS = 2.0
SETTINGS = {"awareness": {"battery": {"intervals": [0.2, 0.5], "valid": SECONDS}}}


@dataclass
class Servers:
    """The servers main and south, and their journal. `kill` leaves no time for a word."""

    parts: dict[str, SystemPart]
    urls: dict[str, str]
    journal: SqliteJournal

    def kill(self, name: str) -> None:
        process = self.parts[name].process
        assert process
        process.kill()
        self.parts[name].wait(10)


@contextmanager
def servers(data: Path) -> Iterator[Servers]:
    """Both run, and no pipeline: readings are not its matter."""
    ports = {MAIN: free_port(), "south": free_port()}
    parts = {
        name: SystemPart(name, ["server", "--data", str(data), "--port", str(port), "--node", name], dict(os.environ))
        for name, port in ports.items()
    }
    with closing(SqliteJournal(journal_path(data))) as journal:
        try:
            for part in parts.values():
                part.start(0.0)
            yield Servers(parts, {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}, journal)
        finally:
            for part in parts.values():
                part.stop()
            for part in parts.values():
                part.wait(20)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(180):
        while not true():
            await asyncio.sleep(0.02)


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=1.0).status_code == 200
    except httpx.HTTPError:
        return False


def known(url: str) -> dict[str, object]:
    """What a server says of the client."""
    found: dict[str, object] = httpx.get(f"{url}/clients/ann", timeout=60.0).json()
    return found


def said_and_lapsed(journal: SqliteJournal) -> tuple[list[int], list[tuple[int, int]]]:
    """The moments of the readings that the client said; and by moment when one lapsed, of what changed anything."""
    registry, said, lapsed = Registry(), list[int](), list[tuple[int, int]]()
    rows = journal.read("events", 0, journal.end("events"))
    for event in to_events(rows.filter(are_control(rows))):
        for change in changes(event, registry.settings):
            before = registry.clients.get("ann")
            registry.apply(change)
            if isinstance(change, ClientChange) and change.moments:
                said.append(change.moments["battery"])
            if event.source == LAPSED and registry.clients["ann"] != before:
                assert isinstance(change, ClientChange) and change.lapsed and event.time
                lapsed.append((change.lapsed["battery"], microseconds_of(event.time)))
    return said, lapsed


@pytest.mark.parametrize("dying", [MAIN, "south", None])
def test_a_reading_lapses_once_whoever_dies(tmp_path: Path, dying: str | None) -> None:
    """Also the server to which the client was connected as it said it; and where the client moved to the other."""

    async def test(both: Servers) -> None:
        first, second = ("south", MAIN) if dying == "south" else (MAIN, "south")
        await until(lambda: all(map(answers, both.urls.values())))
        async with httpx.AsyncClient(base_url=both.urls[first], timeout=60.0) as http:
            (await http.put("/settings", json=SETTINGS)).raise_for_status()
            (await http.put("/clients/ann", json={})).raise_for_status()
        await until(lambda: known(both.urls[second]).get("id") == "ann")
        async with Client(both.urls[first], "ann") as ann:
            await ann.connected()
            await ann.say(readings={"battery": 0.9})
            await until(lambda: bool(said_and_lapsed(both.journal)[0]))
            if dying:
                both.kill(dying)
        if not dying:
            # It says nothing there: what it has said before is as old as it is.
            async with Client(both.urls[second], "ann") as ann:
                await ann.connected()
                await until(lambda: bool(said_and_lapsed(both.journal)[1]))
        await until(lambda: "lapsed" in known(both.urls[second]))
        [moment], lapsed = said_and_lapsed(both.journal)
        assert [(moment, moment + round(SECONDS * 1e6))] == lapsed
        found = httpx.get(f"{both.urls[second]}/metrics", timeout=60.0).text
        if dying:
            # What it finds, as it comes back, is withdrawn already.
            both.parts[dying].start(0.0)
            await until(lambda: answers(both.urls[dying]) and "lapsed" in known(both.urls[dying]))
            assert ([moment], lapsed) == said_and_lapsed(both.journal)
        assert not dying or 'nearcast_readings_lapsed_total{reading="battery"} 1.0' in found

    with servers(tmp_path) as both:
        asyncio.run(test(both))
