"""Hostile input: what small inputs of one sender cost the others, who publish and receive beside it.

    python -m benchmarks.hostile [--seconds 20] [--rate 500] [--subscriptions 200] [--clients 20] [--only NAME]

For each kind ordinary work flows alone, then beside the kind, which comes again every few seconds. A kind is a name and
a function of the server's address, that sends what is hostile and returns; whoever finds another one adds it to `KINDS`
in `benchmarks/hostile_kinds.py`, or in `benchmarks/hostile_senders.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks import hostile_kinds, hostile_senders
from benchmarks.load import Load, Traffic
from benchmarks.machine import machine
from benchmarks.memory import computed, processes, resident
from benchmarks.options import add_load, load_of
from nearcast.cli.options import journal_path
from nearcast.cli.serving_options import ServingOptions
from nearcast.cli.system import define, free_port, running, wait_until_ready
from nearcast.client import Client
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.definitions import files

Kind = tuple[str, Callable[[str], None]]

PATIENCE = 120.0
"""Seconds for which is waited until all is decided that was published."""


@dataclass(frozen=True)
class Beside:
    """Seconds from publishing to arrival of ordinary events, how many did not arrive in time, growth in MiB, and what
    server and pipeline computed, in seconds: that says what a kind costs also where others use the machine.
    """

    waits: list[float]
    undecided: int
    growth: float
    computed: float

    def share(self, part: float) -> float:
        """Seconds within which this part of the deliveries arrived."""
        ordered = sorted(self.waits)
        return ordered[min(int(len(ordered) * part), len(ordered) - 1)] if ordered else float("inf")


@dataclass
class OrdinaryWork:
    """Ordinary publishers and receivers of a running system."""

    traffic: Traffic
    journal: SqliteJournal
    pids: dict[str, int]
    every: float

    async def beside(self, seconds: float, hostile: Callable[[str], None] | None) -> Beside:
        """Lets ordinary events flow for so long, beside what is hostile or alone."""
        size, first, computed = self._size(), len(self.traffic.arrivals), self._computed()
        phase = Traffic(self.traffic.load, self.traffic.url)
        repeating = asyncio.create_task(self._repeat(hostile)) if hostile else None
        await phase.publish(seconds, uuid.uuid4().hex)
        if repeating:
            repeating.cancel()
            await asyncio.gather(repeating, return_exceptions=True)
        undecided = await self._decided()
        arrived = ((one.event["id"], at) for _, one, at in self.traffic.arrivals[first:])
        waits = [at - phase.published[id] for id, at in arrived if id in phase.published]
        return Beside(waits, undecided, self._size() - size, self._computed() - computed)

    async def _repeat(self, hostile: Callable[[str], None]) -> None:
        while True:
            await asyncio.to_thread(hostile, self.traffic.url)
            await asyncio.sleep(self.every)

    async def _decided(self) -> int:
        """Waits until all is decided that was published; how many events are not, if that takes too long."""
        end, until = self.journal.end("events"), time.monotonic() + PATIENCE
        while (left := end - self.journal.end("deliveries")) > 0 and time.monotonic() < until:
            await asyncio.sleep(0.1)
        # What is on its way is counted too.
        await asyncio.sleep(1.0)
        return max(left, 0)

    def _size(self) -> float:
        return sum(resident(pid) for pid in self.pids.values())

    def _computed(self) -> float:
        """Seconds of the processor until now, of what runs Python: Java compiles its own code when it likes."""
        return sum(computed(self.pids[part]) for part in ("server", "pipeline"))


def run(load: Load, seconds: float, every: float, kinds: Sequence[Kind]) -> None:
    """Runs a system, and each kind beside ordinary work."""
    with tempfile.TemporaryDirectory(prefix="nearcast-hostile-") as folder:
        data = Path(folder)
        journal = SqliteJournal(journal_path(data))
        ordinary = load.definitions()
        together = {**ordinary, **{name: [*ordinary.get(name, ()), *more] for name, more in _listed().items()}}
        together["channels"] = ordinary.get("channels", {}) | hostile_kinds.DEFINITIONS["channels"]
        (data / "load.yaml").write_text(yaml.safe_dump(together))
        define(journal, files.load([data / "load.yaml"]))
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        with running(data, ServingOptions(port=port), metrics_port=free_port()) as supervisor:
            wait_until_ready(supervisor, url, data, seconds=400.0)
            asyncio.run(_kinds(load, url, seconds, every, kinds, journal, processes(supervisor)))


def _listed() -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for given in (hostile_kinds.DEFINITIONS, hostile_senders.DEFINITIONS):
        for name, more in given.items():
            if isinstance(more, list):
                found[name] = [*found.get(name, ()), *more]
    return found


async def _kinds(
    load: Load,
    url: str,
    seconds: float,
    every: float,
    kinds: Sequence[Kind],
    journal: SqliteJournal,
    pids: dict[str, int],
) -> None:
    async with AsyncExitStack() as stack:
        traffic = Traffic(load, url)
        clients = [await stack.enter_async_context(Client(url, id)) for id in load.ids()]
        tasks = [asyncio.create_task(traffic.receive(client)) for client in clients]
        await asyncio.gather(*(client.connected() for client in clients))
        work = OrdinaryWork(traffic, journal, pids, every)
        await work.beside(seconds, None)
        print(f"\n{'':32}{'alone':>15}{'beside it':>15}{'ratio':>9}{'MiB':>8}{'CPU':>10}")
        for name, hostile in kinds:
            _tell(name, await work.beside(seconds, None), await work.beside(seconds, hostile))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _tell(name: str, alone: Beside, beside: Beside) -> None:
    """Prints the others' latencies, p50 and p99, without the kind and with it."""
    for title, part in (("p50", 0.5), ("p99", 0.99)):
        without, with_it = alone.share(part), beside.share(part)
        growth = f"{beside.growth:8.0f}{beside.computed - alone.computed:+8.1f} s" if part > 0.5 else ""
        left = name if part == 0.5 else ""
        ratio = with_it / without if without else float("inf")
        print(
            f"{left[:27]:28}{title:4}{without * 1000:12.0f} ms{with_it * 1000:12.0f} ms{ratio:8.1f}×{growth}",
            flush=True,
        )
    if beside.undecided:
        print(f"{'':28}{beside.undecided:,} events were not decided within {PATIENCE:.0f} s")


def main(arguments: Sequence[str]) -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="benchmarks.hostile", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--every", type=float, default=2.0, help="Seconds from one time to the next.")
    add_load(parser, rate=500.0, subscriptions=200, clients=20)
    parser.add_argument("--only", action="append", help="Part of a kind's name; default: all of them.")
    given = parser.parse_args(arguments)
    print(machine())
    everything = [*hostile_kinds.KINDS, *hostile_senders.KINDS]
    kinds = [one for one in everything if not given.only or any(part in one[0] for part in given.only)]
    run(load_of(given), given.seconds, given.every, kinds)
    print()
    print(machine())


if __name__ == "__main__":
    main(sys.argv[1:])
