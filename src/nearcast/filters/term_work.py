"""The work that the conditions of location terms share for the newest event of an entity (semantics §12), plainly.

Nearly all entities tell no geometry: what atoms take for one that is at a point is known beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable

from nearcast.filters.evaluate import NO_CONTEXT
from nearcast.filters.spatial_atoms import SpentBudget, in_order, spent_on, term_atoms
from nearcast.geo import shapes
from nearcast.model.event import Event, Place
from nearcast.model.expression import SPATIAL, Box, Call, Expression, Shape, parts
from nearcast.model.filter import Filter
from nearcast.model.limits import Limits

POINT = shapes.at(Place("planar", 0.0, 0.0))

POINTS_APART = 200
"""Units that the distance of two points takes at most."""


class TermConditionWork:
    """The work that the conditions of the location terms of all filters share for the newest event of an entity."""

    def __init__(self, filters: Iterable[Filter], limits: Limits) -> None:
        self._ordered = in_order(atom for filter in filters for atom in term_atoms(filter))
        self._limits = limits
        units = sum(units_at_point(atom.name, limits) for atom in self._ordered if isinstance(atom.name, Call))
        self._enough_for_points = units <= limits.event_geometry_work
        self._spent: dict[Event, SpentBudget] = {}

    def budget(self, newest: Event) -> SpentBudget:
        """How far it goes for an event."""
        if newest not in self._spent:
            told = any(isinstance(value, str) and value.startswith("{") for _, value in newest.attributes)
            if self._enough_for_points and not told:
                return SpentBudget(self._ordered, len(self._ordered), self._limits)
            self._spent[newest] = spent_on(self._ordered, newest, NO_CONTEXT, self._limits)
        return self._spent[newest]


def units_at_point(call: Call, limits: Limits) -> int:
    """The units of work that an atom takes at most for an event at a point that tells no geometry."""
    return min(sum(_at_point(part, limits) for part in parts(call)), limits.geometry_work)


def _at_point(part: Expression, limits: Limits) -> int:
    if not isinstance(part, Call):
        return 0
    if part.function == "IS NULL":
        # It may look twice at what it is of.
        return limits.geometry_work * isinstance(part.arguments[0], Call)
    if part.function not in SPATIAL and part.function != "S_DWITHIN":
        return 0
    a, b = (_or_point(side, limits) for side in part.arguments[:2])
    if a.shape is None or b.shape is None:
        return limits.geometry_work
    if part.function in SPATIAL:
        return shapes.comparing(part.function, a, b)
    return POINTS_APART if a.single and b.single else limits.geometry_work


def _or_point(side: Expression, limits: Limits) -> shapes.Geometry:
    return shapes.written(side, limits.geometry_work) if isinstance(side, (Shape, Box)) else POINT
