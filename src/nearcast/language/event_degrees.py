"""Geometries of events that are no places on the globe: where its channel is geographic an event has none of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nearcast.errors import Fault, Mark
from nearcast.language.definitions.client_documents import ROUNDING, positions_of, surely_within
from nearcast.model.event import Place
from nearcast.model.subscription import Channel

Shapes = list[tuple[str, Mapping[str, Any]]]
"""Geometries of an event by the names of their attributes."""

EXPECTED = "a geometry in degrees: longitudes to 180, latitudes to 90"


def check_degrees(
    shapes: Shapes, channel: str | None, place: Place | None, channels: Sequence[Channel], where: Mark
) -> None:
    """Refuses a geometry beyond 180 degrees of longitude or 90 of latitude, unless it may be in metres. Raises
    `Fault`.
    """
    if in_degrees(channel, None if place is None else place.coordinates, channels):
        for name, geometry in shapes:
            found = beyond(name, geometry)
            if found is not None:
                raise Fault(EXPECTED, found[0], where, found[1])


def in_degrees(channel: str | None, coordinates: str | None, channels: Sequence[Channel]) -> bool:
    """Whether an event's geometries are in degrees: its channel is geographic; without one, its place is not planar."""
    kinds = [one.coordinates for one in channels if one.name == channel]
    return (kinds[0] if kinds else coordinates) != "planar"


def beyond(name: str, geometry: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first position of a geometry that is no place on the globe, with its attribute's name, and what to do; None
    where there is none.
    """
    if surely_within(geometry, 180 + ROUNDING, 90 + ROUNDING):
        return None
    positions = [(one[0], one[1]) for one in positions_of(geometry) if _are_numbers(one)]
    first = next((one for one in positions if not _on_globe(*one)), None)
    if first is None:
        return None
    swapped = "are they swapped? " if all(_on_globe(y, x) for x, y in positions) else ""
    return f"{name} with {list(first)}", f"longitude comes first; {swapped}metres belong to a planar channel"


def _are_numbers(position: Sequence[object]) -> bool:
    return len(position) > 1 and type(position[0]) in (int, float) and type(position[1]) in (int, float)


def _on_globe(x: float, y: float) -> bool:
    return abs(x) <= 180 + ROUNDING and abs(y) <= 90 + ROUNDING
