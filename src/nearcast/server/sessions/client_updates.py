"""What clients say of themselves while connected: readings, position, role, task.

It takes effect here at once. Into the journal, from which the pipeline learns it, go at once: a role, a task, and
readings that change a class; other readings and positions at most so often, the newest then. So the journal does not
drown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nearcast.delivery.priority import awareness_class
from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.model.changes import ClientChange
from nearcast.model.event import Event
from nearcast.model.subscription import Settings
from nearcast.server import clock
from nearcast.server.admin.documents import MEASURED, SAID, checked_changes, control_event
from nearcast.server.config import ServerLimits
from nearcast.server.ingest.group_commit import QueueFull
from nearcast.server.sessions.manager import SessionManager
from nearcast.server.sessions.session import Session

log = logging.getLogger(__name__)

SAYABLE = ("readings", "position", "role", "task")
BANDWIDTH = "bandwidth"
MEASURED_SECONDS = 10.0
"""A measured bandwidth changes a client's class at most so often: near a bound it must not flap."""

AGAIN_SECONDS = 1.0
"""Until the journal is asked again to take what it did not take."""


@dataclass
class UnwrittenUpdates:
    """What a client said and the journal does not have: newest values, and since when something waits."""

    data: dict[str, Any] = field(default_factory=dict)
    due: float = 0.0
    source: str = SAID


class ClientUpdates:
    """Applies what clients say and journals it; `publish` puts events on their way into the journal."""

    def __init__(
        self,
        session_manager: SessionManager,
        publish: Callable[[list[Event]], asyncio.Future[list[int]]],
        limits: ServerLimits,
    ) -> None:
        self.session_manager, self.publish, self.limits = session_manager, publish, limits
        self._unwritten: dict[str, UnwrittenUpdates] = {}
        self._written: dict[str, float] = {}
        self._measured: dict[str, float] = {}

    def update(self, session: Session, said: Mapping[str, Any], source: str = SAID) -> None:
        """A client says something of itself. Raises DefinitionError, and then nothing of it was taken."""
        client, settings = session.client.id, self.session_manager.registry.settings
        data = {name: value for name, value in said.items() if name in SAYABLE}
        event = control_event("nearcast.client", {"client": client, **data}, source)
        said_so = checked_changes(event, settings, Mark("message"))
        changes = [change for change in said_so if isinstance(change, ClientChange)]
        if any(change.client != client for change in changes):
            raise DefinitionError(Fault(f"what client {client} says of itself", "of another", Mark("message")))
        # Before the changes take effect: compared with what was known until now.
        urgent = any(_urgent(session, change, settings) for change in changes)
        for change in changes:
            self.session_manager.apply(change)
            if source != MEASURED:
                self.session_manager.state_bandwidth(client, change.readings)
        self._write(client, data, urgent, source)

    def _write(self, client: str, data: dict[str, Any], urgent: bool, source: str) -> None:
        now = clock.steady()
        kept = self._unwritten.setdefault(client, UnwrittenUpdates())
        kept.data, kept.source = _merged(kept.data, data), source
        interval = self.limits.place_seconds if "position" in data else self.limits.reading_seconds
        due = self._written.get(client, 0.0) + interval
        # The earlier of the two: a place must not wait as long as readings do.
        kept.due = min(kept.due or due, due)
        if urgent or kept.due <= now:
            self._publish(client)

    def _publish(self, client: str) -> None:
        kept = self._unwritten.pop(client)
        self._written[client] = clock.steady()
        # `readings` are empty where none were said.
        data = {name: value for name, value in kept.data.items() if value}
        try:
            written = self.publish([control_event("nearcast.client", {"client": client, **data}, kept.source)])
        except QueueFull:
            self._again(client, kept)
        else:
            written.add_done_callback(lambda future: self._after(client, kept, future))

    def _after(self, client: str, kept: UnwrittenUpdates, written: asyncio.Future[list[int]]) -> None:
        """What the journal did not take is tried again."""
        if not written.cancelled() and written.exception() is not None:
            self._again(client, kept)

    def _again(self, client: str, kept: UnwrittenUpdates) -> None:
        """Tries again later, below what was said since; not if the client was removed: it would be declared anew."""
        if client in self.session_manager.registry.clients:
            newer = self._unwritten.get(client, UnwrittenUpdates(source=kept.source))
            due = clock.steady() + AGAIN_SECONDS
            self._unwritten[client] = UnwrittenUpdates(_merged(kept.data, newer.data), due, newer.source)

    def forget(self, client: str) -> None:
        """A client was removed: what it said and is not written yet would declare it anew."""
        for kept in (self._unwritten, self._written, self._measured):
            kept.pop(client, None)

    def flush(self, all_of_it: bool = False) -> None:
        """Writes what is due."""
        now = clock.steady()
        for client in [client for client, kept in self._unwritten.items() if all_of_it or kept.due <= now]:
            self._publish(client)

    def unwritten(self, client: str) -> ClientChange | None:
        """What the client said later than the journal knows: it holds, whatever comes from there."""
        kept = self._unwritten.get(client)
        if not kept or not kept.data.get("readings"):
            return None
        return ClientChange(client, readings=kept.data["readings"])

    def measure(self, session: Session) -> None:
        """Makes the measured bandwidth the client's reading, where that puts it into another class."""
        now, settings = clock.steady(), self.session_manager.registry.settings
        measured = session.pace.measured(now)
        module = next((one for one in settings.space.modules if one.reading == BANDWIDTH), None)
        client = session.client
        if measured is None or module is None or now - self._measured.get(client.id, 0.0) < MEASURED_SECONDS:
            return
        present = measured if session.stated is None else min(measured, session.stated)
        # Within a class no priority changes: the journal is spared it.
        if awareness_class(module, present) == awareness_class(module, client.readings.get(BANDWIDTH)):
            return
        self._measured[client.id] = now
        log.info("bandwidth measured client=%s kbit_per_second=%.1f", client.id, present)
        self.update(session, {"readings": {BANDWIDTH: round(present, 1)}}, MEASURED)


def _merged(older: Mapping[str, Any], newer: Mapping[str, Any]) -> dict[str, Any]:
    """What was said, then more; of readings each keeps its newest value."""
    return {**older, **newer, "readings": {**older.get("readings", {}), **newer.get("readings", {})}}


def _urgent(session: Session, change: ClientChange, settings: Settings) -> bool:
    """Whether the pipeline should know at once."""
    client, readings = session.client, change.readings or {}
    other_role = change.role not in (None, client.role) or change.task not in (None, client.task)
    return other_role or any(
        awareness_class(module, readings[module.reading])
        != awareness_class(module, client.readings.get(module.reading))
        for module in settings.space.modules
        if module.reading in readings
    )
