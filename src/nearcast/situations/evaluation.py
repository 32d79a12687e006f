"""What holds around a centre at a moment: the three-valued truth of rules there, and what it rests on.

A condition on a class is about the fresh readings around: it is true if at least one of them satisfies it, false if
there are some and none does, and unknown where there is none, as filters have it for the values of an attribute.
A condition on a situation is true where one is around. It is false where every rule for it is false, or a necessary
condition of it is, or a reading denies it; else unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from nearcast.filters.evaluate import satisfies
from nearcast.filters.expressions import truth_of
from nearcast.filters.truth import Truth, negated, some
from nearcast.model.event import Place
from nearcast.model.expression import Call
from nearcast.model.geometry_budget import SPENT, EventGeometryWork, GeometryWork
from nearcast.model.values import Value
from nearcast.situations.counts.entity_counts import (
    FOR_EVER,
    CountedArea,
    CountFinding,
    EntityCount,
    EntityCounts,
    EntityTally,
    finding_of,
    truth_of_count,
)
from nearcast.situations.geometries.condition_work import ConditionLimits
from nearcast.situations.readings import ContextReading, ReadingStore, SituationCentre
from nearcast.situations.rule_plan import (
    ConditionBranch,
    ConditionLeaf,
    ConditionNode,
    PlannedRule,
    RulePlan,
    leaves,
    satisfied,
)
from nearcast.state.windows import Aggregate, AggregateFinding, ReadingWindows

Condition = tuple[str, int, str]
"""A condition of a rule, by the rule's id and its number there, and one of the classes that it names."""

EarlierEvidence = set[tuple[Condition, tuple[str, str]]]
"""Readings on which a situation rested, by condition and key."""


class RunningSituation(Protocol):
    """A situation that is."""

    @property
    def id(self) -> str:
        """Its name."""

    @property
    def concludes(self) -> str:
        """Its class."""

    @property
    def begun(self) -> bool:
        """Whether it is; else its rule has not held for long enough."""


class SituationWorld(Protocol):
    """What there is: rules, readings, situations."""

    plan: RulePlan

    @property
    def conditions(self) -> ConditionLimits:
        """What conditions may take."""

    @property
    def readings(self) -> ReadingStore:
        """The newest of every class by every entity."""

    @property
    def windows(self) -> ReadingWindows:
        """Those of some time, for aggregates."""

    @property
    def counts(self) -> EntityCounts:
        """The entities that are counted."""

    def around(
        self, rules: Iterable[PlannedRule], centre: SituationCentre, rule: PlannedRule, metres: float
    ) -> Sequence[RunningSituation]:
        """The situations of these rules within the validity of another rule around a centre, oldest first."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a condition rests on: a reading, or a situation that is, by its id; `name` is the class asked for. `over`:
    the aggregate of which the reading is the newest. `counts`: how many entities there are, of a condition that counts
    them.
    """

    name: str
    condition: Condition
    reading: ContextReading | None
    situation: str | None = None
    over: AggregateFinding | None = None
    counts: CountFinding | None = None


