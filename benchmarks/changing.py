"""Subscriptions replaced while events flow: `python -m benchmarks.changing [--subscriptions 100000] [--replaced 5000]`.

Batches of events come to the first stage and are decided, in this process; in every other one so many subscriptions are
replaced before its events, as control events with their filters as text. What such a batch waits for them is set beside
what one takes that nothing disturbs, and beside what one would do instead: read all subscriptions anew.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks import workload
from benchmarks.machine import machine
from nearcast.language.control_events import changes, to_event
from nearcast.model.changes import SubscriptionChange
from nearcast.model.columns import to_table
from nearcast.model.filter import And
from nearcast.model.subscription import Subscription
from nearcast.runtime.gc_settings import GC_THRESHOLDS
from nearcast.runtime.jit_warmup import wait_for_warmup
from nearcast.stages.decide import decide
from nearcast.stages.fold import StateFold
from nearcast.state.registry import Registry


class Took(NamedTuple):
    """Seconds of the first stage and of all deciding of a batch, and how many deliveries it gave."""

    known: float
    all: float
    deliveries: int


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subscriptions", type=int, default=100_000)
    parser.add_argument("--replaced", type=int, default=5_000)
    parser.add_argument("--events", type=int, default=16_384, help="events of a batch")
    parser.add_argument(
        "--texts", type=int, default=2, help="equalities of texts in each filter: with 1 it selects much"
    )
    parser.add_argument("--rounds", type=int, default=8)
    asked = parser.parse_args()
    print(machine())
    gc.set_threshold(*GC_THRESHOLDS)
    wait_for_warmup()
    count = asked.subscriptions
    filters = workload.filters(count + (asked.rounds + 1) * asked.replaced, texts=asked.texts)
    known = StateFold(workload.registry(filters[:count]))
    events = workload.events(workload.values(asked.events))
    alone, changed = [], []
    for control in _controls(filters, count, asked.replaced):
        alone.append(_decided(known, events))
        changed.append(_decided(known, pa.concat_tables([control, events])))
        print(f"\r{len(changed)} of {asked.rounds + 1} rounds", end="", file=sys.stderr, flush=True)
    # The first round is not counted: the index is made in it, and what is compiled is loaded.
    before, after = (_median(some[1:]) for some in (alone, changed))
    more = after.known - before.known
    print(f"\n{count:,} subscriptions, {asked.events:,} events a batch, {before.deliveries:,.0f} deliveries")
    print(f"a batch alone: first stage {1000 * before.known:.0f} ms, decided after {1000 * before.all:.0f} ms")
    print(
        f"{asked.replaced:,} replaced: first stage {1000 * after.known:.0f} ms, decided after {1000 * after.all:.0f} ms"
    )
    print(f"waits {1000 * more:.0f} ms longer, {1000 * more / asked.replaced:.3f} ms a change")
    print(f"nearcast waits {more / before.all:.2f} × as long as a batch alone takes")
    anew = _anew(filters[:count], events)
    print(f"all subscriptions read anew: {anew:.1f} s, {anew / more:.0f} × as long")
    print(machine())


def _controls(filters: Sequence[And], count: int, replaced: int) -> Iterator[pa.Table]:
    """The control events that replace so many of the subscriptions, again and again."""
    chance = random.Random(workload.SEED)
    for first in range(count, len(filters), replaced):
        yield _control(filters[first : first + replaced], [chance.randrange(count) for _ in range(replaced)])


def _control(filters: Sequence[And], numbers: Sequence[int]) -> pa.Table:
    some = zip(filters, numbers, strict=True)
    made = (SubscriptionChange(Subscription(str(number), (f"client {number}",), filter)) for filter, number in some)
    return to_table(to_event(change, f"change {order}", "benchmark") for order, change in enumerate(made))


def _decided(known: StateFold, table: pa.Table) -> Took:
    """Decides events as they come behind what is known."""
    positions = pa.array(np.arange(len(table)) + known.position + 1)
    table = table.set_column(0, table.schema.field("position"), positions)
    began = time.perf_counter()
    [batch] = known.fold(table, changes)
    folded = time.perf_counter()
    deliveries = len(decide(batch, batch.events))
    return Took(folded - began, time.perf_counter() - began, deliveries)


def _median(some: Sequence[Took]) -> Took:
    return Took(*(statistics.median(values) for values in zip(*some, strict=True)))


def _anew(filters: list[And], events: pa.Table) -> float:
    """Seconds until a batch can be decided for which all subscriptions are read."""
    control = _control(filters, range(len(filters)))
    known = StateFold(Registry(clients=workload.registry(filters).clients))
    return _decided(known, pa.concat_tables([control, events])).known


if __name__ == "__main__":
    main()
