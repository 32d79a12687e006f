"""Replay throughput, Arrow to Arrow, beside the same job as a join in Spark SQL: `python -m benchmarks.replay`.

nearcast reads a journal and gives deliveries; the joins read Parquet files with a column per attribute, which spares
them reading attributes of any name and kind, and give pairs of numbers. Both bring all they found to the driver. Each
is run once before it counts. Then come the price of an event without Spark, in large batches and in live ones, and the
number of events from which a batch is better spread over the executors.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks import joins, workload
from benchmarks.machine import machine
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control_events import changes
from nearcast.model.filter import And
from nearcast.pipeline.batch_replay import replay
from nearcast.pipeline.spark_session import session
from nearcast.pipeline.spread import BatchSpreader, submit_batch
from nearcast.stages.decide import decide
from nearcast.stages.fold import FoldedBatch, StateFold

FILTERS = (100, 1_000, 10_000)
EVENTS = 200_000
ROUNDS = 3
NESTED_LOOP_PAIRS = 200_000_000
"""Pairs that a nested loop is given: its rate does not depend on how many events meet the filters."""
EXPRESSIONS_MOST = 100
"""Filters from which generated expressions are not tried: Spark compiles 1,000 of them until its 2 GB are full."""
ALONE = 20_000
"""Events of the batches without Spark."""
SPREAD = (10_000, 20_000, 40_000, 80_000)
"""Events of the batches that are decided in the driver and spread out."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One way to do the job: what it took in seconds, at best, for so many events, and how many pairs it found."""

    way: str
    events: int
    seconds: float
    pairs: int

    @property
    def rate(self) -> float:
        """Events per second."""
        return self.events / self.seconds


@dataclass(frozen=True, slots=True)
class Bench:
    """Where the events are: a journal, a Parquet folder of the same events, a folder for what executors need."""

    spark: SparkSession
    values: pa.Table
    journal: SqliteJournal
    parquet: Path
    folder: Path


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filters", type=int, nargs="+", default=FILTERS)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--master", default="local[2]")
    asked = parser.parse_args()
    console = Console(width=80)
    console.print(machine(), style="bold")
    with tempfile.TemporaryDirectory(prefix="nearcast-bench-") as folder:
        bench = _prepared(session(asked.master), asked.events, Path(folder))
        for count in asked.filters:
            _print(console, count, list(_measured(bench, workload.filters(count), asked.rounds)))
        _alone(console, bench.values.slice(0, ALONE), asked.filters)
        _crossover(console, bench, asked.filters)
    console.print(machine(), style="bold")


def _prepared(spark: SparkSession, count: int, folder: Path) -> Bench:
    """The same events in a journal and in as many files as there are cores."""
    found = workload.values(count)
    journal, parquet = SqliteJournal(folder / "journal"), folder / "parquet"
    for first in range(0, count, 10_000):
        journal.append("events", workload.events(found.slice(first, 10_000)))
    parquet.mkdir()
    _parquet(found, parquet, spark.sparkContext.defaultParallelism)
    return Bench(spark, found, journal, parquet, folder / "batches")


