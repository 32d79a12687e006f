"""How many pairs of a relation may hold, and begin, and which of those that should begin do not.

Two thousand at one place are two million pairs, each of which would be told. So a pair does not begin where both of its
entities are in `relation_partners` pairs of the relation already, nor where `relation_pairs` hold: each entity has that
many partners, but who has one partner only may have a common one with everybody. Nor does it where more began than
reports made room for: a relation has room for `relation_burst` beginnings, of which each takes one, and each report of
its sides brings `relation_begins` back. That counts reports, not time: a file may be in no order of time, and all that
it tells of one moment.

Of what one report brings about, first what lapses and ends makes room; then begin the pairs with those that have fewer
partners, then the others, each by the names of the two. What did not begin never ends; it begins with the next report
of either that finds room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nearcast.model.arrays import Flags, Integers
from nearcast.model.limits import Limits
from nearcast.relations.candidates import Unlooked
from nearcast.relations.entity_table import GrowableTable
from nearcast.relations.pair_rules import PairRule, PairRules
from nearcast.relations.reports import ReportTable, names_in_order
from nearcast.relations.transitions import BEGINS, PairEffects

LISTED = 100
"""Entities of a relation that are named among those that have more partners than they may."""


@dataclass(slots=True)
class Crowding:
    """What of a relation did not begin for its limits: how often, and for which entities how many with their last
    report; `hurried` are those of which some did not as too many others began before, and `unseen` how many more were
    near those than were looked at.
    """

    refused: int = 0
    entities: dict[str, int] = field(default_factory=dict)
    hurried: set[str] = field(default_factory=set)
    unseen: dict[str, int] = field(default_factory=dict)

    def note(self, entity: str, more: int, hurried: bool = False) -> None:
        """Takes note of how many pairs of an entity did not begin with its report."""
        self.refused += more
        self.hurried.discard(entity)
        if not more:
            self.entities.pop(entity, None)
        elif entity in self.entities or len(self.entities) < LISTED:
            self.entities[entity] = more
            if hurried:
                self.hurried.add(entity)

    @property
    def advice(self) -> str:
        """The limits that were met, to be raised."""
        if self.hurried:
            return "relation_begins or relation_burst"
        return "relation_looks" if self.unseen and not self.entities else "relation_partners or relation_pairs"

    def note_unseen(self, entity: str, more: int, all_: int) -> None:
        """Takes note of how many were near an entity that its last report did not look at, and all its reports."""
        self.refused += all_
        if not more:
            self.unseen.pop(entity, None)
        elif entity in self.unseen or len(self.unseen) < LISTED:
            self.unseen[entity] = more


class ShardEffects(NamedTuple):
    """What a stretch does to a shard: its pairs, which of them it concerns, and effects by their number among these."""

    pairs: GrowableTable
    which: Integers
    effects: PairEffects


Reporting = Callable[[PairRule], Flags]
"""Says of each report of a stretch whether it is of a side of a rule."""


class PairAdmission:
    """What did not begin so far, by relation, and for how many beginnings those have room that have not all; see
    `admit`.
    """

    def __init__(self) -> None:
        self.crowded: dict[str, Crowding] = {}
        self.rooms: dict[str, int] = {}

    def admit(
        self,
        shards: Sequence[ShardEffects],
        rules: PairRules,
        names: Sequence[str],
        reports: ReportTable,
        reporting: Reporting,
        limits: Limits,
    ) -> list[PairEffects]:
        """The effects on each shard's pairs, without those that would begin a pair beyond a limit."""
        kept = [np.ones(len(one.effects.pair), np.bool_) for one in shards]
        for number in sorted(_beginning(shards).union(rules.by_id[id].number for id in self.rooms)):
            rule = rules.all[number]
            if rule is None or rule.is_named:
                continue
            id, through = rule.relation.id, _reports_through(reports, reporting(rule))
            begun = _begun(shards, number, reports)
            level = self._level(id, through, begun, limits)
            # Where nothing begins only the room is followed, however many pairs there are.
            if level is None or (begun.any() and _may_exceed(shards, number, limits)):
                walk = _RuleWalk.of(shards, rule, reports, names, through, self.rooms.get(id, limits.relation_burst))
                for place, refused, hurried in walk.rows(limits):
                    for shard, flags in enumerate(kept):
                        flags[walk.index[refused[walk.shard[refused] == shard]]] = False
                    if len(refused) or id in self.crowded:
                        self.crowded.setdefault(id, Crowding()).note(names[place], len(refused), hurried)
                level = walk.room
            elif id in self.crowded:
                for entity in np.unique(reports.entity).tolist():
                    self.crowded[id].note(names[entity], 0)
            self._set_room(id, level, limits)
        return [
            one.effects if flags.all() else one.effects.select(np.flatnonzero(flags))
            for one, flags in zip(shards, kept, strict=True)
        ]

    def note_unseen(
        self, beyond: Mapping[int, Sequence[Unlooked]], rules: PairRules, names: Sequence[str], reports: ReportTable
    ) -> None:
        """Takes note of how many more were near reports than these looked at, by the numbers of rules."""
        for rule in map(rules.all.__getitem__, beyond):
            if rule is not None:
                self.crowded.setdefault(rule.relation.id, Crowding())
        for id, crowding in self.crowded.items():
            number = rules.by_id[id].number
            more = np.zeros(len(reports.row), np.int64)
            for one in beyond.get(number, ()):
                more[one.report] += one.more
            if not (crowding.unseen or more.any()):
                continue
            sums = np.bincount(reports.entity, more).astype(np.int64)
            for report in reports.last_of_each().tolist():
                entity = int(reports.entity[report])
                crowding.note_unseen(names[entity], int(more[report]), int(sums[entity]))

    def _level(self, id: str, through: Integers, begun: Integers, limits: Limits) -> int | None:
        """The room that is left if so many pairs begin at each row; None where there is not enough."""
        burst = limits.relation_burst
        added = np.diff(through, prepend=0) * limits.relation_begins
        before = self.rooms.get(id, burst) + np.cumsum(added) - (np.cumsum(begun) - begun)
        # Room that comes where there is all is lost.
        left = before - np.maximum(np.maximum.accumulate(before - burst), 0) - begun
        return None if (left < 0).any() else int(left[-1]) if len(left) else self.rooms.get(id, burst)

    def _set_room(self, id: str, level: int, limits: Limits) -> None:
        if level < limits.relation_burst:
            self.rooms[id] = level
        else:
            self.rooms.pop(id, None)

    def admit_present(
        self, rule: PairRule, a: Integers, b: Integers, names: Sequence[str], limits: Limits
    ) -> tuple[Integers, Integers]:
        """Of the pairs that hold as a relation is defined those that begin: one after the other, by their names."""
        if rule.is_named or not _exceeds(a, b, limits):
            return a, b
        order = sorted(range(len(a)), key=lambda index: (names[int(a[index])], names[int(b[index])]))
        counts = np.zeros(int(max(a.max(), b.max())) + 1, np.int64)
        begun: list[int] = []
        crowding = self.crowded.setdefault(rule.relation.id, Crowding())
        for index in order:
            one, other = int(a[index]), int(b[index])
            full = min(counts[one], counts[other]) >= limits.relation_partners
            if full or len(begun) >= limits.relation_pairs:
                crowding.note(names[one], crowding.entities.get(names[one], 0) + 1)
                continue
            counts[one] += 1
            counts[other] += 1
            begun.append(index)
        chosen = np.array(sorted(begun), np.int64)
        return a[chosen], b[chosen]

    def end(self, id: str) -> None:
        """Forgets a relation."""
        self.crowded.pop(id, None)
        self.rooms.pop(id, None)


