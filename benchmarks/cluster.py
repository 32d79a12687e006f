"""One executor against several of one core each, in turn: `python -m benchmarks.cluster --standalone`.

The events of a journal are decided against filters that select much, so deciding is most of the work. With
`--standalone` a master and that many workers of one core are started here, as processes that share no folder with the
driver: they are sent nearcast, what deciding takes, and the events, or with `--journal nats://…`, which the benchmark
fills, read them. `--master spark://…` names a cluster that is there. Without either, executors are processes of this
machine (`local-cluster`), which read the journal themselves. Each number of executors has a process of its own; its
first round, in which indexes and kernels are made, does not count. Numbers of executors are measured in turn.

By the clock, on fewer free cores than executors, with one more for the driver, the ratio says little of nearcast. So
there is beside it what holds wherever it is measured: the processor seconds of the driver and of each executor. Where
every process has a core of its own a round takes as long as the one that computes most, which is what `apart` says.
`busy` is the share of the executors' time in which they had a task.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks import workload
from benchmarks.machine import machine
from nearcast.cli.system import free_port
from nearcast.journal.locations import journal_at
from nearcast.pipeline.batch_replay import replay
from nearcast.pipeline.executors.cluster_session import cluster_session
from nearcast.stages.fold import StateFold
from tests.spark.standalone import Machine, standalone

PIECE = 10_000
"""Events of one block of the journal."""

HERE = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Round:
    """What one round took: seconds by the clock, of the driver's processor time, of each executor's, and the share of
    the executors' time in which they had a task.
    """

    clock: float
    driver: float
    executors: list[float]
    busy: float

    @property
    def apart(self) -> float:
        """Seconds of a round in which each process has a core of its own."""
        return max(self.driver, *self.executors)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--master", help="a cluster; executors of this machine unless given")
    where.add_argument("--standalone", action="store_true", help="a cluster of its own, that shares no folder")
    parser.add_argument("--spark-properties", type=Path, help="Spark's own settings, for a cluster")
    parser.add_argument("--journal", help="where the journal is made, nats://…; a file unless given")
    parser.add_argument("--executors", type=int, nargs="+", default=(1, 2))
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--filters", type=int, default=10_000)
    parser.add_argument("--texts", type=int, default=2, help="equalities of texts in each filter: 1 selects much")
    parser.add_argument("--expressions", type=int, default=1_000, help="filters more that each compute something else")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=1, help="how often each number of executors has its turn")
    parser.add_argument("--alone", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.alone:
        print(json.dumps([asdict(one) for one in _measured(asked)]))
        return
    print(machine())
    with tempfile.TemporaryDirectory(prefix="nearcast-bench-") as folder:
        place = asked.journal or str(Path(folder) / "journal")
        _fill(place, asked.events)
        found: dict[int, list[Round]] = {count: [] for count in asked.executors}
        for turn in range(asked.pairs):
            for count, rounds in found.items():
                with _cluster(asked, count, Path(folder) / f"cluster-{turn}-{count}") as master:
                    rounds += _apart(count, place, master)
    _print(found, asked.events)


@contextmanager
def _cluster(asked: argparse.Namespace, count: int, folder: Path) -> Iterator[str]:
    """The master of so many executors."""
    with ExitStack() as stack:
        if asked.standalone:
            folder.mkdir()
            here = Machine(None, HERE)
            yield stack.enter_context(standalone(here, [here] * count, folder, port=free_port()))
        else:
            yield asked.master or f"local-cluster[{count},1,1024]"


def _print(found: dict[int, list[Round]], events: int) -> None:
    print(f"{'executors':>9}{'clock':>9}{'events/s':>10}{'busy':>6}{'driver':>9}  {'executors':22}{'apart':>8}")
    best = {count: min(rounds, key=lambda one: one.clock) for count, rounds in found.items()}
    for count, each in best.items():
        computed = ", ".join(f"{seconds:.2f}" for seconds in each.executors)
        print(
            f"{count:9}{each.clock:7.2f} s{events / each.clock:10,.0f}{each.busy:6.0%}{each.driver:7.2f} s"
            f"  {computed + ' s':22}{each.apart:6.2f} s"
        )
    first, *others = found
    for count in others:
        clock, apart = best[first].clock / best[count].clock, _ratio(found[first], found[count])
        print(
            f"{count} executors are {clock:.2f} × {first} by the clock, {apart:.2f} × where each has a core of its own"
        )


def _ratio(few: Sequence[Round], many: Sequence[Round]) -> float:
    """How much sooner many are done, by processor time, in the median of rounds."""
    return median(one.apart for one in few) / median(one.apart for one in many)


def _fill(place: str, count: int) -> None:
    """Puts the events into a journal that has none."""
    found = workload.values(count)
    with closing(journal_at(place)) as journal:
        for first in range(journal.end("events"), count, PIECE):
            journal.append("events", workload.events(found.slice(first, PIECE)))


def _apart(count: int, place: str, master: str) -> list[Round]:
    """The rounds of so many executors, in a process of its own."""
    words = [sys.executable, "-m", "benchmarks.cluster", *_others(sys.argv[1:]), "--journal", place]
    words += ["--master", master, "--alone", str(count)]
    said = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [Round(**one) for one in json.loads(said.splitlines()[-1])]


def _others(words: Sequence[str]) -> list[str]:
    """The options without that which excludes a master."""
    return [word for word in words if word != "--standalone"]


def _measured(asked: argparse.Namespace) -> list[Round]:
    """Each round that counts."""
    cluster = not asked.master.startswith("local")
    settings = {"spark.cores.max": str(asked.alone), "spark.executor.cores": "1"} if cluster else {}
    if asked.master.startswith(f"spark://{HERE}"):
        settings |= {"spark.driver.host": HERE, "spark.executor.memory": "900m", "spark.pyspark.python": sys.executable}
    filters = workload.filters(asked.filters, texts=asked.texts)
    registry = workload.registry([*filters, *workload.expression_filters(asked.expressions)])
    rounds = list[Round]()
    with closing(journal_at(asked.journal)) as journal, tempfile.TemporaryDirectory() as folder:
        events = Path(folder) / "events"
        events.mkdir()
        settings |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": str(events)}
        settings |= {"spark.eventLog.rolling.enabled": "false", "spark.eventLog.compress": "false"}
        spark = cluster_session(asked.master, asked.spark_properties, **settings)
        driver, executors = os.getpid(), _executors(spark.sparkContext.applicationId)
        for _ in range(asked.rounds + 1):
            known, before, moment = StateFold(registry.copy()), _computed(driver, executors), time.time()
            began = time.perf_counter()
            for _ in replay(spark, journal, known, Path(folder), spread=1, partitions=4 * asked.alone):
                pass
            clock, after = time.perf_counter() - began, _computed(driver, executors)
            own, *each = (end - start for start, end in zip(before, after, strict=True))
            rounds.append(Round(clock, own, each, moment))
        spark.stop()
        tasks = _tasks(next(events.iterdir()))
    return [_with_busy(one, tasks, asked.alone) for one in rounds[1:]]


def _executors(application: str) -> list[int]:
    """The processes of this machine that are executors of an application."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"java") and application.encode() in words and any(b"ExecutorBackend" in w for w in words):
            found.append(int(process.parent.name))
    return sorted(found)


