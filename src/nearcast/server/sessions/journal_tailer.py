"""Follows the journal for the server: events for what they change and for their payloads, then what was decided.

One thread reads both logs, events always first: when a delivery is handed over, every control event before it has been.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from nearcast.delivery.queue import RoleLevels
from nearcast.errors import JournalError
from nearcast.journal.seam import LOOK_SECONDS, WAIT, Journal
from nearcast.model.columns import control_events
from nearcast.model.event import Event
from nearcast.model.sequence import sequence
from nearcast.runtime.error_log import RateLimitedErrorLog
from nearcast.server.sessions.payloads import UNMADE, PayloadCache, SendableEvent

log = logging.getLogger(__name__)

EVENTS = 2_000
"""Positions of each log that are read at once: what is handed over must not hold up the event loop for long."""
BYTES = 32 << 20
"""And so many bytes of events, or of deliveries, about: two thousand of the largest would be two gigabytes."""
DELIVERIES = 1_000
"""Deliveries that are handed over together: of one position there may be any number, each with an event of its own."""
LOGS = ("events", "deliveries")
RETRY_SECONDS = 1.0
READING = "reading"


@dataclass(frozen=True, slots=True)
class DecidedDelivery:
    """One row of the log of deliveries, joined with its event; `event` is None if the journal has it no more."""

    sequence: int
    client: str
    subscription: str
    level: int
    by_role: RoleLevels | None
    others: tuple[tuple[str, int], ...]
    event: SendableEvent | None


@dataclass(frozen=True, slots=True)
class TailedRows:
    """What was read at once: control events, then deliveries; and how far both logs are read now.

    `events`: all that was read of their log, where that was asked for.
    """

    controls: list[Event]
    decided: list[DecidedDelivery]
    events_through: int
    deliveries_through: int
    events: Sequence[pa.Table] = ()


class JournalTailer:
    """Reads on from two positions; `take` gets every `TailedRows`, in the reader's thread, and may hold it back."""

    def __init__(
        self,
        journal: Journal,
        payloads: PayloadCache,
        take: Callable[[TailedRows], None],
        error_log: RateLimitedErrorLog | None = None,
    ) -> None:
        self.journal, self.payloads, self.take = journal, payloads, take
        self.error_log = error_log or RateLimitedErrorLog("journal")
        self.events, self.deliveries = 0, 0
        self.failing = False
        self.prompt = False
        """Whether what this process wrote is read at once, and events are handed over whole: somebody decides them."""
        self._written = threading.Event()
        self._rest: pa.Table | None = None
        self._rest_through = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nearcast-reader", daemon=True)

    def start(self, events: int, deliveries: int) -> None:
        """Begins to follow after these positions."""
        self.events, self.deliveries = events, deliveries
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; it may be called from the thread's own `take`."""
        self._stopped.set()
        self.journal.wake()

    def join(self, seconds: float) -> None:
        """Waits for the thread to end."""
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                news = self.read()
                if news is None:
                    self._wait()
            except Exception as error:
                # Whatever it was: without this thread the server would deliver nothing and look healthy.
                self.failing = True
                self.error_log.failed(READING, error)
                if not isinstance(error, JournalError):
                    log.exception("journal read failed")
                self._stopped.wait(RETRY_SECONDS)
                continue
            self.failing = False
            self.error_log.works(READING)
            if news and not self._stopped.is_set():
                self.take(news)
            # Nobody waits for what only happened: it may gather, whatever the rate at which it comes.
            if news and not (news.controls or news.decided or self.prompt):
                self._stopped.wait(WAIT)

    def note_written(self) -> None:
        """Hears, from any thread, that this process wrote events."""
        self._written.set()

    def _wait(self) -> None:
        """Returns when there may be news, or it is to stop; while it is prompt, perhaps after some time, too."""
        after, until = {"events": self.events, "deliveries": self.deliveries}, time.monotonic() + LOOK_SECONDS
        if not self.prompt or self.journal.wakes_own:
            while not self._stopped.is_set() and not self.journal.wait(after, LOOK_SECONDS):
                pass
            return
        while not self._written.wait(WAIT) and time.monotonic() < until and not self.journal.wait(after, 0.0):
            pass
        self._written.clear()

    def read(self) -> TailedRows | None:
        """What came since the last time, or a part of it; None if nothing did.

        The end of the deliveries is looked up first: all events that it was decided from are in the journal by then.
        """
        if self._rest is not None:
            return TailedRows([], self._next_piece(self._rest, self._rest_through), self.events, self.deliveries)
        decided_end = self.journal.end("deliveries")
        # Mostly nothing came, and a look costs less than finding out what would fit.
        if decided_end <= self.deliveries and self.journal.end("events") <= self.events:
            return None
        events_end = self.journal.end_within_bytes("events", self.events, EVENTS, BYTES)
        # For each delivery its event is read too.
        fitting = (self.journal.end_within_bytes(log, self.deliveries, EVENTS, BYTES) for log in LOGS)
        deliveries_end = min(decided_end, events_end, *fitting)
        if events_end <= self.events and deliveries_end <= self.deliveries:
            return None
        controls, events = self._read_events(events_end)
        decided: list[DecidedDelivery] = []
        if deliveries_end > self.deliveries:
            rows = self.journal.read("deliveries", self.deliveries, deliveries_end - self.deliveries)
            decided = self._next_piece(rows, deliveries_end)
        # Only now, when nothing can fail any more: what was read of one log comes again if the other cannot be read.
        self.events = max(self.events, events_end)
        return TailedRows(controls, decided, self.events, self.deliveries, events)

    def _read_events(self, end: int) -> tuple[list[Event], list[pa.Table]]:
        """The control events up to a position, and all events if they are asked for."""
        if end <= self.events:
            return [], []
        # Many as they lie there, for one table of all blocks would be a copy; few together, for then it costs more to
        # look at each.
        if end - self.events < UNMADE:
            tables: Iterable[pa.Table] = [self.journal.read("events", self.events, end - self.events)]
        else:
            tables = self.journal.blocks("events", self.events, end)
        controls, events = list[Event](), list[pa.Table]()
        for rows in tables:
            self.payloads.keep(rows)
            controls += control_events(rows)
            if self.prompt:
                events.append(rows)
        return controls, events

    def _next_piece(self, rows: pa.Table, through: int) -> list[DecidedDelivery]:
        """The first of these deliveries; with the last of them the log is read through a position."""
        found = joined(rows.slice(0, DELIVERIES), self.payloads)
        self._rest, self._rest_through = (rows.slice(DELIVERIES), through) if len(rows) > DELIVERIES else (None, 0)
        if self._rest is None:
            self.deliveries = max(self.deliveries, through)
        return found


def joined(deliveries: pa.Table, payloads: PayloadCache) -> list[DecidedDelivery]:
    """Rows of the log of deliveries with their events; it may read the journal."""
    columns: dict[str, list[Any]] = {name: deliveries.column(name).to_pylist() for name in deliveries.column_names}
    sequences = [sequence(*key) for key in zip(columns["position"], columns["part"], strict=True)]
    events = payloads.load(sequences)
    return [
        DecidedDelivery(one, client, subscription, level, _by_role(by_role), _others(others), events.get(one))
        for one, client, subscription, level, by_role, others in zip(
            sequences,
            *(columns[name] for name in ("client", "subscription", "level", "by_role", "others")),
            strict=True,
        )
    ]


def _by_role(rows: list[dict[str, str | int]] | None) -> RoleLevels | None:
    if rows is None:
        return None
    return {(str(row["role"] or ""), str(row["task"] or "")): int(row["level"]) for row in rows}


def _others(rows: list[dict[str, Any]] | None) -> tuple[tuple[str, int], ...]:
    return tuple((row["subscription"], row["level"]) for row in rows or ())
