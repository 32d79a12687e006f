"""Gatherings, report by report, at a cost that follows neighbours: members lie in cells no smaller than the distance.

The outcome is that of the reference. What lapses is looked for only once the stream's time has passed the earliest
moment at which anything can.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import product

import numpy as np
import pyarrow as pa

from nearcast.geo.distance import distance, surely_beyond
from nearcast.matching.matcher import FilterMatcher
from nearcast.model.event import Place
from nearcast.model.relation import Buddies, Detection, Gathering, Matching, Relation
from nearcast.relations.pair_rules import micros
from nearcast.relations.reports import FOREVER, NEVER, EntityTable, Flags, ReportTable, moment_of
from nearcast.relations.transitions import CAUSED, LAPSED, Reason, Subject, Told
from nearcast.state.derived import Cause

Cell = tuple[int, ...]

_FINEST = 1e-6
"""The least width of a cell on the unit sphere: some six metres."""


@dataclass(slots=True)
class _GatheringMember:
    """An entity of the crowd: where it is, and the stream's time through which it counts without a report."""

    place: Place | None
    cell: Cell | None
    deadline: int


@dataclass(slots=True)
class _HeldGathering:
    """Who gathers: since when, and the stream's time at which it has lasted long enough."""

    since: datetime | None
    due: int
    dwelt: bool = False


