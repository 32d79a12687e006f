"""Situations as they begin, are updated and end: one reading after the other, each at its moment.

A situation of a rule begins where a reading comes that makes one of its conditions hold, if then the whole rule holds
around that reading, and no situation of the rule is running within its validity: then that one goes on instead. It has
its seat where it began. It is updated when what it rests on changes. When the rule no longer holds around its seat, it
moves to the reading that just came, if the rule holds there, and that is within its validity or of an entity that it
rests on; else it ends. So it does at the very moment at which a reading gets too old. The readings of one event are
taken in together.

Where a rule says for how long, a situation is there from the first moment, but has not begun; when its rule fails
before it has, it goes without a word. One whose rule fails after that is ending, and goes on until it has failed for so
long; meanwhile it may hold again, or move. Both fall due as readings grow old: when time passes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import chain

from nearcast.model.geometry_budget import READ_TOGETHER, EventGeometryWork
from nearcast.model.situation import Phase
from nearcast.situations.counts.entity_counts import FOR_EVER
from nearcast.situations.evaluation import (
    Evidence,
    RuleEvaluation,
    Seats,
    SeatViews,
    distinct,
    with_counts,
)
from nearcast.situations.instances import SituationChanged, SituationInstance, SituationScene
from nearcast.situations.readings import ContextReading, NamedAreas, SituationCentre, separation
from nearcast.situations.rule_plan import ConditionLeaf, PlannedRule, RulePlan
from nearcast.state.windows import KeptReading

REMOVED = "removed"
"""Why a situation ended whose rule did."""


@dataclass(slots=True)
class _Work:
    """What is to be looked at of one rule."""

    instances: dict[SituationInstance, None] = field(default_factory=dict)
    centres: list[SituationCentre] = field(default_factory=list)
    # Where a reading came that completes no rule, but may carry on what holds already.
    moves: list[SituationCentre] = field(default_factory=list)


Pending = dict[int, _Work]

LOOKS = 50
"""Situations that are looked at ahead, at most, to find out whether time alone tells something."""


class SituationEngine:
    """Folds readings into a scene. A situation is named by its rule and by the position `cause` that let it begin."""

    def __init__(self, scene: SituationScene) -> None:
        self.scene = scene
        self.now = 0
        self._order = 0
        self._lapses: list[tuple[int, int, SituationInstance]] = []
        # Of each situation in `_lapses`, by its order, the earliest moment there: at or before the one it lapses at.
        self._awaited: dict[int, int] = {}
        self._begun: dict[str, int] = {}
        self._cause = 0

    @property
    def plan(self) -> RulePlan:
        """The rules."""
        return self.scene.plan

    @property
    def due(self) -> int | None:
        """The next moment at which a situation may end by itself; None: none does."""
        while self._lapses and not self._is_due(self._lapses[0]):
            instance = self._next()
            if instance.running:
                self._await(instance)
        return self._lapses[0][0] if self._lapses else None

    def told_by(self, until: int) -> int | None:
        """The first moment through `until` at which time alone tells something; else the next at which it may; None:
        it never does. After `LOOKS` looks it is said to be the next at which it may.

        Readings leave the windows of aggregates one by one, and mostly nothing is told of that.
        """
        if (first := self.due) is None or first > until:
            return first
        return self._looked_ahead(until, self._work_of_one())

    def _looked_ahead(self, until: int, together: EventGeometryWork) -> int | None:
        waiting, grounds, looks = list(self._lapses), dict[int, tuple[Evidence, ...]](), 0
        lapses = {instance.order: instance.lapses for _, _, instance in waiting if instance.running}
        while waiting and waiting[0][0] <= until:
            moment, order, instance = heappop(waiting)
            expected = lapses.get(order, 0)
            if moment < expected:
                heappush(waiting, (expected, order, instance))
            elif moment == expected:
                looks += 1
                rests = grounds.get(order, instance.grounds)
                quiet = self._rests_on(instance, rests, moment, together) if looks <= LOOKS else None
                if quiet is None:
                    return moment
                lapses[order], grounds[order] = quiet
                heappush(waiting, (lapses[order], order, instance))
        return waiting[0][0] if waiting else None

    def _rests_on(
        self, instance: SituationInstance, before: Iterable[Evidence], moment: int, together: EventGeometryWork
    ) -> tuple[int, tuple[Evidence, ...]] | None:
        """Until when a situation goes on from a moment without a word, and on what; None: it may be told."""
        rule = self._rule(instance)
        if not instance.begun or instance.ends is not None or rule.steady:
            return None
        # What is only looked at ahead is counted when it comes.
        view = RuleEvaluation(self.scene, instance.centre, moment, together, tentative=True)
        if not view.verdict(rule, held=True)[0]:
            return None
        after = view.grounds(rule.held, rule, before)
        return None if _told(before) != _told(after) or view.lapses <= moment else (view.lapses, after)

    def may_lapse(self, now: int) -> bool:
        """Whether something may end by itself until a moment: no more than a look."""
        return bool(self._lapses) and self._lapses[0][0] <= now

    def expire_until(self, now: int, cause: int) -> Iterator[SituationChanged]:
        """Lets time pass up to a moment: readings grow old."""
        self._begin(cause)
        last, together = -1, self._work_of_one()
        while (moment := self.due) is not None and moment <= now:
            if moment != last:
                last, together = moment, self._work_of_one()
            instance = self._next()
            self.now = max(self.now, moment)
            yield from self._settle({self._rule(instance).order: _Work({instance: None})}, together, lapsed=True)
        self.now = max(self.now, now)

    def fold_readings(
        self, readings: Sequence[ContextReading], cause: int, denied: Sequence[str] = ()
    ) -> Iterable[SituationChanged]:
        """Takes in the readings of one event, at the moment that it is; `expire_until` comes before it. As what is
        `denied` its entity does not count.
        """
        if not readings:
            return ()
        scene = self.scene
        counted = scene.counts.names
        for reading in readings:
            if reading.name not in counted:
                kept = KeptReading(reading.moment, reading.position, reading.value)
                scene.windows.put_reading(reading.key, kept, self.now)
        # One event is at one place.
        centre = readings[0].centre
        left = scene.left_by(centre.entity) if counted else ()
        # All of them are there before any is looked at.
        telling = scene.put_readings(readings, self.now, denied)
        unsettled = scene.unsettled(self.now) if counted else ()
        if not telling and not unsettled:
            return ()
        self._begin(cause)
        pending: Pending = {}
        for seat in left:
            if seat != centre:
                self._look_again(telling, seat, pending, carrying=False)
        self._look_again(telling, centre, pending)
        self._look_at(unsettled, centre, pending)
        for reading in telling:
            for rule in self.scene.completed(reading, self.now):
                # A late reading may be too old by now: with it nothing begins.
                if rule.valid is None or self.now - reading.moment <= rule.valid:
                    self._seat(pending, rule, centre)
        return self._settle(pending, self._work_of_one()) if pending else ()

    def _look_again(
        self, readings: Sequence[ContextReading], centre: SituationCentre, pending: Pending, carrying: bool = True
    ) -> None:
        """Lets the situations be looked at that readings at a centre may change, or carry on there."""
        names, keys = [one.name for one in readings], [one.key for one in readings]
        self._look_at(self.scene.concerned(names, keys, centre), centre, pending, carrying)

    def _look_at(
        self, instances: Iterable[SituationInstance], centre: SituationCentre, pending: Pending, carrying: bool = True
    ) -> None:
        for instance in instances:
            rule = self._rule(instance)
            work = self._work(pending, rule)
            work.instances[instance] = None
            if carrying and rule.held is not rule.tree:
                work.moves += [one for one in rule.seats(centre) if one not in work.moves]

    def forget(self, entities: Collection[str]) -> None:
        """Drops the readings of some entities. Situations that counted them are looked at with the next event."""
        self.scene.conditions.forget(entities)
        reports = self.scene.forget(entities)
        concerned = [self.scene.concerned([one.name], [], one.centre) for one in reports]
        for instance in chain(self.scene.unsettled(self.now), *concerned):
            instance.lapses = min(instance.lapses, self.now)
            self._await(instance)

    def replan(self, plan: RulePlan, cause: int, areas: NamedAreas | None = None) -> Iterator[SituationChanged]:
        """Other rules, perhaps other zones: the situations of those that are gone, or are others now, end; all others
        are looked at. `areas` are the places by now, if readings may be in others.
        """
        self._begin(cause)
        after = {rule.id: rule.after for rule in plan.rules}
        for rule in self.plan.rules:
            for instance in sorted(self.scene.running(rule), key=lambda one: one.order):
                zone = rule.area_at(instance.centre) if rule.zones is not None else None
                if after.get(rule.id) != rule.after or (zone is not None and zone not in plan.zones):
                    yield from self._end(instance, rule, REMOVED)
        self.scene.plan = plan
        self.scene.conditions.replan()
        if areas is not None:
            self.scene.rezone(areas)
        pending: Pending = {}
        for rule in plan.rules:
            for instance in self.scene.running(rule):
                self._work(pending, rule).instances[instance] = None
        yield from self._settle(pending, None)

    def keep(self, plan: RulePlan) -> None:
        """Goes on with these rules, which are as they were; of the others nothing more is known, and nothing told."""
        for rule in self.plan.rules:
            if rule.id not in plan.by_id:
                for instance in list(self.scene.running(rule)):
                    instance.running = False
                    self.scene.drop_situation(instance)
        self.scene.plan = plan

    def forget_counted(self) -> None:
        """Forgets what was counted of limits that were met."""
        scene = self.scene
        for counted in (scene.conditions.excess, scene.windows.beyond, scene.counts.beyond):
            counted.clear()

    def _begin(self, cause: int) -> None:
        if cause != self._cause:
            self._cause = cause
            self._begun.clear()

    def _rule(self, instance: SituationInstance) -> PlannedRule:
        return self.plan.by_id[instance.rule]

    def _is_due(self, entry: tuple[int, int, SituationInstance]) -> bool:
        return entry[2].running and entry[2].lapses == entry[0]

    def _next(self) -> SituationInstance:
        moment, order, instance = heappop(self._lapses)
        if self._awaited.get(order) == moment:
            del self._awaited[order]
        return instance

    def _await(self, instance: SituationInstance) -> None:
        """Keeps in mind when a situation is to be looked at again."""
        # What lapses later than was thought waits for its turn, and is put off then: every fresh reading puts it off.
        if instance.lapses < self._awaited.get(instance.order, FOR_EVER):
            self._awaited[instance.order] = instance.lapses
            heappush(self._lapses, (instance.lapses, instance.order, instance))

    def _work(self, pending: Pending, rule: PlannedRule) -> _Work:
        return pending.setdefault(rule.order, _Work())

    def _seat(self, pending: Pending, rule: PlannedRule, centre: SituationCentre) -> None:
        """Lets a rule be looked at around a centre."""
        work = self._work(pending, rule)
        work.centres += [one for one in rule.seats(centre) if one not in work.centres]

    def _work_of_one(self) -> EventGeometryWork:
        """What the conditions may take of work on geometries for one report, or for what falls due at one moment."""
        return EventGeometryWork(self.scene.conditions.limits, READ_TOGETHER)

    def _view(self, together: EventGeometryWork | None, centre: SituationCentre) -> RuleEvaluation:
        return RuleEvaluation(self.scene, centre, self.now, together or self._work_of_one())

    def _settle(
        self, pending: Pending, together: EventGeometryWork | None, lapsed: bool = False
    ) -> Iterator[SituationChanged]:
        """Decides rules, lower ones first, and those above of which something changed below. `together` is what they
        may take; None: each look as much as one report lets all take.
        """
        while pending:
            order = min(pending)
            yield from self._decide(self.plan.rules[order], pending.pop(order), pending, together, lapsed)

    def _decide(
        self, rule: PlannedRule, work: _Work, pending: Pending, together: EventGeometryWork | None, lapsed: bool
    ) -> Iterator[SituationChanged]:
        seats = SeatViews(rule, partial(self._view, together), work.centres, work.moves)
        for instance in sorted(work.instances, key=lambda one: one.order):
            if instance.running:
                view = self._view(together, instance.centre)
                yield from self._again(instance, rule, view, seats, pending, lapsed)
        # Looked up only now: one that began or moved just before is around, and goes on instead.
        for centre, view in seats.left(partial(self._is_around, rule)):
            yield from self._new(rule, centre, view, pending)

    def _is_around(self, rule: PlannedRule, centre: SituationCentre) -> bool:
        """Whether a situation of a rule is within its validity of a centre."""
        return bool(self.scene.around((rule,), centre, rule, rule.widest))

    def _again(
        self,
        instance: SituationInstance,
        rule: PlannedRule,
        view: RuleEvaluation,
        seats: SeatViews,
        pending: Pending,
        lapsed: bool,
    ) -> Iterator[SituationChanged]:
        """Looks at a situation again."""
        # What has failed begins anew to hold, without a margin.
        held = instance.ends is None
        truth, refuted = view.verdict(rule, held)
        if truth:
            other = self._rest(instance, rule, view, held)
            if other and instance.begun:
                yield self._happening("update", instance, rule)
            yield from self._beginning(instance, rule, pending)
            return
        if truth is None and view.undecided and instance.begun and held:
            self._go_on(instance, rule, view)
            return
        moved = self._moved(instance, rule, seats.complete, seats.carrying if held else [])
        if moved is not None:
            centre, found = moved
            before, instance.centre = instance.centre, centre
            self._rest(instance, rule, found, held)
            if instance.begun:
                yield self._happening("update", instance, rule)
                self._spread("update", instance, rule, pending, [before, instance.centre])
            yield from self._beginning(instance, rule, pending)
            return
        reason = "false" if truth is False else "stale" if lapsed else "unknown"
        reason = f"refuted by {refuted}" if refuted else reason
        if instance.begun and self._is_held_on(instance, rule, view, reason):
            return
        yield from self._end(instance, rule, instance.reason or reason)
        if instance.begun:
            self._spread("end", instance, rule, pending, [instance.centre])

    def _is_held_on(self, instance: SituationInstance, rule: PlannedRule, view: RuleEvaluation, reason: str) -> bool:
        """Whether a situation whose rule does not hold goes on for now."""
        if instance.ends is None:
            instance.ends, instance.reason = self.now + rule.end, reason
        if instance.ends <= self.now:
            return False
        instance.lapses, instance.seen = min(view.lapses, instance.ends), frozenset(view.seen)
        self.scene.add_situation(instance, rule)
        self._await(instance)
        return True

    def _moved(
        self, instance: SituationInstance, rule: PlannedRule, complete: Seats, carrying: Seats
    ) -> tuple[SituationCentre, RuleEvaluation] | None:
        """Where a situation goes on, where the rule holds, or else holds on; no other goes on there then."""
        for seats in (complete, carrying):
            number = self._next_seat(instance, rule, [centre for centre, _ in seats])
            if number is not None:
                return seats.pop(number)
        return None

    def _next_seat(
        self, instance: SituationInstance, rule: PlannedRule, complete: Iterable[SituationCentre]
    ) -> int | None:
        """The number of the first place where the rule holds that a situation may move to."""
        resting = {ground.reading.entity for ground in instance.grounds if ground.reading is not None}
        for number, centre in enumerate(complete):
            apart = separation(centre, instance.centre)
            # What it rests on takes it along, however far it went.
            area = rule.area_at(centre)
            if area is not None:
                if area == rule.area_at(instance.centre):
                    return number
            elif centre.entity in resting or (apart is not None and apart <= rule.widest):
                return number
        return None

    def _go_on(self, instance: SituationInstance, rule: PlannedRule, view: RuleEvaluation) -> None:
        """Lets a situation be as it was, for which no work on geometries was left, until it is looked at again."""
        instance.lapses, instance.seen = view.lapses, frozenset(view.seen)
        self.scene.add_situation(instance, rule)
        self._await(instance)

    def _rest(self, instance: SituationInstance, rule: PlannedRule, view: RuleEvaluation, held: bool = False) -> bool:
        """Lets a situation rest on what a view has, by the margins of one that is `held`; whether that is something
        else.
        """
        before = instance.grounds
        instance.grounds = view.grounds(rule.held if held else rule.tree, rule, before)
        if rule.counting:
            # At the end it is told what was counted last.
            counted = {one.condition: one for one in before if one.counts is not None}
            instance.grounds = tuple(counted.get(one.condition, one) for one in instance.grounds)
        instance.lapses, instance.seen = view.lapses, frozenset(view.seen)
        # Nothing else can make it false, so it need not hear of all that was looked at.
        if rule.steady:
            read = [ground.reading for ground in instance.grounds if ground.reading is not None]
            instance.seen = frozenset(reading.key for reading in read)
            if rule.valid is not None:
                instance.lapses = min(reading.moment for reading in read) + rule.valid + 1
        instance.ends, instance.reason = None, ""
        if instance.begins is not None and instance.begins > self.now:
            instance.lapses = min(instance.lapses, instance.begins)
        self.scene.add_situation(instance, rule)
        self._await(instance)
        return _told(before) != _told(instance.grounds)

    def _new(
        self, rule: PlannedRule, centre: SituationCentre, view: RuleEvaluation, pending: Pending
    ) -> Iterator[SituationChanged]:
        self._order += 1
        number = self._begun[rule.id] = self._begun.get(rule.id, 0) + 1
        id = f"{rule.id}@{self._cause}" + (f".{number}" if number > 1 else "")
        instance = SituationInstance(
            id, rule.id, rule.concludes, centre, self.now, self._order, (), view.lapses, frozenset(view.seen)
        )
        instance.begins = self.now + rule.begin
        self._rest(instance, rule, view)
        yield from self._beginning(instance, rule, pending)

    def _beginning(
        self, instance: SituationInstance, rule: PlannedRule, pending: Pending
    ) -> Iterator[SituationChanged]:
        """Lets a situation begin that has not, if its rule has held for long enough."""
        if instance.begins is not None and instance.begins <= self.now:
            instance.begins = None
            self._spread("begin", instance, rule, pending, [instance.centre])
            yield self._happening("begin", instance, rule)

    def _end(self, instance: SituationInstance, rule: PlannedRule, reason: str) -> Iterator[SituationChanged]:
        instance.running = False
        self.scene.drop_situation(instance)
        if instance.begun:
            yield self._happening("end", instance, rule, reason)

    def _spread(
        self,
        phase: Phase,
        lower: SituationInstance,
        rule: PlannedRule,
        pending: Pending,
        seats: Iterable[SituationCentre],
    ) -> None:
        """Lets the rules above look again."""
        # Orders only rise, so settling comes to an end.
        above = [one for one in self.plan.above.get(lower.concludes, ()) if one.order > rule.order]
        if rule.hidden or not above:
            return
        orders = {one.order for one in above}
        for seat in seats:
            for instance in self.scene.concerned([lower.concludes], [(lower.id, lower.concludes)], seat):
                found = self._rule(instance)
                if found.order in orders:
                    self._work(pending, found).instances[instance] = None
        for one in above:
            if any(self._is_about(leaf, lower.concludes, phase == "end") for leaf in one.contributing):
                self._seat(pending, one, lower.centre)

    def _is_about(self, leaf: ConditionLeaf, name: str, denied: bool) -> bool:
        """Whether a situation of a class that began, or one that ended, may make a condition hold."""
        return leaf.situation is not None and leaf.negated == denied and name in self.plan.served[leaf.situation]

    def _happening(
        self, phase: Phase, instance: SituationInstance, rule: PlannedRule, reason: str = ""
    ) -> SituationChanged:
        if rule.counting and phase != "end":
            view = RuleEvaluation(self.scene, instance.centre, self.now)
            instance.grounds = with_counts(instance.grounds, rule, view)
        return SituationChanged(
            phase,
            rule.id,
            instance.id,
            instance.concludes,
            instance.centre,
            instance.since,
            self.now,
            distinct(instance.grounds),
            reason,
            rule.hidden,
            None if rule.zones is None else rule.area_at(instance.centre),
        )


def _told(grounds: Iterable[Evidence]) -> list[tuple[object, ...]]:
    """What of grounds is worth an update when it changes."""
    return [
        (one.name, one.situation)
        if one.reading is None
        else (one.name, one.reading.name, one.reading.value, one.reading.entity, one.over and one.over.text)
        for one in distinct(grounds)
    ]
