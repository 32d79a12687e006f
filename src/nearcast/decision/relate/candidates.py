"""Which pairs a stretch of the journal may bring together, of relations whose sides are not both named."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from nearcast.decision.integers import distinct
from nearcast.decision.relate.evaluations import Members
from nearcast.decision.relate.neighbours import grid_points, near_pairs
from nearcast.decision.relate.reports import GEOGRAPHIC, PLACE, PLANAR, Integers, Reports
from nearcast.decision.relate.rules import Rule
from nearcast.model.relation import Named, Side

Pairs = tuple[Integers, Integers]
"""Numbers of the entities on side a, and on side b."""


def candidates(
    rule: Rule,
    filters: tuple[int, int],
    reports: Reports,
    members: Members,
    numbers: dict[str, int],
    all_: bool = False,
) -> Pairs:
    """Pairs of entities that reports may bring within the rule's reach, each once, perhaps with some others.

    They ascend; of an unordered pair the lesser number is first. `filters` are the numbers of the sides' filters.
    `all_`: also those that no report is of.
    """
    first = 0 if all_ else reports.known
    sides = [
        _points(side, filter, reports, members, numbers)
        for side, filter in zip((rule.pair.a, rule.pair.b), filters, strict=True)
    ]
    found = list(_near(sides, first, reports, rule) if math.isfinite(rule.metres) else _all(sides, first, reports))
    if not found:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    a, b = (np.concatenate(parts) for parts in zip(*found, strict=True))
    if rule.unordered:
        a, b = np.minimum(a, b), np.maximum(a, b)
    key = distinct((a << 32 | b)[a != b])
    return key >> 32, key & 0xFFFFFFFF


def _points(side: Side, filter: int, reports: Reports, members: Members, numbers: dict[str, int]) -> Integers:
    """The points of a side."""
    if isinstance(side, Named):
        number = np.array([numbers[side.entity]])
        return np.concatenate([number, reports.known + reports.of_entities(number)[1]])
    return np.flatnonzero(members[filter])


def _near(sides: Sequence[Integers], first: int, reports: Reports, rule: Rule) -> Iterator[Pairs]:
    points = np.unique(np.concatenate(sides))
    columns = {name: np.zeros(reports.known + len(reports.row), reports.base[name].dtype) for name in PLACE}
    for name in PLACE:
        columns[name][points] = reports.take(name, points)
    for kind in (PLANAR, GEOGRAPHIC):
        a, b = (side[columns["kind"][side] == kind] for side in sides)
        if len(a) and len(b):
            placed = grid_points(kind, columns)
            for left, right in near_pairs(kind, placed, a[a >= first], b, rule.metres):
                yield _entities(left, reports), _entities(right, reports)
            # Of an ordered pair either side may be the one that reported.
            if not rule.unordered:
                for left, right in near_pairs(kind, placed, b[b >= first], a, rule.metres):
                    yield _entities(right, reports), _entities(left, reports)


def _all(sides: Sequence[Integers], first: int, reports: Reports) -> Iterator[Pairs]:
    """Every pair of which one has reported: of a predicate that reaches everywhere nobody can be left out."""
    a, b = (np.unique(_entities(side, reports)) for side in sides)
    new_a, new_b = (np.unique(_entities(side[side >= first], reports)) for side in sides)
    yield np.repeat(new_a, len(b)), np.tile(b, len(new_a))
    yield np.tile(a, len(new_b)), np.repeat(new_b, len(a))


def _entities(points: Integers, reports: Reports) -> Integers:
    found = points.copy()
    inside = points >= reports.known
    found[inside] = reports.entity[points[inside] - reports.known]
    return found
