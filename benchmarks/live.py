"""Live: how long from publishing to the arrival at a client's socket, by priority, and where that time goes.

    python -m benchmarks.live [--seconds 60] [--warm 15] [--rate 500] [--subscriptions 1000] [--clients 50]
                              [--decentralised] [--alone] [--nats N] [--servers N]

A whole system as `nearcast up` runs it, on the loopback: server and pipeline are processes of their own; publisher and
clients are in this one, which takes its share of the same cores. Next to it the same with decentralised delivery, where
the access server decides too; and with Spark's progress tracking as it is by default: what a streaming query costs that
nobody has tuned.

With `--nats` the journal is kept by so many servers of NATS (nats-server), each of which syncs every write; with
`--servers` there are so many access servers, among which the clients divide themselves. That is measured alone.
"""

from __future__ import annotations

import argparse
import asyncio
import bisect
import os
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import yaml
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.load import Load, Traffic
from benchmarks.machine import machine
from benchmarks.options import add_load, load_of
from nearcast.cli.options import JOURNAL, journal_path
from nearcast.cli.serving_options import ServingOptions
from nearcast.cli.supervisor import Supervisor, SystemPart
from nearcast.cli.system import define, free_port, opened_at, running, wait_until_ready
from nearcast.client import Client
from nearcast.journal.seam import Journal
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.definitions import files
from tests.nats_servers import NatsServer, addresses, cluster

LOOK = 0.004
NATS_LOOK = 0.02
"""Seconds between two looks how far the logs go; where servers are asked for it, that is a load of its own."""
STAGES = (
    ("door", "POST until accepted: HTTP, JSON, checks"),
    ("append", "accepted until in the journal: gathering a block, writing it"),
    ("decide", "in the journal until its deliveries are: trigger, Spark, match, adapt, write"),
    ("read", "deliveries in the journal until queued: the server's reader"),
    ("queue", "queued until sent: more urgent ones, pace"),
    ("socket", "sent until in the client's hands"),
)


@dataclass
class Watch:
    """When each position was in the logs of events and deliveries, seen by looking every few milliseconds."""

    journal: Journal
    pause: float = LOOK
    seen: dict[str, tuple[list[int], list[float]]] = field(
        default_factory=lambda: {"events": ([], []), "deliveries": ([], [])}
    )
    stopped: bool = False

    def run(self) -> None:
        """Looks until stopped."""
        while not self.stopped:
            for log, (positions, times) in self.seen.items():
                end = self.journal.end(log)
                if not positions or end > positions[-1]:
                    positions.append(end)
                    times.append(time.time())
            time.sleep(self.pause)

    def when(self, log: str, position: int) -> float:
        """The moment at which a position was first seen in a log."""
        positions, times = self.seen[log]
        return times[bisect.bisect_left(positions, position)]


@contextmanager
def watching(journal: Journal, pause: float = LOOK) -> Iterator[Watch]:
    """A watch in a thread of its own."""
    watch = Watch(journal, pause)
    thread = threading.Thread(target=watch.run, daemon=True)
    thread.start()
    yield watch
    watch.stopped = True
    thread.join()


@dataclass(frozen=True)
class Outcome:
    """What a run gave: by priority seconds from publishing to arrival, of priority 0 also by stage, and the pipeline's
    own seconds per batch by stage."""

    waits: dict[int, list[float]]
    stages: dict[str, list[float]]
    batch: dict[str, float]
    events: int
    late: float
    seconds: float


def run(load: Load, seconds: float, warm: float, tuned: bool = True) -> Outcome:
    """Runs a system under the load, and measures for `seconds` after `warm` seconds of the same load."""
    with tempfile.TemporaryDirectory(prefix="nearcast-live-") as folder:
        data = Path(folder)
        journal = SqliteJournal(journal_path(data))
        (data / "load.yaml").write_text(yaml.safe_dump(load.definitions()))
        define(journal, files.load([data / "load.yaml"]))
        port, metrics = free_port(), free_port()
        url = f"http://127.0.0.1:{port}"
        with (running if tuned else untuned)(data, ServingOptions(port=port), None, metrics) as supervisor:
            wait_until_ready(supervisor, url, data, seconds=400.0)
            with watching(journal) as watch:
                traffic, batch = asyncio.run(_traffic(load, [url], seconds, warm, metrics))
        return _outcome(traffic, journal, watch, batch, seconds)


@contextmanager
def untuned(data: Path, options: ServingOptions, master: str | None, metrics_port: int) -> Iterator[Supervisor]:
    """As `running`, with Spark's tracking of progress as it is by default."""
    server = SystemPart("server", ["server", "--data", str(data), *options.arguments()])
    pipeline = SystemPart("pipeline", [str(data), str(metrics_port)], module="benchmarks.untuned")
    supervisor = Supervisor([server, pipeline])
    try:
        supervisor.start()
        yield supervisor
    finally:
        supervisor.stop()


