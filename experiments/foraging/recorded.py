"""Real readings on simulated nodes: a day of three boards with gas, humidity and temperature sensors, no fire in it.

The file is `raw_data_xlarge.json.zip` of garystafford/aws-iot-analytics-demo: a JSON array of {device, ts, data}.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from experiments.foraging.setting import CLASSES, HIGHEST, Setting
from experiments.foraging.world import Floats, sensors
from nearcast.errors import Fault, Mark

FIELDS = ("temp", "humidity", "co", "lpg", "smoke")
"""What stands for each class; temperature in °C, humidity in %, gases and smoke in ppm."""

ALARMING_SMOKE = 0.05
"""In ppm: that day it was 0.04 at most."""

FIRE = (HIGHEST, 0.0, HIGHEST, HIGHEST, HIGHEST)
"""What sensors read in a fire that is planted."""


def recorded(setting: Setting, seed: int, source: str, planted: bool = False) -> Floats:
    """What each node's sensors read: a stretch of one board's day, from anywhere in it; (time, node, class).

    `planted`: for the middle fifth of the time everything burns.
    """
    chance = np.random.default_rng([seed, 3])
    boards = _boards(source)
    every = np.full((setting.duration, setting.nodes, len(CLASSES)), np.nan)
    for node, names in enumerate(sensors(setting)):
        # Three boards for forty nodes: each gets a stretch of its own of one board's day.
        board = boards[int(chance.integers(len(boards)))]
        start = int(chance.integers(len(board) - setting.duration))
        for which in (CLASSES.index(name) for name in names):
            every[:, node, which] = board[start : start + setting.duration, which]
    if planted:
        burning = slice(2 * setting.duration // 5, 3 * setting.duration // 5)
        every[burning] = np.where(np.isnan(every[burning]), np.nan, FIRE)
    return every


@cache
def _boards(source: str) -> list[Floats]:
    """Each board's readings in order, (reading, class). Raises `Fault` for a file that is none of this kind."""
    try:
        with zipfile.ZipFile(Path(source)) as archive:
            messages = orjson.loads(archive.read(archive.namelist()[0]))
        ordered = sorted(messages, key=lambda one: (one["device"], one["ts"]))
        boards = [_values(group) for _, group in groupby(ordered, key=lambda one: one["device"])]
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, IndexError, TypeError) as error:
        raise Fault("a zip of one JSON array of readings", repr(error), Mark(source)) from None
    return boards


def _values(messages: Iterable[Any]) -> Floats:
    values = np.array([[float(one["data"][field]) for field in FIELDS] for one in messages])
    # Smoke is asked for as yes or no: above the middle of the scale is yes.
    values[:, -1] = np.where(values[:, -1] > ALARMING_SMOKE, HIGHEST, 0.0)
    return values
