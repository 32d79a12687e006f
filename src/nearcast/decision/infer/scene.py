"""Situations and readings in cells: what a reading concerns is found without looking at the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from nearcast.decision.infer.completing import Completing
from nearcast.decision.infer.engine import Instance
from nearcast.decision.infer.grid import around, cell_of, level_of
from nearcast.decision.infer.indexed import IndexedReadings
from nearcast.decision.infer.plan import Plan, Rule
from nearcast.decision.infer.readings import Centre, Reading
from nearcast.decision.infer.reference import is_around

Key = Hashable
K = TypeVar("K", bound=Hashable)


class IndexedScene:
    """A scene with indexes.

    A situation is found by its seat (`_seats`: cell, entity, named places), by where a reading may change it
    (`_watched`), and by what it looked at (`_holders`).
    """

    def __init__(self, plan: Plan) -> None:
        self.readings = IndexedReadings()
        self._by_rule: dict[str, dict[Instance, None]] = defaultdict(dict)
        self._seats: dict[Key, dict[Instance, None]] = defaultdict(dict)
        self._watched: dict[Key, dict[Instance, None]] = defaultdict(dict)
        self._holders: dict[tuple[str, str], dict[Instance, None]] = defaultdict(dict)
        self._keys: dict[Instance, tuple[list[Key], list[Key], frozenset[tuple[str, str]]]] = {}
        self.plan = plan

    @property
    def plan(self) -> Plan:
        """The rules."""
        return self._plan

    @plan.setter
    def plan(self, plan: Plan) -> None:
        self._plan = plan
        asked = list(asked_for(plan))
        levels: dict[str, set[int]] = defaultdict(set)
        for rule, name in asked:
            for sub in plan.served.get(name, (name,)):
                levels[sub].add(level_of(rule.reach[name]))
        areas = frozenset(rule.area for rule, _ in asked if rule.area is not None)
        self.readings.prepare(levels, areas, Completing(plan))
        self._levels = sorted({level_of(metres) for rule, name in asked for metres in (rule.widest, rule.reach[name])})
        self._horizons = sorted({level_of(rule.horizon) for rule in plan.rules})
        # Under other sizes of cells situations are found by other keys.
        for instance in [one for found in self._by_rule.values() for one in found]:
            self.add(instance, plan.by_id[instance.rule])

    def put(self, reading: Reading) -> bool:
        """Takes a reading in; whether anything may come of it."""
        # A situation that nothing but what it rests on can change rests on what makes conditions hold.
        return self.readings.put(reading) or bool(self._watched)

    def add(self, instance: Instance, rule: Rule) -> None:
        """Takes in a situation; also one that moved, or rests on other things."""
        seats, watched = list(self._seat_keys(instance, rule)), list(self._watch_keys(instance, rule))
        before = self._keys.get(instance)
        if before is not None:
            if before == (seats, watched, instance.seen):
                return
            self.drop(instance)
        self._keys[instance] = (seats, watched, instance.seen)
        self._by_rule[rule.id][instance] = None
        for seat in seats:
            self._seats[seat][instance] = None
        for place in watched:
            self._watched[place][instance] = None
        for key in instance.seen:
            self._holders[key][instance] = None

    def drop(self, instance: Instance) -> None:
        """Forgets a situation that ended."""
        seats, watched, seen = self._keys.pop(instance)
        _remove(self._by_rule, [instance.rule], instance)
        _remove(self._seats, seats, instance)
        _remove(self._watched, watched, instance)
        _remove(self._holders, seen, instance)

    def _seat_keys(self, instance: Instance, rule: Rule) -> Iterator[Key]:
        """By what a situation is found that is around a centre."""
        centre = instance.centre
        yield ("entity", centre.entity)
        yield from (("area", area) for area in centre.areas)
        if rule.area is not None:
            yield ("in", rule.area)
        elif centre.place is not None:
            yield from ((level, cell_of(centre.place, level)) for level in self._levels)

    def _watch_keys(self, instance: Instance, rule: Rule) -> Iterator[Key]:
        """By what a situation is found that a reading somewhere may change."""
        # Then nothing can change it but what it rests on.
        if rule.steady:
            return
        centre = instance.centre
        yield ("entity", centre.entity)
        yield from (("area", area) for area in rule.touched_areas)
        # Where it is beside every reading that is near enough: then one look finds it.
        if centre.place is not None:
            level = level_of(rule.horizon)
            yield from ((level, cell) for cell in around(centre.place, level))

    def running(self, rule: Rule) -> Iterable[Instance]:
        """The situations of a rule."""
        return list(self._by_rule.get(rule.id, ()))

    @property
    def any(self) -> bool:
        """Whether there is any situation."""
        return bool(self._keys)

    def around(self, rules: Iterable[Rule], centre: Centre, rule: Rule, metres: float) -> Sequence[Instance]:
        """The situations of these rules within the validity of another rule around a centre, oldest first."""
        if not self._keys:
            return ()
        named = {one.id: one for one in rules}
        found: dict[Instance, None] = {}
        for key in self._around_keys(centre, rule, metres):
            if key in self._seats:
                found.update(self._seats[key])
        near = (one for one in found if one.rule in named)
        return sorted(
            (one for one in near if is_around(one, named[one.rule], centre, rule, metres)), key=lambda one: one.order
        )

    def _around_keys(self, centre: Centre, rule: Rule, metres: float) -> Iterator[Key]:
        if rule.area is not None:
            yield ("area", rule.area)
            return
        yield ("entity", centre.entity)
        yield from (("in", area) for area in centre.areas)
        if centre.place is not None:
            level = level_of(metres)
            yield from ((level, cell) for cell in around(centre.place, level))

    def concerned(self, name: str, keys: Sequence[tuple[str, str]], centre: Centre) -> Iterable[Instance]:
        """At least the situations that a reading or situation of this class at a centre may change, and those that
        looked at one of these keys.
        """
        if not self._keys:
            return ()
        found: dict[Instance, None] = {}
        for key in keys:
            if key in self._holders:
                found.update(self._holders[key])
        for place in self._places(centre):
            if place in self._watched:
                found.update(self._watched[place])
        return [one for one in found if name in self._plan.by_id[one.rule].touched]

    def _places(self, centre: Centre) -> Iterator[Key]:
        yield ("entity", centre.entity)
        yield from (("area", area) for area in centre.areas)
        if centre.place is not None:
            yield from ((level, cell_of(centre.place, level)) for level in self._horizons)

    def completed(self, reading: Reading, now: int) -> Iterable[Rule]:
        """The rules that a reading that was put may complete at a moment."""
        return self.readings.completed(reading, now)


def asked_for(plan: Plan) -> Iterator[tuple[Rule, str]]:
    """Every rule with every name that it asks for, necessary rules among them."""
    necessary = {id(one): one for found in plan.demanding.values() for one in found}
    for rule in (*plan.rules, *necessary.values()):
        yield from ((rule, name) for name in rule.reach)


def _remove(index: dict[K, dict[Instance, None]], keys: Iterable[K], instance: Instance) -> None:
    for key in keys:
        here = index[key]
        here.pop(instance, None)
        if not here:
            del index[key]
