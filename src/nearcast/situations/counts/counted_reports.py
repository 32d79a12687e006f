"""The newest report of each entity that rules count: in cells, and for each named place how many there are, by when
they reported. What a report costs follows what it changes, not how many entities there are.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nearcast.geo.distance import SLACK, distance, surely_beyond, surely_within, unit_vector
from nearcast.geo.dynamic_index import SpatialHash, joined_levels, level_of
from nearcast.model.event import Place
from nearcast.model.limits import Limits
from nearcast.situations.counts.entity_counts import FOR_EVER, CountedArea, EntityCount, EntityTally, counts_in, tallied
from nearcast.situations.readings import ContextReading

NO_REPORTS: dict[str, ContextReading] = {}

_Spot = tuple[float, float, float, int, int, int, ContextReading]
"""A report that counts, or may, as cells have it: first its point, moment and position, for by these most of what
is in cells is decided. The point is in metres, or on the unit sphere, and of a form.
"""

FLAT, HIGH, ON_GLOBE = 1, 2, 4
"""Forms of points: planar, the same with a height, geographic."""

SURE = {FLAT: FLAT | HIGH, HIGH: FLAT, ON_GLOBE: ON_GLOBE}
"""From points of which forms the distance of one follows from what both are without their heights."""


_Point = tuple[float, float, float, int]
"""A place in metres, or on the unit sphere, and its form."""


def _point(place: Place) -> _Point:
    if place.coordinates == "planar":
        return place.x, place.y, 0.0, FLAT if place.z is None else HIGH
    return *unit_vector(place), ON_GLOBE


def _bounds(place: Place, metres: float) -> tuple[float, float]:
    """Squares of distances between points: up to the first they are surely within so many metres, above the second
    surely beyond.
    """
    if place.coordinates == "planar":
        return metres * metres * (1 - SLACK), metres * metres * (1 + SLACK)
    return surely_within(metres), surely_beyond(metres)


@dataclass(slots=True)
class _MomentTally:
    """The moments of reports that count, of those that may, and the positions of both, ascending."""

    counted: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)

    def insert(self, report: ContextReading) -> None:
        """Takes in the report of an entity that is not there."""
        insort(self.counted if report.value is True else self.unknown, report.moment)
        insort(self.positions, report.position)

    def remove(self, report: ContextReading) -> None:
        """Drops a report that is there."""
        moments = self.counted if report.value is True else self.unknown
        del moments[bisect_left(moments, report.moment)]
        del self.positions[bisect_left(self.positions, report.position)]

    def are_behind(self, position: int) -> bool:
        """Whether all reports came behind a position."""
        return not self.positions or self.positions[0] > position

    def tally(self, valid: int | None, enough: int, now: int, left_out: bool) -> EntityTally:
        """How many there are, by the moments alone: all of them are behind the definition."""
        if valid is None:
            return EntityTally(len(self.counted), len(self.unknown), left_out)
        first, may = (bisect_left(moments, now - valid) for moments in (self.counted, self.unknown))
        counted, unknown = len(self.counted) - first, len(self.unknown) - may
        if enough <= 0:
            return EntityTally(counted, unknown, left_out)
        if counted >= enough:
            oldest = [self.counted[len(self.counted) - enough]]
        else:
            oldest = [*self.counted[first : first + 1], *self.unknown[may : may + 1]]
        return EntityTally(counted, unknown, left_out, min(oldest) + valid + 1 if oldest else FOR_EVER)


@dataclass(slots=True)
class _AreaTally:
    """Who is in a named place: their reports, and how many they are."""

    reports: dict[str, ContextReading] = field(default_factory=dict)
    moments: _MomentTally = field(default_factory=_MomentTally)

    def insert(self, report: ContextReading) -> None:
        """Takes in the report of an entity that is not there."""
        self.reports[report.entity] = report
        self.moments.insert(report)

    def remove(self, report: ContextReading) -> None:
        """Drops a report that is there."""
        del self.reports[report.entity]
        self.moments.remove(report)

    def tally(self, area: CountedArea, enough: int, now: int, left_out: bool) -> EntityTally:
        """How many there are."""
        if self.moments.are_behind(area.after):
            return self.moments.tally(area.valid, enough, now, left_out)
        own = (one for one in self.reports.values() if counts_in(one, area, now))
        return tallied(own, area.valid, enough, left_out)


class FollowedDisc:
    """How many of what is counted are within so many metres of a place, as reports come and go: that they are enough
    takes no look at them. `changes` counts what changed, `users` are those who follow it.
    """

    __slots__ = ("_at", "_bounds", "_sure", "changes", "metres", "moments", "name", "place", "users")

    def __init__(self, name: str, metres: float, place: Place) -> None:
        self.name, self.metres, self.place = name, metres, place
        *self._at, form = _point(place)
        self._bounds, self._sure = _bounds(place, metres), SURE[form]
        self.moments, self.changes, self.users = _MomentTally(), 0, 0

    def has(self, place: Place, point: _Point) -> bool:
        """Whether a place, at its point, is within the metres."""
        x, y, z, form = point
        if form & self._sure:
            own_x, own_y, own_z = self._at
            dx, dy, dz = own_x - x, own_y - y, own_z - z
            apart, (within, beyond) = dx * dx + dy * dy + dz * dz, self._bounds
            if apart <= within or apart > beyond:
                return apart <= within
        metres = distance(self.place, place)
        return metres is not None and metres <= self.metres


@dataclass(slots=True)
class _CountedName:
    """The reports that count, or may, for one `uform`. Up to `missed` some are left out."""

    by_place: SpatialHash[str, _Spot]
    missed: int | None = None


def _counting(
    near: Iterable[Collection[_Spot]], area: CountedArea, now: int, enough: int, spare: int = FOR_EVER
) -> list[ContextReading] | None:
    """Those of the reports in some cells that count around a place, or may: no more than until enough do. None where
    more than are to `spare` do not.
    """
    place, metres, after = area.centre.place, area.metres, area.after
    assert place is not None, "it has cells around"
    x, y, z, form = _point(place)
    within, beyond = _bounds(place, metres)
    sure, oldest = SURE[form], -FOR_EVER if area.valid is None else now - area.valid
    found: list[ContextReading] = []
    counted = looked = 0
    for here in near:
        for there_x, there_y, there_z, there_form, moment, position, report in here:
            if moment < oldest or position <= after:
                continue
            dx, dy, dz = x - there_x, y - there_y, z - there_z
            apart = dx * dx + dy * dy + dz * dz
            if apart > beyond and there_form & sure:
                continue
            # A geodesic takes twenty times as long as all of this.
            if not (apart <= within and there_form & sure):
                metres_apart = None if report.place is None else distance(place, report.place)
                if metres_apart is None or metres_apart > metres:
                    continue
            found.append(report)
            counted += report.value is True
            if counted >= enough:
                return found
        looked += len(here)
        if looked - len(found) > spare:
            return None
    return found


class IndexedEntityCounts:
    """The reports of the entities that `names` ask for; who asks for named places, asks for those in `areas`."""

    def __init__(self) -> None:
        self.areas: frozenset[str] = frozenset()
        self.limits = Limits()
        self.beyond: Counter[str] = Counter()
        self.total = 0
        self._by_name: dict[str, _CountedName] = {}
        # An event reports by all names.
        self._by_entity: dict[str, dict[str, ContextReading]] = {}
        self._inside: dict[tuple[str, str], _AreaTally] = {}
        self._discs: dict[tuple[str, float, Place], FollowedDisc] = {}
        # By what is counted, and within how many metres.
        self._discs_by_place: dict[str, dict[float, SpatialHash[FollowedDisc, FollowedDisc]]] = {}

    @property
    def names(self) -> Collection[str]:
        """What is counted."""
        return self._by_name.keys()

    def prepare(self, levels: Mapping[str, Collection[int]], areas: frozenset[str]) -> None:
        """Keeps from now on what these names are about, in cells for these levels; the rest is forgotten."""
        self.areas, self._inside, self.total = areas, {}, 0
        missed, reports = self.missed(), [one for one in self.everything() if one.name in levels]
        # Cells half as wide: where many are around a place, more of those looked at are near it.
        self._by_name = {
            name: _CountedName(SpatialHash(joined_levels(one - 1 for one in found)), missed.get(name))
            for name, found in levels.items()
        }
        self._by_entity = {}
        for disc in self._discs.values():
            disc.moments = _MomentTally()
            disc.changes += 1
        for report in reports:
            self._insert(report)

    def follow(self, name: str, metres: float, place: Place) -> FollowedDisc:
        """Keeps in mind from now on how many are in a disc; several may follow the same."""
        disc = self._discs.get((name, metres, place))
        if disc is None:
            disc = self._discs[name, metres, place] = self._filled(FollowedDisc(name, metres, place))
        disc.users += 1
        return disc

    def unfollow(self, disc: FollowedDisc) -> None:
        """Ends that for one who followed."""
        disc.users -= 1
        if not disc.users:
            del self._discs[disc.name, disc.metres, disc.place]
            by_metres = self._discs_by_place[disc.name]
            by_metres[disc.metres].remove(disc)
            if not len(by_metres[disc.metres]):
                del by_metres[disc.metres]

    def _filled(self, disc: FollowedDisc) -> FollowedDisc:
        own = self._by_name.get(disc.name)
        for here in () if own is None else own.by_place.near_cells(disc.place, disc.metres):
            for *_, report in here:
                if report.place is not None and disc.has(report.place, _point(report.place)):
                    disc.moments.insert(report)
        by_metres = self._discs_by_place.setdefault(disc.name, {})
        if disc.metres not in by_metres:
            by_metres[disc.metres] = SpatialHash((level_of(disc.metres),))
        by_metres[disc.metres].insert(disc, disc.place, disc)
        return disc

    def _discs_with(self, name: str, place: Place, point: _Point) -> list[FollowedDisc]:
        """The discs that are followed in which a place is."""
        by_metres = self._discs_by_place.get(name)
        if not by_metres:
            return []
        around = (one for metres, found in by_metres.items() for one in found.candidates(place, metres))
        return [one for one in around if one.has(place, point)]

    def put_reports(self, reports: Iterable[ContextReading]) -> list[ContextReading]:
        """Takes in reports of one entity, where they are the newest; those that may change a count."""
        telling = []
        for report in reports:
            own = self._by_entity.get(report.entity)
            before = None if own is None else own.get(report.name)
            if own is None or before is None:
                if self._insert_new(report):
                    telling.append(report)
            # That one is the newest that does not count matters for those that come late.
            elif before.moment <= report.moment:
                own[report.name] = report
                if before.value is not False or report.value is not False:
                    self._leave(before, moving=report.place is not None and report.value is not False)
                    self._enter(report)
                    telling.append(report)
        return telling

    def _insert_new(self, report: ContextReading) -> bool:
        """Takes in the first report of an entity, if there is room; whether that may change a count."""
        if self.total >= self.limits.counted_entities:
            if report.value is not False:
                own = self._by_name[report.name]
                self.beyond[report.name] += 1
                own.missed = max(report.moment, own.missed or report.moment)
            return False
        self._insert(report)
        return report.value is not False

    def _insert(self, report: ContextReading) -> None:
        self._by_entity.setdefault(report.entity, {})[report.name] = report
        self.total += 1
        self._enter(report)

    def _enter(self, report: ContextReading) -> None:
        if report.value is False:
            return
        place = report.place
        if place is not None:
            point = _point(place)
            spot = (*point, report.moment, report.position, report)
            self._by_name[report.name].by_place.insert(report.entity, place, spot)
            for disc in self._discs_with(report.name, place, point):
                disc.moments.insert(report)
                disc.changes += 1
        for area in report.areas & self.areas if report.areas else ():
            self._inside.setdefault((report.name, area), _AreaTally()).insert(report)

    def _leave(self, report: ContextReading, moving: bool) -> None:
        """Takes a report out of cells and places; one whose entity has moved is brought elsewhere in its cells."""
        if report.value is False:
            return
        place = report.place
        if place is not None:
            if not moving:
                self._by_name[report.name].by_place.remove(report.entity)
            for disc in self._discs_with(report.name, place, _point(place)):
                disc.moments.remove(report)
                disc.changes += 1
        for area in report.areas & self.areas if report.areas else ():
            here = self._inside[report.name, area]
            here.remove(report)
            if not here.reports:
                del self._inside[report.name, area]

    def newest(self, entity: str, name: str) -> ContextReading | None:
        """The newest report of an entity."""
        return self._by_entity.get(entity, NO_REPORTS).get(name)

    def counting(self, entity: str) -> Iterator[ContextReading]:
        """The newest reports by which an entity counts, or may."""
        return (one for one in self._by_entity.get(entity, NO_REPORTS).values() if one.value is not False)

    def tally(self, count: EntityCount, area: CountedArea, now: int) -> EntityTally:
        """How many there are, as far as the comparison asks."""
        left_out = self.is_left_out(count.name, area.valid, now)
        if area.area is not None:
            here = self._inside.get((count.name, area.area))
            return EntityTally(0, 0, left_out) if here is None else here.tally(area, count.enough, now, left_out)
        moments = self._followed(count.name, area)
        if moments is not None:
            return moments.tally(area.valid, count.enough, now, left_out)
        near = self._near(count.name, area)
        # One more may be nowhere, with its entity.
        spare = 1 + sum(map(len, near)) - count.enough if count.ordered else FOR_EVER
        found = self._around(near, count.name, area, now, count.enough, spare) if spare >= 0 < count.enough else None
        if found is None:
            # Those in the cells are too few, or none is asked for: it stays so until somebody reports.
            return EntityTally(0, 0, left_out)
        return tallied(found, area.valid, count.enough, left_out)

    def _followed(self, name: str, area: CountedArea) -> _MomentTally | None:
        """The moments of those that count around a place that is followed; None where they are to be looked at."""
        entity, place, _ = area.centre
        disc = None if place is None else self._discs.get((name, area.metres, place))
        if disc is None or not disc.moments.are_behind(area.after):
            return None
        itself = self.newest(entity, name)
        # What is nowhere is with its entity.
        return disc.moments if itself is None or itself.place is not None else None

    def found(self, name: str, area: CountedArea, now: int) -> list[ContextReading]:
        """The reports that count, and those of which it is unknown."""
        if area.area is None:
            return self._around(self._near(name, area), name, area, now, FOR_EVER) or []
        here = self._inside.get((name, area.area))
        return [] if here is None else [one for one in here.reports.values() if counts_in(one, area, now)]

    def _near(self, name: str, area: CountedArea) -> Sequence[Collection[_Spot]]:
        """All that are somewhere around a centre, each once, in cells."""
        place, own = area.centre.place, self._by_name.get(name)
        return () if place is None or own is None else own.by_place.near_cells(place, area.metres)

    def _around(
        self,
        near: Iterable[Collection[_Spot]],
        name: str,
        area: CountedArea,
        now: int,
        enough: int,
        spare: int = FOR_EVER,
    ) -> list[ContextReading] | None:
        entity, place, _ = area.centre
        found = [] if place is None else _counting(near, area, now, enough, spare)
        itself = None if found is None else self.newest(entity, name)
        # What is nowhere is in no cell, and with its entity.
        if found is not None and itself is not None and (itself.place is None or place is None):
            found += [itself] if counts_in(itself, area, now) else []
        return found

    def is_left_out(self, name: str, valid: int | None, now: int) -> bool:
        """Whether some were left out that may count."""
        own = self._by_name.get(name)
        missed = None if own is None else own.missed
        return missed is not None and (valid is None or missed >= now - valid)

    def forget(self, entities: Collection[str]) -> list[ContextReading]:
        """Drops the reports of some entities; those that counted, or might."""
        found = []
        for entity in entities:
            own = self._by_entity.pop(entity, NO_REPORTS)
            self.total -= len(own)
            found += [one for one in own.values() if one.value is not False]
        for report in found:
            self._leave(report, moving=False)
        return found

    def everything(self) -> Iterable[ContextReading]:
        """All reports that are kept."""
        return (report for own in self._by_entity.values() for report in own.values())

    def missed(self) -> dict[str, int]:
        """Through which moment reports are left out, by what they are asked for as."""
        return {name: own.missed for name, own in self._by_name.items() if own.missed is not None}

    def restore(self, reports: Iterable[ContextReading], missed: Mapping[str, int]) -> None:
        """Puts back what `everything` and `missed` gave; also what is counted when rules are made ready."""
        reports = list(reports)
        for name in (*missed, *(one.name for one in reports)):
            if name not in self._by_name:
                self._by_name[name] = _CountedName(SpatialHash(()))
        for name, moment in missed.items():
            self._by_name[name].missed = moment
        for report in reports:
            self._insert(report)
