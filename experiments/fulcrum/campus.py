"""People on a campus for a week, from a seed: who is whose buddy, at which broker, where they are and when they report.

The week of ActiveCampus that the paper replayed is not public, so this one is made up to its numbers: 643 users, 2,165
relations, 360,067 reports at 1 to 6 a minute while logged in, 149/158/165/171 users at four brokers. Of its relations
1,028 had data from both buddies, for many were not logged in at the same time. So here some do not log in at all that
week, rather those with few buddies, and the others do so on working days, mostly when their circle meets.

Users log in for some spells: they sit in a favourite place, walk to another one or log out. Some have a device that is
always on and stands still, some are always on the way. What is reported wanders a few metres around where one is, as
positions from radio do; that is a movement of its own, so that a higher rate of reports samples the same movement more
finely.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

WEEK = 7 * 86_400.0
"""Seconds."""

SIZE = (1_600.0, 1_000.0)
"""Metres of the campus, east and north."""

EDGES = (149, 158, 165, 171)
"""Users at each broker."""


REPORTS_A_MINUTE = 3.5
"""The mean of 1 to 6."""

DAYS, HOURS = 5, (10 * 3_600.0, 16 * 3_600.0)
"""Working days, and between which seconds of the day people are on the campus."""

LATE_SECONDS = 300.0
"""By which people come earlier or later to a meeting, as a standard deviation."""

WANDER_SECONDS = 60.0
"""After which what is reported lies elsewhere around where one is."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The people; the defaults are the paper's where it says something. Times in seconds, lengths in metres.

    `active`: the share of people who log in at all; `spell`: for how long in the mean; `meetings`: of each circle in
    the week; `together`: the share of spells that are at one of them. These four are such that 1,028 relations have
    data from both at one time.
    """

    edges: tuple[int, ...] = EDGES
    relations: int = 2_165
    reports: int = 360_067
    seconds: float = WEEK
    buildings: int = 40
    circles: int = 30
    active: float = 0.74
    spell: float = 1_800.0
    meetings: int = 2
    together: float = 0.9
    mobile: float = 0.1
    stay: float = 40 * 60.0
    stay_mobile: float = 5 * 60.0
    wander: float = 0.5
    spread: float = 10.0
    seed: int = 1

    @property
    def users(self) -> int:
        """How many people there are."""
        return sum(self.edges)

    def smaller(self, factor: float) -> Setting:
        """The same with a share of the people and their relations and reports."""
        edges = tuple(max(1, round(count * factor)) for count in self.edges)
        sizes = (max(1, round(count * factor)) for count in (self.relations, self.reports))
        relations, reports = sizes
        return Setting(edges, relations, reports, circles=max(2, round(self.circles * factor)), seed=self.seed)


@dataclass(frozen=True, slots=True)
class Way:
    """Where a user is and what it reports: knots of a path that is straight between them, and its spells logged in.

    `begins` and `ends` of spells, and `interval`, the seconds between two reports in each at the rate of the setting.
    """

    times: Floats
    x: Floats
    y: Floats
    begins: Floats
    ends: Floats
    interval: Floats
    mobile: bool

    def sampled(self, rate: float) -> tuple[Floats, Floats, Floats]:
        """Times and places of the reports at so many times the setting's rate."""
        spells = zip(self.begins, self.ends, self.interval / rate, strict=True)
        if not len(self.begins):
            return np.empty(0), np.empty(0), np.empty(0)
        # Counted from the beginning of each spell: a multiple of the rate has all the times of the rate itself.
        steps = (begin + step * np.arange(np.ceil((end - begin) / step)) for begin, end, step in spells)
        times = np.concatenate([np.empty(0), *steps])
        return times, np.interp(times, self.times, self.x), np.interp(times, self.times, self.y)