def run_domain(load: Load, seconds: float, warm: float, nodes: int, servers: int) -> Outcome:
    """The same with several access servers, on a journal that so many servers of NATS keep; 0: on a file."""
    with tempfile.TemporaryDirectory(prefix="nearcast-live-") as folder, ExitStack() as stack:
        data = Path(folder)
        location = stack.enter_context(_nats(data, nodes)) if nodes else None
        journal = stack.enter_context(closing(opened_at(data, location)))
        (data / "load.yaml").write_text(yaml.safe_dump(load.definitions()))
        define(journal, files.load([data / "load.yaml"]))
        ports, metrics = {f"server-{number}": free_port() for number in range(servers)}, free_port()
        urls = [f"http://127.0.0.1:{port}" for port in ports.values()]
        supervisor = stack.enter_context(_domain(data, ports, metrics, location))
        for url in urls:
            wait_until_ready(supervisor, url, data, seconds=400.0, location=location)
        with watching(journal, NATS_LOOK if nodes else LOOK) as watch:
            traffic, batch = asyncio.run(_traffic(load, urls, seconds, warm, metrics))
        return _outcome(traffic, journal, watch, batch, seconds)


@contextmanager
def _nats(data: Path, nodes: int) -> Iterator[str]:
    """Servers of NATS, and where the journal is that they keep."""
    found = cluster(data / "nats", nodes) if nodes > 1 else [NatsServer(data / "nats").start()]
    try:
        yield f"{addresses(found)}/live"
    finally:
        for server in found:
            server.kill()


@contextmanager
def _domain(data: Path, ports: dict[str, int], metrics_port: int, location: str | None) -> Iterator[Supervisor]:
    """Access servers by name and one pipeline; where the journal is not in a file each has a folder, as on machines."""
    environment = {**os.environ, **({JOURNAL: location} if location else {})}
    parts = [
        SystemPart("pipeline", ["pipeline", "--data", str(data), "--metrics-port", str(metrics_port)], environment)
    ]
    for name, port in ports.items():
        words = ["server", "--data", str(data / name if location else data), "--port", str(port), "--node", name]
        parts.append(SystemPart(name, words, environment))
    supervisor = Supervisor(parts)
    try:
        supervisor.start()
        yield supervisor
    finally:
        supervisor.stop()


