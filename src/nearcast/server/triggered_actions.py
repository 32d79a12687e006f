"""Actions at what subscriptions select and relations tell: seen in the log of deliveries, and run as any other.

The log of deliveries tells how far is decided; what was derived up to there is in the log of derived events by then. So
one mark is enough for both.
"""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pyarrow.compute as pc

from nearcast.model.columns import to_events
from nearcast.model.event import Event, cloud_event
from nearcast.model.relation import RELATION_EVENT
from nearcast.model.sequence import part_of, position_of, sequence
from nearcast.model.situation import ACTION_TYPE, Action, Webhook
from nearcast.server.action_runner import ActionRunner
from nearcast.situations.events import ACTION_SOURCE


class TriggeredActions(ActionRunner):
    """Runs the actions that have a trigger, at least once for each event, however many clients get it."""

    log, role = "deliveries", "triggers"

    def _calls(self, after: int, count: int) -> list[Event]:
        """The events that call for what is to be run for what was decided at so many positions."""
        actions = [one for one in list(self.registry.actions.values()) if one.trigger is not None]
        found = [*self._of_subscriptions(actions, after, count), *self._of_relations(actions, after, count)]
        return sorted(found, key=lambda event: (event.sequence, event.id))

    def _of_subscriptions(self, actions: list[Action], after: int, count: int) -> Iterator[Event]:
        """What is to be run for events that subscriptions selected, each once."""
        by_id = _by_id(actions, "subscription")
        if not by_id:
            return
        rows = self.journal.read("deliveries", after, count)
        selected: dict[int, set[str]] = {}
        columns = (rows.column(name).to_pylist() for name in ("position", "part", "subscription", "others"))
        for position, part, subscription, others in zip(*columns, strict=True):
            ids = {subscription, *(one["subscription"] for one in others or ())} & by_id.keys()
            if ids:
                selected.setdefault(sequence(position, part or 0), set()).update(ids)
        for at, ids in sorted(selected.items()):
            event = self._event(at)
            if event is not None:
                for id in sorted(ids):
                    yield from (call for action in by_id[id] for call in _calls(action, event))

    def _of_relations(self, actions: list[Action], after: int, count: int) -> Iterator[Event]:
        """What is to be run for what relations emitted."""
        by_id = _by_id(actions, "relation")
        if not by_id:
            return
        rows = self.journal.read("derived", after, count)
        for event in to_events(rows.filter(pc.equal(rows.column("type"), RELATION_EVENT))):
            data = orjson.loads(event.payload)["data"]
            for action in by_id.get(data["relation"], ()):
                if action.trigger is not None and data["detect"] in action.trigger.detect:
                    yield from _calls(action, event)

    def _event(self, at: int) -> Event | None:
        """The event of a sequence."""
        rows = self.journal.read("derived" if part_of(at) else "events", position_of(at) - 1, 1)
        found = to_events(rows.filter(pc.equal(rows.column("part"), part_of(at))))
        return found[0] if found else None

    def _read_mark(self) -> int:
        """As of others; where there is none yet it begins here: what was before any trigger calls for nothing."""
        notes = self.journal.notes
        if self._path is not None and not self._path.exists() and not (notes.shared and notes.read(self.role)):
            self._write_mark(self.journal.end(self.log))
        return super()._read_mark()


def _by_id(actions: list[Action], kind: str) -> dict[str, list[Action]]:
    """Actions by the id of what calls for them, of one kind."""
    found: dict[str, list[Action]] = {}
    for action in actions:
        if action.trigger is not None and action.trigger.kind == kind:
            found.setdefault(action.trigger.id, []).append(action)
    return found


def _calls(action: Action, event: Event) -> Iterator[Event]:
    """The events that call, as of an event, for each effect of an action."""
    trigger = action.trigger
    assert trigger is not None
    for effect in action.effects:
        kind = "webhook" if isinstance(effect, Webhook) else "run"
        id = f"{action.id}:{kind}:{event.position}.{event.part}"
        document = cloud_event(id, ACTION_TYPE, ACTION_SOURCE, event.entity, event.time or event.accepted)
        data = {"action": action.id, "effect": kind, trigger.kind: trigger.id, "event": orjson.loads(event.payload)}
        yield Event(
            id=id,
            type=ACTION_TYPE,
            source=ACTION_SOURCE,
            subject=event.entity,
            payload=orjson.dumps({**document, "data": data}),
            position=event.position,
            part=event.part,
        )
