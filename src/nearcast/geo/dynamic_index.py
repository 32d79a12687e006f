"""The dynamic index: things that come, move and go, found by who is near a place.

Things lie in cells: squares of metres, or cubes in space for places in degrees, so there is no seam at the antimeridian
and no trouble at the poles. What is within some metres of a place is in its cell or in one beside it. Each size of
cells is a *level*, a power of two: what is asked for within so many metres is asked of the least level whose cells are
at least as wide. A cell is a number, so that those beside it are sums; far apart, or of the other kind, two may have
one number: what is found in a cell has to be held against the metres.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Hashable, Iterable
from functools import lru_cache
from itertools import product
from typing import Generic, TypeVar

from nearcast.geo.distance import SHORTEST, SLACK
from nearcast.model.event import Place

Cell = int
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

SMALLEST = 1.0
"""Metres that no cell is narrower than: nearer things are few."""

ROUNDING = 1e-8
"""Metres of room for what places in space are computed wrong by."""

LARGEST = 1_000
"""The highest level; above, one cell has everything."""

FARTHEST = sys.float_info.max
"""The greatest of planar coordinates."""

ROW = 1 << 32
"""Between the cell of a square and the one north of it."""

_FLAT = tuple(x + ROW * y for x, y in product((0, -1, 1), repeat=2))
_CUBE = tuple(x + ROW * y + ROW * ROW * z for x, y, z in product((0, -1, 1), repeat=3))


@lru_cache(maxsize=4096)
def level_of(metres: float) -> int:
    """The level whose cells are at least that wide, by less than twice."""
    wide = _with_room(max(metres, SMALLEST))
    return math.ceil(math.log2(wide)) if wide <= 2.0**LARGEST else LARGEST + 1


def _with_room(metres: float) -> float:
    """A little more than asked for: rounding must not put a cell between what is just near enough."""
    return metres * (1 + SLACK) + ROUNDING


def joined_levels(levels: Iterable[int], steps: int = 0) -> tuple[int, ...]:
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
    width = 2.0**level if level <= LARGEST else math.inf
    if place.coordinates == "planar":
        return math.floor(place.x / width) + ROW * math.floor(place.y / width)
    x, y, z = _in_space(place)
    return math.floor(x / width) + ROW * math.floor(y / width) + ROW * ROW * math.floor(z / width)


def _in_space(place: Place) -> tuple[float, float, float]:
    # A chord through the sphere of the least radius of curvature is never longer than the way over the ground, nor than
    # the one through the ellipsoid.
    longitude, latitude = math.radians(place.x), math.radians(place.y)
    across = SHORTEST * math.cos(latitude)
    return across * math.cos(longitude), across * math.sin(longitude), SHORTEST * math.sin(latitude)


# What looks around a place asks for several classes, or with several distances, one after the other.
@lru_cache(maxsize=64)
def cells_around(place: Place, level: int) -> tuple[Cell, ...]:
    """The cell of a place and all that touch it."""
    cell = cell_of(place, level)
    return tuple([cell + step for step in (_FLAT if place.coordinates == "planar" else _CUBE)])


def cells_within(place: Place, metres: float, level: int) -> list[Cell]:
    """The cells at a level in which what is within so many metres of a place may be: of wide ones fewer than touch its
    own, of narrow ones many.
    """
    wide, width = _with_room(metres), 2.0**level
    if place.coordinates == "planar":
        (west, east), (south, north) = (_cells_along(at, wide, width) for at in (place.x, place.y))
        return [x + y for y in range(ROW * south, ROW * north + 1, ROW) for x in range(west, east + 1)]
    at = _in_space(place)
    xs, ys, zs = (range(low, high + 1) for low, high in (_cells_along(one, wide, width) for one in at))
    return [x + ROW * (y + ROW * z) for z in zs for y in ys for x in xs]


def _cells_along(at: float, wide: float, width: float) -> tuple[int, int]:
    # Rounding keeps the order of numbers, so nothing that is near enough is beyond.
    return math.floor(max(at - wide, -FARTHEST) / width), math.floor(min(at + wide, FARTHEST) / width)


Around = Callable[[Place, int], Iterable[Cell]]
"""The cells around a place at a level."""


class SpatialHash(Generic[K, V]):
    """Values by key, each at a place. `levels`, ascending: the sizes of cells that all are in."""

    __slots__ = ("_cells", "_known", "levels")

    def __init__(self, levels: Iterable[int]) -> None:
        self.levels = tuple(levels)
        self._cells: tuple[dict[Cell, dict[K, V]], ...] = tuple({} for _ in self.levels)
        self._known: dict[K, tuple[list[Cell], V]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def insert(self, key: K, place: Place, value: V) -> None:
        """Adds a value at a place, or moves it there; another one of its key is replaced."""
        cells = [cell_of(place, level) for level in self.levels]
        known = self._known.get(key)
        if known is None:
            for found, cell in zip(self._cells, cells, strict=True):
                _enter(found, cell, key, value)
        elif known[0] == cells and known[1] is value:
            return
        else:
            for found, before, cell in zip(self._cells, known[0], cells, strict=True):
                if before != cell:
                    _leave(found, before, key)
                    _enter(found, cell, key, value)
                else:
                    found[cell][key] = value
        self._known[key] = (cells, value)

    def remove(self, key: K) -> None:
        """Removes a key's value, if there is any."""
        known = self._known.pop(key, None)
        if known is None:
            return
        for found, cell in zip(self._cells, known[0], strict=True):
            _leave(found, cell, key)

    def candidates(self, place: Place, metres: float, around: Around = cells_around) -> list[V]:
        """All that is within so many metres of a place, each once; perhaps some that is farther, or has no distance.

        Who asks several indexes around one place may keep its cells, and give what finds them as `around`.
        """
        least = level_of(metres)
        for level, cells in zip(self.levels, self._cells, strict=True):
            if level >= least:
                found: list[V] = []
                for cell in around(place, level):
                    if cell in cells:
                        found += cells[cell].values()
                return found
        # No cells are as wide as that.
        return [value for _, value in self._known.values()]

    def near_cells(self, place: Place, metres: float) -> list[Collection[V]]:
        """The same, cell by cell, out of cells that are half as wide or more: what is there may be counted before it is
        looked at. Levels are one below those of the metres that are asked for.
        """
        least = level_of(metres) - 1
        for level, cells in zip(self.levels, self._cells, strict=True):
            if LARGEST > level >= least:
                found = map(cells.get, cells_within(place, metres, level))
                return [here.values() for here in found if here]
        return [[value for _, value in self._known.values()]]


def _enter(cells: dict[Cell, dict[K, V]], cell: Cell, key: K, value: V) -> None:
    if cell in cells:
        cells[cell][key] = value
    else:
        cells[cell] = {key: value}


def _leave(cells: dict[Cell, dict[K, V]], cell: Cell, key: K) -> None:
    here = cells[cell]
    del here[key]
    if not here:
        del cells[cell]
