"""Which pairs a batch may bring together, and every evaluation of them, a column at a time.

Which reports were made does not depend on what holds, so all evaluations of a stretch can be listed and computed in
columns. Only then follows, pair by pair, what they changed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nearcast.filters.truth import Truth
from nearcast.geo.columnar_index import TimedPoints, near_pairs, square_limit
from nearcast.geo.distance import geodesic, planar
from nearcast.model.arrays import Flags, Integers, Truths, distinct
from nearcast.model.columns import to_events, without_payloads
from nearcast.model.event import Event
from nearcast.model.limits import Limits
from nearcast.model.relation import Named, Side
from nearcast.relations.boxes import PointBoxes, meeting, surely_apart
from nearcast.relations.pair_rules import NOBODY, PairRule, PairRules
from nearcast.relations.predicate import NOTHING
from nearcast.relations.reports import (
    GEOGRAPHIC,
    NO_VALUES,
    PLACE,
    PLANAR,
    Column,
    EntityTable,
    GrowableTable,
    ReportTable,
    Values,
)
from nearcast.relations.transitions import BEGINS, FAILS, FALLS_SILENT, LEAVES, UNCHANGED, PairEffects, deadlines
from nearcast.state.lateness import FOREVER
from nearcast.state.timeline import Excess

FALSE, TRUE, UNKNOWN = 0, 1, -1


Evaluate = Callable[[Integers, Integers, Integers], tuple[Truths, Truths]]
"""For numbers of rules, points of side a and points of side b: the truths of entering and of staying."""

BothBoxes = tuple[PointBoxes, PointBoxes]
"""Of all points the boxes as either side of a rule."""

Members = Mapping[int, Flags]
"""For each filter's number: which points satisfy it."""


def effects_of(
    pairs: GrowableTable, which: Integers, rules: PairRules, reports: ReportTable, members: Members, evaluate: Evaluate
) -> PairEffects:
    """What evaluations do to some pairs; `pair` is the index into `which`."""
    rule, a, b = pairs["rule"][which].astype(np.int64), pairs["a"][which], pairs["b"][which]
    found = [_reported(rule, a, b, rules, reports, members, evaluate)]
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


def _reported(
    rule: Integers,
    a: Integers,
    b: Integers,
    rules: PairRules,
    reports: ReportTable,
    members: Members,
    evaluate: Evaluate,
) -> PairEffects:
    """What reports do: those of either side, held against the other side as it was known then."""
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
    effect = np.where(known, LEAVES, UNCHANGED)
    at = np.flatnonzero(inside)
    enter, stay = evaluate(own[at], point_a[at], point_b[at])
    effect[at] = np.where(enter == TRUE, BEGINS, np.where(stay == FALSE, FAILS, UNCHANGED))
    some = np.flatnonzero(effect)
    return PairEffects(pair[some], row[some], effect[some], np.full(len(some), FOREVER))


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


class PredicateEvaluator:
    """Gives the truths of a stretch's evaluations; `newest` has each entity's newest event where rules ask for it,
    `boxes` those of rules, by number, that hold only where they meet. `excess` counts what came to a limit.
    """

    def __init__(
        self,
        rules: PairRules,
        reports: ReportTable,
        newest: Mapping[int, Event],
        boxes: Mapping[int, BothBoxes],
        limits: Limits,
        excess: Counter[Excess],
        over_time: OverTime = UNASKED,
    ) -> None:
        self._over_time = over_time
        self._rules = rules
        self._reports = reports
        self._newest = newest
        self._boxes = boxes
        self._limits, self._excess = limits, excess
        self._read: dict[int, Event] = {}

    def __call__(self, rule: Integers, a: Integers, b: Integers) -> tuple[Truths, Truths]:
        """The truths of entering and of staying, of evaluations of some rules at points of both sides."""
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
            assert found and found.enter and found.stay, "a rule without a bound has its predicates"
            both = self._event(int(a[at])), self._event(int(b[at]))
            asked = every.get(found.number) if every else None
            over_time = self._aggregates(asked, (int(a[at]), int(b[at]))) if asked else NOTHING
            enter[at], stay[at] = (
                _CODES[one.truth(*both, self._limits, self._excess, over_time)] for one in (found.enter, found.stay)
            )
        return enter, stay

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

    def _event(self, point: int) -> Event:
        origin = self._reports.origin
        if origin is not None and point >= self._reports.known:
            point = int(origin[point - self._reports.known])
        return self._newest[point] if point < self._reports.known else self._read[point]

    def _read_events(self, points: Integers) -> None:
        """The events of the points that are reports, each read once."""
        points = self._reports.origins(points)
        wanted = np.unique(points[points >= self._reports.known])
        rows = self._reports.row[wanted - self._reports.known]
        self._read = dict(zip(wanted.tolist(), read(self._reports.table, rows), strict=True))


