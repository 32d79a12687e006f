"""One executor against several of one core each, in turn: `python -m benchmarks.cluster [--master spark://head:7077]`.

The events of a journal are decided against filters that select much, so deciding is most of the work. Without
`--master` executors are processes of this machine (`local-cluster`), which read the journal themselves; on a cluster
they are sent its events, or with `--journal nats://…`, which the benchmark fills, read them. Each number of executors
has a process of its own; its first round, in which indexes and kernels are made, does not count. By the clock: on fewer
free cores than executors, with one more for the driver, the ratio says nothing of nearcast.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from benchmarks import workload
from benchmarks.machine import machine
from nearcast.journal.locations import journal_at
from nearcast.pipeline.batch_replay import replay
from nearcast.pipeline.executors.cluster_session import cluster_session
from nearcast.stages.fold import StateFold

PIECE = 10_000
"""Events of one block of the journal."""


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--master", help="a cluster; executors of this machine unless given")
    parser.add_argument("--spark-properties", type=Path, help="Spark's own settings, for a cluster")
    parser.add_argument("--journal", help="where the journal is made, nats://…; a file unless given")
    parser.add_argument("--executors", type=int, nargs="+", default=(1, 2))
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--filters", type=int, default=10_000)
    parser.add_argument("--texts", type=int, default=1, help="equalities of texts in each filter: 1 selects much")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.alone:
        print(json.dumps(_measured(asked)))
        return
    print(machine())
    with tempfile.TemporaryDirectory(prefix="nearcast-bench-") as folder:
        place = asked.journal or str(Path(folder) / "journal")
        _fill(place, asked.events)
        seconds = {count: _apart(count, place) for count in asked.executors}
    first = asked.executors[0]
    for count, each in seconds.items():
        rate, ratio = asked.events / each, seconds[first] / each
        print(f"{count} executors {each:10.2f} s {rate:12,.0f} events/s {ratio:6.2f} × {first}", flush=True)


def _fill(place: str, count: int) -> None:
    """Puts the events into a journal that has none."""
    found = workload.values(count)
    with closing(journal_at(place)) as journal:
        for first in range(journal.end("events"), count, PIECE):
            journal.append("events", workload.events(found.slice(first, PIECE)))


def _apart(count: int, place: str) -> float:
    """The best round of so many executors, in a process of its own."""
    words = [sys.executable, "-m", "benchmarks.cluster", *sys.argv[1:], "--journal", place, "--alone", str(count)]
    said = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    return min(json.loads(said.splitlines()[-1]))


def _measured(asked: argparse.Namespace) -> list[float]:
    """Seconds of each round that counts."""
    settings = {"spark.cores.max": str(asked.alone), "spark.executor.cores": "1"}
    master = asked.master or f"local-cluster[{asked.alone},1,1024]"
    spark = cluster_session(master, asked.spark_properties, **(settings if asked.master else {}))
    registry = workload.registry(workload.filters(asked.filters, texts=asked.texts))
    rounds = []
    with closing(journal_at(asked.journal)) as journal, tempfile.TemporaryDirectory() as folder:
        for _ in range(asked.rounds + 1):
            known, began = StateFold(registry.copy()), time.perf_counter()
            for _ in replay(spark, journal, known, Path(folder), spread=1, partitions=4 * asked.alone):
                pass
            rounds.append(time.perf_counter() - began)
    spark.stop()
    return rounds[1:]


if __name__ == "__main__":
    main()
