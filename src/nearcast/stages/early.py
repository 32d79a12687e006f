"""Deciding early: what an event and the definitions as of its position are enough for (semantics §10).

An access server decides the events of channels with decentralised delivery as soon as they are in the journal, by the
stages of the pipeline but without those that derive events and without a repository. What a filter asks of the latter
(who else is where, what was before) is taken to hold: where a filter so widened selects an event for a client, that
client's delivery is left to the pipeline. So whatever is decided here the pipeline decides alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.filters.spatial_atoms import spatial_atoms
from nearcast.matching.spatial.geometry_sharing import match_within_budget
from nearcast.model.changes import (
    Change,
    ClientChange,
    ClientRemoval,
    SettingsChange,
    SubscriptionChange,
    SubscriptionRemoval,
)
from nearcast.model.columns import EVENTS, NO_DELIVERIES, are_control
from nearcast.model.event import Event
from nearcast.model.expression import Call, remembered
from nearcast.model.filter import And, Atom, Entities, Filter, Not, Operator, Or, PlainNot, atoms, located_sides
from nearcast.model.subscription import Settings
from nearcast.stages.adapt import adapt, heard_by
from nearcast.stages.fold import FoldedBatch, StateFold
from nearcast.stages.isolation import rejected
from nearcast.state.fallen_clocks import FallenClocks
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository

OF_RECEIVERS = (SettingsChange, ClientChange, ClientRemoval, SubscriptionChange, SubscriptionRemoval)
"""The changes on which it rests who gets a published event."""

OF_CLIENTS = (ClientChange, ClientRemoval)
"""Those of them after which the filters are the same, but where they ask for readings of their receivers."""

FALSE = Atom("type", Operator.IS_NULL, None)
"""An atom that never holds, as every event has a type."""


@dataclass(frozen=True, slots=True)
class EarlyDecisions:
    """What was decided early of a table of EVENTS.

    `positions`: of the events that were; `deliveries` of these, and (position, client) of what is left to the pipeline.
    `left_through`: up to there some events that might have been decided were not; 0: none.
    """

    positions: Sequence[int]
    deliveries: pa.Table
    unsure: Sequence[tuple[int, str]]
    left_through: int = 0


class EarlyDecider:
    """Follows the log of events from a position on, as of which `registry` is, and decides what can be decided early.

    What is refused or left out in the pipeline (semantics §12) is here too.
    """

    def __init__(self, registry: Registry) -> None:
        # As it is defined, for whether there is room for more rests on that; what is decided by is widened.
        self._defined, widened = registry.copy(), Registry(registry.settings)
        self._unsure = _WatchedSubscriptions()
        self._blocking = _WatchedSubscriptions()
        own = [*enumerate(one for one in registry.changes() if isinstance(one, OF_RECEIVERS))]
        faulty = rejected(own, registry.settings)
        for number, change in own:
            if number not in faulty:
                widened.apply(self._widened(change), limited=False)
        self._known = StateFold(widened, stages=())
        self._changes: dict[int, list[Change]] = {}
        self._batch: FoldedBatch = next(self._known.fold(EVENTS.empty_table(), self._read))

    @property
    def settings(self) -> Settings:
        """The settings as of now."""
        return self._defined.settings

    def decide(self, events: pa.Table, changes: Mapping[int, Sequence[Change]]) -> EarlyDecisions:
        """Decides a table of EVENTS that goes on where the last one ended; `changes` are those of its control events,
        by position.
        """
        before = decentralised(self.settings)
        for position, own in sorted(changes.items()):
            self._admit(position, own)
        found = [self._of_batch(batch) for batch in self._batches(events)]
        positions = [position for one in found for position in one.positions]
        blocked, left = bool(self._blocking.ids), 0
        self._unsure.forget_ended()
        self._blocking.forget_ended()
        if not decentralised(self.settings) <= before:
            # What came before in a channel that is decided early from now on may still wait for the pipeline.
            left = max(changes)
        if positions and blocked:
            return EarlyDecisions([], NO_DELIVERIES, [], positions[-1])
        deliveries = pa.concat_tables([NO_DELIVERIES, *(one.deliveries for one in found)])
        return EarlyDecisions(positions, deliveries, [each for one in found for each in one.unsure], left)

    def _batches(self, events: pa.Table) -> Sequence[FoldedBatch]:
        """The events in batches, each with all that deciding it takes."""
        if not self._changes:
            # What is known is as it was: nothing but definitions and clients counts here.
            return [replace(self._batch, events=events)]
        listed = [change for own in self._changes.values() for change in own]
        if all(isinstance(one, OF_CLIENTS) for one in listed):
            # Clients that move are common. No filter comes, so no index needs to know what events are like.
            [clients] = self._fold(events.filter(are_control(events)))
            found = [replace(clients, events=events)]
        else:
            found = self._fold(events)
        self._batch = found[-1].without_events()
        self._changes.clear()
        return found

    def _fold(self, events: pa.Table) -> list[FoldedBatch]:
        found = [*self._known.fold(events, self._read)]
        # What came is of no account for what comes: it is not asked for.
        self._known.repository, self._known.fallen_clocks = Repository(), FallenClocks()
        self._known.refusals.clear()
        return found

    def _of_batch(self, batch: FoldedBatch) -> EarlyDecisions:
        names = pa.array(sorted(decentralised(batch.settings)), pa.string())
        events = batch.events.filter(pc.is_in(batch.events.column("channel"), value_set=names))
        if not len(events):
            return EarlyDecisions([], NO_DELIVERIES, [])
        pairs = match_within_budget(batch.index.match, events, batch.around)
        # The pipeline tells of it.
        batch.around.excess.clear()
        deliveries, positions = adapt(batch, events, pairs), events.column("position").to_pylist()
        unsure = heard_by(batch, events, pairs, self._unsure.ids) if self._unsure.ids else set()
        if unsure:
            keys = zip(deliveries.column("position").to_pylist(), deliveries.column("client").to_pylist(), strict=True)
            deliveries = deliveries.filter(pa.array([key not in unsure for key in keys], pa.bool_()))
        return EarlyDecisions(positions, deliveries, sorted(unsure))

    def _read(self, event: Event, settings: Settings) -> list[Change]:
        return self._changes.get(event.position, [])

    def _admit(self, position: int, changes: Sequence[Change]) -> None:
        """Takes note of what counts of the changes at a position."""
        for change in changes:
            known = self._defined
            if not isinstance(change, OF_RECEIVERS) or known.refusal(change):
                continue
            if not rejected([(position, change)], known.settings):
                known.apply(change)
                self._changes.setdefault(position, []).append(self._widened(change))

    def _widened(self, change: Change) -> Change:
        """A change as it is taken here: a subscription with its filter widened."""
        match change:
            case SubscriptionRemoval(id):
                asked = []
            case SubscriptionChange(subscription):
                id, asked = subscription.id, [one for one in atoms(subscription.filter) if asks_of_others(one)]
            case _:
                return change
        self._unsure.note(id, bool(asked))
        # All filters share what work an event's geometries may take: without one of them others would have more.
        self._blocking.note(id, any(any(True for _ in spatial_atoms(atom)) for atom in asked))
        if not asked:
            return change
        return SubscriptionChange(replace(subscription, filter=widened(subscription.filter)))


class _WatchedSubscriptions:
    """The subscriptions of which something is so, or was in this table: `ids`."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self._ended: set[str] = set()

    def note(self, id: str, watched: bool) -> None:
        """Takes note of a subscription that comes or goes."""
        if watched:
            self.ids.add(id)
            self._ended.discard(id)
        elif id in self.ids:
            # The events of the table that came before it are still selected by it as it was.
            self._ended.add(id)

    def forget_ended(self) -> None:
        """Forgets what was so, as a table ends."""
        self.ids -= self._ended
        self._ended.clear()


def decentralised(settings: Settings) -> frozenset[str]:
    """The channels whose events access servers decide too."""
    return frozenset(one.name for one in settings.channels if one.delivery == "decentralised")


def asks_of_others(atom: Atom) -> bool:
    """Whether an atom rests on events before: on those of other entities, or on the last one of its own."""
    if isinstance(atom.name, str):
        return False
    if isinstance(atom.name, Call):
        return bool(remembered(atom.name))
    return any(isinstance(side, Entities) for side in located_sides(atom.name))


def widened(filter: Filter, positive: bool = True) -> Filter:
    """The filter with each atom that asks of others in place of one that lets it hold: it covers the filter.

    It has as many atoms, in the same order. Under a negation (not `positive`) it is covered by it.
    """
    match filter:
        case Atom():
            return filter if not asks_of_others(filter) else Not(FALSE) if positive else FALSE
        case Not(child) | PlainNot(child):
            return type(filter)(widened(child, not positive))
        case And(children) | Or(children):
            return type(filter)(tuple(widened(child, positive) for child in children))
