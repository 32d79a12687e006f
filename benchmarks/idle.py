"""Idle: what a whole system costs while nothing comes and nothing is due, and while something is due in an hour.

    python -m benchmarks.idle [--seconds 600] [--settle 65] [--clients 20] [--nats]

`nearcast up` with relations, zones, situations, aggregates and readings that are valid for a time; entities have
reported, clients are connected and have acknowledged all that they got. Then it is left alone, twice: first with
nothing that will ever fall due, then with a relation, a zone, a situation and readings that end in an hour; and each
time one event more comes, of which is told how long it took to arrive. What is counted: rows of the journal, files of
the data folder that were written, batches, ticks, lines of the logs; and of each process seconds of the processor, how
often it was woken, threads and resident memory. It ends with status 1 where the journal grew, or one of the counters
that /metrics have, as that of batches, and where a file was written though it had settled for a minute.

With `--nats` the journal is kept by a server of NATS (nats-server). There who leads, and which access servers there
are, is said anew every few seconds, in streams of their own: a handful of small messages, each in the place of the one
before, whose files are not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import yaml

from benchmarks.machine import machine
from benchmarks.memory import resident
from nearcast.cli.options import journal_path, state_path
from nearcast.cli.system import free_port
from nearcast.client import Client, Publisher
from nearcast.journal.locations import journal_at
from tests.nats_servers import NatsServer

Document = dict[str, Any]

LOGS = ("events", "derived", "deliveries", "outcomes", "dead letters", "source filters", "sessions")
HOUR = 3_600
LATE = 65.0
"""Seconds after which nothing is written of what came: once a minute the pipeline notes what the journal keeps."""
OF_NATS = ("_leases/", "_servers/", "/index.db")
"""In paths of files that NATS writes though nothing comes: streams of which messages lapse, and its own notes."""
SQUARE = [[[0, 0], [50, 0], [50, 50], [0, 50], [0, 0]]]
KINDS = ("ever", "hour")
"""Entities of the first kind are in relations, zones and situations that have no end, of the second in those that end
in an hour."""


def definitions(clients: Sequence[str]) -> Document:
    """What is defined: of each kind of stage one that lasts, and one that ends in an hour."""
    wanted = "type IN ('nearcast.relation', 'nearcast.zone', 'nearcast.situation', 'ever', 'hour')"
    return {
        "awareness": {"bandwidth": {"maximum": 3750}, "battery": {"intervals": [0.2, 0.5], "valid": HOUR}},
        "ontology": {
            "classes": {"Heat": {"unit": "degC", "within": 10}, "Gas": {"unit": "ppm", "within": 10}},
            "situations": {"Hot": {}, "Stuffy": {}},
        },
        "clients": [{"id": id, "readings": {"bandwidth": 3750}, "position": {"x": 0, "y": 0}} for id in clients],
        "subscriptions": [{"id": "all", "clients": list(clients), "filter": wanted, "ttl": HOUR}],
        "relations": [
            _pairs("ever", time_to_live=None),
            _pairs("hour", time_to_live=HOUR),
            {**_pairs("hour", time_to_live=HOUR), "id": "late", "lateness": 1},
            {"id": "group", "among": "type = 'ever'", "within": 20, "count": 3},
        ],
        "zones": {
            "lasting": _layer("ever"),
            "ending": {**_layer("hour"), "time_to_live": HOUR},
        },
        "situations": [
            {"id": "hot", "class": "Hot", "when": "Heat > 40"},
            {"id": "stuffy", "class": "Stuffy", "when": "AVG(Gas, 1 h) > 1000", "valid": HOUR},
        ],
    }


def _pairs(type: str, time_to_live: int | None) -> Document:
    ending = {"time_to_live": time_to_live} if time_to_live else {}
    return {"id": type, "a": f"type = '{type}'", "b": f"type = '{type}'", "when": "distance(a, b) < 20", **ending}


def _layer(type: str) -> Document:
    place = {"id": "square", "geometry": {"type": "Polygon", "coordinates": SQUARE}}
    return {"of": f"type = '{type}'", "coordinates": "planar", "features": [place]}


def reports(kind: str) -> Iterator[Document]:
    """Ten entities that meet, in a zone; and a reading that makes a situation."""
    for number in range(10):
        yield _event(kind, f"{kind} {number}", {"x": number, "y": 1.0})
    reading = {"Heat": 50} if kind == "ever" else {"Gas": 2_000}
    yield _event("reading", f"sensor {kind}", {**reading, "x": 0.0, "y": 0.0})


def _event(type: str, subject: str, data: Document) -> Document:
    head = {"specversion": "1.0", "id": f"{subject} at {time.time_ns()}", "type": type, "source": "idle"}
    return {**head, "subject": subject, "time": datetime.now(UTC).isoformat(), "data": data}


@dataclass(frozen=True)
class Usage:
    """Of a process: seconds of the processor and how often it was woken since it began, threads, resident MiB."""

    name: str
    seconds: float
    woken: int
    threads: int
    memory: float


@dataclass(frozen=True)
class State:
    """A system at a moment: ends of the logs; of the files of its folder their bytes, and when they were written, in
    nanoseconds; counters, lines of logs, processes by number.
    """

    ends: dict[str, int]
    files: dict[str, tuple[int, int]]
    counters: dict[str, float]
    lines: int
    processes: dict[int, Usage]


@dataclass(frozen=True)
class System:
    """A running `nearcast up`: its process, folder and journal, where its server is and the metrics of the
    pipeline, its output.
    """

    process: subprocess.Popen[bytes]
    data: Path
    journal: str
    url: str
    metrics: str
    output: Path

    def settled(self, seconds: float) -> State:
        """How it is once nothing has been written for so long."""
        state, since = self.state(), time.monotonic()
        while time.monotonic() < since + seconds:
            time.sleep(min(1.0, seconds))
            before, state = state, self.state()
            if grown(before, state) or written(before, state):
                since = time.monotonic()
        return state

    def state(self) -> State:
        """How it is now."""
        journal = journal_at(self.journal)
        ends = {log: journal.end(log) for log in LOGS}
        journal.close()
        logs = [self.output, state_path(self.data) / "spark.log"]
        return State(
            ends,
            _files(self.data),
            {**counters(self.metrics), **counters(self.url)},
            sum(path.read_bytes().count(b"\n") for path in logs if path.exists()),
            _usages(tree(self.process.pid)),
        )


def grown(before: State, after: State) -> dict[str, float]:
    """What of the logs and counters moved between two states, by name."""
    logs = {log: float(after.ends[log] - before.ends[log]) for log in LOGS}
    counts = {name: after.counters[name] - before.counters.get(name, 0.0) for name in after.counters}
    return {name: number for name, number in {**logs, **counts}.items() if number}


def written(before: State, after: State) -> dict[str, int]:
    """The files that were written between two states, and by how many bytes each grew."""
    changed = [name for name in before.files | after.files if before.files.get(name) != after.files.get(name)]
    sizes = [(after.files.get(name, (0, 0))[0], before.files.get(name, (0, 0))[0]) for name in changed]
    return {name: now - then for name, (now, then) in zip(changed, sizes, strict=True)}


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            status = path.stat()
            # Folders change as those come and go who wait to be woken.
            if path.is_file() and not any(one in str(path) for one in OF_NATS):
                found[str(path.relative_to(folder))] = status.st_size, status.st_mtime_ns
    return found


def counters(url: str) -> dict[str, float]:
    """The counters that /metrics has: totals without labels, and those with labels summed up."""
    found: dict[str, float] = {}
    for name, value in re.findall(r"^(nearcast_\w+_total)(?:\{.*\})? (\S+)$", httpx.get(f"{url}/metrics").text, re.M):
        found[name] = found.get(name, 0.0) + float(value)
    return found


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    below = [int(child) for text in _of_tasks(pid, "children") for child in text.split()]
    return [pid, *(one for child in below for one in tree(child))]


def _of_tasks(pid: int, name: str) -> Iterator[str]:
    """What a file says of each thread of a process; threads and processes may end meanwhile."""
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            yield (task / name).read_text()


def usage(pid: int) -> Usage:
    """What a process has used, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    switches = (re.search(r"^voluntary_ctxt_switches:\s+(\d+)$", text, re.M) for text in _of_tasks(pid, "status"))
    return Usage(_name(pid), seconds, sum(int(found[1]) for found in switches if found), int(fields[17]), resident(pid))


