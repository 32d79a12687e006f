"""What situations call for: the events that actions publish, and those that tell what is to be run (SEMANTICS §8).

Deciding is pure: an action that publishes yields the event itself; for a webhook and a Python action there is an event
`nearcast.action`, whose id tells the receiver whether it has run that already. Running is the server's affair.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from nearcast.decision.derived_event import Cause, derived_event
from nearcast.decision.infer.engine import Happening
from nearcast.model.event import Event
from nearcast.model.filter import Atom
from nearcast.model.place import Place
from nearcast.model.situation import ACTION_TYPE, Action, Effect, Publish, Run, Webhook

SOURCE = "nearcast:actions"

EFFECTS: dict[type[Effect], str] = {Webhook: "webhook", Run: "run"}
"""How the events of actions tell what is to be run."""

_BRACES = re.compile(r"\{([^{}]*)\}")


def lone_situation(action: Action) -> str | None:
    """The class of situations that alone calls for an action, at each of them; None: several must come together."""
    when = action.when
    return when.name if isinstance(when, Atom) and isinstance(when.name, str) and when.value is True else None


def action_events(
    action: Action, found: Happening, data: Mapping[str, Any], number: int, cause: Cause
) -> Iterator[Event]:
    """The events of an action's effects at a happening; `data` is what the situation's event has."""
    if found.phase not in action.phases:
        return
    for index, effect in enumerate(action.effects):
        id = f"{action.id}:{found.situation}:{found.phase}:{cause.position}.{number + index}"
        yield _event(action, effect, found, data, id, cause)


def _event(action: Action, effect: Effect, found: Happening, data: Mapping[str, Any], id: str, cause: Cause) -> Event:
    place = found.centre.place
    if isinstance(effect, Publish):
        told = filled(json.loads(effect.data), values_of(action, data, place))
        return derived_event(effect.type, SOURCE, id, found.situation, told, cause, place)
    # What is called stands in the definition alone: an event is for whoever may hear it.
    told = {"action": action.id, "effect": EFFECTS[type(effect)], "situation": dict(data)}
    return derived_event(ACTION_TYPE, SOURCE, id, found.situation, told, cause, place)


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