def seen_effects(
    shard: ShardEffects, beyond: Mapping[int, Sequence[Unlooked]], rules: PairRules, reports: ReportTable
) -> ShardEffects:
    """The effects on a shard without those that begin a pair with somebody at whom the report did not look."""
    pairs, which, effects = shard
    unseen = np.zeros(len(effects.pair), np.bool_)
    for number, unlooked in beyond.items():
        rule = rules.all[number]
        assert rule is not None, "what is looked at is of a relation that there is"
        begins = np.flatnonzero((effects.effect == BEGINS) & (pairs["rule"][which[effects.pair]] == number))
        order = begins[np.argsort(effects.row[begins], kind="stable")]
        rows = effects.row[order]
        for one in unlooked:
            first, last = np.searchsorted(rows, [row := reports.row[one.report], row + 1])
            own, entity = order[first:last], reports.entity[one.report]
            a, b = (pairs[side][which[effects.pair[own]]] for side in ("a", "b"))
            mine = (b if one.side else a) == entity
            if rule.unordered:
                mine[:] = True
            unseen[own[mine & ~np.isin(np.where(a == entity, b, a), one.looked_at)]] = True
    return shard._replace(effects=effects.select(np.flatnonzero(~unseen))) if unseen.any() else shard


def _beginning(shards: Sequence[ShardEffects]) -> set[int]:
    """The numbers of the rules of which some pair may begin."""
    found = [one.pairs["rule"][one.which[one.effects.pair[one.effects.effect == BEGINS]]] for one in shards]
    return {number for own in found for number in np.flatnonzero(np.bincount(own)).tolist()}


