"""History through the same five stages: the journal as a batch job, one range of positions after the other.

Live operation, catching up and replay are one code path: each takes a range of the journal, folds it into what is
known, and decides it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from nearcast.journal.seam import Journal
from nearcast.language.control_events import changes
from nearcast.pipeline.spread import SPREAD, BatchSpreader, submit_batch
from nearcast.stages.fold import FoldedBatch, Parse, StateFold

T = TypeVar("T")

RANGE_SIZE = 100_000
"""Positions of a range: what the driver holds at once, some times over."""

AHEAD = 2
"""Batches that executors decide at once: a job begins and ends with a fifth of a second in which cores are idle."""


def replay(
    spark: SparkSession,
    journal: Journal,
    known: StateFold,
    folder: Path,
    *,
    through: int | None = None,
    parse: Parse = changes,
    range_size: int = RANGE_SIZE,
    spread: int = SPREAD,
    partitions: int | None = None,
) -> Iterator[tuple[FoldedBatch, pa.Table]]:
    """Each batch of the journal after what is known, up to a position or its present end, with its DELIVERIES.

    While some are decided the next is read and folded, so what is known is ahead of the batch that is given. `parse`
    reads control events. `partitions`: how many parts a range is spread into; as many as there are cores unless given.
    """
    spreader = BatchSpreader(spark, journal, folder, partitions)
    cuts = _cuts(journal, known.position, journal.end("events") if through is None else through, range_size)

    def deciding() -> Iterator[Callable[[], tuple[FoldedBatch, pa.Table]]]:
        """Folds one batch after the other, and gives what ends the deciding of each."""
        for end, events in zip(cuts[1:], _row_ranges(journal, cuts), strict=True):
            for batch in known.fold(events, parse):
                rest = submit_batch(batch, spreader, with_fallbacks=False, spread=spread)
                yield partial(_ended, batch, rest)
            known.position = end

    yield from _ahead(deciding(), AHEAD)


def _ended(batch: FoldedBatch, rest: Callable[[], pa.Table]) -> tuple[FoldedBatch, pa.Table]:
    return batch, rest()


def _cuts(journal: Journal, after: int, end: int, range_size: int) -> list[int]:
    """Where ranges begin and the last one ends; they are shorter where events are large."""
    cuts = [after]
    while cuts[-1] < end:
        cuts.append(journal.end_within_bytes("events", cuts[-1], min(range_size, end - cuts[-1])))
    return cuts if len(cuts) > 1 else [after, after]


def _row_ranges(journal: Journal, cuts: Sequence[int]) -> Iterator[pa.Table]:
    """The events between each two cuts; while one range is decided, the next is read."""
    reads = (partial(journal.read, "events", after, through - after) for after, through in pairwise(cuts))
    # One range ahead and no more: each is in memory as a whole.
    return _ahead(reads, 1)


def _ahead(jobs: Iterable[Callable[[], T]], count: int) -> Iterator[T]:
    """What jobs give, in order; so many are under way, each in a thread, while one before them is looked at."""
    with ThreadPoolExecutor(count) as threads:
        under_way: deque[Future[T]] = deque()
        for job in jobs:
            under_way.append(threads.submit(job))
            if len(under_way) > count:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