def read(table: pa.Table, rows: Integers) -> list[Event]:
    """Some events of a table, without their payloads."""
    return to_events(without_payloads(table.take(pa.array(rows))))


class TooManyPairs(Exception):
    """A stretch would look at more pairs than may be in memory together: it is to be cut into shorter ones."""


Pairs = tuple[Integers, Integers]
"""Numbers of the entities on side a, and on side b."""


class Unlooked(NamedTuple):
    """A report as side `side` (0: a, 1: b) of which only some of those near it are looked at: these, by number, and how
    many more there are.
    """

    report: int
    side: int
    looked_at: Integers
    more: int


class Looks:
    """Of those near a report so many are looked at, to begin something with; of more, the first by the code of their
    names (semantics §7). `beyond` are the reports that have more.
    """

    def __init__(self, most: int, known: EntityTable) -> None:
        self.most = most
        self.beyond: list[Unlooked] = []
        self._names, self._codes = known.names, known.columns["code"]

    def within(self, probe: npt.NDArray[np.integer], entity: Integers, reports: Integers, side: int) -> Integers:
        """Which of some pairs of a probe, ascending, and an entity near it are looked at; `reports` has the report that
        each probe is.
        """
        counts = np.bincount(probe)
        crowded = np.flatnonzero(counts > self.most)
        kept = np.ones(len(probe), np.bool_)
        for one in crowded.tolist():
            first = int(np.searchsorted(probe, one))
            own = entity[first : first + int(counts[one])]
            chosen = self._first(own)
            kept[first : first + len(own)] = chosen
            self.beyond.append(Unlooked(int(reports[one]), side, own[chosen], len(own) - self.most))
        return np.flatnonzero(kept)

    def _first(self, entity: Integers) -> Flags:
        """The first so many by the codes of their names, of one code by name."""
        codes = self._codes[entity]
        last = np.partition(codes, self.most - 1)[self.most - 1] if self.most else 0
        chosen = codes < last
        alike = sorted(np.flatnonzero(codes == last).tolist(), key=lambda at: self._names[entity[at]])
        chosen[alike[: self.most - int(chosen.sum())]] = True
        return chosen


def candidates(
    rule: PairRule,
    filters: tuple[int, int],
    reports: ReportTable,
    members: Members,
    numbers: dict[str, int],
    all_: bool = False,
    most: int | None = None,
    boxes: BothBoxes | None = None,
    looks: Looks | None = None,
) -> Pairs:
    """Pairs of entities that reports may bring within the rule's reach, each once, perhaps with some others.

    They ascend; of an unordered pair the lesser number is first. `filters` are the numbers of the sides' filters.
    `boxes`: those of all points as either side, of a rule that holds only where they meet. `all_`: also those that no
    report is of. `looks`: how many of those near a report count. Raises `TooManyPairs` where they are more than `most`.
    """
    first = 0 if all_ else reports.known
    sides = [
        _points(side, filter, reports, members, numbers)
        for side, filter in zip((rule.pair.a, rule.pair.b), filters, strict=True)
    ]
    limited = math.inf if most is None else most
    probes = [_probes(side, first, rule, reports) for side in sides]
    if math.isfinite(rule.metres):
        parts = _near(sides, probes, first, reports, rule, looks)
    elif boxes is not None:
        parts = _meeting(sides, probes, reports, boxes)
    else:
        parts = _all(sides, probes, reports, limited)
    found, count = [], 0
    for part in parts:
        found.append(part)
        count += len(part[0])
        if count > limited:
            raise TooManyPairs
    if not found:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    a, b = (np.concatenate(parts) for parts in zip(*found, strict=True))
    if rule.unordered:
        a, b = np.minimum(a, b), np.maximum(a, b)
    key = distinct((a << 32 | b)[a != b])
    return key >> 32, key & 0xFFFFFFFF


def _points(side: Side, filter: int, reports: ReportTable, members: Members, numbers: dict[str, int]) -> Integers:
    """The points of a side."""
    if isinstance(side, Named):
        number = np.array([numbers[side.entity]])
        return np.concatenate([number, reports.known + reports.of_entities(number)[1]])
    return np.flatnonzero(members[filter])


