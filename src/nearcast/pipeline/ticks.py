"""Ticks: where something falls due and no event comes, the pipeline says so itself, in the journal (semantics §11).

Between events clocks go on at the pace of the wall clock, from where they left them; those ahead of it, as after
a machine's clock was set right, a hundredth slower, as times of acceptance do: else they would leave these behind. What
is due by then is told of a control event that has those clocks; it comes back as any event does, so that deciding the
journal again tells the same.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from nearcast.journal.seam import Journal
from nearcast.language.control_events import to_event
from nearcast.model.columns import to_table
from nearcast.model.values import moment_at
from nearcast.runtime.clock_leaps import SLOWED
from nearcast.stages.fold import StateFold
from nearcast.state.lateness import FOREVER, NEVER
from nearcast.state.stream_clocks import StreamClocks

log = logging.getLogger("nearcast.pipeline")

LOOK = 0.25
"""Seconds between two looks at what is due."""

PATIENCE = 500_000
"""Microseconds for which what is due waits for events that are there and not decided: they may bring that time."""

APART = 750_000
"""Microseconds between two ticks at least: with the time between two looks, what is due is told within a second."""

SOURCE = "nearcast:pipeline"
"""The source of ticks."""


class PacedClocks:
    """The clocks of a stream as they go on between events; times in microseconds, `now` by a clock that nobody sets."""

    def __init__(self) -> None:
        self._values: dict[str, int] = {}
        self._looked = 0

    def at(self, clocks: StreamClocks, now: int, wall: int) -> StreamClocks:
        """The clocks now, when the time of day is `wall`, events having brought them so far; none falls, and none goes
        that nothing told a time.
        """
        passed, self._looked = now - self._looked, now
        known = {name: value for name, value in clocks.by_name.items() if value != NEVER}
        # Those of channels that have no clock of their own any more are forgotten.
        before = {name: value for name, value in self._values.items() if name in known}
        self._values = known | {name: max(known[name], _gone_on(value, passed, wall)) for name, value in before.items()}
        return clocks.with_values(self._values)


def _gone_on(clock: int, passed: int, wall: int) -> int:
    """A clock after so many microseconds: a hundredth slower where it is ahead of the time of day."""
    return max(clock + int(SLOWED * passed), min(clock + passed, wall))


class TickWriter:
    """Looks what is due by the clocks as they go on, and writes a tick where something is.

    `steady` and `wall` give seconds: a clock that nobody sets, and the time of day. `ticks` counts what was written.
    """

    def __init__(
        self,
        journal: Journal,
        known: StateFold,
        steady: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._journal, self._known, self._steady, self._wall = journal, known, steady, wall
        self._paced = PacedClocks()
        # When something is due, and what a tick was written for last, by the clock that nobody sets.
        self._asked, self._due, self._told = -1, FOREVER, NEVER
        self._written, self._last = 0, NEVER
        self.ticks = 0
        # While the pipeline was away the clocks went on.
        self._paced_at(known.clocks.later(self._away() if known.position else 0))

    def look(self) -> bool:
        """Writes a tick where something is due; whether it did. Not while a batch is being decided."""
        now, position = self._now(), self._known.position
        if position < self._written or now < self._last + APART:
            return False
        clocks = self._paced_at(self._known.clocks)
        if self._asked != position or now >= self._due:
            wait = self._known.next_due(clocks)
            self._asked, self._due = position, FOREVER if wait == FOREVER else now + wait
        if now < self._due or (now < self._due + PATIENCE and self._journal.end("events") > position):
            return False
        # What a tick did not settle no other will: else one would come at every look.
        if self._due == self._told:
            return False
        self._told, self._last = self._due, now
        self._write(clocks)
        return True

    def behind(self) -> dict[str, float]:
        """How many seconds each clock is behind the time of day, by the name of its channel."""
        clocks = self._paced_at(self._known.clocks).by_name
        return {name: self._wall() - value / 1e6 for name, value in clocks.items() if value != NEVER}

    def _paced_at(self, clocks: StreamClocks) -> StreamClocks:
        return self._paced.at(clocks, self._now(), int(self._wall() * 1e6))

    def _write(self, clocks: StreamClocks) -> None:
        # The machine's clock may have been set back; no tick is accepted before its clocks.
        accepted = max([datetime.fromtimestamp(self._wall(), UTC), moment_at(clocks.greatest)])
        event = replace(to_event(clocks.tick(), f"tick-{uuid.uuid4()}", SOURCE), accepted=accepted)
        [self._written] = self._journal.append("events", to_table([event]))
        self.ticks += 1
        log.debug("tick position=%d clocks=%s", self._written, moment_at(clocks.greatest).isoformat())

    def _now(self) -> int:
        return int(self._steady() * 1e6)

    def _away(self) -> int:
        """Microseconds since the last event that is decided was accepted."""
        position = self._known.position
        rows = self._journal.read("events", position - 1, 1) if position else None
        accepted = rows.column("accepted")[0].as_py() if rows is not None and len(rows) else None
        return 0 if accepted is None else max(0, int((self._wall() - accepted.timestamp()) * 1e6))
