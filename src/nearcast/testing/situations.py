"""The plain reference: every reading looks at every rule, every situation, and every other reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from nearcast.model.limits import Limits
from nearcast.situations.evaluation import ConditionLimits, satisfied
from nearcast.situations.lifecycle import SituationInstance
from nearcast.situations.readings import ContextReading, SituationCentre, is_near
from nearcast.situations.rule_plan import PlannedRule, RulePlan
from nearcast.situations.store import is_around
from nearcast.situations.windows import Aggregate, AggregateFinding, KeptReading, aggregated


@dataclass(slots=True)
class PlainReadings:
    """Looks at every reading: the reference for what is faster."""

    all: dict[tuple[str, str], ContextReading] = field(default_factory=dict)

    def put_reading(self, reading: ContextReading) -> None:
        """Takes a reading in, in place of an older one."""
        self.all[reading.key] = reading

    def newest(self, entity: str, name: str) -> ContextReading | None:
        """The newest reading of a class by an entity."""
        return self.all.get((entity, name))

    def near(self, names: Collection[str], centre: SituationCentre, metres: float) -> Iterable[ContextReading]:
        """The readings of these classes within metres of a centre."""
        return [one for one in self.all.values() if one.name in names and is_near(centre, one, metres)]

    def inside(self, names: Collection[str], area: str) -> Iterable[ContextReading]:
        """The readings of these classes in a named place."""
        return [one for one in self.all.values() if one.name in names and area in one.areas]

    def everything(self) -> Iterable[ContextReading]:
        """All readings."""
        return self.all.values()


@dataclass(slots=True)
class PlainReadingWindows:
    """Keeps every reading, whatever the limits: the reference for what keeps those of some time."""

    all: dict[tuple[str, str], list[KeptReading]] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    beyond: Counter[str] = field(default_factory=Counter)

    def put_reading(self, reading: ContextReading, now: int) -> None:
        """Takes a reading in."""
        kept = KeptReading(reading.moment, reading.position, reading.value)
        self.all.setdefault(reading.key, []).append(kept)

    def find(self, key: tuple[str, str], aggregate: Aggregate, now: int, after: int) -> AggregateFinding:
        """An aggregate of an entity's readings at a moment, of those behind a position of the journal."""
        inside = [one for one in self.all.get(key, ()) if one.moment >= now - aggregate.span and one.position > after]
        return aggregated(aggregate, sorted(inside, key=lambda one: one[:2]))


@dataclass(slots=True)
class PlainScene:
    """A scene without any index."""

    plan: RulePlan
    readings: PlainReadings = field(default_factory=PlainReadings)
    windows: PlainReadingWindows = field(default_factory=PlainReadingWindows)
    conditions: ConditionLimits = field(default_factory=ConditionLimits)
    situations: dict[str, SituationInstance] = field(default_factory=dict)

    def put_reading(self, reading: ContextReading) -> bool:
        """Takes a reading in; anything may come of it."""
        self.readings.put_reading(reading)
        return True

    def forget(self, entities: Collection[str]) -> None:
        """Drops the readings of some entities, but for those that a situation looked at."""
        held = {key for instance in self.situations.values() for key in instance.seen}
        gone = [key for key in self.readings.all if key[0] in entities and key not in held]
        for key in gone:
            del self.readings.all[key]
            self.windows.all.pop(key, None)

    def add_situation(self, instance: SituationInstance, rule: PlannedRule) -> None:
        """Takes in a situation."""
        self.situations[instance.id] = instance

    def drop_situation(self, instance: SituationInstance) -> None:
        """Forgets a situation that ended."""
        del self.situations[instance.id]

    def running(self, rule: PlannedRule) -> Iterable[SituationInstance]:
        """The situations of a rule."""
        return [one for one in self.situations.values() if one.rule == rule.id]

    @property
    def any(self) -> bool:
        """Whether there is any situation."""
        return bool(self.situations)

    def around(
        self, rules: Iterable[PlannedRule], centre: SituationCentre, rule: PlannedRule, metres: float
    ) -> Sequence[SituationInstance]:
        """The situations of these rules within the validity of another rule around a centre."""
        named = {one.id: one for one in rules}
        found = [one for one in self.situations.values() if one.rule in named]
        return [one for one in found if is_around(one, named[one.rule], centre, rule, metres)]

    def concerned(
        self, name: str, keys: Sequence[tuple[str, str]], centre: SituationCentre
    ) -> Iterable[SituationInstance]:
        """Every situation that is."""
        return list(self.situations.values())

    def completed(self, reading: ContextReading, now: int) -> Iterable[PlannedRule]:
        """The rules of which the reading makes some condition hold."""
        return [rule for rule in self.plan.rules if makes_hold(rule, reading, self.plan)]


def makes_hold(rule: PlannedRule, reading: ContextReading, plan: RulePlan) -> bool:
    """Whether a reading alone makes one of the conditions hold by which a rule may be completed."""
    for leaf in rule.contributing:
        if any(reading.name in plan.served.get(name, (name,)) for name in leaf.names) and satisfied(
            leaf, reading.value
        ):
            return True
    return False
