"""A registry as rows of control events: those that it is written as, and the registry that rows come to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import is_
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather

from nearcast.errors import EventError
from nearcast.language.control_events import changes, to_event
from nearcast.model.changes import ClientChange, ZoneShapesChange
from nearcast.model.columns import EVENTS, control_events, to_events, to_table
from nearcast.model.event import Event
from nearcast.model.zone import Zone
from nearcast.state.registry import Held, Registry, change_of

ID = "definition"
"""The id of all rows: what was published had its own, and is not asked for any more."""


class WrittenRegistry(NamedTuple):
    """A file and the registry that it has, row by row."""

    file: Path
    registry: Registry

    def has(self, registry: Registry) -> bool:
        """Whether another registry is the same, by the very objects: to compare them takes as long as to write them."""
        own, others = list(self.registry.held()), list(registry.held())
        return len(own) == len(others) and all(map(is_, own, others))


def held_rows(held: Iterable[Held]) -> pa.Table:
    """A row of `EVENTS` for each definition."""
    return to_table(to_event(change_of(one), ID, "nearcast") for one in held)


def registry_rows(registry: Registry, before: WrittenRegistry | None = None) -> pa.Table:
    """The rows of a registry; those of definitions that are in a file before are taken from there."""
    old = feather.read_table(str(before.file)) if before else EVENTS.empty_table()
    # None of these goes while the registry before keeps it.
    row_of = {id(one): row for row, one in enumerate(before.registry.held() if before else ())}
    if len(old) != len(row_of):
        # Not row by row what the registry has; no version is known to have written such a file.
        return registry_rows(registry)
    listed = list(registry.held())
    found = np.array([row_of.get(id(one), -1) for one in listed], np.int64)
    new = np.flatnonzero(found < 0)
    fresh = held_rows(listed[number] for number in new.tolist())
    found[new] = len(row_of) + np.arange(len(new))
    return pa.concat_tables([old, fresh]).take(found)


def registry_of(rows: pa.Table) -> Registry:
    """The registry that rows were written of. Raises EventError for one that is no control event of this version."""
    registry = Registry()
    restore_registry(registry, rows)
    return registry


def restore_registry(registry: Registry, rows: pa.Table) -> None:
    """As `registry_of`, into a registry that has nothing yet."""
    zones = list[Zone]()
    for event in to_events(rows):
        for change in changes(event, registry.settings):
            # One by one, each would copy those before it.
            if isinstance(change, ZoneShapesChange):
                zones += change.zones
            else:
                registry.apply(change, limited=False)
    registry.restore_zones(zones)


def control_events_of(tables: Iterable[pa.Table]) -> Iterator[Event]:
    """The control events of a journal's rows."""
    for table in tables:
        yield from control_events(table)


def apply_event(registry: Registry, event: Event, clients_only: bool = False) -> None:
    """Applies a control event; one that is refused is among the dead letters, and for everybody else it never was."""
    try:
        for change in changes(event, registry.settings):
            if isinstance(change, ClientChange) or not clients_only:
                registry.apply(change)
    except EventError:
        return
