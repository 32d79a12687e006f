"""Every evaluation of pairs, a column at a time.

Which reports were made does not depend on what holds, so all evaluations of a stretch can be listed and computed in
columns. Only then follows, pair by pair, what they changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from nearcast.filters.truth import Truth
from nearcast.geo.distance import geodesic, planar
from nearcast.model.arrays import Flags, Integers, Truths
from nearcast.model.columns import to_events, without_payloads
from nearcast.model.event import Event
from nearcast.model.limits import Limits
from nearcast.relations.candidates import BothBoxes, Members, Unlooked, entities_of
from nearcast.relations.entity_table import GEOGRAPHIC, PLANAR, GrowableTable
from nearcast.relations.geometries.boxes import surely_apart
from nearcast.relations.geometries.pair_comparisons import PairEvaluation, UndecidedPairs, decide, order_of
from nearcast.relations.pair_rules import NOBODY, PairRule, PairRules
from nearcast.relations.predicate import NOTHING, Told
from nearcast.relations.predicate import Truths as PairTruths
from nearcast.relations.reports import NO_VALUES, Column, ReportTable, Values
from nearcast.relations.transitions import BEGINS, FAILS, FALLS_SILENT, LEAVES, UNCHANGED, PairEffects, deadlines
from nearcast.state.lateness import FOREVER
from nearcast.state.timeline import Excess

if TYPE_CHECKING:
    from nearcast.geo.told_geometry import ToldGeometries

FALSE, TRUE, UNKNOWN = 0, 1, -1


class ListedEvaluations(NamedTuple):
    """What reports ask of some pairs: of each evaluation the pair, as index among them, the row of the report, and what
    that does to the pair where an entity is not of its side; and of those `inside`, where both are, by index, the
    truths of entering and of staying.
    """

    pair: Integers
    row: Integers
    effect: Integers
    inside: Integers
    enter: Truths
    stay: Truths


def listed_evaluations(
    rule: Integers,
    a: Integers,
    b: Integers,
    rules: PairRules,
    reports: ReportTable,
    members: Members,
    evaluate: PredicateEvaluator,
) -> ListedEvaluations:
    """What reports of either side ask of pairs, each held against the other side as it was known then.

    Truths that rest on comparing geometries are there when `evaluate` has compared them.
    """
    from_a, report_a = reports.of_entities(a)
    from_b, report_b = reports.of_entities(b)
    if reports.changes is not None:
        own_a, own_b = reports.evaluating(rule[from_a], report_a), reports.evaluating(rule[from_b], report_b)
        from_a, report_a, from_b, report_b = from_a[own_a], report_a[own_a], from_b[own_b], report_b[own_b]
    pair = np.concatenate([from_a, from_b])
    row = reports.row[np.concatenate([report_a, report_b])]
    here = reports.known + np.concatenate([report_a, report_b])
    there = reports.as_of(np.concatenate([b[from_a], a[from_b]]), reports.then(row))
    mine = np.arange(len(pair)) < len(from_a)
    point_a, point_b = np.where(mine, here, there), np.where(mine, there, here)
    own = rule[pair]
    known = reports.seen(there) & _alive(there, row, own, rules, reports)
    inside = known & _alive(here, row, own, rules, reports)
    for point, side in ((point_a, "filter_a"), (point_b, "filter_b")):
        inside &= _members(own, point, side, rules, members)
    at = np.flatnonzero(inside)
    truths = evaluate(own[at], point_a[at], point_b[at], row[at], mine[at])
    return ListedEvaluations(pair, row, np.where(known, LEAVES, UNCHANGED), at, *truths)


def effects_of(
    pairs: GrowableTable, which: Integers, rules: PairRules, reports: ReportTable, listed: ListedEvaluations
) -> PairEffects:
    """What evaluations do to some pairs; `pair` is the index into `which`."""
    rule, a, b = pairs["rule"][which].astype(np.int64), pairs["a"][which], pairs["b"][which]
    found = [_reported(listed)]
    mortal = np.flatnonzero(rules.columns["time_to_live"][rule] != FOREVER)
    if len(mortal):
        found += [_silent(mortal, side[mortal], rule[mortal], rules, reports) for side in (a, b)]
    effects = PairEffects(
        *(np.concatenate(parts) for parts in zip(*((s.pair, s.row, s.effect, s.deadline) for s in found), strict=True))
    )
    # Whatever never begins cannot end.
    begins = np.zeros(len(which), np.bool_)
    begins[effects.pair[effects.effect == BEGINS]] = True
    effects = effects.select(np.flatnonzero((pairs["held"][which] | begins)[effects.pair]))
    if not len(mortal):
        # None lapses, so none needs its place among those of its row.
        return effects.select(np.argsort(effects.pair * reports.length + effects.row, kind="stable"))
    lapsed = effects.effect == FALLS_SILENT
    return effects.select(np.lexsort((effects.deadline, ~lapsed, effects.row, effects.pair)))


def _reported(listed: ListedEvaluations) -> PairEffects:
    """What reports do."""
    effect = listed.effect.copy()
    effect[listed.inside] = np.where(listed.enter == TRUE, BEGINS, np.where(listed.stay == FALSE, FAILS, UNCHANGED))
    some = np.flatnonzero(effect)
    return PairEffects(listed.pair[some], listed.row[some], effect[some], np.full(len(some), FOREVER))


def _alive(points: Integers, row: Integers, rule: Integers, rules: PairRules, reports: ReportTable) -> Flags:
    """Whether the entity of a point has been heard within the rule's time to live."""
    if (rules.columns["time_to_live"] == FOREVER).all():
        return np.ones(len(points), np.bool_)
    return reports.clock_at(points, row) <= _deadlines(points, rule, rules, reports)


