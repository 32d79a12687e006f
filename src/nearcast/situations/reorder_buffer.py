"""The rules that await readings equally long, and how they take readings in: each at its own time, within that."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from heapq import heappop, heappush

from nearcast.model.event import Place
from nearcast.model.values import Value
from nearcast.situations.extract import LaneRows, Observation
from nearcast.situations.instances import SituationChanged
from nearcast.situations.lifecycle import SituationEngine
from nearcast.situations.readings import NOWHERE, ContextReading, NamedAreas, SituationCentre, without_zones
from nearcast.state.stream_clocks import SHARED_NAME

COPIED = 500
"""Readings that are copied at most, with all that rests on them, to look ahead: some 20 ms. Where more are known a tick
may be written by which readings count and nothing is told.
"""

Found = Iterator[tuple[int, SituationChanged]]
"""What happens, and in which row."""


@dataclass(slots=True, eq=False)
class ReorderBuffer:
    """Rules of one lateness that go by the same clocks. `held` are observations that wait, `places` where entities are,
    since when. `clocks` are the names of those by the slowest of which they go, which has come to `time`.

    `told` are the rules of which this tells, with the positions behind which they see events, others being decided for
    those stand on them; `left` are those that it told of until now, `names` is what they ask for. Of several lanes
    those tell first that have the lower `number`. `early` counts what did not wait, as too much did.
    """

    lateness: int
    engine: SituationEngine
    areas: NamedAreas
    held: list[tuple[int, str, int, Observation]] = field(default_factory=list)
    places: dict[str, tuple[int, Place]] = field(default_factory=dict)
    clocks: frozenset[str] = frozenset({SHARED_NAME})
    told: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    time: int = 0
    number: int = 0
    early: int = 0

    def fold(self, rows: LaneRows) -> Found:
        """Takes in a table. What comes of a row, or of the time that it lets pass, happens in that row."""
        # Of several clocks the slowest counts, and readings that are ahead of it wait.
        waiting = self.lateness or len(self.clocks) > 1 or self.held
        yield from self._in_time(rows) if waiting else self._at_once(rows)
        self.engine.now = max(self.engine.now, rows.times[-1] - self.lateness)

    def copy(self) -> ReorderBuffer:
        """Another one that is the same, and goes on by itself."""
        scene = self.engine.scene
        rules = {id(one): one for rule in scene.plan.rules for one in (rule, *rule.necessary)}
        # Readings do not change, and there may be very many.
        shared = [self.areas, scene.plan, *rules.values(), *scene.readings.everything()]
        found = deepcopy(self, {id(one): one for one in shared})
        found.engine.forget_counted()
        return found

    def known(self) -> Iterator[tuple[str, str]]:
        """The class and the entity of each reading that is known, or waits."""
        yield from self.engine.scene.known()
        yield from (
            (name, one.entity) for *_, one in self.held for name, value in one.read.items() if value is not False
        )

    def rezone(self, areas: NamedAreas) -> None:
        """Lets what waits be in the zones that its place is in by now."""
        self.areas = areas
        zones = areas.zones_around([one.place for *_, one in self.held])
        self.held = [
            (moment, entity, position, one._replace(areas=without_zones(one.areas) | zones.get(number, NOWHERE)))
            for number, (moment, entity, position, one) in enumerate(self.held)
        ]

    def pass_time(self, clock: int, cause: int) -> Iterator[SituationChanged]:
        """Lets the clock come so far without a reading."""
        yield from self._until(clock - self.lateness, cause)

    def _at_once(self, rows: LaneRows) -> Found:
        engine, places, times = self.engine, self.places, rows.times
        for one in rows.observed:
            row, place = one.row, one.place
            time = times[row]
            if engine.may_lapse(time):
                yield from self._lapsed(rows, row)
            if place is not None:
                places[one.entity] = (one.moment, place)
            if one.read:
                engine.now = max(engine.now, time)
                readings, denied = self._readings(one)
                for found in engine.fold_readings(readings, one.position, denied):
                    yield row, found
        yield from self._lapsed(rows, len(times) - 1)

    def _lapsed(self, rows: LaneRows, last: int) -> Found:
        """Ends what ends by itself, in the first row that lets enough time pass, up to the `last`."""
        while self.engine.may_lapse(rows.times[last]):
            due = self.engine.due
            if due is None or due > rows.times[last]:
                return
            row = bisect_left(rows.times, due)
            for found in self.engine.expire_until(rows.times[row], rows.positions[row]):
                yield row, found

    def _in_time(self, rows: LaneRows) -> Found:
        first = 0
        for one in rows.observed:
            if one.row:
                yield from self._released(rows, first, one.row - 1)
                # As if a table had ended there: what comes too late is of the time that had passed by then.
                self.engine.now = max(self.engine.now, rows.times[one.row - 1] - self.lateness)
            if one.row in rows.aside:
                self._place(one)
            else:
                # Of one moment by what they are, not by when they came.
                heappush(self.held, (one.moment, one.entity, one.position, one))
                yield from self._early(one)
            first = one.row
        yield from self._released(rows, first, len(rows.times) - 1)

    def _released(self, rows: LaneRows, first: int, last: int) -> Found:
        """Lets happen what is late enough in rows from `first` to `last`, each in the first such row."""
        while (due := self.due()) is not None and due <= rows.times[last]:
            # What came later than it may was due before it was there.
            row = max(first, bisect_left(rows.times, due))
            time, cause = rows.times[row] - self.lateness, rows.positions[row]
            for found in self._until(time, cause):
                yield row, found

    def _early(self, last: Observation) -> Found:
        """Lets what waits count, the earliest first, while more waits than may."""
        while len(self.held) > self.engine.scene.conditions.limits.waiting_reports:
            waiting = len(self.held)
            for found in self._until(self.held[0][0] + 1, last.position):
                yield last.row, found
            self.early += waiting - len(self.held)

    def due(self) -> int | None:
        """The clock at which something happens here by itself; None: nothing waits."""
        # Of a moment more may come until the last one that is not too late: it is over a microsecond after that.
        waiting = self.held[0][0] + 1 if self.held else None
        found = [moment for moment in (self.engine.due, waiting) if moment is not None]
        return min(found) + self.lateness if found else None

    def told_by(self, until: int, tells: Callable[[SituationChanged], bool]) -> int | None:
        """The clock at which something is told here by itself, if that is `until` then; else when to ask again; None:
        never. `tells` says of what happens whether it is told here.

        Where more than `COPIED` readings are known it may also be when something counts of which nothing is told.
        """
        waiting = self.held[0][0] + 1 if self.held else None
        found = [one for one in (self.engine.told_by(until - self.lateness), waiting) if one is not None]
        due = min(found) + self.lateness if found else None
        if due is None or due > until or len(self.held) + self.engine.scene.size > COPIED:
            return due
        ahead = self.copy()
        return due if any(map(tells, ahead.pass_time(until, 0))) else ahead.due()

    def _until(self, time: int, cause: int) -> Iterator[SituationChanged]:
        while self.held and self.held[0][0] < time:
            one = heappop(self.held)[-1]
            yield from self.engine.expire_until(one.moment, cause)
            self._place(one)
            if one.read:
                readings, denied = self._readings(one)
                yield from self.engine.fold_readings(self._newest(readings), cause, denied)
        yield from self.engine.expire_until(time, cause)

    def _place(self, one: Observation) -> None:
        # Later than it may be: where its entity went since is newer.
        if one.place is not None and not self._is_overtaken(one):
            self.places[one.entity] = (one.moment, one.place)

    def _is_overtaken(self, one: Observation) -> bool:
        return one.entity in self.places and self.places[one.entity][0] > one.moment

    def _newest(self, readings: Iterable[ContextReading]) -> list[ContextReading]:
        """Those in whose place nothing newer came."""
        newest = self.engine.scene.readings.newest
        found = ((one, newest(one.entity, one.name)) for one in readings)
        return [one for one, other in found if other is None or other.moment <= one.moment]

    def _readings(self, one: Observation) -> tuple[list[ContextReading], Sequence[str]]:
        """The readings of an event, and as what its entity does not count; of these one is always a reading. It is
        where it says, else where its entity last was.
        """
        place, entity = one.place, one.entity
        if place is None and entity in self.places:
            place = self.places[entity][1]
        # Its own point was looked up with all others of the table.
        areas = NOWHERE
        if self.areas:
            areas = one.areas | self.areas.of(entity, None if place is one.place else place, one.named)
        moment, position = one.moment, one.position
        told: Iterable[tuple[str, Value]] = one.read.items()
        counted, denied = self.engine.scene.counts.names, list[str]()
        if counted:
            denied = [name for name, value in told if value is False and name in counted]
            # Whatever readings came too late, one is left that says whose they are.
            denied = denied[1:]
            if denied:
                told = [one for one in told if one[1] is not False or one[0] not in denied]
        return [ContextReading(name, value, entity, place, moment, position, areas) for name, value in told], denied

    def centre(self, entity: str, place: Place | None) -> SituationCentre:
        """An entity as a middle: where it says it is, else where it last was."""
        if place is None and entity in self.places:
            place = self.places[entity][1]
        return SituationCentre(entity, place, self.areas.of(entity, place, None))
