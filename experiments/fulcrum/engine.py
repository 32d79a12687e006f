"""A strategy over two whole tracks, at once: from the report that leaves a guard to the next one that does.

It sends what `suppression.strategies.side` sends where messages take no time, but only reports that must be published
cost anything: the rest are passed over as arrays. So a week of reports takes as long as the movement in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from nearcast.geo.distance import geodesic, planar
from nearcast.model.event import Coordinates, Place
from nearcast.suppression.strategies.dimensions import ROUNDING, Geodesic, Planar
from nearcast.suppression.strategies.guards import Anywhere, Guard, Line, Nowhere, Ring, TakenReport
from nearcast.suppression.strategies.seam import (
    OPERATORS,
    PairKnowledge,
    SideName,
    Strategy,
    ThresholdPredicate,
    guards,
)
from nearcast.testing.entry_node import learnt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]

FIRST = 16
"""Reports that are looked at together at first, then twice as many each time."""


@dataclass(frozen=True, slots=True)
class Track:
    """The reports of one subject in their order: places by coordinates, times in seconds."""

    orders: Integers
    times: Floats
    x: Floats
    y: Floats
    coordinates: Coordinates = "planar"

    def __len__(self) -> int:
        return len(self.orders)

    def report(self, index: int) -> TakenReport:
        """One of them as a value."""
        place = Place(self.coordinates, float(self.x[index]), float(self.y[index]))
        return TakenReport(int(self.orders[index]), place, float(self.times[index]))

    def newest(self, order: int) -> int:
        """The index of the newest report up to a place of the order; -1 before the first."""
        return int(np.searchsorted(self.orders, order, side="right")) - 1


@dataclass
class Flow:
    """What was sent for a pair: indices of the reports that each side published, and the changes it came to."""

    published: dict[SideName, list[int]] = field(default_factory=lambda: {"a": [], "b": []})
    changes: list[tuple[int, bool]] = field(default_factory=list)

    @property
    def facts(self) -> int:
        """Reports that were published."""
        return sum(map(len, self.published.values()))


def flow(strategy: Strategy, bound: ThresholdPredicate, a: Track, b: Track) -> Flow:
    """What a strategy publishes of two tracks, each change as its place in the order and whether the relation began."""
    tracks: dict[SideName, Track] = {"a": a, "b": b}
    found, known = Flow(), PairKnowledge()
    following: dict[SideName, int | None] = {side: 0 if len(track) else None for side, track in tracks.items()}
    while due := [(int(tracks[side].orders[at]), side, at) for side, at in following.items() if at is not None]:
        order, side, at = min(due)
        other: SideName = "b" if side == "a" else "a"
        found.published[side].append(at)
        before, known = known, _stepped(bound, known, side, tracks[side].report(at))
        newest = tracks[other].newest(order)
        if newest >= 0 and newest != found.published[other][-1]:
            current = tracks[other].report(newest)
            if _must_tell(strategy, bound, before, known, other, current):
                found.published[other].append(newest)
                known = _stepped(bound, learnt(before, other, current), side, tracks[side].report(at))
        if known.holds != before.holds:
            found.changes.append((order, known.holds))
        for name, guard in zip(tracks, guards(strategy, known, bound), strict=True):
            following[name] = outside(guard, tracks[name], tracks[name].newest(order) + 1)
    return found


def _stepped(bound: ThresholdPredicate, known: PairKnowledge, side: SideName, report: TakenReport) -> PairKnowledge:
    """What is known once a report is published."""
    known = learnt(known, side, report)
    holds = bound.holds(known.a and known.a.value, known.b and known.b.value, known.holds)
    return known if holds == known.holds else PairKnowledge(known.a, known.b, holds)


def _must_tell(
    strategy: Strategy,
    bound: ThresholdPredicate,
    before: PairKnowledge,
    known: PairKnowledge,
    side: SideName,
    current: TakenReport,
) -> bool:
    """Whether a side's newest report lies outside what it gets to know, or a change needs it."""
    if not guards(strategy, known, bound)[side == "b"].permits(current):
        return True
    published = known.of(side)
    return before.holds != known.holds and (published is None or published.value != current.value)


