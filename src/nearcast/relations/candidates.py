"""Which pairs of entities a stretch may bring together: of a relation with sides that are not named, those within its
distance, or whose boxes meet, or all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.geo.columnar_index import TimedPoints, near_pairs, square_limit
from nearcast.model.arrays import Flags, Integers, distinct
from nearcast.model.relation import Named, Side
from nearcast.relations.entity_table import GEOGRAPHIC, PLACE, PLANAR, EntityTable
from nearcast.relations.geometries.boxes import PointBoxes, meeting
from nearcast.relations.pair_rules import PairRule
from nearcast.relations.reports import Column, ReportTable

BothBoxes = tuple[PointBoxes, PointBoxes]
"""Of all points the boxes as either side of a rule."""

Members = Mapping[int, Flags]
"""For each filter's number: which points satisfy it."""


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
        others, probe = entities_of(among[found.point], reports), found.probe
        if looks is not None:
            which = looks.within(found.probe, others, own, side)
            others, probe = others[which], found.probe[which]
        yield entities_of(of[probe], reports), others


def _all(sides: Sequence[Integers], probes: Sequence[Integers], reports: ReportTable, most: float) -> Iterator[Pairs]:
    """Every pair of which one has reported: of a predicate that reaches everywhere nobody can be left out."""
    a, b = (np.unique(entities_of(side, reports)) for side in sides)
    new_a, new_b = (np.unique(entities_of(side, reports)) for side in probes)
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
        yield entities_of(left, reports), entities_of(right, reports)
    for right, left in meeting(new_b, others, a, own):
        yield entities_of(left, reports), entities_of(right, reports)


def entities_of(points: Integers, reports: ReportTable) -> Integers:
    """The numbers of the entities that points are of."""
    found = points.copy()
    inside = points >= reports.known
    found[inside] = reports.entity[points[inside] - reports.known]
    return found