def _parquet(found: pa.Table, folder: Path, files: int) -> None:
    step = -(-len(found) // files)
    for number in range(files):
        pq.write_table(found.slice(number * step, step), folder / f"{number}.parquet")


def _measured(bench: Bench, filters: list[And], rounds: int) -> Iterator[Measured]:
    """nearcast first, then each way of joining; the pairs of all must be equal."""
    count = len(bench.values)
    few = min(count, max(2_000, NESTED_LOOP_PAIRS // len(filters)))
    jobs: dict[str, tuple[int, Callable[[], pa.Table]]] = {"nearcast": (count, partial(_replayed, bench, filters))}
    for name, way in joins.WAYS.items():
        if name == "expressions" and len(filters) > EXPRESSIONS_MOST:
            continue
        events = few if name == "nested loop" else count
        jobs[name] = events, partial(_joined, bench, way, filters, events)
    pairs = {name: job() for name, (_, job) in jobs.items()}
    for name, (events, _) in jobs.items():
        _same(pairs["nearcast"], pairs[name], name, events)
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(rounds):  # in turn, so that a busy spell of the machine meets all of them
        for name, (_, job) in jobs.items():
            best[name] = min(best[name], _seconds(job))
    for name, (events, _) in jobs.items():
        yield Measured(name, events, best[name], len(pairs[name]))


def _replayed(bench: Bench, filters: list[And]) -> pa.Table:
    """The deliveries of the whole journal."""
    known = StateFold(workload.registry(filters))
    return pa.concat_tables(found for _, found in replay(bench.spark, bench.journal, known, bench.folder))


def _joined(bench: Bench, way: joins.Way, filters: list[And], events: int) -> pa.Table:
    """The pairs of the first events."""
    frame = bench.spark.read.parquet(str(bench.parquet))
    if events < len(bench.values):
        folder = bench.parquet.with_name(f"first-{events}")
        if not folder.exists():
            folder.mkdir()
            _parquet(bench.values.slice(0, events), folder, bench.spark.sparkContext.defaultParallelism)
        frame = bench.spark.read.parquet(str(folder))
    return way(bench.spark, frame, filters).toArrow()


def _same(deliveries: pa.Table, pairs: pa.Table, name: str, events: int) -> None:
    """Stops unless a join found the pairs of nearcast: as many in all, and the same of the first 1,000 events."""
    if name == "nearcast":
        return
    expected = deliveries.filter(pc.less_equal(deliveries["position"], events))
    if len(expected) != len(pairs):
        raise SystemExit(f"nearcast found {len(expected):,} pairs, {name} {len(pairs):,}")
    ours = deliveries.filter(pc.less_equal(deliveries["position"], 1000))
    theirs = pairs.filter(pc.less_equal(pairs["position"], 1000))
    numbers = pc.cast(ours["subscription"], pa.int32()).to_pylist()
    if set(zip(ours["position"].to_pylist(), numbers, strict=True)) != set(
        zip(theirs["position"].to_pylist(), theirs["number"].to_pylist(), strict=True)
    ):
        raise SystemExit(f"nearcast and {name} found other pairs")


def _seconds(job: Callable[[], object]) -> float:
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def _table(title: str, *columns: str) -> Table:
    """A table in which no figure is cut off: a column takes what its widest does."""
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table


def _print(console: Console, count: int, found: list[Measured]) -> None:
    table = _table(f"{count:,} filters", "way", "events", "seconds", "events/s", "pairs", "pairs/s", "nearcast is")
    for each in found:
        table.add_row(
            each.way,
            f"{each.events:,}",
            f"{each.seconds:.2f}",
            f"{each.rate:,.0f}",
            f"{each.pairs:,}",
            f"{each.pairs / each.seconds:,.0f}",
            f"{found[0].rate / each.rate:.1f} ×",
        )
    console.print(table)


def _batch(filters: list[And], events: pa.Table) -> FoldedBatch:
    [batch] = StateFold(workload.registry(filters)).fold(events, changes)
    return batch


def _alone(console: Console, found: pa.Table, filters: list[int]) -> None:
    """Deciding on one core without Spark: a large batch, and live ones."""
    title = "deciding alone, one core, without Spark"
    table = _table(title, "filters", "events", "ms", "µs per event", "events/s")
    for count in filters:
        everything = workload.events(found)
        for size in (10, 100, len(found)):
            batch = _batch(workload.filters(count), everything.slice(0, size))
            seconds = min(_seconds(partial(decide, batch, batch.events)) for _ in range(5))
            rate = f"{size / seconds:,.0f}"
            table.add_row(f"{count:,}", f"{size:,}", f"{1000 * seconds:.1f}", f"{1e6 * seconds / size:.1f}", rate)
    console.print(table)


def _decided(batch: FoldedBatch, spreader: BatchSpreader, spread: int) -> pa.Table:
    return submit_batch(batch, spreader, spread=spread)()


def _crossover(console: Console, bench: Bench, filters: list[int]) -> None:
    """One batch decided in the driver, and spread over the executors."""
    title = "one batch, in the driver or spread out"
    table = _table(title, "filters", "events", "driver ms", "executors ms")
    spreader = BatchSpreader(bench.spark, bench.journal, bench.folder)
    for count in filters:
        for size in sorted({min(size, len(bench.values)) for size in SPREAD}):
            batch = _batch(workload.filters(count), bench.journal.read("events", 0, size))
            ways = [partial(_decided, batch, spreader, spread) for spread in (size + 1, 0)]
            rounds = [[_seconds(way) for way in ways] for _ in range(4)]
            driver, executors = (1000 * min(each) for each in zip(*rounds, strict=True))
            table.add_row(f"{count:,}", f"{size:,}", f"{driver:.0f}", f"{executors:.0f}")
    console.print(table)


if __name__ == "__main__":
    main()
