"""The early path of a server: it decides events as they are read, for its own clients, before the pipeline has.

What the reader reads is decided in the reader's thread; what comes of it is queued in the event loop.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nearcast.errors import JournalError
from nearcast.journal.seam import Journal
from nearcast.journal.snapshot_log import REGISTRY, base_table
from nearcast.language.definitions.registry_rows import apply_event, control_events_of, registry_of
from nearcast.model.changes import Change, SettingsChange
from nearcast.model.subscription import Settings
from nearcast.server.metrics import ServerMetrics
from nearcast.server.sessions.early_deliveries import DecisionDifference, EarlyDeliveries
from nearcast.server.sessions.journal_tailer import DecidedDelivery, TailedRows, joined
from nearcast.server.sessions.manager import SessionManager
from nearcast.server.sessions.payloads import PayloadCache
from nearcast.stages.early import EarlyDecider, decentralised
from nearcast.state.registry import Registry

log = logging.getLogger(__name__)

STRETCH = 20_000
"""Positions that are read at once to know what is defined."""
AGAIN_SECONDS = 30.0
"""After which deciding early is begun anew that failed."""


@dataclass(frozen=True, slots=True)
class EarlyBatch:
    """What was decided early of what was read at once. `left_through`: up to there it is left to the pipeline."""

    positions: Sequence[int]
    rows: Sequence[DecidedDelivery]
    unsure: Sequence[tuple[int, str]]
    left_through: int


NOTHING = EarlyBatch((), (), (), 0)


class EarlyPath:
    """Decides early while some channel's delivery is decentralised; else it does nothing.

    `limit` bounds what is decided and not confirmed (`EarlyDeliveries`).
    """

    def __init__(
        self, journal: Journal, payloads: PayloadCache, manager: SessionManager, metrics: ServerMetrics, limit: int
    ) -> None:
        self._journal, self._payloads, self._manager, self._metrics = journal, payloads, manager, metrics
        self._deliveries = EarlyDeliveries(limit, self._serves)
        self._decider: EarlyDecider | None = None
        self._settings = Settings()
        self._broken_until = 0.0
        manager.adopted = self._deliveries.adopt

    @property
    def wanted(self) -> bool:
        """Whether some channel's delivery is decentralised."""
        return bool(decentralised(self._settings))

    def begin(self, settings: Settings, events: int, deliveries: int) -> None:
        """Begins behind positions of both logs, as of which these settings hold; it reads the journal."""
        self._settings = settings
        self._deliveries.confirm_through(deliveries)
        self._deliveries.leave_through(events)
        self._start(events)

    def decide(self, news: TailedRows, changes: Sequence[Sequence[Change]]) -> EarlyBatch:
        """Decides what was read, whose control events change this; in the reader's thread."""
        own = {event.position: found for event, found in zip(news.controls, changes, strict=True)}
        renewed = [one.settings for found in changes for one in found if isinstance(one, SettingsChange)]
        self._settings = renewed[-1] if renewed else self._settings
        if not self.wanted:
            self._decider = None
            return NOTHING
        if self._decider is None:
            self._start(news.events_through)
            return EarlyBatch((), (), (), news.events_through)
        try:
            return self._decided(self._decider, news, own)
        except Exception:
            # What it knows may be half of what came: it begins anew, later.
            self._decider, self._broken_until = None, time.monotonic() + AGAIN_SECONDS
            self._metrics.errors.labels("early").inc()
            log.exception("not decided early through=%d", news.events_through)
            return EarlyBatch((), (), (), news.events_through)

    def _start(self, through: int) -> None:
        if not self.wanted or time.monotonic() < self._broken_until:
            return
        try:
            self._decider = EarlyDecider(_registry_through(self._journal, through))
            log.info("deciding early after=%d channels=%s", through, ",".join(sorted(decentralised(self._settings))))
        except Exception as error:
            self._broken_until = time.monotonic() + AGAIN_SECONDS
            self._metrics.errors.labels("early").inc()
            if not isinstance(error, JournalError):
                log.exception("deciding early not begun")

    def _decided(self, decider: EarlyDecider, news: TailedRows, changes: Mapping[int, Sequence[Change]]) -> EarlyBatch:
        positions, rows, unsure, left = list[int](), list[DecidedDelivery](), list[tuple[int, str]](), 0
        for table in news.events:
            if not len(table):
                continue
            first, last = table.column("position")[0].as_py(), table.column("position")[-1].as_py()
            own = {position: found for position, found in changes.items() if first <= position <= last}
            decisions = decider.decide(table, own)
            positions += decisions.positions
            rows += joined(decisions.deliveries, self._payloads)
            unsure += decisions.unsure
            left = max(left, decisions.left_through)
        return EarlyBatch(positions, rows, unsure, left)

    def deliver(self, batch: EarlyBatch, news: TailedRows) -> None:
        """Queues what may be, behind what the pipeline decided, which was queued; in the event loop."""
        self._manager.early = self.wanted
        early = self._deliveries
        differences = early.confirm(news.decided)
        released, surplus = early.confirm_through(news.deliveries_through)
        if batch.left_through:
            early.leave_through(batch.left_through)
        resting = early.resting
        released += early.decide(batch.positions, batch.rows, batch.unsure, news.events_through)
        self._metrics.early_left.inc(len(batch.positions) if resting else 0)
        self._metrics.early_unconfirmed.set(early.size)
        self._metrics.early.inc(len(released))
        self._manager.deliver(released, early=True)
        if early.resting and not resting:
            log.warning("too much decided early is unconfirmed: left to the pipeline unconfirmed=%d", early.size)
        self._tell([*differences, *surplus])

    def _tell(self, differences: Sequence[DecisionDifference]) -> None:
        for one in differences:
            self._metrics.early_differences.labels(one.kind).inc()
        if differences:
            first = differences[0]
            log.error(
                "decided otherwise than the pipeline differences=%d kind=%s position=%d client=%s",
                len(differences), first.kind, first.position, first.client,
            )  # fmt: skip

    def _serves(self, client: str) -> bool:
        return not self._manager.session(client).waiting.followed


def _registry_through(journal: Journal, through: int) -> Registry:
    """What is defined as of a position, as the journal says: who serves clients knows more of them than it does."""
    after, held = base_table(journal, REGISTRY)
    registry = Registry() if held is None else registry_of(held)
    for event in control_events_of(journal.row_ranges("events", after, through, STRETCH)):
        apply_event(registry, event)
    return registry
