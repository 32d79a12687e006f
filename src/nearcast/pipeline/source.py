"""The log of events as a Spark data source, `nearcast`, to read at once or as a stream.

At once: `spark.read.format("nearcast").option("journal", path)`, a row per event, read in parallel by position.

As a stream, with `.option("rows", "blocks")`: a row per range of positions, with the events of the range inside as one
Arrow block where they are few, else without: whoever needs them reads them from the journal, in parallel. `collect`
brings such rows to the driver as events; `opened` turns them into events inside an executor.

Measured on 2 busy cores, 500 events/s, median and p99 from append to the callback: blocks 0.07 and 0.19 s, a row per
event 0.09 and 0.23 s, a reader in the executors 0.33 and 0.69 s. A batch of 100,000 events: collected 0.1 s, opened in
`mapInArrow` 0.15 s, as rows 0.65 s.

An offset is a position. Reading again from any position gives the same events, so a checkpoint may lag or be lost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition, SimpleDataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from nearcast.errors import JournalError
from nearcast.journal.locations import journal_at
from nearcast.journal.rows import joined
from nearcast.journal.seam import LOOK_SECONDS, READ_BYTES, WAIT, Journal
from nearcast.model.columns import EVENTS
from nearcast.pipeline.retrying_journal import RetryingJournal

PIECE = 10_000
"""Positions that are read at once, and become one Arrow batch: what Spark carries best."""

TASK = 50_000
"""Positions per task where the number of partitions is not given."""

LIMIT = 100_000
"""Positions of one batch of a stream, unless the option `limit` says otherwise: so much fits the memory easily."""

INLINE = 10_000
"""A batch of at most so many positions carries its events, unless the option `inline` says otherwise."""

BATCH_BYTES = READ_BYTES
"""Of a batch, about: where events are large, a hundred thousand of them do not fit."""

INLINE_BYTES = 32 << 20
"""And of at most so many bytes: they go through Java's memory, several times at once."""

HOLD_SECONDS = 0.5
"""A stream that has read all there is waits so long for more before it tells Spark that there is nothing: that answer
costs both processes some hundred times what a look costs."""

_COLUMNS: list[tuple[str, pa.DataType]] = [("after", pa.int64()), ("through", pa.int64()), ("block", pa.binary())]
BLOCKS = pa.schema(_COLUMNS)
"""A range of positions, `after` < position ≤ `through`, and its events, or null where the journal is to be read."""

EVENT_ROWS = from_arrow_schema(EVENTS)
BLOCK_ROWS = from_arrow_schema(BLOCKS)


class JournalSource(DataSource):
    """The source. Options: `journal`, `after`, `through`, `partitions`; as a stream `after`, `rows`, `limit`, `inline`.

    A stream may also have `halt`, a path: once that file exists and all is read, a batch without rows comes.
    """

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "nearcast"

    def schema(self) -> StructType:
        """A row per event; or per range of positions, where the option `rows` is `blocks`."""
        return BLOCK_ROWS if self.options.get("rows") == "blocks" else EVENT_ROWS

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads the events after `after`, up to `through` or the present end."""
        return PartitionedReader(self.options)

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        """Reads on from `after` or the checkpoint, in the driver's machine."""
        return JournalStreamReader(self.options)


class PositionRange(InputPartition):
    """What one task reads: `after` < position ≤ `through`."""

    def __init__(self, after: int, through: int) -> None:
        self.after, self.through = after, through


class PartitionedReader(DataSourceReader):
    """Reads a stretch of the log in parallel, a range of positions per task."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.journal = _journal(options)
        self.after = int(options.get("after", 0))
        self.through = min(int(options.get("through", 2**62)), self.journal.end("events"))
        self.step = -(-(self.through - self.after) // int(options["partitions"])) if "partitions" in options else TASK

    def partitions(self) -> list[InputPartition]:
        """One range per task; at least one, which may be empty."""
        ranges = _ranges(self.after, self.through, max(1, self.step))
        return [PositionRange(*each) for each in ranges] or [PositionRange(self.after, self.after)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of a range."""
        assert isinstance(partition, PositionRange)
        return _batches(self.journal, partition.after, partition.through)


