"""Ticks: where something falls due and no event comes, the pipeline says so itself, in the journal (semantics §11).

Between events the clock goes on at the pace of the wall clock, from where they left it. What is due by then is told of
a control event that has that clock; it comes back as any event does, so that deciding the journal again tells the same.
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
from nearcast.model.changes import ClockTick
from nearcast.model.columns import to_table
from nearcast.model.values import moment_at
from nearcast.stages.fold import StateFold
from nearcast.state.lateness import FOREVER, NEVER

log = logging.getLogger("nearcast.pipeline")

LOOK = 0.25
"""Seconds between two looks at what is due."""

PATIENCE = 500_000
"""Microseconds for which what is due waits for events that are there and not decided: they may bring that time."""

SOURCE = "nearcast:pipeline"
"""The source of ticks."""


class PacedClock:
    """The clock of a stream as it goes on between events; times in microseconds, `now` by a clock that nobody sets."""

    def __init__(self) -> None:
        self._clock, self._since = NEVER, 0

    def at(self, clock: int, now: int) -> int:
        """The clock now, events having brought it so far; it never falls. `NEVER` while nothing told a time."""
        if clock > self._paced(now):
            self._clock, self._since = clock, now
        return self._paced(now)

    def _paced(self, now: int) -> int:
        return self._clock if self._clock == NEVER else self._clock + now - self._since


class TickWriter:
    """Looks what is due by the clock as it goes on, and writes a tick where something is.

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
        self._paced = PacedClock()
        self._asked, self._due = -1, FOREVER
        self._written, self._told = 0, NEVER
        self.ticks = 0
        if known.clock != NEVER:
            # While the pipeline was away the clock went on.
            self._paced.at(known.clock + self._away(), self._now())

    def look(self) -> bool:
        """Writes a tick where something is due; whether it did. Not while a batch is being decided."""
        clock, position = self._paced.at(self._known.clock, self._now()), self._known.position
        if clock == NEVER or position < self._written:
            return False
        if self._asked != position or clock >= self._due:
            self._asked, self._due = position, self._known.next_due(clock)
        if clock < self._due or (clock < self._due + PATIENCE and self._journal.end("events") > position):
            return False
        # What a tick did not settle no other will: else one would come at every look.
        if self._due == self._told:
            return False
        self._told = self._due
        self._write(clock)
        return True

    def _write(self, clock: int) -> None:
        told = moment_at(clock)
        # The machine's clock may have been set back; no tick is accepted before its clock.
        accepted = max(told, datetime.fromtimestamp(self._wall(), UTC))
        event = replace(to_event(ClockTick(told), f"tick-{uuid.uuid4()}", SOURCE), accepted=accepted)
        [self._written] = self._journal.append("events", to_table([event]))
        self.ticks += 1
        log.debug("tick position=%d clock=%s", self._written, told.isoformat())

    def _now(self) -> int:
        return int(self._steady() * 1e6)

    def _away(self) -> int:
        """Microseconds since the last event that is decided was accepted."""
        position = self._known.position
        rows = self._journal.read("events", position - 1, 1) if position else None
        accepted = rows.column("accepted")[0].as_py() if rows is not None and len(rows) else None
        return 0 if accepted is None else max(0, int((self._wall() - accepted.timestamp()) * 1e6))
