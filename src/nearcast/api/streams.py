"""Events in whatever form callers have them, as tables of EVENTS, and results in the form in which the events came.

A frame is what has `__arrow_c_stream__` or `__arrow_c_array__` (Arrow, pandas, Polars, DuckDB, …). A list gives a list,
any other iterable an iterator: what it gives is read as results are asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.api.attributes import plain_column, plain_type
from nearcast.api.event_rows import content_of, event_of, label_of
from nearcast.api.frames import OnDeadLetter, events_of
from nearcast.errors import EventError, Fault, Mark
from nearcast.language.cloudevents import DeadLetter
from nearcast.model.columns import EVENTS, to_table
from nearcast.model.event import Event
from nearcast.model.subscription import Channel

ROWS = 10_000
"""Events that are worked on at once."""

_INDEX = "__index_level_"
"""How pandas names the column of an index that has no name."""

KINDS = "a list or iterator of events, or an Arrow, pandas or Polars frame"


@runtime_checkable
class ArrowStream(Protocol):
    """A frame: what gives itself out through the Arrow PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A capsule with an `ArrowArrayStream`."""
        ...


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some events as a table of EVENTS, `position` the number of their row plus 1, and what results call each."""

    events: pa.Table
    labels: pa.Array | list[object]

    def labels_at(self, lanes: Any) -> Any:
        """What results call the events of these numbers in the table."""
        if isinstance(self.labels, list):
            return [self.labels[lane] for lane in lanes]
        return self.labels.take(pa.array(lanes))


