"""The clocks of a stream: one that channels share, and one each of the channels that have their own (semantics §11).

A clock is the greatest moment so far of the events of its channels; it never falls. Between events it goes on at the
pace of the wall clock; a tick in the journal says so where something falls due. What has several sides goes by the
slowest of their clocks: it is due when all of them have come so far.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.arrays import Integers
from nearcast.model.changes import ClockTick
from nearcast.model.filter import And, Atom, Filter, Operator, Or
from nearcast.model.subscription import Channel
from nearcast.model.values import microseconds_of, moment_at
from nearcast.state.lateness import FOREVER, NEVER, moments_of

SHARED = 0
"""The number of the clock that channels share; a channel's own have the next ones, in the order of definition."""

SHARED_NAME = ""
"""What stands for its name where clocks go by the names of their channels."""

Numbers = tuple[int, ...]
"""The numbers of some clocks."""


class StreamClocks:
    """How far each clock has come, in microseconds since 1970, by number; `NEVER` while nothing told it a time."""

    __slots__ = ("_by_type", "_channels", "_others", "names", "values")

    def __init__(self, channels: Sequence[Channel] = (), values: Mapping[str, int] | None = None) -> None:
        """`values` are by the names of channels, the shared one's by `SHARED_NAME`."""
        own = [one for one in channels if one.clock == "own"]
        self.names = (SHARED_NAME, *(one.name for one in own))
        known = values or {}
        self.values: Integers = np.array([known.get(name, NEVER) for name in self.names], np.int64)
        self._channels = tuple(channels)
        numbers = {one.name: number for number, one in enumerate(own, 1)}
        self._by_type: dict[str, int] = {}
        for one in channels:
            for type_ in one.types:
                self._by_type.setdefault(type_, numbers.get(one.name, SHARED))
        rest = next((one.name for one in channels if not one.types), SHARED_NAME)
        self._others = numbers.get(rest, SHARED)

    @staticmethod
    def alone(value: int = NEVER) -> StreamClocks:
        """One shared clock that has come so far."""
        return StreamClocks((), {SHARED_NAME: value})

    @property
    def single(self) -> bool:
        """Whether all channels share one clock."""
        return len(self.names) == 1

    @property
    def shared(self) -> int:
        """How far the shared clock has come."""
        return int(self.values[SHARED])

    @property
    def greatest(self) -> int:
        """How far the clock has come that is furthest."""
        return int(self.values.max())

    @property
    def by_name(self) -> dict[str, int]:
        """How far each has come, by its channel's name; the shared one by `SHARED_NAME`."""
        return dict(zip(self.names, self.values.tolist(), strict=True))

    def copy(self) -> StreamClocks:
        """Others that go on by themselves."""
        return StreamClocks(self._channels, self.by_name)

    def slowest(self, numbers: Collection[int] | None = None) -> int:
        """The least of some clocks, or of all, of those that are set: a channel in which nothing came holds up none."""
        values = self.values if numbers is None else self.values[[*numbers]]
        known = values[values != NEVER]
        return int(known.min()) if len(known) else NEVER

    def taking(self, types: Iterable[str] | None) -> Numbers:
        """The clocks of the channels to which events of these types go; of all, where it is not known which types."""
        if self.single:
            return (SHARED,)
        if types is None:
            return tuple(range(len(self.names)))
        return tuple(sorted({self._by_type.get(one, self._others) for one in types}))

    def numbers(self, events: pa.Table) -> Integers:
        """The clock of each event of a table of EVENTS: that of the channel under which it entered."""
        if self.single:
            return np.zeros(len(events), np.int64)
        known = pa.array(self.names[1:], pa.string())
        found = pc.index_in(events.column("channel"), value_set=known)
        return pc.fill_null(pc.add(found, 1), SHARED).to_numpy().astype(np.int64)

    def over(self, numbers: Integers, moments: Integers) -> Integers:
        """Each clock at the rows of a stretch, given whose moments these are; shape (clocks, rows)."""
        if self.single:
            return np.maximum(np.maximum.accumulate(moments), self.values[SHARED])[np.newaxis]
        own = np.where(np.arange(len(self.values))[:, np.newaxis] == numbers, moments, NEVER)
        return np.maximum(np.maximum.accumulate(own, axis=1), self.values[:, np.newaxis])

    def follow_events(self, events: pa.Table) -> None:
        """Goes on to the end of a table of EVENTS."""
        if len(events):
            self.follow(self.numbers(events), moments_of(events))

    def follow(self, numbers: Integers, moments: Integers) -> None:
        """Goes on to the end of a stretch, given whose moments these are; the same as `over` gives for its last row."""
        if not self.single:
            self.set_to(self.over(numbers, moments)[:, -1])
        elif moments.max() > self.values[SHARED]:
            self.values = moments.max(keepdims=True)

    def follow_tick(self, tick: ClockTick) -> None:
        """Goes on to where a tick says; what it says of channels that have no clock of their own does not count."""
        told = {name: microseconds_of(one) for name, one in tick.channels.items()}
        if tick.clock is not None:
            told[SHARED_NAME] = microseconds_of(tick.clock)
        self.set_to(np.array([told.get(name, NEVER) for name in self.names], np.int64))

    def tick(self) -> ClockTick:
        """What brings others to where these are, as far as they are set."""
        told = {name: moment_at(value) for name, value in self.by_name.items() if value != NEVER}
        return ClockTick(told.pop(SHARED_NAME, None), told)

    def set_to(self, values: Integers) -> None:
        """Goes on to these values, by number; none falls."""
        self.values = np.maximum(self.values, values)

    def are_of(self, channels: Sequence[Channel]) -> bool:
        """Whether they are the clocks of these channels."""
        return channels is self._channels or tuple(channels) == self._channels

    def with_values(self, values: Mapping[str, int]) -> StreamClocks:
        """The same clocks that have come so far, by name; `NEVER` those that are not named."""
        return StreamClocks(self._channels, values)

    def later(self, span: int) -> StreamClocks:
        """The same so many microseconds later, as far as they are set."""
        return self.with_values({name: value + span for name, value in self.by_name.items() if value != NEVER})

    def changes_with(self, channels: Sequence[Channel]) -> bool:
        """Whether other channels have other clocks."""
        return StreamClocks(channels).names != self.names

    def redefined(self, channels: Sequence[Channel], newest: pa.Table) -> StreamClocks:
        """The clocks of other channels. A new one is at the greatest moment among the newest events of entities; the
        shared one is not behind what shares it now.
        """
        before = self.by_name
        found = StreamClocks(channels, before)
        gone = [value for name, value in before.items() if name not in found.names]
        found.values[SHARED] = max([found.shared, *gone])
        if found.names != self.names:
            new = np.array([name not in before for name in found.names])
            known = found.over(found.numbers(newest), moments_of(newest))[:, -1] if len(newest) else found.values
            found.values = np.where(new, known, found.values)
        return found

    def wait(self, due: Integers, numbers: Integers | None = None) -> int:
        """Microseconds until the first of some clocks comes to what is due by it; not positive where one has. `FOREVER`
        where nothing is due. Without `numbers` all is due by the shared clock.
        """
        if self.single or numbers is None:
            first, now = int(due.min(initial=FOREVER)), self.shared
            return FOREVER if first == FOREVER or now == NEVER else first - now
        return int(self.waits(due, numbers).min(initial=FOREVER))

    def waits(self, due: Integers, numbers: Integers) -> Integers:
        """The same of each."""
        now = self.values[numbers]
        known = (due != FOREVER) & (now != NEVER)
        return np.where(known, np.where(known, due, 0) - np.where(known, now, 0), FOREVER)


def slowest_over(series: Integers, numbers: Sequence[int], since: int = NEVER) -> Integers:
    """The slowest of some clocks at the rows of a stretch, of those that are set; it never falls, nor below `since`."""
    if len(series) == 1:
        return series[0]
    own = series[[*numbers]]
    least = np.where(own == NEVER, FOREVER, own).min(axis=0)
    return np.maximum(np.maximum.accumulate(np.where(least == FOREVER, NEVER, least)), since)


def types_of(filter: Filter) -> frozenset[str] | None:
    """The types that events may have which a filter selects; None where it does not say."""
    match filter:
        case Atom(name="type", operator=Operator.EQ | Operator.IN):
            return frozenset(one for one in filter.literals if isinstance(one, str))
        case And(children):
            known = [found for found in map(types_of, children) if found is not None]
            return frozenset.intersection(*known) if known else None
        case Or(children):
            each = [types_of(one) for one in children]
            return None if None in each else frozenset().union(*(one for one in each if one is not None))
        case _:
            return None
