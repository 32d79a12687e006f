"""The events that tell of situations, and those that actions publish or call for (semantics §8).

Deciding is pure: an action that publishes yields the event itself; for a webhook and a Python action there is an event
`nearcast.action`, whose id tells the receiver whether it has run that already. Running is the server's affair.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from nearcast.model.event import Event, Place, place_data
from nearcast.model.filter import Atom
from nearcast.model.situation import ACTION_TYPE, SITUATION_TYPE, Action, Effect, Publish, Run, Webhook
from nearcast.model.values import Value, moment_at, time_text
from nearcast.situations.counts.entity_counts import CountFinding
from nearcast.situations.evaluation import Evidence
from nearcast.situations.instances import SituationChanged
from nearcast.situations.readings import NamedAreas
from nearcast.situations.rule_plan import SECOND
from nearcast.situations.zone_areas import zone_name
from nearcast.state.derived import Cause, derived_event
from nearcast.state.windows import AggregateFinding

SITUATION_SOURCE = "nearcast:situations"


def situation_data(found: SituationChanged, areas: NamedAreas, units: Mapping[str, str]) -> dict[str, Any]:
    """What a situation's event has as data."""
    data: dict[str, Any] = {"situation": found.rule, "class": found.concludes, "id": found.situation}
    data["phase"] = found.phase
    place = found.centre.place
    if place is not None:
        data["position"] = place_data(place)
        data |= data["position"]
    named = areas.narrowest(found.centre.areas)
    if found.zone is not None:
        data["layer"], data["zone"] = zone_name(found.zone)
        named = named or data["zone"]
    if named is not None:
        data["place"] = named
    data["since"] = time_text(moment_at(found.since))
    data["moment"] = time_text(moment_at(found.moment))
    if found.reason:
        data["reason"] = found.reason
    data["readings"] = {
        ground.name: _plain(ground.reading.value) for ground in reversed(found.grounds) if ground.reading is not None
    }
    counted = next((ground.counts for ground in found.grounds if ground.counts is not None), None)
    if counted is not None:
        data["count"] = counted.counted
    data["evidence"] = [_evidence(ground, found.moment, units) for ground in found.grounds]
    return data


def _evidence(ground: Evidence, moment: int, units: Mapping[str, str]) -> dict[str, Any]:
    """What a condition rests on: a reading, of whom, where, from when, in seconds how old; how many entities there
    are; or another situation.
    """
    reading = ground.reading
    if ground.counts is not None:
        return {"condition": ground.name, "count": count_data(ground.counts)}
    if reading is None:
        return {"condition": ground.name, "situation": ground.situation}
    data: dict[str, Any] = {"condition": ground.name, "class": reading.name, "value": _plain(reading.value)}
    if reading.name in units:
        data["unit"] = units[reading.name]
    if ground.over is not None:
        data["aggregate"] = aggregate_data(ground.over)
    data |= {"entity": reading.entity, "time": time_text(moment_at(reading.moment))}
    data["age"] = max(0, moment - reading.moment) / SECOND
    if reading.place is not None:
        data["position"] = place_data(reading.place)
    return data | {"event": reading.position}


def aggregate_data(found: AggregateFinding) -> dict[str, Any]:
    """An aggregate over a time: of how many readings, from when to when, and its value."""
    data: dict[str, Any] = {"of": found.text, "value": found.value, "readings": found.readings}
    if found.readings:
        data |= {"from": time_text(moment_at(found.first)), "to": time_text(moment_at(found.last))}
    return data


def count_data(found: CountFinding) -> dict[str, Any]:
    """A count of entities: how many there are, of how many more it is unknown, and some of both."""
    data: dict[str, Any] = {"counted": found.counted, "unknown": found.unknown, "newest": list(found.newest)}
    return data | ({"doubtful": list(found.doubtful)} if found.doubtful else {})


def _plain(value: Value) -> Value:
    return time_text(value) if isinstance(value, datetime) else value


def situation_event(found: SituationChanged, data: dict[str, Any], number: int, cause: Cause) -> Event:
    """The event that tells of a change; `number` tells those with one cause apart."""
    id = f"{found.situation}:{found.phase}:{cause.position}.{number}"
    return derived_event(
        SITUATION_TYPE, SITUATION_SOURCE, id, found.situation, data, cause, found.centre.place, time=_time(found)
    )


def _time(found: SituationChanged) -> datetime | None:
    """When it happened, by the clock; None while nothing told a time."""
    return moment_at(found.moment) if found.moment else None


ACTION_SOURCE = "nearcast:actions"

EFFECTS: dict[type[Effect], str] = {Webhook: "webhook", Run: "run"}
"""How the events of actions tell what is to be run."""

_BRACES = re.compile(r"\{([^{}]*)\}")


def lone_situation(action: Action) -> str | None:
    """The class of situations that alone calls for an action, at each of them; None: several must come together."""
    when = action.when
    return when.name if isinstance(when, Atom) and isinstance(when.name, str) and when.value is True else None


def action_events(
    action: Action, found: SituationChanged, data: Mapping[str, Any], number: int, cause: Cause
) -> Iterator[Event]:
    """The events of an action's effects at a change; `data` is what the situation's event has."""
    if found.phase not in action.phases:
        return
    for index, effect in enumerate(action.effects):
        id = f"{action.id}:{found.situation}:{found.phase}:{cause.position}.{number + index}"
        yield _event(action, effect, found, data, id, cause)


def _event(
    action: Action, effect: Effect, found: SituationChanged, data: Mapping[str, Any], id: str, cause: Cause
) -> Event:
    place = found.centre.place
    if isinstance(effect, Publish):
        told = filled(json.loads(effect.data), values_of(action, data, place))
        return derived_event(effect.type, ACTION_SOURCE, id, found.situation, told, cause, place, time=_time(found))
    # What is called stands in the definition alone: an event is for whoever may hear it.
    told = {"action": action.id, "effect": EFFECTS[type(effect)], "situation": dict(data)}
    return derived_event(ACTION_TYPE, ACTION_SOURCE, id, found.situation, told, cause, place, time=_time(found))


def values_of(action: Action, data: Mapping[str, Any], place: Place | None) -> dict[str, str]:
    """What the names in braces stand for, in a text."""
    position = "" if place is None else f"{place.x:g}, {place.y:g}"
    names = ("situation", "class", "id", "phase", "place", "since", "reason")
    found = {"action": action.id, "position": position}
    found |= {name: str(data.get(name, "")) for name in names}
    # Where no place has a name, its position tells where it is.
    found["place"] = found["place"] or position or "an unknown place"
    return found | {f"readings.{name}": _text(value) for name, value in data["readings"].items()}


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def filled(data: Any, values: Mapping[str, str]) -> Any:
    """Data with the braces in its texts filled in; a text that is nothing but readings.CLASS stays a text."""
    if isinstance(data, dict):
        return {name: filled(value, values) for name, value in data.items()}
    if isinstance(data, list):
        return [filled(value, values) for value in data]
    if isinstance(data, str):
        return _BRACES.sub(lambda found: values.get(found[1], "unknown"), data)
    return data
