"""Pairs held against their rules: every report of either entity is one evaluation, all of a stretch at once.

Which reports were made does not depend on what holds, so all evaluations of a stretch can be listed and computed in
columns. Only then follows, pair by pair, what they changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nearcast.decision.location import geodesic, planar
from nearcast.decision.relate.growing import Growing
from nearcast.decision.relate.reports import (
    FOREVER,
    GEOGRAPHIC,
    NEVER,
    PLANAR,
    Column,
    Flags,
    Integers,
    Reports,
)
from nearcast.decision.relate.rules import NOBODY, Rules

FALSE, TRUE, UNKNOWN = 0, 1, -1

Truths = npt.NDArray[np.int8]

BEGINS, FAILS, LEAVES, FALLS_SILENT = 1, -1, -2, -3
"""What a step does to a pair: it holds from now on; or no longer, for one of three reasons."""

Judge = Callable[[Integers, Integers, Integers], tuple[Truths, Truths]]
"""For numbers of rules, points of side a and points of side b: the truths of entering and of staying."""

Members = Mapping[int, Flags]
"""For each filter's number: which points satisfy it."""


@dataclass(frozen=True, slots=True)
class Steps:
    """What changes pairs, ascending by pair, then row, then what lapsed before what the row itself did.

    `deadline` is the time through which a pair was not silent, where it fell so.
    """

    pair: Integers
    row: Integers
    effect: Integers
    deadline: Integers

    def take(self, which: npt.NDArray[np.intp]) -> Steps:
        """Some of the steps."""
        return Steps(self.pair[which], self.row[which], self.effect[which], self.deadline[which])


def steps_of(pairs: Growing, which: Integers, rules: Rules, reports: Reports, members: Members, judge: Judge) -> Steps:
    """The steps of some pairs; `pair` is the index into `which`."""
    rule, a, b = pairs["rule"][which].astype(np.int64), pairs["a"][which], pairs["b"][which]
    found = [_reported(rule, a, b, rules, reports, members, judge)]
    mortal = np.flatnonzero(rules.columns["time_to_live"][rule] != FOREVER)
    if len(mortal):
        found += [_silent(mortal, side[mortal], rule[mortal], rules, reports) for side in (a, b)]
    steps = Steps(
        *(np.concatenate(parts) for parts in zip(*((s.pair, s.row, s.effect, s.deadline) for s in found), strict=True))
    )
    # Whatever never begins cannot end.
    begins = np.zeros(len(which), np.bool_)
    begins[steps.pair[steps.effect == BEGINS]] = True
    steps = steps.take(np.flatnonzero((pairs["held"][which] | begins)[steps.pair]))
    lapsed = steps.effect == FALLS_SILENT
    return steps.take(np.lexsort((steps.deadline, ~lapsed, steps.row, steps.pair)))


def _reported(
    rule: Integers, a: Integers, b: Integers, rules: Rules, reports: Reports, members: Members, judge: Judge
) -> Steps:
    """What reports do: those of either side, held against the other side as it was known then."""
    from_a, report_a = reports.of_entities(a)
    from_b, report_b = reports.of_entities(b)
    pair = np.concatenate([from_a, from_b])
    row = reports.row[np.concatenate([report_a, report_b])]
    here = reports.known + np.concatenate([report_a, report_b])
    there = reports.as_of(np.concatenate([b[from_a], a[from_b]]), row)
    mine = np.arange(len(pair)) < len(from_a)
    point_a, point_b = np.where(mine, here, there), np.where(mine, there, here)
    own = rule[pair]
    known = reports.seen(there) & _alive(there, row, own, rules, reports)
    inside = (
        known & _members(own, point_a, "filter_a", rules, members) & _members(own, point_b, "filter_b", rules, members)
    )
    effect = np.where(known, LEAVES, 0)
    at = np.flatnonzero(inside)
    enter, stay = judge(own[at], point_a[at], point_b[at])
    effect[at] = np.where(enter == TRUE, BEGINS, np.where(stay == FALSE, FAILS, 0))
    some = np.flatnonzero(effect)
    return Steps(pair[some], row[some], effect[some], np.full(len(some), FOREVER))


def _alive(points: Integers, row: Integers, rule: Integers, rules: Rules, reports: Reports) -> Flags:
    """Whether the entity of a point has been heard within the rule's time to live."""
    return reports.now[row] <= _deadlines(points, rule, rules, reports)


