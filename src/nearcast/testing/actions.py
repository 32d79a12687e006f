"""Python actions tried on a history, without a server: called as the access server calls them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nearcast.api.definition_files import Definitions, changes_of
from nearcast.api.history import replay
from nearcast.errors import DefinitionError, Fault
from nearcast.model.changes import ActionChange
from nearcast.model.event import MAIN
from nearcast.model.situation import ACTION_TYPE, Run

PythonAction = Callable[[dict[str, Any], dict[str, Any]], object]


@dataclass(frozen=True, slots=True)
class ActionRun:
    """One call of a Python action: its name, the event and the arguments that it was given, and what it raised."""

    name: str
    event: dict[str, Any]
    arguments: dict[str, Any]
    error: Exception | None = None


def run_actions(
    events: Iterable[Any], definitions: Definitions, actions: Mapping[str, PythonAction]
) -> list[ActionRun]:
    """Calls `actions`, by the names under which they would be registered, for each event with which the access server
    would call them; webhooks are not called.

    A server tries an action again that raises; here it is called once. What happens while definitions change within the
    history counts as if it had not. Raises as `replay`, and `DefinitionError` for a name that is not among `actions`.
    """
    changes = [change.action for change in changes_of(definitions, MAIN) if isinstance(change, ActionChange)]
    effects = {action.id: [one for one in action.effects if isinstance(one, Run)] for action in changes}
    missing = sorted({one.name for found in effects.values() for one in found} - actions.keys())
    if missing:
        known = ", ".join(sorted(actions)) or "none"
        raise DefinitionError([Fault(f"a function for the action {name}", known) for name in missing])
    derived: list[dict[str, Any]] = []
    for _ in replay(iter(events), definitions, on_derived=derived.append):
        pass
    told = [event for event in derived if event["type"] == ACTION_TYPE and event["data"]["effect"] == "run"]
    return [_called(one, event, actions) for event in told for one in effects.get(event["data"]["action"], ())]


def _called(run: Run, event: dict[str, Any], actions: Mapping[str, PythonAction]) -> ActionRun:
    arguments: dict[str, Any] = json.loads(run.arguments)
    try:
        actions[run.name](event, arguments)
    except Exception as error:
        return ActionRun(run.name, event, arguments, error)
    return ActionRun(run.name, event, arguments)
