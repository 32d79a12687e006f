"""What filters ask of an entity's previous event, followed through the batches: PREVIOUS and CHANGED."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.columns import VALUE_FIELDS, entries_of
from nearcast.model.event import OWN
from nearcast.model.expression import Call, remembered
from nearcast.model.filter import Filter, atoms
from nearcast.model.values import Value
from nearcast.state.repository import Repository, entities
from nearcast.state.timeline import Timeline

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


def names_of(table: pa.Table) -> frozenset[str]:
    """The attributes that some event of a table of EVENTS has."""
    own = (name for name in OWN if table.column(name).null_count < len(table))
    parts = [lists.flatten().field("name").unique().to_pylist() for lists in table.column("attributes").chunks]
    return frozenset(own).union(*parts)


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


def asked_of_previous(filter: Filter) -> list[str]:
    """The names of the attributes of the previous event that a filter reads."""
    return [name for atom in atoms(filter) if isinstance(atom.name, Call) for name in remembered(atom.name)]


class PreviousValues:
    """The newest values of the attributes in use, of every entity, as the next batch begins with them."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, tuple[Value, ...]]] = {}

    def values_over(
        self, names: Sequence[str], events: pa.Table, repository: Repository, counted: pa.Table | None = None
    ) -> dict[str, Timeline[str, tuple[Value, ...]]]:
        """The values over a batch, of the entities in it; `repository` lacks the batch yet.

        `counted`: its events as they are kept, without those that are late; the same unless it is given.
        """
        counted = events if counted is None else counted
        self._values = {name: self._values[name] for name in names if name in self._values}
        # A name that a new filter asks for was not followed so far: the repository has it all.
        new = [name for name in names if name not in self._values]
        if new:
            self._values |= _newest(new, repository.newest())
        if not names or not len(events):
            return {}
        asking = set(entities(events).to_pylist())
        about, positions = entities(counted).to_pylist(), counted.column("position").to_pylist()
        tracks = {}
        for name, rows in values_of(counted, names).items():
            known = self._values[name]
            # Workers get what their batch can ask for, not what all entities ever reported.
            tracks[name] = Timeline({entity: known[entity] for entity in asking if entity in known})
            for entity, position, values in zip(about, positions, rows, strict=True):
                tracks[name].record_change(entity, position, values)
            known.update(zip(about, rows, strict=True))
        return tracks

    def forget(self, entities: Collection[str]) -> None:
        """Drops what is known of some entities."""
        for values in self._values.values():
            for entity in entities:
                values.pop(entity, None)


def _newest(names: Sequence[str], events: pa.Table) -> dict[str, dict[str, tuple[Value, ...]]]:
    about = pc.cast(entities(events), pa.string()).to_pylist()
    return {name: dict(zip(about, rows, strict=True)) for name, rows in values_of(events, names).items()}