def _deadlines(points: Integers, rule: Integers, rules: Rules, reports: Reports) -> Integers:
    """The time through which each point counts."""
    time_to_live, heard = rules.columns["time_to_live"][rule], reports.take("heard", points)
    mortal = (time_to_live != FOREVER) & (heard != NEVER)
    return np.where(mortal, np.where(mortal, heard, 0) + np.where(mortal, time_to_live, 0), FOREVER)


def _members(rule: Integers, points: Integers, side: str, rules: Rules, members: Members) -> Flags:
    """Which points satisfy the filters of their sides."""
    filter = rules.columns[side][rule]
    inside = filter == NOBODY
    for number in np.flatnonzero(np.bincount(filter[~inside])).tolist():
        own = filter == number
        inside[own] = members[number][points[own]]
    return inside


def _silent(index: Integers, entity: Integers, rule: Integers, rules: Rules, reports: Reports) -> Steps:
    """Where an entity of each pair falls silent: at the first row beyond its deadline, unless a report comes before."""
    which, report = reports.of_entities(entity)
    points = np.concatenate([entity, reports.known + report])
    pair = np.concatenate([np.arange(len(entity)), which])
    deadline = _deadlines(points, rule[pair], rules, reports)
    row = np.searchsorted(reports.now, deadline, "right")
    # At the row of a report the silence before it lapses first, so that row counts.
    begin = np.concatenate([np.full(len(entity), -1), reports.row[report]])
    order = np.lexsort((begin, pair))
    until = np.full(len(pair), reports.length)
    same = pair[order][1:] == pair[order][:-1]
    until[order[:-1][same]] = begin[order[1:][same]]
    falls = np.flatnonzero((row <= until) & (row < reports.length))
    pairs = index[pair[falls]]
    return Steps(pairs, row[falls], np.full(len(falls), FALLS_SILENT), deadline[falls])


def near_or_far(rules: Rules, reports: Reports, rule: Integers, a: Integers, b: Integers) -> tuple[Truths, Truths]:
    """The truths of entering and of staying, for rules that are plain bounds of a distance."""
    columns = {name: (reports.take(name, a), reports.take(name, b)) for name in ("kind", "x", "y", "z", "u", "v", "w")}
    kind, other = columns["kind"]
    enter, stay = (np.full(len(rule), UNKNOWN, np.int8) for _ in range(2))
    flat = np.flatnonzero((kind == PLANAR) & (other == PLANAR))
    if len(flat):
        dx, dy, dz = (columns[name][0][flat] - columns[name][1][flat] for name in ("x", "y", "z"))
        # Not a number: one of both has no height, so heights do not count.
        metres = planar(dx, dy, np.where(np.isnan(dz), 0.0, dz))
        enter[flat], stay[flat] = _compared(rules, rule[flat], metres)
    globe = np.flatnonzero((kind == GEOGRAPHIC) & (other == GEOGRAPHIC))
    if len(globe):
        chords = sum((columns[name][0][globe] - columns[name][1][globe]) ** 2 for name in ("u", "v", "w"))
        enter[globe], stay[globe] = _by_chords(rules, rule[globe], np.asarray(chords), columns, globe)
    return enter, stay


def _by_chords(
    rules: Rules, rule: Integers, chords: Column, columns: Mapping[str, tuple[Column, Column]], at: npt.NDArray[np.intp]
) -> tuple[Truths, Truths]:
    """Most pairs are surely within or beyond a bound by their chord; only the rest needs the geodesic."""
    own = rules.columns
    sure = {name: (chords <= own[f"{name}_in"][rule], chords > own[f"{name}_out"][rule]) for name in ("near", "stay")}
    enter, stay = (np.where(sure[name][0], TRUE, FALSE).astype(np.int8) for name in ("near", "stay"))
    open_ = np.flatnonzero(~((sure["near"][0] | sure["near"][1]) & (sure["stay"][0] | sure["stay"][1])))
    if len(open_):
        corners = [columns[name][side][at[open_]] for side in (0, 1) for name in ("x", "y")]
        enter[open_], stay[open_] = _compared(rules, rule[open_], geodesic(*corners))
    return enter, stay


def _compared(rules: Rules, rule: Integers, metres: Column) -> tuple[Truths, Truths]:
    inclusive = rules.columns["inclusive"][rule]
    found = []
    for name in ("near", "stay"):
        bound = rules.columns[name][rule]
        found.append((metres < bound) | (inclusive & (metres == bound)))
    return found[0].astype(np.int8), found[1].astype(np.int8)
