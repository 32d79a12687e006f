"""Arrays as columns have them: their types, runs of numbers behind each other, and the distinct ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

Truths = npt.NDArray[np.int8]
"""1 TRUE, 0 FALSE, −1 UNKNOWN."""

CLOSE = 8
"""Numbers below so many times their count are told apart by looking each up, not by sorting."""


FEWEST = 32
"""Numbers up to which they are told apart in Python sooner than by NumPy's calls, each of which costs by itself."""


def runs(first: npt.NDArray[Any], count: npt.NDArray[Any]) -> Integers:
    """The numbers from each first on, so many each."""
    return np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)


def distinct(numbers: Integers) -> Integers:
    """Each number once, ascending."""
    # Not by NumPy's `unique`: it hashes first, which for a million different ones takes several times as long.
    numbers = np.sort(numbers)
    return numbers[np.append(True, numbers[1:] != numbers[:-1])[: len(numbers)]]


def placed(numbers: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Integers]:
    """The distinct ones of numbers that are not negative, ascending, and of each its place among them."""
    if len(numbers) <= FEWEST:
        own = numbers.tolist()
        places = {number: place for place, number in enumerate(sorted(set(own)))}
        return np.array([*places], numbers.dtype), np.array([places[number] for number in own], np.int64)
    size = int(numbers.max(initial=0)) + 1
    if size > CLOSE * len(numbers):
        return np.unique(numbers, return_inverse=True)
    there = np.zeros(size, np.bool_)
    there[numbers] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[numbers]
