"""Which engine decides a history: this process or Spark, by what the first batches took of the processor.

Events alone say little: a hundred thousand with few filters are decided before Spark has begun, ten thousand that each
cost a millisecond are not.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from nearcast.stages.decide import decided
from nearcast.stages.fold import FoldedBatch, Parse, StateFold

T = TypeVar("T")

START_SECONDS = 12.0
"""What Spark takes until it decides as fast as it does later: to start, and to compile its own Java code."""

CARRYING_SECONDS = 7e-6
"""What an event takes of all cores together on its way through Spark, apart from being folded and decided."""

ENOUGH_EVENTS, ENOUGH_SECONDS = 10_000, 3.0
"""So many events, or so many seconds of the processor, tell what others cost."""

_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[(\d+),(\d+),\d+\]")


def cores_of(master: str | None) -> float:
    """On how many cores Spark would decide; of a cluster, which is named so as to be used, on any number."""
    if cluster := _LOCAL_CLUSTER.fullmatch((master or "local[*]").replace(" ", "")):
        return float(int(cluster[1]) * int(cluster[2]))
    if local := _LOCAL.fullmatch((master or "local[*]").replace(" ", "")):
        return float(len(os.sched_getaffinity(0)) if local[1] == "*" else int(local[1] or 1))
    return float("inf")


@dataclass(frozen=True, slots=True)
class EngineEstimate:
    """Seconds that what is left of a history takes in this process, and on Spark with its start."""

    events: int
    here: float
    spark: float
    cores: float

    @property
    def spark_pays(self) -> bool:
        """Whether Spark is done sooner."""
        return self.spark < self.here


def estimate(events: int, folding: float, deciding: float, cores: float) -> EngineEstimate:
    """What so many events take that cost so many seconds each; they are folded on one core, decided on all."""
    each = max(folding, (folding + deciding + CARRYING_SECONDS) / cores)
    return EngineEstimate(events, events * (folding + deciding), START_SECONDS + events * each, cores)


class _Timed(Iterator[T]):
    """What an iterator gives, and the seconds that it has spent on it."""

    def __init__(self, each: Iterator[T], seconds: Callable[[], float]) -> None:
        self.spent, self._each, self._seconds = 0.0, each, seconds

    def __next__(self) -> T:
        began = self._seconds()
        try:
            return next(self._each)
        finally:
            self.spent += self._seconds() - began


class BatchCosts:
    """What batches took of the processor in this process. The first one makes the index too, so it does not count."""

    def __init__(self, cores: float, seconds: Callable[[], float] = time.process_time) -> None:
        self.cores, self._seconds = cores, seconds
        self._folding, self._deciding, self._events, self._batches = 0.0, 0.0, 0, 0

    def decided(self, known: StateFold, table: pa.Table, parse: Parse) -> Iterator[tuple[FoldedBatch, pa.Table]]:
        """The batches of a table of EVENTS with their DELIVERIES, as `stages.decide.replay` gives them, measured."""
        folding, events = _Timed(known.fold(table, parse), self._seconds), 0
        measured = _Timed(decided(folding), self._seconds)
        for batch, deliveries in measured:
            events += len(batch.events)
            yield batch, deliveries
        if self._batches:
            self._folding += folding.spent
            self._deciding += measured.spent - folding.spent
            self._events += events
        self._batches += 1

    def estimate(self, events: int) -> EngineEstimate | None:
        """What so many more events would take; None before it is known."""
        enough = self._events >= ENOUGH_EVENTS or self._folding + self._deciding >= ENOUGH_SECONDS
        if not (self._events and enough and events):
            return None
        return estimate(events, self._folding / self._events, self._deciding / self._events, self.cores)
