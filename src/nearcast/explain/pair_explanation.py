"""Why a relation holds between two entities, or does not: their reports alone are gone through once more.

Pure, as `explanation`: reports, definitions and the clock come in as steps, in the order of the journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from heapq import heappop, heappush
from typing import Any

import pyarrow as pa

from nearcast.errors import Fault
from nearcast.explain.step_clocks import StepClocks
from nearcast.filters.evaluate import NO_CONTEXT, atom_truths
from nearcast.filters.spatial_atoms import spatial_atoms
from nearcast.filters.truth import Truth
from nearcast.geo.distance import distance
from nearcast.model.changes import (
    Change,
    ClientChange,
    ClientRemoval,
    ClockTick,
    RelationChange,
    RelationRemoval,
    SettingsChange,
)
from nearcast.model.event import Event
from nearcast.model.expression import Call, Property, parts
from nearcast.model.filter import Atom, Filter, atoms
from nearcast.model.geometry_budget import SPENT
from nearcast.model.limits import Limits
from nearcast.model.relation import SIDES, Matching, Named, Pair, Relation, Side
from nearcast.model.subscription import Channel
from nearcast.model.values import Value
from nearcast.relations.admission import Crowding
from nearcast.relations.aggregates.entity_windows import known_value
from nearcast.relations.lanes.scopes import Lane, lane_of
from nearcast.relations.pairs import PairStanding
from nearcast.relations.plain import EventwiseRelations, cause_at
from nearcast.relations.plain_pairs import LatestReport, is_older
from nearcast.relations.predicate import RelationPredicate, is_symmetric, side_aggregates, widened
from nearcast.relations.reports import moment_of
from nearcast.relations.sides import sees_derived, sides_of
from nearcast.relations.transition_events import Transition
from nearcast.relations.transitions import deadline, micros
from nearcast.state.derived import Cause
from nearcast.state.lateness import FOREVER, NEVER
from nearcast.state.stream_clocks import SHARED_NAME, StreamClocks
from nearcast.state.windows import AggregateFinding, by_name, too_many

NOT_BEGUN: Mapping[str, Any] = {"since": None, "due": None, "dwelt": False, "told": ()}
"""What is said of a pair that did not begin."""

TOLD = 5
"""Of what was told of the two the last ones are kept."""


@dataclass(frozen=True, slots=True)
class PairStep:
    """What happened at a position: a change, a report of one of the two, or only that an event brought a time: its
    moment, in microseconds since 1970, its entry node and its channel.

    `newest` gives the newest events of all entities then at an entry node, or at any: new clocks begin with these.
    """

    position: int
    moment: int
    node: str
    happened: Change | Event | None = None
    channel: str | None = None
    newest: Callable[[str | None], pa.Table] | None = None


@dataclass(frozen=True, slots=True)
class PredicateFinding:
    """An atom of a side's filter or of the predicate: its truth (None: UNKNOWN), with the margin too where there is one
    (`staying`), and the values that it read, by name; and its aggregates, each with its entity.
    """

    atom: Atom
    truth: Truth
    staying: Truth
    read: tuple[tuple[str, tuple[Value, ...]], ...]
    aggregates: tuple[tuple[str, AggregateFinding], ...] = ()


@dataclass(frozen=True, slots=True)
class SideFinding:
    """One of the two: its newest report (None: it was not heard of), whether it is of its side, and by which atoms;
    `silent_since`: when its time to live was over, None where it is not.
    """

    entity: str
    report: Event | None
    member: bool
    conditions: tuple[PredicateFinding, ...]
    silent_since: datetime | None


@dataclass(frozen=True, slots=True)
class PairFinding:
    """Why a relation holds between two entities as of a position, or does not.

    `time` is the clock then; `since` the time of the event by which it began, `due` the clock at which it
    has lasted (None: no `for`, or told). `told` are the last things that were told of the two, each with its position.
    `reasons` say why it does not hold; empty where it does. `undecided`: why the last report that could change it did
    not, where the work on geometries that is allowed for an event was done before it was the pair's turn; else empty.
    """

    relation: Relation
    position: int
    time: datetime | None
    a: SideFinding
    b: SideFinding
    metres: float | None
    predicate: Truth
    conditions: tuple[PredicateFinding, ...]
    holds: bool
    since: datetime | None
    due: datetime | None
    dwelt: bool
    told: tuple[tuple[int, Transition], ...]
    reasons: tuple[str, ...]
    undecided: str = ""


def explain_pair(id: str, a: str, b: str, steps: Iterable[PairStep]) -> PairFinding:
    """What steps lead to for a relation between two entities. Raises `Fault` where the relation is not there, or is not
    one of pairs of what was published.
    """
    followed = list(steps)
    defined = [step.happened.relation for step in followed if isinstance(step.happened, RelationChange)]
    # A local relation sees what enters at its node, also of the time before it was defined.
    last = next((one for one in reversed(defined) if one.id == id), None)
    past = _PairPast(id, last)
    for step in followed:
        past.follow(step)
    relation = past.relation
    if relation is None:
        raise Fault(
            "a relation that there was then", id, None, f"there were {', '.join(sorted(past.others)) or 'none'}"
        )
    if not isinstance(relation.about, Pair) or sees_derived(relation):
        raise Fault(
            "a relation between two entities that are published", id, None, "this is of a crowd, or of relations"
        )
    return past.finding(relation, relation.about, a, b)


def within_limits(found: PairFinding, standing: PairStanding, crowding: Crowding | None, limits: Limits) -> PairFinding:
    """What is found of two, given how the relation stands among all: a pair that reports of the two alone begin did not
    begin where a limit was reached, nor end where that was the one of work. `crowding`: what of the relation did not
    begin.
    """
    if compares(found.relation):
        found = _within_geometry_work(found, standing, limits)
    if not found.holds or standing.state:
        return found
    entities = (found.a.entity, found.b.entity)
    for entity, one in (each for condition in found.conditions for each in condition.aggregates):
        if one.value is not None and one.text in standing.unknown:
            why = f"{one.text} of {entity} is not known among all: {too_many(one.text, limits).why}"
            reason = f"{why} (limit windows_readings, {limits.windows_readings:,}); raise it in limits"
            return replace(found, holds=False, reasons=(reason,), **NOT_BEGUN)
    if standing.pairs >= limits.relation_pairs:
        name, most = "relation_pairs", limits.relation_pairs
        why = f"{standing.pairs:,} pairs of the relation hold"
    elif crowding and crowding.hurried.intersection(entities) and min(standing.partners) < limits.relation_partners:
        name, most = "relation_begins", limits.relation_begins
        why = f"more pairs began at once than {limits.relation_burst:,} (relation_burst) and what reports make room for"
    elif (
        crowding
        and not crowding.unseen.keys().isdisjoint(entities)
        and min(standing.partners) < limits.relation_partners
    ):
        name, most = "relation_looks", limits.relation_looks
        near = [f"{crowding.unseen[one]:,} near {one}" for one in entities if one in crowding.unseen]
        why = f"the last report did not look at {' and '.join(near)}"
    else:
        name, most = "relation_partners", limits.relation_partners
        in_pairs = (f"{one} is in {count:,}" for one, count in zip(entities, standing.partners, strict=True))
        why = f"both were in as many pairs of it; now {' and '.join(in_pairs)}"
    refused = [f"{crowding.entities[one]:,} of {one}" for one in entities if crowding and one in crowding.entities]
    more = f"; with the last report {' and '.join(refused)} did not begin" if refused else ""
    reason = (
        f"it did not begin: {why} (limit {name}, {most:,}){more}; raise {name} in limits, or ask for fewer pairs by the"
        " relation's filters, its distance or its time_to_live"
    )
    return replace(found, holds=False, reasons=(reason,), **NOT_BEGUN)


def compares(relation: Relation) -> bool:
    """Whether a relation compares geometries of both sides, so that its pairs share what this may take."""
    return isinstance(relation.about, Pair) and any(spatial_atoms(relation.about.when))


def _within_geometry_work(found: PairFinding, standing: PairStanding, limits: Limits) -> PairFinding:
    """The same, where other pairs take the work on geometries that is allowed for an event."""
    if standing.undecided:
        most = f"{limits.event_geometry_work:,} units of work (limit {SPENT})"
        why = (
            "with the last report the pair was not decided: comparing the geometries of its pairs takes more than"
            f" {most}, and those come first that tell the shortest"
        )
        found = replace(found, undecided=why)
    state = standing.state
    if state is None:
        # Where it began for the two alone, and not among all, it is told what kept it from that.
        begins = found.holds and found.undecided
        return replace(found, holds=False, reasons=(found.undecided,), **NOT_BEGUN) if begins else found
    since = None if state.started_at == NEVER else moment_of(state.started_at)
    if found.holds and found.since == since:
        return found
    due = None if state.due == FOREVER else moment_of(state.due)
    return replace(found, holds=True, since=since, due=due, dwelt=state.dwell_sent, told=(), reasons=())


class _PairPast:
    """The two entities' past, as far as one relation is about it.

    Relations that hear the same at the same time go on together, in a lane. It begins with what is known when the first
    of them is defined, and ends with the last.
    """

    def __init__(self, id: str, last: Relation | None) -> None:
        """`last`: as the relation is defined in the end."""
        self.id, self.others = id, dict[str, Relation]()
        self._last, self._node = last, last.node if last else None
        self._lane: Lane | None = None
        self._relations = self._beginning()
        self._position = 0
        # As all has it that came at the node, and as this lane has it.
        self._clocks, self._lane_clocks = StepClocks(), StepClocks()
        self._clock = NEVER
        self._heard: dict[str, LatestReport] = {}
        self._waiting: list[tuple[int, int, Event]] = []
        self._told: deque[tuple[int, Transition]] = deque(maxlen=TOLD)
        self._other_nodes: dict[str, str] = {}

    def _beginning(self) -> EventwiseRelations:
        """Relations as a lane begins with them."""
        found = EventwiseRelations()
        # Only one of them is followed, but the filters of all share the work on geometries.
        found.sides.others = self._filters_of_others
        return found

    def _filters_of_others(self) -> Iterator[Filter]:
        pairs = (one for one in self.others.values() if isinstance(one.about, Pair) and not sees_derived(one))
        for relation in pairs:
            if self._lane is not None and self._lane_of(relation) == self._lane:
                yield from (side.filter for side in sides_of(relation) if isinstance(side, Matching))

    @property
    def relation(self) -> Relation | None:
        """The relation as it is defined now."""
        return self._relations.relation(self.id)

    def follow(self, step: PairStep) -> None:
        """Takes the next step."""
        self._position = step.position
        match step.happened:
            case Event() | None if self._node is None or step.node == self._node:
                self._report(step)
            case Event() as event:
                self._other_nodes[event.entity] = step.node
            case ClockTick() as tick:
                # Of no node: it comes to all.
                for clocks in (self._clocks, self._lane_clocks):
                    clocks.follow_tick(tick)
                self._pass()
            case RelationChange(relation) if relation.id == self.id:
                self._define(relation, step)
            case RelationRemoval(self.id):
                self._note(self._relations.end(self.id))
                self._go_to(self._lane_of_others(), step)
            case RelationChange(relation):
                self.others[relation.id] = relation
                self._go_on(step)
            case RelationRemoval(id):
                self.others.pop(id, None)
                self._go_on(step)
            case ClientChange() | ClientRemoval() as change:
                self._relations.note_lists(change)
            case SettingsChange(settings):
                self._relations.limits = settings.limits
                self._set_channels(settings.channels, step)
        if isinstance(step.happened, RelationChange | RelationRemoval | SettingsChange):
            # What a filter of another relation decided counts for an equal one of this, however much later that comes.
            self._relations.decide_sides()

    def _report(self, step: PairStep) -> None:
        """An event came, perhaps a report of one of the two."""
        for clocks in (self._clocks, self._lane_clocks):
            clocks.follow_event(step.channel, step.moment)
        event = step.happened
        if not isinstance(event, Event):
            self._pass()
            return
        if self._awaits(event):
            moment = self._lane_clocks.of(event.channel) if event.moment is None else step.moment
            heappush(self._waiting, (moment, step.position, event))
        self._pass()
        known = self._heard.get(event.entity)
        if known is None or not is_older(event, known.event):
            heard = self._clocks.of(event.channel) if event.moment is None else step.moment
            self._heard[event.entity] = LatestReport(event, heard)
        if self._lane is not None and not self._lateness:
            self._note(self._relations.report(event))

    @property
    def _lateness(self) -> int:
        """For how long the lane awaits late reports, in microseconds."""
        return self._lane[1] if self._lane else 0

    def _names(self) -> Collection[str]:
        """The clocks by the slowest of which the lane goes, if it awaits late reports."""
        return (self._lane and self._lane[2]) or (SHARED_NAME,)

    def _awaits(self, event: Event) -> bool:
        return bool(self._lateness) and self._lane_clocks.name_of(event.channel) in self._names()

    def _pass(self) -> None:
        """Lets the clocks come to where they are; what is awaited until then counts."""
        late = self._lateness
        if self._lane is None:
            return
        if not late:
            self._note(self._relations.pass_time(self._lane_clocks.shared, self._lane_clocks.own))
            return
        self._clock = max(self._clock, self._lane_clocks.slowest(self._names()))
        while self._waiting and self._waiting[0][0] + late <= self._clock:
            self._note(self._relations.report(heappop(self._waiting)[-1]))
        self._note(self._relations.pass_time(self._clock - late if self._clock != NEVER else NEVER))

    def _define(self, relation: Relation, step: PairStep) -> None:
        if self.relation == relation:
            return
        self._note(self._relations.end(self.id))
        self._go_to(self._lane_of(relation), step)
        moment = moment_of(step.moment)
        now = self._relations.now if self._lateness else self._lane_clocks.greatest
        self._note(self._relations.define(relation, 0, cause_at(Cause(step.position, moment, moment), now)))

    def _lane_of(self, relation: Relation) -> Lane:
        return lane_of(relation, StreamClocks(self._clocks.channels))

    def _lane_of_others(self) -> Lane | None:
        """The lane in which the relation is in the end, while there is another one in it."""
        own = None if self._last is None else self._lane_of(self._last)
        return own if any(self._lane_of(one) == own for one in self.others.values()) else None

    def _go_on(self, step: PairStep) -> None:
        """Other relations came, or went: while this one is not there they have its lane."""
        if self.relation is None:
            self._go_to(self._lane_of_others(), step)

    def _go_to(self, lane: Lane | None, step: PairStep) -> None:
        """Goes on in a lane, which begins if it is not the one that there is."""
        if lane == self._lane:
            return
        self._lane, self._waiting, before = lane, [], self._relations
        self._relations = self._beginning()
        self._relations.limits, self._relations.lists = before.limits, before.lists
        # The relations of all nodes that await nothing follow the clocks also while there are none.
        following = lane is None or lane[:2] == (None, 0)
        channels, newest = self._clocks.channels, self._newest(step)
        self._lane_clocks = self._clocks.copy() if following else StepClocks.of_newest(channels, newest)
        if self._lateness:
            self._clock = self._relations.now = self._lane_clocks.slowest(self._names())
            self._relations.known = {name: one for name, one in self._heard.items() if self._awaits(one.event)}
        else:
            self._relations.known = dict(self._heard)
            self._relations.set_clocks(self._lane_clocks.own, self._lane_clocks.shared)

    def _set_channels(self, channels: Sequence[Channel], step: PairStep) -> None:
        """Goes on by the clocks of other channels."""
        changed = [one.redefine(channels, self._newest(step)) for one in (self._clocks, self._lane_clocks)]
        relation = self.relation
        if not any(changed) or self._lane is None:
            return
        if not self._lateness:
            self._relations.set_clocks(self._lane_clocks.own, self._lane_clocks.shared)
        elif relation is None:
            self._go_on(step)
        elif self._lane_of(relation) != self._lane:
            # Where it goes by other clocks it begins anew.
            self._note(self._relations.end(self.id))
            self._define(relation, step)

    def _newest(self, step: PairStep) -> Callable[[], pa.Table] | None:
        """Gives the newest events of all entities at the node."""
        return None if step.newest is None else partial(step.newest, self._node)

    def _note(self, told: Iterable[Transition]) -> None:
        self._told.extend((self._position, one) for one in told)

    def finding(self, relation: Relation, about: Pair, a: str, b: str) -> PairFinding:
        """What is so now."""
        if about.a == about.b and is_symmetric(about.when):
            # Where both orders are one pair, the lesser name is a.
            a, b = sorted((a, b))
        sides = (self._side(about.a, a, relation), self._side(about.b, b, relation))
        reports = [side.report for side in sides]
        conditions: tuple[PredicateFinding, ...] = ()
        whole: Truth = None
        metres = None
        if reports[0] is not None and reports[1] is not None:
            both = reports[0], reports[1]
            limits, over_time = self._relations.limits, self._over_time(relation.id, about, (a, b))
            whole = RelationPredicate(about.when).truth(*both, limits, over_time=_values(over_time))
            conditions = tuple(_of_predicate(about.when, relation.margin, *both, limits, over_time))
            metres = distance(both[0].place, both[1].place) if both[0].place and both[1].place else None
        held = self._relations.held(relation.id, (a, b))
        now = self._time((a, b))
        return PairFinding(
            relation=relation,
            position=self._position,
            time=None if now == NEVER else moment_of(now),
            a=sides[0],
            b=sides[1],
            metres=metres,
            predicate=whole,
            conditions=conditions,
            holds=held is not None,
            since=None if held is None or held.started_at == NEVER else moment_of(held.started_at),
            due=None if held is None or held.due == FOREVER else moment_of(held.due),
            dwelt=held is not None and held.dwell_sent,
            told=tuple(one for one in self._told if {one[1].a.entity, one[1].b[0].entity} == {a, b}),
            reasons=() if held else tuple(self._reasons(relation, sides, whole, conditions)),
        )

    def _time(self, pair: tuple[str, str]) -> int:
        """How far the slower clock of the two has come, of those that are set."""
        relations = self._relations
        every = [relations.clock_of(one) for one in pair if one in relations.known] or [relations.now]
        return min((one for one in every if one != NEVER), default=NEVER)

    def _over_time(self, id: str, about: Pair, pair: tuple[str, str]) -> OverTimeFindings:
        """What the aggregates of the predicate are of the two, by how they are written."""
        found = {}
        for one in side_aggregates(about.when):
            entity = pair[SIDES.index(one.side)]
            found[one.text] = entity, self._relations.aggregate(id, entity, one)._replace(text=one.text)
        return found

    def _side(self, side: Side, entity: str, relation: Relation) -> SideFinding:
        known = self._relations.known.get(entity)
        if known is None:
            return SideFinding(entity, None, False, (), None)
        live = FOREVER if relation.time_to_live is None else micros(relation.time_to_live)
        ends = deadline(known.heard, live)
        silent = moment_of(ends) if ends < self._relations.clock_of(entity) else None
        if isinstance(side, Named):
            return SideFinding(entity, known.event, side.entity == entity, (), silent)
        assert isinstance(side, Matching)
        limits = self._relations.limits
        spatial = any(spatial_atoms(side.filter))
        undecided = self._relations.sides.budget(known.event, limits).undecided if spatial else ()
        found = atom_truths(side.filter, known.event, NO_CONTEXT, limits, undecided)
        conditions = tuple(PredicateFinding(atom, own, own, _read(atom, known.event)) for atom, own in found)
        selects = self._relations.sides.selects(side.filter, known.event, limits)
        return SideFinding(entity, known.event, selects, conditions, silent)

    def _beyond(self, side: SideFinding) -> str:
        """Why an atom of a side's filter is not decided, where the work for the event did not suffice."""
        assert side.report is not None, "it was heard of"
        if not any(any(spatial_atoms(one.atom)) for one in side.conditions):
            return ""
        budget = self._relations.sides.budget(side.report, self._relations.limits)
        reasons = (budget.reason(one.atom) for one in side.conditions)
        return next((f": {one}" for one in reasons if one), "")

    def _reasons(
        self,
        relation: Relation,
        sides: tuple[SideFinding, SideFinding],
        whole: Truth,
        conditions: tuple[PredicateFinding, ...],
    ) -> Iterator[str]:
        """Why it does not hold."""
        if sides[0].entity == sides[1].entity:
            yield "an entity is not related to itself"
        for name, side in zip(("a", "b"), sides, strict=True):
            if side.report is None:
                elsewhere = self._other_nodes.get(side.entity)
                where = f", only at {elsewhere}, and the relation is local to {relation.node}" if elsewhere else ""
                yield f"{side.entity} was not heard of{where}"
            elif not side.member:
                yield f"{side.entity} is not of side {name}{self._beyond(side)}"
            elif side.silent_since is not None:
                yield f"{side.entity} was silent for longer than time_to_live, {relation.time_to_live:g} s"
        if all(side.report is not None for side in sides):
            if whole is False:
                yield "the predicate is FALSE"
            elif whole is None:
                unknown = [one for one in conditions if one.truth is None]
                lacking = [f"there is no {name}" for one in unknown for name, values in one.read if not values]
                for entity, one in (pair for each in unknown for pair in each.aggregates):
                    lacking += [f"{one.text} of {entity}: {one.why}"] if known_value(one) is None else []
                why = f": {', '.join(dict.fromkeys(lacking))}" if lacking else ""
                yield f"the predicate is UNKNOWN{why}"


