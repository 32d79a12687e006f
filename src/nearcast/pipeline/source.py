"""The log of events for Spark: a stream that says how far it goes, and ranges of positions that executors read.

The stream, `nearcast`, has a row per batch: the positions that are new, and no events. Whoever decides them reads them
from the journal, where he is; many of them executors read, each a range (`ranges`, `opened`). Events that came as rows
had to go through a process of the source, Java's memory and a job of Spark: half of the time from append to delivery.

An offset is a position. Reading again from any position gives the same events, so a checkpoint may lag or be lost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from nearcast.errors import JournalError
from nearcast.journal.jetstream.nats_address import is_nats
from nearcast.journal.locations import journal_at
from nearcast.journal.seam import WAIT
from nearcast.model.columns import EVENTS
from nearcast.pipeline.retrying_journal import RetryingJournal

PIECE = 10_000
"""Positions that an executor reads at once, and become one Arrow batch: what Spark carries best."""

SENT_BYTES = 8 << 20
"""Of a block that is sent to executors: Spark carries tasks of 128 MiB at most."""

HOLD_SECONDS = 0.5
"""A stream that has told all there is waits so long for more before it tells Spark that there is nothing: that answer
costs both processes some hundred times what a look costs."""

_COLUMNS: list[tuple[str, pa.DataType]] = [("after", pa.int64()), ("through", pa.int64())]
RANGES = pa.schema(_COLUMNS)
"""Ranges of positions, each `after` < position ≤ `through`."""

BLOCKS = RANGES.append(pa.field("block", pa.binary()))
"""What positions have, as one Arrow block: events on the way to executors, deliveries on the way back."""

BLOCK_ROWS = from_arrow_schema(BLOCKS)
PAYLOAD = EVENTS.get_field_index("payload")


class JournalSource(DataSource):
    """The stream. Options: `journal`, its location, and `after`, the position that it begins behind.

    It may also have `halt`, a path: once that file exists and all is told, a batch without rows comes.
    """

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "nearcast"

    def schema(self) -> StructType:
        """A range of positions per batch."""
        return from_arrow_schema(RANGES)

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        """Tells on from `after` or the checkpoint, in the driver's machine."""
        return JournalStreamReader(self.options)


class JournalStreamReader(SimpleDataSourceStreamReader):
    """Tells of what is new, on and on. Spark asks again for what it was told after a restart."""

    def __init__(self, options: Mapping[str, str]) -> None:
        if "journal" not in options:
            raise JournalError('expected the option "journal", the path of a journal or its URL, got none')
        journal, self.halt = journal_at(options["journal"]), options.get("halt")
        # Servers that nobody reaches for a while are waited for: to fail would mean to start Spark again, and again.
        self.journal = RetryingJournal(journal, self._halted) if self.halt else journal
        self.after = int(options.get("after", 0))

    def initialOffset(self) -> dict[str, int]:
        """Where a stream without a checkpoint begins."""
        return {"position": self.after}

    def read(self, start: dict[str, int]) -> tuple[Iterator[pa.RecordBatch], dict[str, int]]:
        """What is new now, and where it ends."""
        after = start["position"]
        end = self._wait_for_more(after)
        # Spark would go on with the offsets of its checkpoint, and never tell of events that have these positions now.
        if after > end:
            raise JournalError(
                f"journal {self.journal} ends at position {end}, but the checkpoint of the query is at {after}; "
                "it belongs to another journal: remove the checkpoint"
            )
        # An offset that differs makes one batch, and one is enough.
        if end == after and "halted" not in start and self._halted():
            return _rows(after, end), {"position": after, "halted": 1}
        return _rows(after, end), {"position": end}

    def _wait_for_more(self, after: int) -> int:
        """The end of the log, once that is not `after` any more, or this stream is to halt, or the wait is over."""
        until = time.monotonic() + HOLD_SECONDS
        while (end := self.journal.end("events")) == after and not self._halted():
            left = until - time.monotonic()
            if left <= 0:
                break
            # Of a journal on NATS nobody tells that a file was made.
            self.journal.wait({"events": after}, left if not self.halt or self.journal.wakes_own else min(left, WAIT))
        return end

    def _halted(self) -> bool:
        return self.halt is not None and os.path.exists(self.halt)

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[pa.RecordBatch]:
        """The same row again, after a restart."""
        return _rows(start["position"], end["position"])


def _rows(after: int, through: int) -> Iterator[pa.RecordBatch]:
    """A range as a row; nothing where it is empty."""
    found = [{"after": after, "through": through}] if through > after else []
    # A list's iterator: Spark copies it, so that a batch can be sent twice.
    return iter([pa.RecordBatch.from_pylist(found, schema=RANGES)] if found else [])


def ranges(spark: SparkSession, after: int, through: int, partitions: int) -> DataFrame:
    """A stretch of the log as ranges, shared evenly among so many tasks, which read them themselves (`opened`)."""
    # A multiple of the partitions: else some tasks would have one piece more than others, and all wait for them.
    pieces = -(-max(1, -(-(through - after) // PIECE)) // partitions) * partitions
    step = max(1, -(-(through - after) // pieces))
    starts = spark.range(after, through, step, partitions)
    return starts.select(starts.id.alias("after"), F.least(starts.id + step, F.lit(through)).alias("through"))


def opened(blocks: Iterable[pa.RecordBatch], journal: str | None) -> Iterator[pa.Table]:
    """The events of ranges, inside an executor: a table of `EVENTS` per range, or per block that was sent.

    `journal` is where those are read that were not sent; None: all were.
    """
    with ExitStack() as stack:
        # Opened here: workers are forked from one another, and SQLite forbids to carry a connection over a fork.
        log = stack.enter_context(closing(journal_at(journal, read_only=is_nats(journal)))) if journal else None
        for row in (row for part in blocks for row in part.to_pylist()):
            after, through, block = row["after"], row["through"], row.get("block")
            if block is not None:
                yield _events_of(block)
            elif log is not None:
                yield log.read("events", after, through - after)


def sent(spark: SparkSession, events: pa.Table, partitions: int) -> DataFrame:
    """A stretch of the log as blocks with their events, for executors that do not reach the log.

    Payloads stay here: nobody decides by them. Each block has so few bytes that a task can carry it.
    """
    bare = events.set_column(PAYLOAD, EVENTS.field(PAYLOAD), pa.nulls(len(events), pa.binary()))
    pieces = max(-(-len(bare) // PIECE), -(-bare.nbytes // SENT_BYTES))
    # As for `ranges`: a multiple of the partitions.
    step = max(1, -(-len(bare) // (-(-pieces // partitions) * partitions)))
    rows = [_sent_row(bare.slice(first, step)) for first in range(0, len(bare), step)]
    # Spark makes a partition of each batch, where there is much.
    return spark.createDataFrame(pa.Table.from_batches(rows, BLOCKS), BLOCK_ROWS)


def _sent_row(events: pa.Table) -> pa.RecordBatch:
    position = events.column("position")
    row = {"after": position[0].as_py() - 1, "through": position[-1].as_py(), "block": _block(events)}
    return pa.RecordBatch.from_pylist([row], schema=BLOCKS)


def _block(rows: pa.Table) -> bytes:
    """Events as one Arrow message, without their schema, which everybody knows."""
    [batch] = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=EVENTS)]
    return batch.serialize().to_pybytes()


def _events_of(block: bytes) -> pa.Table:
    return pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(block), EVENTS)])
