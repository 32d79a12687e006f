"""The deciding half, live: one query reads the journal on and on; every batch goes through the stages.

    known → relate → infer → match → adapt → journal

Deliveries are unique by position, whatever the batch cuts were, so a batch that comes again changes nothing: the
pipeline may be killed anywhere, and goes on behind the last position it decided.
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from nearcast.journal.locations import Location, journal_at
from nearcast.journal.seam import LOOK_SECONDS, Journal
from nearcast.model.columns import NO_DELIVERIES, SOURCE_FILTERS, any_control
from nearcast.pipeline.executors.cluster_session import cluster_session
from nearcast.pipeline.follower import Follower
from nearcast.pipeline.journal_retention import RetentionThread
from nearcast.pipeline.monitoring import (
    ClockMonitor,
    CrowdMonitor,
    ExcessMonitor,
    FallenClockMonitor,
    PipelineMetrics,
    SituationMonitor,
)
from nearcast.pipeline.query import CHANGES, STAY_SECONDS, chunk_batch, start
from nearcast.pipeline.retrying_journal import RetryingJournal
from nearcast.pipeline.snapshots import ready_file
from nearcast.pipeline.spark_session import LOG_FILE, end_session
from nearcast.pipeline.spread import SPREAD, BatchSpreader, is_spread, submit_batch
from nearcast.pipeline.ticks import LOOK, TickWriter
from nearcast.relations.lanes.scopes import Scope
from nearcast.relations.shards import SHARDS
from nearcast.runtime.file_lock import file_lock
from nearcast.runtime.gc_settings import GC_THRESHOLDS
from nearcast.runtime.metrics_port import serve_metrics
from nearcast.runtime.outage_metrics import OutageMetrics
from nearcast.stages.fold import FoldedBatch, StateFold
from nearcast.state.derived import derived_of
from nearcast.suppression.guarded import GuardedStates

log = logging.getLogger("nearcast.pipeline")

JAVA = {
    # By default Java lets garbage gather to several times of what it holds before it looks; this collector keeps the
    # heap in proportion to what is alive, and on a heap so small its pauses are milliseconds.
    "spark.driver.defaultJavaOptions": "-XX:+UseSerialGC -XX:InitialHeapSize=128m",
}

LIMIT = 100_000
"""Positions that are decided at once: so much fits the memory easily, unless events are large."""

HALT_SECONDS = 0.1
"""Between two looks whether the pipeline is to end, where a journal's readers cannot be told."""

RENEWED_AFTER = 250_000
"""Batches of Spark's after which the query is begun anew. With asynchronous tracking of progress Spark 4.3 keeps some
200 bytes of every batch for ever (its entry in the map of watermarks is removed by synchronous tracking only)."""


@dataclass(frozen=True, slots=True)
class PipelineConfig:
    """How the pipeline runs: its journal, a folder for state, Spark's master, where it answers for
    metrics; how many positions are decided at once, from how many events on that is spread over the executors, in how
    many shards related pairs are kept, how many control events are taken at once, and a file of Spark's own settings.

    A batch of Spark's goes on with what comes for so many seconds, `stay`; see `start`.

    Not `asynchronous`: with Spark's own tracking of progress, which is slower and adds nothing here.
    """

    journal: Location
    folder: Path
    master: str | None = None
    metrics_port: int | None = None
    limit: int = LIMIT
    spread: int = SPREAD
    shards: int = SHARDS
    changes: int = CHANGES
    asynchronous: bool = True
    renewed_after: int = RENEWED_AFTER
    stay: float = STAY_SECONDS
    metrics_host: str = "127.0.0.1"
    spark_properties: Path | None = None


MANY = 2_000
"""Derived events from which on what they are delivered to is written before more is decided: nobody waits for all that
follows from a crowd. Writing costs some milliseconds, about as much as fifty of them."""


