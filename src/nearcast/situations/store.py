"""Situations and readings in cells: what a reading concerns is found without looking at the rest."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from nearcast.geo.dynamic_index import cell_of, cells_around, level_of
from nearcast.situations.counts.count_triggers import CountTriggers
from nearcast.situations.counts.counted_reports import Follower, IndexedEntityCounts
from nearcast.situations.counts.entity_counts import FOR_EVER, CountedArea, EntityCount
from nearcast.situations.evaluation import counted_area
from nearcast.situations.geometries.condition_work import ConditionLimits
from nearcast.situations.instances import SituationInstance
from nearcast.situations.reading_store import IndexedReadingStore
from nearcast.situations.readings import ContextReading, NamedAreas, SituationCentre, is_near, separation
from nearcast.situations.rule_plan import PlannedRule, RulePlan, leaves, spans_of
from nearcast.situations.trigger_index import TriggerCondition, TriggerIndex
from nearcast.situations.zone_areas import layer_prefix, zone_name
from nearcast.state.windows import IndexedReadingWindows

FEW = 4
"""Situations that are looked at sooner than what is in the cells around a place."""


Key = Hashable


@dataclass(slots=True, eq=False)
class _Kept:
    """By what a situation is found, as long as its centre, what it looked at and whether it is ending are `so`. Where
    it counts, and who follows that there are enough: then no report of an entity need look at it.
    """

    so: tuple[SituationCentre, frozenset[tuple[str, str]], bool]
    seats: Sequence[Key]
    watched: Sequence[Key]
    counted: Sequence[tuple[EntityCount, CountedArea]]
    followers: Sequence[Follower]


K = TypeVar("K", bound=Hashable)


class SituationStore:
    """A scene with indexes.

    A situation is found by its seat (`_seats`: cell, entity, named places), by where a reading may change it
    (`_watched`), and by what it looked at (`_holders`).
    """

    def __init__(self, plan: RulePlan) -> None:
        self.readings, self.windows = IndexedReadingStore(), IndexedReadingWindows()
        self.counts = IndexedEntityCounts()
        self.conditions = ConditionLimits()
        self._by_rule: dict[str, dict[SituationInstance, None]] = defaultdict(dict)
        self._seats: dict[Key, dict[SituationInstance, None]] = defaultdict(dict)
        self._watched: dict[Key, dict[SituationInstance, None]] = defaultdict(dict)
        self._holders: dict[tuple[str, str], dict[SituationInstance, None]] = defaultdict(dict)
        self._keys: dict[SituationInstance, _Kept] = {}
        self._followed: dict[Follower, SituationInstance] = {}
        # How many situations have to hear of each report that counts as something.
        self._hearing: Counter[str] = Counter()
        self._held: dict[str, list[TriggerCondition]] = {}
        self.plan = plan

    @property
    def plan(self) -> RulePlan:
        """The rules."""
        return self._plan

    @plan.setter
    def plan(self, plan: RulePlan) -> None:
        # Under other sizes of cells situations are found by other keys.
        running = [one for found in self._by_rule.values() for one in found]
        for instance in running:
            self.drop_situation(instance)
        self._plan = plan
        asked = list(asked_for(plan))
        levels: dict[str, set[int]] = defaultdict(set)
        counted = {leaf.counted.name for rule in all_rules(plan) for leaf in leaves(rule.tree) if leaf.counted}
        for rule, name in asked:
            # Who counts in a named place looks into no cells.
            if name not in counted or (rule.area is None and rule.zones is None):
                for sub in plan.served.get(name, (name,)):
                    levels[sub].add(level_of(rule.reach[name]))
        areas = frozenset(rule.area for rule, _ in asked if rule.area is not None) | plan.zones
        completing = TriggerIndex(plan)
        self._counting = CountTriggers(completing, sorted(counted))
        self.counts.prepare({name: levels.pop(name, set()) for name in sorted(counted)}, areas, self._counting.looks)
        self.readings.prepare(levels, areas, completing)
        self.windows.prepare(spans_of(all_rules(plan), plan.served))
        self._levels = sorted({level_of(metres) for rule, name in asked for metres in (rule.widest, rule.reach[name])})
        self._horizons = sorted({level_of(rule.horizon) for rule in plan.rules})
        for instance in running:
            self.add_situation(instance, plan.by_id[instance.rule])

    def put_reading(self, reading: ContextReading) -> bool:
        """Takes a reading in; whether anything may come of it."""
        if reading.name in self.counts.names:
            return bool(self.counts.put_reports([reading], reading.moment))
        # A situation that nothing but what it rests on can change rests on what makes conditions hold.
        return self.readings.put_reading(reading) or bool(self._watched)

    def put_readings(
        self, readings: Sequence[ContextReading], now: int, denied: Sequence[str] = ()
    ) -> Sequence[ContextReading]:
        """Takes in the readings of one event; those of which anything may come."""
        counted = self.counts.names
        if not counted:
            return [one for one in readings if self.put_reading(one)]
        own, reports = list[ContextReading](), list[ContextReading]()
        for one in readings:
            if one.name in counted:
                reports.append(one)
            elif self.put_reading(one):
                own.append(one)
        changing = self.counts.put_reports(reports, now, denied)
        self._held.clear()
        for one in changing:
            held = self._counting.held(one, self.counts, self._goes_on_around)
            if held:
                self._held[one.name] = held
            if held or one.name in self._hearing:
                own.append(one)
        return own

    def _goes_on_around(self, rule: PlannedRule, report: ContextReading) -> bool:
        """Whether a situation of a rule is around a report that no report of its event ends: then no other begins."""
        running = self._by_rule.get(rule.id)
        if not running or not rule.only_counts or self.counts.shaken or self.counts.unplaced:
            return False
        # Around whatever place there is the one where the rule looks.
        near = running if rule.area is not None else self.around((rule,), report.centre, rule, rule.widest)
        return any(self._keys[one].followers for one in near)

    def unsettled(self, now: int) -> Sequence[SituationInstance]:
        """The situations for which too few may count since reports were put last: `concerned` leaves these out."""
        counts = self.counts
        if not counts.shaken and not counts.unplaced:
            return ()
        found = dict.fromkeys(self._followed[one] for one in counts.shaken)
        for entity in counts.unplaced:
            seated = self._seats.get(("entity", entity), ())
            found |= dict.fromkeys(one for one in seated if self._keys[one].followers)
        counts.shaken, counts.unplaced = [], set()
        rules = self._plan.by_id
        return [one for one in found if not self._goes_on(one, rules[one.rule], now)]

    def rezone(self, areas: NamedAreas) -> None:
        """Lets readings be in the zones that their places are in by now."""
        for reading in areas.rezoned([*self.readings.everything(), *self.counts.everything()]):
            self.put_reading(reading)

    def known(self) -> Iterator[tuple[str, str]]:
        """The class and the entity of each reading, and of each report that counts, or may."""
        counted = (one for one in self.counts.everything() if one.value is not False)
        return ((one.name, one.entity) for one in chain(self.readings.everything(), counted))

    @property
    def size(self) -> int:
        """How many readings and reports are kept."""
        return len(self.readings) + self.counts.total

    def left_by(self, entity: str) -> Collection[SituationCentre]:
        """Where an entity counts until its next report comes."""
        return dict.fromkeys(one.centre for one in self.counts.counting(entity)) if self._hearing else ()

    def forget(self, entities: Collection[str]) -> Iterable[ContextReading]:
        """Drops the readings of some entities, but for those that a situation looked at; the reports of them by which
        they counted, or might.
        """
        self.readings.forget(entities, self._holders)
        keys = ((one, name) for one in entities for name in self.windows.spans)
        self.windows.forget([], [key for key in keys if key not in self._holders])
        return self.counts.forget(entities)

    def add_situation(self, instance: SituationInstance, rule: PlannedRule) -> None:
        """Takes in a situation; also one that moved, or rests on other things."""
        before, so = self._keys.get(instance), (instance.centre, instance.seen, instance.ends is not None)
        if before is not None:
            if before.so == so:
                return
            self.drop_situation(instance)
        counted = [(one, counted_area(rule, instance.centre, one.name)) for one in rule.counts]
        followers = list(self._follow(instance, rule, counted))
        # Nothing else can end what rests on counts alone.
        watched = () if followers and rule.only_counts else list(self._watch_keys(instance, rule))
        kept = self._keys[instance] = _Kept(so, list(self._seat_keys(instance, rule)), watched, counted, followers)
        self._by_rule[rule.id][instance] = None
        for seat in kept.seats:
            self._seats[seat][instance] = None
        for place in kept.watched:
            self._watched[place][instance] = None
        for key in instance.seen:
            self._holders[key][instance] = None
        for follower in followers:
            self._followed[follower] = instance
        if not followers:
            self._hearing.update(rule.touched & self.counts.names)

    def _follow(
        self, instance: SituationInstance, rule: PlannedRule, counted: Iterable[tuple[EntityCount, CountedArea]]
    ) -> Iterator[Follower]:
        """Follows that there are enough, where nothing else of reports of entities can end a situation."""
        # Of those that compare geometries none is left out by what is counted: which looks there are rests on no index.
        if not rule.ends_by_counts or rule.spatial or instance.ends is not None:
            return
        if all(area.area is not None or area.centre.place is not None for _, area in counted):
            followers = (self.counts.follow(one.name, area) for one, area in counted)
            yield from (one for one in followers if one is not None)

    def drop_situation(self, instance: SituationInstance) -> None:
        """Forgets a situation that ended."""
        kept = self._keys.pop(instance)
        _remove(self._by_rule, [instance.rule], instance)
        _remove(self._seats, kept.seats, instance)
        _remove(self._watched, kept.watched, instance)
        _remove(self._holders, kept.so[1], instance)
        for follower in kept.followers:
            self.counts.unfollow(follower)
            del self._followed[follower]
        if not kept.followers:
            for name in self._plan.by_id[instance.rule].touched & self.counts.names:
                self._hearing[name] -= 1
                if not self._hearing[name]:
                    del self._hearing[name]

    def _seat_keys(self, instance: SituationInstance, rule: PlannedRule) -> Iterator[Key]:
        """By what a situation is found that is around a centre."""
        centre = instance.centre
        yield ("entity", centre.entity)
        yield from (("area", area) for area in centre.areas)
        area = rule.area_at(centre)
        if area is not None:
            yield ("in", area)
        elif centre.place is not None:
            yield from ((level, cell_of(centre.place, level)) for level in self._levels)

    def _watch_keys(self, instance: SituationInstance, rule: PlannedRule) -> Iterator[Key]:
        """By what a situation is found that a reading somewhere may change."""
        # Then nothing can change it but what it rests on. Where it is ending, anything may let it hold again.
        if rule.steady and instance.ends is None:
            return
        centre = instance.centre
        yield ("entity", centre.entity)
        yield from (("area", area) for area in rule.touched_areas)
        yield from (("zones", zones) for zones in rule.touched_zones)
        if rule.zones is not None:
            yield ("area", rule.area_at(centre))
        # Where it is beside every reading that is near enough: then one look finds it.
        if centre.place is not None:
            level = level_of(rule.horizon)
            yield from ((level, cell) for cell in cells_around(centre.place, level))

    def running(self, rule: PlannedRule) -> Iterable[SituationInstance]:
        """The situations of a rule."""
        return list(self._by_rule.get(rule.id, ()))

    @property
    def any(self) -> bool:
        """Whether there is any situation."""
        return bool(self._keys)

    def around(
        self, rules: Iterable[PlannedRule], centre: SituationCentre, rule: PlannedRule, metres: float
    ) -> Sequence[SituationInstance]:
        """The situations of these rules within the validity of another rule around a centre, oldest first."""
        if not self._keys:
            return ()
        named = {one.id: one for one in rules}
        near = (one for one in self._around_of(named, centre, rule, metres) if one.rule in named)
        return sorted(
            (one for one in near if is_around(one, named[one.rule], centre, rule, metres)), key=lambda one: one.order
        )

    def _around_of(
        self, ids: Collection[str], centre: SituationCentre, rule: PlannedRule, metres: float
    ) -> Iterable[SituationInstance]:
        """At least the situations of some rules that are around a centre: all of them, where these are few."""
        running = [self._by_rule[id] for id in ids if id in self._by_rule]
        if sum(map(len, running)) <= FEW:
            return chain.from_iterable(running)
        found: dict[SituationInstance, None] = {}
        for key in self._around_keys(centre, rule, metres):
            if key in self._seats:
                found.update(self._seats[key])
        return found

    def _around_keys(self, centre: SituationCentre, rule: PlannedRule, metres: float) -> Iterator[Key]:
        area = rule.area_at(centre)
        if area is not None:
            yield ("area", area)
            yield ("in", area)
            return
        yield ("entity", centre.entity)
        yield from (("in", area) for area in centre.areas)
        if centre.place is not None:
            level = level_of(metres)
            yield from ((level, cell) for cell in cells_around(centre.place, level))

    def concerned(
        self, names: Collection[str], keys: Sequence[tuple[str, str]], centre: SituationCentre
    ) -> Iterable[SituationInstance]:
        """At least the situations that readings or situations of these classes at a centre may change, and those that
        looked at one of these keys; but for those that are `unsettled`.
        """
        if not self._keys:
            return ()
        around: dict[SituationInstance, None] = {}
        for key in keys:
            if key in self._holders:
                around.update(self._holders[key])
        for place in self._places(centre):
            if place in self._watched:
                around.update(self._watched[place])
        return [one for one in around if self._is_touched(one, names, keys, centre)]

    def _goes_on(self, instance: SituationInstance, rule: PlannedRule, now: int) -> bool:
        """Whether enough count for a situation that reports of entities can end in no other way, for as long as was
        thought, or longer.
        """
        kept, lapses = self._keys[instance], FOR_EVER
        tallies = [self.counts.tally(count, area, now) for count, area in kept.counted]
        for (count, _), tally in zip(kept.counted, tallies, strict=True):
            if tally.counted < count.enough or tally.lapses < instance.lapses:
                return False
            lapses = min(lapses, tally.lapses)
        for (count, area), follower, tally in zip(kept.counted, kept.followers, tallies, strict=True):
            self.counts.promise(follower, count, area, tally)
        if rule.only_counts and instance.begun:
            instance.lapses = lapses
        return True

    def _is_touched(
        self,
        instance: SituationInstance,
        names: Collection[str],
        keys: Collection[tuple[str, str]],
        centre: SituationCentre,
    ) -> bool:
        rule = self._plan.by_id[instance.rule]
        touched = rule.touched.intersection(names)
        # Of what is followed `unsettled` tells.
        if not touched or (self._keys[instance].followers and touched <= self.counts.names):
            return False
        return not rule.spatial or is_concerned(instance, rule, keys, centre, self._plan)

    def _places(self, centre: SituationCentre) -> Iterator[Key]:
        yield ("entity", centre.entity)
        for area in centre.areas:
            yield ("area", area)
            if area in self._plan.zones:
                yield ("zones", layer_prefix(zone_name(area)[0]))
        if centre.place is not None:
            yield from ((level, cell_of(centre.place, level)) for level in self._horizons)

    def completed(self, reading: ContextReading, now: int) -> Iterable[PlannedRule]:
        """The rules that a reading that was put may complete at a moment."""
        if reading.name in self.counts.names:
            return self.readings.completing.rules(reading, self._held.get(reading.name, ()), now)
        return self.readings.completed(reading, now)


def is_around(
    instance: SituationInstance, own: PlannedRule, centre: SituationCentre, rule: PlannedRule, metres: float
) -> bool:
    """Whether a situation, of the rule `own`, is within the validity of another rule around a centre."""
    area, seated = rule.area_at(centre), own.area_at(instance.centre)
    if area is not None:
        # What a report elsewhere completes is in the place that it is about all the same.
        return area == seated or area in instance.centre.areas
    if seated is not None:
        return seated in centre.areas
    apart = separation(centre, instance.centre)
    return apart is not None and apart <= metres


def is_concerned(
    instance: SituationInstance,
    rule: PlannedRule,
    keys: Collection[tuple[str, str]],
    centre: SituationCentre,
    plan: RulePlan,
) -> bool:
    """Whether what has these keys, or is at a centre, matters to a situation of a rule, whatever cells there are: where
    geometries are compared a look takes work, so which there are rests on no index.
    """
    if not instance.seen.isdisjoint(keys):
        return True
    seat, areas = instance.centre, centre.areas
    if centre.entity == seat.entity or not rule.touched_areas.isdisjoint(areas):
        return True
    if rule.zones is not None and rule.area_at(seat) in areas:
        return True
    if any(layer_prefix(zone_name(area)[0]) in rule.touched_zones for area in areas if area in plan.zones):
        return True
    return centre.place is not None and seat.place is not None and is_near(centre, seat, rule.horizon)


def asked_for(plan: RulePlan) -> Iterator[tuple[PlannedRule, str]]:
    """Every rule with every name that it asks for, necessary rules among them."""
    for rule in all_rules(plan):
        yield from ((rule, name) for name in rule.reach)


def all_rules(plan: RulePlan) -> Iterator[PlannedRule]:
    """The rules of a plan, and the necessary ones."""
    necessary = {id(one): one for found in plan.demanding.values() for one in found}
    yield from (*plan.rules, *necessary.values())


def _remove(index: dict[K, dict[SituationInstance, None]], keys: Iterable[K], instance: SituationInstance) -> None:
    for key in keys:
        here = index[key]
        here.pop(instance, None)
        if not here:
            del index[key]
