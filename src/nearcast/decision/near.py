"""Whether two geometries lie within a distance of each other: geodesic on WGS84, exact at points.

Edges are straight in longitude and latitude, as GeoJSON has them (RFC 7946, 3.1.1), so no formula gives the distance of
two of them. It is bounded instead: a piece of a line is a point on it, from a geodesic, and a radius that no other of
its points can exceed. Pairs of pieces that are surely apart are dropped, one that is surely near ends the search, the
others are halved. So the antimeridian and the poles are places like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import shapely
import shapely.affinity

from nearcast.decision.location import LONGEST, SHORTEST, Floats, geodesic, unit_vectors

TOLERANCE = 0.005
"""Metres: pieces with smaller radii are as good as points. Points themselves have radius 0."""

BEAM = 4_096
"""Pairs of pieces that are followed: where more lie at nearly the same distance, the nearest of them stand for all."""

ANYWHERE = 4e7
"""Metres: no two points of the globe are so far apart, and squares of what is more may be too large."""

BLOCK = 2_000_000
"""Pairs of pieces that are looked at together at first."""

COARSE = 1e-12
"""Room for rounding in squares of chords that are got from products: some metres as a distance."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of lines as arrays: both ends in degrees. A point is a piece of two equal ends."""

    x1: Floats
    y1: Floats
    x2: Floats
    y2: Floats

    def middle(self) -> tuple[Floats, Floats]:
        """The point of each piece halfway between its ends."""
        return (self.x1 + self.x2) / 2, (self.y1 + self.y2) / 2

    def radius(self) -> Floats:
        """Metres that no point of a piece exceeds from its middle: half the length, taken where it is longest."""
        low = np.minimum(np.abs(self.y1), np.abs(self.y2))
        widest = np.where(self.y1 * self.y2 < 0, 1.0, np.cos(np.radians(low)))
        across = np.radians(self.x2 - self.x1) * widest
        return LONGEST * np.hypot(across, np.radians(self.y2 - self.y1)) / 2

    def take(self, which: Numbers) -> Pieces:
        """The pieces of these numbers."""
        return Pieces(self.x1[which], self.y1[which], self.x2[which], self.y2[which])

    def halves(self) -> Pieces:
        """Every piece's first half, then every piece's second."""
        x, y = self.middle()
        return Pieces(
            np.concatenate([self.x1, x]),
            np.concatenate([self.y1, y]),
            np.concatenate([x, self.x2]),
            np.concatenate([y, self.y2]),
        )


def within(a: shapely.Geometry, b: shapely.Geometry, metres: float) -> bool:
    """Whether some point of `a` is at most so many metres from some point of `b`, both in degrees."""
    if metres < 0 or shapely.is_empty(a) or shapely.is_empty(b):
        return False
    return _meet(a, b) or _near(_pieces(a), _pieces(b), min(metres, ANYWHERE))


def _meet(a: shapely.Geometry, b: shapely.Geometry) -> bool:
    """Whether two geometries share a point, also where one counts its degrees on beyond 180."""
    if shapely.intersects(a, b):
        return True
    bounds = np.abs(shapely.bounds([a, b]))[:, [0, 2]]
    return bool(bounds.max() > 180) and any(
        shapely.intersects(shapely.affinity.translate(a, turn), b) for turn in (-360.0, 360.0)
    )


def _pieces(geometry: shapely.Geometry) -> Pieces:
    """The edges and points of a geometry: where two geometries do not meet, their boundaries are nearest."""
    ends = [np.stack(pair) for pair in _edges(geometry)]
    together = np.concatenate([np.concatenate(pair, axis=1) for pair in ends])
    return Pieces(*together.T.copy())


def _edges(geometry: shapely.Geometry) -> Iterator[tuple[Floats, Floats]]:
    """For each line, ring and point the first and the last ends of its edges, shape (n, 2) each."""
    for part in shapely.get_parts(geometry):
        if shapely.get_type_id(part) > 3:
            yield from _edges(part)
            continue
        for line in shapely.get_rings(part) if shapely.get_dimensions(part) == 2 else [part]:
            corners = shapely.get_coordinates(line)
            yield (corners, corners) if len(corners) == 1 else (corners[:-1], corners[1:])


def _near(a: Pieces, b: Pieces, metres: float) -> bool:
    """Whether some pair of pieces is near, by halving the pairs that are not decided."""
    left, right = _candidates(a, b, metres)
    while len(left.x1):
        # The middles are points of both geometries, so one such pair proves it.
        distances = geodesic(*left.middle(), *right.middle())
        if (distances <= metres).any():
            return True
        reach = left.radius() + right.radius()
        # By the triangle inequality no point of a pair is nearer than this.
        open_ = np.flatnonzero((distances - reach <= metres) & (reach > TOLERANCE))
        chosen = open_[_nearest(distances[open_])]
        left, right = _halved(left.take(chosen), right.take(chosen))
    return False


def _candidates(a: Pieces, b: Pieces, metres: float) -> tuple[Pieces, Pieces]:
    """The pairs that may be near, by chords of the unit sphere, which are never longer than the arcs above them."""
    mine, theirs = unit_vectors(*a.middle()), unit_vectors(*b.middle()).T
    own, other = a.radius(), b.radius()
    # Large geometries meet block by block, so that memory stays bounded.
    rows = max(1, BLOCK // len(other))
    found: list[tuple[Floats, Numbers, Numbers]] = []
    for first in range(0, len(own), rows):
        squares = 2 - 2 * (mine[first : first + rows] @ theirs)
        limits = (metres + own[first : first + rows, None] + other) / SHORTEST
        row, column = np.nonzero(squares <= limits * limits + COARSE)
        chosen = _nearest(squares[row, column])
        found.append((squares[row, column][chosen], row[chosen] + first, column[chosen]))
    squares, row, column = (np.concatenate(each) for each in zip(*found, strict=True))
    chosen = _nearest(squares)
    return a.take(row[chosen]), b.take(column[chosen])


def _nearest(distances: Floats) -> Numbers:
    """The numbers of the least distances, as many as are followed."""
    if len(distances) <= BEAM:
        return np.arange(len(distances))
    return np.argpartition(distances, BEAM)[:BEAM]


def _halved(a: Pieces, b: Pieces) -> tuple[Pieces, Pieces]:
    """The pairs with the longer piece of each in halves."""
    # Halving the shorter one would hardly make the reach of the pair less.
    longer = a.radius() >= b.radius()
    mine, theirs = np.flatnonzero(longer), np.flatnonzero(~longer)
    return (
        _joined(a.take(mine).halves(), _twice(a.take(theirs))),
        _joined(_twice(b.take(mine)), b.take(theirs).halves()),
    )


def _twice(pieces: Pieces) -> Pieces:
    return _joined(pieces, pieces)


def _joined(a: Pieces, b: Pieces) -> Pieces:
    return Pieces(*(np.concatenate([getattr(a, name), getattr(b, name)]) for name in Pieces.__slots__))
