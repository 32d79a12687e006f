"""Gatherings: one at a time, at a cost that follows neighbours, and all of them over a batch.

The outcome is that of the reference. What lapses is looked for only once the clock has passed the earliest moment at
which anything can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
import pyarrow as pa

from nearcast.geo.distance import distance
from nearcast.geo.dynamic_index import SpatialHash, level_of
from nearcast.matching.matcher import FilterMatcher
from nearcast.matching.spatial.geometry_sharing import fixed_spatial, selected_within_budget
from nearcast.model.arrays import Flags, Integers
from nearcast.model.event import Place
from nearcast.model.filter import Filter
from nearcast.model.limits import Limits
from nearcast.model.relation import Detection, Gathering, ListMembers, Matching, Relation
from nearcast.relations.entity_table import EntityTable
from nearcast.relations.reports import ReportTable, micros_of, moment_of
from nearcast.relations.transition_events import CAUSED, EXPIRED, OVERDUE, Participant, Transition
from nearcast.relations.transitions import (
    FALLS_SILENT,
    REASONS,
    REMOVED,
    UNCHANGED,
    HoldState,
    Lifecycle,
    deadline,
    effect_of,
    first_told,
    gathered_until,
)
from nearcast.state.derived import Cause
from nearcast.state.lateness import FOREVER, NEVER
from nearcast.state.stream_clocks import StreamClocks, types_of
from nearcast.state.timeline import Excess

MOST_NAMED = 1_000
"""Members around one that the event of a gathering names, the first by their names; its `count` is of all."""


@dataclass(slots=True)
class _GatheringMember:
    """An entity of the crowd: where it is, and the clock through which it counts without a report."""

    place: Place | None
    deadline: int


@dataclass(slots=True)
class GatheringState:
    """One gathering's crowd: who is in it and where, and who of them gathers. Times are in microseconds since 1970.

    `now` is how far it has come: the slowest of the clocks of the channels whose events it takes.
    """

    relation: Relation
    sequence: int
    about: Gathering = field(init=False)
    members: dict[str, _GatheringMember] = field(default_factory=dict)
    held: dict[str, HoldState] = field(default_factory=dict)
    next_expiry: int = FOREVER
    now: int = NEVER
    _places: SpatialHash[str, str] = field(init=False)
    _gone: dict[str, Place | None] = field(default_factory=dict)
    _lifecycle: Lifecycle = field(init=False)
    _types: frozenset[str] | None = field(init=False)

    def __post_init__(self) -> None:
        assert isinstance(self.relation.about, Gathering), "pairs are no crowds"
        self.about, self._lifecycle = self.relation.about, Lifecycle.of(self.relation)
        self._types = types_of(self.about.among.filter) if isinstance(self.about.among, Matching) else None
        self._places = SpatialHash([level_of(self.about.within + self.relation.margin)])

    def pass_to(self, clocks: StreamClocks) -> int:
        """Goes on to where the clocks are; how far that is."""
        self.now = max(self.now, clocks.slowest(clocks.taking(self._types)))
        return self.now

    def over(self, reports: ReportTable, clocks: StreamClocks) -> Integers:
        """How far it has come at each row of a stretch, to whose end it goes on; `clocks` are those before it."""
        found = reports.slowest(clocks.taking(self._types), self.now)
        self.now = int(found[-1]) if len(found) else self.now
        return found

    def restore(
        self,
        members: Iterable[tuple[str, Place | None, int]],
        held: Mapping[str, HoldState],
        next_expiry: int,
        now: int,
    ) -> None:
        """Takes the members, each with its place and deadline, and what holds, of a gathering that has none."""
        self.now = now
        for entity, place, until in members:
            self.members[entity] = _GatheringMember(place, until)
            if place:
                self._places.insert(entity, place, entity)
        self.held, self.next_expiry = dict(held), next_expiry

    def copy(self) -> GatheringState:
        """The same crowd, which goes on by itself."""
        found = GatheringState(self.relation, self.sequence)
        members = ((entity, one.place, one.deadline) for entity, one in self.members.items())
        found.restore(members, self.held, self.next_expiry, self.now)
        return found

    def report(self, entity: str, place: Place | None, inside: bool, now: int, began: int) -> Iterator[Transition]:
        """What a report changes: of an entity that is of the crowd by it, or not. What begins does so at `began`."""
        # A report so old that its entity is silent by the clock says of nobody that he is there.
        inside = inside and deadline(began, self._lifecycle.time_to_live) >= now
        old = self.members.get(entity)
        if old is None and not inside:
            return
        if old is not None and inside and old.place == place:
            self._set(entity, place, began)
            # Whoever has not moved changes nothing, but lives on.
            return
        before = self.leave(entity, place)
        after: list[str] = []
        if inside:
            self._set(entity, place, began)
            after = self._around(entity, self.relation.margin)
        yield from self.evaluate(self._concerned(entity, before, after), now, began, began, False)

    def _concerned(self, entity: str, before: list[str], after: list[str]) -> list[str]:
        """Of those around whom an entity was or is those for whom that may change something, and itself.

        Who gathers ends only where it has one fewer around it, who does not begins only where it has one more.
        """
        there = {*after}
        ending = [name for name in before if name in self.held and name not in there]
        return [entity, *ending, *(name for name in after if name not in self.held)]

    def join(self, entity: str, place: Place | None, heard: int, now: int) -> None:
        """Takes an entity into the crowd that was heard of before, if it is not silent by now."""
        if deadline(heard, self._lifecycle.time_to_live) >= now:
            self._set(entity, place, heard)

    def leave(self, entity: str, place: Place | None) -> list[str]:
        """Takes an entity, which is at a place now, out of the crowd; itself and those around whom it was."""
        concerned = [entity, *self._around(entity, self.relation.margin)]
        self.members.pop(entity, None)
        self._places.remove(entity)
        self._gone[entity] = place
        return concerned

    def evaluate(
        self, entities: Iterable[str], now: int, began: int, since: int, present: bool
    ) -> Iterator[Transition]:
        """Who of these begins to gather, or ends; what begins lasts from `began` on, and is told `since`."""
        for entity in sorted(set(entities)):
            effect = self._effect(entity)
            if effect != UNCHANGED:
                yield from self._evaluated(entity, effect, now, began, since, present)
        self._gone = {}

    def _effect(self, entity: str) -> int:
        member = self.members.get(entity)

        def truth(staying: bool) -> bool | None:
            """Who is nowhere may be among them still."""
            return None if member is None or member.place is None else self._gathers(entity, staying)

        return effect_of(entity in self.held, member is not None, truth)

    def _evaluated(
        self, entity: str, effect: int, now: int, began: int, since: int, present: bool = False
    ) -> Iterator[Transition]:
        before = self.held.get(entity)
        after, detect = self._lifecycle.evaluated(before, effect, began, since)
        state = before or after
        if detect and state:
            margin = 0.0 if detect == "enter" else self.relation.margin
            yield self._tell(detect, entity, state, effect, self._near(entity, margin), present)
        if after and not before:
            due = after.due
            after, told = self._lifecycle.lasted(after, now)
            for each in told:
                near = self._near(entity, self.relation.margin)
                yield self._tell(each, entity, after, UNCHANGED, near, time=due, phase=OVERDUE)
        self._hold(entity, after)

    def _hold(self, entity: str, state: HoldState | None) -> None:
        if state is None:
            self.held.pop(entity, None)
        else:
            self.held[entity] = state
            self.next_expiry = min(self.next_expiry, state.due)

    def _set(self, entity: str, place: Place | None, heard: int) -> None:
        until = deadline(heard, self._lifecycle.time_to_live)
        self.members[entity] = _GatheringMember(place, until)
        if place:
            self._places.insert(entity, place, entity)
        self.next_expiry = min(self.next_expiry, _after(until))

    def _near(self, entity: str, margin: float) -> list[tuple[str, float]]:
        """The other members within the distance of one, by name, and how far they are."""
        return sorted(self._within(entity, self.about.within + margin))

    def _within(self, entity: str, within: float) -> Iterator[tuple[str, float]]:
        """The other members within so many metres of one, and how far they are."""
        member = self.members.get(entity)
        place = member.place if member else self._gone.get(entity)
        if place is None:
            return
        for other in self._places.candidates(place, within):
            there = self.members[other].place
            metres = distance(place, there) if there and other != entity else None
            if metres is not None and metres <= within:
                yield other, metres

    def _around(self, entity: str, margin: float) -> list[str]:
        return [name for name, _ in self._near(entity, margin)] if entity in self.members else []

    def _gathers(self, entity: str, staying: bool) -> bool:
        """Whether enough are around one: no more are looked at than that takes."""
        within = self.about.within + (self.relation.margin if staying else 0.0)
        found = islice(self._within(entity, within), self.about.count - 1)
        return sum(1 for _ in found) == self.about.count - 1

    def _living(self, entity: str, now: int) -> list[tuple[str, float]]:
        """Those around one that are not silent."""
        near = self._near(entity, self.relation.margin)
        return [(name, metres) for name, metres in near if self.members[name].deadline >= now]

    def expire(self, now: int) -> Iterator[Transition]:
        """Who has gathered long enough, and whose gathering ended in silence, by the clock."""
        for entity, held in sorted(self.held.items()):
            silent = self._silence(entity)
            after, told = self._lifecycle.passed(held, silent, now)
            for detect in told:
                time = held.due if detect == "dwell" else silent
                near = self._living(entity, now)
                yield self._tell(detect, entity, held, FALLS_SILENT, near, time=time, phase=EXPIRED)
            self._hold(entity, after)
        # Only now: what was told above is told with those who were around until then.
        for entity in [name for name, member in self.members.items() if member.deadline < now]:
            self.leave(entity, None)
        self._gone = {}
        lapses = [_after(member.deadline) for member in self.members.values()]
        self.next_expiry = min([*lapses, *(held.due for held in self.held.values())], default=FOREVER)

    def next_due(self, clocks: StreamClocks) -> int:
        """Microseconds until something is told though nothing is reported, if that is not positive; else no more."""
        until = clocks.slowest(clocks.taking(self._types))
        first = self._first_due(until)
        return FOREVER if first == FOREVER or until == NEVER else first - until

    def _first_due(self, until: int) -> int:
        if self.next_expiry > until:
            return self.next_expiry
        detects = self._lifecycle.detects
        held = self.held.items()
        return min((first_told(detects, state, self._silence(entity)) for entity, state in held), default=FOREVER)

    def _silence(self, entity: str) -> int:
        """The clock through which silence lets one gather."""
        others = (self.members[name].deadline for name, _ in self._near(entity, self.relation.margin))
        return gathered_until(self.members[entity].deadline, others, self.about.count)

    def end(self) -> list[Transition]:
        """The ends of everything that holds."""
        return [one for entity in list(self.held) for one in self._evaluated(entity, REMOVED, NEVER, NEVER, NEVER)]

    def _tell(
        self,
        detect: Detection,
        entity: str,
        state: HoldState,
        effect: int,
        near: list[tuple[str, float]],
        present: bool = False,
        time: int = NEVER,
        phase: int = CAUSED,
    ) -> Transition:
        member = self.members.get(entity)
        a = Participant(entity, member.place if member else self._gone.get(entity))
        around = tuple(Participant(name, self.members[name].place) for name, _ in near[:MOST_NAMED])
        farthest = max((metres for _, metres in near), default=None)
        reason = REASONS[effect] if detect == "exit" else None
        head = (phase, self.sequence, self.relation.id, detect, a, around, farthest)
        return Transition(*head, moment_of(state.started_at), reason, present, len(near) + 1, moment_of(time))


def _after(deadline: int) -> int:
    """The first moment at which who counts through a deadline is silent."""
    # At the deadline itself nothing lapses yet, and many events may be of that one moment.
    return deadline if deadline == FOREVER else deadline + 1


Lists = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Of each client its lists of entities."""


