"""Geometries out of texts, relations of CQL2 between two of them, and distances between them (OGC 21-065r2, 7.6, 7.7).

Relations are those of simple features on the coordinates as they are, planar, without heights. A geometry that is not
valid, a polygon that crosses itself, is mended before it is compared. What takes more work than is allowed is not done
(`geo.geometry_work`): a few corners may take GEOS minutes.

Whether two of them lie within a distance is geodesic on WGS84 (`geo.line_pieces`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import shapely
import shapely.affinity

from nearcast.geo.distance import SHORTEST, SLACK, Floats, surely_beyond, surely_within, unit_vectors
from nearcast.geo.geometry_work import (
    BOTH,
    COMPARED,
    CORNER,
    MENDING,
    PAIR,
    EdgeBoxes,
    crossing,
    edge_boxes,
    meeting,
    members,
    overlapping,
    simple_parts,
)
from nearcast.geo.line_pieces import ANYWHERE, COARSE, around, meet, pairs_of_edges, pieces_of, within_apart
from nearcast.model.event import Place
from nearcast.model.expression import Box, Shape
from nearcast.model.geometry_budget import READ_TOGETHER, GeometryWork
from nearcast.model.limits import Limits

KEPT = 512
"""Geometries kept parsed: filters name few, and the events of one batch often share theirs."""

SMALL = 2 * 1024
"""Characters of a text that counts as small."""

FEW = 100
"""Pairs of corners that are not looked at before they are compared."""

ROUGHLY = 250
"""Pairs of edges up to which a rough count does."""

PLAIN = 200
"""Corners of a geometry whose edges may all lie beside each other."""

ROUGH_EACH = 50
"""As many for each edge do of a geometry by itself."""

ALLOWED = Limits().geometry_work

Bounds = tuple[float, float, float, float]
"""The least x and y, the greatest x and y; NaN where there is no point."""


@dataclass(frozen=True)
class Geometry:
    """A geometry, and whether its coordinates are metres; None: it is written in the filter, and takes the other's.

    `corners` and `cost` are those of reading it, in units of work. `shape` is Shapely's; None: it costs more than is
    allowed.
    """

    shape: Any
    planar: bool | None = None
    corners: int = 1
    cost: int = CORNER

    @cached_property
    def readable(self) -> bool:
        """Whether reading it costs no more than is allowed."""
        return self.shape is not None

    @cached_property
    def single(self) -> bool:
        """Whether it is one point."""
        return bool(shapely.get_type_id(self.shape) == 0)

    @cached_property
    def bounds(self) -> Bounds:
        """The box around it."""
        west, south, east, north = shapely.bounds(self.shape).tolist()
        return west, south, east, north

    @cached_property
    def disc(self) -> tuple[Floats, float]:
        """The middle of its box as a point of the unit sphere, shape (3,), and the metres that none of its points is
        farther from it; infinitely many where it has no point.
        """
        middle, radius = around(self.shape)
        ends = (np.array([end]) for end in middle or (0.0, 0.0))
        return unit_vectors(*ends)[0], math.inf if middle is None else radius

    @cached_property
    def edge_discs(self) -> tuple[Floats, Floats]:
        """Of each edge and point its middle as a point of the unit sphere, shape (n, 3), and the metres that no point
        of it is farther from there.
        """
        pieces = pieces_of(self.shape)
        return unit_vectors(*pieces.middle()), pieces.radius()

    @cached_property
    def edges(self) -> EdgeBoxes:
        """The boxes of its edges."""
        return edge_boxes(self.shape)

    @cached_property
    def counts(self) -> tuple[int, int, int]:
        """How many parts it has, how many of these are points, and how many edges lines have."""
        parts = simple_parts(self.shape)
        kinds = shapely.get_type_id(parts)
        lines = parts[(kinds == 1) | (kinds == 2)]
        return len(parts), int((kinds == 0).sum()), int(shapely.get_num_coordinates(lines).sum())

    @cached_property
    def tangled(self) -> int:
        """How many pairs of its own edges may cross: only those of lines may, and are looked at by most relations."""
        return crossing(self.edges) if self.counts[2] else 0


@lru_cache(maxsize=8 * KEPT)
def written(expression: Shape | Box, allowed: int = ALLOWED) -> Geometry:
    """The geometry of a literal, prepared, for it meets many others."""
    shape = shapely.from_wkt(expression.text) if isinstance(expression, Shape) else _box(expression.bounds)
    return _read(shape, None, allowed)


def _box(bounds: tuple[float, ...]) -> shapely.Geometry:
    west, south, east, north = bounds if len(bounds) == 4 else (bounds[0], bounds[1], bounds[3], bounds[4])
    # GeoJSON and CQL2 alike write a box across the antimeridian so; planar relations need it in two parts.
    if west <= east:
        return shapely.box(west, south, east, north)
    return shapely.MultiPolygon([shapely.box(west, south, 180, north), shapely.box(-180, south, east, north)])


def told(text: str, allowed: int = ALLOWED) -> Geometry | None:
    """The geometry that an attribute's text holds as GeoJSON, unless that takes too much; None if it holds none."""
    if not text.startswith("{"):
        return None
    # Senders choose how large their geometries are: many small ones are kept, and few large ones.
    return _small(text, allowed) if len(text) < SMALL else _by_length[len(text).bit_length() - 1](text, allowed)


