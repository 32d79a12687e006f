"""The stages match and adapt in the pipeline: a small batch in the driver, a large one spread over the executors.

Both call `nearcast.stages.decide.decide`, so the outcome is equal; only where the events are read differs.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from nearcast.journal.jetstream.nats_address import VARIABLE, is_nats
from nearcast.journal.seam import Journal
from nearcast.matching.spatial.geometry_sharing import SingleFilter
from nearcast.model.columns import DELIVERIES, EVENTS, NO_DELIVERIES, are_control
from nearcast.model.filter import Filter
from nearcast.pipeline.executors.shared_files import CarriedFiles, SharedFile, checksum_of, content_of, located
from nearcast.pipeline.executors.worker_function import OWN_ADVICE, outcome_of, worker_function
from nearcast.pipeline.mmap_pickle import IndexShelf, loads
from nearcast.pipeline.source import BLOCK_ROWS, BLOCKS, opened, ranges, sent
from nearcast.pipeline.spark_session import is_local, session
from nearcast.runtime.private_folder import private_folder
from nearcast.stages.decide import decide
from nearcast.stages.fold import FoldedBatch
from nearcast.state.derived import derived_of
from nearcast.state.timeline import Excess

if TYPE_CHECKING:
    from pyspark import Broadcast

EXCESS = b"excess"
"""Under this name the metadata of deliveries say what was beyond limits."""

SPREAD = 20_000
"""Published events from which a batch is spread out: below, a job's own time is more than what the other cores save."""


def is_spread(batch: FoldedBatch, spread: int) -> bool:
    """Whether a batch is spread over the executors: they read what was published, and nothing that was derived."""
    derived = pc.sum(pc.greater(batch.events.column("part"), 0)).as_py() or 0
    # A batch of nothing has no first and last position to be spread between.
    return len(batch.events) - derived >= max(spread, 1)


class BatchSpreader:
    """Has batches decided by the executors of a session, in so many parts; as many as there are cores unless given.

    Executors read events from the log themselves, where they reach it: any that is on NATS, and on the driver's own
    machine any. To others they are sent. `folder` is one of the driver's for what deciding takes besides.
    """

    def __init__(self, spark: SparkSession, journal: Journal, folder: Path, partitions: int | None = None) -> None:
        self._spark, self._folder, self._partitions = spark, folder, partitions
        self._carried = None if is_local(spark) else CarriedFiles(spark.sparkContext)
        self._log = journal.location if self._carried is None or is_nats(journal.location) else None

    def blocks(self, batch: FoldedBatch, first: int, last: int) -> DataFrame:
        """The published events of a batch, which has these positions, as blocks."""
        # Of a cluster more cores may have come meanwhile.
        parts = self._partitions or self._spark.sparkContext.defaultParallelism
        if self._log is not None:
            return ranges(self._spark, first - 1, last, parts)
        return sent(self._spark, batch.events.filter(pc.equal(batch.events.column("part"), 0)), parts)

    def submit(self, batch: FoldedBatch, with_fallbacks: bool) -> Callable[[], pa.Table]:
        """Begins to decide the published events of a batch; what it gives has all parts decided.

        What deciding takes is one file, which every worker reads once; the index has a file of its own, mapped by all
        workers of a machine, that serves batch after batch. Ranges go there and blocks of deliveries come back: rows
        that Spark's Java sees one by one cost more than deciding.
        """
        batch.index.prepare(batch.events, batch.around)
        # What workers unpickle there they run: nobody else may write to it.
        private_folder(self._folder)
        positions = batch.events.column("position")
        first, last = positions[0].as_py(), positions[-1].as_py()
        indexes = set[Path]()
        content = _shelf(self._folder).dumps(batch.without_events(), first, indexes)
        files, carried = self._indexes(indexes)
        known, end = self._written(content, carried)
        job = DecidePart(first, last, with_fallbacks, self._log, _credentials(self._log), known, files)
        blocks = self.blocks(batch, first, last)

        def there() -> pa.Table:
            """Has all parts decided."""
            try:
                return _deliveries(outcome_of(blocks.mapInArrow(worker_function(job, OWN_ADVICE, carried), BLOCK_ROWS)))
            finally:
                end()

        return there

    def _indexes(self, paths: Iterable[Path]) -> tuple[tuple[SharedFile, ...], dict[str, Broadcast[bytes]]]:
        """The files of indexes, and what of them is carried, by checksum."""
        if self._carried is None:
            return tuple(SharedFile(str(path)) for path in paths), {}
        self._carried.forget_removed()
        each = [self._carried.carry(path) for path in paths]
        return tuple(file for file, _ in each), {file.checksum: content for file, content in each}

    def _written(self, content: bytes, carried: dict[str, Broadcast[bytes]]) -> tuple[SharedFile, Callable[[], object]]:
        """What deciding takes, where executors find it, and what removes it; what is carried is added to the rest."""
        if self._carried is None:
            descriptor, name = mkstemp(prefix="batch-", suffix=".pickle", dir=self._folder)
            with open(descriptor, "wb") as file:
                file.write(content)
            return SharedFile(name), Path(name).unlink
        broadcast = self._spark.sparkContext.broadcast(content)
        known = SharedFile("", checksum_of(content))
        carried[known.checksum] = broadcast
        return known, broadcast.destroy


