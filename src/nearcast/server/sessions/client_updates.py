"""What clients say of themselves while connected: readings, position, role, task.

It takes effect here at once. Into the journal, from which the pipeline learns it, go at once: a role, a task, and
readings that change a class, or begin to; other readings and positions at most so often, the newest then. So the
journal does not drown. Where settings hold classes, the class goes with a reading: who reads the journal has not heard
all that led to it. Of what a client says faster than it may, the newest of each waits together until it takes effect.

A measured bandwidth is a reading as well, of the source `MEASURED`. It lapses when a connection begins, unless the
session has come from another server a moment ago: then the link is the same, and the reading as old as it was. And when
something waits and nothing fills the link any more: then the reading is what was stated, or unknown, in the journal
too. Else what a slow moment made the matrix withhold would never be sent, and so never be measured again.

Where settings have a validity for a reading, the server withdraws it once that is over, stated or measured: by a client
change in the journal that names the moment of the reading, and takes effect when it is read there. So it does not touch
a newer one, and a second server that withdraws the same changes nothing. Of several servers that which has the client's
connection is the first, then the main one, then the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from nearcast.delivery.priority import awareness_class
from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language.definitions.client_documents import client_data
from nearcast.model.changes import ClientChange
from nearcast.model.context import Awareness
from nearcast.model.event import MAIN, Event
from nearcast.model.rate_limit import RateLimit
from nearcast.model.subscription import ClientProfile, Settings
from nearcast.model.values import microseconds_of, moment_at
from nearcast.server import clock
from nearcast.server.admin.documents import LAPSED, MEASURED, SAID, check_room, checked_changes, control_event
from nearcast.server.config import ServerLimits
from nearcast.server.error_responses import fault_json
from nearcast.server.ingest.group_commit import QueueFull
from nearcast.server.sessions.manager import SessionManager
from nearcast.server.sessions.session import Session
from nearcast.server.sessions.validity_timers import LapsedReading
from nearcast.state.registry import UNKNOWN_MOMENT, changed

log = logging.getLogger(__name__)

SAYABLE = ("readings", "position", "role", "task")
BANDWIDTH = "bandwidth"
MEASURED_SECONDS = 10.0
"""A measured bandwidth changes a client's class at most so often: near a bound it must not flap."""

AGAIN_SECONDS = 1.0
"""Until the journal is asked again to take what it did not take."""

LAPSE_WAIT_SECONDS = 0.25
"""How much later a server withdraws readings of a client that is not connected to it, and twice that where it is not
the main one: another may do so first.
"""

LAPSE_AGAIN_SECONDS = 5.0
"""Until a reading is withdrawn again that is still there, for the journal did not take it."""

LAPSED_TOGETHER = 200
"""Readings that are withdrawn before others have their turn."""

HELD_SECONDS = 0.05
"""Who says more than it may is heard again after so long: it waits, and nobody else."""


@dataclass
class UnwrittenUpdates:
    """What a client said and the journal does not have: newest values, and since when something waits; `moments` of
    the readings among them.
    """

    data: dict[str, Any] = field(default_factory=dict)
    moments: dict[str, int] = field(default_factory=dict)
    due: float = 0.0
    source: str = SAID


