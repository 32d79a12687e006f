"""Shards: the pairs of all relations, shared by a hash of the two names, each share with its own columns of state.

A shard has a row for each of its pairs whose sides are both named, and for each other one that holds. What it tells of
a stretch rests on its own rows and on what all shards see alike; so shards may be evaluated one after the other or at
once, and how many there are changes nothing of the outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nearcast.model.arrays import Flags, Integers
from nearcast.relations.admission import ShardEffects
from nearcast.relations.candidates import Members, Pairs
from nearcast.relations.entity_table import EntityTable, GrowableTable
from nearcast.relations.evaluations import ListedEvaluations, PredicateEvaluator, effects_of, listed_evaluations
from nearcast.relations.pair_rules import PairRule, PairRules
from nearcast.relations.reports import ReportTable, clock_pair, names_in_order, pair_waits
from nearcast.relations.told_pairs import NO_REASON, ToldPairs, reasons_of, told_pairs
from nearcast.relations.transition_events import EXPIRED
from nearcast.relations.transitions import PairEffects, PairTransitions, deadlines, pair_transitions, time_tells
from nearcast.state.lateness import FOREVER, NEVER
from nearcast.state.stream_clocks import SHARED, StreamClocks

NOTHING = PairEffects(*(np.zeros(0, np.int64) for _ in range(4)))
"""No effects."""

SHARDS = 2
"""How many shards there are unless asked otherwise. A shard's columns fit better into the processor's caches; but each
costs a little of its own, whatever it holds."""

_MIXED = np.uint64(0x9E3779B97F4A7C15)


def shards_of(known: EntityTable, a: Integers, b: Integers, count: int) -> Integers:
    """Which of so many shards each pair belongs to, whichever of the two is side a."""
    code = known.columns["code"]
    # The product's upper half depends on all bits of the sum.
    mixed = (code[a].astype(np.uint64) + code[b]) * _MIXED >> np.uint64(32)
    return (mixed % np.uint64(count)).astype(np.int64)


def shared(known: EntityTable, a: Integers, b: Integers, count: int) -> list[Integers]:
    """For each of so many shards which of some pairs are its own."""
    if count == 1:
        return [np.arange(len(a))]
    shard = shards_of(known, a, b, count)
    return [np.flatnonzero(shard == number) for number in range(count)]


@dataclass(frozen=True, slots=True)
class BatchView:
    """What all shards see alike of a stretch."""

    rules: PairRules
    known: EntityTable
    reports: ReportTable
    members: Members


def pair_rows() -> GrowableTable:
    """A table for the state of pairs: relation and entities by number; whether a pair holds, since when, and if it was
    told that this lasts, which is due at a time of its `clocks`: those of both reports with which it began, as one
    number.
    """
    return GrowableTable(
        {"rule": np.int32(0), "a": np.int64(0), "b": np.int64(0), "held": np.False_, "dwell_sent": np.False_}
        | {"started_at": np.int64(NEVER), "due": np.int64(FOREVER), "clocks": np.int16(SHARED)}
    )


class Shard:
    """Some of the pairs, and what holds of them."""

    def __init__(self, pairs: GrowableTable | None = None) -> None:
        # No row for pairs that neither hold nor are named: of n entities there would be n².
        self.pairs = pair_rows() if pairs is None else pairs

    def evaluations(self, view: BatchView, concerned: Integers) -> int:
        """How often a stretch looks at the pairs that there are, those that it concerns being given."""
        counts = view.reports.counts
        return int(counts[self.pairs["a"][concerned]].sum() + counts[self.pairs["b"][concerned]].sum())

    def listed(
        self,
        view: BatchView,
        near: Sequence[tuple[PairRule, Pairs]],
        concerned: Integers,
        evaluate: PredicateEvaluator,
    ) -> tuple[Integers, ListedEvaluations | None]:
        """The pairs that a stretch can change, and their evaluations; `near` are those of open relations that it may
        bring together, `concerned` those of the shard's rows that it can change.
        """
        before = self.pairs.length
        for rule, own in near:
            self._add(rule, own, concerned, view.known.names)
        # Each of the new ones has one that reports.
        which = np.concatenate([concerned, np.arange(before, self.pairs.length)])
        if not len(which):
            return which, None
        rule_numbers, a, b = (self.pairs[name][which] for name in ("rule", "a", "b"))
        numbers = rule_numbers.astype(np.int64)
        return which, listed_evaluations(numbers, a, b, view.rules, view.reports, view.members, evaluate)

    def effects(self, view: BatchView, which: Integers, listed: ListedEvaluations | None) -> ShardEffects:
        """What a stretch does to the shard's pairs, given what it asks of which of them."""
        effects = NOTHING if listed is None else effects_of(self.pairs, which, view.rules, view.reports, listed)
        return ShardEffects(self.pairs, which, effects)

    def transitions(self, view: BatchView, which: Integers, effects: PairEffects) -> list[ToldPairs]:
        """What a stretch tells of the shard's pairs, given what it does to which of them."""
        found: list[ToldPairs] = []
        if len(which):
            for outcome in pair_transitions(self.pairs, which, effects, view.rules.columns, view.reports):
                if len(outcome.pair):
                    found.append(_told(outcome, self.pairs, which[outcome.pair], view))
            # Only now: while the stretch is told, outcomes name pairs by their rows.
            self.drop(view.rules)
        return found

    def _add(self, rule: PairRule, near: Pairs, concerned: Integers, names: Sequence[str]) -> None:
        """Adds rows for the pairs that have none: each has one that reports, so it is among those that are concerned if
        it has one.
        """
        a, b = near
        own = concerned[self.pairs["rule"][concerned] == rule.number]
        kept = _keys(rule, self.pairs["a"][own], self.pairs["b"][own])
        # Ordered, both are walked through side by side; by chance, every look-up would miss the processor's caches.
        kept.sort()
        keys = a << 32 | b
        new = np.ones(len(keys), np.bool_)
        at = np.searchsorted(keys, kept)
        there = at < len(keys)
        at = at[there]
        new[at[keys[at] == kept[there]]] = False
        if new.any():
            a, b = a[new], b[new]
            if rule.unordered:
                a, b = by_name(a, b, names)
            self.pairs.append(len(a), rule=rule.number, a=a, b=b)

    def concerned(self, view: BatchView) -> Integers:
        """Which pairs a stretch can change: those of which one has reported, and those of which something lapses."""
        pairs, reports = self.pairs, view.reports
        reported = reports.counts > 0
        found: Flags = reported[pairs["a"]] | reported[pairs["b"]]
        # Time alone changes only what holds.
        if (view.rules.columns["lasting"] != FOREVER).any():
            found |= pairs["held"] & (pairs["due"] <= reports.slower_end(pairs["clocks"]))
        time_to_live = view.rules.columns["time_to_live"]
        if (time_to_live != FOREVER).any():
            found |= pairs["held"] & self._falls_silent(time_to_live[pairs["rule"]], reports)
        return np.flatnonzero(found)

    def _falls_silent(self, span: Integers, reports: ReportTable) -> Flags:
        """Which pairs fall silent unless they report, with the first of their two; `span`: their times to live."""
        pairs, heard = self.pairs, reports.base["heard"]
        ends = reports.ends
        if reports.single:
            earlier, now = np.minimum(heard[pairs["a"]], heard[pairs["b"]]), np.broadcast_to(ends, len(span))
            return _is_past(earlier, span, now)
        clock = reports.base["clock"]
        a, b = (_is_past(heard[pairs[side]], span, ends[clock[pairs[side]]]) for side in ("a", "b"))
        return a | b

    def next_due(self, rules: GrowableTable, known: EntityTable, clocks: StreamClocks) -> int:
        """Microseconds until something is told of a pair though nothing is reported; see `DerivingStage.next_due`."""
        pairs, columns = self.pairs, known.columns
        rows = np.flatnonzero(pairs["held"])
        rule = pairs["rule"][rows]
        span, due = rules["time_to_live"][rule], pairs["due"][rows]
        entity = {side: pairs[side][rows] for side in ("a", "b")}
        until = {side: deadlines(columns["heard"][own], span) for side, own in entity.items()}
        silent_after = np.minimum(until["a"], until["b"])
        lasts, ends = time_tells(rules["detects"][rule], due, pairs["dwell_sent"][rows], silent_after)
        first = pair_waits(clocks, due[lasts], pairs["clocks"][rows][lasts])
        for side in ("a", "b"):
            clock = None if clocks.single else columns["clock"][entity[side][ends]]
            silent = clocks.wait(until[side][ends], clock)
            # Through its deadline an entity is not silent.
            first = min(first, silent if silent == FOREVER else silent + 1)
        return first

    def drop(self, rules: PairRules) -> None:
        """Forgets pairs that do not hold, unless they are named."""
        kept = self.pairs["held"] | rules.named[self.pairs["rule"]]
        if not kept.all():
            self.pairs.drop(np.flatnonzero(~kept))

    def forget(self, gone: Flags) -> GrowableTable:
        """Ends what holds with some entities, by number; gives it."""
        pairs = self.pairs
        rows = np.flatnonzero(pairs["held"] & (gone[pairs["a"]] | gone[pairs["b"]]))
        ended = pairs.chosen(rows)
        pairs["held"][rows] = False
        return ended

    def renumber(self, numbers: Integers) -> None:
        """Gives every entity its new number."""
        for side in ("a", "b"):
            self.pairs[side][:] = numbers[self.pairs[side]]

    def set_clocks(self, known: EntityTable) -> None:
        """Lets every pair go by the clocks by which its entities go now."""
        clock = known.columns["clock"]
        self.pairs["clocks"][:] = clock_pair(clock[self.pairs["a"]], clock[self.pairs["b"]])

    def end(self, rule: PairRule) -> GrowableTable:
        """Removes the pairs of a relation; gives those that held."""
        own = self.pairs["rule"] == rule.number
        ended = self.pairs.chosen(np.flatnonzero(own & self.pairs["held"]))
        if own.any():
            self.pairs.keep(~own)
        return ended