def outside(guard: Guard, track: Track, start: int) -> int | None:
    """The index of the first report from `start` that a guard does not permit."""
    if isinstance(guard, Anywhere) or start >= len(track):
        return None
    if isinstance(guard, Nowhere):
        return start
    permitted = _columnar(guard, track) or (lambda cut: np.array([guard.permits(track.report(i)) for i in _range(cut)]))
    size = FIRST
    while start < len(track):
        cut = slice(start, min(start + size, len(track)))
        left = np.flatnonzero(~permitted(cut))
        if len(left):
            return start + int(left[0])
        start, size = cut.stop, size * 2
    return None


def _range(cut: slice) -> range:
    return range(cut.start, cut.stop)


def _columnar(guard: Guard, track: Track) -> Callable[[slice], Flags] | None:
    """`permits` of a ring or line over a stretch of a track, to the last bit what it is one by one."""
    if isinstance(guard, Line) and isinstance(guard.dimension, Planar):
        return partial(_before, guard, track)
    if not isinstance(guard, Ring) or not isinstance(guard.dimension, (Planar, Geodesic)):
        return None
    centre: Place = guard.centre.value

    def permitted(cut: slice) -> Flags:
        x, y = track.x[cut], track.y[cut]
        moved = _moved(guard, centre, x, y)
        inside = (moved <= guard.radius) & (moved < np.inf) & (guard.radius > 0)
        if guard.trust:
            inside |= np.abs(track.times[cut] - guard.centre.time) < guard.quiet
        return inside | ((x == centre.x) & (y == centre.y))

    return permitted


def _before(guard: Line, track: Track, cut: slice) -> Flags:
    """Which reports of a stretch lie before a planar line."""
    x, y = track.x[cut], track.y[cut]
    east, north = x - guard.start[0], y - guard.start[1]
    advance = east * guard.ahead[0] + north * guard.ahead[1]
    same = (x == guard.centre.value.x) & (y == guard.centre.value.y)
    return np.asarray((advance + ROUNDING * (np.abs(east) + np.abs(north)) <= guard.reach) | same)


def _moved(guard: Ring, centre: Place, x: Floats, y: Floats) -> Floats:
    if isinstance(guard.dimension, Geodesic):
        return geodesic(np.full(len(x), centre.x), np.full(len(x), centre.y), x, y)
    return planar(x - centre.x, y - centre.y, np.zeros(len(x)))


def changes(bound: ThresholdPredicate, a: Track, b: Track) -> list[tuple[int, bool]]:
    """What evaluating every report of two tracks gives."""
    orders = np.sort(np.concatenate([a.orders, b.orders]))
    at_a, at_b = (np.searchsorted(track.orders, orders, side="right") - 1 for track in (a, b))
    both = (at_a >= 0) & (at_b >= 0)
    orders, at_a, at_b = orders[both], at_a[both], at_b[both]
    if a.coordinates == "planar":
        readings = planar(a.x[at_a] - b.x[at_b], a.y[at_a] - b.y[at_b], np.zeros(len(orders)))
    else:
        readings = geodesic(a.x[at_a], a.y[at_a], b.x[at_b], b.y[at_b])
    compare: Callable[[Any, Any], Any] = OPERATORS[bound.operator]
    begins, ends = compare(readings, bound.threshold(False)), ~compare(readings, bound.threshold(True))
    # Between the limit and the margin beyond it stays what was: the last report that decided, none at first.
    decided = np.maximum.accumulate(np.where(begins | ends, np.arange(len(orders)), -1))
    holds = np.where(decided >= 0, begins[decided], False) if len(orders) else begins
    turns = np.flatnonzero(np.diff(holds, prepend=False))
    return [(int(orders[turn]), bool(holds[turn])) for turn in turns]
