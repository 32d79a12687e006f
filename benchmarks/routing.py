"""What the routing table of a server costs, by what its subscriptions ask for: `python -m benchmarks.routing`.

For each kind of filter: CPU ms a subscription to fill the table, and to change one; how many filters are forwarded,
how large the answer is, how long a publisher takes to read it, and to hold one event against it. The last is the
longest that an event loop of the same process stood still meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import time
from collections.abc import Callable

from benchmarks.machine import machine
from nearcast.client.wanted_events import WantedFilters, selects
from nearcast.errors import Mark
from nearcast.journal.memory import MemoryJournal
from nearcast.language.cql2 import parse
from nearcast.runtime.gc_settings import GC_THRESHOLDS
from nearcast.server.ingest.wanted_filters import InterestTable
from nearcast.suppression.interest_index import Demand

EVENT = {
    "specversion": "1.0", "id": "1", "type": "t5", "source": "s", "subject": "A9",
    "data": {"unit": "other", "speed": 1, "size": 2_000, "minutes": 0, "lon": 0.5, "lat": 0.5},
}  # fmt: skip


def _square(source: random.Random) -> str:
    x, y = round(source.uniform(-170, 170), 4), round(source.uniform(-80, 80), 4)
    return f"POLYGON(({x} {y}, {x + 1} {y}, {x + 1} {y + 1}, {x} {y + 1}, {x} {y}))"


def _box(source: random.Random) -> str:
    x, y = round(source.uniform(-170, 170), 4), round(source.uniform(-80, 80), 4)
    return f"lon BETWEEN {x} AND {x + 1} AND lat BETWEEN {y} AND {y + 1}"


KINDS: dict[str, Callable[[int, random.Random], str]] = {
    "a unit of its own": lambda n, _: f"type = 't{n % 10}' AND unit = 'u{n}' AND speed > 3",
    "two ranges": lambda n, r: f"type = 't{n % 10}' AND size < {r.randint(0, 1000)} AND speed > {r.randint(0, 100)}",
    "where the client is, one of three": lambda n, r: (
        f"distance(user('c{n}'), this) <= 10000 AND "
        f"(type = 'closure' OR type = 'queue' AND minutes >= {r.randint(1, 60)} OR type = 'works' AND unit = 'u{n}')"
    ),
    "a box of its own": lambda n, r: f"type = 't{n % 10}' AND {_box(r)}",
    "a polygon of its own": lambda n, r: f"type = 't{n % 10}' AND S_INTERSECTS(geom, {_square(r)})",
}


def main() -> None:
    """Prints a row for each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subscriptions", type=int, default=10_000)
    asked = parser.parse_args()
    # As a server does.
    gc.set_threshold(*GC_THRESHOLDS)
    print(machine())
    for kind, text in KINDS.items():
        asyncio.run(_print(kind, text, asked.subscriptions))


async def _print(kind: str, text: Callable[[int, random.Random], str], count: int) -> None:
    source = random.Random(1)
    demands: dict[str, Demand | None] = {
        str(number): Demand((parse(text(number, source), Mark("f")),)) for number in range(count)
    }
    table = InterestTable(MemoryJournal(), 1.0)
    watching = asyncio.create_task(_longest_pause())
    began = time.process_time()
    await asyncio.to_thread(table.update_demands, demands)
    filled = time.process_time() - began
    watching.cancel()
    texts = table.texts()
    changing = _seconds(lambda: table.update_demands({"7": Demand((parse(text(count, source), Mark("f")),))}), 20)
    reader = WantedFilters("http://localhost", {})
    began = time.process_time()
    index = reader._read(texts)
    read = time.process_time() - began
    held = _seconds(lambda: selects(index, EVENT), 200)
    size = sum(len(one) for one in texts)
    print(
        f"{kind}: {1e3 * filled / count:.2f} ms each, {1e3 * changing:.1f} to change one;"
        f" {count:,} → {len(texts):,} filters, {size / 1e3:,.0f} kB;"
        f" read in {read:.2f} s, {1e6 * held:,.0f} us an event;"
        f" loop stood still {1e3 * await watching:.0f} ms"
    )


async def _longest_pause() -> float:
    longest = 0.0
    try:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.001)
            longest = max(longest, time.monotonic() - began - 0.001)
    except asyncio.CancelledError:
        return longest


def _seconds(run: Callable[[], object], times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        run()
    return (time.process_time() - began) / times


if __name__ == "__main__":
    main()
