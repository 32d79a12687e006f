"""Where nodes go and what their sensors read: random waypoint, and values that wander between 0 and 100."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from experiments.foraging.setting import CLASSES, HIGHEST, OWN_SENSORS, Setting

Floats = npt.NDArray[np.float64]

KEEPING = 0.9
"""Of values with inertia: how much of a difference goes on into the next."""


def places(setting: Setting, seed: int) -> Floats:
    """Where each node is at each time: (time, node, x and y).

    Random waypoint: a node goes straight to a random place at a speed of up to `speed`, waits up to `pause`, and goes
    on. All start on their way, at random places.
    """
    source = np.random.default_rng([seed, 1])
    count, side = setting.nodes, setting.side
    here, there = source.uniform(0, side, (2, count, 2))
    speed, waiting = source.uniform(0, setting.speed, count), np.zeros(count)
    walked = np.empty((setting.duration, count, 2))
    for moment in range(setting.duration):
        walked[moment] = here
        way = there - here
        far = np.hypot(way[:, 0], way[:, 1])
        moving, arriving = waiting <= 0, (waiting <= 0) & (far <= speed)
        # As a share of the way that is left; who arrives goes all of it.
        step = np.where(moving & ~arriving, speed / np.maximum(far, 1e-12), arriving)
        here = here + way * step[:, None]
        # Random numbers are drawn for all, used or not: so a walk does not depend on that of another.
        pauses, speeds, targets = (
            source.uniform(0, setting.pause, count),
            source.uniform(0, setting.speed, count),
            source.uniform(0, side, (count, 2)),
        )
        waiting = np.where(arriving, pauses, waiting - 1)
        speed = np.where(arriving, speeds, speed)
        there = np.where(arriving[:, None], targets, there)
    return walked


def readings(setting: Setting, seed: int) -> Floats:
    """What each node's sensors read: (time, node, class); NaN where it has no such sensor.

    They depend on the seed alone, so all runs of an experiment see the same, as in the paper.
    """
    source = np.random.default_rng([seed, 2])
    count = setting.requestors + setting.providers
    shape = (setting.duration, count, len(CLASSES))
    # For every sensor a node might have: so that which ones it has does not change what the others read.
    start = source.uniform(0, HIGHEST, shape[1:])
    if setting.values == "noise":
        values = source.uniform(0, HIGHEST, shape)
    else:
        steps = source.normal(0, 1, shape)
        values = _folded(start + np.cumsum(_going_on(steps) if setting.values == "inertia" else steps, axis=0))
    every = np.full((setting.duration, setting.nodes, len(CLASSES)), np.nan)
    for node, names in enumerate(sensors(setting)):
        for which in (CLASSES.index(name) for name in names):
            every[:, node, which] = values[:, node, which]
    return every


def _going_on(steps: Floats) -> Floats:
    """Differences of the same spread, each mostly that before it."""
    kept = steps.copy()
    for moment in range(1, len(steps)):
        kept[moment] = KEEPING * kept[moment - 1] + np.sqrt(1 - KEEPING**2) * steps[moment]
    return kept


def _folded(values: Floats) -> Floats:
    """Values that turn back where they would leave the range: spread evenly over it at any time."""
    return HIGHEST - np.abs(np.mod(values, 2 * HIGHEST) - HIGHEST)


def sensors(setting: Setting) -> list[tuple[str, ...]]:
    """The classes that each node measures: providers one each, in turn."""
    own = OWN_SENSORS[setting.part]
    provided = [(CLASSES[number % len(CLASSES)],) for number in range(setting.providers)]
    others = setting.nodes - setting.requestors - setting.providers
    return [own] * setting.requestors + provided + [()] * others
