"""What happens in the valley, minute by minute: wind, fires and their alert levels, crews, residents.

A simple model with the features that matter to receivers: fires run with the wind, faster than linearly; crews slow
them; alert levels follow from how soon a fire reaches a village, and step by one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nearcast.demo.bushfire.valley import SECTORS, SHOWGROUND, VILLAGES, Person, Point

MINUTES = 240
CHANGE = 130
"""The minute of the southerly change: the wind turns from west-north-west to south-south-west."""

ALERT_LEVELS = ("Not Applicable", "Advice", "Watch and Act", "Emergency Warning")
EMERGENCY = 3

CREW_SPEED, ATTACK_SPEED, CAR_SPEED = 0.9, 0.3, 0.8
"""Kilometres a minute."""


@dataclass(frozen=True, slots=True)
class Wind:
    """Wind in km/h, `towards` in degrees, and what goes with it: degrees Celsius, relative humidity in percent."""

    speed: float
    gust: float
    towards: float
    temperature: float
    humidity: float


@dataclass(frozen=True, slots=True)
class Fire:
    """A fire: `head` is where it runs, `size` hectares, `control` the share that is contained, `rank` the alert level.

    `speed` is the head's, in kilometres a minute; `since` the minute of the last change of rank.
    """

    name: str
    sector: str
    category: str
    lit: int
    head: Point
    size: float = 0.5
    control: float = 0.0
    rank: int = 1
    since: int = 0
    speed: float = 0.0

    @property
    def status(self) -> str:
        """In the words of the fire service."""
        if self.control >= 0.85:
            return "under control"
        return "being controlled" if self.control >= 0.5 else "out of control"


@dataclass(frozen=True, slots=True)
class Actor:
    """A crew or a resident: where it is, what its task is, which fire it is about, until when it stays away."""

    person: Person
    place: Point
    task: str
    fire: str = ""
    until: int = 0


@dataclass(frozen=True, slots=True)
class Minute:
    """The state of the valley at a minute of the afternoon."""

    minute: int
    wind: Wind
    fires: tuple[Fire, ...]
    crews: tuple[Actor, ...]
    residents: tuple[Actor, ...]


def afternoon(seed: int, people: Sequence[Person]) -> tuple[Minute, ...]:
    """The afternoon's 241 minutes, from 0 to `MINUTES`."""
    return tuple(_minutes(random.Random(f"afternoon {seed}"), people))


def _minutes(chance: random.Random, people: Sequence[Person]) -> Iterator[Minute]:
    fires = _ignitions(chance)
    crews = [Actor(person, person.home, person.task) for person in people if person.role == "crew leader"]
    residents = [Actor(person, person.home, person.task) for person in people if person.role == "resident"]
    for minute in range(MINUTES + 1):
        wind = _wind(minute, chance)
        # Fires first: crews and residents see the minute's fires, fires feel where the crews were a minute ago.
        fires = [_burnt(fire, minute, wind, crews) for fire in fires]
        burning = [fire for fire in fires if fire.lit <= minute]
        crews = [_crew_moved(crew, minute, burning, wind) for crew in crews]
        residents = [_resident_moved(resident, minute, burning, chance) for resident in residents]
        yield Minute(minute, wind, tuple(burning), tuple(crews), tuple(residents))


def _ignitions(chance: random.Random) -> list[Fire]:
    """Five fires: three that matter, two that do not come to much."""
    planned = (
        ("Cullens Ridge", "north", "bush fire", 0, Point(-22, 11.5)),
        ("Ora Gorge", "river", "bush fire", 55, Point(-10, 3.5)),
        ("Paddock Road", "south", "grass fire", 85, Point(-4.5, -21)),
        ("Burnt Hut Trail", "north", "bush fire", 100, Point(4, 16)),
        ("Powerline Track", "river", "grass fire", 165, Point(8, 4)),
    )
    return [
        # The one that is lit at 0 burns from the beginning, whatever the seed.
        Fire(name, sector, category, lit and lit + chance.randint(-4, 4), at.moved(chance.uniform(0, 360), 0.5))
        for name, sector, category, lit, at in planned
    ]


def _wind(minute: int, chance: random.Random) -> Wind:
    """A westerly that grows, the change with its gusts, then an evening that calms down."""
    before = minute < CHANGE
    speed = 26 + 24 * minute / CHANGE if before else max(10.0, 52 - 0.5 * (minute - CHANGE))
    speed += chance.gauss(0, 1.5)
    gust = speed * (1.7 if 0 <= minute - CHANGE < 25 else 1.35) + abs(chance.gauss(0, 2))
    towards = (112 if before else 20) + chance.gauss(0, 3)
    temperature = 38 + 4 * math.sin(math.pi * minute / CHANGE) if before else max(22.0, 36 - (minute - CHANGE) * 0.2)
    humidity = max(8.0, 18 - minute / 15) if before else min(70.0, 15 + (minute - CHANGE) * 0.5)
    return Wind(speed, gust, towards % 360, temperature, humidity)


