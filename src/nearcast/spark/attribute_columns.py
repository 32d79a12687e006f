"""A DataFrame's columns before anything runs: which are needed, and whether events can be made of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from nearcast.api.frames import PLACES, events_of
from nearcast.api.required import check_columns
from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language.definitions.client_documents import GEOMETRY_NAMES
from nearcast.language.nodes import closest, listed
from nearcast.model.columns import EVENTS
from nearcast.model.expression import Call, attributes
from nearcast.model.filter import Filter, atoms
from nearcast.spark.archived_rows import is_archive

ARROW = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "int": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "char": pa.string(),
    "varchar": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
"""Spark's types whose values attributes can have, by their names, as Arrow's."""

WHERE = (*PLACES, *GEOMETRY_NAMES)
"""The columns that state where an event is: they are read together or not at all."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The columns of a DataFrame that are read: those that identify a row in the outcome, and those of its event.

    `cloudevents` is the one column of the event if it holds CloudEvents as JSON; `archived`: rows are those of an
    archive.
    """

    keep: tuple[str, ...]
    event: tuple[str, ...]
    cloudevents: str | None = None
    archived: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, each once."""
        return tuple(dict.fromkeys((*self.keep, *self.event)))

    def of(self, frame: DataFrame) -> DataFrame:
        """The DataFrame with these columns alone, in the order of `names`: Spark then reads no others from its files.

        They have other names, for `mapInArrow` takes a dot in a name for a field of a struct.
        """
        return frame.select([column(name).alias(f"c{number}") for number, name in enumerate(self.names)])


def column(name: str) -> Column:
    """The top column of this name, whatever characters are in it."""
    return F.col("`" + name.replace("`", "``") + "`")


def chosen(
    frame: DataFrame, keep: Sequence[str] | None, cloudevents: str | None, read: Sequence[str], filled: Sequence[str]
) -> Chosen:
    """The columns to read where the event's columns are `read`; `filled` are those that the outcome adds.

    Raises `DefinitionError` for columns that are not there, or of which no event can be made.
    """
    if isinstance(keep, str):
        keep = [keep]
    if keep is None:
        if cloudevents is None and "id" not in frame.columns:
            raise DefinitionError(no_id(frame, "say by keep=[…] which columns identify a row, or rename one to id"))
        keep = [] if cloudevents is not None else ["id"]
    for name in (*keep, *([cloudevents] if cloudevents is not None else ())):
        if name not in frame.columns:
            raise DefinitionError(missing(name, frame))
    for name in (*keep, *read):
        if frame.columns.count(name) > 1:
            raise _fault(f"one column {name}", f"{frame.columns.count(name)} of them", "rename or drop the others")
    for name in keep:
        if name in filled:
            raise _fault(f"columns to keep beside {listed(filled)}", name, f"rename the column {name}")
    if cloudevents is not None:
        _check_json(frame, cloudevents)
        return Chosen(tuple(dict.fromkeys(keep)), (cloudevents,), cloudevents)
    if is_archive(frame):
        # Payloads are most of the bytes, and only of events that change definitions are they read.
        columns = [name for name in EVENTS.names if name != "payload" or name in read]
        return Chosen(tuple(dict.fromkeys(keep)), tuple(columns), archived=True)
    _check(frame, read)
    return Chosen(tuple(dict.fromkeys(keep)), tuple(read))


def missing(name: str, frame: DataFrame) -> Fault:
    """What is wrong where a column is named that is not there."""
    return Fault(f"a column {name}", f"the columns {listed(frame.columns, 20)}", None, closest(name, frame.columns))


def no_id(frame: DataFrame, advice: str) -> Fault:
    """What is wrong where nothing identifies a row."""
    came = f"the columns {listed(frame.columns, 20)}"
    return Fault("a column id, by which the outcome names each row", came, None, advice)


def check_filters(filters: dict[str, Filter], frame: DataFrame) -> None:
    """Raises `DefinitionError` for filters that can never hold, as a column is not there."""
    fields = []
    for one in frame.schema:
        try:
            fields.append(pa.field(one.name, _arrow(one.dataType, Mark(""))))
        except Fault:
            # It is there, which is all that counts here; a filter that reads it has been refused.
            fields.append(pa.field(one.name, pa.binary()))
    check_columns(filters, pa.schema(fields))


def read_by(filters: Iterable[Filter], columns: Sequence[str], always: Sequence[str] = ()) -> list[str]:
    """The columns that filters read, and those of `always` that are there, in the order of the DataFrame."""
    if "specversion" in columns:
        # CloudEvents: which of their own attributes and of the fields of data an attribute is depends on both.
        return list(columns)
    names = {*always, "type"}
    for filter in filters:
        names.update(_read_by(filter))
    if names & set(WHERE):
        names.update(WHERE)
    return [one for one in columns if any(name == one or name.startswith(f"{one}.") for name in names)]


def _read_by(filter: Filter) -> Iterator[str]:
    for atom in atoms(filter):
        if isinstance(atom.name, str):
            yield atom.name
            continue
        # Places, and the event's own geometry, are stated by several columns.
        yield from WHERE
        if isinstance(atom.name, Call):
            yield from attributes(atom.name)


def _check(frame: DataFrame, names: Sequence[str]) -> None:
    """Raises `DefinitionError` with a fault for each column of which no event can be made."""
    faults: list[Fault] = []
    fields: list[pa.Field] = []
    for name in names:
        try:
            fields.append(pa.field(name, _arrow(frame.schema[name].dataType, Mark(f"column {name}"))))
        except Fault as fault:
            faults.append(fault)
    try:
        events_of(pa.schema(fields).empty_table())
    except Fault as fault:
        faults.append(fault)
    if faults:
        raise DefinitionError(faults)


def _arrow(kind: T.DataType, where: Mark) -> pa.DataType:
    """Spark's type as Arrow's. Raises `Fault` for one whose values no attribute can have."""
    if isinstance(kind, T.StructType):
        return pa.struct([pa.field(one.name, _arrow(one.dataType, where)) for one in kind])
    if isinstance(kind, T.ArrayType):
        return pa.list_(_arrow(kind.elementType, where))
    if isinstance(kind, T.MapType):
        return pa.map_(_arrow(kind.keyType, where), _arrow(kind.valueType, where))
    if isinstance(kind, T.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if kind.typeName() not in ARROW:
        advice = "cast the column to a number, text, boolean or timestamp"
        raise Fault("a type that an attribute can have", f"the type {kind.simpleString()}", where, advice)
    return ARROW[kind.typeName()]


def _check_json(frame: DataFrame, name: str) -> None:
    kind = frame.schema[name].dataType
    if kind.typeName() not in ("string", "binary", "varchar", "char"):
        advice = "for a column per attribute leave out cloudevents=; a struct becomes text by to_json"
        raise _fault("CloudEvents as JSON, text or bytes", f"the type {kind.simpleString()}", advice, name)


def _fault(expected: str, came: str, advice: str, name: str | None = None) -> DefinitionError:
    return DefinitionError(Fault(expected, came, None if name is None else Mark(f"column {name}"), advice))