class ClientUpdates:
    """Applies what clients say and journals it; `publish` puts events on their way into the journal."""

    def __init__(
        self,
        session_manager: SessionManager,
        publish: Callable[[list[Event]], asyncio.Future[list[int]]],
        limits: ServerLimits,
        node: str = MAIN,
    ) -> None:
        self.session_manager, self.publish, self.limits = session_manager, publish, limits
        self._lapse_wait = LAPSE_WAIT_SECONDS * (1 if node == MAIN else 2)
        self._unwritten: dict[str, UnwrittenUpdates] = {}
        self._held: dict[str, dict[str, Any]] = {}
        self._rates: dict[str, RateLimit] = {}
        self._told: set[str] = set()
        self._written: dict[str, float] = {}
        self._measured: dict[str, float] = {}

    def update(self, session: Session, said: Mapping[str, Any], source: str = SAID) -> bool:
        """A client says something of itself, or it was measured; whether it waits, since the client says too much.
        Raises DefinitionError, and then nothing of it was taken.
        """
        client = session.client.id
        if source == MEASURED:
            self._apply(session, dict(said), self._checked(client, said, MEASURED), MEASURED)
            return False
        held = self._held.get(client)
        data = _merged(held or {}, {name: value for name, value in said.items() if name in SAYABLE})
        changes = self._checked(client, data, SAID)
        if held is None and self._may_change(client):
            self._apply(session, data, changes, SAID)
            return False
        self._hold(session, data)
        return True

    def _checked(self, client: str, data: Mapping[str, Any], source: str) -> list[ClientChange]:
        """What is said as changes. Raises DefinitionError."""
        registry = self.session_manager.registry
        # Before anything is made of it: it may be long.
        if len(data.get("readings") or ()) > registry.settings.limits.client_readings:
            most = f"at most {registry.settings.limits.client_readings:,} readings of a client"
            raise DefinitionError(Fault(most, f"{len(data['readings']):,}", Mark("message")))
        given = {name: value for name, value in data.items() if value}
        event = control_event("nearcast.client", {"client": client, **given}, source)
        said_so = checked_changes(event, registry.settings, Mark("message"))
        changes = [change for change in said_so if isinstance(change, ClientChange)]
        for change in changes:
            if change.client != client:
                raise DefinitionError(Fault(f"what client {client} says of itself", "of another", Mark("message")))
            check_room(change, registry)
        return changes

    def _may_change(self, client: str) -> bool:
        """Whether a client may change now: it does not too often, and the journal has taken what it said before."""
        unwritten = self._unwritten.get(client)
        most = self.session_manager.registry.settings.limits.client_readings
        if unwritten and len(unwritten.data.get("readings", ())) > most:
            return False
        bucket = self._rates.get(client)
        if bucket is None:
            bucket = RateLimit(self.limits.client_changes, self.limits.client_changes_burst)
            self._rates[client] = bucket
        return bucket.spend(1, clock.steady())

    def _hold(self, session: Session, data: dict[str, Any]) -> None:
        """Keeps the newest of what was said until it may take effect; its client is told once."""
        client = session.client.id
        self._held[client] = data
        self.session_manager.metrics.held.inc()
        if client not in self._told:
            self._told.add(client)
            expected = f"at most {self.limits.client_changes:g} changes a second"
            fault = Fault(expected, "more", Mark("message"), "of what comes beyond it the newest of each counts")
            session.tell({"notice": {"fault": fault_json(fault)}})
            log.info("changes held client=%s", client)

    def _apply(self, session: Session, data: dict[str, Any], changes: list[ClientChange], source: str) -> None:
        client, settings = session.client.id, self.session_manager.registry.settings
        # Before the changes take effect: compared with what was known until now.
        urgent = any(_urgent(session, change, settings, self.limits.reading_seconds) for change in changes)
        for change in changes:
            self.session_manager.apply(change)
            if source != MEASURED:
                self.session_manager.state_bandwidth(change)
        self._write(client, data, _moments(changes), urgent, source)

    def _write(self, client: str, data: dict[str, Any], moments: dict[str, int], urgent: bool, source: str) -> None:
        now = clock.steady()
        # What a client stated must not be taken for measured, nor the other way round.
        if client in self._unwritten and self._unwritten[client].source != source:
            self._publish(client)
        kept = self._unwritten.setdefault(client, UnwrittenUpdates())
        kept.data, kept.moments, kept.source = _merged(kept.data, data), kept.moments | moments, source
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
        # When they were heard, from which on they are valid; not when they are written.
        lasting, said = self.session_manager.registry.settings.space.validities(), kept.data["readings"]
        moments = {name: kept.moments[name] for name in lasting if name in kept.moments and said.get(name) is not None}
        if moments:
            data |= client_data(ClientChange(client, moments=moments))
        known = self.session_manager.registry.clients.get(client)
        held = {name: one for name, one in known.classes.items() if name in kept.data["readings"]} if known else {}
        if held:
            data |= client_data(ClientChange(client, classes=held))
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
            due, moments = clock.steady() + AGAIN_SECONDS, kept.moments | newer.moments
            self._unwritten[client] = UnwrittenUpdates(_merged(kept.data, newer.data), moments, due, newer.source)

    def forget(self, client: str) -> None:
        """A client was removed: what it said and is not written yet would declare it anew."""
        for kept in (self._unwritten, self._written, self._measured, self._held, self._rates):
            kept.pop(client, None)
        self._told.discard(client)

    def flush(self, all_of_it: bool = False) -> None:
        """Lets what was held take effect as far as it may, and writes what is due."""
        for client in list(self._held):
            if all_of_it or self._may_change(client):
                self._release(client)
        now = clock.steady()
        # Who was quiet for a while is told again.
        for client in [one for one, bucket in self._rates.items() if one not in self._held and bucket.full(now)]:
            del self._rates[client]
            self._told.discard(client)
        for client in [client for client, kept in self._unwritten.items() if all_of_it or kept.due <= now]:
            self._publish(client)

    def _release(self, client: str) -> None:
        data = self._held.pop(client)
        session = self.session_manager.sessions.get(client)
        if session is None:
            return
        try:
            self._apply(session, data, self._checked(client, data, SAID), SAID)
        except DefinitionError as error:
            # Settings that came meanwhile do not allow it any more.
            session.tell({"notice": {"fault": fault_json(error.faults[0])}})

    def unwritten(self, client: str) -> ClientChange | None:
        """What the client said later than the journal knows: it holds, whatever comes from there."""
        kept = self._unwritten.get(client)
        if not kept or not kept.data.get("readings"):
            return None
        return ClientChange(client, readings=kept.data["readings"], moments=kept.moments)

    async def withdraw_lapsed(self) -> bool:
        """Withdraws the readings that have lapsed, in parts, between which others have a turn.

        Whether the journal had room for them; else the rest waits.
        """
        timers = self.session_manager.validity_timers
        while part := list(islice(timers.due(self.session_manager.registry), LAPSED_TOGETHER)):
            withdrawals = {one: event for one in part if (event := self._withdrawal(one))}
            try:
                if withdrawals:
                    self.publish([*withdrawals.values()]).add_done_callback(partial(self._withdrawn, [*withdrawals]))
            except QueueFull:
                log.warning("journal full, readings are withdrawn later readings=%d", len(withdrawals))
                return False
            await asyncio.sleep(0)
        return True

    def _withdrawn(self, lapsed: list[LapsedReading], written: asyncio.Future[list[int]]) -> None:
        """Counts what the journal has taken; what it has not is there still, which is seen by that."""
        if not written.cancelled() and written.exception() is None:
            for one in lapsed:
                self.session_manager.metrics.lapsed.labels(one.name).inc()

    def _withdrawal(self, lapsed: LapsedReading) -> Event | None:
        """The control event that withdraws a reading, or none as yet."""
        timers, session = self.session_manager.validity_timers, self.session_manager.sessions.get(lapsed.client)
        wait = self._lapse_wait - clock.age(lapsed.ended / 1e6)
        if wait > 0 and lapsed.moment != UNKNOWN_MOMENT and not (session and session.connection):
            timers.retry(lapsed, wait)
            return None
        # The reading comes before what withdraws it.
        if lapsed.client in self._unwritten:
            self._publish(lapsed.client)
        timers.retry(lapsed, LAPSE_AGAIN_SECONDS)
        log.info("reading lapsed client=%s reading=%s", lapsed.client, lapsed.name)
        change = ClientChange(lapsed.client, lapsed={lapsed.name: lapsed.moment})
        return control_event("nearcast.client", client_data(change), LAPSED, moment_at(lapsed.ended))

    def measure(self, session: Session) -> None:
        """Makes the measured bandwidth the client's reading, where that puts it into another class."""
        now, settings = clock.steady(), self.session_manager.registry.settings
        self._end_stated(session)
        measured = session.pace.measured(now)
        module = next((one for one in settings.space.modules if one.reading == BANDWIDTH), None)
        client = session.client
        if module is None:
            return
        # What is valid for less is renewed more often.
        interval = MEASURED_SECONDS if module.valid is None else min(MEASURED_SECONDS, module.valid / 2)
        if now - self._measured.get(client.id, 0.0) < interval:
            return
        if measured is None:
            if (session.pace.worked_on or _starved(session)) and self.lapse(session):
                self._measured[client.id] = now
            return
        present = measured if session.stated is None else min(measured, session.stated)
        measured_so = {BANDWIDTH: round(present, 1)}
        change = ClientChange(client.id, readings=measured_so, moment=microseconds_of(clock.moment(clock.now())))
        # Within a class no priority changes: the journal is spared it, as long as what it has is valid.
        same = _standing(module, client) == _standing(module, changed(client, change, settings))
        if same and not _half_over(module, client):
            return
        self._measured[client.id] = now
        log.info("bandwidth measured client=%s kbit_per_second=%.1f", client.id, present)
        self.update(session, {"readings": measured_so}, MEASURED)

    def begin(self, session: Session, moved: bool) -> None:
        """A connection has the session. What was measured of the one before counts on if the session has `moved` here
        from another server, until this one has measured; else it lapses.
        """
        measured = session.client.readings.get(BANDWIDTH)
        if not moved or measured is None or measured == session.stated:
            self.lapse(session)
            return
        session.pace.begin_with(measured, clock.steady())
        # As if this server had measured it: near a bound it must not flap.
        self._measured[session.client.id] = clock.steady()
        log.info("measured bandwidth taken over client=%s kbit_per_second=%.1f", session.client.id, measured)

    def lapse(self, session: Session) -> bool:
        """Makes the client's bandwidth what it stated, or unknown, if it was measured; whether it was."""
        present = session.client.readings.get(BANDWIDTH)
        self._end_stated(session)
        if present is None or present == session.stated:
            return False
        log.info("measured bandwidth lapsed client=%s", session.client.id)
        if session.stated is not None and BANDWIDTH in session.client.classes:
            # What was measured must not hold the class in which what is stated would not be.
            self.update(session, {"readings": {BANDWIDTH: None}}, MEASURED)
        said: dict[str, Any] = {"readings": {BANDWIDTH: session.stated}}
        stated_at = self.session_manager.stated_moments.get(session.client.id, UNKNOWN_MOMENT)
        if session.stated is not None and stated_at != UNKNOWN_MOMENT:
            # It is as old as it was.
            said |= client_data(ClientChange(session.client.id, moments={BANDWIDTH: stated_at}))
        self.update(session, said, MEASURED)
        return True

    def _end_stated(self, session: Session) -> None:
        """What was stated and has lapsed meanwhile caps nothing any more, though what was measured since is valid."""
        valid = self.session_manager.registry.settings.space.validities().get(BANDWIDTH)
        client = session.client.id
        stated_at = self.session_manager.stated_moments.get(client, UNKNOWN_MOMENT)
        if valid is None or stated_at == UNKNOWN_MOMENT or session.client.moments.get(BANDWIDTH) == stated_at:
            return
        if clock.age(stated_at / 1e6) >= valid:
            self.session_manager.forget_bandwidth(client)


