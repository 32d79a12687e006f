"""A whole system in one process: servers, pipelines, publishers, receivers and the journal, on hosts of their own.

What runs is the real code: uvicorn and the server's application, the pipeline's `BatchDecider` without Spark, and the
client library. Simulated are the time, the threads, the network, and the medium of the journal.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

from nearcast.cli.system import define
from nearcast.client import Client, Delivery, Publisher
from nearcast.errors import JournalError, SessionError
from nearcast.journal.archive.archive_files import LOGS, read_manifest
from nearcast.journal.archive.archive_writer import ArchiveWriter
from nearcast.language.definitions import files
from nearcast.pipeline import follower
from nearcast.pipeline.follower import Follower
from nearcast.pipeline.live import BatchDecider, PipelineConfig
from nearcast.pipeline.monitoring import PipelineMetrics
from nearcast.pipeline.retrying_journal import RetryingJournal
from nearcast.pipeline.ticks import LOOK, TickWriter
from nearcast.runtime.passed_time import PassedTime
from nearcast.server import action_runner, app, clock
from nearcast.server.access import RIGHTS, AccessToken
from nearcast.server.clock import ServerClock
from nearcast.server.config import ServerConfig
from nearcast.server.service import AccessServer
from nearcast.server.sessions import journal_tailer
from tests.simulation.disturbed_journal import DisturbedJournal
from tests.simulation.retention_checks import ReadPosition
from tests.simulation.simulated_endpoint import WebhookEndpoint
from tests.simulation.simulated_loop import (
    SimulatedEvent,
    SimulatedFuture,
    SimulatedLoop,
    SimulatedProcess,
    SimulatedThread,
)
from tests.simulation.simulated_network import SimulatedNetwork, SimulatedSocket

PORT = 8640
RESTART_SECONDS = 0.5
RETENTION_SECONDS = 5.0
ARCHIVE_SECONDS = 4.0

DIFFERENCES = "nearcast.server.sessions.early_path"
"""Logs as errors where a server did not decide as the pipeline."""

EVERYTHING = AccessToken("all", "secret", frozenset(RIGHTS))

Document = dict[str, Any]


class SimulatedAccessServer(AccessServer):
    """A server that keeps its watermark in a folder of the simulation, and whose event loop nobody watches.

    `refused` says why it did not start; `triggers` are the marks that servers have noted of what triggers actions.
    """

    folder: Path
    settled: Path | None = None
    triggers: list[int]
    refused = ""

    def __init__(self, config: ServerConfig, journal: DisturbedJournal, _: None) -> None:
        super().__init__(config, journal, self.settled)
        self._mark = self.folder / f"settled-{self.config.node}"
        self.loop_monitor.run = _nothing  # type: ignore[method-assign]
        self._write_trigger = self.triggered._write_mark
        self.triggered._write_mark = self._note_trigger  # type: ignore[method-assign]

    def _note_trigger(self, position: int) -> None:
        self._write_trigger(position)
        self.triggers.append(position)

    async def start(self) -> None:
        try:
            await super().start()
        except Exception as error:
            self.refused = str(error)
            raise


class LockFiles:
    """Files that processes of the simulation hold until they are dead, as `try_lock` has it for real ones."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._holders: dict[Path, SimulatedProcess] = {}

    def try_lock(self, path: Path) -> int | None:
        """Something that is to be closed; None where another process has the file."""
        holder = self._holders.get(path)
        if holder is not None and holder.alive and holder is not self._loop.current:
            return None
        self._holders[path] = self._loop.current
        return os.open(os.devnull, os.O_RDONLY)


class ClockOfEachServer:
    """Stands for the one clock of a server's process: each process of the simulation has its own."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._clocks = WeakKeyDictionary[SimulatedProcess, ServerClock]()

    def __getattr__(self, name: str) -> Any:
        process = self._loop.current
        if process not in self._clocks:
            self._clocks[process] = ServerClock(self._loop.wall, self._loop.time)
        return getattr(self._clocks[process], name)


async def _nothing() -> None: ...


async def _serve_until_it_ends(server: app.Server, host: str) -> None:
    """Serves; one whose start fails ends its process, which here is none."""
    with suppress(SystemExit):
        await server._serve([SimulatedSocket(host, PORT)])  # type: ignore[list-item]


@dataclass
class Received:
    """What one run of a client's application got, in its order: when, over which connection."""

    client: str
    deliveries: list[tuple[float, int, Delivery]] = field(default_factory=list)

    @property
    def all(self) -> list[Delivery]:
        return [delivery for _, _, delivery in self.deliveries]


