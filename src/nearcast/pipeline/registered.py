"""The registry in a snapshot: the control events that fold to it, as rows of EVENTS, in its order.

To write a hundred thousand definitions takes seconds, for which the pipeline would stand still. So a file is made of
the one before it, and of what was defined since.
"""

from __future__ import annotations

from operator import is_
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather

from nearcast.decision.registry import Registry, change_of
from nearcast.language.control import changes, to_event
from nearcast.model.columns import EVENTS, to_events, to_table

ID = "definition"
"""The id of all rows: what was published had its own, and is not asked for any more."""


class Written(NamedTuple):
    """A file and the registry that it has, row by row."""

    file: Path
    registry: Registry

    def has(self, registry: Registry) -> bool:
        """Whether another registry is the same, by the very objects: to compare them takes as long as to write them."""
        own, others = list(self.registry.held()), list(registry.held())
        return len(own) == len(others) and all(map(is_, own, others))


def rows(registry: Registry, before: Written | None = None) -> pa.Table:
    """The rows of a registry; those of definitions that are in a file before are taken from there."""
    old = feather.read_table(str(before.file)) if before else EVENTS.empty_table()
    # None of these goes while the registry before keeps it.
    row_of = {id(one): row for row, one in enumerate(before.registry.held() if before else ())}
    if len(old) != len(row_of):
        # Not row by row what the registry has; no version is known to have written such a file.
        return rows(registry)
    listed = list(registry.held())
    found = np.array([row_of.get(id(one), -1) for one in listed], np.int64)
    new = np.flatnonzero(found < 0)
    fresh = to_table(to_event(change_of(listed[number]), ID, "nearcast") for number in new.tolist())
    found[new] = len(row_of) + np.arange(len(new))
    return pa.concat_tables([old, fresh]).take(found)


def registry_of(rows: pa.Table) -> Registry:
    """The registry that rows fold to. Raises EventError for one that is no control event of this version."""
    registry = Registry()
    for event in to_events(rows):
        for change in changes(event, registry.settings):
            registry.apply(change)
    return registry
