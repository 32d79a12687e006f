"""One run of a simulation from a seed: who is there, what they do, what is done to them, and what came of it."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nearcast.journal.memory import Gap
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from tests.simulation import world
from tests.simulation.checks import FAULTY, faults, is_settled, rows, unbalanced
from tests.simulation.gap_watch import GapWatch
from tests.simulation.simulated_endpoint import HOST, MOODS
from tests.simulation.simulated_system import SimulatedSystem, simulated
from tests.system import history

SECONDS = 240.0
"""For which events are published, and things are done to the system."""

SETTLED_SECONDS = 900.0
"""Within which all has to be settled once nothing is done to it any more."""


@dataclass(frozen=True)
class Outcome:
    """What came of a run: `faults` are what must not be; `seconds` passed in it; `gone` is how many events went, and
    `deaths` how many processes ended by themselves: each of what was done to the journal, else it is a fault. Equal
    runs have equal stories.
    """

    seed: int
    seconds: float
    steps: int
    deliveries: int
    derived: int
    gone: int
    deaths: int
    faults: list[str]
    story: list[str] = field(repr=False)


def run(seed: int, seconds: float = SECONDS, calm: bool = False) -> Outcome:
    """Runs the scenario of a seed; `calm`: nothing is done to it."""
    chance = random.Random(f"scenario {seed}")
    deriving = chance.random() < 0.5
    servers = [f"server-{number}" for number in range(1, chance.choice((2, 3)))]
    with tempfile.TemporaryDirectory() as folder, simulated(seed, Path(folder), servers) as system:
        clients = [f"client {number}" for number in range(chance.randint(2, 4))]
        wrong = chance.choice((0.0, 0.0, 2.0, 600.0))
        for host in (*servers, "pipeline", "pipeline-2", "publisher 0", "publisher 1") if wrong else ():
            set_clock_of(system, host, chance.gauss(0.0, wrong))
        definitions = world.definitions(clients, chance) if deriving else history.definitions(clients)
        if chance.random() < 0.5:
            definitions["retention"] = {"events": {"age": chance.choice((3, 10, 40))}}
            if chance.random() < 0.5:
                definitions["retention"]["archive"] = True
                system.start_archive()
        if chance.random() < 0.4:
            world.decide_at_once(definitions, clients, chance)
        limiting = random.Random(f"limits {seed}")
        if limiting.random() < 0.4:
            definitions["limits"] = world.limits(limiting)
            system.note(f"within the limits {definitions['limits']}")
        hooked = random.Random(f"hooks {seed}")
        if hooked.random() < 0.4:
            definitions["actions"] = world.actions(definitions, hooked)
            system.start_webhooks(definitions["actions"])
            if not calm:
                system.loop.create_task(change_mood(system, hooked, seconds))
        system.deciding = chance.choice((0.0, 0.05, 1.0))
        system.define(definitions)
        system.start_pipeline("pipeline")
        for host in servers:
            system.start_server(host)
        for id in clients:
            system.start_receiver(id, slow=chance.choice((0.0, 0.0, 0.5)))
        for number in range(chance.randint(1, 2)):
            documents = (world if deriving else history).documents(clients, int(seconds), seed * 10 + number)
            begin_publisher(system, number, documents, random.Random(f"publisher {seed} {number}"))
        faulty = random.Random(f"faulty {seed}")
        if faulty.random() < 0.5:
            system.loop.create_task(write_faulty_changes(system, faulty, seconds))
        found = list[str]()
        system.loop.run_until_complete(_go_on(system, chance, seconds, calm, found))
        found += faults(system)
        return Outcome(
            seed,
            system.loop.time(),
            system.loop.steps,
            sum(len(one.deliveries) for one in system.received),
            len(rows(system.journal, "derived")),
            system.journal.trimmed("events"),
            len(system.deaths),
            found,
            system.story,
        )


def begin_publisher(
    system: SimulatedSystem, number: int, documents: list[dict[str, Any]], chance: random.Random
) -> None:
    """Starts a publisher of a history, which states the times by its own clock, or those of some events."""
    source, timed = f"history {number}", chance.choice((0.0, 0.5, 1.0))

    def stated(document: dict[str, Any]) -> dict[str, Any]:
        found = {**document, "source": source}
        if found["type"] in ("ship", "walker") or chance.random() < timed:
            # Some were read a while before they are published.
            read = system.loop.wall() - chance.choice((0.0, 0.0, chance.expovariate(1 / 5.0)))
            read -= {"ship": world.BEHIND, "walker": chance.choice((0.0, 3_600.0, 1e8))}.get(found["type"], 0.0)
            found["time"] = datetime.fromtimestamp(read, UTC).isoformat()
        return found

    system.start_publisher(str(number), map(stated, documents), pause=2.0)


async def write_faulty_changes(system: SimulatedSystem, chance: random.Random, seconds: float) -> None:
    """Writes control events now and then that the pipeline refuses, as one does who does not look."""
    number = 0
    while system.loop.time() < seconds:
        await asyncio.sleep(chance.expovariate(1 / 15.0))
        accepted = datetime.fromtimestamp(system.loop.wall(), UTC)
        ids = [f"{FAULTY}{number + one}" for one in range(chance.choice((1, 1, 3)))]
        changes = [Event(id, "nearcast.client", "faulty", payload=b"{}", accepted=accepted) for id in ids]
        system.journal.append("events", to_table(changes))
        number += len(ids)


async def change_mood(system: SimulatedSystem, chance: random.Random, seconds: float) -> None:
    """Lets where webhooks are posted to answer in one way and then in another; now and then it is killed."""
    while system.loop.time() < seconds:
        system.hooks.mood = chance.choice(MOODS)
        system.note(f"webhooks: {system.hooks.mood}")
        await asyncio.sleep(chance.expovariate(1 / 10.0))
        if chance.random() < 0.1:
            system.kill(HOST)
            await asyncio.sleep(chance.uniform(0.0, 20.0))
            system.hooks.start()
    system.hooks.mood = "well"


async def _go_on(system: SimulatedSystem, chance: random.Random, seconds: float, calm: bool, found: list[str]) -> None:
    watching = asyncio.create_task(_watch(system, found))
    if not calm:
        await _disturb(system, chance, seconds)
    end_all(system)
    system.note("calm")
    until = system.loop.time() + (seconds if calm else 0) + SETTLED_SECONDS
    while not is_settled(system):
        await asyncio.sleep(5.0)
        if system.loop.time() > until:
            found.append("not settled in time")
            break
    watching.cancel()


async def _watch(system: SimulatedSystem, found: list[str]) -> None:
    """The balance of every queue is zero at any moment."""
    while True:
        await asyncio.sleep(1.0)
        found += [f"{one} at {system.loop.time():.1f}" for one in unbalanced(system)]


def end_all(system: SimulatedSystem) -> None:
    """Ends all that was done to the system."""
    system.network.heal()
    system.network.latency = 0.005
    system.journal.unreached.clear()
    system.journal.lost, system.journal.latency, system.journal.full = 0.0, 0.001, False
    system.loop.ahead.clear()
    for process in system.processes.values():
        if process.paused:
            system.loop.resume(process)


async def _disturb(system: SimulatedSystem, chance: random.Random, seconds: float) -> None:
    """Does one thing after the other, some of them at the same time, and one more often than others."""
    under_way: list[asyncio.Task[None]] = []
    pause, mostly = chance.choice((3.0, 12.0, 40.0)), chance.choice(DISTURBANCES)
    while system.loop.time() < seconds:
        await asyncio.sleep(chance.expovariate(1 / pause))
        disturbance = mostly if chance.random() < 0.4 else chance.choice(DISTURBANCES)
        under_way.append(asyncio.create_task(disturbance(system, chance)))
    await asyncio.gather(*under_way)


def _any(system: SimulatedSystem, chance: random.Random, *begins: str) -> str:
    return chance.choice([host for host in system.processes if host.startswith(begins)])


async def kill_server(system: SimulatedSystem, chance: random.Random) -> None:
    """A server is killed, and started again."""
    host = _any(system, chance, "server")
    if system.processes[host].alive:
        system.kill(host)
        await asyncio.sleep(chance.uniform(0.0, 5.0))
        system.start_server(host)


async def kill_pipeline(system: SimulatedSystem, chance: random.Random) -> None:
    """The pipeline is killed, and started again."""
    host = "pipeline"
    if system.processes[host].alive:
        system.kill(host)
        if chance.random() < 0.2:
            system.note("what it had on its disk is gone")
            shutil.rmtree(system.folder / host, ignore_errors=True)
        await asyncio.sleep(chance.uniform(0.0, 5.0))
        system.start_pipeline(host)


async def kill_archive(system: SimulatedSystem, chance: random.Random) -> None:
    """What copies the journal into an archive is killed, and started again."""
    if "archive" in system.processes and system.processes["archive"].alive:
        system.kill("archive")
        await asyncio.sleep(chance.uniform(0.0, chance.choice((5.0, 40.0))))
        system.start_archive()


async def lose_power(system: SimulatedSystem, chance: random.Random) -> None:
    """The machine of the servers, the pipeline and the journal loses power, and what its disk does not have yet."""
    here = [host for host in system.processes if host.startswith(("server", "pipeline", "archive"))]
    for host in here:
        if system.processes[host].alive:
            system.kill(host)
    system.journal.lose_power()
    system.note(f"without power; the journal ends at {system.journal.end('events')}")
    await asyncio.sleep(chance.uniform(1.0, 10.0))
    starts = {"pipeline": system.start_pipeline, "archive": system.start_archive}
    for host in here:
        if not system.processes[host].alive and host != "pipeline-2":
            starts.get(host, system.start_server)(host)


async def rival_pipeline(system: SimulatedSystem, chance: random.Random) -> None:
    """Another pipeline decides too, as one does that was held up and does not know yet that it leads no more."""
    host = "pipeline-2"
    if host in system.processes and system.processes[host].alive:
        return
    system.start_pipeline(host)
    await asyncio.sleep(chance.expovariate(1 / 20.0))
    system.kill(host)


async def pause(system: SimulatedSystem, chance: random.Random) -> None:
    """A process does nothing for a while."""
    process = system.processes[_any(system, chance, "server", "pipeline", "app", "publisher")]
    if process.paused:
        return
    system.note(f"pause {process.host}")
    process.paused = True
    await asyncio.sleep(chance.expovariate(1 / 5.0))
    if process.paused:
        system.loop.resume(process)
        system.note(f"resume {process.host}")


async def cut(system: SimulatedSystem, chance: random.Random) -> None:
    """A host is not reached for a while."""
    host = _any(system, chance, "server", "app", "publisher")
    system.note(f"cut {host}")
    system.network.cut_hosts.add(host)
    await asyncio.sleep(chance.expovariate(1 / 10.0))
    system.network.heal(host)
    system.note(f"heal {host}")


async def reset(system: SimulatedSystem, chance: random.Random) -> None:
    """Some connections break."""
    there = [one for one in system.network.transports if not one.lost and not one.broken]
    system.note(f"reset of {len(there)}")
    for one in chance.sample(there, min(len(there), chance.randint(1, 4))):
        system.network.reset(one)


async def slow(system: SimulatedSystem, chance: random.Random) -> None:
    """The network and the journal take long."""
    system.note("slow")
    system.network.latency, system.journal.latency = chance.uniform(0.05, 1.0), chance.uniform(0.01, 0.5)
    await asyncio.sleep(chance.expovariate(1 / 15.0))
    system.network.latency, system.journal.latency = 0.005, 0.001


async def journal_lost(system: SimulatedSystem, chance: random.Random) -> None:
    """Answers of the journal do not come: what was asked for is done, and who asked is told it failed."""
    system.note("answers of the journal are lost")
    system.journal.lost = chance.choice((0.02, 0.2))
    await asyncio.sleep(chance.expovariate(1 / 10.0))
    system.journal.lost = 0.0


async def journal_unreached(system: SimulatedSystem, chance: random.Random) -> None:
    """One process does not reach the journal."""
    host = _any(system, chance, "server", "pipeline")
    system.note(f"{host} does not reach the journal")
    system.journal.unreached.add(host)
    await asyncio.sleep(chance.expovariate(1 / 10.0))
    system.journal.unreached.discard(host)


async def lose_messages(system: SimulatedSystem, chance: random.Random) -> None:
    """Some rows within a log are lost, mostly of the newest, until the journal is restored from a copy."""
    log = chance.choice(("events", "events", "derived", "deliveries", "outcomes"))
    first = max(system.journal.trimmed(log), system.journal.end(log) - chance.choice((0, 0, 1, 5, 30))) + 1
    gap = Gap(log, first, first + chance.choice((0, 1, 5)))
    watch, until = GapWatch(system, gap), system.loop.time() + chance.expovariate(1 / 10.0)
    system.journal.disturb(gap)
    system.note(f"{log} from {gap.first} to {gap.last} are lost")
    while system.loop.time() < until:
        await asyncio.sleep(0.5)
        system.loop.errors += watch.look()
    system.journal.restore(gap)
    system.note(f"{log} from {gap.first} to {gap.last} are restored")


async def disk_full(system: SimulatedSystem, chance: random.Random) -> None:
    """The journal takes nothing, for its disk is full."""
    system.note("the disk is full")
    system.journal.full = True
    await asyncio.sleep(chance.expovariate(1 / 10.0))
    system.journal.full = False


async def set_clock(system: SimulatedSystem, chance: random.Random) -> None:
    """A host's clock is set, and mostly set right again: it ran ahead, fell back, or had a leap second."""
    host = _any(system, chance, "server", "pipeline", "publisher", "app")
    set_clock_of(system, host, chance.choice((-10_800.0, -20.0, -1.0, -0.3, 0.3, 1.0, 20.0, 3_600.0, 36_000.0)))
    await asyncio.sleep(chance.expovariate(1 / 20.0))
    if chance.random() < 0.7:
        set_clock_of(system, host, 0.0)


def set_clock_of(system: SimulatedSystem, host: str, ahead: float) -> None:
    """Sets the clock of a host so far ahead of the true time, or behind it."""
    system.note(f"the clock of {host} is {ahead:+.1f} s ahead")
    system.loop.ahead[host] = ahead


async def restart_app(system: SimulatedSystem, chance: random.Random) -> None:
    """A client's application is killed, and another one started."""
    host = _any(system, chance, "app")
    if system.processes[host].alive:
        system.kill(host)
        await asyncio.sleep(chance.uniform(0.0, chance.choice((5.0, 20.0, 80.0))))
        system.start_receiver(host.removeprefix("app "))


Disturbance = Callable[[SimulatedSystem, random.Random], Any]
DISTURBANCES: list[Disturbance] = [
    kill_server,
    kill_pipeline,
    rival_pipeline,
    pause,
    cut,
    reset,
    slow,
    journal_lost,
    journal_unreached,
    disk_full,
    restart_app,
    set_clock,
    lose_power,
    lose_messages,
    kill_archive,
]