class RuleEvaluation:
    """One centre at one moment. `lapses` is the first moment at which what was looked at may count otherwise;
    `seen` are the keys of all that was looked at; `limited` says to which limits conditions came, by rule and number;
    `undecided`: for some of them no work was left.

    `together` is what all that is looked at with it takes of the work on geometries, and may take. Without it a look
    explains: it counts nothing, and what was left undecided stays so. Nor does one count that is `tentative`.
    """

    def __init__(
        self,
        world: SituationWorld,
        centre: SituationCentre,
        now: int,
        together: EventGeometryWork | None = None,
        tentative: bool = False,
    ) -> None:
        self._world = world
        self._together, self._counts = together, together is not None and not tentative
        self._truths: dict[ConditionLeaf, Truth] = {}
        self._centre = centre
        self._now = now
        self._found: dict[tuple[PlannedRule, str], list[ContextReading]] = {}
        self._tallies: dict[ConditionLeaf, EntityTally] = {}
        self._told_of: PlannedRule | None = None
        self.lapses = FOR_EVER
        self.seen: set[tuple[str, str]] = set()
        self.limited: dict[tuple[str, int], str] = {}
        self.undecided = False

    def verdict(self, rule: PlannedRule, held: bool = False) -> tuple[Truth, str]:
        """Whether there is a situation of this rule, and the id of the necessary rule that refutes it; `held`: there
        was one until now, which margins let hold on.
        """
        found = self.truth(rule.held if held else rule.tree, rule)
        for lower in rule.necessary:
            if found and self.truth(lower.held if held else lower.tree, lower) is False:
                return False, lower.id
        return found, ""

    def holds(self, rule: PlannedRule) -> bool:
        """Whether there is a situation of this rule: no more is looked at than that takes."""
        return self._holds(rule.tree, rule) and self.verdict(rule)[0] is True

    def _holds(self, node: ConditionNode, rule: PlannedRule) -> bool:
        if isinstance(node, ConditionLeaf):
            return self.truth(node, rule) is True
        if node.every:
            return all(self._holds(part, rule) for part in node.by_work)
        return any(self._holds(part, rule) for part in node.by_work)

    def truth(self, node: ConditionNode, rule: PlannedRule) -> Truth:
        """The truth of conditions of a rule."""
        if isinstance(node, ConditionLeaf):
            found = self._leaf(node, rule)
            return negated(found) if node.negated else found
        unknown = False
        for part in node.by_work:
            found = self.truth(part, rule)
            if found is not node.every and found is not None:
                return found
            unknown = unknown or found is None
        return None if unknown else node.every

    def _leaf(self, leaf: ConditionLeaf, rule: PlannedRule) -> Truth:
        if leaf.situation is not None:
            return self._situation(leaf, leaf.situation, rule)
        if leaf.computed is not None:
            return self._computed(leaf, leaf.computed, rule)
        if leaf.counted is not None:
            return truth_of_count(leaf.counted, self._tally(leaf, leaf.counted, rule))
        readings = self.readings(leaf.names[0], rule)
        if leaf.compares is None:
            return some(satisfies(leaf.atom, reading.value) for reading in readings)
        found: Truth = None
        for reading in readings:
            # By exact type, which is quick: in Python a bool is an integer.
            if type(reading.value) is float or type(reading.value) is int:
                if leaf.compares(reading.value, leaf.limit):
                    return True
                found = False
        return found

    def _tally(self, leaf: ConditionLeaf, count: EntityCount, rule: PlannedRule) -> EntityTally:
        found = self._tallies.get(leaf)
        if found is None:
            area = counted_area(rule, self._centre, count.name)
            found = self._tallies[leaf] = self._world.counts.tally(count, area, self._now)
            self.lapses = min(self.lapses, found.lapses)
        return found

    def count(self, count: EntityCount, rule: PlannedRule) -> CountFinding:
        """How many entities there are here, exactly."""
        counts, area = self._world.counts, counted_area(rule, self._centre, count.name)
        left_out = counts.is_left_out(count.name, rule.valid, self._now)
        most = f"at most {counts.limits.counted_entities:,} entities are counted, and there were more"
        return finding_of(count.name, counts.found(count.name, area, self._now), most if left_out else "")

    def _computed(self, leaf: ConditionLeaf, call: Call, rule: PlannedRule) -> Truth:
        facts = {name: self._values(name, rule) for name in leaf.names}
        for aggregate in leaf.aggregates:
            facts[aggregate.text] = tuple(value for _, value in self._aggregated(aggregate, rule))
        if not leaf.spatial:
            return truth_of(call, _Facts(facts))
        # However often it is asked for around here, geometries are compared once.
        if leaf not in self._truths:
            self._truths[leaf] = self._compared(leaf, call, rule, facts)
        return self._truths[leaf]

    def _compared(
        self, leaf: ConditionLeaf, call: Call, rule: PlannedRule, facts: Mapping[str, tuple[Value, ...]]
    ) -> Truth:
        """The truth of a condition that compares geometries, as far as the work for that goes."""
        conditions = self._world.conditions
        read = [one for name in leaf.names for one in self.readings(name, rule)]
        told = conditions.told(read)
        work = GeometryWork(conditions.limits, comparing=False, told=told)
        found = truth_of(call, _Facts(facts, work=work))
        if work.lacking:
            look = rule.id, leaf.number, self._centre.entity, rule.area_at(self._centre)
            together = self._together
            spent = look in conditions.undecided if together is None else together.beyond
            if self._counts:
                conditions.note(look, not spent)
            if spent:
                self.undecided = True
                self._note_limit(leaf, rule, read, SPENT, conditions.reason)
                return None
            work = GeometryWork(conditions.limits, told=told)
            found = truth_of(call, _Facts(facts, work=work))
            if together is not None:
                together.count(work)
        if work.beyond:
            self._note_limit(leaf, rule, read, work.beyond, work.reason)
        return found

    def _note_limit(
        self, leaf: ConditionLeaf, rule: PlannedRule, read: Sequence[ContextReading], limit: str, reason: str
    ) -> None:
        """Counts that a condition came to a limit, for what has the longest geometry of those that it read."""
        longest = max(read, key=lambda one: (len(str(one.value)), one.entity, one.name), default=None)
        entity, name = ("", leaf.names[0] if leaf.names else "") if longest is None else (longest.entity, longest.name)
        if self._counts:
            self._world.conditions.excess[entity, name, limit] += 1
        self.limited[rule.id, leaf.number] = reason

    def _values(self, name: str, rule: PlannedRule) -> tuple[Value, ...]:
        # Of very many choices among values only the first count, so they have an order that no index decides.
        return tuple(reading.value for reading in sorted(self.readings(name, rule), key=_age))

    def _aggregated(self, aggregate: Aggregate, rule: PlannedRule) -> list[tuple[ContextReading, float]]:
        """The entities around that have an aggregate, by their newest readings, and its values."""
        found = (
            (one, self.over_time(one, aggregate, rule)) for one in sorted(self.readings(aggregate.name, rule), key=_age)
        )
        return [(reading, one.value) for reading, one in found if one.value is not None]

    def over_time(self, reading: ContextReading, aggregate: Aggregate, rule: PlannedRule) -> AggregateFinding:
        """An aggregate of the entity and class of a reading."""
        found = self._world.windows.find(reading.key, aggregate, self._now, rule.after)
        if found.readings:
            # As time passes readings leave the window, the first one first.
            self.lapses = min(self.lapses, found.first + aggregate.span + 1)
        return found

    def readings(self, name: str, rule: PlannedRule) -> list[ContextReading]:
        """The fresh readings of a class that count for a rule here."""
        key = (rule, name)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._gather(name, rule)
        return found

    def _gather(self, name: str, rule: PlannedRule) -> list[ContextReading]:
        names = self._world.plan.served.get(name, (name,))
        area = rule.area_at(self._centre)
        if area is not None:
            found = self._world.readings.inside(names, area)
        else:
            found = self._world.readings.near(names, self._centre, rule.reach[name])
        oldest = self._now - rule.valid if rule.valid is not None else -FOR_EVER
        fresh = [one for one in found if one.moment >= oldest and one.position > rule.after]
        if fresh:
            self.seen.update([one.key for one in fresh])
            if rule.valid is not None:
                # A reading counts through the last microsecond of its time, and not a moment longer.
                self.lapses = min(self.lapses, min([one.moment for one in fresh]) + rule.valid + 1)
        return fresh

    def _situation(self, leaf: ConditionLeaf, name: str, rule: PlannedRule) -> Truth:
        plan = self._world.plan
        verdict = some(said(reading, name) for reading in self.readings(name, rule))
        if verdict or self._running(name, rule):
            return True
        if verdict is False or any(self.truth(one.tree, one) is False for one in plan.demanding[name]):
            return False
        rules = plan.concluding[name]
        return False if rules and all(self._denied(one) for one in rules) else None

    def _denied(self, rule: PlannedRule) -> bool:
        """Whether there is no situation of a rule here, as none is running: it is false, or has yet to hold on."""
        found = self.truth(rule.tree, rule)
        return found is False or (found is True and rule.begin > 0)

    def _running(self, name: str, rule: PlannedRule) -> Sequence[RunningSituation]:
        there = self._world.around(self._world.plan.concluding[name], self._centre, rule, rule.reach[name])
        found = [one for one in there if one.begun]
        self.seen.update((one.id, one.concludes) for one in found)
        return found

    def grounds(self, node: ConditionNode, rule: PlannedRule, before: Iterable[Evidence] = ()) -> tuple[Evidence, ...]:
        """What true conditions rest on; what each of them rested on `before` goes on, where it can."""
        self._told_of = rule
        # Each condition by itself: what one rests on is nothing that another did, or looking twice would find other
        # readings than looking once.
        earlier = {(ground.condition, ground.reading.key) for ground in before if ground.reading}
        # One condition may be reached by several ways.
        return tuple({one.condition: one for one in self._grounds(node, rule, earlier)}.values())

    def _grounds(self, node: ConditionNode, rule: PlannedRule, earlier: EarlierEvidence) -> Iterator[Evidence]:
        if isinstance(node, ConditionBranch):
            holding = [part for part in node.parts if self.truth(part, rule)]
            for part in holding if node.every else holding[:1]:
                yield from self._grounds(part, rule, earlier)
        elif node.situation is not None:
            yield from self._situation_grounds(node, node.situation, rule, earlier)
        elif node.aggregates:
            yield from self._aggregate_grounds(node, rule, earlier)
        elif node.counted is not None:
            # How many they are is looked at where it is told.
            lower = None if rule is self._told_of else self.count(node.counted, rule)
            yield Evidence(node.counted.name, (rule.id, node.number, node.counted.name), None, counts=lower)
        elif isinstance(node.atom.name, Call):
            for name in node.names:
                yield from _one((rule.id, node.number, name), self.readings(name, rule), earlier)
        else:
            name = node.names[0]
            found = [one for one in self.readings(name, rule) if satisfied(node, one.value)]
            yield from _one((rule.id, node.number, name), found, earlier)

    def _aggregate_grounds(
        self, leaf: ConditionLeaf, rule: PlannedRule, earlier: EarlierEvidence
    ) -> Iterator[Evidence]:
        over = {one.name for one in leaf.aggregates}
        for name in leaf.names:
            if name not in over:
                yield from _one((rule.id, leaf.number, name), self.readings(name, rule), earlier)
        for aggregate in leaf.aggregates:
            there = self._aggregated(aggregate, rule)
            if len(leaf.aggregates) == 1 and leaf.computed is not None and over == set(leaf.names):
                there = [one for one in there if _alone(leaf, aggregate.text, one[1])]
            condition = (rule.id, leaf.number, aggregate.text)
            for one in _one(condition, [reading for reading, _ in there], earlier):
                assert one.reading is not None, "it is of a reading"
                yield replace(one, name=aggregate.name, over=self.over_time(one.reading, aggregate, rule))

    def _situation_grounds(
        self, leaf: ConditionLeaf, name: str, rule: PlannedRule, earlier: EarlierEvidence
    ) -> Iterator[Evidence]:
        found = [
            one
            for one in self.readings(name, rule)
            if said(one, name) is not leaf.negated and said(one, name) is not None
        ]
        condition = (rule.id, leaf.number, name)
        if found:
            yield from _one(condition, found, earlier)
        elif not leaf.negated:
            yield from (Evidence(one.concludes, condition, None, one.id) for one in self._running(name, rule)[:1])
        else:
            plan = self._world.plan
            denying = [one for one in plan.demanding[name] if self.truth(one.tree, one) is False][:1]
            for one in denying or plan.concluding[name]:
                yield from self._grounds(one.against, one, earlier)


