"""By how much a time of day leapt ahead: what was stamped before is no older for it.

A machine's clock is set forward where it was wrong, or is wrong from then on. Held against a clock that nobody sets,
that is seen, so the age of a stamp can be told by the time that passed since.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

LEAP = 1.0
"""Seconds by which a clock has to be set to count as set: less is how clocks are corrected that run well."""

SLOWED = 0.99
"""How fast times go on that are ahead of the machine's clock, as after it was set back: a minute lasts one to within
a hundredth, and after a hundred times as long as they are ahead they are right."""

LEAPS = 100
"""Leaps that are remembered, the last ones."""


class ClockLeaps:
    """The leaps of a time of day, both clocks in seconds, as of its last look: then it was `last`, at `looked` by the
    steady clock. Who looks from several threads holds a lock.
    """

    def __init__(self, time_of_day: float, steady: float) -> None:
        self.last, self.looked = time_of_day, steady
        # Each with the time of day before it, and by how much that was set.
        self._leaps: deque[tuple[float, float]] = deque(maxlen=LEAPS)

    def __bool__(self) -> bool:
        return bool(self._leaps)

    def look(self, time_of_day: float, steady: float) -> None:
        """Takes note of what both clocks say now. What it was set back by is taken from the leaps before."""
        expected = self.last + steady - self.looked
        self.last, self.looked = time_of_day, steady
        set_by = time_of_day - expected
        if set_by >= LEAP:
            self._leaps.append((expected, set_by))
        elif set_by <= -LEAP:
            self._take_back(-set_by)

    def _take_back(self, seconds: float) -> None:
        while self._leaps and seconds > 0:
            before, leap = self._leaps.pop()
            if leap > seconds:
                self._leaps.append((before, leap - seconds))
            seconds -= leap

    def moment_before(self, ago: float) -> float:
        """The time of day that was stamped so many seconds before the last look."""
        moment = self.last - ago
        for before, leap in reversed(self._leaps):
            if moment >= before + leap:
                break
            moment -= leap
        return moment

    def ages(self, moments: Sequence[float]) -> list[float]:
        """How many seconds before the last look times of day were stamped; 0 for what is yet to come.

        What a leap passed over was stamped by no clock that leapt: it is as old as the leap.
        """
        # Mostly the clock was never set.
        brought_up = map(self._brought_up, moments) if self._leaps else moments
        return [max(0.0, self.last - moment) for moment in brought_up]

    def _brought_up(self, moment: float) -> float:
        """What a moment would be, had the clock been right already."""
        for before, leap in self._leaps:
            if moment < before + leap:
                moment = before + leap + min(0.0, moment - before)
        return moment
