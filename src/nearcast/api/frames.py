"""Frames as events: an Arrow table becomes a table of EVENTS, column by column (semantics §1).

A column is an attribute, named as in nested JSON: a struct's fields are dotted names, a list is its name several times,
null is absent. `id`, `type`, `source`, `subject` and `time` are the event's own, `lon, lat[, alt]` or `x, y[, z]` or a
GeoJSON struct `geometry` or `geom` its place. A frame with a column `specversion` holds CloudEvents: then the fields of
its column `data` are the attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from nearcast.api.attributes import (
    AttributeColumn,
    attribute_columns,
    attributes,
    geometry_of,
    is_text,
    nearest_doubles,
    plain_column,
    without_nulls,
)
from nearcast.api.event_rows import SOURCE, TYPE, document_text, value_of
from nearcast.errors import EventError, Fault, Mark
from nearcast.language.cloudevents import KEPT_BYTES, MAX_ATTRIBUTES, DeadLetter, about_of, channel_of, read_event
from nearcast.language.definitions.client_documents import GEOMETRY_NAMES, place_of
from nearcast.language.event_degrees import in_degrees
from nearcast.model.columns import EVENTS, TIME, to_table
from nearcast.model.event import CONTROL_PREFIX, OWN, Event, Place
from nearcast.model.subscription import Channel
from nearcast.model.values import time_of

PLACES = ("lon", "lat", "alt", "x", "y", "z")

OnDeadLetter = Callable[[DeadLetter], None]
Mask = npt.NDArray[np.bool_]


def events_of(
    frame: pa.Table | pa.RecordBatch,
    first: int = 0,
    on_dead_letter: OnDeadLetter | None = None,
    channels: Sequence[Channel] = (),
) -> pa.Table:
    """The rows of a frame as a table of EVENTS; `position` is the row's number, counted from `first`, plus 1.

    Rows that are no events are left out and reported to `on_dead_letter`; without it the first of them is raised as
    `EventError`. Raises `Fault` for a column that no event can have.
    """
    columns = _FrameColumns.of(frame)
    found = _FrameReader(columns, first, channels)
    table = found.table()
    for row in sorted(found.faults):
        letter = DeadLetter(found.faults[row], _content(frame, row))
        if on_dead_letter is None:
            raise EventError(letter.fault)
        on_dead_letter(letter)
    return table


@dataclass(frozen=True, slots=True)
class _FrameColumns:
    """A frame's columns, each as one array: the event's own, and those of its data."""

    frame: pa.Table | pa.RecordBatch
    own: dict[str, pa.Array]
    data: dict[str, pa.Array]
    cloudevents: bool

    @classmethod
    def of(cls, frame: pa.Table | pa.RecordBatch) -> _FrameColumns:
        names = frame.schema.names
        for name in names:
            if names.count(name) > 1:
                raise Fault("each column once", f"{name} again", Mark(f"column {name}"), "rename one of them")
        columns = {name: _whole(frame.column(name)) for name in names}
        if "specversion" not in columns:
            # Whatever is no field of the event is its data.
            own = {name: columns.pop(name) for name in OWN if name in columns}
            return cls(frame, own, columns, False)
        missing = [name for name in ("id", "type", "source") if name not in columns]
        if missing:
            advice = "without specversion a frame needs none of them"
            raise Fault(f"a column {missing[0]}, as CloudEvents have", "none", Mark("column specversion"), advice)
        data = columns.get("data")
        if data is None or not pt.is_struct(data.type):
            return cls(frame, columns, {}, True)
        del columns["data"]
        inner = dict(zip((part.name for part in data.type), data.flatten(), strict=True))
        return cls(frame, columns, inner, True)

    @property
    def attributes(self) -> Iterator[tuple[str, pa.Array]]:
        """The columns that are attributes, under their own names."""
        yield from ((name, column) for name, column in self.own.items() if name not in (*OWN, "data_base64"))
        yield from self.data.items()

    def document(self, row: int, number: int) -> dict[str, Any]:
        """A row as a CloudEvent's JSON object; `number` is the row's among all."""
        absent = {} if self.cloudevents else {"specversion": "1.0", "id": str(number), "type": TYPE, "source": SOURCE}
        own = {name: column[row].as_py() for name, column in self.own.items()}
        data = {name: column[row].as_py() for name, column in self.data.items()}
        # As of a dict: a decimal is a number, a date a text.
        document = absent | {name: (document_text if name in OWN else value_of)(value) for name, value in own.items()}
        data = value_of(without_nulls(data))
        return without_nulls({**document, "data": data} if data else document)


@dataclass
class _FrameReader:
    """One frame on its way to EVENTS; `faults` gathers by row what cannot be taken."""

    columns: _FrameColumns
    first: int
    channels: Sequence[Channel]
    faults: dict[int, Fault] = field(default_factory=dict)
    beyond: dict[int, Fault] = field(default_factory=dict)
    """What is wrong with geometries where they are in degrees."""

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.columns.frame)

    def where(self, row: int) -> Mark:
        """Where a row is."""
        return Mark(f"row {self.first + row}")

    def table(self) -> pa.Table:
        """The events; what cannot be taken is in `faults` afterwards."""
        columns: dict[str, Any] = {
            "position": pa.array(np.arange(self.count) + self.first + 1),
            "id": self._text("id", lambda: pc.cast(pa.array(np.arange(self.count) + self.first), pa.string())),
            "type": self._text("type", lambda: pa.repeat(TYPE, self.count)),
            "source": self._text("source", lambda: pa.repeat(SOURCE, self.count)),
            "subject": self._text("subject", lambda: pa.nulls(self.count, pa.string())),
            "time": self._time(),
            "part": pa.repeat(pa.scalar(0, pa.int32()), self.count),
        }
        alone = self._alone(columns["type"])
        columns |= self._places(alone)
        columns["attributes"] = self._attributes(alone)
        columns["channel"] = self._channels(columns, alone)
        columns["about"] = self._about(columns)
        self._check_degrees(columns)
        arrays = [columns[one.name] if one.name in columns else pa.nulls(self.count, one.type) for one in EVENTS]
        table = pa.Table.from_arrays([pc.cast(a, t) for a, t in zip(arrays, EVENTS.types, strict=True)], schema=EVENTS)
        return self._with(table, [event for row in _rows(alone) if (event := self._event(row))], alone)

    def _with(self, table: pa.Table, events: Sequence[Event], alone: Mask) -> pa.Table:
        """The table without the rows that were not taken, or read alone; those that were are in their places."""
        left = alone.copy()
        left[list(self.faults)] = True
        if left.any():
            table = table.filter(pa.array(~left))
        return pa.concat_tables([table, to_table(events)]).sort_by("position") if events else table

    def _alone(self, types: pa.Array) -> Mask:
        """The rows that are read one by one, as JSON is: control events, and CloudEvents that are no plain ones."""
        alone = _true(pc.starts_with(types, CONTROL_PREFIX))
        if self.columns.cloudevents:
            alone |= ~_true(pc.equal(_texts(self.columns.own["specversion"], "specversion"), "1.0"))
        if "data_base64" in self.columns.own:
            alone |= _true(self.columns.own["data_base64"].is_valid())
        return alone

    def _event(self, row: int) -> Event | None:
        """A row read as JSON is; None, and a fault, if it cannot be taken."""
        self.faults.pop(row, None)
        try:
            event = read_event(self.columns.document(row, self.first + row), self.where(row), self.channels)
        except EventError as error:
            self.faults[row] = error.fault
            return None
        return replace(event, position=self.first + row + 1)

    def _text(self, name: str, absent: Callable[[], pa.Array]) -> pa.Array:
        """One of the event's own texts; `absent` is what it is without the column."""
        column = self.columns.own.get(name)
        if column is None:
            return absent()
        texts = _texts(column, name)
        bad = pc.equal(texts, "") if name == "subject" else pc.fill_null(pc.equal(texts, ""), True)
        for row in _rows(_true(bad)):
            came = "nothing" if texts[row].as_py() is None else "''"
            self._fault(row, Fault(f"{name}, a text that is not empty", came, self.where(row)))
        return texts

    def _time(self) -> pa.Array:
        column = self.columns.own.get("time")
        if column is None or pt.is_null(column.type):
            return pa.nulls(self.count, TIME)
        kind = column.type
        if pt.is_date(kind):
            column = pc.cast(column, pa.timestamp("s"))
        if pt.is_date(kind) or pt.is_timestamp(kind):
            [one] = self._attribute_columns("time", column)
            which = np.full(self.count, -1)
            which[one.rows] = np.arange(len(one.rows))
            return one.values.take(pa.array(which, mask=which < 0))
        if not is_text(kind):
            raise _unfit("time", kind, "timestamps, or texts as 2020-01-31T12:00:00Z")
        return pa.array([self._moment(row, text) for row, text in enumerate(column.to_pylist())], TIME)

    def _moment(self, row: int, text: str | None) -> Any:
        moment = None if text is None else time_of(text)
        if text is not None and moment is None:
            self._fault(row, Fault("time, as in 2020-01-31T12:00:00Z", repr(text)[:80], self.where(row)))
        return moment

    def _fault(self, row: int, fault: Fault) -> None:
        self.faults.setdefault(row, fault)

    def _attribute_columns(
        self, name: str, column: pa.Array, hidden: pa.Array | None = None
    ) -> Iterator[AttributeColumn]:
        """The attributes of a column; where `hidden` says so, its name is that of a field too, and is `data.NAME`."""
        names = pa.repeat(name, self.count) if hidden is None else pc.if_else(hidden, f"data.{name}", name)
        for one in attribute_columns(names, column, np.arange(self.count), Mark(f"column {name}")):
            if isinstance(one, AttributeColumn):
                yield one
                continue
            fault = Fault(one.expected, one.came, self.where(one.row), one.advice)
            (self.beyond if one.geographic else self.faults).setdefault(one.row, fault)

    def _attributes(self, alone: Mask) -> pa.Array:
        found: list[AttributeColumn] = []
        for name, column in self.columns.attributes:
            own = self.columns.own.get(name) if name in self.columns.data else None
            if name in GEOMETRY_NAMES and pt.is_struct(column.type):
                column = _without_points(column)
            found += self._attribute_columns(name, column, None if own is None else own.is_valid())
        lists = attributes(found, self.count)
        lengths = lists.value_lengths().to_numpy()
        for row in _rows((lengths > MAX_ATTRIBUTES) & ~alone):
            self._fault(row, Fault(f"at most {MAX_ATTRIBUTES:,} attributes", f"{lengths[row]:,}", self.where(row)))
        return lists

    def _places(self, alone: Mask) -> dict[str, pa.Array]:
        """Where each event is: at once where the columns state it plainly, else by the rules for JSON."""
        stated = {name: column for name, column in self.columns.data.items() if self._states_place(name, column)}
        numbers = {name: _doubles(column, name) for name, column in stated.items() if name in PLACES}
        none = np.full(self.count, np.nan)
        lon, lat, alt, x, y, z = (numbers.get(name, (none,))[0] for name in PLACES)
        no = np.zeros(self.count, bool)
        there = {name: numbers.get(name, (none, no))[1] for name in PLACES}
        planar, geographic = there["x"] & there["y"], there["lon"] & there["lat"]
        plain = planar & ~there["lon"] & ~there["lat"] & _finite(x, y, z, there["z"])
        plain |= (
            geographic & ~planar & (np.abs(lon) <= 180) & (np.abs(lat) <= 90) & _finite(lon, lat, alt, there["alt"])
        )
        doubtful = ~plain & (planar | there["lon"] | there["lat"])
        for name in stated.keys() & set(GEOMETRY_NAMES):
            doubtful |= _true(stated[name].is_valid())
        kinds = np.where(planar, "planar", np.where(geographic, "geographic", ""))
        x, y, z = (np.where(planar, a, b) for a, b in ((x, lon), (y, lat), (z, alt)))
        for row in _rows(doubtful & ~alone):
            place = self._place(row, stated)
            kinds[row] = "" if place is None else place.coordinates
            if place is not None:
                x[row], y[row], z[row] = place.x, place.y, np.nan if place.z is None else place.z
        nowhere = kinds == ""
        return {
            "coordinates": pa.array(kinds, pa.string(), mask=nowhere),
            "x": pa.array(x, mask=nowhere),
            "y": pa.array(y, mask=nowhere),
            "z": pa.array(z, mask=nowhere | np.isnan(z)),
        }

    def _states_place(self, name: str, column: pa.Array) -> bool:
        if pt.is_null(column.type):
            return False
        if name in ("x", "y", "z"):
            return {"x", "y"} <= self.columns.data.keys()
        return name in PLACES or (name in GEOMETRY_NAMES and pt.is_struct(column.type))

    def _place(self, row: int, stated: dict[str, pa.Array]) -> Place | None:
        data = {name: column[row].as_py() for name, column in stated.items()}
        try:
            return place_of(without_nulls(data), self.where(row))
        except Fault as fault:
            self._fault(row, fault)
            return None

    def _channels(self, columns: dict[str, Any], alone: Mask) -> pa.Array:
        """The channel of each event, if there are any."""
        if not self.channels:
            return pa.nulls(self.count, pa.string())
        named = self.columns.own.get("channel") if self.columns.cloudevents else None
        names = [None] * self.count if named is None else named.to_pylist()
        parts = (columns[name].to_pylist() for name in ("type", "coordinates", "x", "y"))
        found: list[str | None] = []
        for row, (type_, kind, x, y) in enumerate(zip(*parts, strict=True)):
            place = None if kind is None else Place(kind, x, y)
            try:
                skipped = alone[row] or row in self.faults
                found.append(None if skipped else channel_of(type_, names[row], place, self.channels, self.where(row)))
            except Fault as fault:
                self._fault(row, fault)
                found.append(None)
        return pa.array(found, pa.string())

    def _check_degrees(self, columns: dict[str, Any]) -> None:
        for row, fault in self.beyond.items():
            if in_degrees(columns["channel"][row].as_py(), columns["coordinates"][row].as_py(), self.channels):
                self._fault(row, fault)

    def _about(self, columns: dict[str, Any]) -> pa.Array:
        """The entity of each event whose channel names it by source and subject."""
        if all(one.entity == "subject" for one in self.channels):
            return pa.nulls(self.count, pa.string())
        # What a row that is not taken lacks is reported already.
        sources = pc.fill_null(columns["source"], "").to_pylist()
        rows = zip(sources, columns["subject"].to_pylist(), columns["channel"].to_pylist(), strict=True)
        found = [about_of(source, subject, named, self.channels) for source, subject, named in rows]
        return pa.array(found, pa.string())


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one plain array."""
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return plain_column(column)


def _true(mask: pa.Array) -> Mask:
    """Where a mask is true; null is not."""
    found: Mask = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
    return found


def _rows(mask: Mask) -> list[int]:
    """The numbers of the rows for which a mask is true."""
    found: list[int] = np.flatnonzero(mask).tolist()
    return found


def _texts(column: pa.Array, name: str) -> pa.Array:
    """A column of texts, or of integers as they are written. Raises `Fault` for any other."""
    if not (is_text(column.type) or pt.is_integer(column.type) or pt.is_null(column.type)):
        raise _unfit(name, column.type, "texts or integers")
    return pc.cast(column, pa.string())


def _doubles(column: pa.Array, name: str) -> tuple[npt.NDArray[np.float64], Mask]:
    """A column of numbers, NaN where it is null, and where it is not. Raises `Fault` for any other column."""
    kind = column.type
    if not (pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind)):
        raise _unfit(
            name, kind, "numbers", "it tells where the event is: cast it, or rename it if it means another thing"
        )
    values = nearest_doubles(column) if pt.is_decimal(kind) else pc.cast(column, pa.float64(), safe=False)
    return pc.fill_null(values, np.nan).to_numpy(zero_copy_only=False), _true(column.is_valid())


def _finite(x: Any, y: Any, z: Any, has_z: Mask) -> Mask:
    found: Mask = np.isfinite(x) & np.isfinite(y) & (~has_z | np.isfinite(z))
    return found


def _unfit(name: str, kind: pa.DataType, expected: str, advice: str = "cast the column, or rename it") -> Fault:
    return Fault(f"{expected} in the column {name}", f"the type {kind}", Mark(f"column {name}"), advice)


def _without_points(column: pa.Array) -> pa.Array:
    """A column of geometries without its points: these are stated by the place alone."""
    shapes = [geometry_of(value) for value in column.to_pylist()]
    points = pa.array([shape is not None and shape["type"] == "Point" for shape in shapes], pa.bool_())
    return pc.if_else(points, pa.scalar(None, column.type), column)


def _content(frame: pa.Table | pa.RecordBatch, row: int) -> bytes:
    """A row as a dead letter keeps it."""
    [found] = frame.slice(row, 1).to_pylist()
    return orjson.dumps(found, default=str, option=orjson.OPT_NON_STR_KEYS)[:KEPT_BYTES]
