"""The newest report of each entity that rules count: in cells, and for each named place how many there are, by when
they reported. What a report costs follows what it changes, not how many entities there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, KeysView, Mapping, Sequence

from nearcast.geo.distance import distance
from nearcast.model.limits import Limits
from nearcast.model.values import Value
from nearcast.situations.counts.area_tallies import AreaTally
from nearcast.situations.counts.entity_counts import (
    FOR_EVER,
    UNKNOWN,
    CountedArea,
    EntityCount,
    EntityTally,
    counts_in,
    tallied,
)
from nearcast.situations.counts.report_arrays import ABSENT, DOUBTFUL, FALSE, TRUE, UNTOLD
from nearcast.situations.counts.report_cells import CountLook, ReportCells, point_of
from nearcast.situations.readings import ContextReading

SPARE = 16
"""Entities more than are enough that are looked for, so that the newest of them hold the longer."""

SAID: dict[object, int] = {False: FALSE, True: TRUE, UNKNOWN: DOUBTFUL}
"""What reports say, as cells have it."""

Follower = int
"""Who follows how many there are: in a disc, by its number; in a named place, by one below 0."""


class IndexedEntityCounts:
    """The reports of the entities that `names` ask for; who asks for named places, asks for those in `areas`.

    Of the entity whose reports were put last: `shaken` are the followers for whom too few may be left, `passing` the
    looks that find enough around it, and `unplaced` entities that counted where nobody knows where they are.
    """

    def __init__(self) -> None:
        self.areas: frozenset[str] = frozenset()
        self.limits = Limits()
        self.beyond: Counter[str] = Counter()
        self.total = 0
        self.shaken: list[Follower] = []
        self.passing: list[int] = []
        self.unplaced: set[str] = set()
        self._order: list[str] = []
        self._names: dict[str, int] = {}
        self._levels: Mapping[str, Collection[int]] = {}
        self._looks: Sequence[tuple[str, CountLook]] = ()
        self._missed: dict[str, int] = {}
        self._cells = ReportCells((), ())
        self._slots: dict[str, int] = {}
        self._free: list[int] = []
        # Entities of which reports as something were left out.
        self._partly: set[str] = set()
        # By node.
        self._reports: list[ContextReading | None] = []
        self._inside: dict[tuple[str, str], AreaTally] = {}
        self._followers: dict[tuple[str, str], dict[Follower, None]] = {}
        self._in_places: dict[Follower, tuple[str, str]] = {}
        self._made = 0

    @property
    def names(self) -> KeysView[str]:
        """What is counted."""
        return self._names.keys()

    def prepare(
        self,
        levels: Mapping[str, Collection[int]],
        areas: frozenset[str],
        looks: Sequence[tuple[str, CountLook]] = (),
    ) -> None:
        """Keeps from now on what these names are about, in cells for these levels; the rest is forgotten. Nobody
        follows anything then. `looks` are what is looked for around each report that counts as a name.
        """
        reports = [one for one in self.everything() if one.name in levels]
        self._missed = {name: moment for name, moment in self._missed.items() if name in levels}
        self._levels, self._looks, self._order = levels, looks, list(levels)
        self._names = {name: number for number, name in enumerate(self._order)}
        self.areas, self._inside, self.total = areas, {}, 0
        self._slots, self._free, self._partly, self._reports = {}, [], set(), []
        self._followers, self._in_places = {}, {}
        own = [look._replace(name=self._names[name]) for name, look in looks]
        self._cells = ReportCells([tuple(found) for found in levels.values()], own)
        self._insert_all(reports)

    def put_reports(
        self, reports: Sequence[ContextReading], now: int, denied: Sequence[str] = ()
    ) -> list[ContextReading]:
        """Takes in reports of one entity, of one event at a moment, where they are the newest; those that may change a
        count. As what is `denied` it does not count, by the same event.
        """
        self.shaken, self.passing, self.unplaced = [], [], set()
        if not reports:
            return []
        first, numbers = reports[0], self._names
        slot = self._slots.get(first.entity)
        if slot is None or first.entity in self._partly:
            slot = self._admitted(
                first, [*((one.name, one.value) for one in reports), *((one, False) for one in denied)]
            )
            if slot is None:
                return []
        said = [UNTOLD] * len(numbers)
        for name in denied:
            said[numbers[name]] = FALSE
        for one in reports:
            said[numbers[one.name]] = SAID[one.value]
        point = point_of(first.place)
        changes, shaken, looks = self._cells.put(slot, tuple(said), point, first.moment, first.position, now)
        if shaken:
            self.shaken += shaken
        if looks:
            order = self._cells.order
            self.passing = [order[one] for one in looks]
        return self._changed(changes, reports) if changes else []

    def _changed(self, changes: list[int], reports: Sequence[ContextReading]) -> list[ContextReading]:
        """Takes in what cells say that reports change, in their order; these reports."""
        kept, telling = self._reports, []
        for at in range(0, len(changes), 4):
            number, before, node, _ = changes[at : at + 4]
            name, one = self._order[number], None
            for report in reports:
                if report.name == name:
                    one = report
            if one is None:
                one = reports[0]._replace(name=name, value=False)
            old = None
            if before >= 0:
                old, kept[before] = kept[before], None
            if node >= len(kept):
                kept += [None] * (node + 1 - len(kept))
            if node >= 0:
                kept[node] = one
            # Mostly it is where it was.
            if old is not None and old.value is one.value and old.areas == one.areas and old.place is not None:
                for area in one.areas & self.areas if one.areas else ():
                    self._inside[name, area].replace(old, one)
            else:
                self._leave(old, one if one.value is True else None)
                if node >= 0 and one.areas:
                    self._enter_places(one)
            telling.append(one)
        return telling

    def _leave(self, old: ContextReading | None, new: ContextReading | None = None) -> None:
        """Takes a report out of named places, and tells those who follow how many are there; `new` is the one that
        counts in its place.
        """
        if old is None:
            return
        for area in old.areas & self.areas if old.areas else ():
            key = old.name, area
            self._inside[key].remove(old)
            if not self._inside[key].reports:
                del self._inside[key]
            if key in self._followers and old.value is True and (new is None or area not in new.areas):
                self.shaken += self._followers[key]
        if old.place is None and old.value is True:
            # What is nowhere counts around where its entity was.
            self.unplaced.add(old.entity)

    def _enter_places(self, report: ContextReading) -> None:
        for area in report.areas & self.areas:
            self._inside.setdefault((report.name, area), AreaTally()).insert(report)

    def _admitted(self, first: ContextReading, said: Iterable[tuple[str, Value]]) -> int | None:
        """The number of an entity of which not everything is kept, as far as there is room."""
        slot, names = self._slots.get(first.entity), self._names
        for name, value in said:
            number = names[name]
            if slot is not None and self._cells.is_known(slot, number):
                continue
            if self.total >= self.limits.counted_entities:
                if value is not False:
                    self.beyond[name] += 1
                    self._missed[name] = max(first.moment, self._missed.get(name, first.moment))
                continue
            slot = self._slot(first.entity)
            self._cells.admit(slot, number)
            self.total += 1
        if slot is not None and all(moment != ABSENT for moment, *_ in self._cells.of(slot)):
            self._partly.discard(first.entity)
        elif slot is not None:
            self._partly.add(first.entity)
        return slot

    def _slot(self, entity: str) -> int:
        slot = self._slots.get(entity)
        if slot is None:
            slot = self._slots[entity] = self._free.pop() if self._free else len(self._slots)
        return slot

    def follow(self, name: str, area: CountedArea) -> Follower | None:
        """Tells from now on, in `shaken`, when too few may be left there; None where that is not known."""
        if area.area is not None:
            self._made += 1
            follower = -self._made
            self._in_places[follower] = name, area.area
            self._followers.setdefault((name, area.area), {})[follower] = None
            return follower
        place = area.centre.place
        return None if place is None else self._cells.follow(self._names[name], place, area.metres)

    def promise(self, follower: Follower, count: EntityCount, area: CountedArea, tally: EntityTally) -> None:
        """Tells no more of it while enough of those are left that are as new as the oldest of the newest that do."""
        if follower < 0:
            return
        if area.valid is None:
            self._cells.promise(follower, ABSENT, tally.counted - count.enough)
        else:
            # Just so many: whenever one of these leaves, the others may have grown old.
            self._cells.promise(follower, tally.lapses - area.valid - 1, 0)

    def unfollow(self, follower: Follower) -> None:
        """Ends that."""
        if follower >= 0:
            self._cells.unfollow(follower)
            return
        key = self._in_places.pop(follower)
        del self._followers[key][follower]
        if not self._followers[key]:
            del self._followers[key]

    def newest(self, entity: str, name: str) -> ContextReading | None:
        """The newest report of an entity; of one that does not count it is of no matter where that was."""
        slot, number = self._slots.get(entity), self._names.get(name)
        if slot is None or number is None:
            return None
        return self._report(entity, name, self._cells.kept(slot, number))

    def _report(self, entity: str, name: str, kept: Sequence[int]) -> ContextReading | None:
        moment, position, node = kept
        if node >= 0:
            return self._reports[node]
        return None if moment == ABSENT else ContextReading(name, False, entity, None, moment, position)

    def counting(self, entity: str) -> Iterator[ContextReading]:
        """The newest reports by which an entity counts, or may."""
        slot = self._slots.get(entity)
        for _, _, node in () if slot is None else self._cells.of(slot):
            report = self._reports[node] if node >= 0 else None
            if report is not None:
                yield report

    def at(self, place: tuple[str, str]) -> int:
        """How many count as something in a named place, however long ago they reported."""
        here = self._inside.get(place)
        return 0 if here is None else len(here.counted)

    def tally(self, count: EntityCount, area: CountedArea, now: int) -> EntityTally:
        """How many there are, as far as the comparison asks."""
        left_out = self.is_left_out(count.name, area.valid, now)
        if area.area is not None:
            here = self._inside.get((count.name, area.area))
            return EntityTally(0, 0, left_out) if here is None else here.tally(area, count.enough, now, left_out)
        if count.enough <= 0:
            # It stays so until somebody reports.
            return EntityTally(0, 0, left_out)
        found = self._around(count.name, area, now, count.enough + SPARE)
        return tallied(found, area.valid, count.enough, left_out)

    def found(self, name: str, area: CountedArea, now: int) -> list[ContextReading]:
        """The reports that count, and those of which it is unknown."""
        if area.area is None:
            return self._around(name, area, now, FOR_EVER)
        here = self._inside.get((name, area.area))
        return [] if here is None else [one for one in here.reports.values() if counts_in(one, area, now)]

    def _around(self, name: str, area: CountedArea, now: int, most: int) -> list[ContextReading]:
        """Those that count around a place, or may: no more than until so many do."""
        (entity, place, _), number = area.centre, self._names.get(name)
        if number is None:
            return []
        found = []
        if place is not None:
            oldest = ABSENT if area.valid is None else now - area.valid
            sure, doubtful = self._cells.around(number, place, area.metres, oldest, area.after, most)
            reports = self._reports
            found = [report for report in map(reports.__getitem__, sure) if report is not None]
            for node in doubtful:
                report = reports[node]
                apart = None if report is None or report.place is None else distance(place, report.place)
                if report is not None and apart is not None and apart <= area.metres:
                    found.append(report)
        itself = self.newest(entity, name)
        # What is nowhere is in no cell, and with its entity.
        if itself is not None and (itself.place is None or place is None):
            found += [itself] if counts_in(itself, area, now) else []
        return found

    def is_left_out(self, name: str, valid: int | None, now: int) -> bool:
        """Whether some were left out that may count."""
        missed = self._missed.get(name)
        return missed is not None and (valid is None or missed >= now - valid)

    def forget(self, entities: Collection[str]) -> list[ContextReading]:
        """Drops the reports of some entities; those that counted, or might."""
        found: list[ContextReading] = []
        self.shaken, self.passing, self.unplaced = [], [], set()
        for entity in entities:
            slot = self._slots.get(entity)
            if slot is None:
                continue
            self._partly.discard(entity)
            own = list(self.counting(entity))
            kept = self._cells.of(slot)
            self.shaken += self._cells.drop(slot)
            self.total -= sum(moment != ABSENT for moment, *_ in kept)
            del self._slots[entity]
            self._free.append(slot)
            for _, _, node in kept:
                if node >= 0:
                    self._reports[node] = None
            for report in own:
                self._leave(report)
            found += own
        return found

    def everything(self) -> Iterator[ContextReading]:
        """All reports that are kept."""
        for entity, slot in self._slots.items():
            for name, kept in zip(self._names, self._cells.of(slot), strict=True):
                report = self._report(entity, name, kept)
                if report is not None:
                    yield report

    def missed(self) -> dict[str, int]:
        """Through which moment reports are left out, by what they are asked for as."""
        return dict(self._missed)

    def restore(self, reports: Iterable[ContextReading], missed: Mapping[str, int]) -> None:
        """Puts back what `everything` and `missed` gave; also what is counted when rules are made ready."""
        reports = list(reports)
        asked = dict(self._levels)
        for name in (*missed, *(one.name for one in reports)):
            asked.setdefault(name, ())
        # With the looks of the rules: without them no report would complete one.
        self.prepare(asked, self.areas, self._looks)
        self._missed |= missed
        self._insert_all(reports)

    def _insert_all(self, reports: Iterable[ContextReading]) -> None:
        """Takes in reports that were kept, whatever the limits are by now."""
        names, cells = self._names, self._cells
        for one in reports:
            slot, number = self._slot(one.entity), names[one.name]
            cells.admit(slot, number)
            self.total += 1
            if one.value is False:
                cells.keep_false(slot, number, one.moment, one.position)
                continue
            said = tuple(SAID[one.value] if other == number else UNTOLD for other in range(len(names)))
            changes, _, _ = cells.put(slot, said, point_of(one.place), one.moment, one.position, one.moment)
            self._changed(changes, [one])
        self._partly = {
            entity for entity, slot in self._slots.items() if any(moment == ABSENT for moment, *_ in cells.of(slot))
        }
        self.shaken, self.passing, self.unplaced = [], [], set()
