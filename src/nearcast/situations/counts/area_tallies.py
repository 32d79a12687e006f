"""How many of what is counted are in a named place, by when they reported."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from nearcast.situations.counts.entity_counts import FOR_EVER, CountedArea, EntityTally, counts_in, tallied
from nearcast.situations.readings import ContextReading


@dataclass(slots=True)
class AreaTally:
    """Who is in a named place: their reports; the moments of those that count, of those that may, and the positions of
    both, ascending.
    """

    reports: dict[str, ContextReading] = field(default_factory=dict)
    counted: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)

    def insert(self, report: ContextReading) -> None:
        """Takes in the report of an entity that is not there."""
        self.reports[report.entity] = report
        insort(self.counted if report.value is True else self.unknown, report.moment)
        insort(self.positions, report.position)

    def remove(self, report: ContextReading) -> None:
        """Drops a report that is there."""
        del self.reports[report.entity]
        moments = self.counted if report.value is True else self.unknown
        del moments[bisect_left(moments, report.moment)]
        del self.positions[bisect_left(self.positions, report.position)]

    def replace(self, old: ContextReading, new: ContextReading) -> None:
        """Takes in the next report of an entity that is there, and says the same of whether it counts."""
        self.reports[new.entity] = new
        moments, positions = self.counted if new.value is True else self.unknown, self.positions
        del moments[bisect_left(moments, old.moment)]
        insort(moments, new.moment)
        del positions[bisect_left(positions, old.position)]
        insort(positions, new.position)

    def tally(self, area: CountedArea, enough: int, now: int, left_out: bool) -> EntityTally:
        """How many there are."""
        # All of them behind the definition: then the moments tell.
        if not self.positions or self.positions[0] > area.after:
            return self._by_moments(area.valid, enough, now, left_out)
        own = (one for one in self.reports.values() if counts_in(one, area, now))
        return tallied(own, area.valid, enough, left_out)

    def _by_moments(self, valid: int | None, enough: int, now: int, left_out: bool) -> EntityTally:
        if valid is None:
            return EntityTally(len(self.counted), len(self.unknown), left_out)
        first, may = (bisect_left(moments, now - valid) for moments in (self.counted, self.unknown))
        counted, unknown = len(self.counted) - first, len(self.unknown) - may
        if enough <= 0:
            return EntityTally(counted, unknown, left_out)
        if counted >= enough:
            oldest = [self.counted[len(self.counted) - enough]]
        else:
            oldest = [*self.counted[first : first + 1], *self.unknown[may : may + 1]]
        return EntityTally(counted, unknown, left_out, min(oldest) + valid + 1 if oldest else FOR_EVER)
