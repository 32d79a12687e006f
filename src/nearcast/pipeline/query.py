"""The one query of the live pipeline, and batches cut where much is defined at once."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from os import PathLike, fspath
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from nearcast.journal.locations import wake
from nearcast.model.arrays import Integers
from nearcast.model.columns import are_control
from nearcast.pipeline.source import JournalSource
from nearcast.pipeline.spark_session import scratch

OnBatch = Callable[[], bool]
"""Called when something is new: it decides on from where it was, a stretch of the journal, and says whether more was
there.
"""

Coming = Callable[[float], bool]
"""Waits so many seconds for what is not decided yet; whether there may be some."""

STAY_SECONDS = 30.0
"""So long a batch of Spark's goes on with what comes, without the time in which nothing does: then it waits, and Spark
is as idle as all else. To plan and begin the next one costs 60 ms, in which nothing is decided, and Java as much work
as deciding a small one takes.
"""

REST_SECONDS = 0.02
"""After a stretch it rests as long as that took, but no longer than this: what comes meanwhile is decided together.
Where a stretch took longer, as with a large definition, enough has come already, and has waited."""

IDLE_SECONDS = 30.0
"""Seconds for which it is waited at once for what comes."""

PATIENCE = 60.0
"""Seconds that `stop` waits for the batch under way before it cuts it off."""

INTERRUPTION = "py4j.protocol.Py4JJavaError: An error occurred while calling: java.lang.InterruptedException"
"""By this text Spark knows that a batch fails because the query is being stopped. (It looks for it by a regular
expression that overflows the stack of its thread where the text is long, as that of a real interruption is.)"""


class RunningQuery:
    """A running query. `query` is Spark's own handle, for its progress and status; `batches` are those that it gave."""

    def __init__(self, on_batch: OnBatch, journal: str, halt: Path, coming: Coming | None, stay: float) -> None:
        self.query: StreamingQuery
        self.batches = 0
        self._on_batch, self._journal, self._coming, self._stay = on_batch, journal, coming, stay
        self._halt = halt
        self._failure: Exception | None = None
        self._stopping, self._parked = threading.Event(), threading.Event()
        self._busy = threading.Lock()

    def decide(self, batch: DataFrame, number: int) -> None:
        """Spark calls this with every batch. What is in it is in the journal too, so no job brings it here."""
        with self._busy:
            self.batches += 1
            try:
                if self._stopping.is_set():
                    self._park()
                self._go_on()
            except Exception as error:
                # Cut off by `stop`: that is no failure of the batch.
                if self._stopping.is_set() and not self.query.isActive:
                    raise InterruptedError(INTERRUPTION) from None
                self._failure = error
                raise

    def _go_on(self) -> None:
        """Decides what is there, and goes on with what comes, for so long as a batch may take."""
        left = self._stay
        while True:
            took = self._decide_all()
            rest = min(took, REST_SECONDS)
            left -= took + rest
            if left <= 0 or self._stopping.wait(rest) or not self._comes_more():
                return

    def _decide_all(self) -> float:
        """Decides what is there; how many seconds that took."""
        began = time.monotonic()
        # What waits after a long pause is decided stretch by stretch, of which each may be the last one.
        while self._on_batch() and not self._stopping.is_set():
            pass
        return time.monotonic() - began

    def _comes_more(self) -> bool:
        """Waits for what comes next, however long that is; False where this is to stop, or nobody knows what comes."""
        while self._coming is not None and not self._stopping.is_set():
            if self._coming(IDLE_SECONDS):
                return not self._stopping.is_set()
        return False

    def _park(self) -> None:
        """Stays in the batch until Spark has been told to stop: at no other moment does it stop without complaints."""
        self._parked.set()
        while self.query.isActive:
            time.sleep(0.01)
        raise InterruptedError

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until the query ends, at most so long; whether it has. Raises what a batch raised, as it was raised."""
        try:
            return self.query.awaitTermination(seconds) is not False
        except StreamingQueryException:
            if self._failure:
                raise self._failure from None
            raise

    def stop(self) -> None:
        """Ends the query after the batch under way, which is cut off if it takes long; none is decided afterwards."""
        self._stopping.set()
        # Where nothing is to be read Spark calls `decide` no more; the source now gives it one batch without rows.
        self._halt.touch()
        wake(self._journal)
        end = time.monotonic() + PATIENCE
        while self.query.isActive and time.monotonic() < end and not self._parked.wait(0.1):
            pass
        self.query.stop()
        # A batch that was cut off may still be at work here; its journal must not be closed meanwhile.
        with self._busy:
            pass


def start(
    spark: SparkSession,
    journal: str | PathLike[str],
    on_batch: OnBatch,
    *,
    after: int = 0,
    checkpoint: str | PathLike[str] | None = None,
    asynchronous: bool = True,
    coming: Coming | None = None,
    stay: float = STAY_SECONDS,
) -> RunningQuery:
    """Starts the query behind position `after`, or where the folder `checkpoint` says, if one is given and has begun.

    `on_batch` knows itself where it was: it may have decided already what a batch tells of, and then there is nothing.
    With `coming` a batch goes on with what comes, for so many seconds, `stay`, without those in which nothing does.

    Not `asynchronous`: Spark tracks its progress as it does by default, before and after every batch.
    """
    spark.dataSource.register(JournalSource)
    # In the folder that is removed when this process ends: who wants to keep a checkpoint names one.
    folder = Path(tempfile.mkdtemp(prefix="query-", dir=scratch()))
    running = RunningQuery(on_batch, fspath(journal), folder / "halt", coming, stay)
    stream = spark.readStream.format(JournalSource.name()).options(
        journal=fspath(journal), after=after, halt=str(folder / "halt")
    )
    writer = stream.load().writeStream.foreachBatch(running.decide).trigger(processingTime="0 seconds")
    # Offsets and commits are written beside the work, not before and after it: that halves the time of a small batch.
    # Spark allows it for its Kafka sink only, since others may see a batch twice; deciding twice changes nothing.
    if asynchronous:
        writer = writer.option("asyncProgressTrackingEnabled", True)
        writer = writer.option("_asyncProgressTrackingOverrideSinkSupportCheck", True)
    running.query = writer.option("checkpointLocation", fspath(checkpoint or folder / "checkpoint")).start()
    return running


CHANGES = 1_500
"""Control events of one piece. To take a subscription costs a seventh of a millisecond, so that is a fifth of a second,
as 16,384 events of few deliveries take."""


CHANGE_BYTES = 512 * 1024
"""Weighed bytes of control events of one piece, but for the last one's: half a megabyte of small definitions is read
and planned in a third of a second."""

DENSE_BYTES, DENSE_WEIGHT = 1_024, 64
"""Bytes of a control event beyond which each weighs so much: what is so long has many expressions or areas, and takes
two to eight milliseconds a kilobyte, not one for several definitions."""


def chunk_batch(
    events: pa.Table, through: int, changes: int = CHANGES, size: int = CHANGE_BYTES
) -> Iterator[tuple[pa.Table, int]]:
    """The rows of EVENTS that a batch has, which ends at a position, in pieces with so many control events at most, or
    with so many bytes of them.

    With each comes the position that it ends at. What is not yet decided of a batch waits for the pieces before it.
    """
    control = np.flatnonzero(are_control(events))
    start = 0
    # A piece ends with its last control event: behind it are events that need not wait for the next one's.
    for last in _ends(events, control, changes, size):
        yield events.slice(start, last + 1 - start), int(events.column("position")[last].as_py())
        start = last + 1
    yield events.slice(start), through


def _ends(events: pa.Table, control: Integers, changes: int, size: int) -> Iterator[int]:
    """The rows with which pieces end, but for the last one."""
    lengths = pc.fill_null(pc.binary_length(events.column("payload").take(pa.array(control))), 0).to_numpy()
    weights = lengths + (DENSE_WEIGHT - 1) * np.maximum(lengths.astype(np.int64) - DENSE_BYTES, 0)
    begun = count = bytes_ = 0
    for number, (row, weight) in enumerate(zip(control.tolist(), weights.tolist(), strict=True), 1):
        # What came before one that fills a piece by itself need not wait for it.
        if weight >= size and row > begun:
            yield row - 1
            begun, count, bytes_ = row, 0, 0
        count, bytes_ = count + 1, bytes_ + weight
        if number < len(control) and (count >= changes or bytes_ >= size):
            yield row
            begun, count, bytes_ = row + 1, 0, 0