@dataclass(slots=True)
class GatheringState:
    """One gathering's crowd: who is in it and where, and who of them gathers."""

    relation: Relation
    sequence: int
    about: Gathering = field(init=False)
    members: dict[str, _GatheringMember] = field(default_factory=dict)
    held: dict[str, _HeldGathering] = field(default_factory=dict)
    next_lapse: int = FOREVER
    _cells: dict[Cell, set[str]] = field(default_factory=dict)
    _gone: dict[str, Place | None] = field(default_factory=dict)
    _widths: tuple[float, float] = field(init=False)
    _time_to_live: int = field(init=False)

    def __post_init__(self) -> None:
        assert isinstance(self.relation.about, Gathering), "pairs are no crowds"
        self.about = self.relation.about
        reach = self.about.within + self.relation.margin
        chord = math.sqrt(max(surely_beyond(reach), 0.0)) * (1 + 1e-9)
        self._widths = (max(reach * (1 + 1e-9), 1.0), max(chord, _FINEST))
        lived = self.relation.time_to_live
        self._time_to_live = FOREVER if lived is None else micros(lived)

    def report(
        self, entity: str, place: Place | None, inside: bool, now: int, moment: datetime | None
    ) -> Iterator[Told]:
        """What a report changes: of an entity that is of the crowd by it, or not."""
        old = self.members.get(entity)
        if old is None and not inside:
            return
        if old is not None and inside and old.place == place:
            self._set(entity, place, now)
            # Whoever has not moved changes nothing, but lives on.
            return
        concerned = self.leave(entity, place)
        if inside:
            self._set(entity, place, now)
            concerned += self._around(entity, self.relation.margin)
        yield from self.settle(concerned, now, moment, False)

    def join(self, entity: str, place: Place | None, heard: int, now: int) -> None:
        """Takes an entity into the crowd that was heard of before, if it is not silent by now."""
        if self._deadline(heard) >= now:
            self._set(entity, place, heard)

    def leave(self, entity: str, place: Place | None) -> list[str]:
        """Takes an entity, which is at a place now, out of the crowd; itself and those around whom it was."""
        concerned = [entity, *self._around(entity, self.relation.margin)]
        member = self.members.pop(entity, None)
        if member and member.cell:
            self._cells[member.cell].discard(entity)
            if not self._cells[member.cell]:
                del self._cells[member.cell]
        self._gone[entity] = place
        return concerned

    def settle(self, entities: Iterable[str], now: int, moment: datetime | None, present: bool) -> Iterator[Told]:
        """Who of these begins to gather, or ends."""
        for entity in sorted(set(entities)):
            member = self.members.get(entity)
            if entity in self.held:
                if member is None:
                    yield from self._end(entity, CAUSED, "left")
                # Who is nowhere may be among them still: what is unknown ends nothing.
                elif member.place and not self._gathers(entity, self.relation.margin):
                    yield from self._end(entity, CAUSED, None)
            elif member is not None and member.place and self._gathers(entity, 0.0):
                yield from self._begin(entity, now, moment, present)
        self._gone = {}

    def _set(self, entity: str, place: Place | None, heard: int) -> None:
        cell = self._cell(place) if place else None
        self.members[entity] = member = _GatheringMember(place, cell, self._deadline(heard))
        if cell:
            self._cells.setdefault(cell, set()).add(entity)
        self.next_lapse = min(self.next_lapse, _after(member.deadline))

    def _deadline(self, heard: int) -> int:
        return FOREVER if self._time_to_live == FOREVER or heard == NEVER else heard + self._time_to_live

    def _cell(self, place: Place) -> Cell:
        if place.coordinates == "planar":
            return math.floor(place.x / self._widths[0]), math.floor(place.y / self._widths[0])
        lon, lat = math.radians(place.x), math.radians(place.y)
        vector = (math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat))
        return tuple(math.floor(one / self._widths[1]) for one in vector)

    def _near(self, entity: str, margin: float) -> list[tuple[str, float]]:
        """The other members within the distance of one, by name, and how far they are."""
        member = self.members.get(entity)
        place = member.place if member else self._gone.get(entity)
        if place is None:
            return []
        found = []
        for other in self._candidates(self._cell(place)):
            there = self.members[other].place
            metres = distance(place, there) if there and other != entity else None
            if metres is not None and metres <= self.about.within + margin:
                found.append((other, metres))
        return sorted(found)

    def _candidates(self, cell: Cell) -> Iterator[str]:
        # Where there are fewer members than cells around one, all are looked at.
        offsets = list(product((-1, 0, 1), repeat=len(cell)))
        if len(self.members) <= len(offsets):
            yield from self.members
            return
        for offset in offsets:
            yield from self._cells.get(tuple(a + b for a, b in zip(cell, offset, strict=True)), ())

    def _around(self, entity: str, margin: float) -> list[str]:
        return [name for name, _ in self._near(entity, margin)] if entity in self.members else []

    def _gathers(self, entity: str, margin: float) -> bool:
        return len(self._near(entity, margin)) >= self.about.count - 1

    def _begin(self, entity: str, now: int, moment: datetime | None, present: bool) -> Iterator[Told]:
        lasting = self.relation.lasting
        due = FOREVER if lasting is None or now == NEVER else now + micros(lasting)
        self.held[entity] = _HeldGathering(moment, due)
        self.next_lapse = min(self.next_lapse, due)
        if "enter" in self.relation.detect:
            yield self._tell("enter", entity, CAUSED, None, self._near(entity, 0.0), present)

    def _end(self, entity: str, phase: int, reason: Reason | None, now: int = NEVER) -> Iterator[Told]:
        held, detect = self.held[entity], self.relation.detect
        if "exit" in detect and (held.dwelt or "enter" in detect or "dwell" not in detect):
            yield self._tell("exit", entity, phase, reason, self._living(entity, now))
        del self.held[entity]

    def _living(self, entity: str, now: int) -> list[tuple[str, float]]:
        """Those around one that are not silent."""
        near = self._near(entity, self.relation.margin)
        return [(name, metres) for name, metres in near if self.members[name].deadline >= now]

    def lapse(self, now: int) -> Iterator[Told]:
        """Who has gathered long enough, and whose gathering ended in silence, by the stream's time."""
        for entity, held in sorted(self.held.items()):
            ends = self._silence(entity)
            # What fell silent first has not lasted, though its time has come too.
            if held.due <= min(ends, now):
                held.due, held.dwelt = FOREVER, True
                yield self._tell("dwell", entity, LAPSED, None, self._living(entity, now))
            if ends < now:
                yield from self._end(entity, LAPSED, "silent", now)
        # Only now: what was told above is told with those who were around until then.
        for entity in [name for name, member in self.members.items() if member.deadline < now]:
            self.leave(entity, None)
        self._gone = {}
        silent = [_after(member.deadline) for member in self.members.values()]
        self.next_lapse = min([*silent, *(held.due for held in self.held.values())], default=FOREVER)

    def _silence(self, entity: str) -> int:
        """The stream's time through which silence lets one gather: as members fall silent, there is one too many."""
        near = self._near(entity, self.relation.margin)
        others = sorted((self.members[name].deadline for name, _ in near), reverse=True)
        return min([self.members[entity].deadline, *others[: self.about.count - 1][-1:]])

    def end(self) -> list[Told]:
        """The ends of everything that holds."""
        return [one for entity in list(self.held) for one in self._end(entity, CAUSED, "removed")]

    def _tell(
        self,
        detect: Detection,
        entity: str,
        phase: int,
        reason: Reason | None,
        near: list[tuple[str, float]],
        present: bool = False,
    ) -> Told:
        member = self.members.get(entity)
        a = Subject(entity, member.place if member else self._gone.get(entity))
        around = tuple(Subject(name, self.members[name].place) for name, _ in near)
        farthest = max((metres for _, metres in near), default=None)
        since, count = self.held[entity].since, len(near) + 1
        return Told(phase, self.sequence, self.relation.id, detect, a, around, farthest, since, reason, present, count)


def _after(deadline: int) -> int:
    """The first moment at which who counts through a deadline is silent."""
    # At the deadline itself nothing lapses yet, and many events may be of that one moment.
    return deadline if deadline == FOREVER else deadline + 1


