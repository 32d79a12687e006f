"""Geometries with latitude first, as far as other events tell: they lie elsewhere, and among them if turned round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from nearcast.errors import Fault, Mark
from nearcast.language.cql2.geometry import bounds_of
from nearcast.language.definitions.client_documents import GEOMETRY_NAMES, is_geometry, positions_of
from nearcast.language.definitions.degree_limits import geometries_of
from nearcast.language.definitions.files import DefinitionSet
from nearcast.model.event import Event

MOST_GEOMETRIES = 1_000
"""Geometries of events that are looked at; those which come first."""

EXPECTED = "geometries where events have their places"

ADVICE = "longitude comes first: are they swapped?"


@dataclass(frozen=True, slots=True)
class DegreeBox:
    """Least and greatest longitude and latitude."""

    west: float
    south: float
    east: float
    north: float

    def joined(self, other: DegreeBox) -> DegreeBox:
        """The box around both."""
        return DegreeBox(
            min(self.west, other.west),
            min(self.south, other.south),
            max(self.east, other.east),
            max(self.north, other.north),
        )

    def meets(self, other: DegreeBox) -> bool:
        """Whether they share a point."""
        apart = self.east < other.west or other.east < self.west or self.north < other.south or other.north < self.south
        return not apart

    @property
    def widened(self) -> DegreeBox:
        """The box with as much again around it, and a degree: what is near counts as there."""
        x, y = self.east - self.west + 1, self.north - self.south + 1
        return DegreeBox(self.west - x, self.south - y, self.east + x, self.north + y)

    @property
    def swapped(self) -> DegreeBox:
        """The box with latitude as longitude."""
        return DegreeBox(self.south, self.west, self.north, self.east)


class GeometryPlaces:
    """Where events with longitude and latitude are, and where the geometries of events lie."""

    def __init__(self) -> None:
        self._places: DegreeBox | None = None
        self._shapes: list[tuple[str, DegreeBox, Mark | None]] = []

    def include(self, event: Event, where: Mark | None) -> None:
        """Takes an event in."""
        shaped = False
        for name, value in event.attributes:
            if isinstance(value, str) and value[:1] == "{" and len(self._shapes) < MOST_GEOMETRIES:
                box = _box_of_text(value)
                if box is not None:
                    self._shapes.append((name, box, where))
                    shaped = shaped or name in GEOMETRY_NAMES
        place = event.place
        # The place of an event with a geometry is the geometry's own.
        if place is not None and place.coordinates == "geographic" and not shaped:
            own = DegreeBox(place.x, place.y, place.x, place.y)
            self._places = own if self._places is None else self._places.joined(own)

    def swapped(self, found: DefinitionSet) -> Iterator[Fault]:
        """A warning for each attribute with geometries that look swapped, and for each geometry in a filter."""
        told: dict[str, tuple[DegreeBox, Mark | None]] = {}
        for name, box, where in self._shapes:
            if name not in told and self._looks_swapped(box):
                told[name] = box, where
        for name, (box, where) in told.items():
            yield Fault(EXPECTED, f"{name} around {_middle(box)}", where, ADVICE)
        for subscription in found.subscriptions:
            for atom, geometry in geometries_of(subscription.filter, found.settings.channels):
                box = DegreeBox(*bounds_of(geometry))
                if self._looks_swapped(box):
                    yield Fault(EXPECTED, f"one around {_middle(box)}", atom.where, ADVICE)

    def _looks_swapped(self, box: DegreeBox) -> bool:
        there = None if self._places is None else self._places.widened
        return there is not None and box.swapped.meets(there) and not box.meets(there)


def _middle(box: DegreeBox) -> str:
    return f"[{(box.west + box.east) / 2:.4g}, {(box.south + box.north) / 2:.4g}]"


def _box_of_text(text: str) -> DegreeBox | None:
    """The box of the geometry that an attribute holds; None if it holds none."""
    try:
        geometry: Mapping[str, Any] = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not is_geometry(geometry):
        return None
    pairs = [one[:2] for one in positions_of(geometry) if len(one) > 1]
    if not pairs or not all(isinstance(value, int | float) for pair in pairs for value in pair):
        return None
    x, y = zip(*pairs, strict=True)
    return DegreeBox(min(x), min(y), max(x), max(y))
