"""Memory: whether server and pipeline stay as large as they are while events flow on and on.

    python -m benchmarks.memory [--minutes 30] [--every 5] [--rate 200] [--subscriptions 1000] [--clients 50]

Of the clients some are slow, behind links of a few kbit/s, with a time to live or conflation for what waits; one comes
and goes. What is measured is resident memory, of the server, of the pipeline's Python, and of its Java.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchmarks.load import Load, Traffic
from benchmarks.machine import machine
from benchmarks.options import add_load, load_of
from nearcast.cli.options import journal_path
from nearcast.cli.serving_options import ServingOptions
from nearcast.cli.supervisor import Supervisor
from nearcast.cli.system import define, fetch, free_port, running, wait_until_ready
from nearcast.client import Client
from nearcast.demo.link import Link
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.definitions import files

SLOW = {
    "client 0": {"ttl": 60},
    "client 1": {"ttl": 60},
    "client 2": {"conflate": True},
    "client 3": {"conflate": True},
}
SLOW_KBITS = 8.0
RESTLESS = {"client 4": {"ttl": 60}}
AWAY, HERE = 4, 2
"""Samples for which the restless client is away, and stays."""
WARM_SHARE = 0.3
"""Of the time counts as warm-up: code is compiled, caches and heaps take the size that they keep."""


@dataclass
class Sizes:
    """Resident MiB by part, sampled at `minutes` since the start; `say` prints a line now and then."""

    minutes: list[float] = field(default_factory=list)
    parts: dict[str, list[float]] = field(default_factory=dict)

    async def sample(self, pids: dict[str, int], url: str, data: Path, every: float) -> None:
        """Samples without end, each `every` seconds."""
        since = time.monotonic()
        while True:
            await asyncio.sleep(every)
            self.minutes.append((time.monotonic() - since) / 60)
            for name, pid in pids.items():
                self.parts.setdefault(name, []).append(resident(pid))
            if len(self.minutes) % 12 == 0:
                status = await asyncio.to_thread(fetch, url, "/status", None)
                disk = sum(path.stat().st_size for path in data.glob("journal*")) / 2**20
                sizes = ", ".join(f"{name} {values[-1]:.0f}" for name, values in self.parts.items())
                waiting = sum(status["waiting"].values())
                print(
                    f"{self.minutes[-1]:5.1f} min: {sizes} MiB; waiting {waiting:,}; journal {disk:.0f} MiB", flush=True
                )

    def slopes(self) -> dict[str, tuple[float, float, float]]:
        """After the warm-up, by part: MiB an hour (Theil and Sen's median of slopes), first and last size."""
        first = int(len(self.minutes) * WARM_SHARE)
        hours = [minute / 60 for minute in self.minutes[first:]]
        found = {}
        for name, values in self.parts.items():
            late = values[first:]
            pairs = [
                (late[j] - late[i]) / (hours[j] - hours[i]) for i in range(len(late)) for j in range(i + 1, len(late))
            ]
            found[name] = (statistics.median(pairs), late[0], late[-1])
        return found


def resident(pid: int) -> float:
    """MiB of a process that are in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def computed(pid: int) -> float:
    """Seconds of the processor that a process has used, its own and the system's for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def processes(supervisor: Supervisor) -> dict[str, int]:
    """The processes that last: the server, the pipeline's Python, its Java."""
    server, pipeline = (part.process for part in supervisor.parts)
    assert server and pipeline
    return {"server": server.pid, "pipeline": pipeline.pid, "java": _java(pipeline.pid)}


def _java(parent: int) -> int:
    """The Java under a process."""
    below = [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    for pid in below:
        if "java" in os.readlink(f"/proc/{pid}/exe"):
            return pid
    return next(_java(pid) for pid in below)


async def flow(load: Load, url: str, port: int, minutes: float, every: float) -> Traffic:
    """Lets events flow to all kinds of clients."""
    traffic = Traffic(load, url, keep=False)
    async with AsyncExitStack() as stack:
        tasks: list[asyncio.Task[Any]] = []
        for id in load.ids():
            if id in RESTLESS:
                tasks.append(asyncio.create_task(_come_and_go(traffic, url, id, every)))
                continue
            address = url
            if id in SLOW:
                link = Link(("127.0.0.1", port), SLOW_KBITS)
                address = await link.open()
                stack.push_async_callback(link.close)
            client = await stack.enter_async_context(Client(address, id))
            tasks.append(asyncio.create_task(traffic.receive(client)))
            if id not in SLOW:
                tasks.append(asyncio.create_task(traffic.move(client)))
        await traffic.publish(minutes * 60, uuid.uuid4().hex)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return traffic


async def _come_and_go(traffic: Traffic, url: str, id: str, every: float) -> None:
    while True:
        async with Client(url, id) as client:
            receiving = asyncio.create_task(traffic.receive(client))
            await asyncio.sleep(HERE * every)
            receiving.cancel()
        await asyncio.sleep(AWAY * every)


async def _measured(
    load: Load, url: str, port: int, minutes: float, every: float, pids: dict[str, int], data: Path
) -> Sizes:
    sizes = Sizes()
    # A group, so that a sample that fails ends the run instead of leaving it half measured.
    async with asyncio.TaskGroup() as group:
        sampling = group.create_task(sizes.sample(pids, url, data, every))
        traffic = await flow(load, url, port, minutes, every)
        sampling.cancel()
    rate = traffic.arrived / minutes / 60
    print(f"{traffic.events:,} events, {traffic.arrived:,} deliveries arrived, {rate:,.0f} a second")
    return sizes


def main(arguments: Sequence[str]) -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="benchmarks.memory", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=5.0, help="Seconds between two samples.")
    add_load(parser, rate=200.0, subscriptions=1_000, clients=50)
    given = parser.parse_args(arguments)
    load = load_of(given)
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="nearcast-memory-") as folder:
        data, port = Path(folder), free_port()
        url = f"http://127.0.0.1:{port}"
        (data / "load.yaml").write_text(yaml.safe_dump(load.definitions({**SLOW, **RESTLESS})))
        journal = SqliteJournal(journal_path(data))
        define(journal, files.load([data / "load.yaml"]))
        journal.close()
        with running(data, ServingOptions(port=port)) as supervisor:
            wait_until_ready(supervisor, url, data, seconds=400.0)
            pids = processes(supervisor)
            sizes = asyncio.run(_measured(load, url, port, given.minutes, given.every, pids, data))
            status = fetch(url, "/status", None)
    print(f"balance {status['balance']}; outcomes {status['outcomes']}; waiting {status['waiting']}")
    for name, (slope, first, last) in sizes.slopes().items():
        print(f"{name:9} {slope:+8.1f} MiB/h after the warm-up; {first:,.0f} MiB then, {last:,.0f} MiB at the end")
    print(machine())


if __name__ == "__main__":
    main(sys.argv[1:])