async def _traffic(
    load: Load, urls: Sequence[str], seconds: float, warm: float, metrics: int
) -> tuple[Traffic, dict[str, float]]:
    async with AsyncExitStack() as stack:
        unmeasured, traffic = Traffic(load, urls), Traffic(load, urls)
        # Each begins with another one of them.
        turned = ([*urls[at % len(urls) :], *urls[: at % len(urls)]] for at in range(load.clients))
        clients = [await stack.enter_async_context(Client(*one)) for one in zip(turned, load.ids(), strict=True)]
        tasks = [asyncio.create_task(traffic.receive(client)) for client in clients]
        tasks += [asyncio.create_task(traffic.move(client)) for client in clients]
        await asyncio.gather(*(client.connected() for client in clients))
        await unmeasured.publish(warm, f"warm {uuid.uuid4().hex}")
        before = await stage_seconds(metrics)
        await traffic.publish(seconds, uuid.uuid4().hex)
        after = await stage_seconds(metrics)
        # What is on its way is counted too.
        await asyncio.sleep(3.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return traffic, {name: value - before.get(name, 0.0) for name, value in after.items()}


async def stage_seconds(port: int) -> dict[str, float]:
    """The pipeline's own counters: seconds by stage, and how many batches."""
    async with httpx.AsyncClient() as http:
        text = (await http.get(f"http://127.0.0.1:{port}/metrics")).text
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "nearcast_pipeline_stage_seconds_sum":
                found[sample.labels["stage"]] = sample.value
            if sample.name == "nearcast_pipeline_stage_seconds_count" and sample.labels["stage"] == "write":
                found["batches"] = sample.value
    return found


def _outcome(traffic: Traffic, journal: Journal, watch: Watch, batch: dict[str, float], seconds: float) -> Outcome:
    """Joins what was seen here with what the journal says of each delivery."""
    accepted, settled = _accepted(journal), _settled(journal)
    waits: dict[int, list[float]] = {}
    stages: dict[str, list[float]] = {name: [] for name, _ in STAGES}
    for client, delivery, arrived in traffic.arrivals:
        # None: of the warm-up, which is not measured.
        published = traffic.published.get(delivery.event["id"])
        if published is None:
            continue
        waits.setdefault(delivery.priority, []).append(arrived - published)
        times = settled.get((client, delivery.position))
        if delivery.priority == 0 and times:
            at = [published, accepted[delivery.position]]
            at += [watch.when(log, delivery.position) for log in ("events", "deliveries")]
            # What the server decided is queued before it is in the log of deliveries, and maybe before anybody looked.
            at = [min(moment, times[0]) for moment in at]
            at += [*times, arrived]
            for (name, _), start, end in zip(STAGES, at, at[1:], strict=False):
                stages[name].append(end - start)
    return Outcome(waits, stages, batch, traffic.events, traffic.late, seconds)


def _accepted(journal: Journal) -> dict[int, float]:
    table = journal.read("events", 0, journal.end("events")).select(["position", "accepted"])
    return {row["position"]: row["accepted"].timestamp() for row in table.to_pylist() if row["accepted"]}


def _settled(journal: Journal) -> dict[tuple[str, int], tuple[float, float]]:
    table = journal.read("outcomes", 0, journal.end("outcomes"))
    return {
        (row["client"], row["event"]): (row["queued"].timestamp(), row["sent"].timestamp())
        for row in table.to_pylist()
        if row["sent"]
    }


def report(title: str, outcome: Outcome) -> None:
    """Prints a run."""
    count = sum(len(waits) for waits in outcome.waits.values())
    print(f"\n{title}: {outcome.events / outcome.seconds:,.0f} events/s, {count / outcome.seconds:,.0f} deliveries/s")
    print(f"  the publisher was behind its time by {outcome.late * 1000:,.0f} ms at most")
    for priority, waits in sorted(outcome.waits.items()):
        print(f"  priority {priority}: {_spread(waits)}, {len(waits):,} deliveries")
    print("  where the time of priority 0 goes:")
    for name, text in STAGES:
        print(f"    {name:7} {_spread(outcome.stages[name])}  {text}")
    batches = max(outcome.batch.get("batches", 0.0), 1.0)
    own = {name: seconds / batches for name, seconds in outcome.batch.items() if name != "batches"}
    told = ", ".join(f"{name} {seconds * 1000:.0f} ms" for name, seconds in own.items())
    cycle = outcome.seconds / batches
    rest = cycle - sum(own.values())
    print(f"  a batch every {cycle * 1000:.0f} ms: {told}; Spark and waiting for the trigger {rest * 1000:.0f} ms")


def _spread(values: Sequence[float]) -> str:
    ordered = sorted(values)
    if not ordered:
        return "none"
    p99 = ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)]
    return f"median {statistics.median(ordered) * 1000:5.0f} ms, p99 {p99 * 1000:5.0f} ms"


def main(arguments: Sequence[str], say: Callable[[str], None] = print) -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="benchmarks.live", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--warm", type=float, default=15.0, help="Seconds of load before anything is measured.")
    add_load(parser, rate=500.0, subscriptions=1_000, clients=50)
    parser.add_argument("--decentralised", action="store_true", help="The first run with decentralised delivery.")
    parser.add_argument("--alone", action="store_true", help="Leave out the comparison.")
    parser.add_argument("--nats", type=int, default=0, help="Keep the journal on so many servers of NATS: 0, 1, 3, 5.")
    parser.add_argument("--servers", type=int, default=1, help="So many access servers.")
    given = parser.parse_args(arguments)
    say(machine())
    load = replace(load_of(given), delivery="decentralised" if given.decentralised else "ordered")
    if given.nats or given.servers > 1:
        title = f"{given.servers} access servers, {given.nats or 'no'} servers of NATS"
        report(title, run_domain(load, given.seconds, given.warm, given.nats, given.servers))
        say(machine())
        return
    outcome = run(load, given.seconds, given.warm)
    report("nearcast, decentralised delivery" if given.decentralised else "nearcast", outcome)
    if not given.alone:
        prompt = run(replace(load, delivery="decentralised"), given.seconds, given.warm)
        report("the same with decentralised delivery", prompt)
        ratio = statistics.median(outcome.waits[0]) / statistics.median(prompt.waits[0])
        print(f"\nratio: the median of priority 0 is {ratio:.1f} times as long without it")
        default = run(load, given.seconds, given.warm, tuned=False)
        report("the same with Spark's default tracking of progress", default)
        ratio = statistics.median(default.waits[0]) / statistics.median(outcome.waits[0])
        print(f"\nratio: the median of priority 0 is {ratio:.1f} times as long with it")
    say(machine())


if __name__ == "__main__":
    main(sys.argv[1:])
