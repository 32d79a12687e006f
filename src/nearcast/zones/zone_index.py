"""The zones of a layer as shapes in a tree: which of them a point is in, and whether it is far enough out of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import shapely

from nearcast.geo.shapes import within
from nearcast.geo.zone_shapes import shape_of
from nearcast.model.arrays import Flags, Floats, Integers, distinct
from nearcast.model.event import Coordinates
from nearcast.model.geometry_budget import GeometryWork
from nearcast.model.limits import Limits
from nearcast.model.zone import Zone
from nearcast.relations.evaluations import TooManyPairs

TOGETHER = 4_000_000
"""Pairs of a point and a zone's box that are in memory together at most, about."""

MOST_HITS = 250_000
"""Pairs of a point and a zone that it is in, of one stretch of several reports."""

DEGREE = 110_000.0
"""Metres of a degree of latitude at least."""


class ZoneIndex:
    """Zones by number, in the order of their layer; shapes are made of texts that are new, the tree when it is used."""

    def __init__(self, coordinates: Coordinates) -> None:
        self.coordinates: Coordinates = coordinates
        self.zones: list[Zone] = []
        self.numbers: dict[str, int] = {}
        self._shapes: dict[str, shapely.Geometry] = {}
        self._array: npt.NDArray[np.object_] = np.zeros(0, object)
        self._tree: shapely.STRtree | None = None

    def __len__(self) -> int:
        return len(self.zones)

    def set(self, zones: Mapping[str, Zone]) -> None:
        """Takes these zones for its own."""
        before = {zone.name: zone.geometry for zone in self.zones}
        self._shapes = {
            name: self._shapes[name] if before.get(name) == zone.geometry else shape_of(zone.geometry, zone.coordinates)
            for name, zone in zones.items()
        }
        self.zones, self.numbers = list(zones.values()), {name: number for number, name in enumerate(zones)}
        self._array, self._tree = np.array(list(self._shapes.values()), object), None

    def hits(self, x: Floats, y: Floats, most: int, bounded: bool = True) -> tuple[Integers, Integers, int]:
        """Pairs of a point and a zone that it is in, its boundary too, by point, then zone; of each point the first
        `most`, and how many there were beyond. Raises `TooManyPairs` where `bounded`, for several points.
        """
        if not len(x) or not len(self):
            return np.zeros(0, np.int64), np.zeros(0, np.int64), 0
        found, count = [], 0
        for point, zone in self._candidates(x, y):
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
            if bounded and count > MOST_HITS and len(x) > 1:
                raise TooManyPairs
        keys = distinct(np.concatenate(found))
        point, zone = keys // len(self), keys % len(self)
        rank = np.arange(len(point)) - np.searchsorted(point, point)
        kept = rank < most
        return point[kept], zone[kept], int(len(point) - kept.sum())

    def _candidates(self, x: Floats, y: Floats) -> Iterator[tuple[Integers, Integers]]:
        """Pairs of a point and a zone whose box it is in, many at a time but not more than fit the memory."""
        if self._tree is None:
            self._tree = shapely.STRtree(self._array)
        own = np.arange(len(x))
        if self.coordinates == "geographic" and (edge := np.flatnonzero(np.abs(x) == 180)).size:
            own, x, y = np.append(own, edge), np.append(x, -x[edge]), np.append(y, y[edge])
        # Of one step each point may be in the boxes of all zones.
        step, waiting, count = max(16, min(4_096, TOGETHER // len(self))), [], 0
        for first in range(0, len(own), step):
            point, zone = self._tree.query(shapely.points(x[first : first + step], y[first : first + step]))
            waiting.append((own[point + first], zone))
            count += len(point)
            if count > TOGETHER // 8:
                yield np.concatenate([one for one, _ in waiting]), np.concatenate([one for _, one in waiting])
                waiting, count = [], 0
        if waiting:
            yield np.concatenate([one for one, _ in waiting]), np.concatenate([one for _, one in waiting])

    def beyond(self, zone: Integers, x: Floats, y: Floats, metres: float, limits: Limits) -> Flags:
        """Of points outside of zones whether each is surely more than so many metres from its zone."""
        if not metres:
            return np.ones(len(zone), np.bool_)
        if self.coordinates == "planar":
            found: Flags = shapely.distance(self._array[zone], shapely.points(x, y)) > metres
            return found
        bounds = shapely.bounds(self._array[zone])
        high = metres / DEGREE
        sure: Flags = (y < bounds[:, 1] - high) | (y > bounds[:, 3] + high)
        for at in np.flatnonzero(~sure).tolist():
            sure[at] = self._far(int(zone[at]), float(x[at]), float(y[at]), metres, limits)
        return sure

    def _far(self, zone: int, x: float, y: float, metres: float, limits: Limits) -> bool:
        shape = self._array[zone]
        # What takes too much work is not known, and ends nothing.
        return within(shape, shapely.Point(x, y), metres, GeometryWork(limits)) is False