def _deadlines(points: Integers, rule: Integers, rules: PairRules, reports: ReportTable) -> Integers:
    """The time through which each point counts."""
    return deadlines(reports.column("heard", points), rules.columns["time_to_live"][rule])


def _members(rule: Integers, points: Integers, side: str, rules: PairRules, members: Members) -> Flags:
    """Which points satisfy the filters of their sides."""
    filter = rules.columns[side][rule]
    inside = filter == NOBODY
    for number in np.flatnonzero(np.bincount(filter[~inside])).tolist():
        own = filter == number
        inside[own] = members[number][points[own]]
    return inside


def _silent(index: Integers, entity: Integers, rule: Integers, rules: PairRules, reports: ReportTable) -> PairEffects:
    """Where an entity of each pair falls silent: at the first row beyond its deadline, unless a report comes before."""
    which, report = reports.of_entities(entity)
    points = np.concatenate([entity, reports.known + report])
    pair = np.concatenate([np.arange(len(entity)), which])
    deadline = _deadlines(points, rule[pair], rules, reports)
    row = reports.first_row(deadline, reports.clock_of(points), "right")
    # At the row of a report the silence before it lapses first, so that row counts.
    begin = np.concatenate([np.full(len(entity), -1), reports.row[report]])
    order = np.lexsort((begin, pair))
    until = np.full(len(pair), reports.length)
    same = pair[order][1:] == pair[order][:-1]
    until[order[:-1][same]] = begin[order[1:][same]]
    # Whoever is silent by the clock when it reports is not there, and falls silent no more.
    falls = np.flatnonzero((row <= until) & (row < reports.length) & (row > begin))
    pairs = index[pair[falls]]
    return PairEffects(pairs, row[falls], np.full(len(falls), FALLS_SILENT), deadline[falls])


def near_or_far(
    rules: PairRules, reports: ReportTable, rule: Integers, a: Integers, b: Integers
) -> tuple[Truths, Truths]:
    """The truths of entering and of staying, for rules that are plain bounds of a distance."""
    kind, other = reports.column("kind", a), reports.column("kind", b)
    enter, stay = (np.full(len(rule), UNKNOWN, np.int8) for _ in range(2))
    flat = np.flatnonzero((kind == PLANAR) & (other == PLANAR))
    if len(flat):
        dx, dy, dz = _apart(reports, ("x", "y", "z"), a[flat], b[flat])
        # Not a number: one of both has no height, so heights do not count.
        metres = planar(dx, dy, np.where(np.isnan(dz), 0.0, dz))
        enter[flat], stay[flat] = _compared(rules, rule[flat], metres)
    globe = np.flatnonzero((kind == GEOGRAPHIC) & (other == GEOGRAPHIC))
    if len(globe):
        enter[globe], stay[globe] = _by_chords(rules, rule[globe], reports, a[globe], b[globe])
    return enter, stay


def _apart(reports: ReportTable, names: Sequence[str], a: Integers, b: Integers) -> list[Column]:
    """How far points are apart on each of some axes."""
    return [reports.column(name, a) - reports.column(name, b) for name in names]


