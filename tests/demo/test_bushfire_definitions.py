"""The bushfire afternoon's definitions, as the language layer reads them from a file, and whom its events concern."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nearcast.demo.bushfire import Scenario
from nearcast.errors import Mark
from nearcast.filters.evaluate import EmptyContext, level_of
from nearcast.filters.relevance import classes_of, role_relevance
from nearcast.language.cloudevents import read_event
from nearcast.language.definitions.client_documents import client_document
from nearcast.language.definitions.files import DefinitionSet
from nearcast.model.event import Event, Place
from nearcast.model.filter import atoms
from nearcast.state.registry import Registry


def test_bushfire(loaded: Callable[[dict[str, Any]], DefinitionSet]) -> None:
    """The afternoon's definitions load without a fault or a warning."""
    definitions = loaded(Scenario().definitions())
    assert (25, ()) == (len(definitions.clients), definitions.warnings)
    assert {True, False} == {subscription.conflate for subscription in definitions.subscriptions}


class Valley(EmptyContext):
    """What is known as of a step: the registry and the newest event of every entity."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.newest: dict[str, Event] = {}

    def user(self, name: str) -> Place | None:
        """Where that client is."""
        return self.registry.clients[name].place

    def entities(self) -> list[Event]:
        """The newest event of every entity."""
        return list(self.newest.values())

    def levels(self, event: Event) -> dict[str, int]:
        """The level that the event has for each client that gets it."""
        found: dict[str, int] = {}
        for subscription in self.registry.subscriptions.values():
            count = len(list(atoms(subscription.filter)))
            for id in subscription.clients:
                client = self.registry.clients[id]
                vector = role_relevance(subscription, self.registry.settings.roles, client.role, client.task)
                level = level_of(subscription.filter, classes_of(vector, count, 3), event, self)
                found[id] = max(found.get(id, -1), -1 if level is None else level)
        return {id: level for id, level in found.items() if level >= 0}


def test_whom_events_concern(loaded: Callable[[dict[str, Any]], DefinitionSet]) -> None:
    """Everybody gets something, nobody everything; a rise is urgent to residents near it, what crews say to none."""
    scenario = Scenario()
    valley = Valley(Registry())
    for change in loaded(scenario.definitions()).changes():
        valley.registry.apply(change)
    reached: dict[str, int] = {}
    told: dict[str, set[int]] = {"rise": set(), "chat": set()}
    events = 0
    for step in scenario.steps():
        if step.kind == "client":
            change = client_document(step.document["data"], Mark("step"), valley.registry.settings)
            valley.registry.apply(change)
        elif step.kind == "event":
            event = read_event(step.document, Mark("step"))
            levels = valley.levels(event)
            reached = {id: reached.get(id, 0) + (id in levels) for id in valley.registry.clients}
            home = {level for id, level in levels.items() if valley.registry.clients[id].task == "home"}
            told["rise"] |= home if step.document["data"].get("rise") else set()
            told["chat"] |= set(levels.values()) if event.type == "chat" else set()
            valley.newest[event.entity] = event
            events += 1
    assert {2} == told["rise"]
    assert {0} == told["chat"]
    assert 0 < min(reached.values()) <= max(reached.values()) < events
    assert sum(reached.values()) < 0.3 * events * len(reached)