Seats = list[tuple[SituationCentre, RuleEvaluation]]
"""Places around which a rule holds, and what is there."""


class SeatViews:
    """The places at which a rule may begin to hold, and those to which what holds already may move. They are looked at
    where it comes to that: what goes on where it is needs no other place.
    """

    def __init__(
        self,
        rule: PlannedRule,
        view: Callable[[SituationCentre], RuleEvaluation],
        centres: Sequence[SituationCentre],
        moves: Sequence[SituationCentre],
    ) -> None:
        self._rule, self._view, self._centres, self._moves = rule, view, centres, moves

    @cached_property
    def complete(self) -> Seats:
        """Where it holds, less what is taken out."""
        return [(centre, view) for centre, view in self._views(self._centres) if view.holds(self._rule)]

    @cached_property
    def carrying(self) -> Seats:
        """Where what holds already would hold on, less what is taken out."""
        return [(centre, view) for centre, view in self._views(self._moves) if view.verdict(self._rule, held=True)[0]]

    def left(self, is_around: Callable[[SituationCentre], bool]) -> Iterator[tuple[SituationCentre, RuleEvaluation]]:
        """Where it holds and no situation `is_around`: what begins at one of them is around others."""
        if "complete" in vars(self):
            yield from ((centre, view) for centre, view in self.complete if not is_around(centre))
        else:
            views = self._views(self._centres)
            yield from ((centre, view) for centre, view in views if not is_around(centre) and view.holds(self._rule))

    def _views(self, centres: Sequence[SituationCentre]) -> Iterator[tuple[SituationCentre, RuleEvaluation]]:
        return ((centre, self._view(centre)) for centre in centres)


