"""What a server reads out of the journal when it is asked: what holds now, and the newest report of an entity.

The pipeline alone keeps relations, situations and the repository; what it told and what came in is in the journal. So
these are folds over it that go on from where they were, when they are asked.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.journal.seam import Journal
from nearcast.journal.snapshot_log import ACTIVE, base_table
from nearcast.model.columns import are_control
from nearcast.state.held_derivations import ActiveDerivation, HeldDerivations
from nearcast.state.lateness import moments_of
from nearcast.state.repository import entities

ROWS = 20_000
"""Positions that are read together."""

TRIES = 3
"""How often it is begun anew, where what is to be read is let go of meanwhile."""


class JournalViews:
    """What one server reads out of its journal."""

    def __init__(self, journal: Journal, active: int, entities: int) -> None:
        self.active = ActiveDerivations(journal, active)
        self.newest = NewestReports(journal, entities)


class ActiveDerivations:
    """The relations and situations that hold, and who is in which zone, as the log of derived events tells them.

    Where the oldest of these are gone, what held then is in the snapshot with which the journal begins. At most so many
    of each kind are kept: beyond it those that began first are left out.
    """

    def __init__(self, journal: Journal, most: int) -> None:
        self._journal, self._most = journal, most
        self._after = 0
        self._lock = threading.Lock()
        self._held = HeldDerivations(most)

    @property
    def left_out(self) -> dict[str, int]:
        """How many of each kind were left out."""
        return self._held.left_out

    def page(
        self, type_: str, after: int, limit: int, wanted: Callable[[dict[str, Any]], bool] = lambda data: True
    ) -> list[ActiveDerivation]:
        """At most `limit` of what holds and is wanted, in the order in which it began, behind the one of a sequence."""
        with self._lock:
            self._read_on()
            found = (one for one in self._held.each(type_) if one.sequence > after and wanted(one.data))
            return list(islice(found, limit))

    def _read_on(self) -> None:
        for _ in range(TRIES):
            self._begin()
            began, end = self._after, self._journal.end("derived")
            for rows in self._journal.row_ranges("derived", began, end, ROWS):
                self._held.fold(rows)
            self._after = max(began, end)
            # Derived events go with their causes: some that were not read yet may have gone meanwhile.
            if self._journal.trimmed("events") <= began:
                return

    def _begin(self) -> None:
        """Begins with the journal's snapshot where something is gone that was not read."""
        if self._after < self._journal.trimmed("events"):
            position, rows = base_table(self._journal, ACTIVE)
            if rows is not None:
                self._held, self._after = HeldDerivations(self._most, rows), position


class NewestReports:
    """Where in the journal the newest report of each entity is: the latest moment, among equals the later position.

    At most so many entities are known, those heard of last.
    """

    def __init__(self, journal: Journal, most: int) -> None:
        self._journal, self._most = journal, most
        self._after = 0
        self._lock = threading.Lock()
        self._places: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def payload(self, entity: str) -> tuple[int, bytes] | None:
        """The position and the CloudEvent of an entity's newest report; None where none is known."""
        with self._lock:
            self._read_on()
            found = self._places.get(entity)
        if found is None:
            return None
        rows = self._journal.read("events", found[1] - 1, 1)
        # What the journal let go of is known no more.
        return (found[1], rows.column("payload")[0].as_py()) if len(rows) else None

    def _read_on(self) -> None:
        end = self._journal.end("events")
        for rows in self._journal.row_ranges("events", self._after, end, ROWS):
            for entity, moment, position in _newest(rows.filter(pc.invert(are_control(rows)))):
                before = self._places.pop(entity, None)
                self._places[entity] = max(before, (moment, position)) if before else (moment, position)
            while len(self._places) > self._most:
                self._places.popitem(last=False)
        self._after = max(self._after, end)


def _newest(events: pa.Table) -> Iterator[tuple[str, int, int]]:
    """Of each entity in a table the newest report: its moment in microseconds, and its position."""
    if not len(events):
        return
    names = entities(events).combine_chunks().dictionary_encode()
    names = names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names
    times = moments_of(events)
    codes, positions = names.indices.to_numpy(), events.column("position").to_numpy()
    order = np.lexsort((positions, times, codes))
    last = order[np.append(np.diff(codes[order]) > 0, True)]
    # Those heard of last come last.
    for row in last[np.argsort(positions[last])].tolist():
        yield names.dictionary[int(codes[row])].as_py(), int(times[row]), int(positions[row])