class JournalStreamReader(SimpleDataSourceStreamReader):
    """Reads on and on. Spark keeps what `read` gave until the batch is done, and asks again after a restart."""

    def __init__(self, options: Mapping[str, str]) -> None:
        journal, self.halt = _journal(options), options.get("halt")
        # Servers that nobody reaches for a while are waited for: to fail would mean to start Spark again, and again.
        self.journal = RetryingJournal(journal, self._halted) if self.halt else journal
        self.after = int(options.get("after", 0))
        self.limit = int(options.get("limit", LIMIT))
        self.inline = int(options.get("inline", INLINE))
        self.blocks = options.get("rows") == "blocks"

    def initialOffset(self) -> dict[str, int]:
        """Where a stream without a checkpoint begins."""
        return {"position": self.after}

    def read(self, start: dict[str, int]) -> tuple[Iterator[pa.RecordBatch], dict[str, int]]:
        """What there is now, at most `limit` positions, and where it ends."""
        after = start["position"]
        end = self._wait_for_more(after)
        # Spark would go on with the offsets of its checkpoint, and never give the events that take these positions now.
        if after > end:
            raise JournalError(
                f"journal {self.journal} ends at position {end}, but the checkpoint of the query is at {after}; "
                "it belongs to another journal: remove the checkpoint"
            )
        through = self.journal.end_within_bytes("events", after, self.limit, BATCH_BYTES)
        # An offset that differs makes one batch, and one is enough.
        if through == after and "halted" not in start and self._halted():
            return iter([_no_rows(self.blocks)]), {"position": after, "halted": 1}
        return self._between(after, through), {"position": through}

    def _wait_for_more(self, after: int) -> int:
        """The end of the log, once that is not `after` any more, or this stream is to halt, or the wait is over."""
        until = time.monotonic() + HOLD_SECONDS
        while (end := self.journal.end("events")) == after and not self._halted():
            left = until - time.monotonic()
            if left <= 0:
                break
            # Nobody tells of a file that is made.
            self.journal.wait({"events": after}, min(left, WAIT if self.halt else LOOK_SECONDS))
        return end

    def _halted(self) -> bool:
        return self.halt is not None and os.path.exists(self.halt)

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[pa.RecordBatch]:
        """The same rows again, after a restart."""
        return self._between(start["position"], end["position"])

    def _between(self, after: int, through: int) -> Iterator[pa.RecordBatch]:
        # A list's iterator: Spark copies it, so that a batch can be sent twice.
        if not self.blocks:
            return iter(list(_batches(self.journal, after, through)))
        ranges = list(_ranges(after, through, PIECE))
        inline = self.journal.end_within_bytes("events", after, self.inline, INLINE_BYTES) >= through
        blocks = [_block(self.journal.read("events", a, b - a)) if inline else None for a, b in ranges]
        columns = {"after": [a for a, _ in ranges], "through": [b for _, b in ranges], "block": list[Any](blocks)}
        return iter([pa.RecordBatch.from_pydict(columns, schema=BLOCKS)] if ranges else [])


@dataclass(frozen=True, slots=True)
class JournalBatch:
    """A batch in the driver: `after` < position ≤ `through`, and its events, or None where it carried none."""

    after: int
    through: int
    events: pa.Table | None


def collect(batch: DataFrame) -> JournalBatch | None:
    """A batch of blocks, brought to the driver by one action; None of nothing: so Spark begins where all was read."""
    rows = batch.toArrow().to_pylist()
    if not rows:
        return None
    blocks = [row["block"] for row in rows]
    parts = [_events_of(block) for block in blocks if block is not None]
    return JournalBatch(
        after=min(row["after"] for row in rows),
        through=max(row["through"] for row in rows),
        events=joined("events", parts) if len(parts) == len(blocks) else None,
    )


def ranges(spark: SparkSession, after: int, through: int, partitions: int) -> DataFrame:
    """A stretch of the log as blocks without events, shared evenly among so many tasks, which open them themselves."""
    # A multiple of the partitions: else some tasks would have one piece more than others, and all wait for them.
    pieces = -(-max(1, -(-(through - after) // PIECE)) // partitions) * partitions
    step = max(1, -(-(through - after) // pieces))
    starts = spark.range(after, through, step, partitions)
    return starts.select(
        starts.id.alias("after"),
        F.least(starts.id + step, F.lit(through)).alias("through"),
        F.lit(None).cast("binary").alias("block"),
    )


def opened(blocks: Iterator[pa.RecordBatch], journal: str) -> Iterator[pa.Table]:
    """The events of blocks, inside an executor: a table of `EVENTS` per block, each a stretch of positions."""
    # Opened here: workers are forked from one another, and SQLite forbids to carry a connection over a fork.
    with closing(journal_at(journal)) as log:
        for row in (row for part in blocks for row in part.to_pylist()):
            after, through, block = row["after"], row["through"], row["block"]
            yield log.read("events", after, through - after) if block is None else _events_of(block)


def _block(rows: pa.Table) -> bytes:
    """Events as one Arrow message, without their schema, which everybody knows."""
    [batch] = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=EVENTS)]
    return batch.serialize().to_pybytes()


def _no_rows(blocks: bool) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=BLOCKS if blocks else EVENTS)


def _events_of(block: bytes) -> pa.Table:
    return pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(block), EVENTS)])


def _batches(journal: Journal, after: int, through: int) -> Iterator[pa.RecordBatch]:
    return (batch for table in journal.row_ranges("events", after, through, PIECE) for batch in table.to_batches())


def _ranges(after: int, through: int, step: int) -> Iterator[tuple[int, int]]:
    """Cuts (after, through] into pieces of at most `step` positions."""
    return ((first, min(first + step, through)) for first in range(after, through, step))


def _journal(options: Mapping[str, str]) -> Journal:
    if "journal" not in options:
        raise JournalError('expected the option "journal", the path of a journal or its URL, got none')
    return journal_at(options["journal"])
