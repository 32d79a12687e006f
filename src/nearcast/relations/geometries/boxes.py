"""Bounding boxes: of a predicate that two geometries meet, which entities can be a pair at all.

Such a predicate has no distance beyond which it cannot hold, and takes tens of microseconds for a pair. But geometries
that meet have boxes that do, and those are held against each other in columns: what each report tells by itself, so
that an entity which jumps is nowhere in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.model.arrays import Flags, Integers
from nearcast.model.event import Event, Place
from nearcast.model.expression import TOLD_GEOMETRY, Call, Property
from nearcast.model.filter import And, Atom, Filter, atoms
from nearcast.model.limits import Limits
from nearcast.relations.entity_table import NOWHERE, PLANAR, GrowableTable
from nearcast.relations.reports import ReportTable

MEETING = frozenset({"S_INTERSECTS", "S_WITHIN", "S_CONTAINS", "S_TOUCHES", "S_CROSSES", "S_OVERLAPS"})
"""What is TRUE only of geometries that have a point in common."""

Boxes = npt.NDArray[np.float64]
"""Shape (n, 4): the least x and y, the greatest x and y; what is nowhere has a least above the greatest."""

BOX = {"west": np.inf, "south": np.inf, "east": -np.inf, "north": -np.inf, "corners": 0.0, "cost": 0.0, "planar": 0.0}
"""What is known of the geometries of an event, and of those of one that has none: the box around them; how many corners
they have, and the units of work to read them; whether their coordinates are metres, 1, or degrees, 0."""

TREE = 2_000_000
"""Pairs of boxes from which on a tree of one side's boxes is made: below that each is looked at sooner."""

PROBES = 1_024
"""Boxes that are looked for in the tree at once."""


class PointBoxes(NamedTuple):
    """Of each point what `BOX` has, as columns."""

    boxes: Boxes
    corners: npt.NDArray[np.float64]
    cost: npt.NDArray[np.float64]
    planar: npt.NDArray[np.float64]

    @staticmethod
    def of(rows: npt.NDArray[np.float64]) -> PointBoxes:
        """From rows of `BOX`."""
        return PointBoxes(rows[:, :4], *(rows[:, 4 + index] for index in range(3)))

    def are_beyond(self, limits: Limits) -> Flags:
        """Which points have geometries, and no box, as reading each of them is too much work."""
        return np.asarray((self.cost > limits.geometry_work) & (self.boxes[:, 0] > self.boxes[:, 2]))


def met_sides(filter: Filter) -> tuple[bool, bool] | None:
    """Where a predicate is TRUE only if geometries of both sides meet: of each side whether that is the one that it
    tells, or the point where it is; None: it may be TRUE otherwise.
    """
    if isinstance(filter, And):
        return next((found for child in filter.children if (found := met_sides(child))), None)
    call = filter.name if isinstance(filter, Atom) else None
    if not isinstance(call, Call) or call.function not in MEETING:
        return None
    told: dict[str, bool] = {}
    for argument in call.arguments:
        side, _, attribute = argument.name.partition(".") if isinstance(argument, Property) else ("", "", "")
        if side and (not attribute or attribute in TOLD_GEOMETRY):
            told[side] = bool(attribute)
    return (told["a"], told["b"]) if told.keys() == {"a", "b"} else None


COMPARING = frozenset({"=", "<>", "<", "<=", ">", ">=", "BETWEEN", "IN", "LIKE"})
"""What takes no work on geometries but that of reading them."""


def readings(filter: Filter) -> int:
    """How often at most a predicate that `met_sides` is of reads the geometries of both, where all that it compares of
    them is whether they meet; 0 where it compares more.
    """
    calls = [atom.name for atom in atoms(filter)]
    functions = [call.function for call in calls if isinstance(call, Call)]
    spatial = sum(function in MEETING for function in functions)
    others = all(function in MEETING | COMPARING for function in functions)
    return len(calls) if spatial == 1 and others and _joined_only(filter) else 0


def _joined_only(filter: Filter) -> bool:
    return isinstance(filter, Atom) or (isinstance(filter, And) and all(map(_joined_only, filter.children)))