def _probes(side: Integers, first: int, rule: PairRule, reports: ReportTable) -> Integers:
    """Of the points of a side those, from one on, for which partners are looked for."""
    probes = side[side >= first]
    if reports.changes is None or not first:
        return probes
    return probes[reports.evaluating(np.full(len(probes), rule.number), probes - reports.known)]


def _near(
    sides: Sequence[Integers],
    probes: Sequence[Integers],
    first: int,
    reports: ReportTable,
    rule: PairRule,
    looks: Looks | None,
) -> Iterator[Pairs]:
    points = np.unique(np.concatenate(sides))
    columns = {name: np.zeros(reports.known + len(reports.row), reports.base[name].dtype) for name in PLACE}
    for name in PLACE:
        columns[name][points] = reports.column(name, points)
    # What is reported is held against where the others are then: points that are there for all the time, if none is.
    columns["since"], columns["through"] = reports.rows_of_points() if first else _at_once(len(columns["x"]))
    for kind in (PLANAR, GEOGRAPHIC):
        a, b = (side[columns["kind"][side] == kind] for side in sides)
        new_a, new_b = (side[columns["kind"][side] == kind] for side in probes)
        if len(a) and len(b):
            for left, right in _near_of_kind(kind, columns, new_a, b, rule.metres, reports, looks, 0):
                yield left, right
            # Of an ordered pair either side may be the one that reported.
            if not rule.unordered:
                for left, right in _near_of_kind(kind, columns, new_b, a, rule.metres, reports, looks, 1):
                    yield right, left


def _at_once(count: int) -> tuple[Integers, Integers]:
    return np.zeros(count, np.int64), np.ones(count, np.int64)


def _near_of_kind(
    kind: int,
    columns: dict[str, Column],
    of: Integers,
    among: Integers,
    metres: float,
    reports: ReportTable,
    looks: Looks | None,
    side: int,
) -> Iterator[Pairs]:
    """Pairs of entities of a point of `of` and one of `among`, numbers of points of one kind, that may be within so
    many metres as the former comes.
    """
    globe = kind == GEOGRAPHIC
    probes, points = np.zeros((len(of), 3)), np.zeros((len(among), 3))
    for axis, name in enumerate(("u", "v", "w") if globe else ("x", "y")):
        probes[:, axis], points[:, axis] = columns[name][of], columns[name][among]
    since, through = columns["since"], columns["through"]
    limits, own = np.full(len(of), square_limit(metres, globe)), of - reports.known
    # A report is held against what was known before it.
    times = (since[of], through[of]) if looks is None else (reports.row[own] - 1, reports.row[own])
    for found in near_pairs(TimedPoints(probes, *times), limits, TimedPoints(points, since[among], through[among])):
        others, probe = _entities(among[found.point], reports), found.probe
        if looks is not None:
            which = looks.within(found.probe, others, own, side)
            others, probe = others[which], found.probe[which]
        yield _entities(of[probe], reports), others


def _all(sides: Sequence[Integers], probes: Sequence[Integers], reports: ReportTable, most: float) -> Iterator[Pairs]:
    """Every pair of which one has reported: of a predicate that reaches everywhere nobody can be left out."""
    a, b = (np.unique(_entities(side, reports)) for side in sides)
    new_a, new_b = (np.unique(_entities(side, reports)) for side in probes)
    # Before any is made: they would fill the memory.
    if len(new_a) * len(b) + len(a) * len(new_b) > most:
        raise TooManyPairs
    yield np.repeat(new_a, len(b)), np.tile(b, len(new_a))
    yield np.tile(a, len(new_b)), np.repeat(new_b, len(a))


def _meeting(
    sides: Sequence[Integers], probes: Sequence[Integers], reports: ReportTable, boxes: BothBoxes
) -> Iterator[Pairs]:
    """Every pair of which one has reported, and whose boxes meet, as something that is known of each has them."""
    (a, b), (new_a, new_b), (own, others) = sides, probes, (one.boxes for one in boxes)
    for left, right in meeting(new_a, own, b, others):
        yield _entities(left, reports), _entities(right, reports)
    for right, left in meeting(new_b, others, a, own):
        yield _entities(left, reports), _entities(right, reports)


def _entities(points: Integers, reports: ReportTable) -> Integers:
    found = points.copy()
    inside = points >= reports.known
    found[inside] = reports.entity[points[inside] - reports.known]
    return found