def _is_past(heard: Integers, span: Integers, now: Integers) -> Flags:
    """Whether so long a time to live is over by a clock."""
    mortal = (span != FOREVER) & (now != NEVER)
    found = np.zeros(len(span), np.bool_)
    found[mortal] = now[mortal] - span[mortal] > heard[mortal]
    return found


def _keys(rule: PairRule, a: Integers, b: Integers) -> Integers:
    """Both numbers in one integer, as candidates have them: of an unordered pair the lesser number first."""
    # There are fewer than 2³¹ entities.
    return np.minimum(a, b) << 32 | np.maximum(a, b) if rule.unordered else a << 32 | b


def by_name(a: Integers, b: Integers, names: Sequence[str]) -> Pairs:
    """Pairs with the lesser name first."""
    _, place = names_in_order(names, np.concatenate([a, b]))
    turned: Flags = place[: len(a)] > place[len(a) :]
    return np.where(turned, b, a), np.where(turned, a, b)


def _told(outcome: PairTransitions, pairs: GrowableTable, rows: Integers, view: BatchView) -> ToldPairs:
    """What an outcome tells, of these rows of the pairs."""
    a, b = pairs["a"][rows], pairs["b"][rows]
    # What lapses does so before the event that brings the time: entities are told where they were until then.
    before = outcome.row - np.where(outcome.phase == EXPIRED, 1, 0)
    points = view.reports.as_of(a, before), view.reports.as_of(b, before)
    reason = reasons_of(outcome.effect) if outcome.detect == "exit" else NO_REASON
    return told_pairs(
        view.rules,
        view.known,
        view.reports,
        pairs["rule"][rows],
        (a, b),
        points,
        outcome.detect,
        outcome.started_at,
        outcome.row,
        outcome.phase,
        reason,
        outcome.time,
    )
