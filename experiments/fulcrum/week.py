"""The week that is replayed, in the figures in which the paper describes its own: who is related to whom, and who was
there at the same time as whom.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from experiments.fulcrum.campus import Setting
from experiments.fulcrum.engine import Floats
from experiments.fulcrum.world import World

TOGETHER_SECONDS = 60.0
"""Two who report within so many seconds of each other are there at the same time."""


@dataclass(frozen=True, slots=True)
class Week:
    """A week's people: `at_brokers` has the relations by broker of the subscriber, then of the buddy.

    `active` users report, `related` reports are of users with relations. `from_both`: relations both of whose users
    report some time; `together`: those that do so at the same time.
    """

    seed: int
    users: int
    active: int
    relations: int
    reports: int
    related: int
    from_both: int
    together: int
    at_brokers: tuple[tuple[int, ...], ...]


def week(setting: Setting) -> Week:
    """The figures of a setting's week at its own rate of reports."""
    world = World(setting, 1.0)
    times = {user: track.times for user, track in world.tracks.items()}
    both = [pair for pair in world.relations if all(len(times[user]) for user in pair)]
    brokers = sorted(set(world.at))
    counted = np.zeros((len(brokers), len(brokers)), int)
    for pair in world.relations:
        counted[tuple(brokers.index(world.at[user]) for user in pair)] += 1
    return Week(
        setting.seed,
        setting.users,
        world.active,
        len(world.relations),
        world.reports,
        sum(map(len, times.values())),
        len(both),
        sum(_meet(*(times[user] for user in pair)) for pair in both),
        tuple(map(tuple, counted.tolist())),
    )


def _meet(one: Floats, other: Floats) -> bool:
    """Whether two ascending series of times, neither empty, come near each other."""
    after = np.searchsorted(other, one)
    nearest = [other[np.clip(after + step, 0, len(other) - 1)] for step in (-1, 0)]
    return bool(np.min([np.abs(near - one) for near in nearest]) <= TOGETHER_SECONDS)
