"""Whether two geometries in degrees lie within a distance: geodesic on WGS84, exact at points.

Edges are straight in longitude and latitude, as GeoJSON has them (RFC 7946, 3.1.1), so no formula gives the distance of
two of them. It is bounded instead: a piece of a line is a point on it, from a geodesic, and a radius that no other of
its points can exceed. Pairs of pieces that are surely apart are dropped, one that is surely near ends the search, the
others are halved. So the antimeridian and the poles are places like any other. What a plane tells is not asked so
(`geo.degrees_plane`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import shapely
import shapely.affinity

from nearcast.geo.degrees_plane import within_in_plane
from nearcast.geo.distance import LONGEST, SHORTEST, Floats, geodesic, unit_vectors
from nearcast.model.geometry_budget import GeometryWork

APART = 10_000
"""Units of looking at how far two geometries are apart that do not meet, beside what rests on their corners."""

FEW_PAIRS = 25_000
"""Units of looking at the distances of edges, up to which all are counted."""

STEP, ROUND = 40, 15_000
"""Units of a pair of pieces whose distance is solved, and of solving some together."""

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

    def select(self, which: Numbers) -> Pieces:
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


def within(a: shapely.Geometry, b: shapely.Geometry, metres: float, work: GeometryWork | None = None) -> bool | None:
    """Whether some point of `a` is at most so many metres from some point of `b`, both in degrees; None if that takes
    too much work.
    """
    if metres < 0 or shapely.is_empty(a) or shapely.is_empty(b):
        return False
    return meet(a, b) or within_apart(a, b, min(metres, ANYWHERE), work or GeometryWork())


def within_apart(a: shapely.Geometry, b: shapely.Geometry, metres: float, work: GeometryWork) -> bool | None:
    """The same of two that do not meet."""
    corners = (int(shapely.get_num_coordinates(one)) for one in (a, b))
    pieces = None
    if (pairs := pairs_of_edges(*corners)) > FEW_PAIRS:
        # Of large ones it is worth while to look which edges may be near at all.
        pieces = _reaching_pieces(a, b, metres)
        pairs = pairs_of_edges(*(len(one.x1) for one in pieces))
    if not work.spend(APART + pairs):
        return None
    # Mostly that is all; of thousands of edges it takes a hundredth of halving them.
    seen = within_in_plane(a, b, metres)
    if seen is not None:
        return seen
    pieces = pieces or _reaching_pieces(a, b, metres)
    return all(len(one.x1) for one in pieces) and _near(*pieces, metres, work)


def _reaching_pieces(a: shapely.Geometry, b: shapely.Geometry, metres: float) -> tuple[Pieces, Pieces]:
    """Of each of two geometries the pieces that may be so near to the other."""
    return _reaching(pieces_of(a), b, metres), _reaching(pieces_of(b), a, metres)


def _reaching(pieces: Pieces, other: shapely.Geometry, metres: float) -> Pieces:
    """The pieces that are not surely farther than so many metres from all of the other geometry."""
    middle, radius = around(other)
    assert middle is not None, "it is not empty"
    apart = unit_vectors(*pieces.middle()) - unit_vectors(*(np.array([end]) for end in middle))
    limits = (metres + radius + pieces.radius()) / SHORTEST
    return pieces.select(np.flatnonzero((apart * apart).sum(axis=1) <= limits * limits + COARSE))


def meet(a: shapely.Geometry, b: shapely.Geometry) -> bool:
    """Whether two geometries share a point, also where one counts its degrees on beyond 180."""
    if shapely.intersects(a, b):
        return True
    bounds = np.abs(shapely.bounds([a, b]))[:, [0, 2]]
    return bool(bounds.max() > 180) and any(
        shapely.intersects(shapely.affinity.translate(a, turn), b) for turn in (-360.0, 360.0)
    )


def pieces_of(geometry: shapely.Geometry) -> Pieces:
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


def _near(a: Pieces, b: Pieces, metres: float, work: GeometryWork) -> bool | None:
    """Whether some pair of pieces is near, by halving the pairs that are not decided; None if there is no end of it."""
    left, right = _candidates(a, b, metres)
    while len(left.x1):
        if not work.spend(ROUND + STEP * len(left.x1)):
            return None
        # The middles are points of both geometries, so one such pair proves it.
        distances = geodesic(*left.middle(), *right.middle())
        if (distances <= metres).any():
            return True
        reach = left.radius() + right.radius()
        # By the triangle inequality no point of a pair is nearer than this.
        open_ = np.flatnonzero((distances - reach <= metres) & (reach > TOLERANCE))
        chosen = open_[_nearest(distances[open_])]
        left, right = _halved(left.select(chosen), right.select(chosen))
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
    return a.select(row[chosen]), b.select(column[chosen])


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
        _joined(a.select(mine).halves(), _twice(a.select(theirs))),
        _joined(_twice(b.select(mine)), b.select(theirs).halves()),
    )


def _twice(pieces: Pieces) -> Pieces:
    return _joined(pieces, pieces)


def _joined(a: Pieces, b: Pieces) -> Pieces:
    return Pieces(*(np.concatenate([getattr(a, name), getattr(b, name)]) for name in Pieces.__slots__))


def around(shape: shapely.Geometry) -> tuple[tuple[float, float] | None, float]:
    """A point in degrees, and the metres from it that no point of a geometry exceeds; None for one that has none.

    A geometry may lie on both sides of the antimeridian: then half the globe is no more than it may take.
    """
    if shapely.is_empty(shape):
        return None, 0.0
    west, south, east, north = shapely.bounds(shape).tolist()
    middle = (west + east) / 2, (south + north) / 2
    return middle, LONGEST * math.hypot(math.radians(east - west) / 2, math.radians(north - south) / 2)


def pairs_of_edges(a: int, b: int) -> int:
    """The units of looking at the distance of each pair roughly."""
    return a * b // 4
