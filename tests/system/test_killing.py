"""Killing the server and the pipeline at random moments changes nothing of what anybody gets."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from nearcast.cli.options import journal_path
from nearcast.cli.serving_options import ServingOptions
from nearcast.cli.supervisor import Supervisor, SystemPart
from nearcast.cli.system import define, fetch, free_port, running, wait_until_ready
from nearcast.client import Client, Delivery, Publisher
from nearcast.demo.link import Link
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control_events import changes
from nearcast.language.definitions import files
from nearcast.stages.decide import replay
from nearcast.stages.fold import StateFold
from tests.system import history

pytestmark = pytest.mark.faults
LONG = pytest.mark.long

SEED = 20
BATCH = 10
CLIENTS = [f"client {number}" for number in range(12)]
SLOW, RESTLESS, LATE, PATIENT = CLIENTS[3:6], CLIENTS[6:9], CLIENTS[9], CLIENTS[10]
"""Slow ones take a while over each delivery; the connections of restless ones break; one comes late; a patient one
acknowledges in heaps."""


@dataclass(frozen=True)
class Plan:
    """How long it lasts, what is published meanwhile, how often which half is killed, and what that comes to."""

    seconds: float
    events: int
    server_kills: int
    pipeline_kills: int
    deliveries: int


SHORT = Plan(24.0, 720, 5, 3, deliveries=3_000)
WHOLE = Plan(80.0, 2_400, 14, 6, deliveries=10_000)


@dataclass
class Run:
    """A system under test, and what came of it."""

    plan: Plan
    data: Path
    port: int
    supervisor: Supervisor
    journal: SqliteJournal
    found: dict[str, list[Delivery]] = field(default_factory=lambda: defaultdict(list))
    positions: list[int | None] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    published: bool = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture(scope="module", params=[pytest.param(SHORT, id="short"), pytest.param(WHOLE, id="whole", marks=LONG)])
def disturbed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run in which ten processes were killed, or twenty, after everything is settled."""
    data = tmp_path_factory.mktemp("killing")
    journal = SqliteJournal(journal_path(data))
    (data / "definitions.yaml").write_text(yaml.safe_dump(history.definitions(CLIENTS)))
    define(journal, files.load([data / "definitions.yaml"]))
    port = free_port()
    with running(data, ServingOptions(port=port), "local[2]") as supervisor:
        for part in supervisor.parts:
            part.longest_pause = 0.5
        run = Run(request.param, data, port, supervisor, journal)
        wait_until_ready(supervisor, run.url, data)
        asyncio.run(disturb(run))
        yield run
    journal.close()


