"""History through the same five stages: the journal as a batch job, a stretch after the other.

Live operation, catching up and replay are one code path: each takes a stretch of the journal, folds it into what is
known, and decides it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from nearcast.decision.known import Batch, Known
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control import changes
from nearcast.pipeline.match import SPREAD, begun
from nearcast.pipeline.source import ranges

STRETCH = 100_000
"""Positions of a stretch: what the driver holds at once, some times over."""

AHEAD = 2
"""Batches that executors decide at once: a job begins and ends with a fifth of a second in which cores are idle."""


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

    While some are decided the next is read and folded, so what is known is ahead of the batch that is given.
    `partitions`: how many parts a stretch is spread into; as many as there are cores unless given.
    """
    parts = partitions or spark.sparkContext.defaultParallelism
    end = journal.end("events")
    cuts = [*range(known.position, end, stretch), end]
    under_way: deque[tuple[Batch, Future[pa.Table]]] = deque()
    with ThreadPoolExecutor(AHEAD) as threads:
        for through, events in zip(cuts[1:], _stretches(journal, cuts), strict=True):
            blocks = partial(ranges, spark, known.position, through, parts)
            for batch in known.advance(events, changes):
                rest = begun(batch, blocks, journal.path, folder, alternatives=False, spread=spread)
                under_way.append((batch, threads.submit(rest)))
                if len(under_way) > AHEAD:
                    yield _given(under_way)
            known.position = through
        while under_way:
            yield _given(under_way)


def _given(under_way: deque[tuple[Batch, Future[pa.Table]]]) -> tuple[Batch, pa.Table]:
    batch, deliveries = under_way.popleft()
    return batch, deliveries.result()


def _stretches(journal: SqliteJournal, cuts: Sequence[int]) -> Iterator[pa.Table]:
    """The events between each two cuts; while one stretch is decided, the next is read."""
    with ThreadPoolExecutor(1) as thread:
        reading: deque[Future[pa.Table]] = deque()
        for after, through in pairwise(cuts):
            reading.append(thread.submit(journal.read, "events", after, through - after))
            # One stretch ahead and no more: each is in memory as a whole.
            if len(reading) > 1:
                yield reading.popleft().result()
        while reading:
            yield reading.popleft().result()