Lists = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Of each client its lists of entities."""


class Crowds:
    """The crowds of all gatherings, by their relations' ids."""

    def __init__(self, known: EntityTable) -> None:
        self.by_id: dict[str, GatheringState] = {}
        self._known = known
        self._listed: dict[str, frozenset[str]] = {}
        self._indices: dict[str, FilterMatcher] = {}

    def define(
        self, relation: Relation, sequence: int, newest: Callable[[], pa.Table], lists: Lists, now: int, cause: Cause
    ) -> list[Told]:
        """Adds a gathering; what it tells of the present."""
        assert isinstance(relation.about, Gathering), "pairs are no gatherings"
        self.by_id[relation.id] = crowd = GatheringState(relation, sequence)
        match relation.about.among:
            case Matching(filter):
                self._indices[relation.id] = FilterMatcher((), [filter])
                table = newest()
                inside = self._indices[relation.id].selected(table)[0]
                self._join(crowd, self._known.numbered(table)[inside].tolist(), now)
            case Buddies(client, name):
                self._listed[relation.id] = frozenset(lists.get(client, {}).get(name, ()))
                self._join(crowd, self._seen(self._listed[relation.id]), now)
        return list(crowd.settle(crowd.members, now, cause.moment, True))

    def _seen(self, names: frozenset[str]) -> list[int]:
        numbers = [self._known.numbers[name] for name in sorted(names) if name in self._known.numbers]
        return [number for number in numbers if self._known.columns["seen"][number]]

    def _join(self, crowd: GatheringState, numbers: list[int], now: int) -> None:
        places = ReportTable.nothing(self._known).places(np.array(numbers, np.int64)) if numbers else []
        heard = self._known.columns["heard"]
        for number, place in zip(numbers, places, strict=True):
            crowd.join(self._known.names[number], place, int(heard[number]), now)

    def end(self, id: str) -> list[Told]:
        """Removes a gathering; the ends of what held in it."""
        crowd = self.by_id.pop(id, None)
        self._listed.pop(id, None)
        self._indices.pop(id, None)
        return [] if crowd is None else crowd.end()

    def relisted(self, client: str, lists: Lists, now: int, cause: Cause) -> list[Told]:
        """What the new lists of a client change."""
        told: list[Told] = []
        for id, crowd in self.by_id.items():
            among = crowd.about.among
            if not isinstance(among, Buddies) or among.client != client:
                continue
            before, self._listed[id] = self._listed[id], frozenset(lists.get(client, {}).get(among.list, ()))
            gone = self._seen(before - self._listed[id])
            concerned: set[str] = set()
            places = ReportTable.nothing(self._known).places(np.array(gone, np.int64)) if gone else []
            for number, place in zip(gone, places, strict=True):
                concerned.update(crowd.leave(self._known.names[number], place))
            self._join(crowd, self._seen(self._listed[id] - before), now)
            told += crowd.settle(concerned | set(crowd.members), now, cause.moment, True)
        return told

    def advance(self, reports: ReportTable) -> Iterator[tuple[int, Told]]:
        """What a stretch tells, each with the row that causes it; entities are not updated yet."""
        for id, crowd in self.by_id.items():
            inside = self._inside(id, reports)
            begin = 0
            for row, told in self._reported(crowd, inside, reports):
                yield from _lapses(crowd, reports, begin, row + 1)
                begin = row + 1
                for one in told:
                    yield row, one
            yield from _lapses(crowd, reports, begin, reports.length)

    def _inside(self, id: str, reports: ReportTable) -> Flags:
        """Of each report that counts whether it makes its entity one of the crowd."""
        if id in self._indices:
            flags: Flags = self._indices[id].selected(reports.table)[0][reports.row]
            return flags
        numbers = [self._known.numbers[name] for name in self._listed[id] if name in self._known.numbers]
        return np.isin(reports.entity, numbers)

    def _reported(
        self, crowd: GatheringState, inside: Flags, reports: ReportTable
    ) -> Iterator[tuple[int, Iterator[Told]]]:
        """The rows of the reports that concern a crowd, and what they tell once asked for."""
        members = [self._known.numbers[name] for name in crowd.members]
        ever = np.concatenate([np.array(members, np.int64), reports.entity[inside]])
        some = np.flatnonzero(np.isin(reports.entity, ever))
        names = [self._known.names[number] for number in reports.entity[some].tolist()]
        rows = reports.row[some]
        columns = (rows.tolist(), inside[some].tolist(), reports.now[rows].tolist(), reports.moment[rows].tolist())
        places = reports.places(reports.known + some)
        for row, there, now, moment, name, place in zip(*columns, names, places, strict=True):
            yield row, crowd.report(name, place, there, now, moment_of(moment))


def _lapses(crowd: GatheringState, reports: ReportTable, begin: int, end: int) -> Iterator[tuple[int, Told]]:
    """What lapses at the rows from one to before another."""
    while begin < end:
        row = max(begin, int(np.searchsorted(reports.now, crowd.next_lapse, "left")))
        if row >= end:
            return
        for told in crowd.lapse(int(reports.now[row])):
            yield row, told
        begin = row + 1
