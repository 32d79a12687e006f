"""The events that zones cause, made one by one: what `zone_tables` has to make in columns, byte for byte."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from nearcast.model.event import Event, place_data
from nearcast.model.values import time_text
from nearcast.model.zone import ZONE_EVENT, ZONES
from nearcast.relations.transition_events import escaped_name
from nearcast.state.derived import Cause, derived_event
from nearcast.zones.zone_transitions import ZoneTransition


def zone_events(told: Iterable[ZoneTransition], cause: Cause) -> list[Event]:
    """The events that tell it, in order."""
    ordered = sorted(told, key=lambda one: one.order)
    return [_event(one, cause, part) for part, one in enumerate(ordered, 1)]


def _event(told: ZoneTransition, cause: Cause, part: int) -> Event:
    names = [told.layer, told.entity, *([told.zone.name] if told.zone else ())]
    subject = "nearcast/zones/" + "/".join(map(escaped_name, names))
    id = f"{subject}/{cause.position}.{part}"
    return derived_event(ZONE_EVENT, ZONES, id, subject, _data(told), cause, told.place, part, told.time)


def _data(told: ZoneTransition) -> dict[str, Any]:
    """What the event tells; what is not known is left out."""
    properties = orjson.loads(told.zone.properties) if told.zone else None
    data: dict[str, Any] = {
        "layer": told.layer,
        "zone": told.zone.name if told.zone else None,
        "entity": told.entity,
        "detect": told.detect,
        "since": None if told.since is None else time_text(told.since),
        "reason": told.reason,
        "present": told.present or None,
        "properties": properties or None,
    }
    # The event is where the entity is; who reads it anew finds its place as in any other event.
    data |= place_data(told.place) if told.place else {}
    return {name: value for name, value in data.items() if value is not None}
