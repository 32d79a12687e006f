"""What the control events of the journal change at this server: read from it at the start, then as they come."""

from __future__ import annotations

import logging

import pyarrow as pa

from nearcast.errors import DefinitionError, EventError, Fault, SetupError
from nearcast.journal.seam import Journal
from nearcast.journal.snapshot_log import REGISTRY, base_table
from nearcast.language.definitions.registry_rows import control_events_of, restore_registry
from nearcast.model.changes import Change, ClientChange, ClientRemoval, SettingsChange, SubscriptionChange
from nearcast.model.event import Event
from nearcast.model.subscription import Settings
from nearcast.server.admin.documents import MEASURED, checked_changes
from nearcast.server.ingest.definition_offload import DefinitionOffload
from nearcast.server.metrics import ServerMetrics
from nearcast.server.sessions.client_updates import ClientUpdates
from nearcast.server.sessions.manager import SessionManager
from nearcast.state.registry import Registry

log = logging.getLogger(__name__)

FOLD_ROWS = 20_000


class FollowedDefinitions:
    """Folds them into the registry of the sessions. `reading` keeps nobody waiting for a large definition."""

    def __init__(
        self,
        journal: Journal,
        sessions: SessionManager,
        client_updates: ClientUpdates,
        reading: DefinitionOffload,
        metrics: ServerMetrics,
    ) -> None:
        self._journal, self._sessions, self._client_updates = journal, sessions, client_updates
        self._reading, self._metrics = reading, metrics
        self._registry = sessions.registry

    def fold(self) -> int:
        """Folds every control event of the journal; the position it is read through."""
        # Of what went the journal's snapshot has what it came to. Of its readings nobody knows which were measured.
        after, held = base_table(self._journal, REGISTRY)
        if held is not None:
            self._restore(self._registry, held)
        end = self._journal.end("events")
        for event in control_events_of(self._journal.row_ranges("events", after, end, FOLD_ROWS)):
            self._fold_one(event)
        return end

    def _restore(self, registry: Registry, held: pa.Table) -> None:
        """Takes over what was there before the journal's events begin. Raises SetupError for another version's."""
        try:
            restore_registry(registry, held)
        except EventError as error:
            advice = "use the version that wrote it"
            fault = Fault("definitions of this version in the journal", str(error), advice=advice)
            raise SetupError(str(fault)) from None
        for one in registry.subscriptions.values():
            self._sessions.membership.note_change(SubscriptionChange(one), 0)

    def _fold_one(self, event: Event) -> None:
        """Faulty ones were answered when they came, or are dead letters of the pipeline; here they are skipped."""
        try:
            for change in checked_changes(event, self._registry.settings):
                if self._registry.refusal(change) is None:
                    self._sessions.membership.note_change(change, event.position)
                self._registry.apply(change)
                self._note_bandwidth(event, change)
        except DefinitionError as error:
            self._metrics.errors.labels("control").inc()
            log.warning("control event skipped position=%d error=%r", event.position, str(error))

    def _note_bandwidth(self, event: Event, change: object) -> None:
        if isinstance(change, ClientChange) and event.source != MEASURED:
            self._sessions.state_bandwidth(change)
        elif isinstance(change, ClientRemoval):
            # Who is declared anew under this name is not held to what the other one stated.
            self._sessions.forget_bandwidth(change.client)

    def read(self, controls: list[Event]) -> list[list[Change]]:
        """What control events change, each under the settings that those before it leave."""
        settings, found = self._registry.settings, list[list[Change]]()
        for event in controls:
            found.append(self._changes(settings, event))
            settings = next((one.settings for one in found[-1] if isinstance(one, SettingsChange)), settings)
        return found

    def _changes(self, settings: Settings, event: Event) -> list[Change]:
        try:
            return self._reading.changes(event, settings)
        except DefinitionError as error:
            self._metrics.errors.labels("control").inc()
            log.warning("control event skipped position=%d error=%r", event.position, str(error))
        except Exception:
            # By itself: one that cannot be read must not take those behind it along.
            self._metrics.errors.labels("reader").inc()
            log.exception("not read position=%d", event.position)
        return []

    def apply(self, control: tuple[Event, list[Change]]) -> bool:
        """As `fold`, with effect on sessions; what clients said since then holds on.

        Whether anything may be wanted now that was not, or no more.
        """
        event, changes = control
        for change in changes:
            # First: what waits may be taken over by those who are in their subscriptions still.
            if self._registry.refusal(change) is None:
                self._sessions.membership.note_change(change, event.position)
            self._sessions.apply(change)
            self._note_bandwidth(event, change)
            if isinstance(change, ClientRemoval):
                self._client_updates.forget(change.client)
            later = self._client_updates.unwritten(change.client) if isinstance(change, ClientChange) else None
            if later:
                self._sessions.apply(later)
        return any(not isinstance(change, ClientChange) or change.lists is not None for change in changes)