def _computed(driver: int, executors: Sequence[int]) -> list[float]:
    """Processor seconds of the driver, and of each executor with its workers, since they began."""
    seconds, below = dict[int, float](), defaultdict[int, list[int]](list)
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:
            # It has ended, and its parent has its seconds.
            continue
        process = int(place.parent.name)
        seconds[process] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        below[int(fields[1])].append(process)

    def of_tree(process: int) -> float:
        # In a local cluster the driver's Java starts executors, which count apart.
        return seconds[process] + sum(of_tree(one) for one in below[process] if one not in executors)

    return [of_tree(one) for one in (driver, *executors)]


def _tasks(log: Path) -> list[tuple[float, float]]:
    """When each task of a session began and ended, in seconds since 1970."""
    each = (json.loads(line) for line in log.read_text().splitlines() if '"SparkListenerTaskEnd"' in line)
    told = [one["Task Info"] for one in each]
    return [(one["Launch Time"] / 1e3, one["Finish Time"] / 1e3) for one in told]


def _with_busy(one: Round, tasks: Sequence[tuple[float, float]], executors: int) -> Round:
    """A round of which `busy` is still the moment at which it began."""
    began, ended = one.busy, one.busy + one.clock
    spent = sum(end - start for start, end in tasks if began <= start and end <= ended + 0.1)
    return Round(one.clock, one.driver, one.executors, spent / (one.clock * executors))


if __name__ == "__main__":
    main()
