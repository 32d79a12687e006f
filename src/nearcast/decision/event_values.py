"""The values of a few attributes out of columns: what is computed, or remembered, event by event."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.columns import VALUE_FIELDS, entries_of
from nearcast.model.event import OWN
from nearcast.model.values import Value

Rows = list[tuple[Value, ...]]
"""Of each event in turn the values of one attribute, in document order."""


def values_of(table: pa.Table, names: Iterable[str]) -> dict[str, Rows]:
    """The values of these attributes in a table of EVENTS, as `Event.values` gives them."""
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return {}
    found = _attributes(table, wanted)
    for name in OWN:
        if name in found:
            own = table.column(name).to_pylist()
            pairs = zip(own, found[name], strict=True)
            found[name] = [told if value is None else (value,) for value, told in pairs]
    return found


def _attributes(table: pa.Table, names: Sequence[str]) -> dict[str, Rows]:
    entries, lanes = entries_of(table)
    which = pc.index_in(entries.field("name"), value_set=pa.array(names, pa.string()))
    there = np.flatnonzero(np.asarray(which.is_valid()))
    chosen = entries.take(pa.array(there))
    gathered: list[list[list[Value]]] = [[[] for _ in range(len(table))] for _ in names]
    numbers = which.take(pa.array(there)).to_pylist()
    for lane, name, value in zip(lanes[there].tolist(), numbers, typed(chosen), strict=True):
        gathered[name][lane].append(value)
    return {name: [tuple(values) for values in rows] for name, rows in zip(names, gathered, strict=True)}


def typed(entries: pa.StructArray) -> list[Value]:
    """The value of each entry: a text that names a moment has its time beside it, and is the text."""
    values: list[Value | None] = [None] * len(entries)
    # The text comes after its time and replaces it.
    for field in reversed(VALUE_FIELDS):
        column = entries.field(field)
        for index, value in zip(
            np.flatnonzero(np.asarray(column.is_valid())).tolist(), column.drop_null().to_pylist(), strict=True
        ):
            values[index] = value
    return values  # type: ignore[return-value]