def _begun(shards: Sequence[ShardEffects], number: int, reports: ReportTable) -> Integers:
    """How many pairs of a rule begin at each row of a stretch, if all do."""
    begun = np.zeros(reports.length, np.int64)
    for pairs, which, effects in shards:
        begins = effects.effect == BEGINS
        first = np.append(True, effects.pair[1:] != effects.pair[:-1])[: len(effects.pair)]
        before = np.where(first, pairs["held"][which][effects.pair], np.append(False, begins)[: len(begins)])
        own = begins & ~before & (pairs["rule"][which[effects.pair]] == number)
        begun += np.bincount(effects.row[own], minlength=len(begun))
    return begun


def _reports_through(reports: ReportTable, own: Flags) -> Integers:
    """How many of some reports of a stretch there were through each of its rows."""
    return np.cumsum(np.bincount(reports.row[own], minlength=reports.length))


def _may_exceed(shards: Sequence[ShardEffects], number: int, limits: Limits) -> bool:
    """Whether a relation might come beyond its limits, if all began that may, and nothing ended."""
    # There are hardly more rows than hold or may begin, of all relations: mostly that says enough, and costs less.
    if sum(pairs.length for pairs, _, _ in shards) <= limits.relation_pairs:
        sides = [np.bincount(pairs[side]) for pairs, _, _ in shards for side in ("a", "b")]
        counts = np.zeros(max(map(len, sides)), np.int64)
        for own in sides:
            counts[: len(own)] += own
        if int(counts.max(initial=0)) <= limits.relation_partners:
            return False
    a, b = [], []
    for pairs, which, effects in shards:
        holding = pairs["held"].copy()
        holding[which[effects.pair[effects.effect == BEGINS]]] = True
        own = np.flatnonzero(holding & (pairs["rule"] == number))
        a.append(pairs["a"][own])
        b.append(pairs["b"][own])
    return _exceeds(np.concatenate(a), np.concatenate(b), limits)


def _exceeds(a: Integers, b: Integers, limits: Limits) -> bool:
    """Whether these pairs together are beyond the limits."""
    if len(a) > limits.relation_pairs:
        return True
    if len(a) <= limits.relation_partners:
        return False
    counts = np.bincount(np.concatenate([a, b]))
    return bool((np.minimum(counts[a], counts[b]) > limits.relation_partners).any())


