"""Which entities are forgotten, and when, said plainly: what is kept of each is a row, and all rows are looked at."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pyarrow as pa

from nearcast.model.columns import to_events
from nearcast.model.limits import Limits
from nearcast.relations.reports import micros_of
from nearcast.state.entity_ledger import SWEEP
from nearcast.state.lateness import NEVER
from nearcast.state.repository import sizes_of, without_excess


@dataclass(frozen=True)
class Kept:
    """The newest report of an entity, with the bytes that it takes."""

    moment: int
    position: int
    size: int
    derived: bool


class PlainLedger:
    """What is kept of entities within limits, event by event."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}

    def fold(self, table: pa.Table, limits: Limits) -> list[str]:
        """Takes in an event, with what was derived of it behind it; who is to be forgotten after it."""
        table = without_excess(table, limits.entity_bytes)
        before, due = self._published(), False
        for event, size in zip(to_events(table), sizes_of(table).tolist(), strict=True):
            moment, known = micros_of(event.moment), self._kept.get(event.entity)
            if event.part or known is None or moment == NEVER or moment >= known.moment:
                self._kept[event.entity] = Kept(moment, event.position, size, event.part > 0)
                # Only what was published brings something beyond a limit; what was derived goes with it.
                due |= not event.part and self._is_due(before, limits)
        return self._oldest(limits) if due else []

    def _published(self) -> list[Kept]:
        return [one for one in self._kept.values() if not one.derived]

    def _is_due(self, before: list[Kept], limits: Limits) -> bool:
        """Whether something is to be forgotten after an event, `before` which there was this of those published."""
        after = self._published()
        swept = max(one.position for one in after) // SWEEP > max((one.position for one in before), default=0) // SWEEP
        aged = False
        if before and limits.entity_age < math.inf:
            step = max(1, int(limits.entity_age * 1e6) // 10)
            aged = max(one.moment for one in after) // step > max(one.moment for one in before) // step
        return swept or aged or len(after) > limits.entities or _size(after) > limits.entities_bytes

    def _oldest(self, limits: Limits) -> list[str]:
        """Who is too old, and of those published and those derived each the oldest beyond nine tenths."""
        gone = set[str]()
        if limits.entity_age < math.inf:
            bound = max(one.moment for one in self._kept.values()) - int(limits.entity_age * 1e6)
            gone = {name for name, one in self._kept.items() if one.moment < bound}
        for derived in (False, True):
            own = [name for name, one in self._kept.items() if one.derived is derived and name not in gone]
            own.sort(key=lambda name: -self._kept[name].position)
            sizes = [self._kept[name].size for name in own]
            left = len(own) if len(own) <= limits.entities else limits.entities * 9 // 10
            if sum(sizes) > limits.entities_bytes:
                left = min(left, sum(sum(sizes[: n + 1]) <= limits.entities_bytes * 9 // 10 for n in range(len(own))))
            gone |= {*own[max(1, left) :]}
        for name in gone:
            del self._kept[name]
        return sorted(gone)


def _size(kept: list[Kept]) -> int:
    return sum(one.size for one in kept)