class Campus:
    """The people of a setting."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        chance = np.random.default_rng([setting.seed, 643])
        self.edge: Integers = chance.permutation(np.repeat(np.arange(len(setting.edges)), setting.edges))
        self._circle: Integers = chance.integers(0, setting.circles, setting.users)
        self.relations = _relations(setting, self._circle, chance)
        self._buildings: Floats = chance.uniform((0, 0), SIZE, (setting.buildings, 2))
        self._haunts: Integers = chance.integers(0, setting.buildings, (setting.circles, 4))
        self._minutes = _minutes(setting, _active(setting, self.relations, chance), chance)
        self._meetings: Floats = _daytime(chance, (setting.circles, setting.meetings))

    @cached_property
    def ways(self) -> list[Way]:
        """The way of each user."""
        return [self._way(user) for user in range(self.setting.users)]

    def _way(self, user: int) -> Way:
        """The spells of a user, one after the other, from a seed of its own."""
        setting = self.setting
        chance = np.random.default_rng([setting.seed, user])
        mobile = bool(chance.random() < setting.mobile)
        if not self._minutes[user]:
            none = np.empty(0)
            return Way(none, none, none, none, none, none, mobile)
        places = self._favourites(user, chance)
        stay = setting.stay_mobile if mobile else setting.stay
        spells = _spells(setting, self._minutes[user] * 60, self._meetings[self._circle[user]], chance)
        knots = [knot for begin, length in spells for knot in _spell(chance, places, begin, length, stay)]
        begins, lengths = np.array(spells).T
        ends, interval = begins + lengths, 60 / chance.uniform(1, 6, len(spells))
        return Way(*_wandering(chance, setting.wander, np.array(knots), begins, ends), begins, ends, interval, mobile)

    def _favourites(self, user: int, chance: np.random.Generator) -> Floats:
        """Where a user likes to be: mostly where its circle is, and somewhere of its own."""
        buildings = [*self._haunts[self._circle[user]], *chance.integers(0, self.setting.buildings, 2)]
        return self._buildings[buildings] + chance.normal(0, self.setting.spread, (len(buildings), 2))


def _relations(setting: Setting, circle: Integers, chance: np.random.Generator) -> list[tuple[int, int]]:
    """Subscriber and buddy of each relation: some have many, and most are of one circle."""
    popular = chance.lognormal(0, 0.7, setting.users)
    found: dict[tuple[int, int], None] = {}
    while len(found) < min(setting.relations, setting.users * (setting.users - 1)):
        one = int(chance.choice(setting.users, p=popular / popular.sum()))
        weight = popular * np.where(circle == circle[one], 1.0, 0.02)
        weight[one] = 0
        other = int(chance.choice(setting.users, p=weight / weight.sum()))
        found[one, other] = None
    return list(found)


def _active(setting: Setting, relations: list[tuple[int, int]], chance: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Who logs in that week: rather those with many buddies."""
    buddies = np.bincount(np.array(relations).ravel(), minlength=setting.users)
    keenness = 2 * np.log1p(buddies) + chance.normal(0, 1, setting.users)
    active = np.zeros(setting.users, np.bool_)
    active[np.argsort(-keenness)[: max(2, round(setting.active * setting.users))]] = True
    return active


def _minutes(setting: Setting, active: npt.NDArray[np.bool_], chance: np.random.Generator) -> Floats:
    """Minutes for which each user is logged in: few are there all week, many hardly ever, some not at all."""
    minutes = chance.lognormal(0, 1.3, setting.users) * active
    # Who would be there longer than there is time leaves the rest to the others.
    for _ in range(20):
        scaled = minutes * (setting.reports / REPORTS_A_MINUTE / minutes.sum())
        minutes = np.minimum(scaled, setting.seconds / 60 * 0.95)
    return np.asarray(minutes)


def _daytime(chance: np.random.Generator, shape: int | tuple[int, int]) -> Floats:
    """Seconds of the week when people are on the campus."""
    return np.asarray(chance.integers(0, DAYS, shape) * 86_400.0 + chance.uniform(*HOURS, shape))


def _spells(
    setting: Setting, seconds: float, meetings: Floats, chance: np.random.Generator
) -> list[tuple[float, float]]:
    """When a user logs in, and for how long: mostly as its circle meets; what would overlap comes one after the other,
    and before the week is over.
    """
    count = max(1, round(seconds / setting.spell))
    lengths = chance.dirichlet(np.full(count, 2.0)) * seconds
    met = chance.choice(meetings, count) + chance.normal(0, LATE_SECONDS, count)
    begins = np.sort(np.where(chance.random(count) < setting.together, met, _daytime(chance, count)))
    for number in range(1, count):
        begins[number] = max(begins[number], begins[number - 1] + lengths[number - 1])
    end = setting.seconds
    for number in reversed(range(count)):
        begins[number] = end = min(begins[number], end - lengths[number])
    return [(float(begin), float(length)) for begin, length in zip(begins, lengths, strict=True)]


def _spell(
    chance: np.random.Generator, places: Floats, begin: float, length: float, stay: float
) -> Iterator[tuple[float, float, float]]:
    """Knots of one spell: a stay, a walk to another place, a stay, to the end."""
    end, now, here = begin + length, begin, places[chance.integers(len(places))]
    yield (now, *here)
    while now < end:
        now = min(now + chance.exponential(stay), end)
        yield (now, *here)
        there = places[chance.integers(len(places))]
        needed = float(np.hypot(*(there - here))) / chance.uniform(1.1, 1.7) + 1.0
        # Who logs out on the way is not seen to arrive.
        here = here + (there - here) * min(1.0, (end - now) / needed)
        now = min(now + needed, end)
        yield (now, *here)


def _wandering(
    chance: np.random.Generator, metres: float, knots: Floats, begins: Floats, ends: Floats
) -> tuple[Floats, Floats, Floats]:
    """The knots, and others between them at which what is reported lies aside of where one is."""
    grid = [np.arange(begin, end + WANDER_SECONDS, WANDER_SECONDS) for begin, end in zip(begins, ends, strict=True)]
    aside = np.concatenate(grid)
    times = np.union1d(aside, knots[:, 0])
    x, y = (
        np.interp(times, knots[:, 0], knots[:, axis]) + np.interp(times, aside, chance.normal(0, metres, len(aside)))
        for axis in (1, 2)
    )
    return times, x, y
