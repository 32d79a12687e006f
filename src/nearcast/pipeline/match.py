"""The stages match and adapt in the pipeline: a small batch in the driver, a large one spread over the executors.

Both call `nearcast.decision.stages.decide`, so the outcome is equal; only where the events are read differs.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from tempfile import mkstemp

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from nearcast.decision.known import Batch
from nearcast.decision.stages import decide
from nearcast.model.columns import DELIVERIES, EVENTS
from nearcast.model.event import CONTROL_PREFIX

SPREAD = 20_000
"""Events from which a batch is spread out: below, a job's own time is more than what the other cores save."""

DELIVERY_ROWS = from_arrow_schema(DELIVERIES)


def decided(
    batch: Batch, rows: Callable[[], DataFrame], folder: Path, by_role: bool = True, spread: int = SPREAD
) -> pa.Table:
    """The DELIVERIES of a batch by position, then client. `rows` gives its events as a DataFrame, if they are many.

    `folder` is one that the executors see.
    """
    if len(batch.events) < spread:
        return decide(batch, batch.events, by_role)
    return _spread(batch, rows(), folder, by_role)


def _spread(batch: Batch, events: DataFrame, folder: Path, by_role: bool) -> pa.Table:
    """Decides where the events are. What deciding takes is one file, which every worker reads once."""
    folder.mkdir(parents=True, exist_ok=True)
    _, name = mkstemp(prefix="batch-", suffix=".pickle", dir=folder)
    path = Path(name)
    path.write_bytes(pickle.dumps(batch.without_events(), protocol=5))
    positions = batch.events.column("position")
    first, last = positions[0].as_py(), positions[-1].as_py()

    def here(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decides what is here, a part of the batch."""
        for part in parts:
            table = _world(pa.Table.from_batches([part]).cast(EVENTS), first, last)
            yield from decide(_read(name), table, by_role).to_batches()

    try:
        found = events.mapInArrow(here, DELIVERY_ROWS).toArrow().cast(DELIVERIES)
    finally:
        path.unlink()
    return found.sort_by([("position", "ascending"), ("client", "ascending")])


def _world(events: pa.Table, first: int, last: int) -> pa.Table:
    """The events of the world between two positions: what a batch consists of."""
    position = events.column("position")
    between = pc.and_(pc.greater_equal(position, first), pc.less_equal(position, last))
    return events.filter(pc.and_not(between, pc.starts_with(events.column("type"), CONTROL_PREFIX)))


@lru_cache(maxsize=2)
def _read(path: str) -> Batch:
    """What deciding a batch takes, kept by the worker for the batch's other parts."""
    return pickle.loads(Path(path).read_bytes())
