"""Bounding boxes: of a predicate that two geometries meet, which entities can be a pair at all.

Such a predicate has no distance beyond which it cannot hold, and takes tens of microseconds for a pair. But geometries
that meet have boxes that do, and those are held against each other in columns.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from nearcast.model.arrays import Integers
from nearcast.model.event import Event
from nearcast.model.expression import TOLD_GEOMETRY, Call, Property
from nearcast.model.filter import And, Atom, Filter
from nearcast.relations.reports import NOWHERE, GrowableTable, ReportTable

MEETING = frozenset({"S_INTERSECTS", "S_WITHIN", "S_CONTAINS", "S_TOUCHES", "S_CROSSES", "S_OVERLAPS"})
"""What is TRUE only of geometries that have a point in common."""

Boxes = npt.NDArray[np.float64]
"""Shape (n, 4): the least x and y, the greatest x and y; what is nowhere has a least above the greatest."""

EMPTY = (np.inf, np.inf, -np.inf, -np.inf)

CORNERS = ("west", "south", "east", "north")


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


def told_box(event: Event) -> tuple[float, float, float, float]:
    """The box of the geometries that an event tells, else of the point where it is."""
    import shapely

    from nearcast.geo import shapes

    values = [value for name in TOLD_GEOMETRY for value in event.values(name)]
    found = [shapes.told(value) for value in values if isinstance(value, str)]
    boxes = [tuple(shapely.bounds(one.shape).tolist()) for one in found if one is not None]
    if not boxes and not any(found) and event.place is not None:
        boxes = [(event.place.x, event.place.y, event.place.x, event.place.y)]
    if not boxes:
        return EMPTY
    west, south, east, north = zip(*boxes, strict=True)
    return min(west), min(south), max(east), max(north)


def box_table() -> GrowableTable:
    """A table for the boxes of entities."""
    return GrowableTable({name: np.float64(value) for name, value in zip(CORNERS, EMPTY, strict=True)})


def place_boxes(reports: ReportTable) -> Boxes:
    """Of each entity the box of where it is as a stretch begins, and comes to be in it."""
    base = reports.base
    there = base["kind"] != NOWHERE
    found = np.full((reports.known, 4), EMPTY)
    for column, name in enumerate(("x", "y", "x", "y")):
        found[there, column] = base[name][there]
    moved = reports.columns["kind"] != NOWHERE
    own = np.stack([reports.columns[name][moved] for name in ("x", "y", "x", "y")], axis=1)
    return joined(found, reports.entity[moved], own)


def joined(boxes: Boxes, entity: Integers, more: Boxes) -> Boxes:
    """The boxes, each made as large as to have those in it that are more of its entity."""
    np.minimum.at(boxes[:, 0], entity, more[:, 0])
    np.minimum.at(boxes[:, 1], entity, more[:, 1])
    np.maximum.at(boxes[:, 2], entity, more[:, 2])
    np.maximum.at(boxes[:, 3], entity, more[:, 3])
    return boxes


def meeting(of: Integers, boxes: Boxes, among: Integers, others: Boxes) -> Iterator[tuple[Integers, Integers]]:
    """Pairs of an entity of one group and one of another whose boxes have a point in common."""
    west, south, east, north = (others[among, column] for column in range(4))
    for entity in of.tolist():
        left, low, right, high = boxes[entity]
        found = among[(west <= right) & (east >= left) & (south <= high) & (north >= low)]
        if len(found):
            yield np.full(len(found), entity), found
