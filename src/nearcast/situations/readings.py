"""Readings of context classes, where they count, and the named places they are in."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from nearcast.geo.distance import SHORTEST, distance
from nearcast.model.event import Place
from nearcast.model.ontology import Ontology, upwards
from nearcast.model.values import Value
from nearcast.situations.zone_areas import BETWEEN


class SituationCentre(NamedTuple):
    """A middle around which readings count: where an entity is, and in which places."""

    entity: str
    place: Place | None = None
    areas: frozenset[str] = frozenset()


# Each reading makes one: as a tuple that takes a fourth of the time.
class ContextReading(NamedTuple):
    """A value of a class. `moment` is when it was read, in microseconds since 1970; `areas` the places it is in."""

    name: str
    value: Value
    entity: str
    place: Place | None
    moment: int
    position: int
    areas: frozenset[str] = frozenset()

    @property
    def key(self) -> tuple[str, str]:
        """Of an entity the newest reading of a class counts."""
        return self.entity, self.name

    @property
    def centre(self) -> SituationCentre:
        """The reading as the middle of what is around."""
        return SituationCentre(self.entity, self.place, self.areas)


class PlacedReading(Protocol):
    """What is somewhere: a reading, or a situation by its centre."""

    @property
    def entity(self) -> str:
        """Whose it is."""

    @property
    def place(self) -> Place | None:
        """Where it is."""


def is_near(centre: PlacedReading, other: PlacedReading, metres: float) -> bool:
    """Whether something is within metres of a centre; of what is nowhere an entity's own things are together."""
    here, there = centre.place, other.place
    if here is None or there is None:
        return centre.entity == other.entity
    # Most of what is asked for is in no corner of the square around, and a geodesic takes long.
    if here.coordinates != "planar":
        if math.radians(abs(here.y - there.y)) * SHORTEST > metres:
            return False
    elif abs(here.x - there.x) > metres or abs(here.y - there.y) > metres:
        return False
    apart = distance(here, there)
    return apart is not None and apart <= metres


def separation(centre: SituationCentre, other: PlacedReading) -> float | None:
    """Metres between a centre and something, 0 between an entity's own things that are nowhere; None: not known."""
    if centre.place is None or other.place is None:
        return 0.0 if centre.entity == other.entity else None
    return distance(centre.place, other.place)


class ReadingStore(Protocol):
    """The newest reading of every class by every entity."""

    def newest(self, entity: str, name: str) -> ContextReading | None:
        """The newest reading of a class by an entity."""

    def near(self, names: Collection[str], centre: SituationCentre, metres: float) -> Iterable[ContextReading]:
        """The readings of these classes within metres of a centre, in any order."""

    def inside(self, names: Collection[str], area: str) -> Iterable[ContextReading]:
        """The readings of these classes in a named place, in any order."""

    def everything(self) -> Iterable[ContextReading]:
        """All readings, in any order."""


if TYPE_CHECKING:
    import shapely

    from nearcast.situations.zones_around import ZoneAreas

NOWHERE: frozenset[str] = frozenset()


@lru_cache(maxsize=4096)
def outline(text: str) -> shapely.Geometry | None:
    """The geometry of a text in WKT, prepared; None if it is none."""
    import shapely

    try:
        shape = shapely.from_wkt(text)
    except shapely.errors.ShapelyError:
        return None
    shapely.prepare(shape)
    return shape


def without_zones(areas: frozenset[str]) -> frozenset[str]:
    """Places without those that are zones."""
    return frozenset(one for one in areas if BETWEEN not in one)


class NamedAreas:
    """The named places of an ontology, and the zones that rules look into, as readings meet them."""

    def __init__(self, ontology: Ontology, zones: ZoneAreas | None = None) -> None:
        self.zones = zones
        wholes = ontology.wholes()
        self._above = {name: frozenset(upwards(wholes, name)) for name in wholes}
        self._of_entity: dict[str, frozenset[str]] = {}
        for one in ontology.areas:
            for entity in one.entities:
                self._of_entity[entity] = self._of_entity.get(entity, NOWHERE) | self._above[one.name]
        outlines = [(one.name, outline(one.outline)) for one in ontology.areas if one.outline]
        self._outlines = [(self._above[name], shape) for name, shape in outlines if shape is not None]
        self._tree: shapely.STRtree | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Made again from the outlines where it is asked for.
        return {**self.__dict__, "_tree": None}

    def __bool__(self) -> bool:
        return bool(self._above) or bool(self.zones)

    def of(self, entity: str, place: Place | None, named: str | None) -> frozenset[str]:
        """The places that something is in, and all that those are part of."""
        found = self._of_entity.get(entity, NOWHERE)
        if named is not None:
            found = found | self._above.get(named, NOWHERE)
        return found if place is None else found | self.around([place])[0]

    def around(self, places: Sequence[Place | None]) -> list[frozenset[str]]:
        """For each of many points the places whose outlines enclose it, and all that those are part of."""
        found = [NOWHERE] * len(places)
        for number, zones in self.zones_around(places).items():
            found[number] = zones
        if not self._outlines:
            return found
        import shapely

        if self._tree is None:
            self._tree = shapely.STRtree([shape for _, shape in self._outlines])
        coordinates = [(math.nan, math.nan) if one is None else (one.x, one.y) for one in places]
        # A point on the edge is in it, as in the geometries of filters.
        points, outlines = self._tree.query(shapely.points(coordinates), predicate="intersects")
        for point, number in zip(points.tolist(), outlines.tolist(), strict=True):
            found[point] = found[point] | self._outlines[number][0]
        return found

    def zones_around(self, places: Sequence[Place | None]) -> Mapping[int, frozenset[str]]:
        """The zones that points are in, by the numbers of those that are in some."""
        return self.zones.around(places) if self.zones and places else {}

    def rezoned(self, readings: Sequence[ContextReading]) -> list[ContextReading]:
        """Readings with the zones that their places are in by now, and the other places that they were in."""
        around = self.zones_around([one.place for one in readings])
        pairs = ((one, around.get(number, NOWHERE)) for number, one in enumerate(readings))
        return [one._replace(areas=without_zones(one.areas) | zones) for one, zones in pairs]

    def narrowest(self, found: frozenset[str]) -> str | None:
        """Of the places that something is in, the one that no other is part of; the first by name of several."""
        found = found & self._above.keys()
        return min((name for name in found if not any(name in self._above[one] - {one} for one in found)), default=None)
