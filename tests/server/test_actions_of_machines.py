"""Servers on several machines share a journal on NATS: one runs the actions, and another goes on in its place."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from nearcast.journal.jetstream.nats_journal import NatsJournal
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from tests.journal.rows import events
from tests.server.conftest import until
from tests.server.test_actions import Receiver

MACHINE = """
import asyncio, sys
from pathlib import Path
from unittest.mock import AsyncMock
from nearcast.errors import Mark
from nearcast.journal.jetstream import role_lease
from nearcast.journal.jetstream.nats_journal import NatsJournal
from nearcast.language.cql2 import parse
from nearcast.model.situation import Action, Webhook
from nearcast.server.action_runner import ActionRunner
from nearcast.server.metrics import ServerMetrics
from nearcast.state.registry import Registry

role_lease.LEASE_SECONDS, role_lease.WAIT_SECONDS = 4.0, 0.05
registry = Registry()
registry.actions["act"] = Action("act", parse("Fire", Mark("here")), (Webhook(sys.argv[2]),))
journal, mark = NatsJournal(sys.argv[1]), Path(sys.argv[3])
mark.parent.mkdir()
runner = ActionRunner(journal, registry, AsyncMock(), ServerMetrics(), mark, 0.01, private=True)
read = runner._read_mark
runner._read_mark = lambda: print("leads", flush=True) or read()
asyncio.run(runner.run())
"""


class Machine:
    """A process that runs actions, as a server on a machine with a data folder of its own does."""

    def __init__(self, url: str, receiver: str, folder: Path) -> None:
        words = [sys.executable, "-c", MACHINE, url, receiver, str(folder / "mark")]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])

    async def leads(self) -> None:
        """Returns when it begins to follow the log."""
        assert self.process.stdout
        async with asyncio.timeout(120):
            assert "leads\n" == await asyncio.to_thread(self.process.stdout.readline)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()


@pytest.fixture
def journal(new_stream: Callable[[], str]) -> Iterator[NatsJournal]:
    """A journal with the events that actions are called for at."""
    with closing(NatsJournal(new_stream())) as journal:
        journal.append("events", events(range(60)))
        yield journal


def call(journal: NatsJournal, position: int) -> None:
    """Writes that an action is called for at a position."""
    data = {"action": "act", "effect": "webhook", "situation": {"id": "fire@1"}}
    document = {"specversion": "1.0", "id": f"a{position}", "type": "nearcast.action", "source": "s", "data": data}
    event = Event(f"a{position}", "nearcast.action", "s", payload=json.dumps(document).encode(), position=position)
    journal.commit_range("derived", to_table([event]), position)


def keys(receiver: Receiver) -> list[str]:
    """What was posted, by its idempotency key."""
    return [headers["idempotency-key"] for headers, _ in receiver.got]


@pytest.mark.faults
def test_the_server_that_runs_actions_is_killed_and_another_goes_on(journal: NatsJournal, tmp_path: Path) -> None:
    """Nothing is left out; what is posted again has the key that it had, and is only what was not noted yet."""

    async def test() -> None:
        receiver, machines = Receiver(), list[Machine]()
        async with receiver.serving():
            try:
                machines.append(Machine(journal.url, receiver.url, tmp_path / "one"))
                await machines[0].leads()
                machines.append(Machine(journal.url, receiver.url, tmp_path / "two"))
                for position in range(1, 41):
                    call(journal, position)
                await until(lambda: len(receiver.got) >= 20, 120)
                noted = int(journal.notes.read("actions") or 0)
                machines[0].process.send_signal(signal.SIGKILL)
                for position in range(41, 61):
                    call(journal, position)
                await machines[1].leads()
                await until(lambda: "a60" in keys(receiver), 120)
                await until(lambda: journal.notes.read("actions") == "60", 120)
            finally:
                for machine in machines:
                    machine.end()
        posted = Counter(keys(receiver))
        assert {f"a{position}" for position in range(1, 61)} == set(posted)
        again = [int(key[1:]) for key, count in posted.items() if count > 1]
        assert min(again, default=60) > noted
        assert max(posted.values()) <= 2

    asyncio.run(test())


def test_one_that_was_held_up_for_long_stops_and_waits(
    journal: NatsJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another has taken over meanwhile: it goes on when that one ends, behind what that one did."""

    async def test() -> None:
        receiver, machines = Receiver(), list[Machine]()
        async with receiver.serving():
            try:
                machines.append(Machine(journal.url, receiver.url, tmp_path / "one"))
                await machines[0].leads()
                call(journal, 1)
                await until(lambda: journal.notes.read("actions") == "1", 120)
                machines[0].process.send_signal(signal.SIGSTOP)
                machines.append(Machine(journal.url, receiver.url, tmp_path / "two"))
                await machines[1].leads()
                call(journal, 2)
                await until(lambda: journal.notes.read("actions") == "2", 120)
                machines[0].process.send_signal(signal.SIGCONT)
                await asyncio.sleep(0.5)
                call(journal, 3)
                await until(lambda: journal.notes.read("actions") == "3", 120)
                machines[1].end()
                await machines[0].leads()
                call(journal, 4)
                await until(lambda: journal.notes.read("actions") == "4", 120)
            finally:
                for machine in machines:
                    if machine.process.poll() is None:
                        machine.end()
            assert machines[0].process.stdout
        assert ["a1", "a2", "a4"] == [key for key in keys(receiver) if key != "a3"]
        assert 1 <= keys(receiver).count("a3") <= 2

    asyncio.run(test())