@dataclass
class SimulatedSystem:
    """`received` are the runs of applications; `accepted` the positions that publishers were told, by source and id."""

    loop: SimulatedLoop
    folder: Path
    servers: list[str]
    received: list[Received] = field(default_factory=list)
    accepted: dict[tuple[str, str], int] = field(default_factory=dict)
    publishing: int = 0
    archiving: bool = False
    actions: list[Document] = field(default_factory=list)
    """Actions that call for webhooks."""
    processes: dict[str, SimulatedProcess] = field(default_factory=dict)
    services: dict[str, SimulatedAccessServer] = field(default_factory=dict)
    deaths: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    deciding: float = 0.0
    """Seconds that pipelines take for a batch, on average."""

    def __post_init__(self) -> None:
        self.network = SimulatedNetwork(self.loop)
        self.journal = DisturbedJournal(self.loop)
        self.journal.readers = self.readers
        self.hooks = WebhookEndpoint(self, random.Random(f"hooks {self.loop.chance.random()}"))
        self.chance = random.Random(f"system {self.loop.chance.random()}")

    def note(self, what: str) -> None:
        """Writes something into the story of this run."""
        self.story.append(f"{self.loop.time():10.3f} {what}")

    def readers(self) -> Iterator[ReadPosition]:
        """Where the servers that run are, in the logs that they read; and the archive, where it is waited for."""
        for host, service in self.services.items():
            manager, follower = service.session_manager, service.domain.follower
            run = f"{host} ({manager.instance})"
            # Of what is not read as decided the events are needed, too.
            yield from (ReadPosition(run, log, manager.deliveries_through) for log in ("events", "deliveries"))
            if follower.on:
                yield ReadPosition(run, "outcomes", follower.outcomes)
        if self.archiving and (manifest := read_manifest(self.archive)):
            yield from (ReadPosition("archive", log, manifest.through(log)) for log in LOGS)

    def start_webhooks(self, actions: list[Document]) -> None:
        """Starts where webhooks are posted to; servers, who share a folder, keep there how far they have run them."""
        self.actions = actions
        SimulatedAccessServer.settled = self.folder / "settled"
        self.hooks.start()

    @property
    def triggered_from(self) -> int | None:
        """Behind which position what is decided calls for actions: that at which somebody first noted it."""
        return next(iter(SimulatedAccessServer.triggers), None)

    @property
    def urls(self) -> list[str]:
        return [f"http://{one}:{PORT}" for one in self.servers]

    def define(self, definitions: Mapping[str, Any]) -> None:
        """Defines something before anybody runs."""
        define(self.journal, files.load([definitions]))

    def begin(self, host: str, start: Callable[[SimulatedProcess], None]) -> None:
        """Starts a process on a host, in the place of the one that was there; not beside one that is."""
        if host in self.processes and self.processes[host].alive:
            return
        process = self.processes[host] = SimulatedProcess(host)
        self.note(f"start {host}")
        start(process)

    def kill(self, host: str) -> None:
        """Kills the process of a host, as by `kill -9`."""
        process = self.processes[host]
        self.note(f"kill {host}")
        process.alive = False
        self.services.pop(host, None)
        self.network.kill(process)

    # What runs

    def start_server(self, host: str) -> None:
        """Starts an access server."""

        async def serve(process: SimulatedProcess) -> None:
            config = ServerConfig(
                Path("unused"),
                port=PORT,
                node=host,
                url=f"http://{host}:{PORT}",
                tokens=(EVERYTHING,),
                private_webhooks=True,
            )
            server = app.server_of(config, self.journal)
            serving = asyncio.ensure_future(_serve_until_it_ends(server, host))
            while not server.started and not serving.done():
                await asyncio.sleep(0.05)
            if server.started:
                self.note(f"ready {host}")
                self.services[host] = server.config.app.state.service  # type: ignore[union-attr]
            await serving
            service: SimulatedAccessServer = server.config.app.state.service  # type: ignore[union-attr]
            self.died(host, process, self.start_server, service.refused or f"ended {service.failed or ''}")

        self.begin(host, lambda process: self.loop.spawn(process, serve(process)) and None)

    def start_pipeline(self, host: str) -> None:
        """Starts a pipeline."""

        def decide(process: SimulatedProcess) -> None:
            try:
                self._decide_on(host)
            except JournalError as error:
                self.loop.schedule(self.loop.world, 0.0, self.died, host, process, self.start_pipeline, str(error))

        self.begin(
            host, lambda process: self.loop.schedule(process, 0.0, self.loop.threads.begin, partial(decide, process))
        )

    def _decide_on(self, host: str) -> None:
        journal = RetryingJournal(self.journal, lambda: False)
        config = PipelineConfig("memory", self.folder / host)
        ticks = partial(TickWriter, steady=self.loop.time, wall=self.loop.wall)
        decider = BatchDecider(None, journal, config, PipelineMetrics(), ticks)
        decider.follower.retention.passed = PassedTime(self.loop.wall, self.loop.time)
        SimulatedThread(self.loop.threads, partial(self._retain, decider.follower)).start()
        while True:
            journal.wait({"events": decider.follower.known.position}, LOOK)
            if journal.end("events") > decider.follower.known.position:
                self.loop.threads.sleep(self.deciding * 2.0 * self.chance.random())
                decider()
            decider.look()

    def _retain(self, following: Follower) -> None:
        """Lets go of what is kept for long enough, beside what the pipeline decides."""
        while True:
            self.loop.threads.sleep(RETENTION_SECONDS)
            with suppress(JournalError):
                following.retention.look(following.known.registry.settings.retention)

    @property
    def archive(self) -> Path:
        """The folder of the archive."""
        return self.folder / "archived"

    def start_archive(self, host: str = "archive") -> None:
        """Starts what copies the journal into an archive, again and again."""
        self.archiving = True

        def copy(process: SimulatedProcess) -> None:
            try:
                writer = ArchiveWriter(self.journal, self.archive)
                while True:
                    writer.write()
                    self.loop.threads.sleep(ARCHIVE_SECONDS)
            except JournalError as error:
                self.loop.schedule(self.loop.world, 0.0, self.died, host, process, self.start_archive, str(error))

        self.begin(
            host, lambda process: self.loop.schedule(process, 0.0, self.loop.threads.begin, partial(copy, process))
        )

    def died(self, host: str, process: SimulatedProcess, start: Callable[[str], None], why: str) -> None:
        """A process ended by itself: another one is started in its place."""
        if not process.alive or self.processes[host] is not process:
            return
        wanted = self._is_wanted(host, why)
        self.note(f"died {host}, {'as is to be' if wanted else 'and nobody did anything'}: {why}")
        self.deaths.append(f"{host}: {why}")
        if not wanted:
            self.loop.errors.append(f"{host} died, and nobody did anything: {why}")
        process.alive = False
        self.services.pop(host, None)
        self.network.kill(process)
        self.loop.schedule(self.loop.world, RESTART_SECONDS, start, host)

    def _is_wanted(self, host: str, why: str) -> bool:
        """Whether a process is to end for a reason, as of what was done."""
        if host.startswith("app "):
            # What the run before it asked for, which was killed, may come to a server later than what it asks for.
            return "took over" in why and sum(f"app {one.client}" == host for one in self.received) > 1
        # Pipelines wait for what passes by itself: they end of what is damaged alone.
        return any(told in why for told in self.journal.told) and (host[:8] != "pipeline" or "damaged" in why)

    def start_receiver(self, id: str, slow: float = 0.0) -> None:
        """Starts a client's application."""

        async def receive() -> None:
            found = Received(id)
            self.received.append(found)
            async with Client(self._shuffled(), id, EVERYTHING.secret) as client:
                self.loop.create_task(self._say(client))
                async for delivery in client.deliveries():
                    found.deliveries.append((self.loop.time(), client.connections, delivery))
                    if slow:
                        await asyncio.sleep(slow * self.chance.random())

        async def run(process: SimulatedProcess) -> None:
            try:
                await receive()
            except SessionError as error:
                self.died(f"app {id}", process, lambda _: self.start_receiver(id, slow), str(error))

        self.begin(f"app {id}", lambda process: self.loop.spawn(process, run(process)) and None)

    async def _say(self, client: Client) -> None:
        """Says now and then how its link is."""
        while True:
            await asyncio.sleep(self.chance.expovariate(1 / 60.0))
            await client.say(readings={"bandwidth": self.chance.choice((1000.0, 2000.0, 3750.0))})

    def _shuffled(self) -> list[str]:
        urls = self.urls
        self.chance.shuffle(urls)
        return urls

    def start_publisher(self, name: str, documents: Iterator[Document], pause: float) -> None:
        """Starts a publisher, which goes on with the same events until they are taken."""
        self.publishing += 1

        async def publish() -> None:
            recent = deque[Document](maxlen=20)
            async with Publisher(self._shuffled(), EVERYTHING.secret, patience=10.0) as publisher:
                while some := [*islice(documents, self.chance.randint(1, 4))]:
                    await self._publish_until_taken(publisher, some)
                    recent += some
                    if self.chance.random() < 0.1:
                        # As one does that was not told, or forgot, that they are taken.
                        await self._publish_until_taken(publisher, self.chance.sample([*recent], 1))
                    await asyncio.sleep(self.chance.expovariate(1 / pause))
            self.publishing -= 1
            self.note(f"done {name}")

        self.begin(f"publisher {name}", lambda process: self.loop.spawn(process, publish()) and None)

    async def _publish_until_taken(self, publisher: Publisher, some: list[Document]) -> None:
        while True:
            try:
                published = await publisher.publish(some)
            except SessionError:
                continue
            for index, (document, position) in enumerate(zip(some, published.positions, strict=True)):
                if position is not None:
                    self._accept((document["source"], document["id"]), position)
                elif index in published.faults and "journal" in str(published.faults[index]):
                    break
                else:
                    raise AssertionError(f"{document} was refused: {published.faults}")
            else:
                return

    def _accept(self, key: tuple[str, str], position: int) -> None:
        """Takes note of where an event is; one that is published again is where it was, as long as it is there."""
        before = self.accepted.get(key, position)
        there = before > self.journal.trimmed("events") and before <= self.journal.end("events")
        lost = any(key == (row["source"], row["id"]) for row in self.journal.gone["events"])
        if position != before and there and not lost:
            self.loop.errors.append(f"event {key} is at {before}, and was taken again at {position}")
        self.accepted[key] = position


