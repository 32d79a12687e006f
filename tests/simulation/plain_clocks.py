"""How far the clocks of channels have come, said plainly: one number for each, and one event after the other.

It stands for `StreamClocks` in the reference, so that a mistake there shows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa

from nearcast.model.arrays import Integers
from nearcast.model.changes import ClockTick
from nearcast.model.relation import Matching, Relation
from nearcast.model.subscription import Channel
from nearcast.relations.lanes.scopes import Lane
from nearcast.relations.reports import micros_of
from nearcast.relations.sides import sides_of
from nearcast.state.lateness import NEVER
from nearcast.state.stream_clocks import types_of

OF_OTHERS = ""
"""The name of the clock that all channels share that have none of their own."""


class PlainClocks:
    """The clocks of some channels, by name; `NEVER` while nothing told one a time."""

    def __init__(self, channels: Sequence[Channel] = (), times: Mapping[str, int] | None = None) -> None:
        self.channels = tuple(channels)
        self.names = (OF_OTHERS, *(one.name for one in channels if one.clock == "own"))
        self.by_name = {name: (times or {}).get(name, NEVER) for name in self.names}

    @property
    def single(self) -> bool:
        """Whether there is one clock."""
        return len(self.names) == 1

    def are_of(self, channels: Sequence[Channel]) -> bool:
        """Whether they are the clocks of these channels."""
        return self.channels == tuple(channels)

    def changes_with(self, channels: Sequence[Channel]) -> bool:
        """Whether other channels have other clocks."""
        return PlainClocks(channels).names != self.names

    def redefined(self, channels: Sequence[Channel], newest: pa.Table) -> PlainClocks:
        """Those of other channels: the first settings are before all events, so that nothing is to be taken over."""
        assert not len(newest), "channels stay as they are"
        return PlainClocks(channels, self.by_name)

    def numbers(self, events: pa.Table) -> Integers:
        """By which clock each event goes, by number."""
        names = [one if one in self.names else OF_OTHERS for one in events.column("channel").to_pylist()]
        return np.array([self.names.index(one) for one in names], np.int64)

    def over(self, numbers: Integers, moments: Integers) -> Integers:
        """How far each has come after each of some events; shape (clocks, events)."""
        times, found = list(self.by_name.values()), []
        for number, moment in zip(numbers.tolist(), moments.tolist(), strict=True):
            times[number] = max(times[number], moment)
            found.append(list(times))
        return np.array(found, np.int64).reshape(-1, len(self.names)).T

    def follow(self, numbers: Integers, moments: Integers) -> None:
        """Goes on to the end of some events."""
        for number, moment in zip(numbers.tolist(), moments.tolist(), strict=True):
            name = self.names[number]
            self.by_name[name] = max(self.by_name[name], moment)

    def set_to(self, values: Integers) -> None:
        """Goes on to these values, by number."""
        self.by_name = {
            name: max(self.by_name[name], own) for name, own in zip(self.names, values.tolist(), strict=True)
        }

    def follow_tick(self, tick: ClockTick) -> None:
        """Goes on to where a tick says."""
        told = {OF_OTHERS: tick.clock, **{name: one for name, one in tick.channels.items() if name in self.names}}
        self.by_name |= {name: max(self.by_name[name], micros_of(one)) for name, one in told.items()}

    def slowest(self, numbers: Collection[int] | None = None) -> int:
        """The least of some clocks, of those that were told a time."""
        names = [self.names[number] for number in numbers] if numbers is not None else self.names
        return min((self.by_name[name] for name in names if self.by_name[name] != NEVER), default=NEVER)


def plain_lane_of(relation: Relation, channels: Sequence[Channel]) -> Lane:
    """Where a relation is decided: with a lateness by the clocks of the channels whose events may be of its sides."""
    lateness = round(relation.lateness * 1e6)
    own = {one.name for one in channels if one.clock == "own"}
    if not lateness or not own:
        return relation.node, lateness, ()
    names = set[str]()
    for side in sides_of(relation):
        types = types_of(side.filter) if isinstance(side, Matching) else None
        taken = [_taking(one, channels) for one in types] if types is not None else [OF_OTHERS, *own]
        names |= {name if name in own else OF_OTHERS for name in taken}
    return relation.node, lateness, () if names == {OF_OTHERS} else tuple(sorted(names))


def _taking(type_: str, channels: Sequence[Channel]) -> str:
    """The channel that events of a type go to: the first that names it, else the first that names none."""
    named = [one.name for one in channels if type_ in one.types]
    return next(iter([*named, *(one.name for one in channels if not one.types)]), OF_OTHERS)
