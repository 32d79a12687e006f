"""The stages match and adapt in the pipeline: a small batch in the driver, a large one spread over the executors.

Both call `nearcast.stages.decide.decide`, so the outcome is equal; only where the events are read differs.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from tempfile import mkstemp

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from nearcast.model.columns import DELIVERIES, EVENTS, are_control
from nearcast.model.filter import Filter
from nearcast.pipeline.mmap_pickle import IndexShelf, loads
from nearcast.pipeline.source import RANGES, opened
from nearcast.pipeline.spark_session import session
from nearcast.runtime.private_folder import private_folder
from nearcast.stages.decide import decide
from nearcast.stages.fold import FoldedBatch
from nearcast.stages.geometry_sharing import SingleFilter
from nearcast.state.derived import derived_of
from nearcast.state.timeline import Excess

BLOCKS = RANGES.append(pa.field("block", pa.binary()))
"""Deliveries of positions, `after` < position ≤ `through`, as one Arrow block."""

EXCESS = b"excess"
"""Under this name the metadata of deliveries say what was beyond limits."""

SPREAD = 20_000
"""Published events from which a batch is spread out: below, a job's own time is more than what the other cores save."""


def is_spread(batch: FoldedBatch, spread: int) -> bool:
    """Whether a batch is spread over the executors: they read what was published, and nothing that was derived."""
    derived = pc.sum(pc.greater(batch.events.column("part"), 0)).as_py() or 0
    # A batch of nothing has no first and last position to be spread between.
    return len(batch.events) - derived >= max(spread, 1)


def submit_batch(
    batch: FoldedBatch,
    blocks: Callable[[], DataFrame],
    journal: str,
    folder: Path,
    with_fallbacks: bool = True,
    spread: int = SPREAD,
) -> Callable[[], pa.Table]:
    """Begins to decide a batch, and gives what ends it: called once, in any thread, it gives the DELIVERIES.

    These are by position and part, then client. `blocks` gives the batch's ranges of positions, if it is large;
    `journal` is the path of its journal, `folder` one for what executors need; they see both. All that the batch shares
    with what is known is read before this returns, so that the next one may be folded in.
    """
    if not is_spread(batch, spread):
        found = decide(batch, batch.events, with_fallbacks)
        return lambda: found
    published = _spread(batch, blocks(), journal, folder, with_fallbacks)
    # What was derived is in no block that executors read.
    derived = decide(batch, derived_of(batch.events), with_fallbacks)

    def whole() -> pa.Table:
        """Both; what was beyond limits elsewhere is known here then."""
        found = published()
        for excess, count in orjson.loads((found.schema.metadata or {}).get(EXCESS, b"[]")):
            batch.around.excess[tuple(excess)] += count
        return _together(found.replace_schema_metadata(None), derived)

    return whole


def _together(published: pa.Table, derived: pa.Table) -> pa.Table:
    if not len(derived):
        return published
    # Stable: those of one event keep their order.
    return pa.concat_tables([published, derived]).sort_by([("position", "ascending"), ("part", "ascending")])


def _spread(
    batch: FoldedBatch, blocks: DataFrame, journal: str, folder: Path, with_fallbacks: bool
) -> Callable[[], pa.Table]:
    """Decides where events are read. What deciding takes is one file, which every worker reads once; the index has a
    file of its own, mapped by all workers of a machine, that serves batch after batch.

    Ranges go there and blocks of deliveries come back: rows that Spark's Java sees one by one cost more than deciding.
    """
    batch.index.prepare(batch.events, batch.around)
    # What workers unpickle there they run: nobody else may write to it.
    private_folder(folder)
    descriptor, name = mkstemp(prefix="batch-", suffix=".pickle", dir=folder)
    positions = batch.events.column("position")
    first, last = positions[0].as_py(), positions[-1].as_py()
    with open(descriptor, "wb") as file:
        file.write(_shelf(folder).dumps(batch.without_events(), first))

    def here(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decides what is here, a part of the batch."""
        for table in opened(parts, journal):
            # Nobody decides by payloads, and they are most of the bytes.
            world = _data_events(table.drop_columns("payload"), first, last)
            known = _read(name)
            known.around.excess.clear()
            deliveries = decide(known, world, with_fallbacks)
            if len(deliveries) or known.around.excess:
                yield _block(deliveries, known.around.excess, first)

    def there() -> pa.Table:
        """Has all parts decided."""
        try:
            return _deliveries(blocks.mapInArrow(here, from_arrow_schema(BLOCKS)).toArrow())
        finally:
            Path(name).unlink()

    return there


def _block(deliveries: pa.Table, excess: Mapping[Excess, int], begin: int) -> pa.RecordBatch:
    """Deliveries, and what was beyond limits, as one row of `BLOCKS`; without deliveries it stands at the `begin`."""
    sink = pa.BufferOutputStream()
    schema = DELIVERIES.with_metadata({EXCESS: orjson.dumps(list(excess.items()))})
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_table(deliveries.replace_schema_metadata(schema.metadata))
    position = deliveries.column("position")
    first, last = (position[0].as_py(), position[-1].as_py()) if len(deliveries) else (begin, begin)
    row = {"after": first - 1, "through": last, "block": sink.getvalue().to_pybytes()}
    return pa.RecordBatch.from_pylist([row], schema=BLOCKS)


def _deliveries(blocks: pa.Table) -> pa.Table:
    """Blocks of deliveries, in any order, as one table."""
    # Tasks end in any order; the log of deliveries ascends.
    ordered = blocks.sort_by("after").column("block")
    tables = [pa.ipc.open_stream(block.as_buffer()).read_all() for block in ordered]
    excess = [pair for one in tables for pair in orjson.loads(one.schema.metadata[EXCESS])]
    found = pa.concat_tables([DELIVERIES.empty_table(), *(one.replace_schema_metadata(None) for one in tables)])
    return found.replace_schema_metadata({EXCESS: orjson.dumps(excess)}) if excess else found


def _data_events(events: pa.Table, first: int, last: int) -> pa.Table:
    """The events of the world between two positions: what a batch consists of."""
    position = events.column("position")
    between = pc.and_(pc.greater_equal(position, first), pc.less_equal(position, last))
    wanted = pc.and_not(between, are_control(events))
    return events if pc.all(wanted).as_py() else events.filter(wanted)


@cache
def _shelf(folder: Path) -> IndexShelf:
    return IndexShelf(folder)


@lru_cache(maxsize=2)
def _read(path: str) -> FoldedBatch:
    """What deciding a batch takes, kept by the worker for the batch's other parts."""
    found = loads(Path(path).read_bytes())
    # After every task Spark has its workers look through all objects for garbage: a tenth of a second for modules that
    # stay. What is frozen is not looked at; batches are freed all the same, as they refer to nothing in a circle.
    gc.freeze()
    return found


def select(filter: Filter, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The rows of tables of EVENTS that a filter selects, in their order."""
    spark = session()
    index = SingleFilter(filter)

    def selected(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that are selected of each part."""
        for part in parts:
            table = pa.Table.from_batches([part]).cast(EVENTS)
            yield from table.filter(pa.array(index.selects(table))).to_batches()

    for table in tables:
        yield spark.createDataFrame(table).mapInArrow(selected, from_arrow_schema(EVENTS)).toArrow().cast(EVENTS)
