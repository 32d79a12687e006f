"""What a server reads out of the journal when it is asked: what holds now, and the newest report of an entity.

The pipeline alone keeps relations, situations and the repository; what it told and what came in is in the journal. So
these are folds over it that go on from where they were, when they are asked.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.journal.seam import Journal
from nearcast.model.columns import are_control, to_events
from nearcast.model.relation import RELATION_EVENT
from nearcast.model.situation import SITUATION_TYPE
from nearcast.model.zone import ZONE_EVENT
from nearcast.state.lateness import moments_of
from nearcast.state.repository import entities

ROWS = 20_000
"""Positions that are read together."""


@dataclass(frozen=True, slots=True)
class ActiveDerivation:
    """What holds: since which event, by its sequence, and the data of the newest that told of it."""

    sequence: int
    data: dict[str, Any]


class JournalViews:
    """What one server reads out of its journal."""

    def __init__(self, journal: Journal, active: int, entities: int) -> None:
        self.active = ActiveDerivations(journal, active)
        self.newest = NewestReports(journal, entities)


class ActiveDerivations:
    """The relations and situations that hold, and who is in which zone, as the log of derived events tells them.

    At most so many of each kind are kept: beyond it those that began first are left out.
    """

    def __init__(self, journal: Journal, most: int) -> None:
        self._journal, self._most = journal, most
        self._after = 0
        self._lock = threading.Lock()
        self._held: dict[str, OrderedDict[tuple[str, ...], ActiveDerivation]] = {
            RELATION_EVENT: OrderedDict(),
            SITUATION_TYPE: OrderedDict(),
            ZONE_EVENT: OrderedDict(),
        }
        self.left_out = dict.fromkeys(self._held, 0)

    def page(
        self, type_: str, after: int, limit: int, wanted: Callable[[dict[str, Any]], bool] = lambda data: True
    ) -> list[ActiveDerivation]:
        """At most `limit` of what holds and is wanted, in the order in which it began, behind the one of a sequence."""
        with self._lock:
            self._read_on()
            found: list[ActiveDerivation] = []
            for one in self._held[type_].values():
                if one.sequence > after and wanted(one.data):
                    found.append(one)
                    if len(found) == limit:
                        break
            return found

    def _read_on(self) -> None:
        end = self._journal.end("derived")
        for rows in self._journal.row_ranges("derived", self._after, end, ROWS):
            reporting = rows.filter(pc.is_in(rows.column("type"), pa.array(list(self._held))))
            for event in to_events(reporting):
                self._take(event.type, event.sequence, orjson.loads(event.payload).get("data", {}))
        self._after = max(self._after, end)

    def _take(self, type_: str, sequence: int, data: dict[str, Any]) -> None:
        held = self._held[type_]
        if data.get("detect") == "outside":
            # Of a layer, and nothing that began.
            return
        key, ended = _KEYS[type_](data)
        before = held.get(key)
        if ended:
            held.pop(key, None)
            return
        # Its place in the order is that of its beginning, whatever is told of it later.
        held[key] = ActiveDerivation(before.sequence if before else sequence, data)
        if len(held) > self._most:
            held.popitem(last=False)
            self.left_out[type_] += 1


def _relation_key(data: dict[str, Any]) -> tuple[tuple[str, ...], bool]:
    """Of a pair both names, of a gathering the one in its middle; and whether it has ended."""
    other = data["b"] if isinstance(data.get("b"), str) else ""
    return (data["relation"], data["a"], other), data["detect"] == "exit"


def _zone_key(data: dict[str, Any]) -> tuple[tuple[str, ...], bool]:
    """Who is in which zone; and whether that has ended."""
    return (data["layer"], data["entity"], data["zone"]), data["detect"] == "exit"


_KEYS: dict[str, Callable[[dict[str, Any]], tuple[tuple[str, ...], bool]]] = {
    RELATION_EVENT: _relation_key,
    SITUATION_TYPE: lambda data: ((data["id"],), data["phase"] == "end"),
    ZONE_EVENT: _zone_key,
}
"""Of what is told: what names it, and whether it has ended."""


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
