"""The forms of management requests, for OpenAPI, and the control events that they become."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, PrivateAttr, model_validator

from nearcast.errors import DefinitionError, EventError, Fault, Mark
from nearcast.language import control_events
from nearcast.language.cloudevents import read_event
from nearcast.model.changes import Change, ClientChange
from nearcast.model.event import Event
from nearcast.model.subscription import Settings
from nearcast.model.values import time_text
from nearcast.server import clock
from nearcast.state.registry import Registry, lists_beyond, readings_beyond


class RawDocument(BaseModel):
    """A document as it came, whatever is in it: its readers say what is wrong in the project's own words."""

    _data: dict[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _as_it_came(cls, data: Any, handler: ModelWrapValidatorHandler[RawDocument]) -> RawDocument:
        found = cls.model_construct()
        found._data = data
        return found

    def given(self) -> dict[str, Any]:
        """The fields that were given."""
        return dict(self._data)


class Document(RawDocument):
    """A form whose unknown fields are faults; fields that are not given stay as they are, or have their defaults."""

    model_config = ConfigDict(extra="forbid")


class PositionDocument(BaseModel):
    """Where something is: x, y, z in metres, or lon, lat in degrees WGS84 and alt in metres."""

    model_config = ConfigDict(extra="forbid")

    x: float | None = None
    y: float | None = None
    z: float | None = None
    lon: float | None = None
    lat: float | None = None
    alt: float | None = None


class ClientDocument(Document):
    """A receiver, or what is to change of it: readings merge by name, what is not given stays."""

    id: str | None = Field(None, description="As in the path, if given.")
    role: str | None = None
    task: str | None = None
    readings: dict[str, float] | None = Field(None, examples=[{"bandwidth": 3750}])
    position: PositionDocument | None = None
    lists: dict[str, list[str]] | None = Field(None, examples=[{"buddies": ["ben", "cid"]}])
    matrix: str | list[list[int]] | None = Field(
        None, description="Its own priorities: delay, restriction, or N rows of N."
    )
    lapsed: dict[str, str] | None = Field(None, description="Times of readings that are unknown since; read only.")


class SubscriptionDocument(Document):
    """Who wants what: a filter as CQL2 text, or as a tree of all, any, not with a relevance at its leaves."""

    id: str | None = Field(None, description="As in the path, if given.")
    client: str | None = None
    clients: list[str] | None = None
    filter: str | dict[str, Any] = Field(examples=["type = 'unit' AND distance(user('a'), this) <= 150"])
    relevance: float | list[float] | None = Field(None, description="One value from 0 to 1 per atom, or one for all.")
    ttl: float | str | None = Field(None, description="How long an event may wait for a client: seconds, or 10 min.")
    conflate: bool | None = Field(None, description="Of an entity only the newest event waits.")


class RuleDocument(RawDocument):
    """A relation, a situation rule or an action, as in a definition file; what it means is checked there."""

    model_config = ConfigDict(extra="allow")


class SettingsDocument(RawDocument):
    """What holds for all: levels, awareness, context, matrix, roles, channels, as in a definition file."""

    model_config = ConfigDict(extra="allow")


class ChangeAnswer(BaseModel):
    """The change is durable and in effect: its position in the journal, and what is known now."""

    position: int
    document: dict[str, Any]


MANAGED, SAID, MEASURED = "nearcast/server/managed", "nearcast/server/said", "nearcast/server/measured"
"""Sources of control events: who manages said so, the client said so of itself, the server measured it."""

LAPSED = "nearcast/server/lapsed"
"""And: what a client said, or the server measured, was valid for so long."""


def control_event(type_: str, data: Mapping[str, Any], source: str, time: datetime | None = None) -> Event:
    """A new control event, not yet in the journal, of this time or of now. Raises EventError."""
    accepted = clock.moment(clock.now())
    document = {
        "specversion": "1.0",
        "id": uuid.uuid4().hex,
        "type": type_,
        "source": source,
        "time": time_text(time or accepted),
        "data": data,
    }
    return read_event(document, Mark("request"), accepted=accepted)


def checked_changes(event: Event, settings: Settings, where: Mark | None = None) -> list[Change]:
    """What a control event changes. Raises DefinitionError with every fault, whichever way it was raised; `where`: what
    the event was made of, if who sent that never saw an event.
    """
    try:
        return list(control_events.changes(event, settings, where))
    except EventError as error:
        raise DefinitionError(error.fault) from error
    except Fault as fault:
        raise DefinitionError(fault) from fault


def check_room(change: Change, registry: Registry) -> None:
    """Refuses readings and lists of a client beyond those that it may keep, and a subscription beyond what all filters
    may have together. Raises DefinitionError.
    """
    if fault := registry.refusal(change):
        raise DefinitionError(fault)
    if isinstance(change, ClientChange):
        limits, client = registry.settings.limits, registry.clients.get(change.client)
        if without_room := lists_beyond(client, change, limits):
            expected, came = f"at most {limits.client_lists:,} lists of a client", f"{without_room[0][:80]} besides"
            raise DefinitionError(Fault(expected, came, Mark("lists"), "give one that is there other entities"))
        most = registry.settings.limits.client_readings
        beyond = readings_beyond(registry.clients.get(change.client), change, registry.settings.limits)
        if beyond:
            advice = "a reading of null makes room"
            raise DefinitionError(
                Fault(f"at most {most:,} readings of a client", f"{beyond[0][:80]} besides", Mark("readings"), advice)
            )
