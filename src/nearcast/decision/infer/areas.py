"""Which named places a reading is in: by the name it gives, by its entity, by its point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

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
        outlines = [(one.name, outline(one.outline)) for one in ontology.areas if one.outline]
        self._outlines = [(self._above[name], shape) for name, shape in outlines if shape is not None]
        self._tree: shapely.STRtree | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Made again from the outlines where it is asked for.
        return {**self.__dict__, "_tree": None}

    def __bool__(self) -> bool:
        return bool(self._above)

    def of(self, entity: str, place: Place | None, named: str | None) -> frozenset[str]:
        """The places that something is in, and all that those are part of."""
        found = self._of_entity.get(entity, NOWHERE)
        if named is not None:
            found = found | self._above.get(named, NOWHERE)
        return found if place is None else found | self.around([place])[0]

    def around(self, places: Sequence[Place | None]) -> list[frozenset[str]]:
        """For each of many points the places whose outlines enclose it, and all that those are part of."""
        found = [NOWHERE] * len(places)
        if not self._outlines:
            return found
        if self._tree is None:
            self._tree = shapely.STRtree([shape for _, shape in self._outlines])
        coordinates = [(math.nan, math.nan) if one is None else (one.x, one.y) for one in places]
        # A point on the edge is in it, as in the geometries of filters.
        points, outlines = self._tree.query(shapely.points(coordinates), predicate="intersects")
        for point, number in zip(points.tolist(), outlines.tolist(), strict=True):
            found[point] = found[point] | self._outlines[number][0]
        return found

    def narrowest(self, found: frozenset[str]) -> str | None:
        """Of the places that something is in, the one that no other is part of; the first by name of several."""
        return min((name for name in found if not any(name in self._above[one] - {one} for one in found)), default=None)
