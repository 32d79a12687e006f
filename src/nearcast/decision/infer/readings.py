"""Readings, and where they count: values of context classes, each by an entity, at a place, at a moment."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from nearcast.decision.location import SHORTEST, distance
from nearcast.model.place import Place
from nearcast.model.values import Value


class Centre(NamedTuple):
    """A middle around which readings count: where an entity is, and in which places."""

    entity: str
    place: Place | None = None
    areas: frozenset[str] = frozenset()


# Each reading makes one: as a tuple that takes a fourth of the time.
class Reading(NamedTuple):
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
    def centre(self) -> Centre:
        """The reading as the middle of what is around."""
        return Centre(self.entity, self.place, self.areas)


class Located(Protocol):
    """What is somewhere: a reading, or a situation by its centre."""

    @property
    def entity(self) -> str:
        """Whose it is."""

    @property
    def place(self) -> Place | None:
        """Where it is."""


def is_near(centre: Located, other: Located, metres: float) -> bool:
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


def separation(centre: Centre, other: Located) -> float | None:
    """Metres between a centre and something, 0 between an entity's own things that are nowhere; None: not known."""
    if centre.place is None or other.place is None:
        return 0.0 if centre.entity == other.entity else None
    return distance(centre.place, other.place)


class Readings(Protocol):
    """The newest reading of every class by every entity."""

    def newest(self, entity: str, name: str) -> Reading | None:
        """The newest reading of a class by an entity."""

    def near(self, names: Collection[str], centre: Centre, metres: float) -> Iterable[Reading]:
        """The readings of these classes within metres of a centre, in any order."""

    def inside(self, names: Collection[str], area: str) -> Iterable[Reading]:
        """The readings of these classes in a named place, in any order."""

    def everything(self) -> Iterable[Reading]:
        """All readings, in any order."""


@dataclass(slots=True)
class PlainReadings:
    """Looks at every reading: the reference for what is faster."""

    all: dict[tuple[str, str], Reading] = field(default_factory=dict)

    def put(self, reading: Reading) -> None:
        """Takes a reading in, in place of an older one."""
        self.all[reading.key] = reading

    def newest(self, entity: str, name: str) -> Reading | None:
        """The newest reading of a class by an entity."""
        return self.all.get((entity, name))

    def near(self, names: Collection[str], centre: Centre, metres: float) -> Iterable[Reading]:
        """The readings of these classes within metres of a centre."""
        return [one for one in self.all.values() if one.name in names and is_near(centre, one, metres)]

    def inside(self, names: Collection[str], area: str) -> Iterable[Reading]:
        """The readings of these classes in a named place."""
        return [one for one in self.all.values() if one.name in names and area in one.areas]

    def everything(self) -> Iterable[Reading]:
        """All readings."""
        return self.all.values()