def _usages(pids: Sequence[int]) -> dict[int, Usage]:
    found = {}
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            found[pid] = usage(pid)
    return found


def _name(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    if "java" in words[0]:
        return "java"
    known = {"up": "supervisor", "server": "server", "pipeline": "pipeline"}
    return next((known[word] for word in words if word in known), "worker" if "pyspark" in str(words) else "other")


@contextmanager
def system(data: Path, document: Document, journal: str | None = None) -> Iterator[System]:
    """Runs `nearcast up` in a folder until the block ends, with the journal in it or elsewhere."""
    file, output = data / "definitions.yaml", data.with_name(f"{data.name}.log")
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    port, metrics = free_port(), free_port()
    options = ["--definitions", str(file), "--data", str(data), "--port", str(port), "--metrics-port", str(metrics)]
    options += ["--journal", journal] if journal else []
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "nearcast", "up", "--wait", "400", *options], stdout=stream, stderr=stream
        )
    try:
        while b"ready: " not in output.read_bytes():
            if process.poll() is not None:
                raise SystemExit(output.read_text())
            time.sleep(0.2)
        yield System(
            process,
            data,
            journal or str(journal_path(data)),
            f"http://127.0.0.1:{port}",
            f"http://127.0.0.1:{metrics}",
            output,
        )
    finally:
        process.terminate()
        process.wait(60)


