"""Where things are, in cells: what is within some metres of a place is in its cell or in one beside it.

Cells are squares of metres, or cubes in space for places in degrees: so there is no seam at the antimeridian, and no
trouble at the poles. Each size of cells is a *level*, a power of two: what is asked for within so many metres is asked
of the least level whose cells are at least as wide. A cell is a number, so that those beside it are sums; far apart,
or of the other kind, two may have one number: what is found in a cell is always held against the metres.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from itertools import product

from nearcast.geo.distance import SHORTEST, SLACK
from nearcast.model.event import Place

Cell = int

SMALLEST = 1.0
"""Metres that no cell is narrower than: nearer things are few."""

ROW = 1 << 32
"""Between the cell of a square and the one north of it."""

_FLAT = tuple(x + ROW * y for x, y in product((0, -1, 1), repeat=2))
_CUBE = tuple(x + ROW * y + ROW * ROW * z for x, y, z in product((0, -1, 1), repeat=3))


@lru_cache(maxsize=4096)
def level_of(metres: float) -> int:
    """The level whose cells are at least that wide, by less than twice."""
    # A little wider than asked for: rounding must not put a cell between what is just near enough.
    return math.ceil(math.log2(max(metres, SMALLEST) * (1 + SLACK)))


def joined(levels: Iterable[int], steps: int = 1) -> tuple[int, ...]:
    """Levels to keep, ascending, so that each of these is one of them, or so many steps below one at most: fewer sizes
    are kept, and wider cells are looked through.
    """
    kept: list[int] = []
    for level in sorted(levels, reverse=True):
        if not kept or level < kept[-1] - steps:
            kept.append(level)
    return tuple(reversed(kept))


def cell_of(place: Place, level: int) -> Cell:
    """The cell of a place at a level."""
    width = 2.0**level
    if place.coordinates == "planar":
        return math.floor(place.x / width) + ROW * math.floor(place.y / width)
    # A chord through the sphere of the least radius of curvature is never longer than the way over the ground.
    longitude, latitude = math.radians(place.x), math.radians(place.y)
    across = SHORTEST * math.cos(latitude) / width
    return (
        math.floor(across * math.cos(longitude))
        + ROW * math.floor(across * math.sin(longitude))
        + ROW * ROW * math.floor(SHORTEST * math.sin(latitude) / width)
    )


def around(place: Place, level: int) -> list[Cell]:
    """The cell of a place and all that touch it."""
    cell = cell_of(place, level)
    return [cell + step for step in (_FLAT if place.coordinates == "planar" else _CUBE)]
