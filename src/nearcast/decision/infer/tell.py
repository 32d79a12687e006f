"""The events that tell of situations: what a happening is in the journal's own form."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from nearcast.decision.derived_event import Cause, derived_event
from nearcast.decision.infer.areas import Areas
from nearcast.decision.infer.engine import Happening
from nearcast.decision.infer.plan import SECOND
from nearcast.decision.infer.view import Ground
from nearcast.model.event import Event
from nearcast.model.place import place_data
from nearcast.model.situation import SITUATION_TYPE
from nearcast.model.values import Value, time_text

SOURCE = "nearcast:situations"

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def moment_of(microseconds: int) -> datetime:
    """The moment so many microseconds after 1970 began."""
    return _BEGINNING + timedelta(microseconds=microseconds)


def situation_data(found: Happening, areas: Areas, units: Mapping[str, str]) -> dict[str, Any]:
    """What a situation's event has as data."""
    data: dict[str, Any] = {"situation": found.rule, "class": found.concludes, "id": found.situation}
    data["phase"] = found.phase
    place = found.centre.place
    if place is not None:
        data["position"] = place_data(place)
        data |= data["position"]
    named = areas.narrowest(found.centre.areas)
    if named is not None:
        data["place"] = named
    data["since"] = time_text(moment_of(found.since))
    data["moment"] = time_text(moment_of(found.moment))
    if found.reason:
        data["reason"] = found.reason
    data["readings"] = {
        ground.name: _plain(ground.reading.value) for ground in reversed(found.grounds) if ground.reading is not None
    }
    data["evidence"] = [_evidence(ground, found.moment, units) for ground in found.grounds]
    return data


def _evidence(ground: Ground, moment: int, units: Mapping[str, str]) -> dict[str, Any]:
    """What a condition rests on: a reading, of whom, where, from when, in seconds how old; or another situation."""
    reading = ground.reading
    if reading is None:
        return {"condition": ground.name, "situation": ground.situation}
    data: dict[str, Any] = {"condition": ground.name, "class": reading.name, "value": _plain(reading.value)}
    if reading.name in units:
        data["unit"] = units[reading.name]
    data |= {"entity": reading.entity, "time": time_text(moment_of(reading.moment))}
    data["age"] = max(0, moment - reading.moment) / SECOND
    if reading.place is not None:
        data["position"] = place_data(reading.place)
    return data | {"event": reading.position}


def _plain(value: Value) -> Value:
    return time_text(value) if isinstance(value, datetime) else value


def situation_event(found: Happening, data: dict[str, Any], number: int, cause: Cause) -> Event:
    """The event that tells of a happening; `number` tells those with one cause apart."""
    id = f"{found.situation}:{found.phase}:{cause.position}.{number}"
    return derived_event(SITUATION_TYPE, SOURCE, id, found.situation, data, cause, found.centre.place)
