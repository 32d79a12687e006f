"""Hostile input: what small inputs of one sender cost the others, who publish and receive beside it.

    python -m benchmarks.hostile [--seconds 6] [--rounds 4] [--rate 500] [--subscriptions 200] [--clients 20]
        [--only NAME]

For each kind ordinary work flows in several short rounds, alone and beside the kind, which comes again every few
seconds; the waits of all rounds are looked at together, so that what warms up or others do at the machine meets both
sides alike. The first row is a control: a kind that sends nothing. Its ratio is 1 but for noise, and how the rounds
differ stands behind each ratio.

A kind is a name and a function of the server's address, that sends what is hostile and returns. It runs in a process of
its own, and makes what it sends once, so that the ordinary clients that are measured do not wait for it here; the first
time is not measured. Whoever finds another kind adds it to `KINDS` in
`benchmarks/hostile_kinds.py`, or in `benchmarks/hostile_senders.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from multiprocessing import get_context
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
class Rounds:
    """Rounds of one kind, alone and beside it."""

    alone: list[Beside] = field(default_factory=list)
    beside: list[Beside] = field(default_factory=list)

    def ratios(self, part: float) -> list[float]:
        """How much longer this part of the deliveries took beside the kind, in each round."""
        return [two.share(part) / max(one.share(part), 1e-3) for one, two in zip(self.alone, self.beside, strict=True)]


def pooled(rounds: Sequence[Beside]) -> Beside:
    """Several rounds as one."""
    return Beside(
        [wait for one in rounds for wait in one.waits],
        sum(one.undecided for one in rounds),
        sum(one.growth for one in rounds),
        sum(one.computed for one in rounds),
    )


@dataclass
class OrdinaryWork:
    """Ordinary publishers and receivers of a running system."""

    traffic: Traffic
    journal: SqliteJournal
    pids: dict[str, int]
    every: float
    sender: ProcessPoolExecutor

    async def rounds(self, seconds: float, count: int, hostile: Callable[[str], None]) -> Rounds:
        """So many rounds alone and beside what is hostile; which of both is first alternates."""
        found = Rounds()
        await self._send(hostile)
        # Else what follows from it would be met by those who are measured alone.
        await self._decided()
        for number in range(count):
            for beside in (bool(number % 2), not number % 2):
                kept = found.beside if beside else found.alone
                kept.append(await self.beside(seconds, hostile if beside else None))
        return found

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
            await self._send(hostile)
            await asyncio.sleep(self.every)

    async def _send(self, hostile: Callable[[str], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self.sender, hostile, self.traffic.url)

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


@dataclass(frozen=True, slots=True)
class Turns:
    """How long a round is, how many there are each way, how often the kind comes, how long all warms up before: in
    seconds.
    """

    seconds: float
    count: int
    every: float
    warm: float


def run(load: Load, turns: Turns, kinds: Sequence[Kind]) -> None:
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
            asyncio.run(_kinds(load, url, turns, kinds, journal, processes(supervisor)))


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
    turns: Turns,
    kinds: Sequence[Kind],
    journal: SqliteJournal,
    pids: dict[str, int],
) -> None:
    async with AsyncExitStack() as stack:
        traffic = Traffic(load, url)
        clients = [await stack.enter_async_context(Client(url, id)) for id in load.ids()]
        tasks = [asyncio.create_task(traffic.receive(client)) for client in clients]
        await asyncio.gather(*(client.connected() for client in clients))
        sender = stack.enter_context(ProcessPoolExecutor(1, get_context("spawn")))
        work = OrdinaryWork(traffic, journal, pids, turns.every, sender)
        # Java compiles its code, and caches fill.
        await work.beside(turns.warm, None)
        print(f"\n{'':30}{'alone':>10}{'beside':>10}{'ratio':>6}{'rounds':>10}{'MiB':>6}{'CPU':>8}")
        for name, hostile in kinds:
            _tell(name, await work.rounds(turns.seconds, turns.count, hostile))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _tell(name: str, rounds: Rounds) -> None:
    """Prints the others' latencies, p50 and p99, without the kind and with it, and how the rounds differ."""
    alone, beside = pooled(rounds.alone), pooled(rounds.beside)
    for title, part in (("p50", 0.5), ("p99", 0.99)):
        without, with_it, ratios = alone.share(part), beside.share(part), rounds.ratios(part)
        growth = f"{beside.growth:6.0f}{beside.computed - alone.computed:+6.1f} s" if part > 0.5 else ""
        left = name if part == 0.5 else ""
        ratio = with_it / without if without else float("inf")
        between = f"{min(ratios):.1f}–{max(ratios):.1f}"
        waits = f"{without * 1000:7.0f} ms{with_it * 1000:7.0f} ms{ratio:5.1f}×{between:>10}"
        print(f"{left[:25]:26}{title:4}{waits}{growth}", flush=True)
    if beside.undecided:
        print(f"{'':28}{beside.undecided:,} events were not decided within {PATIENCE:.0f} s")


def main(arguments: Sequence[str]) -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="benchmarks.hostile", description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="How long a round is.")
    parser.add_argument("--rounds", type=int, default=4, help="Rounds alone, and as many beside each kind.")
    parser.add_argument("--warm", type=float, default=20.0, help="Seconds that flow before anything is measured.")
    parser.add_argument("--every", type=float, default=2.0, help="Seconds from one time to the next.")
    add_load(parser, rate=500.0, subscriptions=200, clients=20)
    parser.add_argument("--only", action="append", help="Part of a kind's name; default: all of them.")
    given = parser.parse_args(arguments)
    print(machine())
    everything = [*hostile_kinds.KINDS, *hostile_senders.KINDS]
    kinds = [one for one in everything if not given.only or any(part in one[0] for part in given.only)]
    run(load_of(given), Turns(given.seconds, given.rounds, given.every, given.warm), [hostile_kinds.CONTROL, *kinds])
    print()
    print(machine())


if __name__ == "__main__":
    main(sys.argv[1:])
