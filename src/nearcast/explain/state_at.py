"""What was known as of an event's position, and who came and went around it: a fold over the journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.errors import EventError
from nearcast.explain.explanation import ExplanationScene
from nearcast.model.changes import Change, ClientChange, ClientRemoval, SubscriptionChange, SubscriptionRemoval
from nearcast.model.columns import are_control, to_events
from nearcast.model.event import Event
from nearcast.stages.fold import Parse
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository, entities


@dataclass(slots=True)
class EntityChanges:
    """When clients and subscriptions came and went, on one side of an event: positions by id.

    `came` is the first time, `went` the last; `receivers` names those of each subscription that came.
    """

    clients_came: dict[str, int] = field(default_factory=dict)
    clients_went: dict[str, int] = field(default_factory=dict)
    came: dict[str, int] = field(default_factory=dict)
    went: dict[str, int] = field(default_factory=dict)
    receivers: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def note(self, position: int, change: Change) -> None:
        """Takes note of one change."""
        match change:
            case ClientChange():
                self.clients_came.setdefault(change.client, position)
            case ClientRemoval(name):
                self.clients_went[name] = position
            case SubscriptionChange(subscription):
                self.came.setdefault(subscription.id, position)
                self.receivers[subscription.id] = subscription.clients
            case SubscriptionRemoval(id):
                self.went[id] = position


@dataclass(slots=True)
class PastState:
    """The journal around one position: the state before it, and when who came and went before and after it."""

    scene: ExplanationScene
    before: EntityChanges
    after: EntityChanges


class PastEntities:
    """The newest event of every entity, that of one of them first; read out of columns as far as they are asked for."""

    def __init__(self, newest: pa.Table, first: str) -> None:
        own = pc.equal(entities(newest), first)
        self._own, self._others = to_events(newest.filter(own)), newest.filter(pc.invert(own))
        self._read: list[Event] | None = None

    def __iter__(self) -> Iterator[Event]:
        yield from self._own
        if self._read is None:
            self._read = to_events(self._others)
        yield from self._read


def state_at(
    tables: Iterable[pa.Table],
    position: int,
    parse: Parse,
    registry: Registry | None = None,
    derived: Event | None = None,
) -> PastState:
    """Folds tables of EVENTS, ascending by position, around the event at `position`, which must be among them.

    `registry` is what was there before the first of them; `derived` an event derived from that at `position`, if it is
    the one that is meant.
    """
    state, repository = registry or Registry(), Repository()
    scene: ExplanationScene | None = None
    before, after = EntityChanges(), EntityChanges()
    for table in tables:
        rows = table.filter(pc.less(table.column("position"), position))
        here = table.filter(pc.equal(table.column("position"), position))
        rest = table.filter(pc.greater(table.column("position"), position))
        _fold(rows, state, before, parse)
        repository.fold_within(_world(rows), state.settings.limits)
        if len(here):
            event = derived or to_events(here)[0]
            scene = ExplanationScene(state.copy(), PastEntities(repository.newest(), event.entity), event)
            _fold(here, state, after, parse)
        _fold(rest, state, after, parse)
    assert scene is not None, "the position is one of the journal"
    return PastState(scene, before, after)


def _world(table: pa.Table) -> pa.Table:
    return table.filter(pc.invert(are_control(table)))


def _fold(table: pa.Table, state: Registry, noted: EntityChanges, parse: Parse) -> None:
    """Applies the control events of a table; one that cannot be taken changes nothing."""
    for event in to_events(table.filter(are_control(table))):
        for change in _parsed(event, state, parse):
            state.apply(change)
            noted.note(event.position, change)


def _parsed(event: Event, state: Registry, parse: Parse) -> list[Change]:
    try:
        return parse(event, state.settings)
    except EventError:
        return []
