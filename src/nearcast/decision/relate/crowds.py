"""All gatherings over stretches of the journal: which reports concern which crowd, and when something may lapse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from nearcast.decision.derived_event import Cause
from nearcast.decision.match.index import Index
from nearcast.decision.relate.gathering import Crowd
from nearcast.decision.relate.reports import Entities, Flags, Reports, moment_of
from nearcast.decision.relate.telling import Told
from nearcast.model.relation import Buddies, Gathering, Matching, Relation

Lists = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Of each client its lists of entities."""


class Crowds:
    """The crowds of all gatherings, by their relations' ids."""

    def __init__(self, known: Entities) -> None:
        self.by_id: dict[str, Crowd] = {}
        self._known = known
        self._listed: dict[str, frozenset[str]] = {}
        self._indices: dict[str, Index] = {}

    def define(
        self, relation: Relation, sequence: int, newest: Callable[[], pa.Table], lists: Lists, now: int, cause: Cause
    ) -> list[Told]:
        """Adds a gathering; what it tells of the present."""
        assert isinstance(relation.about, Gathering), "pairs are no gatherings"
        self.by_id[relation.id] = crowd = Crowd(relation, sequence)
        match relation.about.among:
            case Matching(filter):
                self._indices[relation.id] = Index((), [filter])
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

    def _join(self, crowd: Crowd, numbers: list[int], now: int) -> None:
        places = Reports.nothing(self._known).places(np.array(numbers, np.int64)) if numbers else []
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
            places = Reports.nothing(self._known).places(np.array(gone, np.int64)) if gone else []
            for number, place in zip(gone, places, strict=True):
                concerned.update(crowd.leave(self._known.names[number], place))
            self._join(crowd, self._seen(self._listed[id] - before), now)
            told += crowd.settle(concerned | set(crowd.members), now, cause.moment, True)
        return told

    def advance(self, reports: Reports) -> Iterator[tuple[int, Told]]:
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

    def _inside(self, id: str, reports: Reports) -> Flags:
        """Of each report that counts whether it makes its entity one of the crowd."""
        if id in self._indices:
            flags: Flags = self._indices[id].selected(reports.table)[0][reports.row]
            return flags
        numbers = [self._known.numbers[name] for name in self._listed[id] if name in self._known.numbers]
        return np.isin(reports.entity, numbers)

    def _reported(self, crowd: Crowd, inside: Flags, reports: Reports) -> Iterator[tuple[int, Iterator[Told]]]:
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


def _lapses(crowd: Crowd, reports: Reports, begin: int, end: int) -> Iterator[tuple[int, Told]]:
    """What lapses at the rows from one to before another."""
    while begin < end:
        row = max(begin, int(np.searchsorted(reports.now, crowd.next_lapse, "left")))
        if row >= end:
            return
        for told in crowd.lapse(int(reports.now[row])):
            yield row, told
        begin = row + 1