def _burnt(fire: Fire, minute: int, wind: Wind, crews: Sequence[Actor]) -> Fire:
    """The fire a minute later."""
    if minute < fire.lit:
        return fire
    attackers = sum(crew.fire == fire.name and math.dist(crew.place, fire.head) < 3 for crew in crews)
    gained = 0.0007 * attackers + 0.0022 * max(0.0, (34 - wind.speed) / 10) * min(attackers + 1, 3)
    control = min(0.97, max(0.0, fire.control + gained - 0.0008 * max(0.0, (wind.speed - 40) / 10)))
    run = 0.085 * (wind.speed / 40) ** 1.5 * (1.6 if fire.category == "grass fire" else 1.0) * (1 - control)
    village, away = _threatened(fire.head, wind.towards)
    # A village is defended: near it the head hardly advances, while the flanks go on growing.
    speed = run * (0.1 if village and away < 1.5 else 1.0)
    size = fire.size + 2 * run * math.sqrt(fire.size) * 10
    moved = replace(fire, head=fire.head.moved(wind.towards, speed), size=size, control=control, speed=run)
    return _warned(moved, minute, away if village else math.inf)


def _threatened(head: Point, towards: float) -> tuple[str, float]:
    """The nearest village within 50 degrees of the fire's way and how many kilometres away; "" if there is none."""
    ahead = [(math.dist(head, at), name) for name, at in VILLAGES.items() if _off_course(head, at, towards) <= 50]
    return (min(ahead)[1], min(ahead)[0]) if ahead else ("", math.inf)


def _off_course(head: Point, at: Point, towards: float) -> float:
    bearing = math.degrees(math.atan2(at.east - head.east, at.north - head.north))
    return abs((bearing - towards + 180) % 360 - 180)


def _warned(fire: Fire, minute: int, away: float) -> Fire:
    """The fire with its alert level: by the minutes until it reaches a village, step by step, slower down than up."""
    arrival = away / max(fire.speed, 0.001)
    wanted = EMERGENCY if arrival <= 100 else 2 if arrival <= 170 else 1
    if fire.status == "under control" or fire.size < 10:
        wanted = 1
    elif fire.status == "being controlled":
        wanted = min(wanted, 2)
    kept = minute - max(fire.since, fire.lit)
    if wanted > fire.rank and kept >= 6:
        return replace(fire, rank=fire.rank + 1, since=minute)
    if wanted < fire.rank and kept >= 20:
        return replace(fire, rank=fire.rank - 1, since=minute)
    return fire


def _crew_moved(crew: Actor, minute: int, fires: Sequence[Fire], wind: Wind) -> Actor:
    """A crew patrols its sector, attacks a fire at its flank, withdraws when the wind turns a dangerous one."""
    fire = _assigned(crew, fires)
    if fire and fire.rank >= 2 and minute == CHANGE and math.dist(crew.place, fire.head) < 5:
        crew = replace(crew, task="withdraw", fire="", until=minute + 22)
    if minute < crew.until:
        return replace(crew, place=crew.place.towards(SECTORS[crew.person.sector], CREW_SPEED))
    if fire is None:
        goal = SECTORS[crew.person.sector].moved((minute // 12 * 75 + len(crew.person.id)) % 360, 3)
        return replace(crew, task="patrol", fire="", place=crew.place.towards(goal, CREW_SPEED / 2))
    side = 90 if int(crew.person.id.rsplit(" ", 1)[-1]) % 2 else -90
    flank = fire.head.moved(wind.towards + side, 0.7)
    speed = CREW_SPEED if math.dist(crew.place, flank) > 2 else ATTACK_SPEED
    return replace(crew, task="attack", fire=fire.name, place=crew.place.towards(flank, speed))


def _assigned(crew: Actor, fires: Sequence[Fire]) -> Fire | None:
    """The worst fire of the crew's sector that is worth an attack and not yet under control."""
    own = [fire for fire in fires if fire.sector == crew.person.sector and fire.size > 4 and fire.control < 0.9]
    return max(own, key=lambda fire: (fire.rank, fire.size), default=None)


def _resident_moved(resident: Actor, minute: int, fires: Sequence[Fire], chance: random.Random) -> Actor:
    """A resident leaves some minutes after an Emergency Warning within 9 km, and is safe at the showground."""
    # Drawn whether needed or not, so that one resident's choice does not shift the others' chance.
    delay = chance.randint(1, 9)
    if resident.task == "home":
        near = any(fire.rank == EMERGENCY and math.dist(fire.head, resident.place) < 9 for fire in fires)
        if near and not resident.until:
            return replace(resident, until=minute + delay)
        return replace(resident, task="leaving") if resident.until and minute >= resident.until else resident
    at = resident.place.towards(SHOWGROUND, CAR_SPEED)
    return replace(resident, place=at, task="safe" if at == SHOWGROUND else "leaving")
