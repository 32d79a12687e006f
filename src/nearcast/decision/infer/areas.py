"""Which named places a reading is in: by the name it gives, by its entity, by its point."""

from __future__ import annotations

from functools import lru_cache

import shapely

from nearcast.model.ontology import Ontology, upwards
from nearcast.model.place import Place

NOWHERE: frozenset[str] = frozenset()


@lru_cache(maxsize=4096)
def outline(text: str) -> shapely.Geometry | None:
    """The geometry of a text in WKT, prepared; None if it is none."""
    try:
        shape = shapely.from_wkt(text)
    except shapely.errors.ShapelyError:
        return None
    shapely.prepare(shape)
    return shape


class Areas:
    """The named places of an ontology, as readings meet them."""

    def __init__(self, ontology: Ontology) -> None:
        wholes = ontology.wholes()
        self._above = {name: frozenset(upwards(wholes, name)) for name in wholes}
        self._of_entity: dict[str, frozenset[str]] = {}
        for one in ontology.areas:
            for entity in one.entities:
                self._of_entity[entity] = self._of_entity.get(entity, NOWHERE) | self._above[one.name]
        self._outlines = [(one.name, outline(one.outline)) for one in ontology.areas if one.outline]

    def __bool__(self) -> bool:
        return bool(self._above)

    def of(self, entity: str, place: Place | None, named: str | None) -> frozenset[str]:
        """The places that something is in, and all that those are part of."""
        found = self._of_entity.get(entity, NOWHERE)
        if named is not None:
            found = found | self._above.get(named, NOWHERE)
        if place is not None and self._outlines:
            point = shapely.Point(place.x, place.y)
            for name, shape in self._outlines:
                # A point on the edge is in it, as in the geometries of filters.
                if shape is not None and shapely.intersects(shape, point):
                    found = found | self._above[name]
        return found

    def narrowest(self, found: frozenset[str]) -> str | None:
        """Of the places that something is in, the one that no other is part of; the first by name of several."""
        return min((name for name in found if not any(name in self._above[one] - {one} for one in found)), default=None)
