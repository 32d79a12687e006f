"""Relations over the batches of a journal, each in its lane: what enters at its scope, as late as it waits for
(semantics §7, §11).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.changes import (
    ClientChange,
    ClientRemoval,
    ClockTick,
    RelationChange,
    RelationRemoval,
    SettingsChange,
)
from nearcast.model.columns import nodes_of
from nearcast.model.relation import Matching, Relation
from nearcast.relations.admission import Crowding
from nearcast.relations.lanes.delayed import DelayedRelations
from nearcast.relations.lanes.heard_events import HeardEvents
from nearcast.relations.pairs import PairRelations
from nearcast.relations.shards import SHARDS
from nearcast.relations.sides import sides_of
from nearcast.relations.stage import RelationStage
from nearcast.state.derived import At, StageInput, merge_tables
from nearcast.state.repository import without_excess
from nearcast.state.stream_clocks import SHARED_NAME, StreamClocks, types_of

Scope = str | None
"""An entry node; None is all of them together."""

Lane = tuple[Scope, int, tuple[str, ...]]
"""Relations that hear the same at the same time: their scope, their lateness in microseconds, and with a lateness the
names of the clocks by which they go, where that is not the shared one alone.
"""


def lane_of(relation: Relation, clocks: StreamClocks) -> Lane:
    """The lane of a relation."""
    lateness = round(relation.lateness * 1e6)
    if not lateness or clocks.single:
        return relation.node, lateness, ()
    sides = [types_of(side.filter) if isinstance(side, Matching) else None for side in sides_of(relation)]
    names = sorted({clocks.names[number] for types in sides for number in clocks.taking(types)})
    return relation.node, lateness, () if names == [SHARED_NAME] else tuple(names)


class Scopes:
    """Relations over the batches of a journal, each in its scope; a `DerivingStage`. See `RelationStage`."""

    def __init__(self, shards: int = SHARDS) -> None:
        self._scopes: dict[Scope, RelationStage] = {None: RelationStage(shards)}
        self._delayed: dict[Lane, DelayedRelations[RelationStage]] = {}
        self._where: dict[str, Lane] = {}
        self._heard: HeardEvents | None = None

    @property
    def pairings(self) -> Mapping[Scope, PairRelations]:
        """The relations between pairs, by scope, without those that have a lateness."""
        return {scope: relating.pairing for scope, relating in self._scopes.items()}

    def pairing_of(self, relation: str) -> PairRelations | None:
        """The relations among which one is, whatever its scope and lateness; None where it is not there."""
        stages = (*self._scopes.values(), *(one.stage for one in self._delayed.values()))
        return next((one.pairing for one in stages if relation in one.pairing.rules.by_id), None)

    def passes_over(self, stage_input: StageInput) -> bool:
        """See `DerivingStage`."""
        (together,) = self._scopes.values() if len(self._scopes) == 1 else (None,)
        if self._heard is None or self._delayed or together is None or not together.passes_over(stage_input):
            return False
        self._heard.add(_within_limits(stage_input))
        return True

    def derive(self, stage_input: StageInput) -> Iterator[pa.Table]:
        """What a stretch of the journal causes, ascending by position; to be taken to its end."""
        stage_input = _within_limits(stage_input)
        if self._heard is None:
            self._heard = HeardEvents(stage_input.repository)
        left: dict[int, set[Lane]] = {}
        clocks = StreamClocks(stage_input.registry.settings.channels)
        shared = self._shared(stage_input.changes, left, clocks)
        lanes = self._ordered()
        told = [self._told(lane, shared[lane], stage_input) for lane in lanes]
        if len(told) == 1:
            yield from told[0]
        else:
            # A relation that goes to another scope ends in the first before it begins in the second.
            first = {(position, lanes.index(lane)) for position, own in left.items() for lane in own}
            yield from merge_tables(told, first)
        self._heard.add(stage_input)
        for scope in [scope for scope in self._scopes if scope is not None and not self._scopes[scope].defined]:
            del self._scopes[scope]
        self._delayed = {lane: one for lane, one in self._delayed.items() if one.defined}

    def forget(self, entities: Collection[str]) -> None:
        """Forgets entities; what ends by that is told with the next event."""
        for relating in self._all():
            relating.forget(entities)
        if self._heard is not None:
            self._heard.forget(entities)

    @property
    def clocks(self) -> StreamClocks:
        """Those of what enters anywhere; a local relation goes by what enters at its own node, and by ticks."""
        return self._scopes[None].clocks

    def next_due(self, clocks: StreamClocks) -> int:
        """See `DerivingStage`."""
        return min(one.next_due(clocks) for one in self._all())

    def _all(self) -> list[RelationStage | DelayedRelations[RelationStage]]:
        return [*self._scopes.values(), *self._delayed.values()]

    @property
    def early(self) -> int:
        """How many reports did not wait for the lateness of relations, as too many did, since these were defined."""
        return sum(one.early for one in self._delayed.values())

    def crowded(self) -> dict[str, Crowding]:
        """What did not begin for the limits of pairs, by relation."""
        stages = (*self._scopes.values(), *(one.stage for one in self._delayed.values()))
        return {id: one for each in stages for id, one in each.pairing.admission.crowded.items()}

    def _ordered(self) -> list[Lane]:
        lanes = [*((scope, 0, ()) for scope in self._scopes), *self._delayed]
        return sorted(lanes, key=lambda lane: (lane[0] is not None, lane[0] or "", *lane[1:]))

    def _make_lane(self, lane: Lane) -> None:
        scope, lateness, names = lane
        # Each begins with the lists as of the beginning, and hears of every change of them.
        if not lateness and scope not in self._scopes:
            self._scopes[scope] = self._scopes[None].beside()
        elif lateness and lane not in self._delayed:
            self._delayed[lane] = DelayedRelations(lateness, self._scopes[None].beside(by_channel=False), names)

    def _shared(self, changes: Sequence[At], left: dict[int, set[Lane]], clocks: StreamClocks) -> dict[Lane, list[At]]:
        """The changes that each lane hears; where a relation goes away from one, that is noted in `left`."""
        found: defaultdict[Lane, list[At]] = defaultdict(list)
        changes = [*self._going_by_other_clocks(changes, clocks), *changes]
        for _, change in changes:
            if isinstance(change, RelationChange):
                self._make_lane(lane_of(change.relation, clocks))
        for position, change in changes:
            match change:
                case RelationChange(relation):
                    lane = lane_of(relation, clocks)
                    before = self._where.get(relation.id, lane)
                    if before != lane:
                        found[before].append((position, RelationRemoval(relation.id)))
                        left.setdefault(position, set()).add(before)
                    self._where[relation.id] = lane
                    found[lane].append((position, change))
                case RelationRemoval(id):
                    found[self._where.pop(id, (None, 0, ()))].append((position, change))
                case ClientChange() | ClientRemoval() | ClockTick():
                    for lane in self._ordered():
                        found[lane].append((position, change))
        return found

    def _going_by_other_clocks(self, changes: Sequence[At], clocks: StreamClocks) -> list[At]:
        """The relations with a lateness that go by other clocks since the settings changed: they begin anew there."""
        renewed = [position for position, change in changes if isinstance(change, SettingsChange)]
        if not renewed:
            return []
        held = [(lane, relation) for lane, one in self._delayed.items() for relation in one.stage.relations]
        return [(renewed[-1], RelationChange(one)) for lane, one in held if lane_of(one, clocks) != lane]

    def _told(self, lane: Lane, changes: Sequence[At], stage_input: StageInput) -> Iterator[pa.Table]:
        scope, lateness, _ = lane
        relating = self._delayed[lane] if lateness else self._scopes[scope]
        if scope is None:
            return relating.derive(replace(stage_input, changes=changes))
        assert self._heard, "it is there with the first stretch"
        events = stage_input.events.filter(pc.equal(nodes_of(stage_input.events), scope))
        own = replace(
            stage_input, changes=changes, events=events, repository=self._heard.at(scope, stage_input.repository)
        )
        return relating.derive(own, scope)


def _within_limits(stage_input: StageInput) -> StageInput:
    """The same, with events as they are kept."""
    kept = without_excess(stage_input.events, stage_input.registry.settings.limits.entity_bytes)
    return stage_input if kept is stage_input.events else replace(stage_input, events=kept)