def counted_area(rule: PlannedRule, centre: SituationCentre, name: str) -> CountedArea:
    """Where a rule counts entities around a centre."""
    return CountedArea(centre, rule.reach[name], rule.area_at(centre), rule.after, rule.valid)


def distinct(grounds: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """What a situation rests on, each once, whichever conditions do."""
    # By what tells readings apart, for hashing whole ones takes long.
    told = {
        (one.name, one.situation or (one.reading and one.reading.key), one.over and one.over.text): one
        for one in grounds
    }
    return tuple(told.values())


def with_counts(grounds: Iterable[Evidence], rule: PlannedRule, view: RuleEvaluation) -> tuple[Evidence, ...]:
    """What a situation rests on, with how many entities there are around it now."""
    counted = {
        (rule.id, leaf.number, leaf.counted.name): leaf.counted
        for leaf in leaves(rule.tree)
        if leaf.counted is not None
    }
    return tuple(
        replace(one, counts=view.count(counted[one.condition], rule)) if one.condition in counted else one
        for one in grounds
    )


def _alone(leaf: ConditionLeaf, name: str, value: float) -> bool:
    """Whether the value of an aggregate makes a condition hold that is about nothing else."""
    assert leaf.computed is not None, "it has an aggregate"
    found = truth_of(leaf.computed, _Facts({name: (value,)}))
    return (negated(found) if leaf.negated else found) is True


def said(reading: ContextReading, name: str) -> Truth:
    """What a reading that serves a request for a situation says of it: only one of its own class says there is none."""
    value = reading.value if isinstance(reading.value, bool) else None
    return None if value is False and reading.name != name else value


def _age(reading: ContextReading) -> tuple[int, str, str]:
    # Not by position: late readings have other ones than those in order.
    return -reading.moment, reading.entity, reading.name


def _one(condition: Condition, readings: Sequence[ContextReading], earlier: EarlierEvidence) -> Iterator[Evidence]:
    """The reading on which the condition rested before, as it is now, else the newest."""
    ordered = sorted(readings, key=_age)
    before = [reading for reading in ordered if (condition, reading.key) in earlier]
    yield from (Evidence(condition[-1], condition, reading) for reading in (before or ordered)[:1])


@dataclass(frozen=True, slots=True)
class _Facts:
    """Readings as expressions read the attributes of an event."""

    read: Mapping[str, tuple[Value, ...]]
    place: Place | None = None
    work: GeometryWork = field(default_factory=GeometryWork)

    def values(self, name: str) -> Sequence[Value]:
        """The values of a class."""
        return self.read.get(name, ())

    def previous(self, name: str) -> Sequence[Value] | None:
        """Rules do not ask for what was before."""
        return None

    def user(self, name: str) -> Place | None:
        """Rules do not ask for users."""
        return None
