"""What was known as of an event's position: a fold over the journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.explain.explanation import ExplanationScene
from nearcast.explain.past_state import EntityChanges, Parse, PastState, changes_of, derives
from nearcast.model.changes import SubscriptionChange
from nearcast.model.columns import are_control, to_events
from nearcast.model.event import Event
from nearcast.stages.fold import StateFold
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository, entities


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
    before, after = EntityChanges(derives=derives(state)), EntityChanges()
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


def with_derived(past: PastState, tables: Iterable[pa.Table], parse: Parse, registry: Registry) -> PastState:
    """The same, also with what was derived before the event: tables are folded as the pipeline folds them.

    `tables` and `registry` are those of `state_at`.
    """
    known, event = StateFold(without_subscriptions(registry)), past.scene.event
    for table in tables:
        rows = table.filter(pc.less(table.column("position"), event.position))
        for _ in known.fold(rows, only_deriving(parse)) if len(rows) else ():
            pass
    scene = replace(past.scene, newest=PastEntities(known.repository.newest(), event.entity))
    return PastState(scene, past.before, past.after)


def without_subscriptions(registry: Registry) -> Registry:
    """A copy of a registry: nothing is derived from what is asked for."""
    return replace(registry.copy(), subscriptions={})


def only_deriving(parse: Parse) -> Parse:
    """Reads control events, but no subscriptions."""
    return lambda event, settings: [one for one in parse(event, settings) if not isinstance(one, SubscriptionChange)]


def _world(table: pa.Table) -> pa.Table:
    return table.filter(pc.invert(are_control(table)))


def _fold(table: pa.Table, state: Registry, noted: EntityChanges, parse: Parse) -> None:
    """Applies the control events of a table; one that cannot be taken changes nothing."""
    for event in to_events(table.filter(are_control(table))):
        for change in changes_of(event, state, parse):
            state.apply(change)
            noted.note(event.position, change)
