"""The plain reference: every reading looks at every rule, every situation, and every other reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nearcast.model.limits import Limits
from nearcast.situations.counts.entity_counts import FOR_EVER, CountedArea, EntityCount, EntityTally, counts_in
from nearcast.situations.geometries.condition_work import ConditionLimits
from nearcast.situations.instances import SituationInstance
from nearcast.situations.readings import ContextReading, NamedAreas, SituationCentre, is_near
from nearcast.situations.rule_plan import ConditionLeaf, PlannedRule, RulePlan, leaves, satisfied
from nearcast.situations.store import all_rules, is_around, is_concerned
from nearcast.state.lateness import FOREVER
from nearcast.state.windows import Aggregate, AggregateFinding, KeptReading, aggregated


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

    def put_reading(self, key: tuple[str, str], reading: KeptReading, now: int) -> None:
        """Takes a reading in."""
        self.all.setdefault(key, []).append(reading)

    def prepare(self, spans: Mapping[str, int]) -> None:
        """Forgets the readings of other names."""
        self.all = {key: kept for key, kept in self.all.items() if key[1] in spans}

    def leaves(self, key: tuple[str, str], span: int, now: int) -> int:
        """The moment at which the next reading leaves so long a window, after one."""
        return min(
            (one.moment + span + 1 for one in self.all.get(key, ()) if one.moment >= now - span), default=FOREVER
        )

    def forget(self, entities: Collection[str]) -> None:
        """Drops the readings of some entities."""
        self.all = {key: kept for key, kept in self.all.items() if key[0] not in entities}

    def find(self, key: tuple[str, str], aggregate: Aggregate, now: int, after: int) -> AggregateFinding:
        """An aggregate of an entity's readings at a moment, of those behind a position of the journal."""
        inside = [one for one in self.all.get(key, ()) if one.moment >= now - aggregate.span and one.position > after]
        return aggregated(aggregate, sorted(inside, key=lambda one: one[:2]))


@dataclass(slots=True)
class PlainEntityCounts:
    """Keeps the newest report of every entity and looks at all of them: the reference for what is faster."""

    names: set[str] = field(default_factory=set)
    all: dict[tuple[str, str], ContextReading] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    beyond: Counter[str] = field(default_factory=Counter)

    def put_report(self, report: ContextReading) -> bool:
        """Takes in the report of an entity, if it is the newest; whether that may change a count."""
        before = self.all.get(report.key)
        if before is not None and before.moment > report.moment:
            return False
        self.all[report.key] = report
        return report.value is not False or (before is not None and before.value is not False)

    def newest(self, entity: str, name: str) -> ContextReading | None:
        """The newest report of an entity."""
        return self.all.get((entity, name))

    def tally(self, count: EntityCount, area: CountedArea, now: int) -> EntityTally:
        """How many there are, exactly."""
        reports = self.found(count.name, area, now)
        counted = sum(one.value is True for one in reports)
        lapses = (
            FOR_EVER if area.valid is None else min((one.moment + area.valid + 1 for one in reports), default=FOR_EVER)
        )
        return EntityTally(counted, len(reports) - counted, False, lapses)

    def found(self, name: str, area: CountedArea, now: int) -> list[ContextReading]:
        """The reports that count, and those of which it is unknown."""
        return [one for one in self.all.values() if one.name == name and counts_in(one, area, now)]

    def is_left_out(self, name: str, valid: int | None, now: int) -> bool:
        """Nothing is."""
        return False


@dataclass(slots=True)
class PlainScene:
    """A scene without any index."""

    plan: RulePlan
    readings: PlainReadings = field(default_factory=PlainReadings)
    windows: PlainReadingWindows = field(default_factory=PlainReadingWindows)
    counts: PlainEntityCounts = field(default_factory=PlainEntityCounts)
    conditions: ConditionLimits = field(default_factory=ConditionLimits)
    situations: dict[str, SituationInstance] = field(default_factory=dict)

    def put_reading(self, reading: ContextReading) -> bool:
        """Takes a reading in; anything may come of it."""
        self.counts.names = {leaf.counted.name for leaf in self._leaves() if leaf.counted is not None}
        if reading.name in self.counts.names:
            return self.counts.put_report(reading)
        self.readings.put_reading(reading)
        return True

    def put_readings(
        self, readings: Sequence[ContextReading], now: int, denied: Sequence[str] = ()
    ) -> Sequence[ContextReading]:
        """Takes in the readings of one event; those of which anything may come."""
        without = [readings[0]._replace(name=name, value=False) for name in denied]
        return [one for one in [*readings, *without] if self.put_reading(one)]

    def unsettled(self, now: int) -> Iterable[SituationInstance]:
        """None: `concerned` has them all."""
        return ()

    def _leaves(self) -> Iterable[ConditionLeaf]:
        return (leaf for rule in all_rules(self.plan) for leaf in leaves(rule.tree))

    def rezone(self, areas: NamedAreas) -> None:
        """Lets readings be in the zones that their places are in by now."""
        for reading in areas.rezoned([*self.readings.all.values(), *self.counts.all.values()]):
            self.put_reading(reading)

    def known(self) -> Iterator[tuple[str, str]]:
        """The class and the entity of each reading, and of each report that counts, or may."""
        counted = [one for one in self.counts.all.values() if one.value is not False]
        return ((one.name, one.entity) for one in [*self.readings.all.values(), *counted])

    @property
    def size(self) -> int:
        """How many readings and reports are kept."""
        return len(self.readings.all) + len(self.counts.all)

    def left_by(self, entity: str) -> Collection[SituationCentre]:
        """Where an entity counts until its next report comes."""
        counting = [one for one in self.counts.all.values() if one.entity == entity and one.value is not False]
        return list(dict.fromkeys(one.centre for one in counting))

    def forget(self, entities: Collection[str]) -> Iterable[ContextReading]:
        """Drops the readings of some entities, but for those that a situation looked at."""
        held = {key for instance in self.situations.values() for key in instance.seen}
        gone = [key for key in self.readings.all if key[0] in entities and key not in held]
        for key in gone:
            del self.readings.all[key]
            self.windows.all.pop(key, None)
        return [self.counts.all.pop(key) for key in list(self.counts.all) if key[0] in entities]

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
        self, names: Collection[str], keys: Sequence[tuple[str, str]], centre: SituationCentre
    ) -> Iterable[SituationInstance]:
        """Every situation that is; of rules that compare geometries, for which each look takes work, those that may
        change.
        """
        rules = self.plan.by_id
        every = ((one, rules[one.rule]) for one in self.situations.values())
        return [
            one
            for one, rule in every
            if not rule.spatial
            or (not rule.touched.isdisjoint(names) and is_concerned(one, rule, keys, centre, self.plan))
        ]

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