OverTimeFindings = Mapping[str, tuple[str, AggregateFinding]]
"""By how an aggregate is written its entity, and what was found."""


def _values(found: OverTimeFindings) -> dict[str, float]:
    """Those that have a value."""
    known = {text: known_value(one) for text, (_, one) in found.items()}
    return {text: value for text, value in known.items() if value is not None}


def _of_predicate(
    when: Filter, margin: float, a: Event, b: Event, limits: Limits, over_time: OverTimeFindings
) -> Iterator[PredicateFinding]:
    """Each atom of a predicate, for entering and for staying."""
    values = _values(over_time)
    for atom, wider in zip(atoms(when), atoms(widened(when, margin)), strict=True):
        found, staying = (RelationPredicate(one).truth(a, b, limits, over_time=values) for one in (atom, wider))
        own = tuple(over_time[one.text] for one in side_aggregates(atom))
        yield PredicateFinding(atom, found, staying, _read_of_both(atom, a, b), own)


def _read(atom: Atom, event: Event) -> tuple[tuple[str, tuple[Value, ...]], ...]:
    """The attributes that a side's atom reads, with their values."""
    names = [atom.name] if isinstance(atom.name, str) else _names(atom)
    return tuple((name, tuple(event.values(name))) for name in names)


def _read_of_both(atom: Atom, a: Event, b: Event) -> tuple[tuple[str, tuple[Value, ...]], ...]:
    found: list[tuple[str, tuple[Value, ...]]] = []
    for name in _names(atom):
        side, _, attribute = name.partition(".")
        if side not in SIDES:
            continue
        event = a if side == "a" else b
        if attribute and attribute not in ("position", "this"):
            found.append((name, tuple(event.values(attribute))))
        else:
            place = event.place
            found.append((f"place of {side}", () if place is None else (f"{place.x:g}, {place.y:g}",)))
    return tuple(found)


def _names(atom: Atom) -> list[str]:
    if not isinstance(atom.name, Call):
        return []
    # An aggregate reads no newest value.
    return list(dict.fromkeys(part.name for part in parts(by_name(atom.name)) if isinstance(part, Property)))
