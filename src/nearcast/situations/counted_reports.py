"""The newest report of each entity that rules count: in cells, and for each named place how many there are, by when
they reported. What a report costs follows what it changes, not how many entities there are.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from nearcast.geo.dynamic_index import SpatialHash, joined_levels
from nearcast.model.event import Place
from nearcast.model.limits import Limits
from nearcast.situations.entity_counts import FOR_EVER, CountedArea, EntityCount, EntityTally, counts_in, tallied
from nearcast.situations.readings import ContextReading

WIDER = 2
"""How many sizes of cells one may stand for."""


@dataclass(slots=True, eq=False)
class _Known:
    """The newest report of an entity, as cells have it."""

    report: ContextReading


@dataclass(slots=True)
class _AreaTally:
    """Who is in a named place: their reports, and the moments of those that count, of those that may, and the positions
    of both, ascending.
    """

    reports: dict[str, ContextReading] = field(default_factory=dict)
    counted: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)

    def insert(self, report: ContextReading) -> None:
        """Takes in the report of an entity that is not there."""
        self.reports[report.entity] = report
        insort(self.counted if report.value is True else self.unknown, report.moment)
        insort(self.positions, report.position)

    def remove(self, report: ContextReading) -> None:
        """Drops a report that is there."""
        del self.reports[report.entity]
        moments = self.counted if report.value is True else self.unknown
        del moments[bisect_left(moments, report.moment)]
        del self.positions[bisect_left(self.positions, report.position)]

    def tally(self, area: CountedArea, enough: int, now: int, left_out: bool) -> EntityTally:
        """How many there are: by the moments alone, if all reports are behind the definition."""
        if self.positions and self.positions[0] <= area.after:
            own = (one for one in self.reports.values() if counts_in(one, area, now))
            return tallied(own, area.valid, enough, left_out)
        if area.valid is None:
            return EntityTally(len(self.counted), len(self.unknown), left_out)
        first, may = (bisect_left(moments, now - area.valid) for moments in (self.counted, self.unknown))
        counted, unknown = len(self.counted) - first, len(self.unknown) - may
        if enough <= 0:
            return EntityTally(counted, unknown, left_out)
        if counted >= enough:
            oldest = [self.counted[len(self.counted) - enough]]
        else:
            oldest = [*self.counted[first : first + 1], *self.unknown[may : may + 1]]
        return EntityTally(counted, unknown, left_out, min(oldest) + area.valid + 1 if oldest else FOR_EVER)


@dataclass(slots=True)
class _CountedName:
    """The reports that one `uform` is about, by entity and by place. Up to `missed` some are left out."""

    by_place: SpatialHash[str, _Known]
    by_entity: dict[str, _Known] = field(default_factory=dict)
    missed: int | None = None


def _in_square(reports: Iterable[_Known], here: Place, metres: float) -> Iterator[_Known]:
    """Those that are in the square around a planar place, and those that are no such places."""
    # Of the cells around most is not in it, and what follows takes several times as long.
    x, y = here.x, here.y
    for one in reports:
        there = one.report.place
        if (
            there is None
            or there.coordinates != "planar"
            or (abs(x - there.x) <= metres and abs(y - there.y) <= metres)
        ):
            yield one


class IndexedEntityCounts:
    """The reports of the entities that `names` ask for; who asks for named places, asks for those in `areas`."""

    def __init__(self) -> None:
        self.areas: frozenset[str] = frozenset()
        self.limits = Limits()
        self.beyond: Counter[str] = Counter()
        self.total = 0
        self._by_name: dict[str, _CountedName] = {}
        self._inside: dict[tuple[str, str], _AreaTally] = {}

    @property
    def names(self) -> Collection[str]:
        """What is counted."""
        return self._by_name.keys()

    def prepare(self, levels: Mapping[str, Collection[int]], areas: frozenset[str]) -> None:
        """Keeps from now on what these names are about, in cells of these levels; the rest is forgotten."""
        self.areas, self._inside, self.total = areas, {}, 0
        before = self._by_name
        self._by_name = {name: _CountedName(SpatialHash(joined_levels(found, WIDER))) for name, found in levels.items()}
        for name, own in self._by_name.items():
            if name in before:
                own.missed = before[name].missed
                for known in before[name].by_entity.values():
                    self._insert(own, known.report)

    def put_report(self, report: ContextReading) -> bool:
        """Takes in the report of an entity, if it is the newest; whether that may change a count."""
        own = self._by_name[report.name]
        known = own.by_entity.get(report.entity)
        if known is None:
            if self.total >= self.limits.counted_entities:
                return self._leave_out(own, report)
            self._insert(own, report)
            return report.value is not False
        before = known.report
        # That one is the newest that does not count matters for those that come late.
        if before.moment > report.moment:
            return False
        self._leave(own, before, moving=report.place is not None and report.value is not False)
        self._enter(own, known, report)
        return before.value is not False or report.value is not False

    def _leave_out(self, own: _CountedName, report: ContextReading) -> bool:
        if report.value is not False:
            self.beyond[report.name] += 1
            own.missed = max(report.moment, own.missed or report.moment)
        return False

    def _insert(self, own: _CountedName, report: ContextReading) -> None:
        known = own.by_entity[report.entity] = _Known(report)
        self.total += 1
        self._enter(own, known, report)

    def _enter(self, own: _CountedName, known: _Known, report: ContextReading) -> None:
        known.report = report
        if report.value is False:
            return
        if report.place is not None:
            own.by_place.insert(report.entity, report.place, known)
        for area in report.areas & self.areas if report.areas else ():
            self._inside.setdefault((report.name, area), _AreaTally()).insert(report)

    def _leave(self, own: _CountedName, report: ContextReading, moving: bool) -> None:
        """Takes a report out of cells and places; one whose entity has moved is brought elsewhere in its cells."""
        if report.value is False:
            return
        if report.place is not None and not moving:
            own.by_place.remove(report.entity)
        for area in report.areas & self.areas if report.areas else ():
            here = self._inside[report.name, area]
            here.remove(report)
            if not here.reports:
                del self._inside[report.name, area]

    def newest(self, entity: str, name: str) -> ContextReading | None:
        """The newest report of an entity."""
        own = self._by_name.get(name)
        known = None if own is None else own.by_entity.get(entity)
        return None if known is None else known.report

    def tally(self, count: EntityCount, area: CountedArea, now: int) -> EntityTally:
        """How many there are: exact, or at least as many as are enough."""
        left_out = self.is_left_out(count.name, area.valid, now)
        if area.area is not None:
            here = self._inside.get((count.name, area.area))
            return EntityTally(0, 0, left_out) if here is None else here.tally(area, count.enough, now, left_out)
        return tallied(self._around(count.name, area, now), area.valid, count.enough, left_out)

    def _around(self, name: str, area: CountedArea, now: int) -> Iterator[ContextReading]:
        own = self._by_name.get(name)
        if own is None:
            return
        centre = area.centre
        itself = self.newest(centre.entity, name)
        # What is nowhere is in no cell, and with its entity.
        if itself is not None and (itself.place is None or centre.place is None) and counts_in(itself, area, now):
            yield itself
        if centre.place is None:
            return
        near = own.by_place.candidates(centre.place, area.metres)
        for one in _in_square(near, centre.place, area.metres) if centre.place.coordinates == "planar" else near:
            if counts_in(one.report, area, now):
                yield one.report

    def found(self, name: str, area: CountedArea, now: int) -> list[ContextReading]:
        """The reports that count, and those of which it is unknown."""
        if area.area is None:
            return list(self._around(name, area, now))
        here = self._inside.get((name, area.area))
        return [] if here is None else [one for one in here.reports.values() if counts_in(one, area, now)]

    def is_left_out(self, name: str, valid: int | None, now: int) -> bool:
        """Whether some were left out that may count."""
        own = self._by_name.get(name)
        missed = None if own is None else own.missed
        return missed is not None and (valid is None or missed >= now - valid)

    def forget(self, entities: Collection[str]) -> list[ContextReading]:
        """Drops the reports of some entities; those that counted, or might."""
        found = []
        for own in self._by_name.values():
            for entity in entities:
                known = own.by_entity.pop(entity, None)
                if known is not None:
                    self.total -= 1
                    self._leave(own, known.report, moving=False)
                    found.append(known.report)
        return [one for one in found if one.value is not False]

    def everything(self) -> Iterable[ContextReading]:
        """All reports that are kept."""
        return (known.report for own in self._by_name.values() for known in own.by_entity.values())

    def missed(self) -> dict[str, int]:
        """Through which moment reports are left out, by what they are asked for as."""
        return {name: own.missed for name, own in self._by_name.items() if own.missed is not None}

    def restore(self, reports: Iterable[ContextReading], missed: Mapping[str, int]) -> None:
        """Puts back what `everything` and `missed` gave."""
        for name, moment in missed.items():
            self._by_name[name].missed = moment
        for report in reports:
            self._insert(self._by_name[report.name], report)
