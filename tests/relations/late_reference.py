"""Relations of one lateness, plainly: what waits is looked through at every step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from nearcast.model.changes import Change, ClientChange, ClientRemoval, ClockTick, RelationChange, RelationRemoval
from nearcast.model.event import Event
from nearcast.model.limits import Limits
from nearcast.relations.reports import micros_of
from nearcast.relations.transition_events import Transition
from nearcast.state.derived import Cause
from nearcast.state.lateness import NEVER
from nearcast.state.stream_clocks import SHARED_NAME
from nearcast.testing.relations import left_windows, plain_relations


class LateReference:
    """Tells, in `told`, what relations tell whose reports wait until the clock is `lateness` seconds further.

    `names` are the channels by whose clocks they go, of the slowest, and whose reports they hear; `own` are all
    channels that have a clock of their own, `SHARED_NAME` stands for the others.
    """

    def __init__(self, lateness: float, names: Collection[str] = (SHARED_NAME,), own: Collection[str] = ()) -> None:
        self._late, self._names = round(lateness * 1e6), tuple(names) or (SHARED_NAME,)
        self._clocks = dict.fromkeys((SHARED_NAME, *own), NEVER)
        self._plain, self._sequence, self._clock = plain_relations(), 0, NEVER
        self._newest: dict[str, Event] = {}
        self._waiting: list[Event] = []
        self._gone: set[str] = set()
        self._passed = NEVER
        self.told: list[Event] = []

    def report(self, event: Event) -> None:
        """A report comes, and the time that it brings."""
        known = self._newest.get(event.entity)
        if known is None or micros_of(event.moment) >= micros_of(known.moment):
            self._newest[event.entity] = event
        if not len(self._plain):
            return
        self._go_on({self._channel(event): micros_of(event.moment)})
        if self._channel(event) in self._names:
            self._waiting.append(event)
            self._release(Cause(event.position, event.moment, event.accepted))

    def limit(self, limits: Limits) -> None:
        """Goes on within limits."""
        self._plain.limits = limits

    def forget(self, names: Collection[str]) -> None:
        """Forgets entities; what ends by that is told with what counts next, or with the time that passes."""
        self._newest = {name: one for name, one in self._newest.items() if name not in names}
        self._gone |= set(names) if len(self._plain) else set()

    def _forgotten(self) -> list[Transition]:
        gone, self._gone = sorted(self._gone), set()
        return self._plain.forget(gone) if gone else []

    def tick(self, tick: ClockTick, cause: Cause) -> None:
        """Time passes though nothing comes."""
        if len(self._plain):
            told = {name: micros_of(one) for name, one in tick.channels.items()}
            self._go_on(told if tick.clock is None else {SHARED_NAME: micros_of(tick.clock), **told})
            self._release(cause)

    def _channel(self, event: Event) -> str:
        return event.channel if event.channel in self._clocks else SHARED_NAME

    def _go_on(self, clocks: Mapping[str, int]) -> None:
        self._clocks = {name: max(value, clocks.get(name, NEVER)) for name, value in self._clocks.items()}
        known = [self._clocks[name] for name in self._names if self._clocks[name] != NEVER]
        self._clock = max(self._clock, min(known, default=NEVER))

    def _release(self, cause: Cause) -> None:
        """What waited long enough counts, each at its own moment, and then time passes."""
        due = sum(micros_of(one.moment) + self._late <= self._clock for one in self._waiting)
        # Beyond the limit the earliest count early.
        due = max(due, len(self._waiting) - self._plain.limits.waiting_reports)
        for event in sorted(self._waiting, key=lambda one: (micros_of(one.moment), one.position))[:due]:
            own, ended = Cause(cause.position, event.moment, cause.accepted), self._forgotten()
            self._leave_windows(micros_of(event.moment), own)
            self._tell([*ended, *self._plain.report(event)], own)
            self._waiting.remove(event)
        if self._clock != NEVER:
            passing = self._clock - self._late
            ended = self._forgotten() if passing > self._passed else []
            self._passed = max(self._passed, passing)
            self._leave_windows(passing, cause)
            self._tell([*ended, *self._plain.pass_time(passing)], cause)

    def _begin(self) -> None:
        """Begins with the newest report of each entity, as if nothing had been before."""
        self._clocks, self._clock = dict.fromkeys(self._clocks, NEVER), NEVER
        for event in self._newest.values():
            self._go_on({self._channel(event): micros_of(event.moment)})
        self._clock = NEVER
        self._go_on({})
        heard = [one for one in self._newest.values() if self._channel(one) in self._names]
        self._plain.begin(heard)
        self._plain.set_clocks({}, self._clock)
        self._passed = self._clock

    def _leave_windows(self, now: int, cause: Cause) -> None:
        """Readings leave windows until the clock comes to `now`."""
        self.told += left_windows(self._plain, now, cause, self._told_at(cause) + 1)

    def _tell(self, found: Sequence[Transition], cause: Cause) -> None:
        """Parts go on, however many causes have one position."""
        self.told += self._plain.told(found, cause, self._told_at(cause) + 1)

    def _told_at(self, cause: Cause) -> int:
        return sum(1 for one in self.told if one.position == cause.position)

    def change(self, change: Change, cause: Cause) -> None:
        """What a definition or a list changes."""
        plain = self._plain
        plain.note_lists(change)
        found: list[Transition] = []
        match change:
            case RelationChange(relation) if plain.relation(relation.id) != relation:
                if not len(plain):
                    self._begin()
                found = plain.end(relation.id)
                self._sequence += 1
                found += plain.define(relation, self._sequence, plain.as_of(cause), self._gone)
            case RelationRemoval(id):
                found = plain.end(id)
            case ClientChange() | ClientRemoval():
                found = plain.relisted(change.client, plain.as_of(cause))
        self._tell(found, plain.as_of(cause))
        if not len(plain):
            self._waiting.clear()
            self._gone.clear()
            self._passed = NEVER
