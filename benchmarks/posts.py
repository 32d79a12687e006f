"""What a post costs: `python -m benchmarks.posts [--events 300] [--rounds 5] …`.

An access server in a process of its own, and publishers in this one: one that awaits each event before the next, one
with a thousand events at a time, sixteen with one at a time. In turn with it the least that would do: a handler without
a framework, which reads the JSON and inserts a row into SQLite, with the journal's settings, before it answers. Its
publishers are the same, so what they cost is in both. It checks nothing, and nobody could decide by what it keeps.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import sys
import time
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import orjson
import uvicorn

from benchmarks.load import Load
from benchmarks.machine import machine
from nearcast.client import Publisher
from nearcast.server.app import listen
from nearcast.server.config import ServerConfig

AT_ONCE, TOGETHER = 1_000, 16
WAYS = {"one at a time": 1, f"{AT_ONCE:,} at a time": 20, f"{TOGETHER} × one at a time": 4}
"""The ways to publish, and how many times the events that one publisher sends one by one."""
SERVERS = ("nearcast", "floor")


class PostCosts(NamedTuple):
    """Of one event: seconds of the clock, and of the server's and the publishers' processor."""

    clock: float
    server: float
    publishers: float


def main() -> None:
    """Prints events a second and the processor time of an event, by way of publishing and server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=300, help="that one publisher sends one by one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--floor", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.floor:
        _serve_floor(options.floor)
        return
    print(machine())
    found = asyncio.run(_measure(options.events, options.rounds))
    for way in WAYS:
        _print(way, *(found[way, server] for server in SERVERS))


def _print(way: str, nearcast: list[PostCosts], floor: list[PostCosts]) -> None:
    print(way)
    for server, each in zip(SERVERS, (nearcast, floor), strict=True):
        clock, serving, publishing = (median(values) for values in zip(*each, strict=True))
        print(
            f"  {server:8} {1 / clock:9,.0f} events/s; an event takes {1e6 * serving:5,.0f} us of the server's"
            f"\n{'':19}processor, {1e6 * publishing:5,.0f} us of the publishers'"
        )
    ratio = median(one.clock / other.clock for one, other in zip(nearcast, floor, strict=True))
    print(f"  nearcast takes {ratio:.1f} times as long as the floor")
    # The system counts it in hundredths of a second: of few events that may be none.
    if spent := sum(one.server for one in floor):
        print(f"  its server takes {sum(one.server for one in nearcast) / spent:.1f} times the processor")


async def _measure(events: int, rounds: int) -> dict[tuple[str, str], list[PostCosts]]:
    """Every way with every server in turn, so many times."""
    found: dict[tuple[str, str], list[PostCosts]] = defaultdict(list)
    with TemporaryDirectory() as folder:
        running = {server: await _started(server, Path(folder)) for server in SERVERS}
        try:
            for round in range(rounds):
                for way, times in WAYS.items():
                    for server, (process, url) in running.items():
                        reports = list(islice(Load().reports(f"{round} {way}"), events * times))
                        found[way, server].append(await _published(way, reports, url, process.pid))
        finally:
            for process, _ in running.values():
                process.terminate()
                await process.wait()
    return found


async def _started(server: str, folder: Path) -> tuple[Process, str]:
    """A server that runs, and its address, which is the end of the first line that it says."""
    own = ["benchmarks.posts", "--floor", str(folder / "floor")]
    arguments = ["nearcast", "server", "--data", str(folder), "--port", "0"] if server == "nearcast" else own
    process = await create_subprocess_exec(sys.executable, "-m", *arguments, stderr=PIPE)
    assert process.stderr
    return process, (await process.stderr.readline()).decode().split()[-1]


async def _published(way: str, reports: Sequence[dict[str, Any]], url: str, pid: int) -> PostCosts:
    count = TOGETHER if way.startswith(str(TOGETHER)) else 1
    size = AT_ONCE if way.startswith(f"{AT_ONCE:,}") else 1
    publishers = [Publisher(url) for _ in range(count)]
    # The first request of a connection makes it.
    await asyncio.gather(*(one.publish([]) for one in publishers))
    before = time.perf_counter(), processor(pid), time.process_time()
    await asyncio.gather(*(_publish(one, reports[at::count], size) for at, one in enumerate(publishers)))
    after = time.perf_counter(), processor(pid), time.process_time()
    for one in publishers:
        await one.close()
    return PostCosts(*((end - begin) / len(reports) for begin, end in zip(before, after, strict=True)))


async def _publish(publisher: Publisher, reports: Sequence[dict[str, Any]], size: int) -> None:
    for start in range(0, len(reports), size):
        told = await publisher.publish(reports[start : start + size])
        assert None not in told.positions


def processor(pid: int) -> float:
    """Seconds of the processor that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _serve_floor(path: Path) -> None:
    listening = listen(ServerConfig(path, port=0))
    print(f"listening on http://127.0.0.1:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
    _floor(path).run(sockets=[listening])


def _floor(path: Path) -> uvicorn.Server:
    """The least that takes events and answers when they are as durable as in the journal."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE TABLE events (position INTEGER PRIMARY KEY, id TEXT, source TEXT, event BLOB)")
    connection.execute("CREATE UNIQUE INDEX known ON events (id, source)")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        """Takes a batch in the JSON format of CloudEvents."""
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        rows = [(event["id"], event["source"], orjson.dumps(event)) for event in orjson.loads(body)]
        connection.execute("BEGIN IMMEDIATE")
        positions = [
            connection.execute("INSERT INTO events (id, source, event) VALUES (?, ?, ?)", row).lastrowid for row in rows
        ]
        connection.execute("COMMIT")
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 202, "headers": headers})
        await send({"type": "http.response.body", "body": orjson.dumps({"positions": positions, "faults": []})})

    return uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))


if __name__ == "__main__":
    main()