def _parsed(text: str, allowed: int) -> Geometry | None:
    shape = shapely.from_geojson(text, on_invalid="ignore")
    return None if shape is None else _read(shape, False, allowed)


_small = lru_cache(maxsize=KEPT)(_parsed)
# Of texts half as long to as long as these so many as are read for one event before they count anew.
_by_length = [lru_cache(maxsize=max(1, READ_TOGETHER >> bits))(_parsed) for bits in range(64)]


def _read(shape: shapely.Geometry, planar: bool | None, allowed: int) -> Geometry:
    """A geometry mended and prepared, as far as the work for that is allowed."""
    corners = int(shapely.get_num_coordinates(shape))
    cost = CORNER * corners
    for step in (_looked_over, _mended, _joined_parts):
        if cost <= allowed:
            shape, more = step(shape, allowed - cost)
            cost += more
    if cost > allowed:
        return Geometry(None, planar, corners, cost)
    shapely.prepare(shape)
    return Geometry(shape, planar, corners, cost)


def _looked_over(shape: shapely.Geometry, allowed: int) -> tuple[shapely.Geometry, int]:
    """The geometry, and the work of finding out whether it is valid: edges of its rings are held against each other."""
    if shapely.get_dimensions(shape) < 2:
        return shape, 0
    corners = int(shapely.get_num_coordinates(shape))
    if corners <= PLAIN:
        return shape, corners * corners
    edges = edge_boxes(shape)
    return shape, meeting(edges, edges, min(allowed, ROUGH_EACH * len(edges)))


def _mended(shape: shapely.Geometry, allowed: int) -> tuple[shapely.Geometry, int]:
    """The geometry made valid, and the work of that."""
    if shapely.is_valid(shape):
        return shape, 0
    cost = MENDING * crossing(edge_boxes(shape))
    # Not by linework, the default: a hundred crossing edges take it half a second, and the cube of more.
    return shape if cost > allowed else shapely.make_valid(shape, method="structure", keep_collapsed=True), cost


def _joined_parts(shape: shapely.Geometry, allowed: int) -> tuple[shapely.Geometry, int]:
    """The geometry with polygons of a collection made one, as relations take them; and the work of that."""
    if shapely.get_type_id(shape) != 7:
        return shape, 0
    parts = members(shape)
    flat = shapely.get_dimensions(parts) == 2
    if int(flat.sum()) < 2:
        return shape, 0
    cost = MENDING * overlapping(parts[flat])
    if cost > allowed:
        return shape, cost
    # A hundred squares within each other take GEOS seconds, as long as they are several; and so do ten thousand apart
    # from each other where each is joined with all.
    whole = shapely.disjoint_subset_union_all(parts[flat])
    return (shapely.GeometryCollection([whole, *parts[~flat]]) if not flat.all() else whole), cost


def at(place: Place) -> Geometry:
    """The point where something is."""
    return Geometry(shapely.Point(place.x, place.y), place.coordinates == "planar")


SPATIAL: dict[str, Callable[..., Any]] = {
    "S_INTERSECTS": shapely.intersects,
    "S_EQUALS": shapely.equals,
    "S_DISJOINT": shapely.disjoint,
    "S_TOUCHES": shapely.touches,
    "S_WITHIN": shapely.within,
    "S_OVERLAPS": shapely.overlaps,
    "S_CROSSES": shapely.crosses,
    "S_CONTAINS": shapely.contains,
}

CONVERSE = {"S_WITHIN": "S_CONTAINS", "S_CONTAINS": "S_WITHIN"}
"""The relations with the sides changed; all others are the same both ways."""