def submit_batch(
    batch: FoldedBatch,
    spreader: BatchSpreader | None,
    with_fallbacks: bool = True,
    spread: int = SPREAD,
) -> Callable[[], pa.Table]:
    """Begins to decide a batch, and gives what ends it: called once, in any thread, it gives the DELIVERIES.

    These are by position and part, then client. The `spreader` gets the batch if it has `spread` published events;
    without one it is never spread. All that the batch shares with what is known is read before this returns, so that
    the next one may be folded in.
    """
    if spreader is None or not is_spread(batch, spread):
        found = decide(batch, batch.events, with_fallbacks)
        return lambda: found
    published = spreader.submit(batch, with_fallbacks)
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


def _credentials(log: str | None) -> dict[str, str]:
    """By what this process is known to NATS, as far as its environment says so: a worker's own need not."""
    return {name: said for name, said in os.environ.items() if name.startswith(VARIABLE)} if is_nats(log) else {}


@dataclass(frozen=True, slots=True)
class WorkerProbe:
    """Passes on what came. Whoever begins it has loaded what deciding needs, or says what is missing.

    `needs` are packages that are loaded when they are first used.
    """

    needs: tuple[str, ...] = ("numba", "pyproj")

    def run(self, parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches."""
        yield from parts


@dataclass(frozen=True, slots=True)
class DecidePart:
    """What a worker does with blocks: it decides the events of a batch, from position `first` to `last`.

    `known` is what deciding takes, and `indexes` are files that it refers to. `log` is where events are read that are
    not in their block, and `credentials` are variables for the environment, where they are not set.
    """

    first: int
    last: int
    with_fallbacks: bool
    log: str | None
    credentials: Mapping[str, str] = field(repr=False)
    known: SharedFile
    indexes: tuple[SharedFile, ...]

    def run(self, parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decides what is here, a part of the batch; gives blocks of deliveries."""
        for name, said in self.credentials.items():
            os.environ.setdefault(name, said)
        for table in opened(parts, self.log):
            # Nobody decides by payloads, and they are most of the bytes.
            world = _data_events(table.drop_columns("payload"), self.first, self.last)
            known = _read(self.known, self.indexes)
            known.around.excess.clear()
            deliveries = decide(known, world, self.with_fallbacks)
            if len(deliveries) or known.around.excess:
                yield _block(deliveries, known.around.excess, self.first)


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
    found = pa.concat_tables([NO_DELIVERIES, *(one.replace_schema_metadata(None) for one in tables)])
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
def _read(known: SharedFile, indexes: tuple[SharedFile, ...]) -> FoldedBatch:
    """What deciding a batch takes, kept by the worker for the batch's other parts."""
    files = {file.path: file for file in indexes}
    found: FoldedBatch = loads(content_of(known), lambda path: located(files[path]))
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
