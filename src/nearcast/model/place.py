"""Where something is: planar metres or geographic degrees (SEMANTICS §1). "Position" is kept for the journal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Coordinates = Literal["planar", "geographic"]


@dataclass(frozen=True, slots=True)
class Place:
    """A point. Planar: x, y, z in metres. Geographic: x = longitude, y = latitude in degrees WGS84, z = metres."""

    coordinates: Coordinates
    x: float
    y: float
    z: float | None = None


def place_data(place: Place) -> dict[str, float]:
    """A place as a document."""
    names = ("x", "y", "z") if place.coordinates == "planar" else ("lon", "lat", "alt")
    pairs = zip(names, (place.x, place.y, place.z), strict=True)
    return {name: value for name, value in pairs if value is not None}