class _Unexpected(logging.Handler):
    """Notes what is logged with a traceback, which nobody foresaw, and where servers and pipeline decide otherwise."""

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__(logging.ERROR)
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        foreseen = isinstance(record.exc_info[1], JournalError) if record.exc_info else record.name != DIFFERENCES
        if not foreseen:
            self._loop.errors.append(f"{record.name}: {self.format(record)}")


@contextmanager
def simulated(seed: object, folder: Path, servers: list[str]) -> Iterator[SimulatedSystem]:
    """A system whose time, threads, names and chance are those of a seed, for the length of the block."""
    loop = SimulatedLoop(seed)
    names = random.Random(f"names {seed}")
    threads = mock.Mock(wraps=threading)
    threads.Event = partial(SimulatedEvent, loop.threads)
    threads.Thread = partial(SimulatedThread, loop.threads)
    unexpected = _Unexpected(loop)
    state = random.getstate()
    with ExitStack() as stack:
        for where, name, simulate in (
            (time, "sleep", loop.threads.sleep),
            (time, "monotonic", loop.time),
            (time, "time", loop.wall),
            (uuid, "uuid4", lambda: uuid.UUID(int=names.getrandbits(128), version=4)),
            (asyncio, "run_coroutine_threadsafe", lambda work, to: SimulatedFuture(to, work)),
        ):
            both = loop.threads.instead_of(getattr(where, name), simulate)
            stack.enter_context(mock.patch.object(where, name, both))
        for where, name, what in (
            (journal_tailer, "threading", threads),
            (follower, "monotonic", loop.time),
            (app, "AccessServer", SimulatedAccessServer),
            (SimulatedAccessServer, "folder", folder),
            (SimulatedAccessServer, "settled", None),
            (SimulatedAccessServer, "triggers", []),
            (action_runner, "try_lock", LockFiles(loop).try_lock),
            (clock, "_clock", ClockOfEachServer(loop)),
        ):
            stack.enter_context(mock.patch.object(where, name, what, create=name in ("folder", "triggers")))
        random.seed(f"chance {seed}")
        stack.callback(random.setstate, state)
        logging.getLogger().addHandler(unexpected)
        stack.callback(logging.getLogger().removeHandler, unexpected)
        stack.callback(loop.close)
        # What ends with the simulation says so of itself.
        stack.callback(logging.disable, logging.NOTSET)
        yield SimulatedSystem(loop, folder, servers)
        logging.disable(logging.CRITICAL)
