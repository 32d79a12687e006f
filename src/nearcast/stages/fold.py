"""The first stage, known: folds a batch into what is known, and gives the batch with all it needs to be decided.

What is known — settings, clients, subscriptions, the newest event of every entity — is a fold over the journal. A batch
goes on with the state at its start and every change inside it, so what follows may run anywhere, in any parts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.delivery.priority import priority_row
from nearcast.delivery.subscription_index import GroupAssignments, SubscriptionIndex, role_number
from nearcast.errors import EventError, Fault, Mark
from nearcast.matching.incremental import PartitionedIndex
from nearcast.model.arrays import Integers
from nearcast.model.changes import (
    Change,
    ClientChange,
    ClientRemoval,
    RelationChange,
    RelationRemoval,
    SettingsChange,
)
from nearcast.model.columns import any_control, are_control, to_events
from nearcast.model.event import Event, Place
from nearcast.model.subscription import ClientProfile, Settings
from nearcast.relations.lanes.scopes import Scope, Scopes
from nearcast.relations.pairs import PairRelations
from nearcast.relations.shards import SHARDS
from nearcast.situations.stage import SituationStage
from nearcast.stages.isolation import rejected
from nearcast.stages.term_members import MembershipTracker, TermConditions
from nearcast.state.derived import DERIVED, At, DerivingStage, StageInput, pieces
from nearcast.state.fallen_clocks import FallenClocks
from nearcast.state.lateness import FOREVER, NEVER
from nearcast.state.previous_values import PreviousValues
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository, without_excess
from nearcast.state.stream_clocks import StreamClocks
from nearcast.state.timeline import Environment, Excess, Followed, Timeline
from nearcast.zones.stage import ZONE_CHANGES, ZoneStage

SETTINGS_TYPE = "nearcast.settings"
"""The type of the control events that change limits."""

OF_STAGES = (RelationChange, RelationRemoval, *ZONE_CHANGES)
"""What changes only what stages do, who may refuse it."""

Parse = Callable[[Event, Settings], list[Change]]
"""Reads a control event; raises EventError where it cannot be taken."""


@dataclass(frozen=True, slots=True)
class ClientStates:
    """Of each client over a batch: where it is, the number of its role, and its priorities by level."""

    places: Timeline[str, Place | None] = field(default_factory=Timeline)
    roles: Timeline[str, int] = field(default_factory=Timeline)
    priorities: Timeline[str, tuple[int, ...]] = field(default_factory=Timeline)

    def set(self, client: ClientProfile, settings: Settings, position: int) -> None:
        """Records how a client is from a position on."""
        self.places.record_change(client.id, position, client.place)
        self.roles.record_change(client.id, position, role_number(client, settings.roles))
        self.priorities.record_change(client.id, position, priority_row(settings, client))

    def after(self) -> ClientStates:
        """The clients as the next batch begins with them."""
        return ClientStates(self.places.after(), self.roles.after(), self.priorities.after())


@dataclass(frozen=True, slots=True)
class FoldedBatch:
    """Events of the world and what was derived from them, by position and part, and all that deciding them takes.

    Settings do not change in it.
    """

    events: pa.Table
    settings: Settings
    index: PartitionedIndex
    assignments: GroupAssignments
    around: Environment
    clients: ClientStates

    def without_events(self) -> FoldedBatch:
        """The same for events that come from elsewhere: what a worker needs."""
        # A slice of no rows would still carry all its buffers along.
        return replace(self, events=self.events.schema.empty_table())


@dataclass(frozen=True, slots=True)
class RejectedChange:
    """A control event that changed nothing, and why."""

    event: Event
    error: EventError


class StateFold:
    """What is known as of `position`: the registry, the repository, and what is compiled from them."""

    def __init__(
        self,
        registry: Registry | None = None,
        repository: pa.Table | None = None,
        position: int = 0,
        stages: Sequence[DerivingStage] | None = None,
    ) -> None:
        self.registry = registry or Registry()
        self.repository = Repository(repository)
        self.position = position
        self.refusals: list[RejectedChange] = []
        # Stages that come with what they keep know the registry already; others hear of it with the first batch.
        self._unheard = [(position, change) for change in self.registry.changes()] if stages is None else []
        self.stages: Sequence[DerivingStage] = derived_stages() if stages is None else stages
        self.forgotten = 0
        self.fallen_clocks = FallenClocks()
        self._times: dict[int, datetime | None] = {}
        self._control: dict[int, Event] = {}
        # Of the next batch to be given.
        self._excess: Counter[Excess] = Counter()
        self._following = MembershipTracker()
        self._remembered = PreviousValues()
        self._clients = self._all_clients()
        self._subscription_index: SubscriptionIndex | None = None
        self._terms = TermConditions()

    @property
    def pairings(self) -> Mapping[Scope, PairRelations]:
        """The relations between pairs, by scope; nothing where nothing is related."""
        return next((stage.pairings for stage in self.stages if isinstance(stage, Scopes)), {})

    def pairing_of(self, relation: str) -> PairRelations | None:
        """The relations among which one is, whatever its scope and lateness; None where it is not there."""
        return next((stage.pairing_of(relation) for stage in self.stages if isinstance(stage, Scopes)), None)

    @property
    def clocks(self) -> StreamClocks:
        """How far the clocks have come."""
        found = StreamClocks(self.registry.settings.channels)
        for stage in self.stages:
            own = stage.clocks.by_name
            found.set_to(np.array([own.get(name, NEVER) for name in found.names], np.int64))
        return found

    def next_due(self, clocks: StreamClocks) -> int:
        """Microseconds until something is told though no event comes; see `DerivingStage.next_due`."""
        return min((stage.next_due(clocks) for stage in self.stages), default=FOREVER)

    def fold(self, table: pa.Table, parse: Parse) -> Iterator[FoldedBatch]:
        """Folds a table of EVENTS that begins after `position`, giving batches that are cut where settings change.

        Control events that cannot be taken, by their readers or by a stage, are added to `refusals` and change
        nothing. Take every batch: a batch is folded when it is asked for.
        """
        for part, world, full in self._parts(table):
            yield from self._fold(part, world, parse)
            if full:
                self._forget()

    def _forget(self) -> None:
        """Forgets the entities that are beyond the limits, everywhere."""
        gone = set(self.repository.oldest(self.registry.settings.limits))
        if gone:
            self.forgotten += len(gone)
            self.repository.forget(gone)
            self._remembered.forget(gone)
            self._following.forget(gone)
            for stage in self.stages:
                stage.forget(gone)

    def _parts(self, table: pa.Table) -> Iterator[tuple[pa.Table, pa.Table, bool]]:
        """The table in parts, each with its events that are no control events, and whether some entities may have to be
        forgotten after it.
        """
        done = 0
        while not done or done < len(table):
            part = table.slice(done) if done else table
            world = _world_of(part)
            # The limits are those at the beginning of a part.
            renewed = pc.index(part.column("type"), SETTINGS_TYPE).as_py() if len(world) < len(part) else -1
            if renewed >= 0:
                part = part.slice(0, renewed + 1)
                world = _world_of(part)
            deriving = len(world) < len(part) or self.registry.derives
            due = self.repository.due(world, self.registry.settings.limits, deriving)
            if due is not None:
                # They are in order, and a slice copies nothing.
                part = part.slice(0, int(np.searchsorted(part.column("position").to_numpy(), due, "right")))
                world = _world_of(part)
            yield part, world, due is not None
            done += max(1, len(part))

    def _fold(self, table: pa.Table, world: pa.Table, parse: Parse) -> Iterator[FoldedBatch]:
        control = to_events(table.filter(are_control(table))) if len(world) < len(table) else []
        changes = self._changes(control, parse)
        positions = world.column("position").to_numpy()
        done = 0
        for number, (position, change) in enumerate(changes):
            if isinstance(change, SettingsChange):
                rows = int(np.searchsorted(positions, position)), len(positions)
                start = 0 if done == 0 else int(np.searchsorted(positions, changes[done - 1][0]))
                if rows[0] > start or number > done:
                    yield from self._batches(world.slice(start, rows[0] - start), changes[done:number])
                self._change_settings(position, change)
                done = number + 1
        start = 0 if done == 0 else int(np.searchsorted(positions, changes[done - 1][0]))
        # As it is where it is whole: what is known of it already is known of the same table.
        yield from self._batches(world.slice(start) if start else world, changes[done:])
        if len(table):
            self.position = int(table.column("position")[-1].as_py())

    def _changes(self, control: Sequence[Event], parse: Parse) -> list[At]:
        """What control events change, without those that cannot be read, or that some stage cannot compile."""
        before = settings = self.registry.settings
        self._times = {event.position: event.moment for event in control}
        self._control = {event.position: event for event in control}
        found: list[At] = []
        for event in control:
            try:
                own = [(event.position, change) for change in parse(event, settings)]
            except EventError as error:
                self.refusals.append(RejectedChange(event, error))
                continue
            # What comes behind settings is read under them, so whether they count must be known at once.
            renewed = [change.settings for _, change in own if isinstance(change, SettingsChange)]
            if renewed and self._refused(own, settings):
                continue
            settings = renewed[-1] if renewed else settings
            found += own
        refused = self._refused(found, before) if found else ()
        return [one for one in found if one[0] not in refused]

    def _refused(self, changes: Sequence[At], settings: Settings) -> Collection[int]:
        """The positions of those of some changes that a stage cannot compile; they are refused."""
        found = rejected(changes, settings)
        for position, fault in found.items():
            self._refuse(position, fault)
        return found

    def _refuse(self, position: int, fault: Fault) -> None:
        event = self._control.get(position)
        # What was there from the beginning, as `registry` gave it, is of no event.
        if event is not None:
            self.refusals.append(RejectedChange(event, EventError(replace(fault, where=Mark(f"event {event.id}")))))

    def _change_settings(self, position: int, change: SettingsChange) -> None:
        self.registry.apply(change)
        self._unheard.append((position, change))
        self._clients = self._all_clients()
        if self._subscription_index:
            # Groups that are the same under the new settings stay as they are compiled.
            before, self._subscription_index = (
                self._subscription_index,
                SubscriptionIndex(self.registry, self._subscription_index.incremental_index),
            )
            before.forget_all()

    def _all_clients(self) -> ClientStates:
        clients = ClientStates()
        for client in self.registry.clients.values():
            clients.set(client, self.registry.settings, 0)
        return clients.after()

    def _batches(self, events: pa.Table, changes: Sequence[At]) -> Iterator[FoldedBatch]:
        """Events and changes with what follows from them: cut where so much is derived that memory would not hold it.

        All batches of it have all the changes, each of which counts from its position on.
        """
        subscription_index = self._subscription_index = self._subscription_index or SubscriptionIndex(self.registry)
        subscription_index.begin_batch()
        clients = self._clients
        relating = any(isinstance(change, OF_STAGES) for _, change in changes)
        before = self.registry.copy() if relating else None
        for position, change in changes:
            fault = self.registry.refusal(change)
            if fault is not None:
                self._refuse(position, fault)
                continue
            self.registry.apply(change)
            subscription_index.apply(position, change)
            if isinstance(change, ClientChange) and change.client in self.registry.clients:
                clients.set(self.registry.clients[change.client], self.registry.settings, position)
            elif isinstance(change, ClientRemoval):
                clients.places.record_change(change.client, position, None)
        for piece in self._derive(events, changes, before):
            yield self._batch(piece, clients, subscription_index)
        self._clients = clients.after()

    def _batch(self, events: pa.Table, clients: ClientStates, subscription_index: SubscriptionIndex) -> FoldedBatch:
        # These read the repository as the batch begins, so its events join it only after them.
        # What is late is decided as any other, and moves nothing.
        kept = without_excess(events, self.registry.settings.limits.entity_bytes)
        counts = self.repository.counting(kept)
        self.fallen_clocks.follow(kept, counts, self.repository.known_moments(kept))
        counted = kept if counts.all() else kept.filter(pa.array(counts))
        members = self._members(subscription_index, counted, events.column("position").to_numpy())
        previous = self._remembered.values_over(list(subscription_index.remembered), events, self.repository, counted)
        self.repository.fold_events(kept)
        # A copy: stages count on, for the next one.
        excess = Counter(self._excess)
        self._excess.clear()
        limits, spatial = self.registry.settings.limits, subscription_index.spatial.windows()
        around = Environment(clients.places, members, previous, limits, excess, spatial)
        index = subscription_index.incremental_index.index(events, around)
        return FoldedBatch(events, self.registry.settings, index, subscription_index.assignments(), around, clients)

    def _derive(self, events: pa.Table, changes: Sequence[At], before: Registry | None) -> Iterator[pa.Table]:
        """The events with what follows from them, in pieces; each stage sees what those before it derived."""
        heard, self._unheard = [*self._unheard, *changes], []
        refusals: list[tuple[int, Fault]] = []
        yield from self._through(self.stages, events, heard, refusals)
        for position, fault in refusals:
            self._refuse(position, fault)
        if refusals and before is not None:
            self._without({position for position, _ in refusals}, before, heard)

    def _through(
        self,
        stages: Sequence[DerivingStage],
        events: pa.Table,
        changes: Sequence[At],
        refusals: list[tuple[int, Fault]],
    ) -> Iterator[pa.Table]:
        """The events with what some stages derive, piece by piece: what one gives goes through all the others before it
        is asked for more.
        """
        known = self.repository.as_of_now()
        stage_input = StageInput(changes, self._times, events, self.registry, known, refusals, self._excess)
        while stages and stages[0].passes_over(stage_input):
            stages = stages[1:]
        if not stages:
            yield events
            return
        done = 0
        for piece, until in pieces(events, stages[0].derive(stage_input), DERIVED):
            end = len(changes) if until is None else bisect_left(changes, until, key=itemgetter(0))
            yield from self._through(stages[1:], piece, changes[done:end], refusals)
            done = end

    def _without(self, refused: Collection[int], before: Registry, changes: Sequence[At]) -> None:
        """Makes relations and zones what they are where some of the changes did not count."""
        self.registry.relations, self.registry.zones = before.relations, before.zones
        for position, change in changes:
            if isinstance(change, OF_STAGES) and position not in refused:
                self.registry.apply(change)

    def _members(self, subscription_index: SubscriptionIndex, events: pa.Table, positions: Integers) -> Followed:
        """Who satisfies each location term, over a batch, by its events that count; of all there are the positions."""
        terms, spatial = list(subscription_index.terms), subscription_index.spatial_of_terms.windows()
        if terms != self._terms.terms:
            self._terms = TermConditions.of(terms, spatial)
        elif spatial is not self._terms.spatial:
            self._terms = replace(self._terms, spatial=spatial)
        limits = self.registry.settings.limits
        return self._following.members_over(self._terms, events, self.repository, limits, self._excess, positions)


def _world_of(table: pa.Table) -> pa.Table:
    """The events that are no control events."""
    return table.filter(pc.invert(are_control(table))) if any_control(table) else table


def derived_stages(shards: int = SHARDS) -> Sequence[DerivingStage]:
    """The stages that derive events, in their order, as a journal begins with them; pairs that are related are kept in
    so many shards.
    """
    return (Scopes(shards), ZoneStage(), SituationStage())
