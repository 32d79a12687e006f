"""Control events: what changes clients, subscriptions, relations and settings is in the journal like any event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

import orjson

from nearcast.errors import DefinitionError, EventError, Fault, Mark
from nearcast.language.cloudevents import CONTROL_TYPES
from nearcast.language.definitions.client_documents import client_data, read_client
from nearcast.language.definitions.relation_documents import read_relation, relation_data
from nearcast.language.definitions.settings_documents import FIELDS, read_settings, settings_data
from nearcast.language.definitions.situation_documents import action_data, read_action, read_situation, situation_data
from nearcast.language.definitions.subscription_documents import read_subscription, subscription_data
from nearcast.language.definitions.zone_documents import (
    read_zone_rule,
    read_zone_shapes,
    zone_rule_data,
    zone_shapes_data,
)
from nearcast.language.nodes import DocumentNode, DocumentReader, from_data
from nearcast.model.changes import (
    ActionChange,
    ActionRemoval,
    Change,
    ClientChange,
    ClientRemoval,
    ClockTick,
    RelationChange,
    RelationRemoval,
    SettingsChange,
    SituationChange,
    SituationRemoval,
    SubscriptionChange,
    SubscriptionRemoval,
    ZoneRemoval,
    ZoneRuleChange,
    ZoneShapesChange,
)
from nearcast.model.event import MAIN, Event, cloud_event
from nearcast.model.subscription import Settings
from nearcast.model.values import microseconds_of, time_of, time_text

CLIENT, CLIENT_REMOVED, SUBSCRIPTION, SUBSCRIPTION_REMOVED, SETTINGS, *_DERIVING = CONTROL_TYPES
RELATION, RELATION_REMOVED, SITUATION, SITUATION_REMOVED, ACTION, ACTION_REMOVED, *_LATER = _DERIVING
ZONES_DEFINED, ZONES_CHANGED, ZONES_REMOVED, TICK = _LATER

T = TypeVar("T")
Read = Callable[[DocumentNode, Settings, DocumentReader], Change | None]
"""Reads the data of a control event; None after a fault."""


def changes(event: Event, settings: Settings, where: Mark | None = None) -> list[Change]:
    """What a control event changes, under the settings that hold at its position; nothing for any other event.

    A client that is not known yet is added by its first change. Raises `EventError` for an unknown type, a field that
    is missing, unknown or of a wrong kind, and a role, task or place that the settings do not allow. Faults are told at
    `where`, without it in the event.
    """
    if not event.control:
        return []
    where = where or Mark(f"event {event.id}")
    read = _READERS.get(event.type)
    if event.type == ZONES_CHANGED:
        return [_zone_shapes(event, settings, where)]
    if read is None:
        raise EventError(Fault(f"one of {', '.join(CONTROL_TYPES)}", event.type, where))
    reader = DocumentReader(settings.limits)
    try:
        change = read(from_data(_data(event, where), where), settings, reader)
        reader.refuse()
    except Fault as fault:
        raise EventError(fault) from None
    except DefinitionError as error:
        raise EventError(error.faults[0]) from None
    if isinstance(change, RelationChange):
        # The definition is of the node at which it entered, so that what it means does not rest on who reads it.
        change = RelationChange(change.relation.at(event.node or MAIN))
    if isinstance(change, ClientChange) and change.readings and event.moment is not None:
        change = replace(change, moment=microseconds_of(event.moment))
    if isinstance(change, ClockTick) and event.accepted is not None:
        # No clock is ahead of when it is told.
        accepted = event.accepted
        channels = {name: min(clock, accepted) for name, clock in change.channels.items()}
        change = ClockTick(change.clock and min(change.clock, accepted), channels)
    return [] if change is None else [change]


def _zone_shapes(event: Event, settings: Settings, where: Mark) -> Change:
    """Read as it is: as nodes, hundreds of thousands of coordinates would take seconds."""
    try:
        return read_zone_shapes(_data(event, where), settings.limits, where)
    except Fault as fault:
        raise EventError(fault) from None
    except DefinitionError as error:
        raise EventError(error.faults[0]) from None


def to_event(change: Change, id: str, source: str, time: datetime | None = None) -> Event:
    """The control event that brings a change about: `changes` gives the same change again."""
    type_, subject, data = _document(change)
    document = {**cloud_event(id, type_, source, subject, time), "data": data}
    return Event(
        id=id,
        type=type_,
        source=source,
        subject=subject,
        time=time,
        attributes=(("specversion", "1.0"),),
        payload=orjson.dumps(document),
    )


def _data(event: Event, where: Mark) -> Any:
    try:
        return orjson.loads(event.payload).get("data")
    except (orjson.JSONDecodeError, AttributeError):
        raise Fault("a CloudEvent as payload", "other bytes", where) from None


def _document(change: Change) -> tuple[str, str | None, dict[str, Any]]:
    """Type, subject and data of a change."""
    # A client's id alone as subject would be the name of an entity that may be somebody else's.
    match change:
        case ClientChange():
            return CLIENT, f"nearcast/clients/{change.client}", client_data(change)
        case ClientRemoval():
            return CLIENT_REMOVED, f"nearcast/clients/{change.client}", {"client": change.client}
        case SubscriptionChange():
            return (
                SUBSCRIPTION,
                f"nearcast/subscriptions/{change.subscription.id}",
                subscription_data(change.subscription),
            )
        case SubscriptionRemoval():
            subject = f"nearcast/subscriptions/{change.subscription}"
            return SUBSCRIPTION_REMOVED, subject, {"subscription": change.subscription}
        case RelationChange(relation):
            return RELATION, f"nearcast/relations/{relation.id}", relation_data(relation)
        case RelationRemoval(id):
            return RELATION_REMOVED, f"nearcast/relations/{id}", {"relation": id}
        case SettingsChange():
            return SETTINGS, None, settings_data(change.settings)
        case SituationChange(rule):
            return SITUATION, f"nearcast/situations/{rule.id}", situation_data(rule)
        case SituationRemoval(id):
            return SITUATION_REMOVED, f"nearcast/situations/{id}", {"situation": id}
        case ActionChange(action):
            return ACTION, f"nearcast/actions/{action.id}", action_data(action)
        case ActionRemoval(id):
            return ACTION_REMOVED, f"nearcast/actions/{id}", {"action": id}
        case ZoneRuleChange(layer):
            return ZONES_DEFINED, f"nearcast/zones/{layer.id}", zone_rule_data(layer)
        case ZoneShapesChange(id):
            return ZONES_CHANGED, f"nearcast/zones/{id}", zone_shapes_data(change)
        case ZoneRemoval(id):
            return ZONES_REMOVED, f"nearcast/zones/{id}", {"layer": id}
        case ClockTick():
            return TICK, "nearcast/clock", _tick_data(change)


def _settings(node: DocumentNode, settings: Settings, reader: DocumentReader) -> Change | None:
    return SettingsChange(read_settings(reader.fields(node, (), FIELDS, "settings"), reader))


def _defined(read: Callable[[DocumentNode, Settings, DocumentReader], T | None], make: Callable[[T], Change]) -> Read:
    """Reads what is added or replaced."""

    def change(node: DocumentNode, settings: Settings, reader: DocumentReader) -> Change | None:
        found = read(node, settings, reader)
        return None if found is None else make(found)

    return change


def _removed(name: str, make: Callable[[str], Change]) -> Read:
    """Reads whose end it is: the one field that has its name."""

    def change(node: DocumentNode, settings: Settings, reader: DocumentReader) -> Change | None:
        id = _named(node, name, reader)
        return None if id is None else make(id)

    return change


def _named(node: DocumentNode, name: str, reader: DocumentReader) -> str | None:
    fields = reader.fields(node, (name,), (), "data")
    return reader.text(fields[name], f"a {name}'s id") if name in fields else None


def _tick(node: DocumentNode, settings: Settings, reader: DocumentReader) -> Change | None:
    fields = reader.fields(node, (), ("clock", "channels"), "data")
    if not fields:
        raise Fault("the fields clock or channels", "neither", node.where)
    clock = _moment(fields["clock"], reader) if "clock" in fields else None
    own = reader.named(fields["channels"], "channels") if "channels" in fields else ()
    found = {name: _moment(one, reader) for name, one in own}
    return ClockTick(clock, {name: one for name, one in found.items() if one is not None})


def _moment(node: DocumentNode, reader: DocumentReader) -> datetime | None:
    text = reader.text(node, "a time")
    found = None if text is None else time_of(text)
    if text is not None and found is None:
        raise Fault("a time, as in 2020-01-31T12:00:00Z", repr(text), node.where)
    return found


def _tick_data(tick: ClockTick) -> dict[str, Any]:
    """The clocks of a tick; those of channels only where some have their own."""
    data: dict[str, Any] = {} if tick.clock is None else {"clock": time_text(tick.clock)}
    if tick.channels:
        data["channels"] = {name: time_text(clock) for name, clock in tick.channels.items()}
    return data


_READERS: dict[str, Read] = {
    CLIENT: read_client,
    CLIENT_REMOVED: _removed("client", ClientRemoval),
    SUBSCRIPTION: _defined(read_subscription, SubscriptionChange),
    SUBSCRIPTION_REMOVED: _removed("subscription", SubscriptionRemoval),
    SETTINGS: _settings,
    RELATION: _defined(lambda node, settings, reader: read_relation(node, reader), RelationChange),
    RELATION_REMOVED: _removed("relation", RelationRemoval),
    SITUATION: _defined(read_situation, SituationChange),
    SITUATION_REMOVED: _removed("situation", SituationRemoval),
    ACTION: _defined(read_action, ActionChange),
    ACTION_REMOVED: _removed("action", ActionRemoval),
    ZONES_DEFINED: _defined(lambda node, settings, reader: read_zone_rule(node, None, reader), ZoneRuleChange),
    ZONES_REMOVED: _removed("layer", ZoneRemoval),
    TICK: _tick,
}
