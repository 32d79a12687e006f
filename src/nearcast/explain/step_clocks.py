"""The clocks of a history that is gone through step by step, by name: that of each channel that has one of its own, and
the one that the others share (semantics §11). What `StreamClocks` has for columns, for one event at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import pyarrow as pa

from nearcast.model.changes import ClockTick
from nearcast.model.columns import EVENTS
from nearcast.model.subscription import Channel
from nearcast.model.values import microseconds_of
from nearcast.state.lateness import NEVER
from nearcast.state.stream_clocks import SHARED_NAME, StreamClocks


class StepClocks:
    """How far each clock has come, in microseconds since 1970; `NEVER` while nothing told it a time."""

    def __init__(self, channels: Sequence[Channel] = ()) -> None:
        self.channels = tuple(channels)
        self._values = StreamClocks(channels).by_name

    @staticmethod
    def of_newest(channels: Sequence[Channel], newest: Callable[[], pa.Table] | None) -> StepClocks:
        """As far as the newest events of all entities bring them."""
        clocks, found = StreamClocks(channels), StepClocks(channels)
        clocks.follow_events(newest() if newest is not None else EVENTS.empty_table())
        found._values = clocks.by_name
        return found

    def copy(self) -> StepClocks:
        """Others that go on by themselves."""
        found = StepClocks(self.channels)
        found._values = dict(self._values)
        return found

    @property
    def shared(self) -> int:
        """How far the shared clock has come."""
        return self._values[SHARED_NAME]

    @property
    def own(self) -> dict[str, int]:
        """How far those have come that channels have of their own, by their names."""
        return {name: value for name, value in self._values.items() if name != SHARED_NAME}

    @property
    def greatest(self) -> int:
        """How far the clock has come that is furthest."""
        return max(self._values.values())

    def name_of(self, channel: str | None) -> str:
        """By which clock the events of a channel go."""
        return channel if channel is not None and channel in self._values else SHARED_NAME

    def of(self, channel: str | None) -> int:
        """How far the clock has come by which the events of a channel go."""
        return self._values[self.name_of(channel)]

    def slowest(self, names: Collection[str]) -> int:
        """The least of some clocks, of those that are set."""
        return min((self._values[one] for one in names if self._values[one] != NEVER), default=NEVER)

    def follow_event(self, channel: str | None, moment: int) -> None:
        """Goes on to the moment of an event."""
        name = self.name_of(channel)
        self._values[name] = max(self._values[name], moment)

    def follow_tick(self, tick: ClockTick) -> None:
        """Goes on to where a tick says."""
        told = {name: microseconds_of(one) for name, one in tick.channels.items()}
        if tick.clock is not None:
            told[SHARED_NAME] = microseconds_of(tick.clock)
        self._values = {name: max(value, told.get(name, NEVER)) for name, value in self._values.items()}

    def redefine(self, channels: Sequence[Channel], newest: Callable[[], pa.Table] | None) -> bool:
        """Goes on by the clocks of other channels, given the newest events of all entities; whether they are others."""
        before = StreamClocks(self.channels, self._values)
        changed = before.changes_with(channels)
        table = newest() if changed and newest is not None else EVENTS.empty_table()
        self.channels = tuple(channels)
        self._values = before.redefined(channels, table).by_name
        return changed