class BatchDecider:
    """Takes the batches of the query in turn and writes their deliveries into the journal.

    Without Spark no batch is spread. `ticks` makes what writes ticks; `beside` writes snapshots, see `Follower`.
    """

    def __init__(
        self,
        spark: SparkSession | None,
        journal: Journal,
        config: PipelineConfig,
        metrics: PipelineMetrics,
        ticks: Callable[[Journal, StateFold], TickWriter] = TickWriter,
        beside: Executor | None = None,
    ) -> None:
        self.follower = Follower(journal, config.folder / "known", journal.end("deliveries"), config.shards, beside)
        self._journal, self._config, self._metrics = journal, config, metrics
        self._spreader = BatchSpreader(spark, journal, config.folder / "batches") if spark else None
        self._guarded_states: defaultdict[Scope, GuardedStates] = defaultdict(GuardedStates)
        self._situations, self._excess = SituationMonitor(metrics), ExcessMonitor(metrics)
        self._crowds, self._fallen = CrowdMonitor(metrics), FallenClockMonitor(metrics)
        self._ticks, self._clocks = ticks(journal, self.follower.known), ClockMonitor(metrics)
        self._deciding = threading.Lock()
        # Before the first batch is done, which after a long pause takes long: what waits is seen meanwhile.
        self._show(self.follower.known.position)
        # What a pipeline that was killed had laid out for its workers.
        shutil.rmtree(config.folder / "batches", ignore_errors=True)

    def __call__(self) -> bool:
        """Decides a stretch of what is new; whether more than that was there."""
        with self._deciding, self._metrics.failures.count_exceptions():
            return self._decide()

    def coming(self, seconds: float) -> bool:
        """Waits so long at most for events that are not decided yet; whether there may be some."""
        # Where nobody can tell that this is to end it is looked now and then.
        longest = LOOK_SECONDS if self._journal.wakes_own else HALT_SECONDS
        return self._journal.wait({"events": self.follower.known.position}, min(seconds, longest))

    def look(self) -> None:
        """Writes a tick where something is due by the clock; from another thread than that of batches."""
        if not self._deciding.acquire(blocking=False):
            return
        try:
            self._metrics.ticks.inc(self._ticks.look())
            self.follower.save_for_retention()
            self._clocks.report(self._ticks.behind())
        finally:
            self._deciding.release()

    def _decide(self) -> bool:
        began = time.perf_counter()
        after, end = self.follower.known.position, self._journal.end("events")
        through = self._journal.end_within_bytes("events", after, self._config.limit)
        if through == after:
            # What this batch tells of had come while the one before was decided.
            return False
        table = self._journal.read("events", after, through - after)
        self._metrics.seconds.labels("read").observe(time.perf_counter() - began)
        for piece, position in chunk_batch(table, through, self._config.changes):
            self._decide_piece(piece, after, position)
            after = position
        return through < end

    def _decide_piece(self, events: pa.Table, after: int, through: int) -> None:
        """Decides the events of a stretch of positions, as if they were a batch."""
        began, refused, late = time.perf_counter(), self.follower.refused, self.follower.known.repository.late
        forgotten = self.follower.known.forgotten
        # So that a batch that nobody gets has a schema too.
        tables, delivered = [NO_DELIVERIES], 0
        spreader, spread = self._spreader, self._config.spread
        # What stages refuse of control events is known, and written, only when all is decided.
        alone = not any_control(events)
        for batch in self.follower.fold_events(events, through):
            # Batch by batch: settings may change within what Spark gives, and each part is decided under its own.
            derived = self._keep_derived(batch)
            tables.append(submit_batch(batch, spreader, spread=spread)())
            position = batch.events.column("position")[-1].as_py() if derived >= MANY and alone else through
            if position < through:
                deliveries = pa.concat_tables(tables)
                self._journal.commit_range("deliveries", deliveries, position)
                tables, delivered = tables[:1], delivered + len(deliveries)
            self._excess.report(batch.around.excess)
            where = "executors" if spreader and is_spread(batch, spread) else "driver"
            self._metrics.batches.labels(where).inc()
        # Once for all: guards made of a standing in between would be out of date when they are heard.
        self._keep_standings(through)
        self._situations.report(self.follower.known.stages)
        self._crowds.report(self.follower.known.stages)
        self._fallen.report(self.follower.known.fallen_clocks.by_source)
        judged = time.perf_counter()
        deliveries = pa.concat_tables(tables)
        # Also where nobody gets anything: by the end of the log everybody knows how far is decided.
        self._journal.commit_range("deliveries", deliveries, through)
        self._metrics.refused.inc(self.follower.refused - refused)
        self._metrics.late.inc(self.follower.known.repository.late - late)
        self._metrics.forgotten.inc(self.follower.known.forgotten - forgotten)
        self._metrics.entities.set(self.follower.known.repository.entities)
        self._metrics.entity_bytes.set(self.follower.known.repository.bytes)
        self._count(through, through - after, delivered + len(deliveries))
        self._metrics.seconds.labels("decide").observe(judged - began)
        self._metrics.seconds.labels("write").observe(time.perf_counter() - judged)

    def _keep_derived(self, batch: FoldedBatch) -> int:
        """Writes what was derived, before the deliveries that tell of it; where it is there already nothing changes.
        How many events that is.
        """
        derived = derived_of(batch.events)
        if len(derived):
            self._journal.commit_range("derived", derived, derived.column("position")[-1].as_py())
            self._metrics.derived.inc(len(derived))
        return len(derived)

    def _keep_standings(self, through: int) -> None:
        """Writes how guarded relations stand now, where that changed: access servers make guards of it.

        Before the deliveries: a batch that comes again is told again, and where it is there already nothing changes.
        """
        pairings = self.follower.known.pairings.items()
        guarded_states = [
            one for scope, each in pairings for one in self._guarded_states[scope].changes_until(each, through)
        ]
        if guarded_states:
            rows = pa.Table.from_pylist([asdict(one) for one in guarded_states], SOURCE_FILTERS)
            self._journal.commit_range("source filters", rows, through)

    def _count(self, position: int, positions: int, deliveries: int) -> None:
        self._metrics.events.inc(positions)
        self._metrics.deliveries.inc(deliveries)
        self._show(position)
        log.info("decided through=%d events=%d deliveries=%d", position, positions, deliveries)

    def _show(self, position: int) -> None:
        """Shows how far is decided, and how many events wait."""
        self._metrics.position.set(position)
        self._metrics.waiting.set(self._journal.end("events") - position)


