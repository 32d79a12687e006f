"""Control events that the server itself writes: changes of clients, subscriptions and settings that came by HTTP or
over a client's connection (the form is that of `nearcast.language.control`)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from nearcast.errors import DefinitionError, EventError, Fault, Mark
from nearcast.language import control
from nearcast.language.cloudevents import read_event
from nearcast.model.changes import Change
from nearcast.model.event import Event
from nearcast.model.subscription import Settings
from nearcast.model.values import time_text
from nearcast.server import clock

MANAGED, SAID, MEASURED = "nearcast/server/managed", "nearcast/server/said", "nearcast/server/measured"
"""Sources of control events: who manages said so, the client said so of itself, the server measured it."""


def control_event(type_: str, data: Mapping[str, Any], source: str) -> Event:
    """A new control event, not yet in the journal. Raises EventError."""
    accepted = clock.moment(clock.now())
    document = {
        "specversion": "1.0",
        "id": uuid.uuid4().hex,
        "type": type_,
        "source": source,
        "time": time_text(accepted),
        "data": data,
    }
    return read_event(document, Mark("request"), accepted=accepted)


def checked_changes(event: Event, settings: Settings, where: Mark | None = None) -> list[Change]:
    """What a control event changes. Raises DefinitionError with every fault, whichever way it was raised; `where`: what
    the event was made of, if who sent that never saw an event.
    """
    try:
        return list(control.changes(event, settings, where))
    except EventError as error:
        raise DefinitionError(error.fault) from error
    except Fault as fault:
        raise DefinitionError(fault) from fault