@dataclass
class EventSource:
    """Events as they came in, checked to be of a form that can be read."""

    given: Any
    channels: Sequence[Channel] = ()
    on_dead_letter: OnDeadLetter | None = None
    reader: pa.RecordBatchReader | None = None
    seen: set[Any] = field(default_factory=set)

    def __post_init__(self) -> None:
        if hasattr(self.given, "__arrow_c_stream__") or hasattr(self.given, "__arrow_c_array__"):
            self.reader = _reader(self.given)
        elif (
            isinstance(self.given, (str, bytes, dict)) or not isinstance(self.given, Iterable) or _is_array(self.given)
        ):
            raise _no_events(self.given)

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of a frame; None of any other."""
        return None if self.reader is None else self.reader.schema

    @property
    def label_type(self) -> pa.DataType:
        """The type of what results call the events of a frame."""
        schema = self.schema
        return plain_type(schema.field("id").type) if schema is not None and "id" in schema.names else pa.int64()

    def chunks(self) -> Iterator[Chunk]:
        """The events in their order, at most `ROWS` at once; the ones that came before are dead letters."""
        for chunk, identified in self._of_rows() if self.reader is None else self._of_frame(self.reader):
            yield self._once(chunk) if identified else chunk

    def _of_frame(self, reader: pa.RecordBatchReader) -> Iterator[tuple[Chunk, bool]]:
        unnamed = [name for name in reader.schema.names if name.startswith(_INDEX)]
        first = 0
        for batch in reader:
            batch = batch.drop_columns(unnamed) if unnamed else batch
            for start in range(0, len(batch), ROWS):
                part = batch.slice(start, ROWS)
                events = events_of(part, first, self.on_dead_letter, self.channels)
                identified = "id" in part.schema.names
                rows = pc.subtract(events.column("position"), 1).combine_chunks()
                labels = plain_column(part.column("id")).take(pc.subtract(rows, first)) if identified else rows
                yield Chunk(events, labels), identified
                first += len(part)

    def _of_rows(self) -> Iterator[tuple[Chunk, bool]]:
        items, first = iter(self.given), 0
        while some := list(islice(items, ROWS)):
            found: list[Event] = []
            labels: list[object] = []
            rows: list[int] = []
            for row, item in enumerate(some, first):
                try:
                    event = event_of(item, row, self.channels)
                except EventError as error:
                    self._dead(error, content_of(item))
                    continue
                found.append(event)
                labels.append(label_of(item, event, row))
                rows.append(row)
            first += len(some)
            yield Chunk(_at_rows(to_table(found), rows), labels), True

    def _once(self, chunk: Chunk) -> Chunk:
        """The chunk without the events whose source and id came before; these are dead letters."""
        keys = list(zip(*(chunk.events.column(name).to_pylist() for name in ("source", "id")), strict=True))
        if len(set(keys)) == len(keys) and self.seen.isdisjoint(keys):
            self.seen.update(keys)
            return chunk
        lanes = []
        for lane, (source, id) in enumerate(keys):
            if (source, id) in self.seen:
                where = Mark(f"row {chunk.events.column('position')[lane].as_py() - 1}")
                advice = "what it tells about belongs into subject: an id is of one event"
                fault = Fault("each id of a source once", f"{id!r} of {source!r} again", where, advice)
                self._dead(EventError(fault), content_of({"source": source, "id": id}))
                continue
            self.seen.add((source, id))
            lanes.append(lane)
        return Chunk(chunk.events.take(pa.array(lanes, pa.int64())), chunk.labels_at(lanes))

    def _dead(self, error: EventError, content: bytes) -> None:
        if self.on_dead_letter is None:
            raise error
        self.on_dead_letter(DeadLetter(error.fault, content))


def like(given: Any, tables: Iterator[pa.Table], schema: pa.Schema) -> Any:
    """Tables of results as one frame of the kind of another; of a kind not known here as an Arrow table."""
    if isinstance(given, pa.RecordBatchReader):
        return pa.RecordBatchReader.from_batches(schema, (part for table in tables for part in table.to_batches()))
    table = pa.concat_tables([schema.empty_table(), *tables])
    if isinstance(given, pa.RecordBatch):
        return next(iter(table.combine_chunks().to_batches()), pa.RecordBatch.from_pylist([], schema))
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    if pandas is not None and isinstance(given, pandas.DataFrame):
        return table.to_pandas()
    return polars.from_arrow(table) if polars is not None and isinstance(given, polars.DataFrame) else table


def listed(given: Any, rows: Iterator[dict[str, Any]]) -> Any:
    """Results as a list where a list or tuple came in, else as an iterator."""
    return list(rows) if isinstance(given, (list, tuple)) else rows


def _reader(frame: Any) -> pa.RecordBatchReader:
    """The batches of a frame. Raises `Fault` where Arrow cannot hold it, or where it is no frame but a column."""
    if isinstance(frame, pa.RecordBatchReader):
        return frame
    try:
        pandas = sys.modules.get("pandas")
        if pandas is not None and isinstance(frame, pandas.DataFrame):
            # Left to itself pandas gives an index out or not, by how it is kept: a range is not a column, name or no.
            named = any(name is not None for name in frame.index.names)
            return pa.Table.from_pandas(frame, preserve_index=named).to_reader()
        if hasattr(frame, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(frame)
        return pa.table(pa.record_batch(frame)).to_reader()
    # ArrowInvalid is a ValueError, ArrowTypeError a TypeError; pandas has others for what it cannot give out.
    except (ValueError, TypeError, NotImplementedError) as error:
        kind = f"{type(frame).__module__.split('.')[0]} {type(frame).__name__}"
        advice = "give every column one type, and a name that no other has"
        raise Fault(
            "a frame that Arrow can hold", f"{kind}: {' '.join(str(error).split())[:300]}", None, advice
        ) from None


def _at_rows(table: pa.Table, rows: Sequence[int]) -> pa.Table:
    """The table with the numbers of its rows, plus 1, as positions."""
    return table.set_column(0, EVENTS.field("position"), pa.array([row + 1 for row in rows], pa.int64()))


def _is_array(given: object) -> bool:
    """One column, or a matrix of numbers, has no names for its values."""
    return hasattr(given, "__array__")


def _no_events(given: object) -> Fault:
    kind = f"{type(given).__module__.split('.')[0]} {type(given).__name__}".removeprefix("builtins ")
    if isinstance(given, dict):
        return Fault(KINDS, "one dict", None, "put a single event into a list")
    if isinstance(given, (str, bytes)):
        return Fault(KINDS, "a text", None, "of a file, give the open file: its lines are events")
    advice = "collect() it first" if hasattr(given, "collect") else "a frame has __arrow_c_stream__"
    return Fault(KINDS, kind, None, advice)
