"""What an event costs in batches of several sizes: `python -m benchmarks.batches [--filters 10000] [--sizes 10 …]`.

Batches are folded and decided as the pipeline does it, without Spark and without a journal: what they change is taken
in, nothing is derived, and events meet filters of two equalities of texts each.
Figures are CPU-microseconds of this thread for an event: at the median of all batches, and of the quickest one.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time

import numpy as np
import pyarrow as pa

from benchmarks import workload
from benchmarks.machine import machine
from nearcast.model.expression import Box, Call, Property
from nearcast.model.filter import And, Atom, Operator
from nearcast.runtime.gc_settings import GC_THRESHOLDS
from nearcast.runtime.jit_warmup import wait_for_warmup
from nearcast.stages.decide import decide
from nearcast.stages.fold import StateFold

WARM = 20
"""Batches of each size that are not counted."""

FIRST = 2_000
"""Events by which the index is planned, before any batch."""


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filters", type=int, nargs="*", default=[100, 1_000, 10_000])
    parser.add_argument("--sizes", type=int, nargs="*", default=[1, 10, 100, 1_000])
    parser.add_argument("--batches", type=int, default=100, help="of each size")
    parser.add_argument("--areas", type=int, default=0, help="so many of the filters also ask for an area")
    asked = parser.parse_args()
    print(machine())
    # As the pipeline does.
    gc.set_threshold(*GC_THRESHOLDS)
    wait_for_warmup()
    for count in asked.filters:
        _measure(count, asked.areas, asked.sizes, asked.batches)
    print(machine())


def _measure(count: int, areas: int, sizes: list[int], batches: int) -> None:
    """Prints a line for each size of batches."""
    chance = random.Random(workload.SEED)
    filters = workload.filters(count, texts=2)
    filters[:areas] = [And((*one.children, _area(chance))) for one in filters[:areas]]
    known = StateFold(workload.registry(filters))
    _decided(known, _numbered(workload.events(workload.values(FIRST)), known))
    for size in sizes:
        events = workload.events(workload.values((batches + WARM) * size, workload.SEED + size))
        spent, deliveries = [], 0
        for first in range(0, len(events), size):
            batch = _numbered(events.slice(first, size), known)
            began = time.thread_time()
            deliveries += _decided(known, batch)
            spent.append((time.thread_time() - began) / size * 1e6)
        median, least = statistics.median(spent[WARM:]), min(spent[WARM:])
        each = deliveries / len(events)
        print(f"{count:>7,} filters, batches of {size:>5,}: {median:>9,.1f} µs an event,", end=" ")
        print(f"{least:>9,.1f} at least; {each:.1f} deliveries", flush=True)


def _area(chance: random.Random) -> Atom:
    """A condition that an event is within some box; no event of the workload is anywhere."""
    west, south = chance.uniform(0, 1_000), chance.uniform(0, 1_000)
    box = Box((west, south, west + 10, south + 10))
    return Atom(Call("S_INTERSECTS", (Property("geometry"), box)), Operator.EQ, True)


def _numbered(events: pa.Table, known: StateFold) -> pa.Table:
    """The events as the journal's next ones."""
    positions = pa.array(known.position + 1 + np.arange(len(events)))
    numbered = events.set_column(0, events.schema.field("position"), positions)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, numbered.schema) as stream:
        stream.write_table(numbered.combine_chunks())
    # As they are read of a block: a slice would say less of what each column has.
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def _decided(known: StateFold, events: pa.Table) -> int:
    """Folds and decides events; how many deliveries there are."""
    return sum(len(decide(batch, batch.events)) for batch in known.fold(events, lambda event, settings: []))


if __name__ == "__main__":
    main()