async def disturb(run: Run) -> None:
    chance = random.Random(f"killing {SEED}")
    async with AsyncExitStack() as stack:
        tasks = [asyncio.create_task(look_after(run.supervisor))]
        for id in CLIENTS:
            link = Link(("127.0.0.1", run.port), 50_000.0)
            address = await link.open()
            stack.push_async_callback(link.close)
            tasks.append(asyncio.create_task(receive(run, id, address)))
            if id in RESTLESS:
                tasks.append(asyncio.create_task(break_off(link, chance)))
        kills = asyncio.gather(kill_server(run, chance), kill_pipeline(run, chance))
        await publish(run)
        await kills
        await until(lambda: settled(run.journal) and all(map(running_now, run.supervisor.parts)), 240.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def look_after(supervisor: Supervisor) -> None:
    while True:
        supervisor.look()
        await asyncio.sleep(0.1)


async def receive(run: Run, id: str, address: str) -> None:
    if id == LATE:
        await asyncio.sleep(run.plan.seconds / 2)
    async with Client(address, id, automatic=id != PATIENT) as client:
        heap: list[int] = []
        handing_in = asyncio.create_task(hand_in(client, heap))
        async for delivery in client.deliveries():
            run.found[id].append(delivery)
            if id in SLOW:
                await asyncio.sleep(0.02)
            if id == PATIENT:
                heap.append(delivery.position)
        handing_in.cancel()


async def hand_in(client: Client, heap: list[int]) -> None:
    """Acknowledges what has gathered, once a second."""
    while True:
        await asyncio.sleep(1.0)
        if heap:
            await client.acknowledge(*heap)
            heap.clear()


async def break_off(link: Link, chance: random.Random) -> None:
    while True:
        await asyncio.sleep(chance.uniform(1.0, 8.0))
        if chance.random() < 0.5:
            link.set(0.0)
            await asyncio.sleep(chance.uniform(0.5, 3.0))
            link.set(50_000.0)
        await link.cut()


async def publish(run: Run) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    events = history.documents(CLIENTS, run.plan.events)
    async with Publisher(run.url) as publisher:
        for start in range(0, len(events), BATCH):
            await asyncio.sleep(began + run.plan.seconds * start / len(events) - loop.time())
            run.positions += (await publisher.publish(events[start : start + BATCH])).positions
    run.published = True


async def kill_server(run: Run, chance: random.Random) -> None:
    """Kills the server at random moments of the run: while it works, and while it starts."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for turn in range(run.plan.server_kills):
        at = run.plan.seconds * (turn + chance.random()) / run.plan.server_kills
        await asyncio.sleep(began + at - loop.time())
        await kill(run, "server")


async def kill_pipeline(run: Run, chance: random.Random) -> None:
    """Kills the pipeline at random moments after it has decided something again; every third time while it starts."""
    for turn in range(run.plan.pipeline_kills):
        end = run.journal.end("deliveries")
        while turn % 3 != 2 and not run.published and run.journal.end("deliveries") <= end:
            await asyncio.sleep(0.3)
        await asyncio.sleep(chance.uniform(0.0, 4.0))
        await kill(run, "pipeline")


async def kill(run: Run, name: str) -> None:
    [part] = [part for part in run.supervisor.parts if part.name == name]
    await until(lambda: running_now(part), 60.0)
    assert part.process
    part.process.kill()
    # Until it is gone it counts as running, and the next one to kill would be the same.
    await asyncio.to_thread(part.process.wait)
    run.killed.append(name)


def running_now(part: SystemPart) -> bool:
    return part.process is not None and part.process.poll() is None


def settled(journal: SqliteJournal) -> bool:
    """Whether every event is decided and every delivery has ended."""
    if journal.end("deliveries") < journal.end("events"):
        return False
    return count(journal, "deliveries") <= count(journal, "outcomes")


def count(journal: SqliteJournal, log: str) -> int:
    return len(journal.read(log, 0, journal.end(log)))


async def until(true: Callable[[], Any], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.3)


def rows(journal: SqliteJournal, log: str) -> list[dict[str, Any]]:
    return journal.read(log, 0, journal.end(log)).to_pylist()


def decided_undisturbed(journal: SqliteJournal) -> pa.Table:
    """The deliveries of the same events, decided in one go by a process that nobody disturbs."""
    events = journal.read("events", 0, journal.end("events"))
    tables = [deliveries for _, deliveries in replay(StateFold(), iter([events]), changes)]
    return pa.concat_tables(tables)


def wanted(run: Run) -> dict[str, dict[int, str]]:
    """By client the positions it is owed, and the subscription of each."""
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for row in decided_undisturbed(run.journal).to_pylist():
        found[row["client"]][row["position"]] = row["subscription"]
    return found


def test_processes_were_killed_and_started_again(disturbed: Run) -> None:
    """Both halves, as often as intended, and the supervisor counted each."""
    plan = disturbed.plan
    assert plan.server_kills == disturbed.killed.count("server")
    assert plan.pipeline_kills == disturbed.killed.count("pipeline")
    assert plan.server_kills + plan.pipeline_kills == sum(part.restarts for part in disturbed.supervisor.parts)


def test_what_a_publisher_was_told_is_durable_is_in_the_journal_once_and_in_order(disturbed: Run) -> None:
    """Every event of the history, at the position that was answered, though it was sent again and again."""
    written = [row for row in rows(disturbed.journal, "events") if row["source"] == history.SOURCE]
    published = history.documents(CLIENTS, disturbed.plan.events)
    assert [event["id"] for event in published] == [row["id"] for row in written]
    assert disturbed.positions == [row["position"] for row in written]


def test_the_pipeline_decided_what_it_decides_undisturbed(disturbed: Run) -> None:
    """The log of deliveries is that of one process that reads the whole journal at once."""
    names = ["position", "client", "subscription", "level"]
    expected = decided_undisturbed(disturbed.journal).select(names)
    assert disturbed.plan.deliveries < len(expected)
    assert expected.to_pylist() == [
        {name: row[name] for name in names} for row in rows(disturbed.journal, "deliveries")
    ]


def test_every_client_got_what_it_gets_undisturbed(disturbed: Run) -> None:
    """All of it; but what waited for a subscription when that ended may be missing, and is accounted for."""
    ended = {
        (row["client"], row["event"]) for row in rows(disturbed.journal, "outcomes") if row["outcome"] != "acknowledged"
    }
    for client, owed in wanted(disturbed).items():
        got = {delivery.position for delivery in disturbed.found[client]}
        missing = owed.keys() - got
        assert set() == got - owed.keys()
        assert missing <= {position for of, position in ended if of == client}
        assert all(owed[position].startswith("passing") for position in missing)


def test_no_client_got_anything_twice(disturbed: Run) -> None:
    """Though servers sent again what they had no acknowledgement for: the client library drops it."""
    for client in CLIENTS:
        positions = [delivery.position for delivery in disturbed.found[client]]
        assert sorted(set(positions)) == sorted(positions)


def test_order_within_a_priority_is_kept_per_entity(disturbed: Run) -> None:
    """What is of one level has one priority at any moment, whatever the context: so it arrives in order."""
    for client in CLIENTS:
        last: dict[tuple[int, str], int] = {}
        for delivery in disturbed.found[client]:
            key = (delivery.level, delivery.event["subject"])
            assert last.get(key, 0) < delivery.position
            last[key] = delivery.position


def test_every_delivery_ended_once(disturbed: Run) -> None:
    """The log of outcomes has each delivery once, and the server's own balance is zero."""
    ended = [(row["client"], row["event"]) for row in rows(disturbed.journal, "outcomes")]
    owed = [(client, position) for client, positions in wanted(disturbed).items() for position in positions]
    assert sorted(owed) == sorted(ended)
    assert {"acknowledged", "unsubscribed"} >= {row["outcome"] for row in rows(disturbed.journal, "outcomes")}
    status = fetch(disturbed.url, "/status", None)
    assert (0, 0, {}) == (status["balance"], status["in_flight"], status["waiting"])