def _starved(session: Session) -> bool:
    """Whether all that waits is withheld: nothing is sent, so nothing is measured."""
    waiting = session.waiting
    return bool(waiting.waiting) and not waiting.in_flight and waiting.next() is None


def _nearly_over(module: Awareness, client: ClientProfile, seconds: float) -> bool:
    """Whether the reading that the journal has may lapse before another one is written.

    Another server would withdraw it, though the client has said a newer one.
    """
    moment = client.moments.get(module.reading)
    if module.valid is None or moment is None:
        return False
    return clock.age(moment / 1e6) > max(module.valid - 2 * seconds, module.valid / 2)


def _half_over(module: Awareness, client: ClientProfile) -> bool:
    """Whether half of the time is over for which a client's reading is valid."""
    moment = client.moments.get(module.reading)
    return module.valid is not None and (moment is None or clock.age(moment / 1e6) > module.valid / 2)


def _moments(changes: list[ClientChange]) -> dict[str, int]:
    """The moments of the readings that are said, by reading."""
    found = {name: (one.moments or {}).get(name, one.moment) for one in changes for name in one.readings or ()}
    return {name: moment for name, moment in found.items() if moment is not None}


def _merged(older: Mapping[str, Any], newer: Mapping[str, Any]) -> dict[str, Any]:
    """What was said, then more; of readings each keeps its newest value, which may be that it is unknown."""
    return {**older, **newer, "readings": {**older.get("readings", {}), **newer.get("readings", {})}}


def _urgent(session: Session, change: ClientChange, settings: Settings, seconds: float) -> bool:
    """Whether the pipeline should know at once; other readings are written within so many seconds."""
    client, readings = session.client, change.readings or {}
    other_role = change.role not in (None, client.role) or change.task not in (None, client.task)
    asked = [module for module in settings.space.modules if module.reading in readings]
    if other_role or not asked:
        return other_role
    after = changed(client, change, settings)
    return any(
        _standing(module, client) != _standing(module, after) or _nearly_over(module, client, seconds)
        for module in asked
    )


def _standing(module: Awareness, client: ClientProfile) -> tuple[object, ...]:
    """The class of a client by one module, and where it holds classes, whether and since when another is begun."""
    reading, held = client.readings.get(module.reading), client.classes.get(module.reading)
    found = awareness_class(module, reading, held)
    return (found, reading is None, held.rising, held.toward) if held else (found, reading is None and module.holds)
