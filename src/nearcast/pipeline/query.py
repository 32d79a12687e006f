"""The one query of the live pipeline: reads the journal on and on, and hands every batch to a function."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from os import PathLike, fspath

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from nearcast.pipeline.source import LIMIT, JournalSource

OnBatch = Callable[[DataFrame, int], None]
"""Gets the blocks of a batch (`source.collect` and `source.events` open them) and Spark's number of the batch."""


class Running:
    """A running query. `query` is Spark's own handle, for its progress and status."""

    def __init__(self, on_batch: OnBatch) -> None:
        self.query: StreamingQuery
        self._on_batch = on_batch
        self._failure: Exception | None = None
        self._stopping = False
        self._busy = threading.Lock()

    def decide(self, batch: DataFrame, number: int) -> None:
        """Spark calls this with every batch."""
        with self._busy:
            try:
                self._on_batch(batch, number)
            except Exception as error:
                # Stopping takes Spark away from under the batch; it fails then, and is decided anew after a restart.
                self._failure = None if self._stopping else error
                raise

    def wait(self, seconds: int | None = None) -> bool:
        """Waits until the query ends, at most so long; whether it has. Raises what a batch raised, as it was raised."""
        try:
            return self.query.awaitTermination(seconds) is not False
        except StreamingQueryException:
            if self._failure:
                raise self._failure from None
            raise

    def stop(self) -> None:
        """Ends the query; when it returns, no batch is being decided any more. One under way may have been cut off."""
        self._stopping = True
        self.query.stop()
        with self._busy:
            pass


def start(
    spark: SparkSession,
    journal: str | PathLike[str],
    on_batch: OnBatch,
    *,
    after: int = 0,
    checkpoint: str | PathLike[str] | None = None,
    limit: int = LIMIT,
) -> Running:
    """Starts the query behind position `after`, or where the folder `checkpoint` says, if one is given and has begun.

    Batches hold at most `limit` positions, and follow each other without a gap. After a restart some may come again,
    cut otherwise: `on_batch` must not mind, and best of all knows itself where it was and needs no checkpoint.
    """
    spark.dataSource.register(JournalSource)
    running = Running(on_batch)
    stream = spark.readStream.format(JournalSource.name()).options(
        journal=fspath(journal), rows="blocks", after=after, limit=limit
    )
    writer = stream.load().writeStream.foreachBatch(running.decide).trigger(processingTime="0 seconds")
    # Offsets and commits are written beside the work, not before and after it: that halves the time of a small batch.
    # Spark allows it for its Kafka sink only, since others may see a batch twice; deciding twice changes nothing.
    writer = writer.option("asyncProgressTrackingEnabled", True)
    writer = writer.option("_asyncProgressTrackingOverrideSinkSupportCheck", True)
    folder = fspath(checkpoint) if checkpoint else tempfile.mkdtemp(prefix="nearcast-checkpoint-")
    running.query = writer.option("checkpointLocation", folder).start()
    return running