@dataclass(slots=True)
class _RuleWalk:
    """A stretch's effects on the pairs of one rule, in the order of their rows, ends before beginnings.

    `pair` tells a pair from others; `shard` and `index` say which effect of the stretch it is; `rank` is an entity's
    place by name. `room` is for so many beginnings; `through` has the reports that bring some.
    """

    row: Integers
    begins: Flags
    pair: Integers
    a: Integers
    b: Integers
    shard: Integers
    index: Integers
    holds: Flags
    counts: Integers
    total: int
    reporter: dict[int, int]
    rank: Integers
    through: Integers
    room: int
    counted: int = 0

    @staticmethod
    def of(
        shards: Sequence[ShardEffects],
        rule: PairRule,
        reports: ReportTable,
        names: Sequence[str],
        through: Integers,
        room: int,
    ) -> _RuleWalk:
        """The effects on a rule's pairs, and how many hold as the stretch begins."""
        columns: list[list[Integers]] = [[] for _ in range(7)]
        holds: list[Flags] = []
        counts, offset = np.zeros(reports.known, np.int64), 0
        for number, (pairs, which, effects) in enumerate(shards):
            own = np.flatnonzero(pairs["rule"][which[effects.pair]] == rule.number)
            at = which[effects.pair[own]]
            found = (effects.row[own], effects.effect[own] == BEGINS, at + offset, pairs["a"][at], pairs["b"][at])
            for column, one in zip(columns, (*found, np.full(len(own), number), own), strict=True):
                column.append(one)
            held = pairs["held"] & (pairs["rule"] == rule.number)
            for side in ("a", "b"):
                counts += np.bincount(pairs[side][held], minlength=len(counts))
            holds.append(held)
            offset += pairs.length
        together = [np.concatenate(column) for column in columns]
        order = np.argsort(2 * together[0] + together[1], kind="stable")
        reporter = dict(zip(reports.row.tolist(), reports.entity.tolist(), strict=True))
        row, begins, pair, a, b, shard, index = (column[order] for column in together)
        flags = np.concatenate(holds)
        total, rank = int(flags.sum()), np.zeros(reports.known, np.int64)
        some = np.concatenate([a, b])
        rank[some] = names_in_order(names, some)[1]
        ordered = (row, begins.astype(np.bool_), pair, a, b, shard, index)
        return _RuleWalk(*ordered, flags, counts, total, reporter, rank, through, room)

    def rows(self, limits: Limits) -> Iterator[tuple[int, Integers, bool]]:
        """For each row that may begin something: who reports, the effects that do not count, and whether some do not
        as too many began before.
        """
        bounds = np.flatnonzero(np.append(True, self.row[1:] != self.row[:-1])[: len(self.row)]).tolist()
        for first, last in pairwise([*bounds, len(self.row)]):
            middle = first + int(np.searchsorted(self.begins[first:last], True))
            if middle > first:
                self._end(np.arange(first, middle))
            entity = self.reporter.get(int(self.row[first]))
            if entity is None or middle == last:
                continue
            some = np.arange(middle, last)
            some = some[~self.holds[self.pair[some]]]
            self._bring_room(int(self.through[self.row[first]]), limits)
            begun, hurried = self._chosen(some, entity, limits)
            self.room -= len(begun)
            self.holds[self.pair[begun]] = True
            np.add.at(self.counts, np.concatenate([self.a[begun], self.b[begun]]), 1)
            self.total += len(begun)
            # Of a pair that holds now the beginning counts.
            yield entity, some[~self.holds[self.pair[some]]], hurried
        self._bring_room(int(self.through[-1]) if len(self.through) else 0, limits)

    def _bring_room(self, through: int, limits: Limits) -> None:
        """Reports bring room, so many through now."""
        self.room = min(limits.relation_burst, self.room + (through - self.counted) * limits.relation_begins)
        self.counted = through

    def _end(self, effects: Integers) -> None:
        """What ends makes room."""
        _, once = np.unique(self.pair[effects], return_index=True)
        ended = effects[once]
        ended = ended[self.holds[self.pair[ended]]]
        self.holds[self.pair[ended]] = False
        np.subtract.at(self.counts, np.concatenate([self.a[ended], self.b[ended]]), 1)
        self.total -= len(ended)

    def _chosen(self, some: Integers, entity: int, limits: Limits) -> tuple[Integers, bool]:
        """Which of the pairs that a report of an entity would begin do begin; whether more would with more room."""
        other = np.where(self.a[some] == entity, self.b[some], self.a[some])
        free = self.counts[other] < limits.relation_partners
        first, rest = some[free], some[~free]
        left = max(0, limits.relation_partners - int(self.counts[entity]) - len(first))
        allowed = min(len(first) + min(left, len(rest)), max(0, limits.relation_pairs - self.total))
        most = min(allowed, self.room)
        first = self._by_name(first, most)
        return np.concatenate([first, self._by_name(rest, most - len(first))]), most < allowed

    def _by_name(self, some: Integers, most: int) -> Integers:
        """The first so many by name."""
        if most >= len(some):
            return some
        keys = self.rank[self.a[some]] << 32 | self.rank[self.b[some]]
        return some[np.argpartition(keys, most)[:most]]
