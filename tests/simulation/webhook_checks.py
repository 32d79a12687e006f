"""What must be true of webhooks: each is accepted where it is for, or is a dead letter, whatever was done meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import orjson

from nearcast.model.relation import RELATION_EVENT
from nearcast.model.situation import ACTION_TYPE

if TYPE_CHECKING:
    from tests.simulation.simulated_system import SimulatedSystem

Document = dict[str, Any]


def called(system: SimulatedSystem) -> set[str]:
    """The ids of the events that call for webhooks, as the logs say."""
    history = system.journal.history
    found = {row["id"] for row in history["derived"] if row["type"] == ACTION_TYPE}
    first = system.triggered_from
    if first is None:
        return found
    for action in system.actions:
        if "subscription" in action:
            for row in history["deliveries"]:
                ids = {row["subscription"], *(one["subscription"] for one in row["others"] or ())}
                if row["position"] > first and action["subscription"] in ids:
                    found.add(f"{action['id']}:webhook:{row['position']}.{row['part'] or 0}")
        if "relation" in action:
            for row in history["derived"]:
                if row["position"] > first and row["type"] == RELATION_EVENT:
                    data = orjson.loads(row["payload"])["data"]
                    if data["relation"] == action["relation"] and data["detect"] in ("enter", "dwell"):
                        found.add(f"{action['id']}:webhook:{row['position']}.{row['part']}")
    return found


def buried(system: SimulatedSystem) -> set[str]:
    """The ids of those that are dead letters."""
    letters = system.journal.history["dead letters"]
    return {orjson.loads(row["content"])["id"] for row in letters if row["where"].startswith("action ")}


def unrun(system: SimulatedSystem) -> set[str]:
    """Webhooks that nobody accepted, and that are no dead letters."""
    return called(system) - system.hooks.accepted - buried(system) if system.actions else set()


def webhook_faults(system: SimulatedSystem) -> Iterator[str]:
    """What is not as it must be of webhooks, once all is settled."""
    if system.actions:
        yield from (f"the webhook of {id} was neither accepted nor is it a dead letter" for id in sorted(unrun(system)))
        yield from (f"{id} was posted again by who knew it accepted" for id in system.hooks.repeated)
