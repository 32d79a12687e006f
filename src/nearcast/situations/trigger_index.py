"""Which rules a reading may complete: those of which it makes some condition hold, while something near it makes each
of the others hold.

The conditions on a class that a reading makes hold are found by their sorted limits. Readings that make any hold are
rare, or nobody would want to hear of situations: they are kept in cells of their own, and a rule is looked at only
where, among those around, there is one for each condition that it cannot do without.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nearcast.geo.dynamic_index import SpatialHash, joined_levels, level_of
from nearcast.model.filter import Operator
from nearcast.model.values import Value
from nearcast.situations.readings import ContextReading, is_near
from nearcast.situations.rule_plan import ConditionBranch, ConditionLeaf, PlannedRule, RulePlan, satisfied

NEGATED = {
    Operator.LT: Operator.GE,
    Operator.LE: Operator.GT,
    Operator.GT: Operator.LE,
    Operator.GE: Operator.LT,
}
"""What is left of a comparison of numbers under NOT: readings are never NaN."""


Near = dict[str, list[ContextReading]]
"""Readings around a place, by class."""

Inside = dict[tuple[str, str], dict[str, ContextReading]]
"""Readings by class and the named place that they are in, by entity."""


@dataclass(slots=True, eq=False)
class TriggerCondition:
    """A condition of a rule; `served` are the classes whose readings may make it hold, within `metres`, or those
    `inside` the rule's place. `others` are those without which the rule cannot hold either. `level` is that of the
    cells that it looks into; `nowhere` counts the readings of each class that are in none.
    """

    leaf: ConditionLeaf
    rule: PlannedRule
    metres: float
    inside: Inside
    served: tuple[str, ...]
    level: int
    nowhere: Counter[str]
    others: tuple[TriggerCondition, ...] = ()

    def may_hold(self, reading: ContextReading, now: int, near: Near) -> bool:
        """Whether, of the readings `near` by its level, one makes the condition hold around another at a moment."""
        if self.rule.zones is not None:
            return True
        area = self.rule.area
        # What is nowhere is with its entity, wherever that is.
        if area is None and self.nowhere and not self.nowhere.keys().isdisjoint(self.served):
            return True
        leaf, valid = self.leaf, self.rule.valid
        compares, limit, negated = leaf.compares, leaf.limit, leaf.negated
        for name in self.served:
            for one in near.get(name, ()) if area is None else self.inside.get((name, area), {}).values():
                value = one.value
                # By exact type, which is quick: in Python a bool is an integer.
                if compares is not None and (type(value) is float or type(value) is int):
                    holds = compares(value, limit) is not negated
                else:
                    holds = satisfied(leaf, value)
                fresh = valid is None or now - one.moment <= valid
                if holds and fresh and (area is not None or is_near(reading, one, self.metres)):
                    return True
        return False


@dataclass(slots=True)
class _Limits:
    """The limits of one operator, ascending, and whose they are."""

    values: list[float] = field(default_factory=list)
    conditions: list[TriggerCondition] = field(default_factory=list)

    def sort(self) -> None:
        """Brings both into the order of the limits."""
        order = sorted(range(len(self.values)), key=self.values.__getitem__)
        self.values = [self.values[one] for one in order]
        self.conditions = [self.conditions[one] for one in order]


@dataclass(slots=True)
class _Class:
    """The conditions on one class: by operator those with a number as limit, and all others.

    A number above `low` and below `high` makes none of the former hold.
    """

    limits: dict[Operator, _Limits] = field(default_factory=lambda: {one: _Limits() for one in NEGATED})
    rest: list[TriggerCondition] = field(default_factory=list)
    low: float = -math.inf
    high: float = math.inf

    def add_condition(self, condition: TriggerCondition) -> None:
        """Takes in a condition."""
        leaf = condition.leaf
        limit, operator = leaf.atom.value, leaf.atom.operator
        simple = isinstance(leaf.atom.name, str) and leaf.situation is None and operator in NEGATED
        if simple and isinstance(limit, (int, float)) and not isinstance(limit, bool):
            found = self.limits[NEGATED[operator] if leaf.negated else operator]
            found.values.append(limit)
            found.conditions.append(condition)
        else:
            self.rest.append(condition)

    def sort(self) -> None:
        """Makes the conditions ready, when all are there."""
        for limits in self.limits.values():
            limits.sort()
        self.high = min([*self.limits[Operator.GT].values[:1], *self.limits[Operator.GE].values[:1]], default=math.inf)
        self.low = max(
            [*self.limits[Operator.LT].values[-1:], *self.limits[Operator.LE].values[-1:]], default=-math.inf
        )

    def held(self, value: Value) -> Sequence[TriggerCondition]:
        """The conditions that a value makes hold."""
        if type(value) is float and self.low < value < self.high and not self.rest:
            return ()
        found: list[TriggerCondition] = []
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not self.low < value < self.high:
            above, at_least = self.limits[Operator.GT], self.limits[Operator.GE]
            below, at_most = self.limits[Operator.LT], self.limits[Operator.LE]
            found += above.conditions[: bisect_left(above.values, value)]
            found += at_least.conditions[: bisect_right(at_least.values, value)]
            found += below.conditions[bisect_right(below.values, value) :]
            found += at_most.conditions[bisect_left(at_most.values, value) :]
        found += [condition for condition in self.rest if satisfied(condition.leaf, value)]
        return found


class TriggerIndex:
    """The conditions of all rules, by the classes that serve them, and what makes them hold where."""

    def __init__(self, plan: RulePlan) -> None:
        self._by_class: dict[str, _Class] = defaultdict(_Class)
        levels = {level_of(_metres(leaf, rule)) for rule in plan.rules for leaf in rule.contributing}
        self._nowhere = Counter[str]()
        # By key: the readings that make some condition hold.
        self._readings: SpatialHash[tuple[str, str], ContextReading] = SpatialHash(joined_levels(levels, 2))
        self._inside: Inside = defaultdict(dict)
        self._areas = frozenset(rule.area for rule in plan.rules if rule.area is not None)
        for rule in plan.rules:
            for condition in conditions_of(rule, plan, self._readings.levels, self._nowhere, self._inside):
                for name in condition.served:
                    self._by_class[name].add_condition(condition)
        for found in self._by_class.values():
            found.sort()

    def held(self, name: str, value: Value) -> Sequence[TriggerCondition]:
        """The conditions that a reading with this value of a class makes hold."""
        found = self._by_class.get(name)
        return found.held(value) if found is not None else ()

    def add_reading(self, reading: ContextReading) -> None:
        """Takes in a reading that makes some condition hold."""
        if reading.place is None:
            self._nowhere[reading.name] += 1
        else:
            self._readings.insert(reading.key, reading.place, reading)
        for area in reading.areas & self._areas if reading.areas else ():
            self._inside[reading.name, area][reading.entity] = reading

    def remove_reading(self, reading: ContextReading) -> None:
        """Forgets it."""
        if reading.place is not None:
            self._readings.remove(reading.key)
        elif self._nowhere[reading.name] > 1:
            self._nowhere[reading.name] -= 1
        else:
            # What is counted is there.
            del self._nowhere[reading.name]
        for area in reading.areas & self._areas if reading.areas else ():
            del self._inside[reading.name, area][reading.entity]

    def rules(self, reading: ContextReading, held: Sequence[TriggerCondition], now: int) -> Iterable[PlannedRule]:
        """The rules that a reading that makes these conditions hold may complete at a moment, each once."""
        # Without a place nothing is known of what is around.
        if reading.place is None:
            return dict.fromkeys(condition.rule for condition in held)
        found: dict[PlannedRule, None] = {}
        near: dict[int, Near] = {}
        for condition in held:
            for other in condition.others:
                level = other.level
                if level not in near:
                    near[level] = _by_class(self._readings.candidates(reading.place, other.metres))
                if not other.may_hold(reading, now, near[level]):
                    break
            else:
                found[condition.rule] = None
        return found


def _by_class(readings: Iterable[ContextReading]) -> Near:
    found: Near = {}
    for one in readings:
        if one.name in found:
            found[one.name].append(one)
        else:
            found[one.name] = [one]
    return found


def conditions_of(
    rule: PlannedRule, plan: RulePlan, levels: Sequence[int], nowhere: Counter[str], inside: Inside
) -> Iterator[TriggerCondition]:
    """The conditions by which a rule may be completed, each knowing those that the rule cannot do without."""
    tree = rule.tree
    # Only what the outermost AND joins is needed: under an OR another part may do.
    top = tree.parts if isinstance(tree, ConditionBranch) and tree.every else (tree,)
    needed = [
        part
        for part in top
        if isinstance(part, ConditionLeaf) and part.situation is None and isinstance(part.atom.name, str)
    ]
    found = {}
    for leaf in rule.contributing:
        metres = _metres(leaf, rule)
        level = next(one for one in levels if one >= level_of(metres))
        found[leaf] = TriggerCondition(leaf, rule, metres, inside, _served(leaf, plan), level, nowhere)
    for leaf, condition in found.items():
        condition.others = tuple(found[other] for other in needed if other is not leaf)
    yield from found.values()


def _metres(leaf: ConditionLeaf, rule: PlannedRule) -> float:
    # A condition of a rule below, which this one denies, is nobody's other.
    return max((rule.reach[name] for name in leaf.names if name in rule.reach), default=0.0)


def _served(leaf: ConditionLeaf, plan: RulePlan) -> tuple[str, ...]:
    """The classes whose readings may make a condition hold."""
    return tuple(dict.fromkeys(sub for name in leaf.names for sub in sorted(plan.served.get(name, (name,)))))