def told_box(event: Event, limits: Limits) -> tuple[float, ...]:
    """What `BOX` has of the geometries that an event tells, else of the point where it is."""
    import shapely

    from nearcast.geo import shapes

    values = [value for name in TOLD_GEOMETRY for value in event.values(name)]
    found = [shapes.told(value, limits.geometry_work) for value in values if isinstance(value, str)]
    told = [one for one in found if one is not None]
    if not told:
        return tuple(BOX.values()) if event.place is None else point_box(event.place)
    corners, cost = float(sum(one.corners for one in told)), float(sum(one.cost for one in told))
    boxes = [shapely.bounds(one.shape).tolist() for one in told if one.shape is not None]
    if not boxes:
        return (*tuple(BOX.values())[:4], corners, cost, 0.0)
    west, south, east, north = zip(*boxes, strict=True)
    return min(west), min(south), max(east), max(north), corners, cost, 0.0


def point_box(place: Place) -> tuple[float, ...]:
    """What `BOX` has of a point."""
    return place.x, place.y, place.x, place.y, 1.0, 0.0, float(place.coordinates == "planar")


def box_table() -> GrowableTable:
    """A table for what `BOX` has of entities."""
    return GrowableTable({name: np.float64(value) for name, value in BOX.items()})


def place_boxes(reports: ReportTable) -> PointBoxes:
    """Of each point where it is."""
    points = np.arange(reports.known + len(reports.row))
    kind, x, y = (reports.column(name, points) for name in ("kind", "x", "y"))
    found = np.tile(np.array(list(BOX.values())), (len(points), 1))
    there = kind != NOWHERE
    found[there] = np.stack([x, y, x, y, np.ones(len(x)), np.zeros(len(x)), kind == PLANAR], axis=1)[there]
    return PointBoxes.of(found)


def meeting(of: Integers, boxes: Boxes, among: Integers, others: Boxes) -> Iterator[tuple[Integers, Integers]]:
    """Pairs of a point of one group and one of another whose boxes have a point in common."""
    of, among = of[_is_there(boxes[of])], among[_is_there(others[among])]
    if not len(of) or not len(among):
        return
    if len(of) * len(among) >= TREE:
        yield from _by_tree(of, boxes, among, others)
        return
    west, south, east, north = (others[among, column] for column in range(4))
    for point, (left, low, right, high) in zip(of.tolist(), boxes[of].tolist(), strict=True):
        found = among[(west <= right) & (east >= left) & (south <= high) & (north >= low)]
        if len(found):
            yield np.full(len(found), point), found


def _by_tree(of: Integers, boxes: Boxes, among: Integers, others: Boxes) -> Iterator[tuple[Integers, Integers]]:
    import shapely

    # A diagonal has the box that it is of.
    tree = shapely.STRtree(np.asarray(shapely.linestrings(others[among].reshape(-1, 2, 2))))
    for first in range(0, len(of), PROBES):
        probes = of[first : first + PROBES]
        probe, found = tree.query(shapely.linestrings(boxes[probes].reshape(-1, 2, 2)))
        if len(probe):
            yield probes[probe], among[found]


def _is_there(boxes: Boxes) -> Flags:
    return np.asarray(np.isfinite(boxes).all(axis=1))


def surely_apart(
    a: PointBoxes, points_a: Integers, b: PointBoxes, points_b: Integers, times: int, limits: Limits
) -> Flags:
    """At which pairs of points a predicate that reads both so many times at most is FALSE for their boxes do not meet.

    Not where it would be UNKNOWN: between metres and degrees, of what is nowhere, and where the work might be too much.
    """
    from nearcast.geo.geometry_work import CORNER, PAIR
    from nearcast.geo.shapes import FEW

    one, other = a.boxes[points_a], b.boxes[points_b]
    beside = (one[:, 0] > other[:, 2]) | (one[:, 2] < other[:, 0])
    above = (one[:, 1] > other[:, 3]) | (one[:, 3] < other[:, 1])
    corners, others = a.corners[points_a], b.corners[points_b]
    # Of few pairs of corners each counts; a point is held against the edges of what is larger.
    compared = np.where(corners * others <= FEW, PAIR * corners * others, np.inf)
    compared = np.where(np.minimum(corners, others) == 1, (PAIR + CORNER) * (np.maximum(corners, others) + 1), compared)
    work = times * (a.cost[points_a] + b.cost[points_b]) + compared
    allowed = (work <= limits.geometry_work) & (times * (corners + others) <= limits.geometry_corners)
    same = a.planar[points_a] == b.planar[points_b]
    found: Flags = (beside | above) & allowed & same & _is_there(one) & _is_there(other)
    return found
