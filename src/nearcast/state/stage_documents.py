"""What a stage keeps, as data: a document in JSON, and tables in Arrow. Nothing in it is code.

A stage is made again from its document and the registry of the same position. What follows from other things, such as
an index or a compiled rule, is in no document.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa

from nearcast.model.columns import EVENTS, TIME, VALUE_FIELDS, to_events, to_table
from nearcast.model.event import Event, Place
from nearcast.model.values import Value
from nearcast.state.registry import Held

T = TypeVar("T")

PLACE_FIELDS = [("coordinates", pa.string()), ("x", pa.float64()), ("y", pa.float64()), ("z", pa.float64())]
"""The columns of a place; all are null of what is nowhere."""

VALUE = pa.struct(
    [("integer", pa.int64()), ("double", pa.float64()), ("text", pa.string()), ("boolean", pa.bool_()), ("time", TIME)]
)
"""A value: exactly one field is set."""

_TYPES: dict[str, type] = {"integer": int, "double": float, "text": str, "boolean": bool, "time": datetime}

Reference = str | int
"""What is defined: by its id, where the registry has it as it is; else by its number among a document's own."""


@dataclass(slots=True)
class StageDocument:
    """What a stage keeps: `values` of JSON, `tables` by name, `definitions` that are not the registry's any more."""

    values: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, pa.Table] = field(default_factory=dict)
    definitions: list[Held] = field(default_factory=list)

    def refer(self, held: Any, defined: Mapping[str, Any]) -> Reference:
        """The reference to something that has an id, `defined` being the registry's by id."""
        if defined.get(held.id) == held:
            id: str = held.id
            return id
        self.definitions.append(held)
        return len(self.definitions) - 1

    def referred(self, reference: Reference, defined: Mapping[str, T], kind: type[T]) -> T:
        """What a reference is to. Raises LookupError for one to nothing, TypeError for one of another kind."""
        found = defined[reference] if isinstance(reference, str) else self.definitions[reference]
        if not isinstance(found, kind):
            raise TypeError(f"expected a {kind.__name__}, got a {type(found).__name__}")
        return found

    def add_table(self, name: str, table: pa.Table) -> None:
        """Adds a table that has rows; one without says nothing."""
        if len(table):
            self.tables[name] = table

    def table(self, name: str, schema: pa.Schema) -> pa.Table:
        """A table. Raises ArrowInvalid where its columns are not those of this version."""
        found = self.tables.get(name, schema.empty_table())
        if not found.schema.equals(schema):
            raise pa.ArrowInvalid(f"expected the columns {schema.names} of {name}, got {found.schema.names}")
        return found


def numbered_events(events: Iterable[Event], numbers: Collection[int]) -> pa.Table:
    """Events with a number each; a table of `NUMBERED`."""
    return to_table(events).append_column("number", pa.array(list(numbers), pa.int64()))


def events_by_number(table: pa.Table) -> Iterable[tuple[int, Event]]:
    """The numbers and events of a table of `NUMBERED`."""
    return zip(table.column("number").to_pylist(), to_events(table.select(EVENTS.names)), strict=True)


NUMBERED = EVENTS.append(pa.field("number", pa.int64()))
"""An event and a number beside it."""


def place_columns(places: Sequence[Place | None]) -> dict[str, pa.Array]:
    """Places as the columns of `PLACE_FIELDS`."""
    return {
        name: pa.array([None if place is None else getattr(place, name) for place in places], kind)
        for name, kind in PLACE_FIELDS
    }


def value_column(values: Sequence[Value]) -> pa.StructArray:
    """Values as an array of `VALUE`."""
    # By exact type: in Python a bool is an integer.
    columns = [
        pa.array([one if type(one) is _TYPES[name] else None for one in values], VALUE.field(name).type)
        for name in VALUE_FIELDS
    ]
    return pa.StructArray.from_arrays(columns, fields=list(VALUE))


def values_in(column: pa.ChunkedArray) -> list[Value]:
    """The values of a column of `VALUE`. Raises TypeError where one has no field set."""
    array = column.combine_chunks()
    array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
    found: list[Any] = [None] * len(array)
    for name in VALUE_FIELDS:
        found = [one if own is None else own for one, own in zip(found, array.field(name).to_pylist(), strict=True)]
    if None in found:
        raise TypeError("expected a value in every row, got none")
    return found
