"""What a request brought: the events of it that can be taken, and the faults of the others."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import pyarrow as pa

from nearcast.errors import DefinitionError, EventError, Fault, Mark
from nearcast.language.alike_events import AlikeEvents, AlikeReader
from nearcast.language.cloudevents import EventReader
from nearcast.language.definitions.degree_limits import beyond_degrees
from nearcast.model.changes import SubscriptionChange
from nearcast.model.columns import entered_events
from nearcast.model.event import Event
from nearcast.model.filter import Filter
from nearcast.model.subscription import Settings
from nearcast.server import clock
from nearcast.server.access import AccessToken, allow
from nearcast.server.admin.documents import check_room, checked_changes
from nearcast.server.error_responses import MOST_FAULTS
from nearcast.server.ingest.cloudevents_http import ReceivedEvents, read_request
from nearcast.server.ingest.definition_offload import LARGE_DEFINITION
from nearcast.server.ingest.definition_pacing import work_of
from nearcast.server.ingest.long_work import ATOM_SECONDS, PAGES, long_part, seconds_of_large
from nearcast.server.service import AccessServer

SOMEWHERE = Mark("request")
"""The place of any event, until it is known that something is wrong with it."""


@dataclass(slots=True)
class ReadEvents:
    """What a request brought: all that came, as JSON; the indices of what can be taken, ascending; the others' faults.

    `entering` is what can be taken, in its order: events, or rows of `EVENTS` where some of them were read in columns.
    """

    contents: list[bytes]
    taken: Sequence[int] = ()
    entering: Sequence[Event] | pa.Table = ()
    faults: list[tuple[int, Fault]] = field(default_factory=list)
    definition_work: int = 0
    """What the definitions among it take to enter (`definition_pacing`)."""
    long_seconds: float = 0.0
    """What is long in it: for so long it holds others up (`long_work`)."""
    checking: float = 0.0
    """Seconds that it took to see what definitions mean."""

    @property
    def count(self) -> int:
        """How many came."""
        return len(self.contents)


def read_events(
    headers: Iterable[tuple[str, str]], body: bytes, token: AccessToken | None, service: AccessServer
) -> ReadEvents:
    """What came. Raises EventError where that is no request with events.

    The documents are let go of here: to take apart a hundred thousand of them takes a while too.
    """
    limits, began = service.config.limits, time.thread_time()
    came = read_request(headers, body, limits.event_bytes, limits.batch_events)
    settings, accepted = service.session_manager.registry.settings, clock.moment(clock.now())
    alike: list[AlikeEvents] = []
    # What may be held back is looked at one by one anyway.
    if came.batch and not service.event_entry.suppress:
        check = None if token is None else token.check_event
        reader = AlikeReader(settings.channels, accepted, service.config.node, settings.limits.name_length, check)
        alike = reader.read(came.documents, came.contents)
    found = ReadEvents(came.contents)
    others = _read_others(came, alike, settings, accepted, token, service, found)
    found.taken, found.entering = _in_order(alike, others, service.config.node)
    if len(body) > LARGE_DEFINITION:
        own = time.thread_time() - began - found.checking
        found.long_seconds += seconds_of_large([*map(len, came.contents)], own)
    return found


def _read_others(
    came: ReceivedEvents,
    alike: Sequence[AlikeEvents],
    settings: Settings,
    accepted: datetime,
    token: AccessToken | None,
    service: AccessServer,
    received: ReadEvents,
) -> dict[int, Event]:
    """The good ones among the events that were not read in columns, by index; the faults of the others are added, and
    what definitions take.
    """
    reader = EventReader(settings.channels, accepted, settings.limits.name_length)
    read, found = set[int]().union(*(one.indices for one in alike)), dict[int, Event]()
    for index in range(len(came.documents)) if not read else sorted(set(range(len(came.documents))) - read):
        try:
            if index in came.faults:
                raise EventError(came.faults[index])
            event = reader.read(came.documents[index], SOMEWHERE, came.contents[index])
            if token:
                token.check_event(event.source, event.type, came.where(index))
            if event.control:
                _read_control(event, settings, token, service, received)
            found[index] = event
        except EventError as error:
            fault = error.fault
            received.faults.append(
                (index, replace(fault, where=came.where(index)) if fault.where is SOMEWHERE else fault)
            )
        except DefinitionError as error:
            received.faults += [(index, fault) for fault in error.faults[:MOST_FAULTS]]
    return found


def _read_control(
    event: Event, settings: Settings, token: AccessToken | None, service: AccessServer, received: ReadEvents
) -> None:
    """Checks a control event, and adds what it takes: also where it is refused."""
    began, work = time.thread_time(), 0
    try:
        work = _check_control(event, settings, token, service)
    finally:
        took = time.thread_time() - began
        received.definition_work += work
        received.checking += took
        if event.type != PAGES:
            received.long_seconds += long_part([took + work * ATOM_SECONDS])


def _in_order(
    alike: Sequence[AlikeEvents], others: dict[int, Event], node: str
) -> tuple[Sequence[int], Sequence[Event] | pa.Table]:
    """The indices of what can be taken, ascending, and the events or rows in this order."""
    if not alike:
        return [*others], [*others.values()]
    indices = np.array([*(index for one in alike for index in one.indices), *others])
    rows = pa.concat_tables([*(one.rows for one in alike), entered_events(others.values(), node)])
    order = np.argsort(indices)
    if (np.diff(indices) < 0).any():
        rows = rows.take(order)
    return indices[order].tolist(), rows


def _check_control(event: Event, settings: Settings, token: AccessToken | None, service: AccessServer) -> int:
    """A control event needs the right to manage, and must mean something. Gives what it takes to enter."""
    if token:
        allow([token], token.secret, "manage")
    changes = checked_changes(event, settings)
    for change in changes:
        check_room(change, service.session_manager.registry)
        if isinstance(change, SubscriptionChange):
            _check_degrees(change.subscription.filter, settings)
    service.reading.remember(event, settings, changes)
    return work_of(changes)


def _check_degrees(filter: Filter, settings: Settings) -> None:
    faults = list(beyond_degrees(filter, settings.channels))
    if faults:
        raise DefinitionError(faults)
