"""The zones of a layer as shapes in a tree: which of them a point is in, and whether it is far enough out of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import shapely

from nearcast.geo.line_pieces import within
from nearcast.geo.zone_shapes import shape_of
from nearcast.model.arrays import Flags, Floats, Integers, Truths, distinct
from nearcast.model.event import Coordinates
from nearcast.model.geometry_budget import GeometryWork
from nearcast.model.limits import Limits
from nearcast.model.zone import Zone
from nearcast.relations.candidates import TooManyPairs

TOGETHER = 4_000_000
"""Pairs of a point and a zone's box that are in memory together at most, about."""

MOST_HITS = 250_000
"""Pairs of a point and a zone that it is in, of one stretch of several reports."""

MOST_DEFINED = 8_000_000
"""The same, of all who are held against zones as these are defined."""

DEGREE = 110_000.0
"""Metres of a degree of latitude at least."""


ZONE_WORK = 32
"""Work on a zone beside that on its corners, in the same units: about 10 ns each."""


@dataclass(frozen=True, slots=True)
class ZoneHits:
    """Pairs of a point and a zone that it is in, by point, then zone; `crowded` is how many there were beyond those
    that count. Of each point zones from number `cut` on were not looked at, if its place is in their boxes.
    """

    point: Integers
    zone: Integers
    crowded: int
    cut: Integers


