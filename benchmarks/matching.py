"""The matcher beside other engines, on one core: `python -m benchmarks.matching [--filters 10000] [--batch 16384] …`.

W1 are conjunctions, W2 trees of AND and OR, W3 trees with NOT and sets, over twenty attributes. Figures are events per
CPU-second of this process' only thread, events being in each engine's own form already, and the ratio to CLIPS (Rete,
by clipspy) in the same run: to rules as one writes them, a filter's tree as conditional elements, and to the form of
rules that takes CLIPS least time. What the engine finds is checked against a plain reading of the filters.

`--kinds` adds filters and events of other kinds, `--changing` filters that come and go,
`--spark` Spark's own join for W1 (by the clock, on one core), `--plot FILE` draws what events cost.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks import rivals
from benchmarks.kinds import SEED, Kind, kinds, place
from benchmarks.machine import machine
from benchmarks.rivals import Row, Tree
from experiments.plots import Bar, Panel, bar_chart
from nearcast.matching.bitset import FilterGroup
from nearcast.matching.column_tests import Coded
from nearcast.matching.engine import CompiledEngine
from nearcast.matching.incremental import IncrementalIndex
from nearcast.matching.matcher import FilterMatcher
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.model.filter import And, Atom, Filter, Not, Operator, Or, atoms
from nearcast.runtime.gc_settings import GC_THRESHOLDS
from nearcast.state.timeline import Environment, Timeline

FLAVOURS = {"W1": "gen_w1", "W2": "gen_w2", "W3": "gen_w3"}
EVENTS = 49_152
CHECKED = 30
"""Events whose pairs are checked."""
SLOW = 40
"""Events that the engines of one event at a time are given."""
BATCH = 16_384

ROUNDS = 9
"""Runs of the prototype, each with one of the matcher after it: machines do not keep their speed."""

CHANGES = 20
"""Batches before each of which filters are replaced."""


def main() -> None:
    """Prints a line per workload and engine."""
    options = _options()
    # As the pipeline does.
    gc.set_threshold(*GC_THRESHOLDS)
    work = _workload()
    if work is None:
        sys.exit("skipped: matching_workload.py is not there; NEARCAST_SHARED names the folder that has tools/ with it")
    print(machine())
    rows = _rows(work, options.events)
    costs: dict[str, list[tuple[str, float]]] = {}
    for flavour in options.work:
        seed = work.SEED + 1 + list(FLAVOURS).index(flavour)
        made = getattr(work, FLAVOURS[flavour])(max(options.filters), seed)
        for count in options.filters:
            rates = _compare(flavour, made[:count], rows, work, options)
            largest = f"nearcast, pairs, batch {max(options.batch):,}"
            costs.setdefault(flavour, []).append((f"{count:,}", 1e6 / rates[largest]))
            if options.changing:
                _changing(flavour, made[:count], rows, work)
    for kind in kinds() if options.kinds else ():
        for count in options.filters:
            _kind(kind, count, min(BATCH, options.events))
    if options.plot:
        Path(options.plot).write_text(_plot(costs), encoding="utf-8")
    print(machine())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filters", type=int, nargs="*", default=[10_000])
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--batch", type=int, nargs="*", default=[64, 1024, BATCH])
    parser.add_argument("--work", nargs="*", default=list(FLAVOURS), choices=list(FLAVOURS))
    parser.add_argument("--no-clips", action="store_true", help="without CLIPS, which takes long to build")
    parser.add_argument("--no-generated", action="store_true", help="without the generated function, of many filters")
    parser.add_argument("--kinds", action="store_true", help="also filters and events of other kinds")
    parser.add_argument("--changing", action="store_true", help="also filters of which one in twenty is replaced")
    parser.add_argument("--spark", action="store_true", help="also Spark's join, for W1")
    parser.add_argument("--plot", help="an SVG file for the cost of an event over the number of filters")
    return parser.parse_args()


def _workload() -> ModuleType | None:
    """The module that defines the filters and events, if it is there."""
    path = Path(os.environ.get("NEARCAST_SHARED", "../shared")) / "tools" / "matching_workload.py"
    if not path.exists():
        return None
    spec = importlib.util.spec_from_file_location("matching_workload", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _rows(work: ModuleType, count: int) -> list[Row]:
    columns = work.gen_events(count, work.SEED + 7)
    lists = [[f"v{x}" for x in columns[a]] if a[0] == "s" else columns[a].tolist() for a in work.ATTRS]
    return [dict(zip(work.ATTRS, values, strict=True)) for values in zip(*lists, strict=True)]


def _compare(
    flavour: str, made: Sequence[Tree], rows: list[Row], work: ModuleType, options: argparse.Namespace
) -> dict[str, float]:
    """Prints what each engine does with one workload; returns events per CPU-second by engine."""
    rates = _one_by_one(made, rows, work, options)
    _warm(made, rows)
    groups = [_group(tree) for tree in made]
    began = time.process_time()
    engine = CompiledEngine(groups)
    reading = time.process_time() - began
    table = to_table([_event(number, row) for number, row in enumerate(rows)])
    batch = engine.encode(table)
    started = time.process_time()
    engine.prepare(batch)
    planning = time.process_time() - started
    _check(engine, table, made, rows, work)
    print(f"{flavour} {len(made):,} filters, {engine.layout.bytes / len(made):.0f} bytes each")
    print(f"  read in {reading:.2f} CPU-s, planned in {planning:.2f}")
    prototype = rivals.prototype(made, rows, BATCH)
    if prototype is not None:
        parts = [engine.encode(table.slice(first, BATCH)) for first in range(0, len(rows), BATCH)]
        rates[f"prototype, pairs, batch {BATCH:,}"] = len(rows) / _in_turn(prototype, lambda: _pairs(engine, parts))
    for size in options.batch:
        few = len(rows) if size > 1000 else min(4096, len(rows))
        parts = [engine.encode(table.slice(first, size)) for first in range(0, few, size)]
        rates[f"nearcast, pairs, batch {size:,}"] = few / _median(lambda parts=parts: _pairs(engine, parts))
    rates["nearcast, lists per event"] = len(rows) / _median(lambda: _lists(engine, parts))
    rates["nearcast, from Arrow to pairs"] = len(rows) / _median(lambda: _from_arrow(engine, table))
    if options.spark and flavour == "W1":
        rates["Spark's hash join, by the clock"] = _spark(made, rows)
    for name, rate in rates.items():
        beside = "".join(f"{rate / rates[rival]:>12,.0f} × {rival}" for rival in CLIPS.values() if rival in rates)
        print(f"  {name:36} {rate:>12,.0f} events/s {beside}", flush=True)
    return rates


CLIPS = {True: "CLIPS", False: "CLIPS, best form"}
"""Rules as one writes them, and those that took CLIPS least time."""


def _one_by_one(
    made: Sequence[Tree], rows: list[Row], work: ModuleType, options: argparse.Namespace
) -> dict[str, float]:
    """What the engines of one event at a time do."""
    ways: dict[str, Callable[[], rivals.Decide]] = {}
    if not options.no_clips:
        ways |= {name: lambda plain=plain: rivals.clips_of(made, plain) for plain, name in CLIPS.items()}
    if not options.no_generated:
        ways["generated Python"] = lambda: rivals.generated(made)
    rates = {}
    for name, way in ways.items():
        decide = way()
        assert all(decide(row) == sum(work.naive(tree, row) for tree in made) for row in rows[:3]), f"{name} differs"
        began = time.thread_time()
        for row in rows[:SLOW]:
            decide(row)
        rates[name] = min(SLOW, len(rows)) / (time.thread_time() - began)
    return rates


def _warm(made: Sequence[Tree], rows: list[Row]) -> None:
    """Loads or compiles all that is compiled."""
    warm = CompiledEngine([_group(tree) for tree in made[:300]])
    warm.pairs(warm.encode(to_table([_event(0, rows[0])])))


def _median(job: Callable[[], object]) -> float:
    """The median of five runs in CPU-seconds of this thread."""
    return statistics.median(_spent(job) for _ in range(5))


def _in_turn(prototype: Callable[[], object], own: Callable[[], object]) -> float:
    """Prints the ratio of both, run in turn, and returns the median of the first, in CPU-seconds of this thread."""
    # Twice: pairs are written in one of two places, and fresh memory costs.
    for job in (prototype, own, own):
        job()
    spent = [(_spent(prototype), _spent(own)) for _ in range(ROUNDS)]
    ratios = sorted(theirs / ours for theirs, ours in spent)
    print(f"  pairs, batch {BATCH:,}, in turn with the prototype: {statistics.median(ratios):.2f} × as fast")
    print(f"    of {ROUNDS} rounds {ratios[0]:.2f} at least, {ratios[-1]:.2f} at most", flush=True)
    return statistics.median(theirs for theirs, _ in spent)


def _spent(job: Callable[[], object]) -> float:
    """CPU-seconds of this thread."""
    began = time.thread_time()
    job()
    return time.thread_time() - began


def _pairs(engine: CompiledEngine, parts: Sequence[Coded]) -> int:
    """Matches batch after batch; where pairs are written is free for the next."""
    return sum(len(engine.pairs(part)[0]) for part in parts)


def _lists(engine: CompiledEngine, parts: Sequence[Any]) -> None:
    """Of each event the groups: where they begin, and all one after the other."""
    for part in parts:
        lanes, groups, _ = engine.pairs(part)
        groups[np.argsort(lanes.astype(np.uint16) if part.lanes <= 1 << 16 else lanes, kind="stable")]
        np.cumsum(np.bincount(lanes, minlength=part.lanes))


def _from_arrow(engine: CompiledEngine, table: Any) -> None:
    for first in range(0, len(table), BATCH):
        engine.pairs(engine.encode(table.slice(first, BATCH)))


def _spark(made: Sequence[Tree], rows: list[Row]) -> float:
    """Events a second of the hash join of `benchmarks.joins` on one core, after a run that does not count."""
    # Spark takes seconds to import and start.
    from benchmarks.joins import hash_join
    from nearcast.pipeline.spark_session import session

    spark = session("local[1]")
    columns = {name.replace("s", "t"): [row[name] for row in rows] for name in rows[0]}
    positions = range(1, len(rows) + 1)
    frame = spark.createDataFrame(list(zip(positions, *columns.values(), strict=True)), ["position", *columns]).cache()
    filters = [_renamed(_filter(tree)) for tree in made]
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        hash_join(spark, frame, filters).toArrow()
        seconds.append(time.perf_counter() - began)
    spark.stop()
    return len(rows) / seconds[-1]


def _renamed(filter: Filter) -> And:
    """A conjunction with the names that the join has for texts."""
    assert isinstance(filter, And)
    found = [atom for atom in filter.children if isinstance(atom, Atom)]
    return And(tuple(Atom(str(atom.name).replace("s", "t"), atom.operator, atom.value) for atom in found))


def _changing(flavour: str, made: Sequence[Tree], rows: list[Row], work: ModuleType) -> None:
    """Replaces filters by new ones before each of twenty batches: one in a thousand, and one in twenty."""
    table = to_table([_event(number, row) for number, row in enumerate(rows[:BATCH])])
    incremental_index = IncrementalIndex()
    began = time.process_time()
    there = [incremental_index.acquire(_group(tree)) for tree in made]
    index = incremental_index.index(table, Environment())
    print(f"{flavour} {len(made):,} filters that come and go: first index {time.process_time() - began:.2f} CPU-s")
    undisturbed = _median(lambda: index.match(table, Environment()))
    # An index of two parts needs code that is read from its file once.
    incremental_index.acquire(_group(work.gen_w1(1, work.SEED)[0]))
    incremental_index.index(table, Environment()).match(table, Environment())
    print(f"  a batch of {len(table):,} from Arrow to pairs {1000 * undisturbed:.0f} ms", flush=True)
    for share in (1000, 20):
        some = max(1, len(made) // share)
        fresh = getattr(work, FLAVOURS[flavour])(CHANGES * some, work.SEED + 10 + share)
        _replaced(incremental_index, there, [_group(tree) for tree in fresh], some, table)


def _replaced(
    incremental_index: IncrementalIndex, there: list[int], fresh: list[FilterGroup], some: int, table: Any
) -> None:
    """Replaces so many groups before each batch, and prints how long one waits for the index, and how long it takes."""
    chance = random.Random(SEED)
    waits, batches, matching, began = [], [], 0.0, time.process_time()
    for _ in range(CHANGES):
        since = time.perf_counter()
        for _ in range(some):
            which = chance.randrange(len(there))
            incremental_index.release(there[which])
            there[which] = incremental_index.acquire(fresh.pop())
        index = incremental_index.index(table, Environment())
        made, spent = time.perf_counter(), time.thread_time()
        index.match(table, Environment())
        waits.append(made - since)
        batches.append(time.perf_counter() - made)
        matching += time.thread_time() - spent
    incremental_index.wait_until_made()
    # What was made beside included.
    change = (time.process_time() - began - matching) / (2 * CHANGES * some)
    print(f"  {some:,} replaced before each batch: a change {1000 * change:.3f} CPU-ms")
    for label, seconds in (("a batch waits for them", waits), ("and then takes", batches)):
        print(f"    {label} {1000 * statistics.median(seconds):.0f} ms, {1000 * max(seconds):.0f} at most", flush=True)


def _kind(kind: Kind, count: int, events: int) -> None:
    """Prints what is done with filters and events of another kind: with encoding, and all that is not an attribute."""
    chance = random.Random(f"{kind.name} {SEED}")
    filters = [kind.filter(chance) for _ in range(count)]
    users = Timeline({f"user {number}": place(chance) for number in range(kind.users)})
    found = enumerate(kind.events(events))
    table = to_table(
        Event(str(n), "reading", "workload", attributes=tuple(row.items()), place=place(chance), position=n + 1)
        for n, row in found
    )
    index = FilterMatcher([(filter, (0,) * sum(1 for _ in atoms(filter))) for filter in filters], many=0)
    index.prepare(table, Environment(users))
    pairs = len(index.match(table, Environment(users)).lanes)
    rate = events / _median(lambda: index.match(table, Environment(users)))
    print(f"{kind.name}, {count:,} filters, from Arrow to pairs, batch {events:,}: {pairs / events:.1f} pairs an event")
    print(f"  {rate:>12,.0f} events/s", flush=True)


def _plot(costs: dict[str, list[tuple[str, float]]]) -> str:
    """The cost of an event over the number of filters."""
    panels = [
        Panel(f"{flavour}: CPU-µs an event", [(label, [Bar(cost, 0.0, f"{cost:.2f} µs")]) for label, cost in found])
        for flavour, found in costs.items()
    ]
    title = "what an event costs, by the number of filters (pairs, largest batch)"
    return bar_chart(title, {"nearcast": "#4e79a7"}, panels, note="events encoded before; one core")


def _group(tree: Tree) -> FilterGroup:
    filter = _filter(tree)
    return filter, (0,) * sum(1 for _ in atoms(filter))


def _filter(tree: Tree) -> Filter:
    match tree[0]:
        case "and":
            return And(tuple(map(_filter, tree[1:])))
        case "or":
            return Or(tuple(map(_filter, tree[1:])))
        case "not":
            return Not(_filter(tree[1]))
        case "in":
            return Atom(tree[1], Operator.IN, tuple(tree[2]))
        case "not in":
            return Not(Atom(tree[1], Operator.IN, tuple(tree[2])))
    return Atom(tree[1], Operator(tree[0]), tree[2])


def _event(number: int, row: Row) -> Event:
    return Event(id=str(number), type="reading", source="workload", attributes=tuple(row.items()), position=number + 1)


def _check(engine: CompiledEngine, table: Any, made: Sequence[Tree], rows: list[Row], work: ModuleType) -> None:
    """Fails if the pairs of the first events are not those of a plain reading."""
    lanes, groups, _ = engine.pairs(engine.encode(table.slice(0, CHECKED)))
    expected = {(lane, n) for lane, row in enumerate(rows[:CHECKED]) for n, e in enumerate(made) if work.naive(e, row)}
    found = list(zip(lanes.tolist(), groups.tolist(), strict=True))
    assert len(found) == len(expected) and set(found) == expected, "pairs differ from the plain reading"


if __name__ == "__main__":
    main()
