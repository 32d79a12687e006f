"""Where things are, in cells: what is within some metres of a place is in its cell or in one beside it.

Cells are squares of metres, or cubes in space for places in degrees: so there is no seam at the antimeridian, and no
trouble at the poles. Each size of cells is a *level*, a power of two: what is asked for within so many metres is asked
of the least level whose cells are at least as wide.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from nearcast.decision.location import SHORTEST, SLACK
from nearcast.model.place import Place

Cell = tuple[int, ...]

SMALLEST = 1.0
"""Metres that no cell is narrower than: nearer things are few."""


@lru_cache(maxsize=4096)
def level_of(metres: float) -> int:
    """The level whose cells are at least that wide, by less than twice."""
    return math.ceil(math.log2(max(metres, SMALLEST) * (1 + SLACK)))


def cell_of(place: Place, level: int) -> Cell:
    """The cell of a place at a level; planar ones have two numbers, geographic ones three."""
    width = 2.0**level
    if place.coordinates == "planar":
        return math.floor(place.x / width), math.floor(place.y / width)
    # A chord through the sphere of the least radius of curvature is never longer than the way over the ground.
    longitude, latitude = math.radians(place.x), math.radians(place.y)
    across = SHORTEST * math.cos(latitude) / width
    return (
        math.floor(across * math.cos(longitude)),
        math.floor(across * math.sin(longitude)),
        math.floor(SHORTEST * math.sin(latitude) / width),
    )


def beside(cell: Cell) -> Iterator[Cell]:
    """A cell and all that touch it."""
    if len(cell) == 2:
        x, y = cell
        yield from (
            (x, y), (x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1),
            (x - 1, y - 1), (x - 1, y + 1), (x + 1, y - 1), (x + 1, y + 1),
        )  # fmt: skip
    else:
        yield from product(*((one - 1, one, one + 1) for one in cell))
