"""The Wirrabee valley: its map in kilometres, its sectors, villages and roads, and the people in it."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import NamedTuple

from nearcast.importers.event_documents import place

ORIGIN_LON, ORIGIN_LAT = 149.62, -32.84
KILOMETRES_PER_DEGREE = 111.32


class Point(NamedTuple):
    """Kilometres east and north of Glen Ora."""

    east: float
    north: float

    def moved(self, course: float, kilometres: float) -> Point:
        """The point so far away on a course in degrees, 0 north, 90 east."""
        angle = math.radians(course)
        return Point(self.east + kilometres * math.sin(angle), self.north + kilometres * math.cos(angle))

    def towards(self, goal: Point, kilometres: float) -> Point:
        """The point so far on the way to the goal, and no farther than the goal."""
        whole = math.dist(self, goal)
        return goal if whole <= kilometres else self.between(goal, kilometres / whole)

    def between(self, other: Point, share: float) -> Point:
        """The point at this share of the way: 0 here, 1 there."""
        return Point(self.east + (other.east - self.east) * share, self.north + (other.north - self.north) * share)

    def degrees(self) -> dict[str, float]:
        """Longitude and latitude, for an event's data or a client's position."""
        lat = ORIGIN_LAT + self.north / KILOMETRES_PER_DEGREE
        across = KILOMETRES_PER_DEGREE * math.cos(math.radians(ORIGIN_LAT))
        return place(ORIGIN_LON + self.east / across, lat)


SECTORS = {"north": Point(-14, 11), "river": Point(2, 1), "south": Point(2, -13)}
"""Where a sector's crews gather: its fire station."""

ROADS = {"north": "Cullens Gap Road", "river": "Gorge Road", "south": "Myall Road"}

VILLAGES = {
    "Cullens Gap": Point(-12, 8),
    "Glen Ora": Point(0, 0),
    "Wirrabee": Point(14, -2),
    "Myall Flat": Point(4, -12),
    "Stony Creek": Point(-10, -9),
}

SHOWGROUND = Point(16, -1)
"""The refuge at Wirrabee."""

STATIONS = {
    "Cullens Lookout": Point(-17, 13),
    "Glen Ora": Point(1, 1),
    "Wirrabee Airfield": Point(17, -4),
    "Myall Silo": Point(6, -14),
}
"""The weather stations."""

CONTROLLER, DUTY_OFFICER = "controller", "duty officer"


@dataclass(frozen=True, slots=True)
class Person:
    """A receiver: `home` is where it is at first, `bandwidth` (kbit/s) what its link gives on a good day."""

    id: str
    role: str
    task: str
    home: Point
    bandwidth: float
    sector: str = ""
    village: str = ""


def cast(seed: int, crews: int, residents: int) -> tuple[Person, ...]:
    """Everybody: a controller, three sector commanders, a duty officer far away, crews and residents."""
    chance = random.Random(f"cast {seed}")
    return (
        Person(CONTROLLER, "incident controller", "control", VILLAGES["Wirrabee"], 20_000),
        Person(DUTY_OFFICER, "duty officer", "overview", Point(120, -90), 50_000),
        *(Person(f"sector {name}", "sector commander", "command", at, 3400, name) for name, at in SECTORS.items()),
        *(_crew(chance, index) for index in range(crews)),
        *(_resident(chance, index) for index in range(residents)),
    )


def _crew(chance: random.Random, index: int) -> Person:
    """Crews 1 and 2 belong to the north, 3 and 4 to the river, 5 and 6 to the south, and so on."""
    sector = list(SECTORS)[index // 2 % len(SECTORS)]
    home = SECTORS[sector].moved(chance.uniform(0, 360), 0.5)
    return Person(f"crew {index + 1}", "crew leader", "patrol", home, chance.uniform(1400, 2600), sector)


def _resident(chance: random.Random, index: int) -> Person:
    village = list(VILLAGES)[index % len(VILLAGES)]
    home = VILLAGES[village].moved(chance.uniform(0, 360), chance.uniform(0.1, 2.5))
    return Person(f"resident {index + 1}", "resident", "home", home, chance.uniform(900, 3700), village=village)
