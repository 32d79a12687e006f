"""History through the same five stages: the journal as a batch job, a stretch after the other.

Live operation, catching up and replay are one code path: each takes a stretch of the journal, folds it into what is
known, and decides it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from nearcast.decision.known import Batch, Known
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control import changes
from nearcast.pipeline.match import SPREAD, decided
from nearcast.pipeline.source import JournalSource

STRETCH = 100_000
"""Positions of a stretch: what the driver holds at once."""


def replay(
    spark: SparkSession,
    journal: SqliteJournal,
    known: Known,
    folder: Path,
    *,
    stretch: int = STRETCH,
    spread: int = SPREAD,
    partitions: int | None = None,
) -> Iterator[tuple[Batch, pa.Table]]:
    """Each batch of the journal after what is known, up to its present end, with its DELIVERIES.

    `partitions`: how many parts a stretch is spread into; as many as there are cores unless given.
    """
    spark.dataSource.register(JournalSource)
    parts = partitions or spark.sparkContext.defaultParallelism
    end = journal.end("events")
    while known.position < end:
        after, through = known.position, min(end, known.position + stretch)

        def rows(after: int = after, through: int = through) -> DataFrame:
            """The stretch as a DataFrame, read in parallel."""
            options = {"journal": journal.path, "after": after, "through": through, "partitions": parts}
            return spark.read.format("nearcast").options(**options).load()

        for batch in known.advance(journal.read("events", after, through - after), changes):
            yield batch, decided(batch, rows, folder, by_role=False, spread=spread)
        known.position = through
