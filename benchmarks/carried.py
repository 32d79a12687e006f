"""The pipeline beside what Spark only carries: `python -m benchmarks.carried [--events 1000000] [--filters 10000]`.

On one side the events of a journal are decided against selective filters (two equalities of texts in each, some four
deliveries an event), Arrow to Arrow; on the other the same rows go out of Parquet through `mapInArrow`, unchanged, and
to nowhere: once as EVENTS, which is what the journal holds and nearcast decides, and once with a column for each
attribute, which has to be known beforehand. All by the clock, in turn, the best of so many rounds; a run of each comes
before that does not count.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks import workload
from benchmarks.machine import machine
from nearcast.journal.sqlite import SqliteJournal
from nearcast.pipeline.batch_replay import replay
from nearcast.pipeline.spark_session import session
from nearcast.runtime.jit_warmup import wait_for_warmup
from nearcast.stages.fold import StateFold

PIECE = 10_000
"""Events of one block of the journal."""

STRETCH = 250_000
"""Events drawn at once."""

FORMS = ("events", "columns")
"""In which the same events are files: rows of EVENTS as the journal has them; a column for each attribute."""


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--filters", type=int, default=10_000)
    parser.add_argument(
        "--texts", type=int, default=2, help="equalities of texts in each filter: with 1 it selects much"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    asked = parser.parse_args()
    print(machine())
    wait_for_warmup()
    with tempfile.TemporaryDirectory(prefix="nearcast-bench-") as name:
        folder = Path(name)
        journal = SqliteJournal(folder / "journal")
        for form in FORMS:
            (folder / form).mkdir()
        for number, first in enumerate(range(0, asked.events, STRETCH)):
            _lay(journal, folder, min(STRETCH, asked.events - first), number)
        spark = session(asked.master)
        known = StateFold(workload.registry(workload.filters(asked.filters, texts=asked.texts)))
        ways: dict[str, Callable[[], int]] = {
            "decided by nearcast": lambda: _decided(spark, journal, known, folder / "batches"),
            "events carried by mapInArrow": lambda: _carried(spark, folder / "events"),
            "columns carried by mapInArrow": lambda: _carried(spark, folder / "columns"),
        }
        found = {name: way() for name, way in ways.items()}
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(asked.rounds):
            for name, way in ways.items():
                best[name] = min(best[name], _seconds(way))
    for name, seconds in best.items():
        print(f"{name:30} {asked.events / seconds:>12,.0f} events/s  {found[name]:>12,} rows out", flush=True)
    for form in FORMS:
        share = best[f"{form} carried by mapInArrow"] / best["decided by nearcast"]
        print(f"nearcast decides {share:.2f} × what mapInArrow carries of {form}")


def _lay(journal: SqliteJournal, folder: Path, count: int, number: int) -> None:
    """Puts events into the journal, and the same into a file of each form."""
    values = workload.values(count, workload.SEED + number)
    pieces = (workload.events(values.slice(first, PIECE)) for first in range(0, count, PIECE))
    events = pa.concat_tables(_numbered(piece, number) for piece in pieces)
    for form, rows in zip(FORMS, (events, values), strict=True):
        pq.write_table(rows, folder / form / f"{number}.parquet")
    for first in range(0, count, PIECE):
        journal.append("events", events.slice(first, PIECE))


def _numbered(events: pa.Table, number: int) -> pa.Table:
    """Events with ids that no other stretch has."""
    ids = pa.array([f"{number}-{id}" for id in events["id"].to_pylist()])
    return events.set_column(events.schema.get_field_index("id"), events.schema.field("id"), ids)


def _decided(spark: SparkSession, journal: SqliteJournal, known: StateFold, folder: Path) -> int:
    fresh = StateFold(known.registry)
    return sum(len(deliveries) for _, deliveries in replay(spark, journal, fresh, folder))


def _carried(spark: SparkSession, folder: Path) -> int:
    rows = spark.read.parquet(str(folder))
    rows.mapInArrow(_same, rows.schema).write.format("noop").mode("overwrite").save()
    return sum(pq.read_metadata(path).num_rows for path in folder.iterdir())


def _same(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from parts


def _seconds(job: Callable[[], object]) -> float:
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
