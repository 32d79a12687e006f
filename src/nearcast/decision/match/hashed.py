"""Numbers by the hash of what they are of: a dictionary without keys, for what can be looked up by its number."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import numpy as np

FEWEST = 16
"""The fewest slots."""


class Hashed:
    """Numbers from 0 on, each with a hash: eight bytes, and four for each of at most three slots.

    A dictionary has sixty and more for each, with its key and its number as objects. Which of those that have a hash
    is meant is said by who asks. A number that was removed may be added again.
    """

    def __init__(self) -> None:
        # A number stands, one added to it, in the first slot from its hash on that was free; 0 is a free one.
        self._slots = array("i", bytes(4 * FEWEST))
        self._hashes = array("q")
        self._count = 0

    def __len__(self) -> int:
        """How many numbers are there."""
        return self._count

    def find(self, hashed: int, meant: Callable[[int], bool]) -> int:
        """The number with a hash that is meant, or −1."""
        slots, hashes = self._slots, self._hashes
        most = len(slots) - 1
        at = hashed & most
        while number := slots[at]:
            if hashes[number - 1] == hashed and meant(number - 1):
                return number - 1
            at = at + 1 & most
        return -1

    def add(self, number: int, hashed: int) -> None:
        """Adds a number: one that was removed, or the next one."""
        self._count += 1
        if 3 * self._count > 2 * len(self._slots):
            self._grow()
        if number == len(self._hashes):
            self._hashes.append(hashed)
        else:
            self._hashes[number] = hashed
        slots = self._slots
        most = len(slots) - 1
        at = hashed & most
        while slots[at]:
            at = at + 1 & most
        slots[at] = number + 1

    def remove(self, number: int) -> None:
        """Removes a number."""
        self._count -= 1
        slots, hashes = self._slots, self._hashes
        most = len(slots) - 1
        at = hashes[number] & most
        while slots[at] != number + 1:
            at = at + 1 & most
        # What stands behind moves up, unless it would come before the place that its hash says.
        free = at
        while other := slots[at := at + 1 & most]:
            if (at - hashes[other - 1] & most) >= (at - free & most):
                slots[free], free = other, at
        slots[free] = 0

    def _grow(self) -> None:
        """Twice as many slots, filled all at once: one by one it would be a pause of a second for a few million."""
        old, hashes = np.array(self._slots), np.array(self._hashes)
        slots = np.zeros(2 * len(old), np.int32)
        left = old[old > 0]
        at = hashes[left - 1] & len(slots) - 1
        while len(left):
            free = slots[at] == 0
            # Of several for one slot the last stays, and the others go on.
            slots[at[free]] = left[free]
            on = slots[at] != left
            left, at = left[on], at[on] + 1 & len(slots) - 1
        self._slots = array("i", slots.tobytes())