def _by_chords(
    rules: PairRules, rule: Integers, reports: ReportTable, a: Integers, b: Integers
) -> tuple[Truths, Truths]:
    """Most pairs are surely within or beyond a bound by their chord; only the rest needs the geodesic."""
    own = rules.columns
    chords = np.asarray(sum(apart**2 for apart in _apart(reports, ("u", "v", "w"), a, b)))
    sure = {name: (chords <= own[f"{name}_in"][rule], chords > own[f"{name}_out"][rule]) for name in ("near", "stay")}
    enter, stay = (np.where(sure[name][0], TRUE, FALSE).astype(np.int8) for name in ("near", "stay"))
    open_ = np.flatnonzero(~((sure["near"][0] | sure["near"][1]) & (sure["stay"][0] | sure["stay"][1])))
    if len(open_):
        corners = [reports.column(name, side[open_]) for side in (a, b) for name in ("x", "y")]
        enter[open_], stay[open_] = _compared(rules, rule[open_], geodesic(*corners))
    return enter, stay


def _compared(rules: PairRules, rule: Integers, metres: Column) -> tuple[Truths, Truths]:
    inclusive = rules.columns["inclusive"][rule]
    found = []
    for name in ("near", "stay"):
        bound = rules.columns[name][rule]
        found.append((metres < bound) | (inclusive & (metres == bound)))
    return found[0].astype(np.int8), found[1].astype(np.int8)


_CODES: dict[Truth, int] = {True: TRUE, False: FALSE, None: UNKNOWN}


class OverTime(NamedTuple):
    """The aggregates that predicates ask for: of a rule, by number, how each is written, of which side (0: a, 1: b) it
    is, and its number; and the values of entities, by number, as a stretch begins.
    """

    asked: Mapping[int, Sequence[tuple[str, int, int]]]
    values: Mapping[int, Values]


UNASKED = OverTime({}, {})
"""Where no predicate asks for any, or none has a value yet."""


class _OpenEvaluation(NamedTuple):
    """One that rests on comparing geometries, and where its truths belong."""

    evaluation: PairEvaluation
    row: int
    enter: Truths
    stay: Truths
    at: int