TOUCHING = ("S_INTERSECTS", "S_DISJOINT")
"""Relations for which no line is held against itself."""


def related(function: str, a: Geometry, b: Geometry, work: GeometryWork) -> bool | None:
    """Whether two geometries are so related; None for pairs that cannot be compared, or take too much work."""
    if a.planar is not None and b.planar is not None and a.planar != b.planar:
        return None
    if not a.readable or not b.readable:
        return None
    if apart(a.bounds, b.bounds):
        return function == "S_DISJOINT"
    if not work.may_compare() or not work.spend(comparing(function, a, b)):
        return None
    try:
        # Only a prepared left side is fast, and a large one is worth it more.
        if shapely.is_prepared(b.shape) and (not shapely.is_prepared(a.shape) or b.corners > a.corners):
            return bool(SPATIAL[CONVERSE.get(function, function)](b.shape, a.shape))
        return bool(SPATIAL[function](a.shape, b.shape))
    # A few pairs have no relation that GEOS can compute; one event's must not end the batch.
    except shapely.GEOSException:
        return None


def apart(a: Bounds, b: Bounds) -> bool:
    """Whether two boxes have no point in common; not where there is none in one of them."""
    return a[0] > b[2] or a[2] < b[0] or a[1] > b[3] or a[3] < b[1]


def comparing(function: str, a: Geometry, b: Geometry) -> int:
    """The units of work that comparing two geometries takes at most, about."""
    if a.corners * b.corners <= FEW:
        return PAIR * a.corners * b.corners
    units = (a.corners + b.corners) // COMPARED
    parts, points, lines = a.counts
    others, theirs, beside = b.counts
    # Each point is held against each edge of lines; parts against parts.
    units += parts * others + (points * beside + theirs * lines) // 2
    if not (a.single or b.single):
        units += BOTH + PAIR * meeting(a.edges, b.edges, ROUGHLY)
    if function not in TOUCHING:
        units += PAIR * (a.tangled + b.tangled)
    return units


def near(a: Geometry, b: Geometry, metres: float, work: GeometryWork) -> bool | None:
    """Whether two geometries are within so many metres; None between metres and degrees, or if it takes too much."""
    if a.planar is not None and b.planar is not None and a.planar != b.planar:
        return None
    if not a.readable or not b.readable:
        return None
    if surely_far(a, b, metres):
        return False
    if not work.may_compare():
        return None
    if not work.spend(comparing("S_INTERSECTS", a, b) + (a.corners + b.corners) // COMPARED):
        return None
    if a.planar or b.planar:
        if not work.spend(CORNER * (a.corners + b.corners) + pairs_of_edges(a.corners, b.corners)):
            return None
        return metres >= 0 and bool(shapely.distance(a.shape, b.shape) <= metres)
    if metres < 0 or shapely.is_empty(a.shape) or shapely.is_empty(b.shape):
        return False
    if meet(a.shape, b.shape):
        return True
    seen = _seen_by_edges(a, b, metres)
    if seen is None and work.spend(CORNER * (a.corners + b.corners)):
        return within_apart(a.shape, b.shape, min(metres, ANYWHERE), work)
    return seen


def _seen_by_edges(a: Geometry, b: Geometry, metres: float) -> bool | None:
    """Whether two geometries that do not meet are so near, as far as it takes no more than a look at the edges of the
    larger, and at the circle around the other.
    """
    large, small = (a, b) if a.corners >= b.corners else (b, a)
    (middles, radii), (middle, radius) = large.edge_discs, small.disc
    apart = middles - middle
    squares = (apart * apart).sum(axis=1)
    # Middles of edges are points of it.
    if small.single and bool((squares <= surely_within(metres)).any()):
        return True
    limits = (min(metres, ANYWHERE) + radius + radii) / SHORTEST
    return False if bool((squares > limits * limits + COARSE).all()) else None


def surely_far(a: Geometry, b: Geometry, metres: float) -> bool:
    """Whether it takes no more than a look at what is around two geometries to see that they are farther apart."""
    if a.planar or b.planar:
        (west, south, east, north), (left, low, right, high) = a.bounds, b.bounds
        gap = math.hypot(max(west - right, left - east, 0.0), max(south - high, low - north, 0.0))
        return gap * (1 - SLACK) > max(metres, 0.0)
    (middle, radius), (other, reach) = a.disc, b.disc
    chord = middle - other
    return float(chord @ chord) > surely_beyond(min(metres, ANYWHERE) + radius + reach)
