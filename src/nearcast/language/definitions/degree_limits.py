"""Geometries in filters that are no places on the globe, or hardly the ones that are meant.

Where a channel is planar a geometry may be in metres: then nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nearcast.errors import Fault
from nearcast.language.cql2.geometry import longest_way, within_degrees
from nearcast.language.cql2.printer import expression
from nearcast.model.expression import Box, Call, Shape, parts
from nearcast.model.filter import Atom, Count, Distance, Entities, Filter, atoms
from nearcast.model.subscription import Channel

SHOWN = 80
"""Characters of a geometry that a fault shows."""


def beyond_degrees(filter: Filter, channels: Iterable[Channel] = ()) -> Iterator[Fault]:
    """A fault for each geometry with longitudes beyond 180 or latitudes beyond 90."""
    for atom, geometry in geometries_of(filter, channels):
        if not within_degrees(geometry):
            expected = "a geometry in degrees: longitudes to 180, latitudes to 90"
            yield Fault(expected, expression(geometry)[:SHOWN], atom.where, _advice(geometry))


def _advice(geometry: Shape | Box) -> str:
    swapped = "are they swapped? " if within_degrees(geometry, swapped=True) else ""
    return f"longitude comes first; {swapped}metres belong to a planar channel"


def long_ways_round(filter: Filter, channels: Iterable[Channel] = ()) -> Iterator[Fault]:
    """A warning for each geometry with an edge of more than half the globe: on a map it is meant the other way."""
    for atom, geometry in geometries_of(filter, channels):
        degrees = longest_way(geometry) if isinstance(geometry, Shape) else 0.0
        if 180 < degrees < 360:
            came = f"an edge {degrees:g} degrees wide in {expression(geometry)}"[:SHOWN]
            advice = (
                "what crosses the antimeridian is cut there (RFC 7946, 3.1.9); as it is, it goes the long way round"
            )
            yield Fault("a geometry without edges beyond half the globe", came, atom.where, advice)


def geometries_of(filter: Filter, channels: Iterable[Channel]) -> Iterator[tuple[Atom, Shape | Box]]:
    """The geometries that are written into a filter, each with its atom; none where they may be in metres."""
    if any(channel.coordinates == "planar" for channel in channels):
        return
    for atom in atoms(filter):
        if isinstance(atom.name, Call):
            for part in parts(atom.name):
                if isinstance(part, (Shape, Box)):
                    yield atom, part
        elif isinstance(atom.name, (Distance, Count)):
            sides = (atom.name.a, atom.name.b) if isinstance(atom.name, Distance) else (atom.name.of, atom.name.around)
            for side in sides:
                if isinstance(side, Entities) and side.conditions is not None:
                    yield from geometries_of(side.conditions, ())
