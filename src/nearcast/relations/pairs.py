"""Relations between pairs, evaluated in columns over stretches of the journal.

A stretch is evaluated in four steps: which pairs it may change, every report of them held against the other side, what
that changed pair by pair, and what is told of it. What all pairs need is found once, the rest by each shard for its own
pairs. The outcome is that of the reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy, deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.errors import Fault
from nearcast.model.arrays import Flags, Integers
from nearcast.model.limits import Limits
from nearcast.model.relation import Detection, Matching, Named, Pair, Relation
from nearcast.model.sequence import MOST_PARTS
from nearcast.relations.admission import PairAdmission, seen_effects
from nearcast.relations.candidates import BothBoxes, Looks, Members, Pairs, TooManyPairs, Unlooked, candidates
from nearcast.relations.entity_table import EntityTable, GrowableTable
from nearcast.relations.evaluations import OverTime, PredicateEvaluator, read
from nearcast.relations.filter_members import FilterMembers, reports_of_sides, selected_by
from nearcast.relations.geometries.pair_comparisons import UndecidedPairs
from nearcast.relations.geometries.remembered_events import RememberedEvents
from nearcast.relations.pair_rules import NOBODY, PairRule, PairRules
from nearcast.relations.reports import NO_VALUES, ReportTable, Values, clock_pair, micros_of
from nearcast.relations.shards import (
    SHARDS,
    BatchView,
    Shard,
    by_name,
    shards_of,
    shared,
)
from nearcast.relations.told_pairs import NO_REASON, NOTHING_TOLD, ToldPairs, joined_told, reasons_of, told_pairs
from nearcast.relations.transition_events import CAUSED, EXPIRED
from nearcast.relations.transitions import FALLS_SILENT, REMOVED, HoldState, PairStanding, deadlines, tells_exit
from nearcast.state.derived import Cause
from nearcast.state.lateness import FOREVER, NEVER
from nearcast.state.stream_clocks import StreamClocks
from nearcast.state.timeline import Excess

if TYPE_CHECKING:
    pass

Newest = Callable[[], pa.Table]
"""Gives the newest event of every entity, where it is asked for."""


MOST_PAIRS = 250_000
"""Pairs that a stretch of several reports looks at, each as often as one of the two reports: about 200 bytes each."""

FITTING = 0.9
"""What part of `MOST_PAIRS` a stretch is to look at, by what the one before it did."""

MOST_PRESENT = 4_000_000
"""Pairs that are looked at when a relation is defined."""


class PairRelations:
    """All relations between pairs, and what holds in them, in so many shards."""

    def __init__(self, known: EntityTable, shards: int = SHARDS) -> None:
        self.rules = PairRules()
        self.known = known
        self.shards = [Shard() for _ in range(shards)]
        self.members = FilterMembers()
        self.remembered = RememberedEvents()
        self.admission = PairAdmission()
        self.undecided = UndecidedPairs()
        self._asked: Mapping[int, Sequence[tuple[str, int, int]]] = {}
        self._values: dict[int, Values] = {}
        self.limits = Limits()
        self.excess: Counter[Excess] = Counter()
        self.looks = 0

    def copy(self, known: EntityTable) -> PairRelations:
        """The same relations, which go on by themselves, over a copy of what is known; none is defined there or ends,
        and what comes to a limit is counted apart.
        """
        found = copy(self)
        found.known, found.excess, found.admission = known, Counter(), deepcopy(self.admission)
        found.undecided = UndecidedPairs()
        found.shards = [Shard(shard.pairs.copy()) for shard in self.shards]
        found.members = self.members.copy()
        found.remembered, found._values = self.remembered.copy(), dict(self._values)
        return found

    @property
    def size(self) -> int:
        """Bytes of the pairs' state, without what is known of entities."""
        return sum(shard.pairs.size for shard in self.shards) + self.rules.columns.size

    @property
    def held(self) -> int:
        """Of how many pairs something is kept: of those that hold, and of those whose sides are both named."""
        return sum(shard.pairs.length for shard in self.shards)

    def standing(self) -> tuple[Integers, Integers]:
        """Of pairs with two named sides, in the order of their definitions: their rules; shape (3, n): the positions
        of both reports, and if they hold.

        A position is negative where nothing was reported yet.
        """
        found = [self._standing(shard.pairs) for shard in self.shards]
        rules, states = (np.concatenate(parts, axis=-1) for parts in zip(*found, strict=True))
        order = np.argsort(rules, kind="stable")
        return rules[order], states[:, order]

    def _standing(self, pairs: GrowableTable) -> tuple[Integers, Integers]:
        named = np.flatnonzero(self.rules.named[pairs["rule"]])
        position = self.known.columns["position"]
        rows = [position[pairs[side][named]] for side in ("a", "b")]
        return pairs["rule"][named].astype(np.int64), np.stack([*rows, pairs["held"][named]])

    def pair_standing(self, id: str, a: str, b: str) -> PairStanding:
        """How a relation between pairs stands for two entities, named in the order of its sides."""
        number = self.rules.by_id[id].number
        one, other = (self.known.numbers.get(name, NOBODY) for name in (a, b))
        held = [
            shard.pairs.chosen(np.flatnonzero(shard.pairs["held"] & (shard.pairs["rule"] == number)))
            for shard in self.shards
        ]
        sides = [np.concatenate([own[side] for own in held]) for side in ("a", "b")]
        found = [(own, at) for own in held for at in np.flatnonzero((own["a"] == one) & (own["b"] == other)).tolist()]
        states = [HoldState(*(own[name][at].item() for name in HoldState._fields)) for own, at in found]
        partners = (int((sides[0] == each).sum() + (sides[1] == each).sum()) for each in (one, other))
        known = [self._values.get(each, NO_VALUES) for each in (one, other)]
        unknown = tuple(text for text, side, own in self._asked.get(number, ()) if own not in known[side])
        state, both = next(iter(states), None), (next(partners), next(partners))
        return PairStanding(state, both, len(sides[0]), unknown, (id, a, b) in self.undecided)

    def limit(self, limits: Limits) -> None:
        """Goes on within other limits."""
        if limits != self.limits:
            self.limits = limits
            self.remembered.limit(limits)

    def transitions(self, reports: ReportTable) -> list[ToldPairs]:
        """What a stretch tells; entities are not updated yet. `looks` is how often it looks at pairs then, as far as
        that was counted.

        Raises `TooManyPairs`, with nothing changed, for a stretch of several rows that looks at too many pairs.
        """
        self.looks = 0
        if not self.rules.by_id:
            return []
        members = self.members.over(self.rules.filters, self.known, reports, self.limits, self.excess)
        boxes = self.remembered.boxes_of_points(reports, self.rules.general.values())
        view = BatchView(self.rules, self.known, reports, members)
        limited = {rule.number: Looks(self.limits.relation_looks, self.known) for rule in self.rules.open.values()}
        near = self._near(reports, members, boxes, limited)
        concerned = [shard.concerned(view) for shard in self.shards]
        self.looks = sum(shard.evaluations(view, own) for shard, own in zip(self.shards, concerned, strict=True))
        self.looks += sum(int(reports.counts[side].sum()) for own in near for _, pairs in own for side in pairs)
        if self.looks > MOST_PAIRS and reports.parts > 1:
            raise TooManyPairs
        self._count_unread(boxes, reports, first=reports.known)
        beyond = {number: one.beyond for number, one in limited.items() if one.beyond}
        evaluate = self._evaluator(reports, boxes, beyond)
        every_shard = zip(self.shards, near, concerned, strict=True)
        listed = [shard.listed(view, pairs, rows, evaluate) for shard, pairs, rows in every_shard]
        # What an event's pairs may take they share, whatever shards they are of.
        evaluate.compare()
        effects = [shard.effects(view, *own) for shard, own in zip(self.shards, listed, strict=True)]
        reporting = partial(reports_of_sides, self.rules, self.known, reports, members)
        effects = [seen_effects(each, beyond, self.rules, reports) for each in effects] if beyond else effects
        admitted = self.admission.admit(effects, self.rules, self.known.names, reports, reporting, self.limits)
        self.admission.note_unseen(beyond, self.rules, self.known.names, reports)
        every = zip(self.shards, effects, admitted, strict=True)
        told = [one for shard, each, own in every for one in shard.transitions(view, each.which, own)]
        self._remember(reports, members)
        return told

    def _evaluator(
        self,
        reports: ReportTable,
        boxes: Mapping[int, BothBoxes],
        beyond: Mapping[int, Sequence[Unlooked]],
    ) -> PredicateEvaluator:
        over_time = OverTime(self._asked, self._values)
        known = (self.rules, reports, self.remembered.events, self.remembered.geometries, boxes)
        return PredicateEvaluator(*known, self.limits, self.excess, self.undecided, over_time, beyond)

    def _near(
        self, reports: ReportTable, members: Members, boxes: Mapping[int, BothBoxes], looks: Mapping[int, Looks]
    ) -> list[list[tuple[PairRule, Pairs]]]:
        """For each shard its pairs of open relations that the stretch may bring together."""
        found: list[list[tuple[PairRule, Pairs]]] = [[] for _ in self.shards]
        for rule in self.rules.open.values() if len(reports.row) else ():
            most = MOST_PAIRS if reports.parts > 1 else None
            filters, numbers, own, seen = (
                self.rules.filter_numbers(rule),
                self.known.numbers,
                boxes.get(rule.number),
                looks[rule.number],
            )
            pairs = candidates(rule, filters, reports, members, numbers, most=most, boxes=own, looks=seen)
            for near, share in zip(found, shared(self.known, *pairs, len(self.shards)), strict=True):
                a, b = (side[share] for side in pairs)
                if len(a):
                    near.append((rule, (a, b)))
        return found

    def _count_unread(self, boxes: Mapping[int, BothBoxes], reports: ReportTable, first: int) -> None:
        """Counts the geometries from a point on that are not read for their limits: no pair is looked at for them."""
        # Those that are told are the same for all rules.
        rules = [(self.rules.all[number], both) for number, both in boxes.items()]
        told = [both[rule.boxes.index(True)] for rule, both in rules if rule and rule.boxes and any(rule.boxes)]
        if not told:
            return
        for event in self.remembered.unread(told[0], reports, first):
            self.excess[event.source, event.type, "geometry_work"] += 1

    def fitting(self, rows: int) -> int:
        """How many rows may be a stretch where so many looked as often at pairs as the last stretch did."""
        # What comes next may look more often: cutting it again costs as much as what is saved.
        return max(1, int(rows * FITTING * MOST_PAIRS / max(1, self.looks)))

    def set_clocks(self) -> None:
        """Lets every pair go by the clocks by which its entities go now, those being others."""
        for shard in self.shards:
            shard.set_clocks(self.known)

    def share(self, pairs: GrowableTable, shards: int) -> None:
        """Takes these rows for its pairs, in so many shards."""
        self.shards = [Shard(pairs.chosen(own)) for own in shared(self.known, pairs["a"], pairs["b"], shards)]

    def _remember(self, reports: ReportTable, members: Members) -> None:
        """What was known of a filter's members, and of events, as the next stretch begins with it."""
        self._remember_values(reports)
        last = reports.last_told_of_each()
        self.members.remember(members, reports, self.known)
        if self.rules.general:
            events = read(reports.table, reports.row[last])
            self.remembered.remember(reports.entity[last].tolist(), events, len(self.known))

    def ask_over_time(self, asked: Mapping[int, Sequence[tuple[str, int, int]]], values: Mapping[str, Values]) -> None:
        """Goes on with the aggregates that rules ask for, by number, and the values that entities have, by name."""
        self._asked = asked
        self._values = {self.known.number(name): own for name, own in values.items()}

    def _remember_values(self, reports: ReportTable) -> None:
        """What aggregates were, as the next stretch begins with it."""
        if reports.changes is None:
            return
        last = reports.last_of_each()
        for number, row in zip(reports.entity[last].tolist(), reports.row[last].tolist(), strict=True):
            self._values[number] = reports.changes.values[row] or NO_VALUES

    def define(
        self, relation: Relation, sequence: int, newest: Newest, clocks: StreamClocks, cause: Cause
    ) -> ToldPairs:
        """Adds a relation; what it tells of the present.

        `newest` gives the newest event of every entity, where the relation needs to know more of it than its place.
        """
        return self._present(self._add(relation, sequence, newest, cause.position), clocks, cause)

    def begins(self, relation: Relation, newest: Newest, clocks: StreamClocks) -> int:
        """How many pairs a new relation would tell of; 0 where they are surely no more than one event may cause.

        Raises `Fault` where more than `MOST_PRESENT` would have to be looked at.
        """
        pair = relation.about
        named = isinstance(pair, Pair) and (isinstance(pair.a, Named) or isinstance(pair.b, Named))
        if named or not isinstance(pair, Pair) or len(self.known) ** 2 <= MOST_PARTS:
            return 0
        # What is refused must change nothing, so it is counted beside what there is.
        beside = PairRelations(self.known, 1)
        beside.limits = self.limits
        rule = beside._add(relation, 0, newest)
        try:
            count = int(beside._holding(rule, *beside._pairs_of(rule), clocks).sum())
        except TooManyPairs:
            expected = f"a relation of which {MOST_PRESENT:,} pairs at most may hold when it is defined"
            advice = "ask for fewer: by its filters, or by a distance beyond which it does not hold"
            raise Fault(expected, f"more among {len(self.known):,} entities", None, advice) from None
        return count if "enter" in relation.detect else 0

    def ends(self, id: str) -> int:
        """How many pairs the end of a relation would tell of; 0 where they are surely no more than that."""
        rule = self.rules.by_id.get(id)
        if rule is None or sum(shard.pairs.length for shard in self.shards) <= MOST_PARTS:
            return 0
        own = ((shard.pairs["rule"] == rule.number) & shard.pairs["held"] for shard in self.shards)
        return sum(int(held.sum()) for held in own) if "exit" in rule.relation.detect else 0

    def _add(self, relation: Relation, sequence: int, newest: Newest, after: int = 0) -> PairRule:
        """Adds a relation, and what is known now of what it asks for."""
        # Events are remembered only while some predicate needs more of them than places.
        general = bool(self.rules.general)
        rule = self.rules.add_relation(relation, sequence, after)
        for side in (rule.pair.a, rule.pair.b):
            if isinstance(side, Named):
                self.known.number(side.entity)
        new = [(filter, number) for filter, number in self.rules.filters.items() if number not in self.members.columns]
        table = newest() if new or (rule.predicate and not general) else None
        for filter, number in new:
            # As of the definition; from the next stretch on it is carried on.
            own = self.known.numbered(table) if table is not None else np.zeros(0, np.int64)
            inside = np.zeros(len(self.known), np.bool_)
            if table is not None:
                inside[own] = selected_by(filter, self.rules.filters, table, self.limits, self.excess)
            self.members.add_column(number, inside)
        if rule.predicate and not general and table is not None:
            events = read(table, np.arange(len(table)))
            self.remembered.begin(dict(zip(self.known.numbered(table).tolist(), events, strict=True)))
        return rule

    def _present(self, rule: PairRule, clocks: StreamClocks, cause: Cause) -> ToldPairs:
        """What holds when a relation is defined; its pairs have rows then."""
        a, b = self._pairs_of(rule)
        held = self._holding(rule, a, b, clocks)
        # Most named pairs do not hold when they are defined, and there may be very many.
        if not held.any():
            if rule.is_named:
                self._place(rule, a, b)
            return NOTHING_TOLD
        a, b = self.admission.admit_present(rule, a[held], b[held], self.known.names, self.limits)
        own = self.known.columns["clock"]
        both = clock_pair(own[a], own[b])
        # By the slower clock, what holds lasts from now on.
        now = np.minimum(clocks.values[own[a]], clocks.values[own[b]])
        due = deadlines(now, np.full(len(a), self.rules.columns["lasting"][rule.number]))
        since = np.minimum(micros_of(cause.moment), now)
        since[now == NEVER] = micros_of(cause.moment)
        self._place(rule, a, b, held=np.ones(len(a), np.bool_), started_at=since, due=due, clocks=both)
        if "enter" not in rule.relation.detect:
            return NOTHING_TOLD
        number = np.full(len(a), rule.number)
        return self._told(number, a, b, "enter", since, CAUSED, present=True)

    def _place(self, rule: PairRule, a: Integers, b: Integers, **state: npt.NDArray[Any]) -> None:
        """Adds rows for new pairs of a relation, each to its shard, in these states."""
        number = shards_of(self.known, a, b, len(self.shards))
        # A named pair is one, and there may be very many.
        if len(number) == 1:
            self.shards[number[0]].pairs.append(rule=rule.number, a=a, b=b, **state)
            return
        for one in np.flatnonzero(np.bincount(number)).tolist():
            own = number == one
            self.shards[one].pairs.append(
                int(own.sum()), rule=rule.number, a=a[own], b=b[own], **{name: one[own] for name, one in state.items()}
            )

    def _pairs_of(self, rule: PairRule) -> Pairs:
        """The pairs that a new relation may hold of now; of two named entities, their one."""
        if rule.is_named:
            sides = (rule.pair.a, rule.pair.b)
            a, b = (np.array([self.known.numbers[side.entity]]) for side in sides if isinstance(side, Named))
            return a, b
        reports = ReportTable.nothing(self.known)
        members = self.members.present(self.known)
        every = self.remembered.boxes_of_points(reports, [rule])
        self._count_unread(every, reports, first=0)
        boxes = every.get(rule.number)
        filters, numbers = self.rules.filter_numbers(rule), self.known.numbers
        a, b = candidates(rule, filters, reports, members, numbers, True, MOST_PRESENT, boxes)
        return by_name(a, b, self.known.names) if rule.unordered else (a, b)

    def _holding(self, rule: PairRule, a: Integers, b: Integers, clocks: StreamClocks) -> Flags:
        """Of which pairs a relation holds by what is known now."""
        there = self._there(rule, a, b, clocks)
        held = np.zeros(len(a), np.bool_)
        # Of many pairs that are defined before anything is reported, none costs a look at all entities.
        if there.any():
            # Candidates are those whose boxes meet.
            evaluate = self._evaluator(ReportTable.nothing(self.known), {}, {})
            number, own = np.full(int(there.sum()), rule.number), a[there]
            # Each entity is held against those that are its side b as if it had reported.
            enter, _ = evaluate(number, own, b[there], own, np.ones(len(own), np.bool_))
            evaluate.compare()
            held[there] = enter == 1
        return held

    def _there(self, rule: PairRule, a: Integers, b: Integers, clocks: StreamClocks) -> Flags:
        """Of which pairs both entities are of their sides, and not silent."""
        columns, time_to_live = self.known.columns, int(self.rules.columns["time_to_live"][rule.number])
        found: Flags = columns["seen"][a] & columns["seen"][b]
        for side, number in zip((a, b), self.rules.filter_numbers(rule), strict=True):
            if number != NOBODY:
                found &= self.members.column(number, self.known)[side]
            if time_to_live != FOREVER:
                now = clocks.values[columns["clock"][side]]
                found &= now <= deadlines(columns["heard"][side], np.full(len(side), time_to_live))
        return found

    def next_due(self, clocks: StreamClocks) -> int:
        """Microseconds until something is told though nothing is reported; see `DerivingStage.next_due`."""
        columns = self.rules.columns
        if not ((columns["time_to_live"] != FOREVER) | (columns["lasting"] != FOREVER)).any():
            return FOREVER
        return min(shard.next_due(columns, self.known, clocks) for shard in self.shards)

    def forget(self, names: Collection[str]) -> ToldPairs:
        """Forgets entities, also in what is known of all; the ends of what held with them."""
        known = self.known
        gone = np.zeros(len(known), np.bool_)
        gone[[known.numbers[name] for name in names if name in known.numbers]] = True
        told = joined_told([self._fallen_silent(shard.forget(gone)) for shard in self.shards])
        for shard in self.shards:
            shard.drop(self.rules)
        named = {
            side.entity
            for rule in self.rules.by_id.values()
            for side in (rule.pair.a, rule.pair.b)
            if isinstance(side, Named)
        }
        kept = ~gone
        kept[[known.numbers[name] for name in named]] = True
        self.members.forget(gone, kept, self.known)
        numbers = known.forget(np.flatnonzero(gone), kept)
        for shard in self.shards:
            shard.renumber(numbers)
        self.remembered.renumber(numbers, gone, kept)
        self._values = {int(numbers[one]): values for one, values in self._values.items() if not gone[one]}
        self.undecided.forget(names)
        return told

    def _fallen_silent(self, held: GrowableTable) -> ToldPairs:
        detects = self.rules.columns["detects"]
        told = [
            tells_exit(int(detects[rule]), sent)
            for rule, sent in zip(held["rule"].tolist(), held["dwell_sent"].tolist(), strict=True)
        ]
        held = held.chosen(np.flatnonzero(told))
        return self._ends(held, EXPIRED, FALLS_SILENT)

    def end(self, id: str) -> ToldPairs:
        """Removes a relation; the ends of what held in it."""
        rule = self.rules.by_id.get(id)
        if rule is None:
            return NOTHING_TOLD
        told = joined_told([self._ended(rule, shard.end(rule)) for shard in self.shards])
        self.rules.end(rule)
        self.admission.end(id)
        self.undecided.end(id)
        if not self.rules.general:
            self.remembered.begin({})
        if not rule.is_named:
            self._forget_filters()
        return told

    def _ended(self, rule: PairRule, held: GrowableTable) -> ToldPairs:
        """What is told of pairs that held in a relation when it goes."""
        detects = int(self.rules.columns["detects"][rule.number])
        if not tells_exit(detects, True):
            return NOTHING_TOLD
        if not tells_exit(detects, False):
            held = held.chosen(np.flatnonzero(held["dwell_sent"]))
        return self._ends(held, CAUSED, REMOVED)

    def _ends(self, held: GrowableTable, phase: int, effect: int) -> ToldPairs:
        """The ends of what held, by an effect."""
        [reason] = reasons_of(np.array([effect])).tolist()
        return self._told(held["rule"], held["a"], held["b"], "exit", held["started_at"], phase, reason)

    def _told(
        self,
        rule: npt.NDArray[np.integer],
        a: Integers,
        b: Integers,
        detect: Detection,
        started_at: Integers,
        phase: int,
        reason: int = NO_REASON,
        present: bool = False,
    ) -> ToldPairs:
        """What is told of pairs whose entities are where they are now."""
        if not len(rule):
            return NOTHING_TOLD
        reports = ReportTable.nothing(self.known)
        both = (a, b)
        return told_pairs(
            self.rules, self.known, reports, rule, both, both, detect, started_at, 0, phase, reason, present=present
        )

    def _forget_filters(self) -> None:
        """Drops filters that no relation uses any more."""
        used = {
            side.filter
            for rule in self.rules.open.values()
            for side in (rule.pair.a, rule.pair.b)
            if isinstance(side, Matching)
        }
        unused = [filter for filter in self.rules.filters if filter not in used]
        self.members.drop([self.rules.filters.pop(filter) for filter in unused])