class ZoneIndex:
    """Zones by number, in the order of their layer; shapes are made of texts that are new, the tree when it is used."""

    def __init__(self, coordinates: Coordinates) -> None:
        self.coordinates: Coordinates = coordinates
        self.zones: list[Zone] = []
        self.numbers: dict[str, int] = {}
        self._shapes: dict[str, shapely.Geometry] = {}
        self._array: npt.NDArray[np.object_] = np.zeros(0, object)
        self._tree: shapely.STRtree | None = None
        self._work: Integers = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self.zones)

    def with_zones(self, zones: Mapping[str, Zone]) -> ZoneIndex:
        """One with these zones, which has the shapes of those that stay."""
        other = ZoneIndex(self.coordinates)
        other.zones, other._shapes = self.zones, self._shapes
        other.set(zones)
        return other

    def set(self, zones: Mapping[str, Zone]) -> None:
        """Takes these zones for its own."""
        before = {zone.name: zone.geometry for zone in self.zones}
        self._shapes = {
            name: self._shapes[name] if before.get(name) == zone.geometry else shape_of(zone.geometry, zone.coordinates)
            for name, zone in zones.items()
        }
        self.zones, self.numbers = list(zones.values()), {name: number for number, name in enumerate(zones)}
        self._array, self._tree = np.array(list(self._shapes.values()), object), None

    def hits(self, x: Floats, y: Floats, limits: Limits, bounded: bool = True) -> ZoneHits:
        """The zones that points are in, their boundaries too, of each the first `zones_at_once`, as far as `zone_work`
        lets them be looked at. Raises `TooManyPairs` for several points, if `bounded` by what a stretch may have, else
        by `MOST_DEFINED`.
        """
        cut = np.full(len(x), len(self))
        if not len(x) or not len(self):
            return ZoneHits(np.zeros(0, np.int64), np.zeros(0, np.int64), 0, cut)
        found, count, most = [], 0, MOST_HITS if bounded else MOST_DEFINED
        for point, zone in self._candidates(x, y, limits.zone_work, cut):
            # By zone, so that each is in the processor's caches when it is looked at again.
            order = np.argsort(zone, kind="stable")
            point, zone = point[order], zone[order]
            inside = shapely.intersects_xy(self._array[zone], x[point], y[point])
            if self.coordinates == "geographic":
                # The antimeridian has two names.
                edge = np.flatnonzero(~inside & (np.abs(x[point]) == 180))
                inside[edge] = shapely.intersects_xy(self._array[zone[edge]], -x[point[edge]], y[point[edge]])
            found.append(point[inside] * len(self) + zone[inside])
            count += len(found[-1])
            if count > most and len(x) > 1:
                raise TooManyPairs
        keys = distinct(np.concatenate(found))
        point, zone = keys // len(self), keys % len(self)
        rank = np.arange(len(point)) - np.searchsorted(point, point)
        kept = rank < limits.zones_at_once
        return ZoneHits(point[kept], zone[kept], int(len(point) - kept.sum()), cut)

    def _candidates(self, x: Floats, y: Floats, most: int, cut: Integers) -> Iterator[tuple[Integers, Integers]]:
        """Pairs of a point and a zone whose box it is in, many at a time but not more than fit the memory; of each
        point as many as are `most` work at most, and the number of the next one in `cut`.
        """
        if self._tree is None:
            self._tree = shapely.STRtree(self._array)
            self._work = ZONE_WORK + shapely.get_num_coordinates(self._array).astype(np.int64)
        own = np.arange(len(x))
        if self.coordinates == "geographic" and (edge := np.flatnonzero(np.abs(x) == 180)).size:
            own, x, y = np.append(own, edge), np.append(x, -x[edge]), np.append(y, y[edge])
        # Of one step each point may be in the boxes of all zones.
        step, waiting, count = max(16, min(4_096, TOGETHER // len(self))), [], 0
        for first in range(0, len(own), step):
            point, zone = self._tree.query(shapely.points(x[first : first + step], y[first : first + step]))
            point = point + first
            for crowded in np.flatnonzero(np.bincount(point, self._work[zone]) > most).tolist():
                point, zone = self._within_work(point, zone, crowded, most, int(own[crowded]), cut)
            waiting.append((own[point], zone))
            count += len(point)
            if count > TOGETHER // 8:
                yield np.concatenate([one for one, _ in waiting]), np.concatenate([one for _, one in waiting])
                waiting, count = [], 0
        if waiting:
            yield np.concatenate([one for one, _ in waiting]), np.concatenate([one for _, one in waiting])

    def _within_work(
        self, point: Integers, zone: Integers, crowded: int, most: int, own: int, cut: Integers
    ) -> tuple[Integers, Integers]:
        """The pairs without those of one point that are too much work: the zones that were defined first stay."""
        of_it = np.sort(zone[point == crowded])
        first = int(of_it[np.searchsorted(np.cumsum(self._work[of_it]), most, "right")])
        cut[own] = min(first, int(cut[own]))
        kept = (point != crowded) | (zone < first)
        return point[kept], zone[kept]

    def looked_at(self, zone: Integers, x: Floats, y: Floats, cut: Integers) -> Flags:
        """Of points and zones whether it is known if the one is in the other."""
        found: Flags = zone < cut
        some = np.flatnonzero(~found)
        if len(some):
            west, south, east, north = shapely.bounds(self._array[zone[some]]).T
            x, y = x[some], y[some]
            there = (west <= x) & (x <= east)
            if self.coordinates == "geographic":
                there |= (np.abs(x) == 180) & (west <= -x) & (-x <= east)
            found[some] = ~there | (y < south) | (y > north)
        return found

    def beyond(self, zone: Integers, x: Floats, y: Floats, metres: float, limits: Limits, cut: Integers) -> Truths:
        """Of points that were not found in zones whether each is out of its zone, and more than so many metres from it;
        `cut` is that of each point, see `ZoneHits`.

        UNKNOWN where the zone was not looked at, and where measuring takes more than `geometry_work`.
        """
        found = np.where(self.looked_at(zone, x, y, cut), np.int8(1), np.int8(-1))
        if metres:
            known = np.flatnonzero(found == 1)
            found[known] = self._apart(zone[known], x[known], y[known], metres, limits)
        return found

    def _apart(self, zone: Integers, x: Floats, y: Floats, metres: float, limits: Limits) -> Truths:
        """Of points outside of zones whether each is more than so many metres from its zone."""
        if self.coordinates == "planar":
            found: Truths = (shapely.distance(self._array[zone], shapely.points(x, y)) > metres).astype(np.int8)
            return found
        bounds = shapely.bounds(self._array[zone])
        high = metres / DEGREE
        sure: Truths = ((y < bounds[:, 1] - high) | (y > bounds[:, 3] + high)).astype(np.int8)
        for at in np.flatnonzero(sure == 0).tolist():
            near = within(self._array[zone[at]], shapely.Point(x[at], y[at]), metres, GeometryWork(limits))
            sure[at] = -1 if near is None else not near
        return sure

    def in_boxes(self, which: Flags, x: Floats, y: Floats) -> Integers:
        """The points that are in the box of some of the zones, ascending."""
        tree = shapely.STRtree(self._array[which])
        found = [tree.query(shapely.points(x, y))[0]]
        if self.coordinates == "geographic" and (edge := np.flatnonzero(np.abs(x) == 180)).size:
            found.append(edge[tree.query(shapely.points(-x[edge], y[edge]))[0]])
        return distinct(np.concatenate(found))

    def around(self, x: float, y: float) -> Integers:
        """The zones in whose boxes a point is, ascending."""
        numbers = np.arange(len(self))
        point = np.full(len(self), x), np.full(len(self), y)
        found: Integers = numbers[~self.looked_at(numbers, *point, np.zeros(len(self), np.int64))]
        return found
