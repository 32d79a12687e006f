"""What holds, as the events tell it that were derived: relations, situations, who is in which zone.

A fold over the log of derived events. What it comes to can be written as rows, and a fold be begun with these.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.relation import RELATION_EVENT
from nearcast.model.sequence import sequence
from nearcast.model.situation import SITUATION_TYPE
from nearcast.model.zone import ZONE_EVENT

MOST_HELD = 100_000
"""Of each kind that are kept."""

_COLUMNS: list[tuple[str, pa.DataType]] = [("type", pa.string()), ("began", pa.int64()), ("data", pa.binary())]
HELD = pa.schema(_COLUMNS)
"""A row for what holds: the type of its events, the sequence of the one with which it began, the newest one's data."""

LEFT_OUT = b"left out"
"""Under this name the metadata of rows say how many of each type are missing."""


@dataclass(frozen=True, slots=True)
class ActiveDerivation:
    """What holds: since which event, by its sequence, and the data of the newest that told of it."""

    sequence: int
    data: dict[str, Any]


class HeldDerivations:
    """What holds now of each kind, at most so many: beyond it those that began first are left out."""

    def __init__(self, most: int = MOST_HELD, rows: pa.Table | None = None) -> None:
        """Begins with `rows` of HELD, if given."""
        self._most = most
        self._held: dict[str, OrderedDict[tuple[str, ...], ActiveDerivation]] = {one: OrderedDict() for one in _KEYS}
        self.left_out = dict.fromkeys(_KEYS, 0)
        if rows is not None:
            self.left_out |= orjson.loads((rows.schema.metadata or {}).get(LEFT_OUT, b"{}"))
            for type_, began, data in zip(*(rows.column(name).to_pylist() for name in HELD.names), strict=True):
                self._take(type_, began, orjson.loads(data))

    def fold(self, derived: pa.Table) -> None:
        """Takes note of derived events, rows of EVENTS in their order."""
        telling = derived.filter(pc.is_in(derived.column("type"), pa.array(list(self._held))))
        columns = (telling.column(name).to_pylist() for name in ("type", "position", "part", "payload"))
        for type_, position, part, payload in zip(*columns, strict=True):
            self._take(type_, sequence(position, part), orjson.loads(payload).get("data", {}))

    def each(self, type_: str) -> Iterator[ActiveDerivation]:
        """What holds of one kind, in the order in which it began."""
        return iter(self._held[type_].values())

    def rows(self) -> pa.Table:
        """All of it as rows of HELD."""
        every = [(type_, one) for type_ in self._held for one in self.each(type_)]
        columns = [
            [type_ for type_, _ in every],
            [one.sequence for _, one in every],
            [orjson.dumps(one.data) for _, one in every],
        ]
        table = pa.table(columns, HELD)
        return table.replace_schema_metadata({LEFT_OUT: orjson.dumps(self.left_out)})

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