class GatheringStates:
    """The crowds of all gatherings, by their relations' ids."""

    def __init__(self, known: EntityTable) -> None:
        self.by_id: dict[str, GatheringState] = {}
        self.limits = Limits()
        self.excess: Counter[Excess] = Counter()
        self._known = known
        self._listed: dict[str, frozenset[str]] = {}
        self._indices: dict[str, FilterMatcher] = {}
        self._flags: dict[str, Flags] = {}

    def define(
        self,
        relation: Relation,
        sequence: int,
        newest: Callable[[], pa.Table],
        lists: Lists,
        clocks: StreamClocks,
        cause: Cause,
    ) -> list[Transition]:
        """Adds a gathering; what it tells of the present."""
        assert isinstance(relation.about, Gathering), "pairs are no gatherings"
        self.by_id[relation.id] = crowd = GatheringState(relation, sequence)
        now = crowd.pass_to(clocks)
        match relation.about.among:
            case Matching(filter):
                self._indices[relation.id] = FilterMatcher((), [filter])
                table = newest()
                inside = self._selected(filter, relation.id, table)
                self._join(crowd, self._known.numbered(table)[inside].tolist(), now)
            case ListMembers(client, name):
                self._listed[relation.id] = frozenset(lists.get(client, {}).get(name, ()))
                self._flags.pop(relation.id, None)
                self._join(crowd, self._seen(self._listed[relation.id]), now)
        return list(crowd.evaluate(crowd.members, now, now, micros_of(cause.moment), True))

    def restore(self, relation: Relation, sequence: int, listed: frozenset[str] | None) -> GatheringState:
        """Adds a gathering that was there before, `listed` being the list that it is among; it has no members yet."""
        self.by_id[relation.id] = crowd = GatheringState(relation, sequence)
        if isinstance(crowd.about.among, Matching):
            self._indices[relation.id] = FilterMatcher((), [crowd.about.among.filter])
        if listed is not None:
            self._listed[relation.id] = listed
        return crowd

    def copy(self, known: EntityTable) -> GatheringStates:
        """The same crowds, which go on by themselves, over a copy of what is known; none is defined there or ends."""
        found = copy(self)
        found._known, found.excess, found._flags = known, Counter(), dict(self._flags)
        found.by_id = {id: crowd.copy() for id, crowd in self.by_id.items()}
        return found

    def _seen(self, names: frozenset[str]) -> list[int]:
        numbers = [self._known.numbers[name] for name in sorted(names) if name in self._known.numbers]
        return [number for number in numbers if self._known.columns["seen"][number]]

    def _join(self, crowd: GatheringState, numbers: list[int], now: int) -> None:
        places = ReportTable.nothing(self._known).places(np.array(numbers, np.int64)) if numbers else []
        heard = self._known.columns["heard"]
        for number, place in zip(numbers, places, strict=True):
            crowd.join(self._known.names[number], place, int(heard[number]), now)

    def end(self, id: str) -> list[Transition]:
        """Removes a gathering; the ends of what held in it."""
        crowd = self.by_id.pop(id, None)
        self._listed.pop(id, None)
        self._flags.pop(id, None)
        self._indices.pop(id, None)
        return [] if crowd is None else crowd.end()

    def forget(self, names: Collection[str], clocks: StreamClocks) -> list[Transition]:
        """Takes entities out of all crowds as if they had fallen silent; what that ends."""
        told: list[Transition] = []
        # Entities are numbered anew.
        self._flags = {}
        for crowd in self.by_id.values():
            now = crowd.pass_to(clocks)
            gone = [crowd.members[name] for name in names if name in crowd.members]
            for member in gone:
                member.deadline = now - 1
            told += [replace(one, time=None) for one in crowd.expire(now)] if gone else []
        return told

    def relisted(self, client: str, lists: Lists, clocks: StreamClocks, cause: Cause) -> list[Transition]:
        """What the new lists of a client change."""
        told: list[Transition] = []
        for id, crowd in self.by_id.items():
            among = crowd.about.among
            if not isinstance(among, ListMembers) or among.client != client:
                continue
            self._flags.pop(id, None)
            now = crowd.pass_to(clocks)
            before, self._listed[id] = self._listed[id], frozenset(lists.get(client, {}).get(among.list, ()))
            gone = self._seen(before - self._listed[id])
            concerned: set[str] = set()
            places = ReportTable.nothing(self._known).places(np.array(gone, np.int64)) if gone else []
            for number, place in zip(gone, places, strict=True):
                concerned.update(crowd.leave(self._known.names[number], place))
            self._join(crowd, self._seen(self._listed[id] - before), now)
            told += crowd.evaluate(concerned | set(crowd.members), now, now, micros_of(cause.moment), True)
        return told

    def next_due(self, clocks: StreamClocks) -> int:
        """Microseconds until something is told though nothing is reported; see `GatheringState.next_due`."""
        return min((crowd.next_due(clocks) for crowd in self.by_id.values()), default=FOREVER)

    def transitions(self, reports: ReportTable, clocks: StreamClocks) -> Iterator[tuple[int, Transition]]:
        """What a stretch tells, each with the row that causes it; entities are not updated yet. `clocks` are those
        before it.
        """
        for id, crowd in self.by_id.items():
            inside, times = self._inside(id, reports), crowd.over(reports, clocks)
            begin = 0
            for row, told in self._reported(crowd, inside, reports, times):
                yield from _expiries(crowd, times, begin, row + 1)
                begin = row + 1
                for one in told:
                    yield row, one
            yield from _expiries(crowd, times, begin, reports.length)

    def _inside(self, id: str, reports: ReportTable) -> Flags:
        """Of each report that counts whether it makes its entity one of the crowd."""
        if id in self._indices:
            among = self.by_id[id].about.among
            assert isinstance(among, Matching), "an index is of a filter"
            return self._selected(among.filter, id, reports.table)[reports.row]
        return self._listed_flags(id)[reports.entity]

    def _selected(self, filter: Filter, id: str, table: pa.Table) -> Flags:
        """Which events the filter of a gathering selects."""
        spatial = fixed_spatial([filter])
        return selected_within_budget(self._indices[id], spatial, table, self.limits, self.excess)[0]

    def _listed_flags(self, id: str) -> Flags:
        """Of each entity that is known whether it is in a gathering's list: only new ones are looked up."""
        flags, names = self._flags.get(id, np.zeros(0, np.bool_)), self._known.names
        if len(flags) < len(names):
            listed = self._listed[id]
            new = [name in listed for name in names[len(flags) :]]
            flags = self._flags[id] = np.append(flags, np.array(new, np.bool_))
        return flags

    def _reported(
        self, crowd: GatheringState, inside: Flags, reports: ReportTable, times: Integers
    ) -> Iterator[tuple[int, Iterator[Transition]]]:
        """The rows of the reports that concern a crowd, and what they tell once asked for."""
        members = [self._known.numbers[name] for name in crowd.members]
        inside = inside if reports.repeats is None else inside & ~reports.repeats
        ever = np.concatenate([np.array(members, np.int64), reports.entity[inside]])
        some = reports.told(np.flatnonzero(np.isin(reports.entity, ever)))
        names = [self._known.names[number] for number in reports.entity[some].tolist()]
        rows = reports.row[some]
        columns = (rows.tolist(), inside[some].tolist(), times[rows].tolist(), reports.began[rows].tolist())
        places = reports.places(reports.known + some)
        for row, there, now, began, name, place in zip(*columns, names, places, strict=True):
            yield row, crowd.report(name, place, there, now, began)


def _expiries(crowd: GatheringState, times: Integers, begin: int, end: int) -> Iterator[tuple[int, Transition]]:
    """What lapses at the rows from one to before another, at each of which the clock has come so far."""
    while begin < end:
        row = max(begin, int(np.searchsorted(times, crowd.next_expiry, "left")))
        if row >= end:
            return
        for told in crowd.expire(int(times[row])):
            yield row, told
        begin = row + 1
