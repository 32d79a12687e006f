"""Where subjects are, in a grid, so that who is near is found without a look at everybody; and bounds of distances."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from nearcast.geo.distance import SHORTEST, distance
from nearcast.geo.dynamic_index import SpatialHash, level_of
from nearcast.model.event import Coordinates, Event, Place
from nearcast.suppression.strategies.dimensions import DIMENSIONS, GEODESIC_ROUNDING, ROUNDING, UNDERFLOW, Vector

Sides = tuple[bool, bool]
"""Whether somebody is of side a of a relation, and of side b."""


@dataclass(eq=False, slots=True)
class IndexedSpot:
    """What one published event says of its subject: where it is, of which sides. `point` is None where it says nothing.

    A planar point has no height: with it, others are never nearer.
    """

    entity: str
    identity: tuple[str, str]
    key: datetime | None
    sides: Sides
    place: Place | None
    point: Vector | None = field(init=False)

    def __post_init__(self) -> None:
        self.point = _point(self.place)

    @property
    def kind(self) -> Coordinates | None:
        """In which coordinates it is; None where nobody can be near."""
        return self.place.coordinates if self.place is not None and self.point is not None else None

    def meets(self, other: IndexedSpot) -> bool:
        """Whether both are a pair of the relation."""
        a, b = self.sides
        return (a and other.sides[1]) or (b and other.sides[0])


def spot(event: Event, sides: Sides) -> IndexedSpot:
    """What an event says, given of which sides that makes its subject."""
    return IndexedSpot(event.entity, (event.source, event.id), event.moment, sides, event.place)


def _point(place: Place | None) -> Vector | None:
    """A point whose distance from another is never more than that of the places."""
    if place is None:
        return None
    flat = Place(place.coordinates, place.x, place.y)
    found = DIMENSIONS["places"].vector(flat)
    # What lies beyond all numbers is in no cell.
    return found if found is not None and all(map(math.isfinite, found)) else None


def bounds(a: IndexedSpot, b: IndexedSpot) -> tuple[float, float]:
    """Metres between which the distance of two spots of one kind surely is."""
    assert a.place and b.place and a.point and b.point, "both are somewhere"
    if a.kind == "planar":
        metres = distance(a.place, b.place) or 0.0
        room = ROUNDING * metres + UNDERFLOW
        return metres - room, metres + room
    chord = math.dist(a.point, b.point)
    return chord * (1 - ROUNDING) - GEODESIC_ROUNDING, _arc(chord)


def _arc(chord: float) -> float:
    """What a geodesic over a chord is at most: nowhere is the ellipsoid more bent than a circle of `SHORTEST`.

    Of two curves of one length, the one that is bent less everywhere has the longer chord.
    """
    if chord > SHORTEST:
        return math.inf
    return 2 * SHORTEST * math.asin(chord / (2 * SHORTEST)) * (1 + ROUNDING) + GEODESIC_ROUNDING


def moved(before: IndexedSpot, now: IndexedSpot) -> float | None:
    """How far a subject has moved at most, metres; None where that says nothing of its distance to others."""
    if before.place is None or now.place is None or before.kind is None or before.kind != now.kind:
        return None
    if before.place == now.place:
        return 0.0
    if now.kind == "planar" and (before.place.z is None) != (now.place.z is None):
        return None
    return bounds(before, now)[1]


class SubjectSpots:
    """Spots, found by who is within `reach` of them, metres."""

    def __init__(self, reach: float) -> None:
        self.reach = reach * (1 + ROUNDING) + GEODESIC_ROUNDING
        self._index: SpatialHash[IndexedSpot, IndexedSpot] = SpatialHash([level_of(self.reach)])

    def add(self, one: IndexedSpot) -> None:
        """Adds a spot that is somewhere."""
        if one.place is not None and one.point is not None:
            self._index.insert(one, one.place, one)

    def remove(self, one: IndexedSpot) -> None:
        """Removes a spot, if it is there."""
        self._index.remove(one)

    def near(self, one: IndexedSpot) -> Iterator[IndexedSpot]:
        """All others within reach of a spot, of its kind; perhaps some that are a little farther."""
        if one.place is None or one.point is None:
            return
        for other in self._index.candidates(one.place, self.reach):
            assert other.point is not None
            # Planar points have two numbers, those in space three.
            comparable = other.entity != one.entity and len(other.point) == len(one.point)
            if comparable and math.dist(one.point, other.point) <= self.reach:
                yield other