def run(config: PipelineConfig) -> None:
    """Runs the pipeline until SIGTERM or SIGINT, or until a batch fails: then what it raised is raised.

    Raises SetupError where another process is the pipeline of that folder.
    """
    config.folder.mkdir(parents=True, exist_ok=True)
    # Two would remove each other's snapshots and batches.
    expected = f"no other pipeline in {config.folder}"
    with file_lock(
        config.folder / "running", expected, "one that runs", "end that one, or name another folder with --data"
    ):
        _run(config)


def _run(config: PipelineConfig) -> None:
    gc.set_threshold(*GC_THRESHOLDS)
    metrics = PipelineMetrics()
    if config.metrics_port is not None:
        serve_metrics(metrics.registry, config.metrics_host, config.metrics_port)
    ready_file(config.folder).unlink(missing_ok=True)
    # Before Spark's Java starts, which inherits the environment.
    os.environ.setdefault(LOG_FILE, str(config.folder.absolute() / "spark.log"))
    asked: list[int] = []
    opened = journal_at(config.journal, ids=config.folder.with_name("journal-ids"))
    journal = RetryingJournal(opened, lambda: bool(asked))
    OutageMetrics(metrics.registry, "nearcast_pipeline", lambda: opened.outage)
    _own_snapshots(config.folder, journal)
    spark = cluster_session(config.master, config.spark_properties, **JAVA)
    # After the start of Spark, which sets a handler of its own for SIGINT.
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda number, _frame: asked.append(number))
    with journal.leading("pipeline", lambda: bool(asked)) as leads:
        if leads:
            _decide_on(spark, journal, config, metrics, asked)
    end_session(spark)


def _decide_on(
    spark: SparkSession, journal: Journal, config: PipelineConfig, metrics: PipelineMetrics, asked: Sequence[int]
) -> None:
    """Decides until somebody asks for the end."""
    decider = BatchDecider(spark, journal, config, metrics, beside=ThreadPoolExecutor(1, "nearcast-snapshot"))
    follower = decider.follower
    retention = RetentionThread(follower.retention, lambda: follower.known.registry.settings.retention, metrics)
    retention.start()
    try:
        # Round and round, as a query is begun anew after so many batches.
        while not asked:
            _query(spark, decider, config, asked)
    finally:
        retention.stop()
    ready_file(config.folder).unlink(missing_ok=True)
    # When no batch is under way any more: then the next start has nothing to fold.
    decider.follower.finish()


def _own_snapshots(folder: Path, journal: Journal) -> None:
    """Removes snapshots of another journal: one on NATS has an identity, which stands beside its snapshots."""
    mark, identity = folder / "journal", journal.identity
    before = mark.read_text() if mark.exists() else ""
    if before == identity:
        return
    if (folder / "known").exists():
        log.warning("snapshots left out path=%s: they are of another journal", folder / "known")
        shutil.rmtree(folder / "known", ignore_errors=True)
    mark.write_text(identity)


def _query(spark: SparkSession, decider: BatchDecider, config: PipelineConfig, asked: Sequence[int]) -> None:
    """Runs one query behind what is decided, until somebody asks for the end or it has run through many batches."""
    # The log of deliveries says where to go on. Spark keeps a checkpoint too, but a new one with every start.
    after = decider.follower.known.position
    running = start(
        spark,
        config.journal,
        decider,
        after=after,
        asynchronous=config.asynchronous,
        coming=decider.coming,
        stay=config.stay,
    )
    ready_file(config.folder).touch()
    log.info("ready position=%d", after)
    while not asked and running.batches < config.renewed_after and not running.wait(LOOK):
        decider.look()
    running.stop()
    # What the old query leaves behind, now that it is in nobody's way.
    gc.collect()