@dataclass
class Spell:
    """A stretch of idleness: how the system was before and after it, and seconds until the next event had arrived."""

    before: State
    after: State
    first: float = 0.0


async def measure(running: System, clients: Sequence[str], seconds: float, settle: float) -> dict[str, Spell]:
    """What so many seconds cost in which nothing comes, by what will fall due."""
    found = {}
    async with AsyncExitStack() as stack:
        connected = [await stack.enter_async_context(Client(running.url, id)) for id in clients]
        arrived: dict[str, float] = {}
        tasks = [asyncio.create_task(_receive(client, arrived)) for client in connected]
        await asyncio.gather(*(client.connected() for client in connected))
        publisher = await stack.enter_async_context(Publisher(running.url))
        for kind in KINDS:
            await publisher.publish(list(reports(kind)))
            if kind == "hour":
                for client in connected:
                    await client.say(readings={"battery": 0.9})
            before = await asyncio.to_thread(running.settled, settle)
            await asyncio.sleep(seconds)
            found[kind] = Spell(before, await asyncio.to_thread(running.state))
            event, began = _event("ever", f"after {kind}", {"x": 500.0, "y": 500.0}), time.monotonic()
            await publisher.publish([event])
            async with asyncio.timeout(60):
                while event["id"] not in arrived:
                    await asyncio.sleep(0.01)
            found[kind].first = arrived[event["id"]] - began
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return found


async def _receive(client: Client, arrived: dict[str, float]) -> None:
    async for delivery in client.deliveries():
        arrived.setdefault(str(delivery.event["id"]), time.monotonic())
        await client.acknowledge(delivery.position)


def report(title: str, spell: Spell, seconds: float) -> None:
    """Prints what a stretch of idleness cost."""
    before, after = spell.before, spell.after
    there = ", ".join(f"{log} {end}" for log, end in after.ends.items() if end)
    print(f"\n{title}, for {seconds:,.0f} s; the journal has {there}")
    moved = ", ".join(f"{name} {number:g}" for name, number in grown(before, after).items())
    files = ", ".join(f"{name} {size:+,}" for name, size in written(before, after).items())
    print(f"  grown: {moved or 'nothing'}; files written, and bytes: {files or 'none'}")
    print(f"  lines in the logs: {after.lines - before.lines}; the next event arrived after {spell.first:.3f} s")
    total = 0.0
    for pid, now in after.processes.items():
        then = before.processes.get(pid, Usage(now.name, 0.0, 0, 0, 0.0))
        used, woken = now.seconds - then.seconds, (now.woken - then.woken) / seconds
        total += used
        size = f"{now.threads} threads, {now.memory:.0f} MiB, {now.memory - then.memory:+.1f}"
        print(f"  {now.name:10} {used:7.2f} s ({used / seconds:6.2%}), woken {woken:4,.0f}/s, {size}")
    print(f"  together   {total:7.2f} s ({total / seconds:6.2%})")


@contextmanager
def _nats(data: Path) -> Iterator[str]:
    """Where the journal is that a server of NATS keeps in a folder."""
    server = NatsServer(data / "nats").start()
    try:
        yield f"{server.url}/idle"
    finally:
        server.kill()


TITLES = {"ever": "nothing will fall due", "hour": "something falls due in an hour"}


def main(arguments: Sequence[str]) -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(prog="benchmarks.idle", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="Of each of the two.")
    parser.add_argument("--settle", type=float, default=65.0, help="Seconds without growth before it counts.")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--nats", action="store_true", help="Keep the journal on a server of NATS.")
    given = parser.parse_args(arguments)
    print(machine(), flush=True)
    clients = [f"client {number}" for number in range(given.clients)]
    with tempfile.TemporaryDirectory(prefix="nearcast-idle-") as folder:
        data = Path(folder, "data")
        data.mkdir()
        with (
            _nats(data) if given.nats else nullcontext() as journal,
            system(data, definitions(clients), journal) as running,
        ):
            found = asyncio.run(measure(running, clients, given.seconds, given.settle))
    for kind, spell in found.items():
        report(TITLES[kind], spell, given.seconds)
    print(machine())
    if any(grown(one.before, one.after) for one in found.values()):
        raise SystemExit(1)
    if given.settle >= LATE and any(written(one.before, one.after) for one in found.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