class PredicateEvaluator:
    """Gives the truths of a stretch's evaluations; `newest` has each entity's newest event where rules ask for it, and
    `geometries` what is known of those that it tells. `boxes` are those of rules, by number, that hold only where they
    meet. `excess` counts what came to a limit, `undecided` notes for which pairs. `unlooked`, by the numbers of rules:
    reports that do not look at all that are near.
    """

    def __init__(
        self,
        rules: PairRules,
        reports: ReportTable,
        newest: Mapping[int, Event],
        geometries: dict[int, ToldGeometries],
        boxes: Mapping[int, BothBoxes],
        limits: Limits,
        excess: Counter[Excess],
        undecided: UndecidedPairs,
        over_time: OverTime = UNASKED,
        unlooked: Mapping[int, Sequence[Unlooked]] = MappingProxyType({}),
    ) -> None:
        self._over_time = over_time
        self._rules = rules
        self._reports = reports
        self._newest, self._geometries = newest, geometries
        self._boxes = boxes
        self._limits, self._excess, self._undecided = limits, excess, undecided
        self._unlooked = {
            (number, int(reports.row[one.report]), one.side): frozenset(one.looked_at.tolist())
            for number, own in unlooked.items()
            for one in own
        }
        self._read: dict[int, Event] = {}
        self._reported: dict[int, ToldGeometries] = {}
        self._open: list[_OpenEvaluation] = []
        # Of each pair the last row at which it was evaluated, and whether it was decided.
        self._last: dict[tuple[str, str, str], tuple[int, bool]] = {}

    def __call__(self, rule: Integers, a: Integers, b: Integers, row: Integers, first: Flags) -> tuple[Truths, Truths]:
        """The truths of entering and of staying, of evaluations of some rules at points of both sides; each by the
        report of a row, which is of side a where it is the `first`.

        What rests on comparing geometries is UNKNOWN until `compare`, which writes it into these columns.
        """
        enter, stay = (np.full(len(rule), UNKNOWN, np.int8) for _ in range(2))
        bounded = self._rules.columns["bounded"][rule]
        plain = np.flatnonzero(bounded)
        with np.errstate(over="ignore", invalid="ignore"):
            enter[plain], stay[plain] = near_or_far(self._rules, self._reports, rule[plain], a[plain], b[plain])
        others = np.flatnonzero(~bounded)
        if len(others) and self._boxes:
            apart = self._apart(rule[others], a[others], b[others])
            enter[others[apart]] = stay[others[apart]] = FALSE
            others = others[~apart]
        if len(others):
            self._read_events(np.concatenate([a[others], b[others]]))
        every = self._over_time.asked
        for at in others.tolist():
            found = self._rules.all[rule[at]]
            assert found and found.predicate, "a rule without a bound has its predicate"
            points = int(a[at]), int(b[at])
            one, other = self._event(points[0]), self._event(points[1])
            asked = every.get(found.number) if every else None
            over_time = self._aggregates(asked, points) if asked else NOTHING
            told = self._told(points)
            if not found.predicate.compares:
                truths: PairTruths | None = found.predicate.truths(
                    one, other, self._limits, self._excess, over_time, told=told
                )
            else:
                truths = found.predicate.seen(one, other, self._limits, self._excess, over_time, told)
                if truths is None and self._looks(found, points, int(row[at]), bool(first[at])):
                    order = order_of(other if first[at] else one, found.sequence, bool(first[at]))
                    evaluation = PairEvaluation(
                        int(row[at]), order, found.relation.id, found.predicate, one, other, over_time
                    )
                    self._open.append(_OpenEvaluation(evaluation, int(row[at]), enter, stay, at))
                else:
                    self._note(int(row[at]), (found.relation.id, one.entity, other.entity), True)
            if truths is not None:
                enter[at], stay[at] = (_CODES[each] for each in truths)
        return enter, stay

    def compare(self) -> None:
        """Compares the geometries that truths rest on, as far as the work goes that is allowed for each event."""
        if not self._open and not self._undecided:
            return
        decide([one.evaluation for one in self._open], self._limits, self._excess)
        for evaluation, row, enter, stay, at in self._open:
            enter[at], stay[at] = (_CODES[each] for each in evaluation.truths)
            names = evaluation.relation, evaluation.a.entity, evaluation.b.entity
            self._note(row, names, evaluation.decided)
        for pair, (_, decided) in self._last.items():
            self._undecided.note(pair, decided)

    def _note(self, row: int, pair: tuple[str, str, str], decided: bool) -> None:
        if row >= self._last.get(pair, (row, decided))[0]:
            self._last[pair] = row, decided

    def _looks(self, rule: PairRule, points: tuple[int, int], row: int, first: bool) -> bool:
        """Whether the report of a row, which is of side a where it is the first, looks at the other of two points."""
        if not self._unlooked:
            return True
        other = int(entities_of(np.array([points[first]]), self._reports)[0])
        sides = (0, 1) if rule.unordered else (0 if first else 1,)
        chosen = (self._unlooked.get((rule.number, row, side)) for side in sides)
        return all(own is None or other in own for own in chosen)

    def _aggregates(self, asked: Sequence[tuple[str, int, int]], points: tuple[int, int]) -> dict[str, float]:
        """The aggregates of a predicate that have a value at two points, by how they are written."""
        both = [self._values(point) for point in points]
        return {text: both[side][number] for text, side, number in asked if number in both[side]}

    def _values(self, point: int) -> Values:
        reports = self._reports
        if point < reports.known:
            return self._over_time.values.get(point, NO_VALUES)
        found = None if reports.changes is None else reports.changes.values[int(reports.row[point - reports.known])]
        return found or NO_VALUES

    def _apart(self, rule: Integers, a: Integers, b: Integers) -> Flags:
        """Which evaluations are FALSE for boxes that do not meet."""
        found = np.zeros(len(rule), np.bool_)
        for number, boxes in self._boxes.items():
            one = self._rules.all[number]
            own = np.flatnonzero(rule == number)
            if one and one.readings and len(own):
                found[own] = surely_apart(boxes[0], a[own], boxes[1], b[own], one.readings, self._limits)
        return found

    def _told(self, points: tuple[int, int]) -> Told:
        """What the texts of two points tell, each read once however often its entity is looked at."""
        a, b = map(self._geometries_of, points)
        return lambda text: a(text) if text in a else b(text)

    def _geometries_of(self, point: int) -> ToldGeometries:
        point = self._origin(point)
        known = self._geometries if point < self._reports.known else self._reported
        found = known.get(point)
        if found is None:
            from nearcast.geo.told_geometry import ToldGeometries

            values = (value for _, value in self._event(point).attributes)
            found = known[point] = ToldGeometries(values, self._limits.geometry_work)
        return found

    def _event(self, point: int) -> Event:
        point = self._origin(point)
        return self._newest[point] if point < self._reports.known else self._read[point]

    def _origin(self, point: int) -> int:
        """The point whose event one has."""
        origin = self._reports.origin
        return point if origin is None or point < self._reports.known else int(origin[point - self._reports.known])

    def _read_events(self, points: Integers) -> None:
        """The events of the points that are reports, each read once."""
        points = self._reports.origins(points)
        wanted = np.unique(points[points >= self._reports.known])
        rows = self._reports.row[wanted - self._reports.known]
        self._read = dict(zip(wanted.tolist(), read(self._reports.table, rows), strict=True))


def read(table: pa.Table, rows: Integers) -> list[Event]:
    """Some events of a table, without their payloads."""
    return to_events(without_payloads(table.take(pa.array(rows))))
