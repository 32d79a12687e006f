"""Relations between pairs, evaluated in columns over stretches of the journal.

State is a row for each pair whose sides are both named, and for each other pair that holds. A stretch is evaluated in
four steps: which pairs it may change, every report of them held against the other side, what that changed pair by pair,
and what is told of it. The outcome is that of the reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import numpy as np
import pyarrow as pa

from nearcast.decision.derived_event import Cause
from nearcast.decision.location import distance
from nearcast.decision.match import Index
from nearcast.decision.relate.candidates import candidates
from nearcast.decision.relate.evaluations import Members, steps_of
from nearcast.decision.relate.growing import Growing
from nearcast.decision.relate.judging import Judging, read
from nearcast.decision.relate.reports import FOREVER, NEVER, Entities, Flags, Integers, Reports, micros_of, moment_of
from nearcast.decision.relate.rules import NOBODY, TELLS, Rule, Rules
from nearcast.decision.relate.settling import REASONS, Outcome, settled
from nearcast.decision.relate.telling import CAUSED, LAPSED, Reason, Subject, Told
from nearcast.model.event import Event
from nearcast.model.relation import Detection, Matching, Named, Relation

Newest = Callable[[], pa.Table]
"""Gives the newest event of every entity, where it is asked for."""

AtRow = tuple[int, Told]
"""A thing to tell, and the row of the stretch that causes it."""


class Pairing:
    """All relations between pairs, and what holds in them."""

    def __init__(self, known: Entities) -> None:
        self.rules = Rules()
        self._known = known
        # No row for pairs that neither hold nor are named: of n entities there would be n².
        self._pairs = Growing(
            {"rule": np.int32(0), "a": np.int64(0), "b": np.int64(0), "held": np.False_, "dwelt": np.False_}
            | {"since": np.int64(NEVER), "due": np.int64(FOREVER)}
        )
        self._members: dict[int, Growing] = {}
        self._newest: dict[int, Event] = {}
        self._index: Index | None = None

    @property
    def size(self) -> int:
        """Bytes of the pairs' state, without what is known of entities."""
        return self._pairs.size + self.rules.columns.size

    @property
    def reaches_all(self) -> bool:
        """Whether some relation has no distance beyond which it cannot hold, and no named side."""
        sides = ((rule, (rule.pair.a, rule.pair.b)) for rule in self.rules.open.values() if math.isinf(rule.metres))
        return any(not any(isinstance(side, Named) for side in both) for _, both in sides)

    def standing(self) -> tuple[Integers, Integers]:
        """Of pairs with two named sides: their rules; shape (3, n): the positions of both reports, and if they hold.

        A position is negative where nothing was reported yet.
        """
        named = np.flatnonzero(self._named[self._pairs["rule"]])
        position = self._known.columns["position"]
        rows = [position[self._pairs[side][named]] for side in ("a", "b")]
        return self._pairs["rule"][named].astype(np.int64), np.stack([*rows, self._pairs["held"][named]])

    def advance(self, reports: Reports) -> Iterator[AtRow]:
        """What a stretch tells; entities are not updated yet."""
        if not self.rules.by_id:
            return
        members = self._members_over(reports)
        self._add_candidates(reports, members)
        which = np.flatnonzero(self._concerned(reports))
        if len(which):
            judge = Judging(self.rules, reports, self._newest)
            steps = steps_of(self._pairs, which, self.rules, reports, members, judge)
            for outcome in settled(self._pairs, which, steps, self.rules, reports):
                yield from self._told(outcome, which, reports)
        # Only now: while the stretch is told, outcomes name pairs by their rows.
        self._drop()
        self._remember(reports, members)

    def _members_over(self, reports: Reports) -> Members:
        """For each filter in use which points satisfy it."""
        if not self.rules.filters:
            return {}
        # Compiled once for all filters in use; a new or ended relation lets it go.
        if self._index is None:
            self._index = Index((), list(self.rules.filters))
        found = self._index.selected(reports.table)
        return {
            number: np.concatenate([self._base(number), flags[reports.row]])
            for number, flags in zip(self.rules.filters.values(), found, strict=True)
        }

    def _base(self, filter: int) -> Flags:
        """Which entities satisfy a filter as the stretch begins."""
        column = self._members[filter]
        if column.length < len(self._known):
            column.append(len(self._known) - column.length)
        return column["inside"]

    def _filters(self, rule: Rule) -> tuple[int, int]:
        columns = self.rules.columns
        return int(columns["filter_a"][rule.number]), int(columns["filter_b"][rule.number])

    def _add_candidates(self, reports: Reports, members: Members) -> None:
        """Adds rows for pairs that the stretch may bring together."""
        for rule in self.rules.open.values() if len(reports.row) else ():
            a, b = candidates(rule, self._filters(rule), reports, members, self._known.names, self._known.numbers)
            own = self._pairs["rule"] == rule.number
            # Both numbers in one integer: sets of pairs are compared as columns. There are fewer than 2³¹ entities.
            kept = self._pairs["a"][own] << 32 | self._pairs["b"][own]
            new = ~np.isin(a << 32 | b, kept)
            if new.any():
                self._pairs.append(int(new.sum()), rule=rule.number, a=a[new], b=b[new])

    def _concerned(self, reports: Reports) -> Flags:
        """Which pairs a stretch can change: those of which one has reported, and those of which something lapses."""
        reported = reports.counts > 0
        pairs = self._pairs
        found: Flags = reported[pairs["a"]] | reported[pairs["b"]]
        now = reports.now[-1] if reports.length else NEVER
        # Time alone changes only what holds.
        found |= pairs["held"] & (pairs["due"] <= now)
        time_to_live = self.rules.columns["time_to_live"]
        if (time_to_live != FOREVER).any():
            own, heard = time_to_live[pairs["rule"]], reports.base["heard"]
            # A pair falls silent with the first of its two.
            earlier = np.minimum(heard[pairs["a"]], heard[pairs["b"]])
            mortal = pairs["held"] & (own != FOREVER) & (now != NEVER)
            found[mortal] |= now - own[mortal] > earlier[mortal]
        return found

    def _told(self, outcome: Outcome, which: Integers, reports: Reports) -> Iterator[AtRow]:
        rows = which[outcome.pair]
        # What lapses does so before the event that brings the time: entities are told where they were until then.
        before = np.where(outcome.phase == LAPSED, 1, 0)
        points = [reports.as_of(self._pairs[side][rows], outcome.row - before) for side in ("a", "b")]
        subjects = zip(
            *(self._subjects(side, rows, at, reports) for side, at in zip("ab", points, strict=True)), strict=True
        )
        columns = (self._pairs["rule"][rows], outcome.row, outcome.phase, outcome.since, outcome.effect)
        every = zip(*(column.tolist() for column in columns), subjects, strict=True)
        for number, row, phase, since, effect, both in every:
            rule = self.rules.all[number]
            assert rule, "what is told is of a relation that there is"
            reason = REASONS[effect] if outcome.detect == "exit" else None
            yield row, _tell(rule, phase, outcome.detect, both, moment_of(since), reason)

    def _subjects(self, side: str, rows: Integers, points: Integers, reports: Reports) -> list[Subject]:
        """The entities of one side of some pairs, where they are at some points."""
        names = [self._known.names[number] for number in self._pairs[side][rows].tolist()]
        return [Subject(name, place) for name, place in zip(names, reports.places(points), strict=True)]

    def _drop(self) -> None:
        """Forgets pairs that do not hold, unless they are named."""
        pairs = self._pairs
        named = self._named[pairs["rule"]]
        kept = pairs["held"] | named
        if not kept.all():
            pairs.keep(kept)

    @property
    def _named(self) -> Flags:
        columns = self.rules.columns
        return (columns["filter_a"] == NOBODY) & (columns["filter_b"] == NOBODY)

    def _remember(self, reports: Reports, members: Members) -> None:
        """What was known of a filter's members, and of events, as the next stretch begins with it."""
        last = reports.last_of_each()
        for number, flags in members.items():
            self._base(number)[reports.entity[last]] = flags[reports.known + last]
        if self.rules.general:
            events = read(reports.table, reports.row[last])
            self._newest.update(zip(reports.entity[last].tolist(), events, strict=True))

    def define(self, relation: Relation, sequence: int, newest: Newest, now: int, cause: Cause) -> list[Told]:
        """Adds a relation; what it tells of the present.

        `newest` gives the newest event of every entity, where the relation needs to know more of it than its place.
        """
        # Events are remembered only while some predicate needs more of them than places.
        general = bool(self.rules.general)
        rule = self.rules.add(relation, sequence)
        for side in (rule.pair.a, rule.pair.b):
            if isinstance(side, Named):
                self._known.number(side.entity)
        new = [(filter, number) for filter, number in self.rules.filters.items() if number not in self._members]
        table = newest() if new or (rule.enter and not general) else None
        for filter, number in new:
            self._index = None
            # As of the definition; from the next stretch on `_remember` carries it on.
            self._members[number] = Growing({"inside": np.False_})
            if table is not None:
                self._base(number)[self._known.numbered(table)] = Index((), [filter]).selected(table)[0]
        if rule.enter and not general and table is not None:
            events = read(table, np.arange(len(table)))
            self._newest = dict(zip(self._known.numbered(table).tolist(), events, strict=True))
        if rule.is_named:
            a, b = (self._known.number(side.entity) for side in (rule.pair.a, rule.pair.b) if isinstance(side, Named))
            self._pairs.append(1, rule=rule.number, a=a, b=b)
        return self._present(rule, now, cause)

    def _present(self, rule: Rule, now: int, cause: Cause) -> list[Told]:
        """What holds when a relation is defined."""
        if rule.is_named:
            which = np.array([self._pairs.length - 1])
            # Of many pairs that are defined before anything is reported, none costs a look at all entities.
            if not self._there(rule, self._pairs["a"][which], self._pairs["b"][which], now)[0]:
                return []
        reports = Reports.nothing(self._known)
        if not rule.is_named:
            members = {number: self._base(number) for number in self._members}
            a, b = candidates(rule, self._filters(rule), reports, members, self._known.names, self._known.numbers, True)
            self._pairs.append(len(a), rule=rule.number, a=a, b=b)
            which = np.arange(self._pairs.length - len(a), self._pairs.length)
        a, b = self._pairs["a"][which], self._pairs["b"][which]
        there = self._there(rule, a, b, now)
        enter, _ = Judging(self.rules, reports, self._newest)(
            np.full(int(there.sum()), rule.number), a[there], b[there]
        )
        holds = which[there][enter == 1]
        lasting = int(self.rules.columns["lasting"][rule.number])
        self._pairs["held"][holds] = True
        self._pairs["since"][holds] = micros_of(cause.moment)
        self._pairs["due"][holds] = now + lasting if lasting and now != NEVER else FOREVER
        told = self._ends(rule, holds, "enter", cause.moment) if self._tells(rule, "enter") else []
        if not rule.is_named:
            self._drop()
        return told

    def _there(self, rule: Rule, a: Integers, b: Integers, now: int) -> Flags:
        """Of which pairs both entities are of their sides, and not silent."""
        columns, time_to_live = self._known.columns, int(self.rules.columns["time_to_live"][rule.number])
        found: Flags = columns["seen"][a] & columns["seen"][b]
        for side, number in zip((a, b), self._filters(rule), strict=True):
            if number != NOBODY:
                found &= self._base(number)[side]
            if time_to_live != FOREVER:
                heard = columns["heard"][side]
                found &= (heard == NEVER) | (now - time_to_live <= heard)
        return found

    def _tells(self, rule: Rule, detect: str) -> bool:
        return detect in rule.relation.detect

    def end(self, id: str) -> list[Told]:
        """Removes a relation; the ends of what held in it."""
        rule = self.rules.by_id.get(id)
        if rule is None:
            return []
        own = np.flatnonzero(self._pairs["rule"] == rule.number)
        held = own[self._pairs["held"][own]]
        tells = int(self.rules.columns["tells"][rule.number])
        if not tells & TELLS["enter"] and tells & TELLS["dwell"]:
            held = held[self._pairs["dwelt"][held]]
        told = self._ends(rule, held, "exit", None) if self._tells(rule, "exit") else []
        others = np.ones(self._pairs.length, np.bool_)
        others[own] = False
        self._pairs.keep(others)
        self.rules.end(rule)
        if not self.rules.general:
            self._newest = {}
        if not rule.is_named:
            self._forget_filters()
        return told

    def _forget_filters(self) -> None:
        """Drops filters that no relation uses any more."""
        used = {
            side.filter
            for rule in self.rules.open.values()
            for side in (rule.pair.a, rule.pair.b)
            if isinstance(side, Matching)
        }
        for filter in [filter for filter in self.rules.filters if filter not in used]:
            del self._members[self.rules.filters.pop(filter)]
            self._index = None

    def _ends(self, rule: Rule, which: Integers, detect: Detection, since: datetime | None) -> list[Told]:
        """What is told of pairs when their relation comes, or goes."""
        if not len(which):
            return []
        reports = Reports.nothing(self._known)
        subjects = zip(*(self._subjects(side, which, self._pairs[side][which], reports) for side in "ab"), strict=True)
        if detect == "enter":
            return [_tell(rule, CAUSED, detect, both, since, None, True) for both in subjects]
        begun = map(moment_of, self._pairs["since"][which].tolist())
        return [_tell(rule, CAUSED, detect, both, when, "removed") for both, when in zip(subjects, begun, strict=True)]


def _tell(
    rule: Rule,
    phase: int,
    detect: Detection,
    subjects: Sequence[Subject],
    since: datetime | None,
    reason: Reason | None,
    present: bool = False,
) -> Told:
    a, b = subjects
    metres = distance(a.place, b.place) if a.place and b.place else None
    return Told(phase, rule.sequence, rule.relation.id, detect, a, (b,), metres, since, reason, present)
