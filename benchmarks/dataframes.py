"""nearcast.spark.match beside what one would write in Spark SQL: `python -m benchmarks.dataframes`.

All read the same Parquet files, a column per attribute, and compute every pair of an event and a filter that selects
it; nothing is brought to the driver. Each way is run once before it counts, then they are run in turn. A nested loop
takes every pair of event and filter, so it is given fewer events; generated expressions are compiled by Spark, which
takes no more than some hundred of them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks import joins, workload
from benchmarks.machine import machine
from nearcast import spark as nearcast_spark
from nearcast.language.cql2.printer import write
from nearcast.model.filter import And
from nearcast.pipeline.spark_session import session

FILTERS = (100, 1_000, 5_000)
EVENTS = 200_000
ROUNDS = 3
NESTED_LOOP_PAIRS = 200_000_000
EXPRESSIONS_MOST = 100

Job = Callable[[], DataFrame]


def main(words: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filters", type=int, nargs="+", default=FILTERS)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--master", default="local[2]")
    asked = parser.parse_args(words)
    console = Console(width=120)
    console.print(machine(), style="bold")
    spark = session(asked.master)
    with tempfile.TemporaryDirectory(prefix="nearcast-bench-") as folder:
        for count in asked.filters:
            few = min(asked.events, max(2_000, NESTED_LOOP_PAIRS // count))
            frames = {size: _frame(spark, size, Path(folder)) for size in {asked.events, few}}
            jobs = _jobs(spark, workload.filters(count), frames, asked.events, few)
            console.print(_measured(count, jobs, asked.rounds))
    console.print(machine(), style="bold")


def _frame(spark: SparkSession, count: int, folder: Path) -> DataFrame:
    """So many events, in as many files as there are cores."""
    place = folder / str(count)
    if not place.exists():
        place.mkdir()
        found, files = workload.values(count), spark.sparkContext.defaultParallelism
        step = -(-count // files)
        for number in range(files):
            pq.write_table(found.slice(number * step, step), place / f"{number}.parquet")
    return spark.read.parquet(str(place))


def _jobs(
    spark: SparkSession, filters: list[And], frames: dict[int, DataFrame], many: int, few: int
) -> dict[str, tuple[int, Job]]:
    """Each way with the number of its events."""
    texts = {str(number): write(filter) for number, filter in enumerate(filters)}
    ways: dict[str, tuple[int, Job]] = {
        "nearcast.spark.match": (many, lambda: nearcast_spark.match(frames[many], texts, keep=["position"]))
    }
    for name, way in joins.WAYS.items():
        if name == "expressions" and len(filters) > EXPRESSIONS_MOST:
            continue
        size = few if name == "nested loop" else many
        ways[name] = size, lambda way=way, size=size: way(spark, frames[size], filters)
    return ways


def _measured(count: int, jobs: dict[str, tuple[int, Job]], rounds: int) -> Table:
    """The table of all ways, by the best of some rounds. Stops unless ways with equal events find as many pairs."""
    pairs = {name: job().count() for name, (_, job) in jobs.items()}
    for name, (size, _) in jobs.items():
        first = next(other for other, (events, _) in jobs.items() if events == size)
        if pairs[name] != pairs[first]:
            raise SystemExit(f"{first} found {pairs[first]:,} pairs, {name} {pairs[name]:,}")
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(rounds):  # in turn, so that a busy spell of the machine meets all of them
        for name, (_, job) in jobs.items():
            best[name] = min(best[name], _seconds(job))
    table = Table("way", "events", "seconds", "events/s", "pairs", "nearcast is", title=f"{count:,} filters")
    rates = {name: size / best[name] for name, (size, _) in jobs.items()}
    for name, (size, _) in jobs.items():
        ratio = f"{rates['nearcast.spark.match'] / rates[name]:.1f} ×"
        table.add_row(name, f"{size:,}", f"{best[name]:.2f}", f"{rates[name]:,.0f}", f"{pairs[name]:,}", ratio)
    return table


def _seconds(job: Job) -> float:
    began = time.perf_counter()
    job().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
